"""SGLang's rotary embedding, and HiCache's copies between its pools, in plain torch on a CPU; and
its attention there for layers with a pool of their own, for a sliding window."""

import contextlib
import ctypes
import os
import types

import sglang
import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.managers import cache_controller
from sglang.srt.mem_cache.pool_host import base, common, mha


# Lets a test make the engine look like another version.
sglang.__version__ = os.environ.get("KVKEEP_TEST_SGLANG_VERSION", sglang.__version__)


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox):
    assert is_neox
    cos, sin = cos_sin_cache[positions].float()[:, None].chunk(2, dim=-1)
    for heads in (query, key):
        rows = heads.view(heads.shape[0], -1, head_size)
        first, second = rows.float().chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
        rows.copy_(turned.to(heads.dtype))


def load_layer(src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size):
    """Copies pages of the host, laid out as page_first_direct, to one layer of the device."""
    pages = src_indices[::page_size] // page_size
    for host, device in zip(src_ptrs, dst_ptrs):
        device[dst_indices] = host[pages, layer_id].flatten(0, 1)


def back_up(src_ptrs, dst_ptrs, src_indices, dst_indices, page_size):
    """Copies all layers of the device, K before V, to pages of the host."""
    layers, pages = len(src_ptrs) // 2, dst_indices[::page_size] // page_size
    for number, device in enumerate(src_ptrs):
        rows = device[src_indices]
        dst_ptrs[number // layers][pages, number % layers] = rows.view(
            -1, page_size, *rows.shape[1:])


def load_layer_of_heads(src_k, dst_k, src_v, dst_v, src_indices, dst_indices, layer_id, page_size,
                        **_):
    """Copies tokens of the host, laid out as page_head, to one layer of the device."""
    pages, tokens = src_indices // page_size, src_indices % page_size
    for host, device in ((src_k, dst_k), (src_v, dst_v)):
        device[dst_indices] = host[:, :, :, layer_id][pages, :, tokens]


def back_up_heads(src_k_layers, dst_k, src_v_layers, dst_v, src_indices, dst_indices, item_size,
                  page_size, head_num, **_):
    """Copies all layers of the device, given by addresses, to tokens of the host."""
    pages, tokens = dst_indices // page_size, dst_indices % page_size
    rows = int(src_indices.max()) + 1
    for addresses, host in ((src_k_layers, dst_k), (src_v_layers, dst_v)):
        for layer, address in enumerate(addresses.tolist()):
            memory = (ctypes.c_char * (rows * item_size)).from_address(address)
            device = torch.frombuffer(memory, dtype=host.dtype).view(rows, head_num, -1)
            host[:, :, :, layer][pages, :, tokens] = device[src_indices]


def in_the_layers_pool(forward):
    """Makes a forward read the layer's pool by indices of that pool. SGLang's own reads a window's
    pool by those of the full one, which are the same for the first prompt only."""
    def read(self, q, k, v, layer, *rest, **named):
        pool, rows = self.token_to_kv_pool, self.req_to_token_pool
        if not self.use_sliding_window_kv_pool or not pool.layers_mapping[layer.layer_id][1]:
            return forward(self, q, k, v, layer, *rest, **named)
        self.req_to_token_pool = types.SimpleNamespace(
            req_to_token=pool.translate_loc_from_full_to_swa(rows.req_to_token))
        try:
            return forward(self, q, k, v, layer, *rest, **named)
        finally:
            self.req_to_token_pool = rows

    return read


class Done:
    """A stream or an event of a device that never lags behind."""

    def __init__(self, *_, **__):
        pass

    def query(self):
        return True

    def __getattr__(self, name):
        return lambda *_, **__: None


for name in ("forward_extend", "forward_decode"):
    setattr(TorchNativeAttnBackend, name,
            in_the_layers_pool(getattr(TorchNativeAttnBackend, name)))
mha.transfer_kv_per_layer_direct_pf_lf = load_layer
mha.transfer_kv_all_layer_direct_lf_pf = back_up
mha.transfer_kv_per_layer_ph_lf = load_layer_of_heads
mha.transfer_kv_all_layer_lf_ph = back_up_heads
common._cuda_host_register = lambda *_, **__: None
base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0  # otherwise 10 GB, too much for a test's pools
cache_controller.device_module = types.SimpleNamespace(
    Event=Done, Stream=Done, current_stream=Done, stream=lambda _: contextlib.nullcontext(),
    synchronize=lambda *_: None)


def unpinned(function):
    """Wraps a function of torch so that it ignores pin_memory, which LoRA layers ask for."""
    def made(*given, pin_memory=False, **other):
        del pin_memory
        return function(*given, **other)
    return made


for name in ("tensor", "empty", "zeros"):
    setattr(torch, name, unpinned(getattr(torch, name)))
torch.Tensor.pin_memory = lambda self, *_: self
