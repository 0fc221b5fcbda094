#!/usr/bin/env python3
"""kvkeep.vllm under vLLM's own offloading manager, with a real daemon; no GPU, no model.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_tier_test.py --root SOURCES --build build/release       (with that environment's Python)

An engine finds what another one stored, unless computing it is faster. A daemon that hangs, or is
killed between lookup and load, is a miss, and nothing waits for it; once it is back its chunks are
found again.
"""

import contextlib
import os
import sys
import threading
import time
import unittest
import uuid

import engine_process

ROW = 64 * 1024
ASKED = engine_process.arguments(__doc__, engine=False)
ROOT, BUILD = ASKED.root.resolve(), ASKED.build.resolve()
os.environ.update(KVKEEP_CLIENT_LIBRARY=str(BUILD / "lib" / "libkvkeep-client.so.1"),
                  VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
sys.path[:0] = [str(ROOT / "client" / "python"), str(ROOT / "tests" / "client" / "c"),
                str(ROOT / "tests" / "client" / "python")]

import vllm_rig  # noqa: E402
from daemon import Daemon  # noqa: E402
from kvkeep.vllm import tiers_of  # noqa: E402
from vllm.v1.kv_offload.base import (LookupResult, ReqContext, ScheduleEndContext,  # noqa: E402
                                     make_offload_key)
from vllm.v1.kv_offload.factory import OffloadingSpecFactory  # noqa: E402


def locked(manager):
    """Returns the lock that vLLM's scheduler takes; versions before 0.33 have none."""
    return getattr(manager, "lock", None) or contextlib.nullcontext()


def config(endpoint, **tier):
    return vllm_rig.offloading_config("tiny", layers=2, bytes_per_block=ROW // 16,
                                      cpu_bytes=8 * ROW, tier={
                                          "endpoint": endpoint, "lookup_timeout_s": 20.0, **tier})


class Engine:
    """vLLM's scheduler side of offloading, with eight chunks of CPU memory of its own."""

    def __init__(self, endpoint, **tier):
        with tiers_of(vllm_rig.config("tiny"), vllm_rig.cache_config()):
            spec = OffloadingSpecFactory.create_spec(config(endpoint, **tier))
            self.manager = spec.get_manager()
        self.tier = self.manager.secondary_tiers[0]
        self.longest_step = 0.0

    def row(self, slot):
        view = self.manager.primary_tier.get_kv_memoryview().cast("B")
        return view[int(slot) * ROW:(int(slot) + 1) * ROW]

    def step(self):
        begin = time.monotonic()
        with locked(self.manager):
            self.manager.on_schedule_end(ScheduleEndContext((), ()))
        self.longest_step = max(self.longest_step, time.monotonic() - begin)

    def store(self, keys):
        """Acts as a request that computed them; it writes each key's first byte."""
        request = ReqContext(uuid.uuid4().hex)
        self.manager.on_new_request(request)
        for at in range(0, len(keys), 4):
            with locked(self.manager):
                out = self.manager.prepare_store(keys[at:at + 4], request)
                for key, slot in zip(out.keys_to_store, out.store_spec.chunk_ids):
                    self.row(slot)[:] = key[:1] * ROW
                self.manager.complete_store(out.keys_to_store, request)
            self.tier.drain_jobs()
            self.step()
        self.manager.on_request_finished(request)

    def ask(self, keys, request, patience=20.0, at_hit=None):
        """Makes lookups of a waiting request, step by step, until each is decided."""
        deadline = time.monotonic() + patience
        while True:
            begin = time.monotonic()
            with locked(self.manager):
                results = [self.manager.lookup(key, request) for key in keys]
            self.longest_step = max(self.longest_step, time.monotonic() - begin)
            if at_hit is not None and self.tier.lookup(keys[0], request) is LookupResult.HIT:
                at_hit()
                at_hit = None
            self.step()
            if all(one in (LookupResult.HIT, LookupResult.MISS) for one in results):
                return results
            if time.monotonic() > deadline:
                raise AssertionError(f"undecided: {results}")
            time.sleep(0.002)  # the model would run meanwhile

    def load(self, keys, request):
        """Returns the bytes that the GPU would get."""
        with locked(self.manager):
            spec = self.manager.prepare_load(keys, request)
            rows = [bytes(self.row(slot)) for slot in spec.chunk_ids]
            self.manager.complete_load(keys, request)
        return rows


class VllmTier(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(BUILD / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def engine(self, **tier):
        engine = Engine(self.daemon.endpoint, **tier)
        self.addCleanup(engine.manager.shutdown)
        return engine

    def request(self, engine):
        request = ReqContext(uuid.uuid4().hex)
        engine.manager.on_new_request(request)
        return request

    keys = [make_offload_key(bytes([i + 1]) * 32, 0) for i in range(20)]

    def check_hits(self, engine, keys):
        request = self.request(engine)
        self.assertEqual(engine.ask(keys, request), [LookupResult.HIT] * len(keys))
        for key, row in zip(keys, engine.load(keys, request)):
            self.assertTrue(row == key[:1] * ROW, "wrong bytes")
        engine.manager.on_request_finished(request)

    def test_what_one_engine_stored_is_found_by_another(self):
        for path in ("local", "grpc"):
            with self.subTest(path=path):
                first = self.engine(path=path)
                first.store(self.keys)
                second = self.engine(path=path)
                for at in range(0, 20, 4):
                    self.check_hits(second, self.keys[at:at + 4])
                absent = [make_offload_key(b"z" * 32, 0)]
                request = self.request(second)
                self.assertEqual(second.ask(absent, request), [LookupResult.MISS])
                second.manager.on_request_finished(request)

    def test_a_short_digest_is_never_kept(self):
        engine, short = self.engine(), make_offload_key(b"\x21" * 16, 0)  # as of xxhash
        engine.store([short])
        other = self.engine()
        request = self.request(other)
        self.assertEqual(other.ask([short], request), [LookupResult.MISS])
        other.manager.on_request_finished(request)

    def test_a_daemon_that_dies_between_lookup_and_load_is_a_miss(self):
        self.engine().store(self.keys[:4])
        engine = self.engine()
        request = self.request(engine)
        results = engine.ask(self.keys[:4], request, at_hit=self.daemon.kill)
        # Loads of some may have ended before.
        hits = [key for key, one in zip(self.keys, results) if one is LookupResult.HIT]
        for key, row in zip(hits, engine.load(hits, request) if hits else []):
            self.assertTrue(row == key[:1] * ROW, "wrong bytes")
        engine.manager.on_request_finished(request)
        request = self.request(engine)
        self.assertEqual(engine.ask([self.keys[19]], request), [LookupResult.MISS])
        engine.manager.on_request_finished(request)
        self.daemon.start()
        self.assertTrue(engine.tier._client.wait_connected(30))
        engine.store(self.keys[8:12])
        self.check_hits(self.engine(), self.keys[8:12])

    def test_a_daemon_that_hangs_keeps_no_step_waiting(self):
        self.engine().store(self.keys[:4])
        engine = self.engine(lookup_timeout_s=2.0, timeout_s=2.0)
        self.check_hits(engine, self.keys[:4])
        engine.longest_step = 0.0
        os.kill(self.daemon.process.pid, 19)
        os.waitpid(self.daemon.process.pid, os.WUNTRACED)
        request = self.request(engine)
        self.assertEqual(engine.ask([self.keys[10]], request), [LookupResult.MISS])
        engine.manager.on_request_finished(request)
        os.kill(self.daemon.process.pid, 18)
        print(f"longest step beside a daemon that hangs: {engine.longest_step * 1000:.2f} ms")
        self.assertLess(engine.longest_step, 1.5)  # the lookup itself takes two seconds

    def test_what_takes_longer_to_fetch_than_to_compute_is_a_miss(self):
        self.engine().store(self.keys[:4])
        self.daemon.wait_clean(4)
        self.daemon.restart()  # all of it is on NVMe now
        fast = self.engine(prefill_tokens_per_s=1e12)
        request = self.request(fast)
        self.assertEqual(fast.ask(self.keys[:4], request), [LookupResult.MISS] * 4)
        self.assertEqual(fast.tier._finder.leases, 0)
        fast.manager.on_request_finished(request)
        self.check_hits(self.engine(prefill_tokens_per_s=1), self.keys[:4])
        self.check_hits(fast, self.keys[:4])  # in DRAM by now

    def test_no_thread_of_python_waits_for_the_daemon(self):
        """A thread beside an engine's loop would get the GIL too late."""
        before = set(threading.enumerate())
        engine = self.engine()
        engine.store(self.keys[:4])
        request = self.request(engine)
        engine.ask([self.keys[10]], request)
        engine.manager.on_request_finished(request)
        self.assertEqual(set(threading.enumerate()) - before, set())

    def test_what_a_request_found_is_held_until_it_is_over(self):
        self.engine().store(self.keys[:4])
        engine = self.engine()
        request = self.request(engine)
        engine.ask(self.keys[:4], request)
        self.assertEqual(engine.tier._finder.leases, 1)
        lease = engine.tier._finder._leases[request.req_id][0]
        self.assertTrue(lease.alive)
        engine.manager.on_request_finished(request)
        self.assertFalse(lease.alive)
        self.assertEqual(engine.tier._finder._leases, {})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
