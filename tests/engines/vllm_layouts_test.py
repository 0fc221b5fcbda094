#!/usr/bin/env python3
"""kvkeep.vllm_direct on KV memory of each of vLLM's layouts; a real daemon, no GPU, no model.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_layouts_test.py --root SOURCES --build build/release      (with that environment's Python)
"""

import math
import sys
import types
import unittest

import torch
import vllm_direct_test as direct
from vllm_direct_test import (ASKED, BLOCKS, PER_CHUNK, blocks, chunks, config, engine_of,
                              keys)

from kvkeep.vllm_connector import DirectOptions, check_layout
from kvkeep.vllm_transfers import KvkeepWorker
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec, MambaSpec
from vllm.v1.kv_cache_layout import KVCacheLayout

try:
    from vllm.v1.core.kv_cache_planning import get_kv_cache_config_from_groups
except ImportError:  # before 0.33
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups


class Layouts(direct.WithDaemon):
    """KV memory of each of vLLM's layouts, as vLLM's own worker splits it."""

    LAYERS = 3

    def zeros(self, nbytes):
        return torch.zeros(nbytes, dtype=torch.int8)

    @staticmethod
    def attention(**other):
        return FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=8, dtype=torch.float16,
                                 **other)

    @staticmethod
    def placed(layout, specs):
        """Returns where vLLM places layers of these specs, a group for each kind."""
        groups = [KVCacheGroupSpec([f"{number}.{at}" for at in range(specs.count(spec))], spec)
                  for number, spec in enumerate(dict.fromkeys(specs))]
        return get_kv_cache_config_from_groups(types.SimpleNamespace(
            cache_config=types.SimpleNamespace(
                get_resolved_kv_cache_layout=lambda: layout, num_gpu_blocks_override=None,
                prefix_cache_retention_interval=None),
            attention_config=types.SimpleNamespace(hisparse_config=None)), groups, 1 << 20)

    def registered(self, layout):
        """Returns (its Transfers, the memory as [layer, block, head, token, content])."""
        spec = self.attention()
        sizes, order = (self.LAYERS, BLOCKS, 2, 16, 16), layout.stride_order
        memory = self.zeros(2 * math.prod(sizes)).view(torch.float16).view(
            [sizes[dim] for dim in order]).permute([order.index(dim) for dim in range(5)])
        layers = [f"layer.{at}" for at in range(self.LAYERS)]
        options = DirectOptions(endpoint=self.daemon.endpoint)
        worker = KvkeepWorker(
            types.SimpleNamespace(replicated_layout=False, config=config(),
                                  get_worker=lambda caches: self.make(options, config(), caches,
                                                                      None)),
            engine_of(heads=2), types.SimpleNamespace(
                num_blocks=BLOCKS, hisparse_host_num_blocks=None, prefix_cacheable_group_ids=(0,),
                kv_cache_groups=[types.SimpleNamespace(layer_names=layers, kv_cache_spec=spec,
                                                       host_resident=False)]))
        worker.register_kv_caches(dict(zip(layers, memory)))
        self.addCleanup(worker.shutdown)
        return worker.worker, memory

    def test_of_each_layout_a_block_is_its_own_bytes_or_it_is_refused(self):
        taken = set()
        for at, layout in enumerate(KVCacheLayout):
            try:
                check_layout(layout, self.placed(layout, [self.attention()] * self.LAYERS))
            except ValueError as refused:
                self.assertIn(layout.name, str(refused))
                continue
            taken.add(layout.name)
            transfers, memory = self.registered(layout)
            memory.copy_(torch.randn(memory.shape, generator=torch.Generator().manual_seed(at)))
            before, wanted = memory.clone(), keys(2, first=1 + 10 * at)
            had, has = list(range(1, 1 + 2 * PER_CHUNK)), list(range(20, 20 + 2 * PER_CHUNK))
            transfers.submit_store(1, blocks(had), chunks(wanted))
            self.assertEqual(self.ended(transfers), (1, True))
            transfers.submit_load(2, chunks(wanted), blocks(has))
            self.assertEqual(self.ended(transfers), (2, True))
            self.assertTrue(torch.equal(memory[:, has], before[:, had]), layout)
            others = [number for number in range(BLOCKS) if number not in has]
            self.assertTrue(torch.equal(memory[:, others], before[:, others]), layout)
            runs = len(transfers._pages[0])  # of a block
            self.assertEqual(runs, 1 if layout.is_block_outermost else self.LAYERS, layout)
        self.assertEqual(taken, {layout.name for layout in KVCacheLayout} - {"LHBNC"})

    def test_what_vllms_worker_would_take_for_other_bytes_is_refused(self):
        state = MambaSpec(block_size=16, shapes=((8, 64),), dtypes=(torch.float16,),
                          page_size_padded=self.attention().page_size_bytes)
        padded = self.attention(page_size_padded=2 * self.attention().page_size_bytes)
        for layout, specs, why in (
                ("LBHNC", [state] * 2, None), ("BLHNC", [state], None),
                ("BLHNC", [self.attention()] * 2 + [state] * 2, None),
                ("LBHNC", [self.attention()] * 2 + [state] * 2, None),
                ("LBHNC", [padded] * 2, None), ("BLHNC", [padded] * 2, None),
                ("BLHNC", [state] * 2, "states alone")):
            with self.subTest(layout=layout, specs=specs):
                config_of = self.placed(KVCacheLayout[layout], specs)
                if why is None:
                    check_layout(KVCacheLayout[layout], config_of)
                    continue
                with self.assertRaisesRegex(ValueError, why):
                    check_layout(KVCacheLayout[layout], config_of)
        gaps = self.placed(KVCacheLayout.LBHNC, [self.attention()])
        gaps.kv_cache_tensors[0].block_stride += 16
        with self.assertRaisesRegex(ValueError, "gaps"):
            check_layout(KVCacheLayout.LBHNC, gaps)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
