"""kvkeep.lmcache_native as LMCache's adapter `native_plugin` uses it, with a real daemon; LMCache
itself is not needed.

    lmcache_native_test.py SOURCES LIBRARY KVKEEPD
"""

import dataclasses
import os
import pathlib
import select
import signal
import sys
import time
import unittest
from unittest import mock

import signatures

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

signatures.installed("lmcache", "0.5.6")
from daemon import Daemon  # noqa: E402
from kvkeep import engine_versions  # noqa: E402
from kvkeep.engine import Breaker  # noqa: E402
from kvkeep.lmcache_native import KvkeepConnector  # noqa: E402
from lmcache_rig import RefusesMixedObjects  # noqa: E402


def keys(count, model="m"):
    return [f"{model}@01000100@0@{number:064x}" for number in range(1, count + 1)]


def views(count, first=1, nbytes=4096):
    return [memoryview(bytearray([(first + number) % 256]) * nbytes) for number in range(count)]


class Native(RefusesMixedObjects, unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def connector(self, **options):
        made = KvkeepConnector(**{"endpoint": self.daemon.endpoint, "name": "w",
                                  "lookup_timeout_s": 20.0, **options})
        self.addCleanup(made.close)
        return made

    def make_one(self):
        return self.connector()

    def run_one(self, connector, number):
        """Acts as LMCache's thread: waits for the event, then takes what has ended. Returns (good,
        of each key)."""
        self.assertTrue(select.select([connector.event_fd()], [], [], 30)[0], "no event")
        (ended, well, _, good), = connector.drain_completions()
        self.assertEqual(ended, number)
        return well, good

    def store(self, connector, count=3, **other):
        number = connector.submit_batch_set(keys(count), views(count, **other))
        self.assertEqual(self.run_one(connector, number), (True, [True] * count))

    def hang(self, connector):
        """Stops the daemon. Lookups wait for 0.2 s from here on."""
        connector._options = dataclasses.replace(connector._options, lookup_timeout_s=0.2)
        self.daemon.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.daemon.process.pid, os.WUNTRACED)

    def exists(self, connector, asked):
        return self.run_one(connector, connector.submit_batch_exists(asked))

    def test_what_one_server_stored_is_found_by_another(self):
        self.store(self.connector())
        second, into = self.connector(), views(4, first=90)
        self.assertEqual(self.exists(second, keys(4)), (True, [True] * 3 + [False]))
        self.assertEqual(self.exists(second, keys(3, model="n")), (True, [False] * 3))
        self.assertEqual(self.run_one(second, second.submit_batch_get(keys(4), into)),
                         (True, [True] * 3 + [False]))
        self.assertEqual([set(view) for view in into[:3]], [{1}, {2}, {3}])
        self.assertEqual(self.exists(self.connector(name="tuned"), keys(1)), (True, [False]))

    def test_a_prompt_of_more_keys_than_the_daemon_takes_at_once_is_found_and_fetched(self):
        with Daemon(KVKEEPD, {"KVKEEP_LIMITS_KEYS_PER_CALL": "500"}) as daemon:
            connector = self.connector(endpoint=daemon.endpoint)
            self.store(connector, 600)
            for count in (500, 501, 1_200):
                there = min(count, 600)
                self.assertEqual(self.exists(connector, keys(count)),
                                 (True, [True] * there + [False] * (count - there)))
                into = [memoryview(bytearray(4096)) for _ in range(count)]
                self.assertEqual(
                    self.run_one(connector, connector.submit_batch_get(keys(count), into)),
                    (True, [True] * there + [False] * (count - there)))
                self.assertEqual(len(connector._held), 0)

    def test_an_object_of_another_size_is_a_miss(self):
        connector = self.connector()
        self.store(connector)
        for nbytes in (4095, 8192):
            self.assertEqual(self.run_one(connector, connector.submit_batch_get(
                keys(1), views(1, nbytes=nbytes))), (True, [False]))

    def test_what_was_found_is_held_until_it_was_fetched(self):
        connector = self.connector()
        self.store(connector)
        self.exists(connector, keys(4))
        self.assertEqual(len(connector._held), 1)
        self.run_one(connector, connector.submit_batch_get(keys(2), views(2)))
        self.assertEqual(len(connector._held), 1)
        self.run_one(connector, connector.submit_batch_get(keys(4)[2:], views(2)))
        self.assertEqual(len(connector._held), 0)

    def test_what_is_deleted_is_a_miss(self):
        connector = self.connector()
        self.store(connector)
        self.assertEqual(self.run_one(connector, connector.submit_batch_delete(keys(2))),
                         (True, [True] * 2))
        self.assertEqual(self.exists(connector, keys(3)), (True, [False, False, True]))

    def test_a_daemon_that_is_away_is_a_miss_and_found_again(self):
        connector = self.connector()
        self.store(connector)
        self.daemon.kill()
        self.assertEqual(self.exists(connector, keys(2))[1], [False] * 2)
        self.assertEqual(self.run_one(connector, connector.submit_batch_get(keys(2), views(2)))[1],
                         [False] * 2)
        self.assertEqual(self.run_one(connector, connector.submit_batch_set(keys(2), views(2))),
                         (False, [False] * 2))
        self.daemon.start()
        self.assertTrue(connector._client.wait_connected(30))
        self.store(connector)

    def test_a_daemon_that_hangs_is_waited_for_once(self):
        connector = self.connector()
        self.store(connector)
        connector._breaker = Breaker(retry_s=3600)
        self.hang(connector)
        for _ in range(10):
            self.assertEqual(self.exists(connector, keys(3)), (False, [False] * 3))
        self.assertEqual(connector._breaker.given_up, 9)
        self.daemon.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + 30
        while True:  # a daemon that has just gone on may take longer than 0.2 s
            connector._breaker = Breaker()
            if self.exists(connector, keys(3)) == (True, [True] * 3):
                break
            self.assertLess(time.monotonic(), deadline)

    def test_a_lookup_does_not_wait_for_loads_and_what_waited_for_too_long_is_given_up(self):
        connector = self.connector(timeout_s=3600)
        self.store(connector, count=200)
        now = [0.0]
        connector._paced._clock = lambda: now[0]
        self.hang(connector)
        loads = [connector.submit_batch_get(keys(200), views(200)) for _ in range(7)]
        self.assertEqual(self.exists(connector, keys(3)), (False, [False] * 3))
        self.assertEqual((connector._paced.in_flight, len(connector._paced)), (1000, 2))
        now[0] = 3600.0
        self.daemon.process.send_signal(signal.SIGCONT)
        good = {}
        while len(good) < 7:
            self.assertTrue(select.select([connector.event_fd()], [], [], 30)[0], "no event")
            good.update((number, all(of_keys))
                        for number, _, _, of_keys in connector.drain_completions())
        self.assertEqual([good[number] for number in loads], [True] * 5 + [False] * 2)
        self.assertEqual(connector._paced.given_up, 2)

    def test_a_call_that_cannot_be_made_fails_alone(self):
        connector = self.connector()
        with self.assertLogs("kvkeep.lmcache_native", "WARNING"):
            number = connector.submit_batch_set(keys(1), [memoryview(bytes(8))[::2]])
        self.assertEqual(self.run_one(connector, number), (False, [False]))
        self.store(connector)

    def test_a_version_that_is_not_known_keeps_and_finds_nothing(self):
        self.store(self.connector())
        with mock.patch.object(sys.modules["lmcache"], "__version__", "0.6.0"):
            with self.assertLogs("kvkeep", "WARNING") as logged:
                idle, _ = self.connector(), self.connector()
            self.assertEqual(len(logged.output), 1)
            self.assertRegex(logged.output[0], "lmcache 0.6.0 IS NOT KNOWN: kvkeep knows 0.5.6")
            self.assertEqual(self.exists(idle, keys(1)), (False, [False]))
            into = views(1)
            self.assertEqual(self.run_one(idle, idle.submit_batch_get(keys(1), into)),
                             (False, [False]))
            self.assertEqual(self.run_one(idle, idle.submit_batch_set(keys(1, 7), into)),
                             (False, [False]))
            with mock.patch.dict(os.environ, KVKEEP_UNCHECKED_ENGINE="refuse"), \
                    self.assertRaisesRegex(ValueError, "0.6.0 is not known"):
                self.connector()
            with mock.patch.dict(os.environ, KVKEEP_UNCHECKED_ENGINE="1"):
                self.assertEqual(self.exists(self.connector(), keys(1, 7)), (True, [False]))
                self.store(self.connector())
                with mock.patch.object(engine_versions, "looks_as", lambda _: "other classes"):
                    self.assertEqual(self.exists(self.connector(), keys(1)), (True, [False]))

    def test_a_typo_is_refused_and_closing_twice_is_nothing(self):
        with self.assertRaisesRegex(ValueError, "leases_s"):
            self.connector(leases_s=1)
        connector = self.connector()
        connector.close()
        connector.close()
        self.assertEqual(connector.drain_completions(), [])

    def test_what_could_be_taken_for_other_kv_is_refused(self):
        with self.assertRaisesRegex(ValueError, 'give a "name"'):
            self.connector(name=None)
        self.store(self.connector())
        with mock.patch.object(sys.modules["lmcache"], "__version__", "0.5.7"):
            self.assertEqual(self.exists(self.connector(), keys(1)), (True, [False]))
        short = ["m@01000100@0@0011223344556677@salt", "m@x@01000100@0@" + "1" * 32, "odd"]
        connector, counting = self.connector(), self.connector(short_hashes=True)
        for key in short:
            for submit in (connector.submit_batch_exists,
                           lambda asked: connector.submit_batch_set(asked, views(1)),
                           lambda asked: connector.submit_batch_get(asked, views(1))):
                self.assertEqual(self.run_one(connector, submit([key])), (False, [False]))
            number = counting.submit_batch_set([key], views(1))
            self.assertEqual(self.run_one(counting, number), (True, [True]))
        salted = ["m@n@01000100@0@" + "1" * 64 + "@salt"]
        self.assertEqual(self.exists(connector, salted), (True, [False]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
