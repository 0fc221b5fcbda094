"""What the engines' adapters share, with neither an engine nor a daemon.

    engine_test.py SOURCES LIBRARY
"""

import os
import pathlib
import sys
import threading
import unittest

SOURCES, LIBRARY = pathlib.Path(sys.argv[1]), sys.argv[2]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path.insert(0, str(SOURCES / "client" / "python"))

from kvkeep import errors  # noqa: E402
from kvkeep.engine import Breaker, LeaseOptions, Options  # noqa: E402
from kvkeep.held import HeldLeases  # noqa: E402

TOO_SLOW, AWAY = errors.DeadlineExceeded("x", ""), errors.Unavailable("x", "")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class OptionsTest(unittest.TestCase):
    def test_what_is_not_known_is_named(self):
        with self.assertRaisesRegex(ValueError, r"\['timeout'\].*timeout_s"):
            Options.of({"timeout": 1})
        with self.assertRaisesRegex(ValueError, "lease_s"):
            Options.of({"lease_s": 1})
        self.assertEqual(LeaseOptions.of({"lease_s": 1}).lease_s, 1)

    def test_times_have_limits(self):
        for bad in (0, -1, 3601, "1", None):
            with self.assertRaisesRegex(ValueError, "lookup_timeout_s"):
                Options.of({"lookup_timeout_s": bad})


class BreakerTest(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()
        self.breaker = Breaker(retry_s=5, clock=self.clock)

    def allowed(self, times):
        return [self.breaker.allows() for _ in range(times)]

    def test_a_daemon_that_hangs_is_asked_once_in_a_while(self):
        self.assertEqual(self.allowed(2), [True, True])
        self.breaker.heard(TOO_SLOW)
        self.assertEqual(self.allowed(2), [False, False])
        self.clock.now = 5
        self.assertEqual(self.allowed(3), [True, False, False])
        self.breaker.heard(TOO_SLOW)
        self.clock.now = 9.9
        self.assertEqual(self.allowed(1), [False])
        self.assertEqual(self.breaker.given_up, 5)

    def test_an_answer_of_any_kind_lets_all_calls_through(self):
        for answer in (None, AWAY):
            self.breaker.heard(TOO_SLOW)
            self.assertEqual(self.allowed(1), [False])
            self.breaker.heard(answer)
            self.assertEqual(self.allowed(2), [True, True])


class FakeLease:
    def __init__(self):
        self.over = threading.Event()

    def release(self):
        assert not self.over.is_set(), "released twice"
        self.over.set()


class HeldLeasesTest(unittest.TestCase):
    def held(self, limit_s=3600):
        held = HeldLeases(limit_s)
        self.addCleanup(held.close)
        return held

    def test_a_lease_is_held_until_each_of_its_keys_was_let_go_of(self):
        held, lease = self.held(), FakeLease()
        held.hold(lease, ["a", "b", "c"])
        held.let_go(["a", "c"])
        self.assertFalse(lease.over.is_set())
        held.let_go(["a", "unknown"])
        self.assertFalse(lease.over.is_set())
        held.let_go(["b"])
        self.assertTrue(lease.over.is_set())
        self.assertEqual(len(held), 0)

    def test_a_key_that_two_lookups_found_is_let_go_of_twice(self):
        held, first, second = self.held(), FakeLease(), FakeLease()
        held.hold(first, ["a", "b"])
        held.hold(second, ["b"])
        held.let_go(["a", "b"])
        self.assertEqual((first.over.is_set(), second.over.is_set()), (True, False))
        held.let_go(["b"])
        self.assertTrue(second.over.is_set())

    def test_a_lease_of_no_key_is_given_back_at_once(self):
        held, lease = self.held(), FakeLease()
        held.hold(lease, [])
        self.assertTrue(lease.over.is_set())

    def test_what_nobody_lets_go_of_runs_out(self):
        held, first, second = self.held(0.01), FakeLease(), FakeLease()
        held.hold(first, ["a", "b"])
        self.assertTrue(first.over.wait(20))
        held.hold(second, ["a"])  # the thread waits without a limit in between
        self.assertTrue(second.over.wait(20))
        held.let_go(["a", "b"])
        self.assertEqual((len(held), held.ran_out), (0, 2))

    def test_closing_gives_all_back(self):
        held, first, late = self.held(), FakeLease(), FakeLease()
        held.hold(first, ["a"])
        held.close()
        held.hold(late, ["b"])
        self.assertTrue(first.over.is_set() and late.over.is_set())
        held.let_go(["a", "b"])
        held.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
