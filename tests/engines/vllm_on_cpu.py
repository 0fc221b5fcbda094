"""The parts that vLLM's wheels from PyPI lack to run on a CPU, in plain torch. For tests only.

The wheels are built for CUDA; `VLLM_TARGET_DEVICE=cpu` makes them take the CPU platform, but they
lack that platform's seven kernels. vLLM's offloading worker copies by CUDA streams; HostSpec's
copies on the host. Import this before an engine is made; vLLM's own processes import it through
vllm_on_cpu-0.dist-info, beside this file. KVKEEP_FAKE_DRIVER: KV lies in that driver's memory.
"""

import inspect
import os
import pathlib
import weakref

import torch
from vllm.model_executor.layers import utils
from vllm.utils import cpu_triton_utils
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

if "KVKEEP_FAKE_DRIVER" in os.environ:
    import on_fake_gpu
    on_fake_gpu.install(os.environ["KVKEEP_FAKE_DRIVER"])

_library = torch.library.Library("_C", "FRAGMENT")
utils.check_cpu_sgl_kernel = lambda *_: False  # otherwise a CPU with AMX needs its kernels


def register():
    """vLLM's plugin: everything happens at the import."""


def _kernel(schema):
    def define(function):
        _library.define(schema)
        _library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
        return function
    return define


@_kernel("init_cpu_memory_env(int[] nodes) -> ()")
def _init_memory(nodes):
    del nodes


@_kernel("get_scheduler_metadata(int num_reqs, int num_heads, int num_kv_heads, int head_dim, "
         "Tensor seq_lens, ScalarType dtype, Tensor query_start_loc, bool causal, int window, "
         "str isa, bool split, Tensor? dynamic_causal, str kv_cache_dtype) -> Tensor")
def _metadata(*_):
    return torch.zeros(1)


@_kernel("greedy_argmax(Tensor logits) -> Tensor")
def _greedy(logits):
    return logits.argmax(-1)


@_kernel("fused_gumbel_argmax(Tensor logits, Tensor seeds) -> Tensor")
def _sampled(logits, seeds):
    del seeds
    return (logits.softmax(-1) / torch.empty_like(logits).exponential_()).argmax(-1)


@_kernel("compute_slot_mapping_kernel_impl(Tensor query_start_loc, Tensor positions, "
         "Tensor block_table, Tensor(a!) slot_mapping, int block_size) -> ()")
def _slot_mapping(starts, positions, block_table, slots, block_size):
    for request, (begin, end) in enumerate(zip(starts.tolist(), starts.tolist()[1:])):
        where = positions[begin:end]
        blocks = block_table[request][where // block_size].long()
        slots[begin:end] = blocks * block_size + where % block_size


def _in_either_order(slot_mapping):
    """Returns a function that takes two arguments in either order: vLLM 0.32 calls its own function
    for a CPU with them swapped."""
    def ordered(*given, **named):
        if len(given) > 7 and isinstance(given[6], torch.Tensor):
            _, _, starts, positions, table, _, slots, block_size = given[:8]
            return torch.ops._C.compute_slot_mapping_kernel_impl(starts, positions, table, slots,
                                                                 block_size)
        return slot_mapping(*given, **named)

    ordered.__signature__ = inspect.signature(slot_mapping)
    return ordered


cpu_triton_utils._compute_slot_mapping_kernel_impl = _in_either_order(
    cpu_triton_utils._compute_slot_mapping_kernel_impl)


# A cache is (blocks, heads, tokens of a block, dim).
@_kernel("cpu_attn_reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, "
         "Tensor(b!) value_cache, Tensor slot_mapping, str isa, float k_scale, float v_scale, "
         "str kv_cache_dtype) -> ()")
def _write(key, value, key_cache, value_cache, slot_mapping, *_):
    slots, block = slot_mapping[:key.shape[0]], key_cache.shape[2]
    live = slots >= 0
    at = (slots[live] // block, slice(None), slots[live] % block)
    key_cache[at] = key[live]
    value_cache[at] = value[live]


@_kernel("cpu_attention_with_kv_cache(Tensor query, Tensor key_cache, Tensor value_cache, "
         "Tensor(a!) output, Tensor query_start_loc, Tensor seq_lens, float scale, bool causal, "
         "Tensor? alibi, int window, Tensor block_table, float softcap, Tensor metadata, "
         "Tensor? s_aux, Tensor? dynamic_causal, float k_scale, float v_scale, "
         "str kv_cache_dtype) -> ()")
def _attention(query, key_cache, value_cache, output, starts, lengths, scale, causal, alibi, window,
               block_table, *_):
    del alibi
    output, block = output.view(query.shape), key_cache.shape[2]
    for request, length in enumerate(lengths.tolist()):
        begin, end = int(starts[request]), int(starts[request + 1])
        if begin == end:
            continue
        blocks = block_table[request][:-(-length // block)].long()

        def gathered(cache, blocks=blocks, length=length):
            return cache[blocks].transpose(0, 1).flatten(1, 2)[None, :, :length]

        mask = None
        if causal:
            before = length - (end - begin)
            mask = torch.ones(end - begin, length, dtype=torch.bool).tril(before)
            if window > 0:
                mask = mask.triu(before - window + 1)
        answer = torch.nn.functional.scaled_dot_product_attention(
            query[begin:end].transpose(0, 1)[None], gathered(key_cache), gathered(value_cache),
            mask, scale=scale, enable_gqa=True)
        output[begin:end] = answer[0].transpose(0, 1)


class HostWorker(OffloadingWorker):
    """One rank's part of a chunk's row: for each block of the chunk, for each tensor, its page."""

    def __init__(self, tensors, blocks_per_chunk, region, page_size):
        self._pages = [one.tensor for one in tensors]
        self._blocks_per_chunk, self._finished = blocks_per_chunk, []
        nbytes = sum(page.shape[1] for page in self._pages)
        begin = region.rank * page_size
        rows = region._base.view(region.num_chunks, -1)[:, begin:begin + nbytes * blocks_per_chunk]
        self._rows = rows.unflatten(1, (blocks_per_chunk, nbytes))

    def _copy(self, job_id, on_gpu, chunk_ids, load):
        """Returns the rows: each KV group has chunks of its own, the first of which may begin
        before the group's blocks do."""
        blocks, chunks = iter(on_gpu.block_ids), iter(chunk_ids)
        for size, index in zip(on_gpu.group_sizes, on_gpu.block_indices):
            first, chunk = index % self._blocks_per_chunk, None
            for number in range(first, first + size):
                within = number % self._blocks_per_chunk
                if chunk is None or within == 0:
                    chunk = int(next(chunks))
                self._copy_block(int(next(blocks)), self._rows[chunk, within], load)
        self._finished.append(TransferResult(job_id, True, 1, 1e-6))
        return True

    def _copy_block(self, block, row, load):
        at = 0
        for page in self._pages:
            part = row[at:at + page.shape[1]]
            at += page.shape[1]
            if load:
                page[block].copy_(part)
            else:
                part.copy_(page[block])

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, src_spec, dst_spec.chunk_ids, load=False)

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):
        return self._copy(job_id, dst_spec, src_spec.chunk_ids, load=True)

    def get_finished(self):
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids):
        pass


class HostSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks,
                rank=self.config.parallel.rank, kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = HostWorker(kv_caches.tensors, self.blocks_per_chunk, region,
                                      self.cpu_page_size_per_worker)
            # A test's engines are not shut down, and a file in /dev/shm is memory.
            weakref.finalize(self._worker, pathlib.Path(region.mmap_path).unlink, missing_ok=True)
        return self._worker
