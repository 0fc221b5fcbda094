#!/usr/bin/env python3
"""kvkeep.vllm_events on vLLM's own classes, with a real daemon; no GPU, no model.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_events_test.py --root SOURCES --build build/release       (with that environment's Python)

A chunk reported as stored is there, and is reported once. A chunk that the daemon has no more is
reported as gone, also after the daemon's restart. vLLM's records of other chunks are released.
"""

import sys
import time
import unittest
from unittest import mock

import vllm_direct_test as direct
from vllm_direct_test import ASKED, BUILD, keys

from kvkeep import Client, vllm_events
from kvkeep.completions import Completions
from kvkeep.engine_versions import lacks
from kvkeep.vllm_events import EngineEvents
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.events import (
    OffloadingEventGroupSpec, OffloadingEventsTracker, _OffloadEventMetadata)
from vllm.v1.kv_offload.base import (Medium, OffloadingKVEventsConfig, get_offload_block_hash,
                                     make_offload_key)


@unittest.skipIf(lacks("vllm", "events"), "vLLM's events are of another form before 0.33")
class Events(unittest.TestCase):
    def setUp(self):
        self.daemon = direct.Daemon(BUILD / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)
        client = Client(self.daemon.endpoint, timeout=10)
        self.addCleanup(client.close)
        self.assertTrue(client.wait_connected(20))
        self.ns = client.namespace("m", tokens_per_chunk=16, parts=2)
        self.completions = Completions(client)
        self.salted = set()  # keys of vLLM's that are not reported
        self.events = EngineEvents(self.ns, self.completions, self.tellable, 5.0)
        self.addCleanup(self.events.close)

    def tellable(self, key, request):
        self.assertEqual(request, "r")
        return None if key in self.salted else get_offload_block_hash(key)

    def store(self, job, count, first=1, good=True):
        """Stores vLLM's keys; they are in the daemon if `good`."""
        hashes = keys(count, first)
        wanted = [make_offload_key(one, 0) for one in hashes]
        self.events.begin(job, wanted, "r")
        if good:
            self.ns.put([(one, b"payload", part) for one in hashes for part in range(2)])
        self.events.end(job, good)
        return wanted

    def take(self):
        """Returns the reported keys: sets (stored, gone, released); each key once."""
        self.completions.poll()
        told = ([], [], [])
        for event in self.events.take():
            self.assertEqual((event.medium, event.ownership), (Medium.CPU, None))
            told[event.removed + event.metadata_only].extend(event.keys)
        for some in told:
            self.assertEqual(len(some), len(set(some)))
        return tuple(map(set, told))

    def until_gone(self, wanted):
        gone, deadline = set(), time.monotonic() + 30
        while gone != set(wanted):
            self.assertLess(time.monotonic(), deadline, gone)
            stored, more, _ = self.take()
            self.assertEqual(stored, set())
            gone |= more
            time.sleep(0.01)

    def test_what_was_stored_or_loaded_is_told_of_once_and_goes_once(self):
        wanted = self.store(1, 3)
        self.assertEqual(self.take(), (set(wanted), set(), set()))
        self.events.begin(2, wanted, "r")
        self.events.end(2, True)  # loaded
        self.events.end(2, True)  # and that is over
        self.assertEqual(self.take(), (set(), set(), set()))
        self.ns.delete(keys(1, first=2))
        self.until_gone(wanted[1:2])
        self.assertEqual(len(self.events), 2)
        self.ns.delete(keys(3))
        self.until_gone([wanted[0], wanted[2]])
        again = self.store(3, 3)
        self.assertEqual(self.take(), (set(again), set(), set()))

    def test_what_failed_or_may_not_be_told_of_is_let_go_of(self):
        failed = self.store(1, 2, good=False)
        self.assertEqual(self.take(), (set(), set(), set(failed)))
        self.salted = {make_offload_key(one, 0) for one in keys(2, first=7)}
        salted = self.store(2, 2, first=7)
        self.assertEqual(self.take(), (set(), set(), set(salted)))
        wanted = self.store(3, 1)
        for key in (*wanted, *salted):
            self.events.hit(key, "r")
        self.events.over("r")
        self.events.over("r")
        self.assertEqual(self.take(), (set(wanted), set(), set(salted)))

    def test_what_leaves_dram_alone_is_not_gone(self):
        wanted = self.store(1, 2)
        self.take()
        self.daemon.wait_clean(4)
        self.daemon.restart()  # what G3 has is still there
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            stored, gone, _ = self.take()
            self.assertEqual((stored, gone), (set(), set()))
            time.sleep(0.01)
        self.ns.delete(keys(2))
        self.until_gone(wanted)

    def test_no_more_is_told_of_than_may_be_and_ends_of_prefixes_go_first(self):
        with mock.patch.object(vllm_events, "_MOST", 3):
            wanted = self.store(1, 5)
            self.assertEqual(self.take(), (set(wanted), set(wanted[3:]), set()))
            self.events.begin(2, wanted[1:2], "r")
            self.events.end(2, True)  # used, so it is the latest
            other = self.store(3, 2, first=20)
            self.assertEqual(self.take(), (set(other), {wanted[2], wanted[0]}, set()))
        self.events.reset()
        self.assertEqual((len(self.events), self.take()), (0, (set(), set(), set())))

    def test_vllm_keeps_what_somebody_still_needs_of_a_chunk(self):
        """Has a tracker of its own: whichever request is aborted first, reported chunks have their
        tokens."""
        wanted = [make_offload_key(one, 0) for one in keys(2)]
        self.ns.put([(one, b"payload", part) for one in keys(2) for part in range(2)])
        tracker = OffloadingEventsTracker(OffloadingKVEventsConfig(True, True))

        def take_down():
            for at, key in enumerate(wanted):
                tracker._pending_event_metadata[key] = _OffloadEventMetadata(
                    (get_offload_block_hash(key),), None, (at,), 16, None, None, None, 0,
                    OffloadingEventGroupSpec("full_attention", None), {(Medium.CPU, None)})

        def told():
            self.completions.poll()
            return [(type(event).__name__, event.block_hashes[0], getattr(event, "token_ids", None))
                    for event in tracker.take_events(self.events.take())]

        take_down()
        for key in wanted:
            self.events.hit(key, "r")
        self.events.begin(1, wanted, "r")
        self.events.over("r")  # its client went away while it loads
        self.assertEqual(told(), [])
        self.events.end(1, True)
        self.assertEqual([(name, tokens) for name, _, tokens in told()],
                         [("BlockStored", [0]), ("BlockStored", [1])])
        for key in wanted:  # another request, which is soon over
            self.events.hit(key, "r")
        self.events.over("r")
        self.assertEqual((told(), len(tracker._pending_event_metadata)), ([], 2))
        self.ns.delete(keys(2))
        gone, deadline = [], time.monotonic() + 30
        while len(gone) < 2:
            self.assertLess(time.monotonic(), deadline)
            gone += told()
            time.sleep(0.01)
        self.assertEqual({name for name, *_ in gone}, {"BlockRemoved"})
        self.assertEqual(tracker._pending_event_metadata, {})
        take_down()
        for key in wanted:
            self.events.hit(key, "r")
        self.events.over("r")
        self.assertEqual((told(), tracker._pending_event_metadata), ([], {}))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
