#!/usr/bin/env python3
"""kvkeep.vllm_shards: chunks whose parts are shards of heads instead of ranks; no GPU, no model.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_shards_test.py --root SOURCES --build build/release       (with that environment's Python)

Tests which parts ranks have, by vLLM's own derivation, in engines of any tensor parallelism; which
engines share; and, with a real daemon, that ranks load what others stored.
"""

import dataclasses
import sys
import types
import unittest

import torch
import vllm_direct_test as direct
from vllm_direct_test import ASKED, blocks, chunks, engine_of, keys

from kvkeep.identity import canonical, digest_of
from kvkeep.vllm_direct import DirectOptions
from kvkeep.vllm_shards import of_rank, shards_of, whole_specs
from vllm.distributed.kv_transfer.kv_connector.v1.offloading import canonical_mapping
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec
from vllm.v1.kv_offload.base import CanonicalKVCacheRef


class Sharded(direct.WithDaemon):
    """A chunk's parts are shards of its pages, not of ranks."""

    def halves(self):
        made = [self.memory(bool(rank)).is_of(rank, 2) for rank in range(2)]
        for rank, memory in enumerate(made):
            memory.fill(rank)
        return made

    def job(self, transfers, numbers, load=False, good=True, parts=2):
        if load:
            transfers.submit_load(1, chunks(keys(1), parts), blocks(numbers))
        else:
            transfers.submit_store(1, blocks(numbers), chunks(keys(1), parts))
        self.assertEqual(self.ended(transfers), (1, good))

    def test_one_rank_loads_what_two_have_stored_and_they_what_it_has(self):
        halves, whole = self.halves(), self.memory(False, scale=2).is_of(0, 1)
        ranks = [self.transfers(memory, rank, shards=2) for rank, memory in enumerate(halves)]
        for transfers in ranks:
            self.job(transfers, [1, 2, 3, 4])
        alone = self.transfers(whole, shards=2)
        self.job(alone, [9, 8, 7, 6], load=True)
        for page, first, second in zip(whole.pages, halves[0].pages, halves[1].pages):
            for had, has in ((1, 9), (2, 8), (4, 6)):
                self.assertTrue(torch.equal(page[has], torch.cat((first[had], second[had]))))
        whole.fill(5)
        alone.submit_store(2, blocks([20, 21, 22, 23]), chunks(keys(1, first=7), 2))
        self.assertEqual(self.ended(alone), (2, True))
        for rank, (memory, transfers) in enumerate(zip(halves, ranks)):
            transfers.submit_load(3, chunks(keys(1, first=7), 2), blocks([11, 12, 13], first=1))
            self.assertEqual(self.ended(transfers), (3, True))
            for page, half in zip(whole.pages, memory.pages):
                nbytes = half.shape[1]
                self.assertTrue(torch.equal(half[11], page[21][rank * nbytes:][:nbytes]))

    def same(self, shards):
        """Two ranks with the same bytes."""
        made = [self.memory(False).is_of(rank, 2, writers=2) for rank in range(2)]
        for memory in made:
            memory.fill(3)
        return made, *(self.transfers(memory, rank, shards=shards)
                       for rank, memory in enumerate(made))

    def test_ranks_that_have_the_same_store_it_once(self):
        ranks, first, second = self.same(2)
        self.job(first, [1, 2, 3, 4])
        self.job(first, [9, 8, 7, 6], load=True, good=False)  # it has stored one half
        self.job(second, [1, 2, 3, 4])
        self.job(first, [9, 8, 7, 6], load=True)
        self.assertTrue(torch.equal(ranks[0].block(9), ranks[0].block(1)))
        # Only the first rank stores a chunk of one part; the other's job is over at once.
        _, first, second = self.same(1)
        self.job(second, [1, 2, 3, 4], parts=1)
        self.job(second, [9, 8, 7, 6], load=True, good=False, parts=1)
        self.job(first, [1, 2, 3, 4], parts=1)
        self.job(second, [9, 8, 7, 6], load=True, parts=1)

    def test_pages_that_are_no_pieces_of_the_whole_one_are_refused(self):
        refs = self.memory(False).is_of(1, 2).caches.group_data_refs[0]
        self.assertEqual(of_rank(4, 0, refs), ((2, 3), (2, 3)))
        self.assertEqual(of_rank(None, 5, refs), ((5,), (5,)))
        with self.assertRaisesRegex(ValueError, "makes no 3 shards"):
            of_rank(3, 0, refs)
        for changed in ({"parallelism_agnostic": False}, {"runs": refs[0].mapping.runs * 2}):
            with self.assertRaisesRegex(ValueError, "no piece of the whole one"):
                of_rank(2, 0, [CanonicalKVCacheRef(
                    0, 1, dataclasses.replace(refs[0].mapping, **changed))])
        with self.assertRaisesRegex(ValueError, "more ways than one"):
            of_rank(2, 0, [*refs, self.memory(False).is_of(0, 2).caches.group_data_refs[0][0]])


class ShardsOfEngines(unittest.TestCase):
    """Which parts ranks have, as both halves of engines of any tensor parallelism see it: by vLLM's
    own derivation, from its own specs."""

    TOKENS, SIZE, BLOCKS = 16, 8, 3

    def spec(self, heads, ranks, kind=FullAttentionSpec, **other):
        sizes = {"num_kv_heads": max(1, heads // ranks), "head_size": self.SIZE,
                 "dtype": torch.float16}
        return kind(block_size=self.TOKENS, **{**sizes, **other})

    def parts(self, heads, ranks, shards, spec=None, layout="LBHNC", **parallel):
        """Returns (parts, written) of each rank, and the spec as the identity has it."""
        spec = spec or self.spec(heads, ranks)
        of_engine = types.SimpleNamespace(
            groups=(), kv_cache_layout=layout, parallel=types.SimpleNamespace(**{
                "tp_size": ranks, "world_size": ranks, "dcp_size": 1, "pcp_size": 1, **parallel}))
        caches = types.SimpleNamespace(num_blocks=self.BLOCKS, kv_cache_groups=[
            types.SimpleNamespace(layer_names=["l"], kv_cache_spec=spec)])
        content = spec.state_content_size_bytes // spec.dtype.itemsize
        found = []
        for rank in range(ranks):
            engine = engine_of(heads, ranks, rank)
            count = shards_of(DirectOptions(tp_parts=shards), of_engine, engine, caches)
            self.assertEqual(count, shards)
            page = torch.empty((self.BLOCKS, spec.num_heads, self.TOKENS, content),
                               dtype=spec.dtype, device="meta")
            mapping = canonical_mapping.derive_canonical_mappings(
                engine, caches, {"l": page})["l"]
            found.append(tuple(of_rank(count, rank, [CanonicalKVCacheRef(
                0, mapping.local_page_size_bytes, mapping)])))
        written = sorted(part for _, parts in found for part in parts)
        self.assertEqual(written, list(range(shards)))  # each by one rank
        return found, digest_of(canonical(whole_specs(engine, caches)))

    def test_engines_of_any_tensor_parallelism_share(self):
        whole = {ranks: self.parts(8, ranks, 8) for ranks in (1, 2, 4, 8)}
        self.assertEqual(len({digest for _, digest in whole.values()}), 1)
        self.assertEqual(whole[1][0], [(tuple(range(8)), tuple(range(8)))])
        self.assertEqual([parts for parts, _ in whole[4][0]], [(0, 1), (2, 3), (4, 5), (6, 7)])

    def test_of_ranks_beyond_the_heads_each_part_is_written_once(self):
        found, digest = self.parts(2, 8, 8)
        self.assertEqual([parts for parts, _ in found], [(0, 1, 2, 3)] * 4 + [(4, 5, 6, 7)] * 4)
        self.assertEqual(digest, self.parts(2, 1, 8)[1])

    def test_of_mla_each_rank_has_all_and_writes_some(self):
        latent = self.spec(1, 1, MLAAttentionSpec, head_size=64)
        found, digest = self.parts(1, 4, 4, latent)
        self.assertEqual(found, [((0, 1, 2, 3), (rank,)) for rank in range(4)])
        self.assertEqual(digest, self.parts(1, 1, 4, latent)[1])
        self.assertEqual([written for _, written in self.parts(1, 4, 8, latent)[0]],
                         [(rank, rank + 4) for rank in range(4)])

    def test_what_differs_by_more_than_ranks_is_told_apart(self):
        first = self.parts(8, 2, 8)[1]
        for other in (self.parts(4, 2, 8)[1],
                      self.parts(8, 2, 8, self.spec(8, 2, dtype=torch.float32))[1],
                      self.parts(8, 2, 8, self.spec(8, 2, head_size=16))[1],
                      self.parts(8, 2, 8, self.spec(8, 2, SlidingWindowSpec,
                                                    sliding_window=64))[1]):
            self.assertNotEqual(other, first)

    def test_where_pages_are_not_split_by_heads_it_is_refused(self):
        for wrong, why in (({"layout": "BLHNC"}, "layout"), ({"world_size": 4}, "more than tensor"),
                           ({"dcp_size": 2}, "tokens are split"), ({"shards": 3}, "no multiple"),
                           ({"heads": 3}, "3 KV heads"),
                           ({"spec": self.spec(8, 4)}, "a rank has 2 of 8")):
            with self.subTest(why), self.assertRaisesRegex(ValueError, f"tp_parts: .*{why}"):
                self.parts(**{"heads": 8, "ranks": 2, "shards": 8, **wrong})
        # The scheduler's half cannot know: K and V in planes of their own.
        with self.assertRaisesRegex(ValueError, "no piece of the whole one"):
            self.parts(8, 2, 8, self.spec(8, 2, head_size_v=4))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
