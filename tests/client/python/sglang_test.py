"""kvkeep.sglang, interface v1, on SGLang's recorded classes, with a real daemon; SGLang itself is
not needed.

    sglang_test.py SOURCES LIBRARY KVKEEPD
"""

import inspect
import signal
import sys
import threading
import types
import unittest
from unittest import mock

from sglang_rig import (ENGINE, HICACHE, MODEL, KvkeepStorage, Pool, WithDaemon, indices, keys)

from kvkeep.engine import Breaker


class SGLang(WithDaemon):
    def test_it_has_the_methods_that_sglang_calls(self):
        base = HICACHE.HiCacheStorage
        for name in base.__abstractmethods__ | {"batch_exists", "batch_get_v1", "batch_set_v1",
                                                "register_mem_pool_host", "clear",
                                                "register_mem_host_pool_v2", "batch_exists_v2",
                                                "batch_get_v2", "batch_set_v2", "get_stats"}:
            theirs, ours = (inspect.signature(getattr(kind, name))
                            for kind in (base, KvkeepStorage))
            self.assertEqual(list(ours.parameters), list(theirs.parameters), name)
        self.assertEqual(KvkeepStorage.__abstractmethods__, frozenset())

    def test_what_one_engine_stored_is_found_by_another(self):
        for path in ("local", "grpc"):
            with self.subTest(path=path):
                options = {"path": path, "name": path}
                self.store(self.backend(options=options))
                self.store(self.backend(options=options))  # present
                pool = Pool()
                second = self.backend(pool, options)
                self.assertEqual(second.batch_exists(keys(5)), 3)
                self.assertEqual(second.batch_exists(keys(5, first=0)), 0)
                self.assertTrue(second.exists(keys(1)[0]))
                self.assertFalse(second.exists(keys(1, first=9)[0]))
                self.assertEqual(second.batch_get_v1(keys(4), indices([7, 0, 5, 2])),
                                 [True, True, True, False])
                for page, value in ((7, 1), (0, 2), (5, 3)):
                    self.assertEqual(pool.read(page), [{value}, {value + 100}])

    def test_sglangs_metrics_tell_of_pages_that_came_and_went(self):
        self.assertIsNone(self.backend().get_stats())
        backend = self.backend(enable_storage_metrics=True)
        self.store(backend)
        backend.batch_get_v1(keys(4), indices(range(4)))  # one of them is a miss
        backend.batch_get_v1(keys(2, first=8), indices(range(2)))  # both are
        stats = backend.get_stats()
        self.assertEqual((stats.backup_pgs, stats.prefetch_pgs), ([3], [3]))
        self.assertEqual([len(stats.backup_bandwidth), len(stats.prefetch_bandwidth)], [1, 1])
        self.assertGreater(min(stats.backup_bandwidth + stats.prefetch_bandwidth), 0)
        self.assertEqual(backend.get_stats().prefetch_pgs, [])  # since then

    def test_what_was_found_is_held_until_it_was_fetched(self):
        backend = self.backend()
        self.store(backend)
        self.assertEqual(backend.batch_exists(keys(3)), 3)
        backend.batch_get_v1(keys(2), indices([0, 1]))
        self.assertEqual(len(backend._link.held), 1)
        backend.batch_get_v1(keys(1, first=3), indices([2]))
        self.assertEqual(len(backend._link.held), 0)

    def test_what_was_found_and_never_fetched_is_let_go_of(self):
        backend, over = self.backend(options={"lease_s": 0.05}), threading.Event()
        self.store(backend)
        hold = backend._link.held.hold

        def watched(lease, of):
            release = lease.release
            lease.release = lambda: (release(), over.set())
            hold(lease, of)

        backend._link.held.hold = watched
        self.assertEqual(backend.batch_exists(keys(3)), 3)
        self.assertTrue(over.wait(30))
        self.assertEqual(backend._link.held.ran_out, 1)

    def test_what_nvme_alone_has_is_found_only_where_that_is_faster_than_computing(self):
        self.store(self.backend())
        self.daemon.wait_clean(3 * 2)
        self.daemon.restart()  # its DRAM is empty
        fast, slow = (self.backend(options={"prefill_tokens_per_s": rate})
                      for rate in (1e12, 1e-3))
        self.assertEqual(fast.batch_exists(keys(3)), 0)
        self.assertEqual(fast.batch_exists(keys(3)), 0)  # and it was not brought to DRAM for this
        self.assertEqual(slow.batch_exists(keys(4)), 3)
        self.assertEqual(slow.batch_get_v1(keys(3), indices(range(3))), [True] * 3)
        self.assertEqual(fast.batch_exists(keys(4)), 3)  # it always is from DRAM
        self.daemon.kill()
        self.assertEqual(fast.batch_exists(keys(3)), 0)

    def test_another_geometry_or_layout_is_another_page(self):
        self.store(self.backend())
        for other in ({"pp_size": 2}, {"attn_cp_size": 2}, {"tp_size": 2}):
            self.assertEqual(self.backend(**other).batch_exists(keys(1)), 0, other)
        tagged = Pool()
        tagged.storage_format_tag = "token-major"
        for pool in (Pool(layout="page_first_direct"), Pool(planes=1), tagged):
            self.assertEqual(self.backend(pool).batch_exists(keys(1)), 0)
        self.assertEqual(self.backend(options={"name": "tuned"}).batch_exists(keys(1)), 0)
        self.assertEqual(self.backend().batch_exists(keys(1)), 1)

    def test_whatever_changes_kv_is_another_page(self):
        self.write("a/adapter_model.bin", b"adapter")
        adapter = types.SimpleNamespace(lora_name="a", lora_path=str(self.folder / "a"))
        rope = {"architectures": ["Llama"], "rope_parameters": {"rope_type": "linear", "factor": 2}}
        others = ({"kv_cache_dtype": "fp8_e4m3"}, {"quantization": "fp8"}, {"page_size": 8},
                  {"json_model_override_args": '{"x": 1}'}, {"lora_paths": [adapter]},
                  {"speculative_draft_model_path": str(self.folder / "model")},
                  {"of_model": {**MODEL, "dtype": "torch.float16"}},
                  {"of_model": {**MODEL, "hf_config": rope}})
        self.store(self.backend())
        for other in others:
            with mock.patch.multiple(ENGINE, **other):
                self.assertEqual(self.backend().batch_exists(keys(1)), 0, other)
        with mock.patch.object(sys.modules["sglang"], "__version__", "0.5.23.post1"):
            self.assertEqual(self.backend().batch_exists(keys(1)), 0)
        self.write("elsewhere/model.bin", b"weights")  # the same ones
        with mock.patch.multiple(ENGINE, model_path=str(self.folder / "elsewhere"),
                                 of_model={**MODEL, "context_len": 4096}):
            self.assertEqual(self.backend(model_name="n").batch_exists(keys(1)), 1)
        self.write("model/model.bin", b"WEIGHTS")  # other weights under the same path
        self.assertEqual(self.backend().batch_exists(keys(1)), 0)
        with mock.patch.multiple(ENGINE, lora_paths=[adapter]):
            self.store(self.backend())
            self.write("a/adapter_model.bin", b"ADAPTER")
            self.assertEqual(self.backend().batch_exists(keys(1)), 0)
            self.write("a/adapter_model.bin", b"adapter")
            self.assertEqual(self.backend().batch_exists(keys(1)), 1)

    def test_what_could_be_taken_for_other_bytes_is_refused(self):
        opaque = Pool()
        opaque.dtype = "torch.uint8"
        for why, given in (("decode context", {"dcp_size": 2}),
                           ("uint8 .pool kv. do not say", {"pool": opaque})):
            with self.assertRaisesRegex(ValueError, why):
                self.backend(**given)
        lost = types.SimpleNamespace(lora_name="lost", lora_path="/absent")
        for why, other in (('dummy .*"name:X"', {"load_format": "dummy"}),
                           ('/absent.*"name:X"', {"model_path": "/absent"}),
                           ("adapter 'lost'", {"lora_paths": [lost]})):
            with mock.patch.multiple(ENGINE, **other), self.assertRaisesRegex(ValueError, why):
                self.backend()
        with mock.patch.multiple(ENGINE, load_format="dummy"):
            self.backend(options={"weights": "name:X"})
        with mock.patch.object(sys.modules["sglang"], "__version__", "0.5.24"), \
                self.assertRaisesRegex(ValueError, "sglang 0.5.24 is not known"):
            self.backend()
        named = {"name": "e4m3"}
        self.store(self.backend(opaque, named))
        self.assertEqual(self.backend(options=named).batch_exists(keys(1)), 0)  # of another dtype
        self.backend(options=named, model_name=None)

    def test_each_rank_has_its_own_bytes_unless_all_have_the_same(self):
        for mla in (False, True):
            first, second = (self.backend(tp_size=2, tp_rank=rank, is_mla_model=mla)
                             for rank in range(2))
            self.store(first)
            self.assertEqual(second.batch_exists(keys(3)), 3 if mla else 0)
            alone = self.backend(is_mla_model=mla)
            self.assertEqual(alone.batch_exists(keys(3)), 3 if mla else 0)

    def test_keys_of_the_unified_scheme_are_keys_too(self):
        backend, key = self.backend(), keys(1)[0] + "_0a1b_L0-32_H0"
        self.assertEqual(backend.batch_set_v1([key], indices([0])), [True])
        self.assertEqual([backend.batch_exists([one]) for one in (key, key + "x")], [1, 0])

    def test_a_daemon_that_is_away_is_a_miss_and_found_again(self):
        backend = self.backend()
        self.store(backend)
        self.assertEqual(backend.batch_exists(keys(3)), 3)
        self.daemon.kill()
        self.assertEqual(backend.batch_get_v1(keys(3), indices(range(3))), [False] * 3)
        self.assertEqual(backend.batch_exists(keys(3)), 0)
        self.assertEqual(backend.batch_set_v1(keys(3), indices(range(3))), [False] * 3)
        self.daemon.start()
        self.assertTrue(backend._link.client.wait_connected(30))
        self.store(backend)
        self.assertEqual(backend.batch_exists(keys(3)), 3)

    def test_a_daemon_that_hangs_is_waited_for_once(self):
        backend = self.backend()
        self.store(backend)
        self.hang(backend)
        for _ in range(20):
            self.assertEqual(backend.batch_exists(keys(3)), 0)
            self.assertFalse(backend.exists(keys(1)[0]))
        self.assertEqual(backend.batch_get_v1(keys(3), indices(range(3))), [False] * 3)
        self.assertEqual(backend.batch_set_v1(keys(3), indices(range(3))), [False] * 3)
        self.assertEqual(backend._link.breaker.given_up, 41)
        self.daemon.process.send_signal(signal.SIGCONT)
        backend._link.breaker = Breaker()  # as if its time had come
        self.assertEqual(backend.batch_get_v1(keys(3), indices(range(3))), [True] * 3)

    def test_what_it_cannot_keep_is_refused_in_words(self):
        for bad, words in (({"extra_config": {}}, "interface_v1"),
                           ({"extra_config": {"interface_v1": 1, "kvkeep": {"x": 1}}}, "'x'")):
            with self.assertRaisesRegex(ValueError, words):
                self.backend(**bad)
        with self.assertRaisesRegex(ValueError, "page_first"):
            self.backend(Pool(layout="layer_first"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
