"""kvkeep.Watch, and so kvkeep_watch.h, against a real daemon.

    watch_test.py SOURCES LIBRARY KVKEEPD
"""

import os
import pathlib
import random
import sys
import threading
import time
import unittest

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

import kvkeep  # noqa: E402
from daemon import Daemon  # noqa: E402
from kvkeep.watch import Begin  # noqa: E402

PAYLOAD = random.Random(1).randbytes(100_000)


def key(number):
    return number.to_bytes(32, "little")


class Watching(unittest.TestCase):
    """A picture of the namespace, kept by the events."""

    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.daemon.wait_joined()  # a joining device makes a Watch begin anew
        self.addCleanup(self.daemon.__exit__)
        client = kvkeep.Client(self.daemon.endpoint, timeout=20)
        self.addCleanup(client.close)
        self.assertTrue(client.wait_connected(20))
        self.ns = client.namespace("model", tokens_per_chunk=256, parts=2)
        self.known, self.begins, self.whole = set(), [], False
        self.watch = kvkeep.Watch(self.ns)
        self.addCleanup(self.watch.close)

    def until(self, done):
        deadline = time.monotonic() + 30
        while not done():
            self.assertLess(time.monotonic(), deadline, self.known)
            try:
                news = self.watch.next(timeout=0.2)
            except kvkeep.Unavailable:
                self.begins.append("away")
                continue
            if news is None:
                continue
            if news.begins != Begin.GOES_ON:
                self.known.clear()
                self.begins.append(news.begins)
                self.whole = False
            self.whole = self.whole or news.snapshot_end
            for event in news.events:
                (self.known.add if event.stored else self.known.discard)(event[:3])

    def test_events_in_their_order_are_what_the_daemon_has(self):
        self.until(lambda: self.whole)
        self.assertEqual((self.begins[-1], self.known), (Begin.FIRST, set()))
        self.ns.put([kvkeep.Chunk(key(1), PAYLOAD, part) for part in range(2)])
        all_of_it = {(key(1), part, tier) for part in range(2) for tier in (2, 3)}
        self.until(lambda: self.known == all_of_it)
        self.assertEqual(self.ns.delete([key(1)]).chunks, 2)
        self.until(lambda: not self.known)

    def test_a_daemon_that_was_restarted_tells_all_anew(self):
        self.ns.put([(key(1), PAYLOAD)])
        self.until(lambda: self.known == {(key(1), 0, 2), (key(1), 0, 3)})
        self.daemon.wait_clean(1)
        self.daemon.restart()
        self.until(lambda: Begin.NEW_DAEMON in self.begins and self.known == {(key(1), 0, 3)})
        self.assertIn("away", self.begins)

    def test_who_waits_is_told_that_it_is_over(self):
        self.until(lambda: self.whole)
        self.assertIsNone(self.watch.next(timeout=0.05))
        threading.Timer(0.1, self.watch.cancel).start()
        began = time.monotonic()
        self.assertIsNone(self.watch.next(timeout=20))
        self.assertLess(time.monotonic() - began, 10)
        self.watch.close()
        with self.assertRaises(ValueError):
            self.watch.next()
        self.watch.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[4:]])
