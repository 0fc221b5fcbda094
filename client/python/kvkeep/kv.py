"""KvPlanner: turns tokens of a sequence, by an engine's block table, into the fewest GPU runs.

    planner = kvkeep.KvPlanner(kvkeep.KvFormat.LAYERS_KV_BLOCKS, layers=32, blocks=4096,
                               block_tokens=16, heads=8, head_bytes=256,
                               tensors=[region.run_of(tensor) for tensor in kv_cache])
    runs = planner.plan(block_table, first_token=3 * 256, tokens=256)

The runs, one after the other, are the chunk's payload. In the memory's order they are the longest,
but the payload is of use only to the same layout: `layout` of the namespace should name it.
"""

import ctypes
import enum
from typing import Iterable, Optional, Sequence

from kvkeep import _abi
from kvkeep.gpu import GpuRun, GpuRuns
from kvkeep.plans import Planner


class KvFormat(enum.IntEnum):
    """NL layers, NB blocks, BS tokens a block, NH heads, HS elements a head."""

    LAYERS_KV_BLOCKS = 0      # NL x [2, NB, BS, NH, HS]
    LAYERS_BLOCKS_KV = 1      # NL x [NB, 2, BS, NH, HS]
    LAYERS_KV_BLOCKS_HND = 2  # NL x [2, NB, NH, BS, HS]
    LAYERS_BLOCKS_KV_HND = 3  # NL x [NB, 2, NH, BS, HS]
    LAYERS_FUSED = 4          # NL x [NB, BS, NH, 2 * HS]: K and V side by side
    LAYERS_FUSED_HND = 5      # NL x [NB, NH, BS, 2 * HS]
    LATENT = 6                # NL x [NB, BS, HS]: no heads, K and V are one (MLA)
    SPLIT = 7                 # 2NL x [NB * BS, NH, HS]: the layers' K, then their V
    ONE_TENSOR = 8            # [NL, 2, NB, BS, NH, HS]
    BLOCKS_FIRST = 9          # [NB, NL, 2, BS, NH, HS]: all layers of a block together


class KvOrder(enum.IntEnum):
    """Order of a payload: the memory's, or [2][layers][tokens][heads x dim] for every layout."""

    MEMORY = 0
    CANONICAL = 1


class KvPlanner(Planner):
    """A planner for one layout. Works on numbers only, without daemon or driver. Thread-safe.

    heads: of this rank; 1 for LATENT. head_bytes: of one head of K, or of V.
    tensors: their places in registered memory (GpuRegion.run_of): one, NL or 2NL of them.
    strides: in bytes, of layer, K to V, block, slot and head, for tensors with gaps; strides that
    pick a tensor are ignored.
    """

    KIND = "kv"

    def __init__(self, form: KvFormat, *, layers: int, blocks: int, block_tokens: int,
                 heads: int, head_bytes: int, tensors: Iterable[GpuRun],
                 strides: Optional[Sequence[int]] = None,
                 order: KvOrder = KvOrder.MEMORY) -> None:
        located = GpuRuns.of(tensors)
        if strides is not None and len(strides) != 5:
            raise ValueError(f"strides are of five axes, not of {len(strides)}")
        axes = (ctypes.c_uint64 * 5)(*strides) if strides is not None else None
        super().__init__(_abi.make(
            _abi.KvLayout, format=form, layers=layers, blocks=blocks, block_tokens=block_tokens,
            heads=heads, head_bytes=head_bytes, order=order, tensors=located.array,
            strides=axes, tensor_count=len(located)), located.regions)

    @property
    def bytes_per_token(self) -> int:
        """Returns the payload bytes of one token: K and V of every layer."""
        return int(self._library.kvkeep_kv_planner_bytes_per_token(self._handle))

    def plan(self, block_table: Sequence[int], first_token: int, tokens: int) -> GpuRuns:
        """Returns the runs. Token t lies in block block_table[t // block_tokens], slot t %
        block_tokens."""
        table = (ctypes.c_uint32 * len(block_table))(*block_table)
        return self._plan(_abi.KvPlanRequest, block_table=table, block_count=len(table),
                          first_token=first_token, tokens=tokens)
