"""PagePlanner: turns whole blocks of paged KV memory, with any pages, into the fewest runs.

    planner = kvkeep.PagePlanner([kvkeep.PageTensor(
        region.run(t.offset, t.size), layers=t.layers, blocks=blocks, page_bytes=t.page,
        layer_stride=t.layer_stride, block_stride=t.block_stride) for t in tensors])
    runs = planner.plan(blocks_of_the_chunk)

A page is a block's part of one layer, in one piece. The payload is [block][tensor][layer][page],
the same bytes for all strides.
"""

import ctypes
from dataclasses import dataclass
from typing import Iterable, Sequence

from kvkeep import _abi
from kvkeep.gpu import GpuRun, GpuRuns
from kvkeep.plans import Planner


@dataclass(frozen=True)
class PageTensor:
    """The pages of some layers: the page of layer l and block b begins at byte l * layer_stride + b
    * block_stride of `run`, in which every page lies."""

    run: GpuRun
    layers: int
    blocks: int
    layer_stride: int
    block_stride: int
    page_bytes: int  # without padding


class PagePlanner(Planner):
    """A planner for one memory. Works on numbers only, without daemon or driver. Thread-safe.

    tensors: in the order of the payload, all with as many blocks.
    shards: equal parts of each page, in its order: heads, if these are a page's outermost axis.
    """

    KIND = "page"

    def __init__(self, tensors: Iterable[PageTensor], *, shards: int = 1) -> None:
        tensors = list(tensors)
        located = GpuRuns.of(tensor.run for tensor in tensors)
        pages = _abi.array(_abi.PageTensor, [
            (run.region, run.offset, run.bytes, tensor.layers, tensor.blocks, tensor.layer_stride,
             tensor.block_stride, tensor.page_bytes)
            for run, tensor in zip(located.array, tensors)])
        super().__init__(_abi.make(_abi.PageLayout, shards=shards, tensors=pages,
                                   tensor_count=len(tensors)), located.regions)

    @property
    def bytes_per_block(self) -> int:
        """Returns the payload bytes of one block: one shard of every page."""
        return int(self._library.kvkeep_page_planner_bytes_per_block(self._handle))

    def plan(self, blocks: Sequence[int], shard: int = 0) -> GpuRuns:
        """Returns the runs of these blocks, in the order of their tokens."""
        numbers = (ctypes.c_uint32 * len(blocks))(*blocks)
        return self._plan(_abi.PagePlanRequest, shard=shard, blocks=numbers,
                          block_count=len(numbers))
