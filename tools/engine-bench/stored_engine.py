"""The part of vLLM that stores KV, without a model, in a process of its own. Run by stores.py only.

options(): {"arm": "direct" or "kvkeep", "chunks": so many, "driver": the fake GPU's}. A line is a
number: a rank's KV memory is stored whole, under keys of that number. Copies into the tier's memory
take `by_gpu_s` of this process's CPU time, and none with a GPU. The direct connector runs only its
worker's half, without news for routers; the tier also runs all that the scheduler calls.
"""

import time
import uuid

import engine_process
import torch
import vllm_rig
from on_fake_gpu import FakeDevice
from vllm.v1.kv_offload.base import (CanonicalKVCacheRef, CanonicalKVCaches,
                                     CanonicalKVCacheTensor, GPULoadStoreSpec, ReqContext,
                                     ScheduleEndContext, make_offload_key)
from vllm.v1.kv_offload.factory import OffloadingSpecFactory

from kvkeep.vllm import tiers_of
from kvkeep.vllm_direct import DirectOptions
from kvkeep.vllm_device import DeviceTransfers
from kvkeep.vllm_transfers import ChunksSpec

LAYERS, PAGE_BYTES = 8, 64 << 10  # 8 KV heads of 128 in 16 bits
BLOCK_TOKENS, BLOCKS_PER_CHUNK = 16, 16
CHUNK_BYTES = LAYERS * PAGE_BYTES * BLOCKS_PER_CHUNK
CHUNKS_PER_JOB = 4
POLL_S = 0.002


def config(chunks):
    """vLLM's CPU memory holds all that is stored."""
    return vllm_rig.offloading_config("stores", LAYERS, LAYERS * PAGE_BYTES, chunks * CHUNK_BYTES,
                                      tier={})


def memory(chunks, zeros):
    """A rank's, as [layer, block, byte]; block 0 is vLLM's null block. zeros(bytes): a tensor."""
    blocks = 1 + chunks * BLOCKS_PER_CHUNK
    kv = zeros(LAYERS * blocks * PAGE_BYTES).view(LAYERS, blocks, PAGE_BYTES)
    return kv.random_(-128, 128)


def key(number, at):
    return (number * 65_536 + at).to_bytes(32, "little")


class Direct:
    by_gpu_s = 0.0  # threads of its own

    def __init__(self, driver, chunks):
        self._chunks, self._device, self._transfers = chunks, FakeDevice(driver), None
        self._kv = memory(chunks, self._device.zeros)

    def open(self):
        self._transfers = DeviceTransfers(
            DirectOptions(store_timeout_s=60.0), config(self._chunks),
            CanonicalKVCaches([CanonicalKVCacheTensor(layer, PAGE_BYTES) for layer in self._kv],
                              [[CanonicalKVCacheRef(at, PAGE_BYTES) for at in range(LAYERS)]]),
            None, self._device)

    def store(self, number, first, count):
        blocks = list(range(1 + first * BLOCKS_PER_CHUNK, 1 + (first + count) * BLOCKS_PER_CHUNK))
        arguments = (("model", "stores"), ("tokens_per_chunk", BLOCK_TOKENS * BLOCKS_PER_CHUNK))
        self._transfers.submit_store(
            1, GPULoadStoreSpec(blocks, group_sizes=[len(blocks)], block_indices=[0]),
            ChunksSpec({0: (arguments, [key(number, first + at) for at in range(count)])}))
        while not (finished := self._transfers.get_finished()):
            time.sleep(POLL_S)
        assert finished[0][1], finished


class Tier:
    """The tier. Torch makes the copies into vLLM's CPU memory that a GPU's worker would make."""

    def __init__(self, driver, chunks):
        del driver
        self._chunks, self.by_gpu_s = chunks, 0.0
        self._kv = memory(chunks, lambda nbytes: torch.zeros(nbytes, dtype=torch.int8))

    def open(self):
        with tiers_of(vllm_rig.config("stores"), vllm_rig.cache_config()):
            self._manager = OffloadingSpecFactory.create_spec(config(self._chunks)).get_manager()
        self._tier, = self._manager.secondary_tiers
        assert self._tier._registered  # else its stores are two copies each
        view = self._manager.primary_tier.get_kv_memoryview().cast("B")
        self._rows = torch.frombuffer(view, dtype=torch.int8).view(
            -1, BLOCKS_PER_CHUNK, LAYERS, PAGE_BYTES)

    def store(self, number, first, count):
        request = ReqContext(uuid.uuid4().hex)
        self._manager.on_new_request(request)
        out = self._manager.prepare_store(
            [make_offload_key(key(number, first + at), 0) for at in range(count)], request)
        assert len(out.keys_to_store) == count
        began = time.thread_time()
        for at, slot in enumerate(out.store_spec.chunk_ids):
            begin = 1 + (first + at) * BLOCKS_PER_CHUNK
            blocks = self._kv[:, begin:begin + BLOCKS_PER_CHUNK]
            self._rows[int(slot)].copy_(blocks.transpose(0, 1))
        self.by_gpu_s += time.thread_time() - began
        self._manager.complete_store(out.keys_to_store, request)
        self._manager.on_schedule_end(ScheduleEndContext((), ()))
        while self._tier.has_pending_work():
            self._manager.on_schedule_end(ScheduleEndContext((), ()))
            time.sleep(POLL_S)
        self._manager.on_request_finished(request)


def main():
    wanted = engine_process.options()
    torch.set_num_threads(1)
    arm = {"direct": Direct, "kvkeep": Tier}[wanted["arm"]](wanted["driver"], wanted["chunks"])
    opened = []

    def answer(line):
        if not opened:  # its daemon may not be there before
            opened.append(arm.open())
        before = arm.by_gpu_s
        for first in range(0, wanted["chunks"], CHUNKS_PER_JOB):
            arm.store(int(line), first, CHUNKS_PER_JOB)
        return {"stored_bytes": wanted["chunks"] * CHUNK_BYTES, "by_gpu_s": arm.by_gpu_s - before}

    engine_process.serve(answer)


if __name__ == "__main__":
    main()
