"""Common code of the engines' adapters, without engine or daemon.

    engine_test.py SOURCES LIBRARY
"""

import os
import pathlib
import resource
import sys
import threading
import types
import unittest

SOURCES, LIBRARY = pathlib.Path(sys.argv[1]), sys.argv[2]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path.insert(0, str(SOURCES / "client" / "python"))

from kvkeep import _abi, calls, errors  # noqa: E402
from kvkeep.completions import Completions  # noqa: E402
from kvkeep.engine import (Breaker, LeaseOptions, Options, PrefillOptions,  # noqa: E402
                           asks_remote, keys_worth_loading)
from kvkeep.held import HeldLeases  # noqa: E402
from kvkeep.lookups import Lookups  # noqa: E402
from kvkeep.paced import Paced  # noqa: E402

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
            PrefillOptions.of({"lease_s": 1})
        self.assertEqual(LeaseOptions.of({"lease_s": 1, "min_saving_s": 0}).lease_s, 1)

    def test_times_have_limits(self):
        for bad in (0, -1, 3601, "1", None):
            with self.assertRaisesRegex(ValueError, "lookup_timeout_s"):
                Options.of({"lookup_timeout_s": bad})
        for bad in (-1, 10.5, "1", None):
            with self.assertRaisesRegex(ValueError, "remote_wait_s"):
                LeaseOptions.of({"remote_wait_s": bad})
        self.assertEqual(LeaseOptions.of({"remote_wait_s": 0}).remote_wait_s, 0)

    def test_a_lookup_asks_beyond_the_node_and_says_what_a_key_costs_where_that_is_known(self):
        self.assertEqual(asks_remote(Options()), {"remote_wait": 0.05, "recompute_per_key": 0})
        known = PrefillOptions.of({"prefill_tokens_per_s": 1000, "remote_wait_s": 1})
        self.assertEqual(asks_remote(known, 256), {"remote_wait": 1, "recompute_per_key": 0.256})
        self.assertEqual(asks_remote(known)["recompute_per_key"], 0)
        self.assertEqual(asks_remote(known, 10**9)["recompute_per_key"], 60)


class Answer:
    """A lookup's answer, as far as keys_worth_loading reads it."""

    IN_G2, IN_G3 = 1, 2

    def __init__(self, presence, promotion_us, parts=1, remote_keys=0):
        self.remote_keys = remote_keys
        self.presence, self.promotion_us, self.parts = bytes(presence), promotion_us, parts
        self.leading_keys = (presence + [0]).index(0) // parts


class WorthTest(unittest.TestCase):
    # 1,000 tokens a second and 100 tokens a key: a key is worth 100 ms.
    OPTIONS = PrefillOptions.of({"prefill_tokens_per_s": 1000})

    def worth(self, presence, promotion_us, options=OPTIONS, parts=1, together=None):
        return keys_worth_loading(options, Answer(presence, promotion_us, parts), 100, together)

    def test_what_comes_from_beyond_the_node_was_judged_by_the_daemon(self):
        answer = Answer([1, 2, 0, 0, 0], 0, remote_keys=2)
        self.assertEqual(keys_worth_loading(self.OPTIONS, answer, 100), 4)
        self.assertEqual(keys_worth_loading(PrefillOptions(), answer, 100), 4)

    def test_all_that_is_found_unless_the_engines_speed_is_known(self):
        self.assertEqual(self.worth([2, 2, 0, 1], 10_000_000, PrefillOptions()), 2)
        self.assertEqual(self.worth([1, 1, 3], 0), 3)

    def test_a_fetch_that_takes_longer_than_computing_is_a_miss_from_there_on(self):
        self.assertEqual(self.worth([3, 1, 2, 2], 199_000), 4)
        self.assertEqual(self.worth([3, 1, 2, 2], 201_000), 2)
        self.assertEqual(self.worth([2, 3, 1], 299_000), 3)  # without the first one all is computed
        self.assertEqual(self.worth([2, 3, 1], 301_000), 0)
        self.assertEqual(self.worth([3, 2, 0, 1, 1, 1], 101_000), 1)

    def test_a_key_is_in_dram_when_all_parts_of_it_are(self):
        presence = [1, 3, 1, 2, 2, 2, 1, 0]  # a part of the second key, and of the fourth
        self.assertEqual(self.worth(presence, 0, parts=2), 3)
        self.assertEqual(self.worth(presence, 199_000, parts=2), 3)
        self.assertEqual(self.worth(presence, 201_000, parts=2), 1)

    def test_keys_that_are_of_use_together_count_as_one(self):
        self.assertEqual(self.worth([1, 1, 2, 1, 1], 99_000, together=2), 2)
        self.assertEqual(self.worth([1, 1, 2, 1, 1], 101_000, together=2), 1)

    def test_a_saving_has_to_be_as_large_as_was_asked_for(self):
        options = PrefillOptions.of({"prefill_tokens_per_s": 1000, "min_saving_s": 0.05})
        self.assertEqual(self.worth([2, 2], 149_000, options), 2)
        self.assertEqual(self.worth([2, 2], 151_000, options), 0)

    def test_speeds_and_savings_have_limits(self):
        for name, bad in (("prefill_tokens_per_s", 0), ("prefill_tokens_per_s", "fast"),
                          ("min_saving_s", -1), ("min_saving_s", 3601), ("min_saving_s", None)):
            with self.assertRaisesRegex(ValueError, name):
                PrefillOptions.of({name: bad})


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

    def test_a_question_whether_it_pauses_is_no_try(self):
        self.assertFalse(self.breaker.pauses())
        self.breaker.heard(TOO_SLOW)
        self.assertTrue(self.breaker.pauses())
        self.clock.now = 5
        self.assertFalse(self.breaker.pauses())
        self.assertEqual(self.allowed(2), [True, False])

    def test_an_answer_of_any_kind_lets_all_calls_through(self):
        for answer in (None, AWAY):
            self.breaker.heard(TOO_SLOW)
            self.assertEqual(self.allowed(1), [False])
            self.breaker.heard(answer)
            self.assertEqual(self.allowed(2), [True, True])


class Daemon:
    """The daemon behind Lookups: records requests, and answers when the test says so."""

    def __init__(self):
        self.asked = []  # (keys, request, ended)

    def __call__(self, keys, request, ended):
        self.asked.append((keys, request, ended))

    def answer(self, good):
        """The oldest question."""
        self.asked.pop(0)[2](good)


class LookupsTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.lookups = Lookups(self.daemon, keys_at_once=4)

    def want(self, keys, request="r"):
        return [self.lookups.want(key, request) for key in keys]

    def asked(self):
        return [(keys, request) for keys, request, _ in self.daemon.asked]

    def test_a_request_is_asked_for_once_at_the_end_of_a_step(self):
        self.assertEqual(self.want("abc") + self.want("de", "s"), [None] * 5)
        self.assertEqual(self.asked(), [])
        self.lookups.flush()
        self.assertEqual(self.want("abc"), [None] * 3)
        self.lookups.flush()
        self.assertEqual(self.asked(), [(list("abc"), "r"), (["d"], "s")])
        self.daemon.answer("ac")
        self.assertEqual(self.want("abc"), [True, False, True])

    def decide(self, keys, request, good):
        """Returns what a request learns of its keys; `good` keys are there if it asks."""
        self.want(keys, request)
        self.lookups.flush()
        if self.daemon.asked:
            self.daemon.answer(good)
        return self.want(keys, request)

    def test_a_miss_is_asked_for_again_by_the_next_request(self):
        self.assertEqual(self.decide("ab", "r", "a"), [True, False])
        self.assertEqual(self.decide("ab", "s", "b"), [True, True])

    def test_a_request_asks_once_for_what_it_missed(self):
        self.assertEqual(self.decide("ab", "r", "a"), [True, False])
        self.assertEqual(self.decide("ab", "r", "b"), [True, False])
        self.lookups.flush()
        self.assertEqual(self.asked(), [])

    def test_a_request_asks_again_for_what_was_stored_meanwhile(self):
        self.assertEqual(self.decide("ab", "r", ""), [False, False])
        self.lookups.may_be_there("bx")
        self.assertEqual(self.decide("ab", "r", "b"), [False, True])
        self.lookups.ask_again("r")
        self.assertEqual(self.decide("ab", "r", "a"), [True, True])

    def test_what_failed_is_a_miss_for_good_for_who_asked(self):
        self.assertEqual(self.decide("a", "r", "a"), [True])
        self.lookups.missed("a")
        self.assertEqual(self.decide("a", "s", "a"), [True])
        self.lookups.ask_again("r")
        self.assertEqual(self.decide("a", "r", "a"), [False])

    def test_no_more_keys_are_in_flight_than_may_be(self):
        self.want("abcdefghij")
        in_flight = []
        for _ in range(3):
            self.lookups.flush()
            self.lookups.flush()
            in_flight += ["".join(keys) for keys, _ in self.asked()]
            self.daemon.answer("j")
        self.assertEqual(in_flight, ["abcd", "efgh", "ij"])
        self.assertEqual(self.want("ij"), [False, True])

    def test_an_answer_may_come_before_the_question_has_returned(self):
        lookups = Lookups(lambda keys, request, ended: ended(keys[:3]), keys_at_once=2)
        for key in "abcde":
            lookups.want(key, "r")
        lookups.flush()
        self.assertEqual([lookups.want(key, "r") for key in "abcde"], [True] * 5)

    def test_what_one_request_found_is_true_for_others(self):
        self.want("ab")
        self.lookups.flush()
        self.want("bc", "s")
        self.lookups.forget("r")
        self.lookups.flush()
        self.assertEqual(self.asked(), [(["a", "b"], "r"), (["c"], "s")])
        self.daemon.answer("ab")
        self.assertEqual(self.want("bc", "s"), [True, None])

    def test_what_nobody_wants_any_more_is_asked_for_anew(self):
        self.want("a")
        self.lookups.flush()
        self.lookups.forget("r")
        self.want("a", "s")
        self.daemon.answer("a")  # not under a lease of s
        self.assertEqual(self.want("a", "s"), [None])
        self.lookups.flush()
        self.assertEqual(self.asked(), [(["a"], "s")])

    def test_what_was_not_asked_for_yet_passes_to_who_still_wants_it(self):
        self.want("ab")
        self.want("b", "s")
        self.lookups.forget("r")
        self.lookups.flush()
        self.assertEqual(self.asked(), [(["b"], "s")])
        self.lookups.forget("nobody")

    def test_a_load_that_failed_makes_a_miss_of_what_was_found(self):
        self.want("ab")
        self.lookups.flush()
        self.lookups.missed("ab")
        self.daemon.answer("ab")
        self.lookups.missed("bz")
        self.assertEqual(self.want("ab"), [True, False])


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


class Call(str):
    """The part of a call that is used; its name."""

    left = None  # its timeout, if changed since it was made

    def limit(self, timeout):
        self.left = timeout


class PacedTest(unittest.TestCase):
    def setUp(self):
        self.running, self.ended, self.allowed, self.refuses = [], [], True, False
        self.clock = Clock()
        self.paced = Paced(self, lambda: self.allowed, 30, keys_at_once=10, groups_waiting=1000,
                           clock=self.clock)

    def start_all(self, calls, ended):
        """Acts as Completions: a group without calls is over at once, and so is a refused one."""
        if calls and self.refuses:
            ended([("result", None)])
        elif calls:
            self.running.append((calls[0], ended))
        else:
            ended([])

    def ask(self, *names, keys):
        for name in names:
            self.paced.start_all([Call(name)], keys, lambda outcomes, n=name: self.ended.append(
                (n, bool(outcomes))))

    def end_first(self):
        _, ended = self.running.pop(0)
        ended([("result", None)])

    def names(self):
        return [name for name, _ in self.running]

    def test_what_does_not_fit_waits_for_others_to_end(self):
        self.ask("a", "b", "c", keys=4)
        self.assertEqual((self.names(), len(self.paced)), (["a", "b"], 1))
        self.end_first()
        self.assertEqual((self.names(), len(self.paced)), (["b", "c"], 0))
        self.end_first()
        self.end_first()
        self.assertEqual(self.ended, [("a", True), ("b", True), ("c", True)])
        self.assertEqual(self.paced.in_flight, 0)

    def test_one_that_never_fits_goes_alone(self):
        self.ask("a", keys=1)
        self.ask("large", keys=11)
        self.assertEqual(self.names(), ["a"])
        self.end_first()
        self.assertEqual(self.names(), ["large"])

    def test_one_that_never_fits_is_not_overtaken(self):
        self.ask("a", "b", keys=4)
        self.ask("large", keys=11)
        self.ask("c", "d", keys=1)
        self.end_first()
        self.assertEqual(self.names(), ["b"])
        self.end_first()
        self.assertEqual(self.names(), ["large"])
        self.end_first()
        self.assertEqual(self.names(), ["c", "d"])

    def test_what_waited_has_what_is_left_of_its_time(self):
        self.ask("a", "b", keys=10)
        self.clock.now = 20
        self.ask("c", keys=10)
        self.end_first()
        (call, _), = self.running
        self.assertEqual((call, call.left), ("b", 10))
        self.clock.now = 49
        self.end_first()
        (call, _), = self.running
        self.assertEqual((call, call.left), ("c", 1))

    def test_what_waited_for_all_of_its_time_is_given_up(self):
        self.ask("a", "b", "c", keys=10)
        self.clock.now = 29
        self.ask("d", keys=10)
        self.paced.poll()
        self.assertEqual((self.ended, len(self.paced)), ([], 3))
        self.clock.now = 30
        self.paced.poll()
        self.assertEqual((self.ended, self.names()), ([("b", False), ("c", False)], ["a"]))
        self.ask("e", keys=10)
        self.clock.now = 59.5  # "d" is late, "e" is not
        self.end_first()
        self.assertEqual((self.names(), self.paced.given_up), (["e"], 3))

    def test_no_more_wait_than_may(self):
        self.ask("a", keys=10)
        self.ask(*map(str, range(1001)), keys=10)
        self.assertEqual((len(self.paced), self.paced.given_up), (1000, 1))
        self.assertEqual(self.ended, [("1000", False)])

    def test_many_that_are_refused_at_once_are_over_in_their_order(self):
        self.ask("a", keys=10)
        self.ask(*map(str, range(1000)), keys=10)
        self.refuses = True
        self.end_first()
        self.assertEqual(self.ended, [("a", True)] + [(str(n), True) for n in range(1000)])
        self.assertEqual((self.paced.in_flight, len(self.paced)), (0, 0))

    def test_a_call_has_the_timeout_that_it_was_limited_to(self):
        request = _abi.make(_abi.LookupRequest, deadline_ms=30_000)
        calls.Call("lookup", [request], None, None).limit(1.5)
        self.assertEqual(request.deadline_ms, 1500)

    def test_what_waited_for_a_daemon_that_hangs_is_given_up(self):
        self.ask("a", "b", "c", keys=10)
        self.allowed = False
        self.end_first()
        self.assertEqual((self.running, len(self.paced)), ([], 0))
        self.assertEqual(sorted(self.ended), [("a", True), ("b", False), ("c", False)])

    def test_what_asks_nothing_is_over_at_once(self):
        self.ask("a", keys=10)
        self.paced.start_all([], 5, lambda outcomes: self.ended.append(("none", outcomes)))
        self.assertEqual(self.ended, [("none", [])])
        self.paced.drop()


class Queue:
    """The part of the C ABI that Completions calls. Each call is over at once."""

    def __init__(self):
        self.readable, self._write = os.pipe()
        self._ended = []

    def kvkeep_queue_create(self, _capacity, queue, _error):
        queue._obj.value = 1
        return 0

    def kvkeep_queue_fd(self, _queue):
        return self.readable

    def kvkeep_lookup_async(self, _client, _queue, number, _error):
        self._ended.append(number)
        os.write(self._write, b"x")
        return 0

    def kvkeep_queue_poll(self, _queue, out, most):
        taken, self._ended = self._ended[:most], self._ended[most:]
        for at, number in enumerate(taken):
            out[at].user_data, out[at].error.code = number, 0
        return len(taken)

    def close(self):
        os.close(self.readable)
        os.close(self._write)


class CompletionsTest(unittest.TestCase):
    LOOKUP = types.SimpleNamespace(empty=False, name="lookup", structs=(),
                                   finish=lambda error, message: "found")

    def completions(self):
        queue = Queue()
        self.addCleanup(queue.close)
        return Completions(types.SimpleNamespace(
            library=queue, begin=lambda: None, end=lambda _: None, exception=lambda error: None))

    def test_a_process_may_have_many_descriptors_open(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limit[1]), limit[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limit)
        for _ in range(1100):
            self.addCleanup(os.close, os.dup(0))
        completions, ended = self.completions(), []
        self.assertGreater(completions.fd, 1024)
        completions.start(self.LOOKUP, lambda *outcome: ended.append(outcome))
        self.assertTrue(completions.wait(20))
        self.assertEqual(ended, [("found", None)])
        self.assertTrue(completions.wait(0))

    def test_what_does_not_end_is_not_waited_for(self):
        completions = self.completions()
        completions._library.kvkeep_lookup_async = lambda *_: 0
        completions.start(self.LOOKUP, None)
        self.assertFalse(completions.wait(0.01))
        self.assertEqual(completions.pending, 1)

    def test_a_callback_that_raises_loses_no_other_call(self):
        completions, ended = self.completions(), []

        def hears(number, result, _):
            if number == 3:
                raise RuntimeError("of this callback")
            ended.append((number, result))

        for number in range(100):
            completions.start(self.LOOKUP, lambda *outcome, n=number: hears(n, *outcome))
        with self.assertLogs("kvkeep.completions", "ERROR") as logs:
            completions.poll()
        self.assertEqual(ended, [(n, "found") for n in range(100) if n != 3])
        self.assertEqual(completions.pending, 0)
        self.assertIn("of this callback", logs.output[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
