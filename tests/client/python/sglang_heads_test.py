"""kvkeep.sglang with SGLang's tp_lcm_size: engines of different tensor parallelism share. On
SGLang's recorded classes, with a real daemon; SGLang itself is not needed.

    sglang_heads_test.py SOURCES LIBRARY KVKEEPD
"""

import ctypes
import random
import sys
import unittest
from unittest import mock

from sglang_rig import ENGINE, HICACHE, MODEL, PAGE, Pool, WithDaemon, indices, keys

from kvkeep.client import Client

HEADS, HEAD = 8, 64  # KV heads of the model, and bytes of one head in K or in V of a page
INFO = HICACHE.HiCacheStorageExtraInfo()
SWA, MAMBA = (HICACHE.PoolName(name) for name in ("swa", "mamba"))


class HeadsPool(Pool):
    """The pool of one of `ranks` ranks: planes of pages of heads, as SGLang's page_head."""

    head_dim = 16

    def __init__(self, ranks=1, heads=HEADS, layout="page_head"):
        super().__init__(0, layout)
        self.head_num = max(1, heads // ranks)
        self.page_bytes = self.head_num * HEAD
        self.planes = [bytearray(8 * self.page_bytes) for _ in range(2)]

    def get_page_buffer_meta(self, indices):
        return self.get_split_heads_page_buffer_meta(indices, 1)

    def get_split_heads_page_buffer_meta(self, indices, split_factor):
        assert self.head_num % split_factor == 0
        starts = [ctypes.addressof(ctypes.c_char.from_buffer(plane)) for plane in self.planes]
        size = self.page_bytes // split_factor
        addresses = [start + first // PAGE * self.page_bytes + shard * size
                     for first in indices.tolist()[::PAGE]
                     for shard in range(split_factor) for start in starts]
        return addresses, [size] * len(addresses)

    def write(self, page, of_planes):
        for plane, heads in zip(self.planes, of_planes):
            plane[page * self.page_bytes:(page + 1) * self.page_bytes] = b"".join(heads)

    def heads(self, page):
        """Returns the bytes of each head, for K and for V."""
        at = page * self.page_bytes
        return [[bytes(plane[at + head * HEAD:at + (head + 1) * HEAD])
                 for head in range(self.head_num)] for plane in self.planes]


def of_rank(page, ranks, rank):
    """Returns the part of a whole model's page that a rank computes."""
    count = len(page[0]) // ranks
    return [plane[rank * count:(rank + 1) * count] for plane in page]


class Heads(WithDaemon):
    def setUp(self):
        super().setUp()
        seed = random.randrange(2 ** 32)
        print("seed", seed)
        rng = random.Random(seed)
        self.prompt = [[[rng.randbytes(HEAD) for _ in range(HEADS)] for _ in range(2)]
                       for _ in range(3)]  # pages of planes of heads
        self.engine(of_model={**MODEL, "get_num_kv_heads": lambda ranks: max(1, HEADS // ranks),
                              "get_swa_num_kv_heads": lambda ranks: max(1, 4 // ranks)})

    def rank(self, ranks, rank, shards=4, pool=None, options=None, **other):
        return self.backend(pool or HeadsPool(ranks), options, tp_size=ranks, tp_rank=rank,
                            tp_lcm_size=shards, **other)

    def store_by(self, ranks, shards=4, **other):
        for rank in range(ranks):
            backend = self.rank(ranks, rank, shards, **other)
            for page, content in enumerate(self.prompt):
                backend.mem_pool_host.write(page, of_rank(content, ranks, rank))
            self.assertEqual(backend.batch_set_v1(keys(3), indices(range(3)), INFO), [True] * 3)

    def load_by(self, ranks, shards=4, **other):
        for rank in range(ranks):
            backend = self.rank(ranks, rank, shards, **other)
            self.assertEqual(backend.batch_exists(keys(5)), 3)
            self.assertEqual(backend.batch_get_v1(keys(3), indices([7, 0, 5])), [True] * 3)
            for page, content in zip([7, 0, 5], self.prompt):
                self.assertEqual(backend.mem_pool_host.heads(page),
                                 of_rank(content, ranks, rank), (ranks, rank))

    def test_engines_of_any_tensor_parallelism_share(self):
        for stored in (1, 2, 4):
            options = {"name": f"stored by {stored}"}
            self.store_by(stored, options=options)
            for loaded in (1, 2, 4):
                with self.subTest(stored=stored, loaded=loaded):
                    self.load_by(loaded, options=options)

    def test_a_page_of_which_a_rank_is_missing_is_none(self):
        second = self.rank(2, 1)
        for page, content in enumerate(self.prompt):
            second.mem_pool_host.write(page, of_rank(content, 2, 1))
        self.assertEqual(second.batch_set_v1(keys(3), indices(range(3)), INFO), [True] * 3)
        for ranks, rank, found in ((1, 0, 0), (2, 0, 0), (2, 1, 3), (4, 1, 0), (4, 2, 3)):
            backend = self.rank(ranks, rank)
            self.assertEqual(backend.batch_exists(keys(3)), found, (ranks, rank))
            self.assertEqual(backend.batch_get_v1(keys(3), indices(range(3))), [found > 0] * 3)

    def test_what_differs_by_more_than_ranks_is_told_apart(self):
        self.store_by(2)
        wide, other = HeadsPool(), HeadsPool()
        wide.head_dim, other.dtype = 32, "torch.float16"
        for shards, pool in ((2, None), (8, None), (None, None), (4, wide), (4, other)):
            self.assertEqual(self.rank(1, 0, shards, pool).batch_exists(keys(1)), 0, shards)
        fewer = {**ENGINE.of_model, "get_num_kv_heads": lambda ranks: 4}
        with mock.patch.object(ENGINE, "of_model", fewer):
            self.assertEqual(self.rank(1, 0, 4, HeadsPool(heads=4)).batch_exists(keys(1)), 0)
        for part in ({"pp_size": 2}, {"attn_cp_size": 2}):
            self.assertEqual(self.rank(1, 0, **part).batch_exists(keys(1)), 0, part)
        self.assertEqual(self.rank(1, 0).batch_exists(keys(1)), 1)

    def test_a_window_of_other_heads_is_split_too(self):
        window = [[plane[:4] for plane in page] for page in self.prompt]
        for rank in range(2):
            pool, backend = HeadsPool(2, heads=4), self.rank(2, rank)
            backend.register_mem_host_pool_v2(pool, SWA)
            for page, content in enumerate(window):
                pool.write(page, of_rank(content, 2, rank))
            self.assertEqual(backend.batch_set_v2(
                [HICACHE.PoolTransfer(SWA, indices(range(3)), keys=keys(3))], INFO),
                {SWA: [True] * 3})
        pool, backend = HeadsPool(1, heads=4), self.rank(1, 0)
        backend.register_mem_host_pool_v2(pool, SWA)
        self.assertEqual(backend.batch_get_v2(
            [HICACHE.PoolTransfer(SWA, indices([4, 0, 1]), keys=keys(3))], INFO),
            {SWA: [True] * 3})
        self.assertEqual([pool.heads(page) for page in (4, 0, 1)], window)

    def test_where_all_ranks_have_the_same_bytes_nothing_is_split(self):
        self.store(self.backend(is_mla_model=True))
        for rank in range(2):
            other = self.backend(is_mla_model=True, tp_size=2, tp_rank=rank, tp_lcm_size=2)
            self.assertEqual(other.batch_exists(keys(3)), 3)

    def test_what_cannot_be_split_by_heads_is_refused_with_the_way_out(self):
        for ranks, shards, heads, layout, why in (
                (2, 3, HEADS, "page_head", "3 .*multiple of the 2 ranks"),
                (1, 2.0, HEADS, "page_head", "2.0 .*multiple of the 1 ranks"),
                (1, -2, HEADS, "page_head", "-2 .*multiple"),
                (1, 3, HEADS, "page_head", "3 .*must divide the 8 KV heads.*leave it out"),
                (16, 16, HEADS, "page_head", "16 .*must divide the 8 KV heads.*leave it out"),
                (2, 8, HEADS, "page_first", "8 .*page_first; use --hicache-mem-layout page_head"),
                (2, 8, HEADS, "layer_first", "8 .*layer_first; use --hicache-mem-layout page_head"),
                (2, 4, 6, "page_head", "4 .*a rank has 3 of 8 KV heads .pool kv.*leave it out")):
            with self.assertRaisesRegex(ValueError, f"^kvkeep: tp_lcm_size {why}"):
                self.rank(ranks, 0, shards, HeadsPool(ranks, heads, layout))
        with mock.patch.object(ENGINE, "of_model", {
                **ENGINE.of_model, "get_num_kv_heads": lambda ranks: 64}):
            with self.assertRaisesRegex(ValueError, "at most 32 times the 1 ranks"):
                self.rank(1, 0, 64, HeadsPool(heads=64))
        for name in (MAMBA, HICACHE.PoolName.INDEXER, HICACHE.PoolName.DRAFT):
            with self.assertRaisesRegex(ValueError, f"pool {name.value} is not split.*leave"):
                self.rank(1, 0).register_mem_host_pool_v2(HeadsPool(), name)
        with self.assertRaisesRegex(ValueError, "the pool mamba is not split"):
            self.backend(is_mla_model=True, tp_lcm_size=2).register_mem_host_pool_v2(Pool(), MAMBA)

    def test_without_the_option_namespaces_are_as_they_were(self):
        opened = []

        def namespace(client, model, **spec):
            opened.append(spec)
            return real(client, model, **spec)

        real = Client.namespace
        with mock.patch.object(Client, "namespace", namespace):
            for shards in (None, 0):
                backend = self.rank(2, 1, shards)
                self.assertEqual(backend._pages("kv")._parts, [2, 3])
        before = {
            "tokens_per_chunk": PAGE, "dtype": "bfloat16", "hash_algorithm": "sglang page keys",
            "parts": 4, "timeout": backend._link.options.lookup_timeout_s, "layout": (
                f"{backend._link.identity.layout} sglang page 2: page_head format=None "
                f"pieces={4 * HEAD},{4 * HEAD} pp=0/1 cp=0/1")}
        self.assertEqual(opened, [before, before])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
