#!/usr/bin/env python3
"""kvkeep.sglang_direct, SGLang's linker, under SGLang 0.5.23 on a CPU: the tokens are those of the
model itself, and the bytes those of SGLang's own host pools.

    tests/engines/venv sglang       (prints the Python of SGLang's environment, which runs this)
    sglang_linker_test.py --root SOURCES --build build/release

First on SGLang's own KV pool, allocator and linker classes, beside HiCache's host pool. Then with
real engines and a random-weight Llama, greedy; transformers computes the expected tokens. The
cases: a cold start; after the engine forgot everything; another engine; beside HiCache; the daemon
killed at some moments of requests, away, and back. Engines are processes of their own. Needs the
targets kvkeep_c, kvkeepd and kvkeep. Some minutes.
"""

import dataclasses
import hashlib
import json
import os
import random
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import engine_process
import sglang_updates
from engine_process import ANSWER_TOKENS, PROMPTS
from sglang_engine_test import BACKEND, greedy

ASKED = engine_process.arguments(__doc__)
PAGE_TOKENS = 64
PAGES = 1000 // PAGE_TOKENS  # of a prompt
OPTIONS = {"lookup_timeout_s": 20, "max_pinned_part": 0.5, "on_reset": "ignore"}
COMMON = {
    "device": "cpu", "dtype": "float32", "attention_backend": "torch_native",
    "sampling_backend": "pytorch", "grammar_backend": "none", "skip_tokenizer_init": True,
    "page_size": PAGE_TOKENS, "mem_fraction_static": 0.3, "max_total_tokens": 8192,
    "disable_cuda_graph": True, "disable_overlap_schedule": True, "skip_server_warmup": True,
    "log_level": "warning"}
LINKER = {
    "enable_unified_cache_external_linker": True,
    "unified_cache_external_linker_backend": "dynamic",
    "unified_cache_external_linker_config": {
        "linker": "KvkeepLinker", "linker_module_path": "kvkeep.sglang_direct",
        "linker_extra_config": OPTIONS}}
HICACHE = {
    "enable_hierarchical_cache": True, "hicache_ratio": 2.0,
    "hicache_mem_layout": "page_first_direct", "hicache_io_backend": "direct",
    "hicache_write_policy": "write_through", "hicache_storage_prefetch_policy": "wait_complete",
    "hicache_storage_backend": "dynamic",
    "hicache_storage_backend_extra_config": json.dumps(BACKEND)}


def engine(model):
    """Makes an engine, in a process of its own. "flush" makes it forget; "update ..." lines are
    sglang_updates'. options(): "hicache" uses kvkeep by HiCache instead."""
    import sglang

    kind = HICACHE if engine_process.options().get("hicache") else LINKER
    made = sglang.Engine(model_path=model, **COMMON, **kind)

    def answer(line):
        if line == "flush":
            return {"flushed": made.flush_cache().success}
        if line.startswith("update "):
            return sglang_updates.update(made, line)
        begin = time.monotonic()
        try:
            out = made.generate(input_ids=PROMPTS[line], sampling_params={
                "temperature": 0, "max_new_tokens": ANSWER_TOKENS, "ignore_eos": True})
        except Exception as mistake:  # pylint: disable=broad-except  # the test judges it
            return {"failed": f"{type(mistake).__name__} {mistake}"}
        meta = out["meta_info"]
        reason = meta.get("finish_reason") or {}
        if reason.get("type") == "abort":
            return {"failed": str(reason)}
        return {"tokens": out["output_ids"], "cached": meta.get("cached_tokens"),
                "details": meta.get("cached_tokens_details"),
                "seconds": round(time.monotonic() - begin, 3)}

    engine_process.serve(answer)
    made.shutdown()


class WithDaemon(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(ASKED.root / "tests" / "client" / "c"))
        from daemon import Daemon
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.daemon = Daemon(ASKED.build / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)


class LinkerEngine(WithDaemon):
    def setUp(self):
        super().setUp()
        self.expected = greedy(engine_process.make_model(self.folder))
        self.assertEqual(len({tuple(one) for one in self.expected.values()}), len(PROMPTS))

    def start(self, **options):
        made = engine_process.EngineProcess(
            __file__, ASKED, self.folder, self.daemon.endpoint, {"CUDA_VISIBLE_DEVICES": ""},
            options=options, path=[ASKED.root.resolve() / "tests" / "engines" / "sglang_on_cpu"])
        self.addCleanup(made.close)
        return made

    def check(self, asked, prompt, recalled):
        said = asked.ask(prompt)
        self.assertEqual(said.get("tokens"), self.expected[prompt], (said, asked.said()))
        if recalled is not None:
            self.assertEqual(said["cached"], PAGES * PAGE_TOKENS if recalled else 0, asked.said())

    def forget(self, asked):
        """Makes the engine forget; SGLang refuses that while it is busy."""
        deadline = time.monotonic() + 60
        while not asked.ask("flush", quiet=True)["flushed"]:
            self.assertLess(time.monotonic(), deadline, "the engine is never idle")
            time.sleep(0.2)

    def wait_sessions(self, count=1):
        deadline = time.monotonic() + 60
        while len(self.daemon.status()["sessions"]) < count:
            self.assertLess(time.monotonic(), deadline, "the engine does not come back")
            time.sleep(0.05)

    def come(self, asked, prompt):
        """Asks, and makes it forget, until chunks that only NVMe had are recalled: at first they
        are misses."""
        for _ in range(50):
            self.forget(asked)
            said = asked.ask(prompt)
            self.assertEqual(said.get("tokens"), self.expected[prompt], (said, asked.said()))
            if said["cached"] == PAGES * PAGE_TOKENS:
                return
        self.fail("it is never recalled: " + asked.said())

    def test_tokens_are_those_of_the_model(self):
        first = self.start()
        for prompt in PROMPTS:
            self.check(first, prompt, recalled=False)
        self.daemon.wait_clean(len(PROMPTS) * PAGES * 2)
        for prompt in PROMPTS:
            self.forget(first)
            self.check(first, prompt, recalled=True)
            self.check(first, prompt, recalled=True)  # from SGLang's own tree now
        second = self.start()
        for prompt in PROMPTS:
            self.check(second, prompt, recalled=True)
        second.close()
        self.daemon.kill()
        self.forget(first)
        self.check(first, "p2", recalled=False)  # away
        self.daemon.start()
        self.daemon.wait_joined()
        self.wait_sessions()
        self.come(first, "p1")  # back

    def test_hicache_and_the_linker_recall_what_the_other_has_stored(self):
        first = self.start(hicache=True)
        self.check(first, "p0", recalled=False)
        self.daemon.wait_clean(PAGES * 2)
        first.close()
        second = self.start()
        self.check(second, "p0", recalled=True)
        self.check(second, "p1", recalled=False)
        self.daemon.wait_clean(2 * PAGES * 2)
        second.close()
        self.check(self.start(hicache=True), "p1", recalled=True)

    def test_no_token_is_of_weights_that_were_there_before(self):
        """"on_reset" says here that the weights never change with a reset."""
        with tempfile.TemporaryDirectory() as new:
            old_says = self.expected
            new_says = greedy(engine_process.make_model(new, seed=1))
            first = self.start()
            self.check(first, "p0", recalled=False)
            self.daemon.wait_clean(PAGES * 2)
            self.forget(first)
            self.check(first, "p0", recalled=True)
            for folder, says, named in ((new, new_says, {}), (self.folder, old_says, {}),
                                        (new, new_says, {"flush": False, "version": "2"})):
                for how in ("disk", "tensor"):
                    self.forget(first)  # otherwise SGLang's own flush may fail
                    line = sglang_updates.line(how, folder, **named)
                    self.assertTrue(first.ask(line)["updated"], line)
                    self.forget(first)
                    self.expected = says
                    self.check(first, "p0", recalled=False)
            self.check(first, "p1", recalled=False)
            first.close()
            second, self.expected = self.start(), old_says
            self.check(second, "p0", recalled=None)  # the linker may miss what HiCache finds
            self.check(second, "p1", recalled=False)

    def test_a_daemon_killed_at_any_moment_changes_no_token(self):
        """A request whose load the kill cuts off ends with SGLang's 503; all others end as
        usual."""
        seed = int(os.environ.get("KVKEEP_SEED", random.randrange(2 ** 32)))
        print("seed", seed)
        rng, asked, failed = random.Random(seed), self.start(), 0
        for prompt in PROMPTS:
            self.check(asked, prompt, recalled=False)
        self.daemon.wait_clean(len(PROMPTS) * PAGES * 2)
        for _ in range(10):
            prompt = rng.choice(sorted(PROMPTS))
            self.come(asked, prompt)
            self.forget(asked)
            killer = threading.Timer(rng.uniform(0, 0.1), self.daemon.kill)
            killer.start()
            said = asked.ask(prompt)
            killer.join()
            if "failed" in said:
                self.assertIn("External KV cache load failed", said["failed"])
                failed += 1
            else:
                self.assertEqual(said["tokens"], self.expected[prompt], asked.said())
            self.forget(asked)
            self.check(asked, prompt, recalled=False)  # away
            self.daemon.start()
            self.daemon.wait_joined()
            self.wait_sessions()
        print("requests that ended with 503:", failed, "of 10")


class LinkerObjects(WithDaemon):
    """A linker on SGLang's own pool, allocator, linker factory and counter. It has no model and no
    engine: a test sets its weights and ranks."""

    layers, pages = 3, 24

    def setUp(self):
        super().setUp()
        os.environ["KVKEEP_CLIENT_LIBRARY"] = str(
            ASKED.build.resolve() / "lib" / "libkvkeep-client.so.1")
        sys.path.insert(0, str(ASKED.root / "client" / "python"))
        from kvkeep import sglang_direct
        from kvkeep.identity import Identity
        alone = types.SimpleNamespace(tp_size=1, attn_tp_rank=0, attn_tp_size=1, pp_size=1,
                                      attn_cp_size=1, attn_dcp_size=1)
        for patched in (
                mock.patch.multiple(
                    sglang_direct, get_parallel=lambda: alone, generates=lambda: True,
                    identity_of=lambda *_: (Identity("sglang", "0", weights="of a test"), "m")),
                mock.patch("kvkeep.sglang_epochs.weight_version", lambda: "default")):
            patched.start()
            self.addCleanup(patched.stop)
        self.seed = random.randrange(2 ** 32)
        print("seed", self.seed)

    def linker(self):
        """Returns (linker, its pool, the pool's allocator)."""
        import torch
        from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
        from sglang.srt.mem_cache.unified_cache.components import ComponentType
        from sglang.srt.mem_cache.unified_cache.linker_factory import create_unified_cache_linker
        size = self.pages * PAGE_TOKENS
        pool = MHATokenToKVPool(
            size=size, page_size=PAGE_TOKENS, dtype=torch.bfloat16, head_num=2, head_dim=8,
            layer_num=self.layers, device="cpu", enable_memory_saver=False)
        allocator = PagedTokenToKVPoolAllocator(size, PAGE_TOKENS, torch.bfloat16, "cpu", pool,
                                                need_sort=False)
        made = create_unified_cache_linker(
            None, CacheInitParams(disable=False, req_to_token_pool=None, page_size=PAGE_TOKENS,
                                  token_to_kv_pool_allocator=allocator),
            backend="dynamic", components={ComponentType.FULL}, config={
                **LINKER["unified_cache_external_linker_config"],
                "linker_extra_config": {**OPTIONS, "endpoint": self.daemon.endpoint}})
        self.addCleanup(made.close)
        pool.register_layer_transfer_counter(made.layer_done_counter)
        return made, pool, allocator

    def store(self, pages):
        """Returns (keys, their K and V by layer)."""
        import torch
        from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
        linker, pool, allocator = self.linker()
        generator = torch.Generator().manual_seed(self.seed)
        for tensor in (*pool.k_buffer, *pool.v_buffer):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        allocator.alloc(2 * PAGE_TOKENS)
        rows = allocator.alloc(pages * PAGE_TOKENS)
        keys = [hashlib.sha256(f"{self.seed} {page}".encode()).hexdigest() for page in range(pages)]
        self.assertTrue(linker.offload([PoolTransfer(PoolName.KV, device_indices=rows, keys=keys)]))
        deadline = time.monotonic() + 60
        while not linker.num_completed_offloads():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        self.assertTrue(linker.pop_completed_offload())
        return keys, [[tensor[rows].clone() for tensor in plane]
                      for plane in (pool.k_buffer, pool.v_buffer)]

    def test_a_layer_is_there_when_the_pools_own_hook_says_so(self):
        import torch
        from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
        keys, planes = self.store(7)
        linker, pool, allocator = self.linker()
        self.assertEqual(linker.lookup("r", [PoolTransfer(PoolName.KV, keys=keys)]),
                         [1, 2, 3, 4, 5, 6, 7])
        allocator.alloc(5 * PAGE_TOKENS)
        rows = allocator.alloc(7 * PAGE_TOKENS)
        self.assertTrue(linker.load("r", [PoolTransfer(PoolName.KV, device_indices=rows,
                                                       keys=keys)]))
        index = linker.start_layer_wise_loading()
        linker.layer_done_counter.set_consumer(index)
        for layer in range(self.layers):
            got = pool.get_key_buffer(layer), pool.get_value_buffer(layer)
            for plane, tensor in zip(planes, got):
                self.assertTrue(torch.equal(tensor[rows], plane[layer]), layer)
        self.assertTrue(linker.finish_layer_wise_loading(index))
        self.assertFalse(any(tensor[:PAGE_TOKENS].any() for tensor in pool.k_buffer))

    def test_hicaches_host_pool_gets_the_same_bytes(self):
        import torch
        from kvkeep.held import HeldLeases
        from kvkeep.sglang_pages import KV, PoolPages
        from kvkeep.sglang_stats import Transfers
        from sglang.srt.mem_cache import hicache_storage as hicache
        from sglang.srt.mem_cache.pool_host import base
        from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
        keys, planes = self.store(5)
        linker, pool, _ = self.linker()
        info, = pool.get_device_pool_infos()
        with mock.patch.object(base, "HICACHE_HOST_MEMORY_RESERVE_BYTES", 0):  # else 10 GiB
            host = MHATokenToKVPoolHost(
                info.buffer_info, 2.0, 0, PAGE_TOKENS, "page_first_direct", pin_memory=False,
                device_capacity_tokens=pool.size, start_layer=0, end_layer=self.layers)
        config = hicache.HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
            is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=False,
            model_name="m")
        link = dataclasses.replace(linker._pages._link, held=HeldLeases(1), transfers=Transfers())
        self.addCleanup(link.held.close)
        pages = PoolPages(link, config, KV, host, PAGE_TOKENS)
        rows = torch.arange(3 * PAGE_TOKENS, 8 * PAGE_TOKENS)
        self.assertEqual(pages.get([bytes.fromhex(key) for key in keys], rows), [True] * 5)
        for page in range(5):
            got = host.get_data_page((3 + page) * PAGE_TOKENS, flat=False)[:, 0]
            for plane in range(2):
                wanted = torch.stack(planes[plane])[:, page * PAGE_TOKENS:][:, :PAGE_TOKENS]
                self.assertTrue(torch.equal(got[plane], wanted), (page, plane))


if __name__ == "__main__":
    if ASKED.engine:
        engine(ASKED.engine)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
