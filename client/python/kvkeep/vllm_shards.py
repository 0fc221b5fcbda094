"""vLLM: the parts of a chunk, and which of them a rank has.

A part is what one rank has. With the option tp_parts it is a shard instead: one of that many equal
pieces of every page as a single rank would have it, which are whole heads if there are as many.
Engines with the same tp_parts share at any tensor parallelism, as a rank has consecutive shards.
Ranks that hold the same bytes (MLA, more ranks than KV heads) write each of them once.

vLLM itself derives how a rank's page lies in the whole one (offloading/canonical_mapping.py). The
scheduler's half has no tensors and tells from the configuration whether there is one. A worker
whose pages lie otherwise ends its engine at the start.
"""

import dataclasses
from typing import NamedTuple

from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

_ATTENTION = (FullAttentionSpec, SlidingWindowSpec)


class RankShards(NamedTuple):
    """all: a rank's consecutive parts. written: those of them that it stores."""

    all: tuple
    written: tuple


def shards_of(options, config, vllm_config, kv_cache_config):
    """Returns how many shards a page has, or None if a part is what one rank has. Raises ValueError
    if the setting is impossible."""
    shards, ranks = options.tp_parts, config.parallel.tp_size
    if shards is None:
        return None
    why = _why_not(config, vllm_config, kv_cache_config)
    if why is not None:
        raise ValueError(f"tp_parts: this engine's pages are not split by heads: {why}")
    if shards % ranks != 0:
        raise ValueError(f"tp_parts: {shards} is no multiple of the {ranks} ranks of tensor "
                         "parallelism")
    return shards


def _why_not(config, vllm_config, kv_cache_config):
    parallel = config.parallel
    if parallel.world_size != parallel.tp_size:
        return "there is more than tensor parallelism"
    if (parallel.dcp_size, parallel.pcp_size) != (1, 1):
        return "tokens are split over ranks"
    if config.kv_cache_layout != "LBHNC":
        return f"its layout is {config.kv_cache_layout}"
    heads = vllm_config.model_config.get_total_num_kv_heads()
    for group in kv_cache_config.kv_cache_groups:
        why = _why_not_spec(group.kv_cache_spec, heads, parallel.tp_size)
        if why is not None:
            return why
    return None


def _why_not_spec(spec, heads, ranks):
    """As offloading/config.py, spec_certifiable."""
    if type(spec) not in (*_ATTENTION, MLAAttentionSpec):
        return f"a layer has a {type(spec).__name__}"
    if spec.kv_quant_mode.is_per_token_head or spec.num_head_slots is not None:
        return "a page has more than heads' K and V"
    if type(spec) is MLAAttentionSpec:
        row = spec.real_page_size_bytes % spec.block_size
        return None if spec.tokens_per_state == 1 and row == 0 else "states are compressed"
    if heads % ranks != 0 and ranks % heads != 0:
        return f"{heads} KV heads are split over {ranks} ranks"
    if spec.num_kv_heads != max(1, heads // ranks):
        return f"a rank has {spec.num_kv_heads} of {heads} KV heads"
    return None


def whole_specs(vllm_config, kv_cache_config):
    """Returns each group's spec for the identity, as of one rank that has all heads."""
    heads = vllm_config.model_config.get_total_num_kv_heads()
    return [dataclasses.replace(
        spec, page_size_padded=None, max_tp_shards=None,
        **({} if type(spec) is MLAAttentionSpec else {"num_kv_heads": heads}))
        for spec in (group.kv_cache_spec for group in kv_cache_config.kv_cache_groups)]


def of_rank(shards, rank, refs):
    """Returns a rank's RankShards of a group. refs: its CanonicalKVCacheRefs. Raises ValueError if
    they are not as shards_of assumes."""
    if shards is None:
        return RankShards((rank,), (rank,))
    found = {_of_page(shards, ref.mapping) for ref in refs}
    if len(found) != 1:
        raise ValueError("kvkeep: the pages of this engine's layers are split over its ranks in "
                         f"more ways than one: {sorted(found)}")
    first, count, writers, writer = found.pop()
    parts = tuple(range(first, first + count))
    return RankShards(parts, tuple(part for part in parts if (part - first) % writers == writer))


def _of_page(shards, mapping):
    runs = mapping.runs if mapping is not None and mapping.parallelism_agnostic else ()
    if len(runs) != 1 or runs[0].num_fragments != 1:
        raise ValueError("tp_parts: a rank's page is no piece of the whole one, as vLLM has it")
    whole, offset, size = (mapping.canonical_page_size_bytes, runs[0].canonical_offset,
                           mapping.local_page_size_bytes)
    shard = whole // shards
    if whole % shards or offset % shard or size % shard:
        raise ValueError(f"tp_parts: a page has {whole} bytes, of which a rank has {size}: that "
                         f"makes no {shards} shards")
    return offset // shard, size // shard, mapping.num_writers, mapping.writer_index
