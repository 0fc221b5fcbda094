#!/usr/bin/env python3
"""kvkeep.sglang compared with SGLang's own file backend, on SGLang's own host pools: the same
answers of interface v2, and the same bytes.

    tests/engines/venv sglang       (prints the Python of SGLang's environment, which runs this)
    sglang_pools_test.py --root SOURCES --build build/release

The pools are K and V, a sliding window's K and V, Mamba states, and a pool that has a page for each
of K and V. Pages are random, with some lost; then the same with SGLang's injector of failures. Then
pools of 1, 2 and 4 tensor-parallel ranks: ranks load what other ranks have stored, the same heads
of the same page. Prints the seed. No model, no engine. Needs the targets kvkeep_c, kvkeepd and
kvkeep.
"""

import hashlib
import os
import random
import sys
import tempfile
import unittest
from unittest import mock

import engine_process

ASKED = engine_process.arguments(__doc__, engine=False)
BUILD, ROOT = ASKED.build.resolve(), ASKED.root.resolve()
os.environ["KVKEEP_CLIENT_LIBRARY"] = str(BUILD / "lib" / "libkvkeep-client.so.1")
sys.path[:0] = [str(ROOT / "client" / "python"), str(ROOT / "tests" / "client" / "c")]

import torch  # noqa: E402
from daemon import Daemon  # noqa: E402
from kvkeep.identity import Identity  # noqa: E402
from kvkeep.sglang import KvkeepStorage  # noqa: E402
from sglang.srt.mem_cache import hicache_storage as hicache  # noqa: E402
from sglang.srt.mem_cache.device_pool_info import (  # noqa: E402
    KVBufferLayout, KVBuffers, MambaStateBufferInfo, MHABufferInfo)
from sglang.srt.mem_cache.pool_host import base  # noqa: E402
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost  # noqa: E402
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost  # noqa: E402

PAGE, CHAIN, ROUNDS = 16, 12, 40  # tokens of a page, pages of a prompt, prompts
KV, MAMBA, SWA, INDEXER = (hicache.PoolName(name) for name in ("kv", "mamba", "swa", "indexer"))
ALL, TRAILING = hicache.PoolHitPolicy.ALL_PAGES, hicache.PoolHitPolicy.TRAILING_PAGES


def kv_pool(layers, heads, layout="page_first"):
    planes = tuple(torch.zeros(CHAIN * PAGE, heads, 8, dtype=torch.bfloat16) for _ in range(layers))
    pointers = torch.tensor([plane.data_ptr() for plane in planes], dtype=torch.uint64)
    info = MHABufferInfo(
        buffers=KVBuffers(k=planes, v=planes, k_data_ptrs=pointers, v_data_ptrs=pointers,
                          layout=KVBufferLayout.NHD),
        page_size=PAGE, head_num=heads, head_dim=8, v_head_dim=8, dtype=torch.bfloat16,
        device=torch.device("cpu"))
    return MHATokenToKVPoolHost(
        info, 2.0, 0, PAGE, layout, pin_memory=False, device_capacity_tokens=CHAIN * PAGE,
        start_layer=0, end_layer=layers)


def mamba_pool():
    info = MambaStateBufferInfo(
        temporal=torch.zeros(3, CHAIN, 4, 8, dtype=torch.float32),
        conv=(torch.zeros(3, CHAIN, 6, dtype=torch.bfloat16),
              torch.zeros(3, CHAIN, 10, dtype=torch.bfloat16)))
    return MambaPoolHost(info, 2.0, 0, device_capacity=CHAIN, pin_memory=False, layout="page_first")


def indices(pool, pages):
    return torch.tensor([page * pool.page_size + token for page in pages
                         for token in range(pool.page_size)], dtype=torch.int64)


def page_bytes(pool, page):
    return pool.get_data_page(page * pool.page_size).contiguous().view(torch.uint8).clone()


class Backends(unittest.TestCase):
    def setUp(self):
        self.seed = random.randrange(2 ** 32)
        print("seed", self.seed)
        self.rng = random.Random(self.seed)
        torch.manual_seed(self.seed)
        self.daemon = Daemon(BUILD / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)
        for patched in (  # there is no engine to ask, and the pools are small
                mock.patch("kvkeep.sglang_storage.identity_of",
                           lambda *_: (Identity("sglang", "0.5.23"), "m")),
                mock.patch("kvkeep.sglang_storage.has_storage_from_start", lambda: True),
                mock.patch("kvkeep.sglang_epochs.weight_version", lambda: "default"),
                mock.patch.object(base, "HICACHE_HOST_MEMORY_RESERVE_BYTES", 0)):
            patched.start()
            self.addCleanup(patched.stop)

    def config(self, **other):
        return hicache.HiCacheStorageConfig(**{
            "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0,
            "attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": False,
            "is_page_first_layout": True, "model_name": "m", "extra_config": {
                "interface_v1": 1, "kvkeep": {"endpoint": self.daemon.endpoint}}, **other})

    def backend(self, config):
        made = KvkeepStorage(config, {})
        self.addCleanup(made.close)
        return made


class SGLangPools(Backends):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        config = self.config()
        self.pools = {KV: kv_pool(2, 4), SWA: kv_pool(3, 2), MAMBA: mamba_pool(),
                      INDEXER: kv_pool(1, 1)}
        self.file = hicache.HiCacheFile(config, folder.name)
        self.ours = self.backend(config)
        for backend in (self.file, self.ours):
            backend.register_mem_pool_host(self.pools[KV])
            for name, pool in self.pools.items():
                backend.register_mem_host_pool_v2(pool, name)

    def fill(self, pool, page):
        data = pool.get_dummy_flat_data_page()
        noise = torch.randint(0, 256, (data.nbytes,), dtype=torch.uint8)
        pool.set_from_flat_data_page(page * pool.page_size, noise.view(data.dtype))

    def transfer(self, name, keys, pages):
        return hicache.PoolTransfer(name, indices(self.pools[name], pages),
                                    keys=[keys[page] for page in pages])

    def put(self, backend, name, keys, pages):
        """Uses v1 where SGLang does; the file backend has it for K and V by pages only."""
        pool = self.pools[name]
        if name != KV:
            return backend.batch_set_v2([self.transfer(name, keys, pages)])[name]
        if backend is self.file:
            return [backend.set(keys[page], page_bytes(pool, page)) for page in pages]
        return backend.batch_set_v1([keys[page] for page in pages], indices(pool, pages))

    def prompt(self, number):
        """Stores a part of a prompt. Returns (its keys, the bytes by (pool, page))."""
        keys = [hashlib.sha256(f"{self.seed} {number} {page}".encode()).hexdigest()
                for page in range(CHAIN)]
        stored = {}
        for name, pool in self.pools.items():
            density = self.rng.choice([0.5, 0.9, 1.0])
            for page in (page for page in range(CHAIN) if self.rng.random() < density):
                self.fill(pool, page)
                stored[name, page] = page_bytes(pool, page)
        return keys, stored

    def asked(self):
        """Returns some of the pools, as SGLang asks for them."""
        pools = [(MAMBA, TRAILING, 1), (SWA, TRAILING, self.rng.randrange(1, 5)), (INDEXER, ALL, 0)]
        return [hicache.PoolTransfer(name, keys=["__placeholder__"] * window, hit_policy=policy)
                for name, policy, window in self.rng.sample(pools, self.rng.randrange(4))]

    def check_bytes(self, backend, keys, stored, name):
        """Checks a load into other pages of the pool than the bytes came from."""
        pool, pages = self.pools[name], list(range(CHAIN))
        into = self.rng.sample(pages, CHAIN)
        for page in pages:
            self.fill(pool, page)
        if name == KV:  # as SGLang does
            good = backend.batch_get_v1(keys, indices(pool, into))
        else:
            good = backend.batch_get_v2(
                [hicache.PoolTransfer(name, indices(pool, into), keys=keys)])[name]
        for page, at, one in zip(pages, into, good):
            if one:
                self.assertTrue(torch.equal(page_bytes(pool, at), stored[name, page]), (name, page))
        return good

    def test_answers_and_bytes_are_those_of_the_file_backend(self):
        ends = 0
        for number in range(ROUNDS):
            keys, stored = self.prompt(number)
            for name in self.pools:
                pages = [page for page in range(CHAIN) if (name, page) in stored]
                for backend in (self.file, self.ours):
                    self.assertEqual(self.put(backend, name, keys, pages), [True] * len(pages))
            for transfers in (self.asked() for _ in range(4)):
                theirs, own = (one.batch_exists_v2(keys, transfers)
                               for one in (self.file, self.ours))
                self.assertEqual(own, theirs, transfers)
                ends += len(own.restorable_prefix_pages)
            for name in self.pools:
                good = self.check_bytes(self.ours, keys, stored, name)
                self.assertEqual(good, [(name, page) in stored for page in range(CHAIN)])
        self.assertGreater(ends, ROUNDS)

    def test_injected_failures_are_misses(self):
        injected = hicache.HiCacheStorageFailureInjector(self.ours, 0.0, 0.3)
        failed = 0
        for number in range(ROUNDS):
            keys, stored = self.prompt(number)
            there = {name: [False] * CHAIN for name in self.pools}
            for name in self.pools:
                pages = [page for page in range(CHAIN) if (name, page) in stored]
                for page, one in zip(pages, self.put(injected, name, keys, pages)):
                    there[name][page] = one
                    failed += not one
            for transfers in (self.asked() for _ in range(4)):
                said = injected.batch_exists_v2(keys, transfers)
                self.assertLessEqual(said.kv_hit_pages, (there[KV] + [False]).index(False))
            for name in self.pools:
                good = self.check_bytes(injected, keys, stored, name)
                for one, put in zip(good, there[name]):
                    self.assertLessEqual(one, put)
        self.assertGreater(failed, 0)


class SplitHeads(Backends):
    """Pools that are read as SGLang's own tensors: K and V, pages, heads, tokens, layers."""

    LAYERS, HEADS, SHARDS = 3, 8, 4

    def rank(self, ranks, rank):
        """Returns a rank's backend, its pool, the pool as a tensor, and which of all heads it
        has."""
        backend = self.backend(self.config(
            tp_size=ranks, tp_rank=rank, tp_lcm_size=self.SHARDS, is_page_first_layout=False))
        count = self.HEADS // ranks
        pool = kv_pool(self.LAYERS, count, "page_head")
        with mock.patch("kvkeep.sglang_pages.kv_heads", {"kv": self.HEADS}.get):
            backend.register_mem_pool_host(pool)
        tensor = pool.kv_buffer.view(torch.int16)
        self.assertEqual(list(tensor.shape[2:]), [count, PAGE, self.LAYERS, 8])
        return backend, pool, tensor, slice(rank * count, (rank + 1) * count)

    def test_what_some_ranks_stored_others_load(self):
        for stored in (1, 2, 4):
            whole = torch.randint(-2 ** 15, 2 ** 15, dtype=torch.int16, size=(
                2, CHAIN, self.HEADS, PAGE, self.LAYERS, 8))
            keys = [hashlib.sha256(f"{self.seed} {stored} {page}".encode()).hexdigest()
                    for page in range(CHAIN)]
            for rank in range(stored):
                backend, pool, tensor, heads = self.rank(stored, rank)
                tensor[:, :CHAIN] = whole[:, :, heads]
                self.assertEqual(backend.batch_exists(keys), 0)
                self.assertEqual(backend.batch_set_v1(keys, indices(pool, range(CHAIN))),
                                 [True] * CHAIN)
            for loaded, rank in ((ranks, rank) for ranks in (1, 2, 4) for rank in range(ranks)):
                backend, pool, tensor, heads = self.rank(loaded, rank)
                into = self.rng.sample(range(2 * CHAIN), CHAIN)
                tensor.zero_()
                self.assertEqual(backend.batch_exists(keys), CHAIN)
                self.assertEqual(backend.batch_get_v1(keys, indices(pool, into)), [True] * CHAIN)
                self.assertTrue(torch.equal(tensor[:, into], whole[:, :, heads]),
                                (stored, loaded, rank))
                others = [page for page in range(tensor.shape[1]) if page not in into]
                self.assertFalse(tensor[:, others].any())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
