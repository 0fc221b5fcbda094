"""kvkeep.vllm on vLLM's recorded classes, with a real daemon; vLLM itself is not needed.

    vllm_test.py SOURCES LIBRARY KVKEEPD
"""

import collections
import dataclasses
import enum
import inspect
import mmap
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import signatures
from vllm_rig import cache_config, config

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

ROW, ROWS = 4096, 16
CANONICAL = "v1-"  # vLLM's version of canonical pages
GROUP_BYTES = 4  # of a key: its group, behind the hash


class Answer(enum.Enum):
    """vLLM's LookupResult."""

    MISS, HIT, HIT_PENDING, RETRY = range(4)


class Calls:
    """The part of vLLM's executor that is used."""

    def __init__(self, vllm_config):
        self.vllm_config, self.made = vllm_config, []

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False):
        self.made.append((method, timeout, args, kwargs, non_block))
        return [method]


class Counters(collections.Counter):
    """The part of vLLM's OffloadingConnectorStats that is used."""

    def increase_counter(self, name, value, labels):
        self[(name, *labels)] += value


def fake_vllm():
    """The record, and the code that it lacks."""
    name = "vllm.v1.kv_offload.tiering.base"
    tiering = sys.modules[name] = types.ModuleType(name)
    tiering.time = time  # of the record's defaults
    tiering.CacheHitSource = types.SimpleNamespace(EXTERNAL_UNSPECIFIED=None)
    signatures.load(name)
    logger = types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None,
                                   debug=lambda *_: None)
    signatures.load("vllm.logger").init_logger = lambda _: logger
    signatures.installed("vllm", "0.33.0")
    connector = "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector"
    signatures.load(connector).OffloadingConnector.scheduler = None
    common = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.common"
    sys.modules[common] = types.ModuleType(common)
    sys.modules[common].TransferStats = types.SimpleNamespace
    signatures.load(common)
    signatures.load("vllm.v1.executor.abstract").Executor.get_class = lambda _: Calls
    base = signatures.load("vllm.v1.kv_offload.base")
    base.LookupResult, base.RequestOffloadingContext = Answer, types.SimpleNamespace
    base.Medium = types.SimpleNamespace(STORAGE="STORAGE")
    base.Locality = types.SimpleNamespace(LOCAL="LOCAL")
    base.get_offload_block_hash = lambda key: key[:-GROUP_BYTES]
    base.make_offload_key = lambda digest, group: digest + group.to_bytes(GROUP_BYTES, "big")
    base.get_offload_group_idx = lambda key: int.from_bytes(key[-GROUP_BYTES:], "big")
    signatures.load("vllm.v1.metrics.cache_hit_source").CacheHitSource = types.SimpleNamespace(
        HOST="HOST")
    signatures.load("vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping"
                    ).canonical_format_id = lambda layout: CANONICAL + layout
    base.OffloadingCounterMetadata = types.SimpleNamespace
    signatures.load("vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics"
                    ).OffloadingConnectorStats = Counters
    tiering.SecondaryTierManager.block_size_bytes = ROW
    return tiering


TIERING = fake_vllm()
from daemon import Daemon  # noqa: E402
from kvkeep.vllm import KvkeepOffloadingConnector, KvkeepTier, tiers_of  # noqa: E402


def keys(count, first=1, group=0):
    return [bytes([first + i]) * 32 + group.to_bytes(GROUP_BYTES, "big") for i in range(count)]


def spec(canonical=False):
    """The part of vLLM's OffloadingSpec that is used."""
    groups = [types.SimpleNamespace(group_id=group, tokens_per_block=16, layer_names=("l0", "l1"))
              for group in range(2)]
    parallel = types.SimpleNamespace(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1)
    return types.SimpleNamespace(config=types.SimpleNamespace(
        engine_id="test", groups=groups, parallel=parallel, kv_cache_layout="NHD",
        model=types.SimpleNamespace(name="m", dtype="bfloat16"),
        cache=types.SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=16),
        canonical_layout=canonical, replicated_layout=False))


def failed(engine):
    """Returns chunks by (operation, reason) since the last call. Every metric must be declared.
    """
    taken = engine.tier.get_stats()
    assert {name for name, *_ in taken} <= set(KvkeepTier.build_metric_definitions({}))
    return {tuple(labels): chunks for (_, *labels), chunks in taken.items()}


class Engine:
    """A tier as vLLM's manager drives it: step after step, on one thread."""

    def __init__(self, endpoint, vllm_config, block=16, canonical=False, shared=False, **options):
        self.memory = bytearray(ROW * ROWS)
        if shared:  # as vLLM's own
            self.fd = os.memfd_create("rows")
            os.ftruncate(self.fd, ROW * ROWS)
            self.memory = mmap.mmap(self.fd, ROW * ROWS)
        self.view = memoryview(self.memory).cast("B", (ROWS, ROW))
        with tiers_of(vllm_config, cache_config(block)) as self.of:
            self.tier = KvkeepTier(spec(canonical), self.view, "kvkeep", endpoint=endpoint,
                                   **options)
        self._jobs = 0

    def job(self, submit, wanted, promotion, request="r"):
        """Returns the keys that the job ended well with, one a row."""
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
        """Returns the rows' first bytes."""
        self.memory[:] = bytes(len(self.memory))
        good = self.job(self.tier.submit_load, wanted, promotion=True, request=request)
        rows = [self.memory[row * ROW:(row + 1) * ROW] for row in range(len(wanted))]
        return [bytes(row[:1]) if row == row[:1] * ROW and key in good else None
                for row, key in zip(rows, wanted)]

    def ask(self, wanted, request="r"):
        """Returns whether each key is there, once all are known."""
        context = types.SimpleNamespace(req_id=request)
        self.tier.on_new_request(context)
        deadline = time.monotonic() + 30
        while True:
            said = [self.tier.lookup(key, context) for key in wanted]
            if Answer.RETRY not in said:
                return [one is Answer.HIT for one in said]
            assert time.monotonic() < deadline, said
            self.tier.on_schedule_end(types.SimpleNamespace(preempted_req_ids=()))

    def over(self, request="r"):
        self.tier.on_request_finished(types.SimpleNamespace(req_id=request))

    def leases(self):
        return self.tier._finder.leases  # pylint: disable=protected-access


class Vllm(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.model = holder.name
        self.write("model.bin", b"weights")

    def write(self, name, content):
        """Writes files into the model's folder, before the engine begins."""
        path = pathlib.Path(self.model, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        began = mock.patch("kvkeep.weights._IMPORTED_NS", time.time_ns() + 10 ** 12)
        began.start()
        self.addCleanup(began.stop)

    def engine(self, configured=None, block=16, of=None, **options):
        of = of or config(**{"model": self.model, **(configured or {})})
        engine = Engine(self.daemon.endpoint, of, block, **{"lookup_timeout_s": 20.0, **options})
        self.addCleanup(engine.tier.shutdown)
        self.addCleanup(engine.of.adapters.close)
        return engine

    def test_it_has_the_methods_that_vllm_calls(self):
        base = TIERING.SecondaryTierManager
        for name in base.__abstractmethods__ | {
                "on_request_finished", "on_schedule_end", "has_pending_work", "shutdown",
                "build_metric_definitions", "get_stats", "config_info_keys", "config_info"}:
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

    def test_shared_rows_are_read_in_place_and_a_store_without_answer_ends_at_its_deadline(self):
        engine = self.engine(shared=True, path="local")
        self.addCleanup(os.close, engine.fd)
        self.assertEqual(engine.store(keys(3)), keys(3))
        engine.tier._options = dataclasses.replace(engine.tier._options, timeout_s=0.25)
        counters = self.daemon.status()["counters"]
        self.assertEqual((counters["local_registered_bytes"], counters["local_staging_bytes"]),
                         (ROW * ROWS, 0))
        other = self.engine(path="local")
        for round_ in range(10):
            stored = keys(3, first=10 + 3 * round_)
            stop = threading.Timer(random.random() * 0.003, self.daemon.process.send_signal,
                                   (signal.SIGSTOP,))
            stop.start()
            good = engine.store(stored)  # and the tier no longer has such a job
            stop.join()
            engine.memory[:] = b"\xff" * len(engine.memory)  # vLLM's own again
            self.daemon.process.send_signal(signal.SIGCONT)
            deadline = time.monotonic() + 20
            while failed(other) or other.ask(keys(1)) != [True]:  # the breaker
                other.over()
                self.assertLess(time.monotonic(), deadline)
            for key, byte in zip(stored, other.load(stored)):
                self.assertIn(byte, (key[:1],) if key in good else (key[:1], None))
            other.over()

    def test_whatever_changes_kv_is_another_namespace(self):
        stored = keys(1)
        self.assertEqual(self.engine().store(stored), stored)
        rope = {"architectures": ["Llama"], "rope_parameters": {"rope_type": "linear", "factor": 2}}
        for other in ({"dtype": "bfloat16"}, {"cache_dtype": "fp8"}, {"quantization": "fp8"},
                      {"hf_config": rope}, {"kv_cache_layout": "LBNHC"},
                      {"prefix_caching_hash_algo": "sha256_cbor"},
                      {"cp_kv_cache_interleave_size": 2}, {"load_format": "safetensors"}):
            self.assertEqual(self.engine(other).ask(stored), [False], other)
        self.assertEqual(self.engine(block=32).ask(stored), [False])
        self.assertEqual(self.engine(name="tuned").ask(stored), [False])
        self.assertEqual(self.engine(weights="name:X").ask(stored), [False])
        for version in ("v1-", "v2-"):  # of canonical pages
            with mock.patch.dict(globals(), CANONICAL=version):
                engine = self.engine(canonical=True)
                self.assertEqual(engine.ask(stored), [False])
                self.assertEqual(engine.store(stored), stored)
        for of_environment in ({"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1"}):
            with mock.patch.dict(os.environ, of_environment):
                self.assertEqual(self.engine().ask(stored), [False])
        with mock.patch.object(sys.modules["vllm"], "__version__", "0.33.1"):
            self.assertEqual(self.engine().ask(stored), [False])
        # The same engine except for the model's place, facts that KV does not depend on, or a
        # prompt's longest length.
        self.assertEqual(self.engine({"max_model_len": 4096}).ask(stored), [True])
        elsewhere = tempfile.TemporaryDirectory()
        self.addCleanup(elsewhere.cleanup)
        pathlib.Path(elsewhere.name, "model.bin").write_bytes(b"weights")
        self.assertEqual(self.engine({"model": elsewhere.name}).ask(stored), [True])
        # Other weights of the same size under the path.
        self.write("model.bin", b"WEIGHTS")
        self.assertEqual(self.engine().ask(stored), [False])
        self.write("model.bin", b"weights")
        self.assertEqual(self.engine().ask(stored), [True])

    def test_what_could_be_taken_for_other_kv_is_refused_in_words(self):
        for why, configured in (("xxhash: .* sha256", {"prefix_caching_hash_algo": "xxhash"}),
                                ("xxhash_cbor", {"prefix_caching_hash_algo": "xxhash_cbor"}),
                                ('dummy .*"name:X"', {"load_format": "dummy"}),
                                ("/absent", {"model": "/absent"})):
            with self.assertRaisesRegex(ValueError, why):
                self.engine(configured)
        self.engine({"load_format": "dummy"}, weights="name:X")
        with mock.patch.object(sys.modules["vllm"], "__version__", "0.34.0"), \
                self.assertRaisesRegex(ValueError, "vllm 0.34.0 is not known"):
            self.engine()
        with self.assertRaisesRegex(ValueError, "KvkeepOffloadingConnector"):  # vLLM's own
            KvkeepTier(spec(), memoryview(bytearray(ROW)).cast("B", (1, ROW)), "kvkeep")
        short = [b"\1" * 16 + bytes(GROUP_BYTES)]  # whatever made it
        engine = self.engine()
        self.assertEqual((engine.store(short), engine.ask(short), engine.load(short)),
                         ([], [False], [None]))
        self.assertEqual(failed(engine), {("store", "short_hash"): 1, ("lookup", "short_hash"): 1,
                                          ("load", "short_hash"): 1})

    def test_weights_that_may_have_changed_in_place_are_others(self):
        engine, other = self.engine(), self.engine()
        engine.store(keys(2))
        self.assertEqual(engine.ask(keys(1)), [True])
        engine.over()
        engine.tier.epochs.reset()
        self.assertEqual(engine.store(keys(1, first=7)), [])  # until vLLM's own memory is empty
        engine.of.is_stale = False
        self.assertEqual(engine.ask(keys(2)), [False, False])
        engine.store(keys(1, first=7))
        self.assertEqual(engine.ask(keys(1, first=7), "later"), [True])
        self.assertEqual(other.ask(keys(1) + keys(1, first=7)), [True, False])
        kept = self.engine(on_reset="ignore")
        kept.tier.epochs.reset()
        self.assertEqual(kept.ask(keys(2)), [True, True])
        # Once a change was seen, blocks from before may have been stored up to the reset after it.
        kept.tier.epochs.heard({0: 1})
        before = kept.tier.epochs.name
        kept.tier.epochs.reset()
        self.assertNotEqual(kept.tier.epochs.name, before)

    def test_all_ranks_that_were_written_begin_one_epoch(self):
        epochs = self.engine().tier.epochs
        epochs.heard({0: 3, 1: 4})
        self.assertEqual((epochs.number, epochs.known_writes), (1, {0: 3, 1: 4}))
        epochs.heard({0: 3, 1: 4})
        self.assertEqual(epochs.number, 1)

    def test_a_load_of_what_is_not_there_is_counted(self):
        engine = self.engine()
        self.assertEqual(engine.load(keys(2)), [None, None])
        self.assertEqual(failed(engine), {("load", "not_loaded"): 2})

    def test_a_request_from_before_an_epoch_stores_nothing_in_it(self):
        engine = self.engine()
        for request in ("before", "restarted"):
            engine.tier.on_new_request(types.SimpleNamespace(req_id=request))
        engine.tier.epochs.reset()
        engine.tier.on_new_request(types.SimpleNamespace(req_id="after"))
        engine.tier.restarts("restarted")
        stored = {request: engine.tier._own.of(keys(1)[0], request, "store") is not None
                  for request in ("before", "after", "restarted")}
        self.assertEqual(stored, {"before": False, "after": True, "restarted": True})
        self.assertEqual(failed(engine), {("store", "epoch"): 1})

    def test_a_request_with_images_is_neither_kept_nor_found(self):
        for options, kept in (({}, False), ({"multimodal": "trusted"}, True)):
            engine = self.engine(**options)
            request = types.SimpleNamespace(request_id="r", mm_features=[])
            engine.tier.refuse_images(request)
            self.assertIsNotNone(engine.tier._own.of(keys(1)[0], "r", "lookup"))
            request.mm_features.append("an image")  # by a later part of its input
            own = [engine.tier._own.of(keys(1)[0], "r", operation)
                   for operation in ("lookup", "load", "store")]
            self.assertEqual([one is not None for one in own], [kept] * 3)
            engine.tier.on_new_request(types.SimpleNamespace(req_id="r"))
            engine.over("r")
            self.assertIsNotNone(engine.tier._own.of(keys(1)[0], "r", "lookup"))  # another one

    def test_a_call_to_workers_that_may_change_weights_begins_an_epoch(self):
        of = config(self.model)
        calls, engine = Calls(of), self.engine(of=of)
        for method, named, begins in (
                ("execute_model", {}, False), ("save_sharded_state", {}, False),
                ("reload_weights", {}, True), ("finish_weight_update", {}, True),
                ("apply_model", {}, True), ("a_users_own", {}, True), (print, {}, True),
                ("discard", {"tags": ("kv_cache",)}, False), ("wake_up", {}, False),
                ("sleep", {"level": 2}, True),
                ("sleep", {"level": 1}, False), ("wake_up", {}, False)):
            before = engine.tier.epochs.name
            self.assertEqual(calls.collective_rpc(method, 1.5, (), named, non_block=True),
                             [method])
            self.assertEqual(calls.made[-1], (method, 1.5, (), named, True))
            self.assertEqual(engine.tier.epochs.name != before, begins, method)
            self.assertEqual(engine.of.is_stale, engine.tier.epochs.private)  # vLLM's own memory
        engine.tier.epochs.close()
        before = engine.tier.epochs.name
        calls.collective_rpc("reload_weights")
        self.assertEqual(engine.tier.epochs.name, before)

    def test_after_a_sleep_alone_the_epoch_from_before_goes_on(self):
        of = config(self.model)
        calls = Calls(of)

        def sleep(epochs):
            calls.collective_rpc("synchronize_device")
            epochs.reset()
            calls.collective_rpc("reset_mm_cache")
            calls.collective_rpc("sleep", kwargs={"level": 1})

        with mock.patch("kvkeep.vllm_epochs._is_own_process", lambda: True):
            epochs = self.engine(of=of).tier.epochs
        sleep(epochs)
        self.assertTrue(epochs.private)
        calls.collective_rpc("wake_up", kwargs={"tags": ["weights"]})
        self.assertTrue(epochs.private)
        calls.collective_rpc("wake_up", kwargs={"tags": ["kv_cache"]})
        self.assertFalse(epochs.private)
        # A reset before it is the user's own.
        epochs.reset()
        private = epochs.name
        sleep(epochs)
        calls.collective_rpc("wake_up")
        self.assertEqual(epochs.name, private)
        # Once something else has had the weights they are not trusted any more.
        sleep(epochs)
        calls.collective_rpc("reload_weights")
        after = epochs.name
        calls.collective_rpc("wake_up")
        self.assertEqual(epochs.name, after)
        sleep(epochs)
        slept = epochs.name
        calls.collective_rpc("wake_up")
        self.assertEqual(epochs.name, slept)

    def test_an_engine_in_its_users_process_does_not_share_after_a_sleep(self):
        of = config(self.model)
        calls, epochs = Calls(of), self.engine(of=of).tier.epochs
        epochs.reset()
        calls.collective_rpc("sleep", kwargs={"level": 1})
        calls.collective_rpc("wake_up")
        self.assertTrue(epochs.private)

    def test_an_engine_that_takes_updates_begins_in_private(self):
        of = config(self.model)
        of.weight_transfer_config = object()
        epochs = self.engine(of=of).tier.epochs
        self.assertTrue(epochs.private)
        private = epochs.name
        with mock.patch.object(epochs, "_own_process", True):
            epochs.reset()
            Calls(of).collective_rpc("sleep")
            Calls(of).collective_rpc("wake_up")
        self.assertNotEqual(epochs.name, private)  # it may have been updated before that
        risky = self.engine(of=of, risk_unseen_weight_updates=True)
        self.assertFalse(risky.tier.epochs.private)
        extended = config(self.model, worker_extension_cls="users.Extension")
        self.assertTrue(self.engine(of=extended).tier.epochs.private)

    def test_ranks_with_schedulers_of_their_own_are_refused(self):
        ranks = config(self.model, distributed_executor_backend="external_launcher", world_size=2)
        with self.assertRaisesRegex(ValueError, "external_launcher"):
            self.engine(of=ranks)

    def test_an_adapters_content_is_in_the_keys_of_its_requests(self):
        def asks(engine, path, request, wanted=keys(1)):
            lora = types.SimpleNamespace(lora_int_id=1, lora_name="a",
                                         lora_path=str(pathlib.Path(self.model, path)))
            engine.of.of_request[request] = future = engine.of.adapters.of(lora)
            return future, wanted

        self.write("one/adapter_model.bin", b"1")
        engine = self.engine()
        future, _ = asks(engine, "one", "r")
        future.result(30)
        self.assertEqual(engine.job(engine.tier.submit_store, keys(1), False), keys(1))
        self.assertEqual(engine.ask(keys(1)), [True])
        self.assertEqual(engine.load(keys(1)), [b"\0"])  # everything that was stored
        engine.over()
        self.assertEqual(engine.of.of_request, {})
        self.assertEqual(engine.ask(keys(1), "without"), [False])
        # Under the same path the next engine finds what belongs to the content, and no more.
        for content, found in ((b"2", False), (b"1", True)):
            self.write("one/adapter_model.bin", content)
            other = self.engine()
            asks(other, "one", "r")[0].result(30)
            self.assertEqual(other.ask(keys(1)), [found])
        asks(other, "absent", "s")
        self.assertEqual(other.ask(keys(1), "s"), [False])
        self.assertEqual(failed(other), {("lookup", "adapter_unknown"): 1})

    def test_it_says_what_it_is(self):
        info = self.engine().tier.config_info()
        self.assertEqual(tuple(info), KvkeepTier.config_info_keys({}))
        self.assertEqual((info["kvkeep_endpoint"], info["kvkeep_path"]),
                         (self.daemon.endpoint, "auto"))
        self.assertEqual(len(info["kvkeep_identity"]), 64)

    def test_what_an_adapter_is_is_waited_for(self):
        engine, future = self.engine(), mock.Mock(done=lambda: False)
        engine.of.of_request["r"] = future
        context = types.SimpleNamespace(req_id="r")
        self.assertIs(engine.tier.lookup(keys(1)[0], context), Answer.RETRY)
        self.assertEqual(engine.store(keys(1)), [])

    def test_the_connector_tells_its_tiers_what_vllm_does_not(self):
        made = []

        class Scheduler(KvkeepOffloadingConnector):
            def __init__(self, *given):
                super().__init__(*given)
                self.reset = 0

        def make(connector, *_):
            connector.connector_worker = None
            connector.scheduler = types.SimpleNamespace(
                _req_status={}, manager=types.SimpleNamespace(secondary_tiers=made))
            made.append(KvkeepTier(spec(), memoryview(bytearray(ROW)).cast("B", (1, ROW)), "kvkeep",
                                   endpoint=self.daemon.endpoint))

        base = KvkeepOffloadingConnector.__mro__[1]
        with mock.patch.multiple(base, __init__=make, on_new_request=lambda *_: None,
                                 reset_cache=lambda _: True, shutdown=lambda _: None):
            connector = Scheduler(config(self.model), "scheduler", cache_config())
            self.addCleanup(made[0].shutdown)
            self.write("one/adapter_model.bin", b"1")
            lora = types.SimpleNamespace(lora_int_id=1, lora_name="a",
                                         lora_path=str(pathlib.Path(self.model, "one")))
            for request, adapter in (("plain", None), ("tuned", lora)):
                connector.on_new_request(types.SimpleNamespace(
                    request_id=request, lora_request=adapter, mm_features=[]))
            self.assertEqual(list(made[0]._engine.of_request), ["tuned"])
            before = made[0]._own.of(keys(1)[0], "plain", "lookup")
            pool = types.SimpleNamespace(reset_prefix_cache=lambda: True)
            connector.bind_gpu_block_pool(pool)
            self.assertTrue(pool.reset_prefix_cache())
            self.assertNotEqual(made[0]._own.of(keys(1)[0], "plain", "lookup"), before)
            connector.shutdown()

    def test_a_request_that_is_over_before_its_answer_leaves_no_lease(self):
        engine = self.engine()
        engine.store(keys(2))
        context = types.SimpleNamespace(req_id="gone")
        engine.tier.on_new_request(context)
        engine.tier.lookup(keys(1)[0], context)
        engine.tier.on_schedule_end(types.SimpleNamespace(preempted_req_ids=()))
        engine.over("gone")
        engine.tier.drain_jobs()
        self.assertEqual((engine.leases(), engine.tier.has_pending_work()), (0, False))
        self.assertEqual(engine.ask(keys(1)), [True])

    def test_what_takes_longer_to_fetch_than_to_compute_is_a_miss(self):
        self.engine().store(keys(3))
        self.daemon.wait_clean(3)
        self.daemon.restart()  # its DRAM is empty
        fast, slow = (self.engine(prefill_tokens_per_s=rate) for rate in (1e12, 1e-3))
        self.assertEqual((fast.ask(keys(3)), fast.leases()), ([False] * 3, 0))
        self.assertEqual((slow.ask(keys(4)), slow.leases()), ([True] * 3 + [False], 1))
        self.assertEqual(fast.ask(keys(3)), [False] * 3)
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
        self.assertEqual(failed(engine), {("load", "UNAVAILABLE"): 3, ("store", "UNAVAILABLE"): 3})
        self.assertEqual(failed(engine), {})
        self.daemon.start()
        self.assertTrue(engine.tier._client.wait_connected(30))
        self.assertEqual(engine.store(keys(3)), keys(3))
        self.assertEqual(engine.ask(keys(3)), [True] * 3)

    def test_no_thread_of_python_waits_for_the_daemon(self):
        """A thread beside an engine's loop would get the GIL too late."""
        before = set(threading.enumerate())
        engine = self.engine()
        engine.store(keys(3))
        engine.ask(keys(4))
        deadline = time.monotonic() + 60
        while more := set(threading.enumerate()) - before:  # those that read the weights end
            self.assertLess(time.monotonic(), deadline, more)
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
