"""vLLM: which layouts of KV memory the direct connector can move, as vLLM's own worker splits them.
"""

from vllm.v1.kv_cache_interface import AttentionSpec


def check_layout(layout, kv_cache_config):
    """Raises ValueError if vLLM's worker (offloading/worker.py) would take other bytes for a page.
    The worker assumes that a page is one run of bytes. It assumes that a block's row has all layers
    if an attention layer's blocks lie further apart than its pages, and otherwise that a layer's
    blocks lie side by side."""
    wrong = None
    if not (layout.is_block_compact or layout.is_block_outermost):
        wrong = "a page's bytes lie apart"
    apart = [spec for spec, stride in _strides(kv_cache_config) if stride != spec.page_size_bytes]
    if any(isinstance(spec, AttentionSpec) for spec in apart):
        if not layout.is_block_outermost:
            wrong = "there are gaps between a layer's blocks"
    elif apart:
        wrong = "a block of states alone has all layers side by side"
    if wrong is not None:
        raise ValueError(f"kvkeep: in the KV layout {layout.name} of this model {wrong}: "
                         "VLLM_KV_CACHE_LAYOUT=LBHNC, or another attention backend")


def _strides(kv_cache_config):
    """Yields (spec of a layer, bytes from block to block) for the offloaded layers."""
    found = {layer: tensor.block_stride for tensor in kv_cache_config.kv_cache_tensors
             for layer in tensor.layers}
    for number in kv_cache_config.prefix_cacheable_group_ids:
        group = kv_cache_config.kv_cache_groups[number]
        specs = getattr(group.kv_cache_spec, "kv_cache_specs", {})
        for layer in group.layer_names:
            if layer in found:
                yield specs.get(layer, group.kv_cache_spec), found[layer]
