"""kvkeep.vllm on vLLM's recorded classes, with a real daemon; vLLM itself is not needed.

    vllm_test.py SOURCES LIBRARY KVKEEPD
"""

import enum
import inspect
import os
import pathlib
import sys
import threading
import time
import types
import unittest

import signatures

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

ROW, ROWS = 4096, 16
GROUP_BYTES = 4  # of a key: its group, behind the hash


class Answer(enum.Enum):
    """vLLM's LookupResult."""

    MISS, HIT, HIT_PENDING, RETRY = range(4)


def fake_vllm():
    """The record, and what it cannot say: what runs."""
    name = "vllm.v1.kv_offload.tiering.base"
    tiering = sys.modules[name] = types.ModuleType(name)
    tiering.time = time  # of the record's defaults
    tiering.CacheHitSource = types.SimpleNamespace(EXTERNAL_UNSPECIFIED=None)
    signatures.load(name)
    logger = types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None)
    signatures.load("vllm.logger").init_logger = lambda _: logger
    signatures.load("vllm.v1.core.kv_cache_utils").get_none_hash_seed = lambda: "seed"
    base = signatures.load("vllm.v1.kv_offload.base")
    base.LookupResult, base.RequestOffloadingContext = Answer, types.SimpleNamespace
    base.Medium = types.SimpleNamespace(STORAGE="STORAGE")
    base.Locality = types.SimpleNamespace(LOCAL="LOCAL")
    base.get_offload_block_hash = lambda key: key[:-GROUP_BYTES]
    base.get_offload_group_idx = lambda key: int.from_bytes(key[-GROUP_BYTES:], "big")
    tiering.SecondaryTierManager.block_size_bytes = ROW
    return tiering


TIERING = fake_vllm()
from daemon import Daemon  # noqa: E402
from kvkeep.vllm import KvkeepTier  # noqa: E402


def keys(count, first=1, group=0):
    return [bytes([first + i]) * 32 + group.to_bytes(GROUP_BYTES, "big") for i in range(count)]


def spec():
    """As much of vLLM's OffloadingSpec as is used."""
    groups = [types.SimpleNamespace(group_id=group, tokens_per_block=16, layer_names=("l0", "l1"))
              for group in range(2)]
    parallel = types.SimpleNamespace(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1)
    return types.SimpleNamespace(config=types.SimpleNamespace(
        engine_id="test", groups=groups, parallel=parallel, kv_cache_layout="NHD",
        model=types.SimpleNamespace(name="m", dtype="bfloat16"),
        cache=types.SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=16),
        canonical_layout=False, replicated_layout=False))


class Engine:
    """A tier as vLLM's manager drives it: a step after the other, on one thread."""

    def __init__(self, endpoint, **options):
        self.memory = bytearray(ROW * ROWS)
        self.view = memoryview(self.memory).cast("B", (ROWS, ROW))
        self.tier = KvkeepTier(spec(), self.view, "kvkeep", endpoint=endpoint, **options)
        self._jobs = 0

    def job(self, submit, wanted, promotion, request="r"):
        """Those of the keys, one a row, that it ended well with."""
        self._jobs += 1
        submit(TIERING.TransferJob(
            job_id=self._jobs, keys=wanted, chunk_ids=range(len(wanted)), is_promotion=promotion,
            req_context=types.SimpleNamespace(req_id=request), submit_time=0.0))
        self.tier.drain_jobs()
        done, = self.tier.get_finished_jobs()
        assert done.job_id == self._jobs and not self.tier.has_pending_work()
        return list(wanted) if done.success else sorted(done.successful_keys or ())

    def store(self, wanted):
        for row, key in enumerate(wanted):
            self.memory[row * ROW:(row + 1) * ROW] = key[:1] * ROW
        return self.job(self.tier.submit_store, wanted, promotion=False)

    def load(self, wanted, request="r"):
        """The rows' first bytes."""
        self.memory[:] = bytes(len(self.memory))
        good = self.job(self.tier.submit_load, wanted, promotion=True, request=request)
        rows = [self.memory[row * ROW:(row + 1) * ROW] for row in range(len(wanted))]
        return [bytes(row[:1]) if row == row[:1] * ROW and key in good else None
                for row, key in zip(rows, wanted)]

    def ask(self, wanted, request="r"):
        """Whether each key is there, when all are decided."""
        context = types.SimpleNamespace(req_id=request)
        self.tier.on_new_request(context)
        deadline = time.monotonic() + 30
        while True:
            said = [self.tier.lookup(key, context) for key in wanted]
            if Answer.RETRY not in said:
                return [one is Answer.HIT for one in said]
            assert time.monotonic() < deadline, said
            self.tier.on_schedule_end(None)

    def over(self, request="r"):
        self.tier.on_request_finished(types.SimpleNamespace(req_id=request))

    def leases(self):
        return sum(map(len, self.tier._leases.values()))  # pylint: disable=protected-access


class Vllm(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def engine(self, **options):
        engine = Engine(self.daemon.endpoint, **options)
        self.addCleanup(engine.tier.shutdown)
        return engine

    def test_it_has_the_methods_that_vllm_calls(self):
        base = TIERING.SecondaryTierManager
        for name in base.__abstractmethods__ | {"on_request_finished", "on_schedule_end",
                                                "has_pending_work", "shutdown"}:
            theirs, ours = (inspect.signature(getattr(kind, name)) for kind in (base, KvkeepTier))
            self.assertEqual(list(ours.parameters), list(theirs.parameters), name)
        self.assertEqual(KvkeepTier.__abstractmethods__, frozenset())

    def test_what_one_engine_stored_is_found_by_another(self):
        for path in ("local", "grpc"):
            with self.subTest(path=path):
                stored = keys(3) + keys(2, group=1)
                self.assertEqual(self.engine(path=path).store(stored), stored)
                other = self.engine(path=path)
                asked = stored + keys(1, first=9)
                self.assertEqual(other.ask(asked), [True] * 5 + [False])
                self.assertEqual(other.leases(), 2)  # one of each group
                self.assertEqual(other.load(stored), [key[:1] for key in stored])
                other.over()
                self.assertEqual(other.leases(), 0)

    def test_a_request_that_is_over_before_its_answer_leaves_no_lease(self):
        engine = self.engine()
        engine.store(keys(2))
        context = types.SimpleNamespace(req_id="gone")
        engine.tier.on_new_request(context)
        engine.tier.lookup(keys(1)[0], context)
        engine.tier.on_schedule_end(None)
        engine.over("gone")
        engine.tier.drain_jobs()
        self.assertEqual((engine.leases(), engine.tier.has_pending_work()), (0, False))
        self.assertEqual(engine.ask(keys(1)), [True])

    def test_what_takes_longer_to_fetch_than_to_compute_is_a_miss(self):
        self.engine().store(keys(3))
        self.daemon.wait_clean(3)
        self.daemon.kill()
        self.daemon.start()  # its DRAM is empty
        fast, slow = (self.engine(prefill_tokens_per_s=rate) for rate in (1e12, 1e-3))
        self.assertEqual((fast.ask(keys(3)), fast.leases()), ([False] * 3, 0))
        self.assertEqual((slow.ask(keys(4)), slow.leases()), ([True] * 3 + [False], 1))
        self.assertEqual(fast.ask(keys(3), "later"), [False] * 3)  # as long as others wait for it
        fast.over()
        fast.over("later")
        slow.load(keys(3))
        self.assertEqual(fast.ask(keys(3)), [True] * 3)  # in DRAM by now

    def test_a_load_that_fails_is_a_miss_that_is_not_asked_for_again(self):
        engine = self.engine()
        engine.store(keys(3))
        self.assertEqual(engine.ask(keys(3)), [True] * 3)
        self.daemon.kill()
        self.assertEqual(engine.load(keys(3)), [None] * 3)
        self.assertEqual(engine.ask(keys(3)), [False] * 3)
        engine.over()
        self.assertEqual(engine.store(keys(3)), [])
        self.daemon.start()
        self.assertTrue(engine.tier._client.wait_connected(30))
        self.assertEqual(engine.store(keys(3)), keys(3))
        self.assertEqual(engine.ask(keys(3)), [True] * 3)

    def test_no_thread_of_python_waits_for_the_daemon(self):
        """Beside an engine's loop it would get the GIL too late."""
        before = threading.active_count()
        engine = self.engine()
        engine.store(keys(3))
        engine.ask(keys(4))
        self.assertEqual(threading.active_count(), before)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
