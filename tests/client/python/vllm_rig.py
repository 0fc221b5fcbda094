"""Common code of the tests of kvkeep.vllm, and of tools/engine-bench: the part of an engine's
configuration that is used. vLLM itself is imported only where it is needed, as some tests have its
records alone."""

import types
import uuid


def config(model, **other):
    """The part of a VllmConfig that is used. other: values of any of its parts, such as "dtype"."""
    parts = {
        "model_config": {
            "model": model, "revision": None, "max_model_len": 2048, "dtype": "float32",
            "quantization": None, "quantization_config": None, "disable_sliding_window": False,
            "model_impl": "auto", "model_class_overrides": {}, "code_revision": None,
            "config_format": "auto", "enable_prompt_embeds": False, "multimodal_config": None,
            "hf_config": {"architectures": ["Llama"], "rope_parameters": {"rope_type": "default"}}},
        "load_config": {"load_format": "auto", "model_loader_extra_config": {},
                        "download_dir": None},
        "cache_config": {
            "cache_dtype": "auto", "kv_cache_dtype_skip_layers": [], "mamba_cache_dtype": "auto",
            "mamba_ssm_cache_dtype": "auto", "mamba_cache_mode": "none", "mamba_block_size": None,
            "sliding_window": None, "kv_sharing_fast_prefill": False, "swa_bounded_replay": True,
            "kv_cache_layout": "LBHNC", "prefix_caching_hash_algo": "sha256",
            "enable_prefix_caching": True},
        "attention_config": {
            "backend": None, "backend_per_kind": {}, "indexer_kv_dtype": "auto",
            "flash_attn_version": None, "use_trtllm_attention": None, "use_non_causal": False,
            "minimax_m3_msa_decode_backend": "triton", "minimax_m3_indexer_cp": False},
        "parallel_config": {"cp_kv_cache_interleave_size": 1, "enable_expert_parallel": False,
                            "rank": 0, "world_size": 1, "distributed_executor_backend": "uni",
                            "worker_extension_cls": ""}}
    known = {name for part in parts.values() for name in part}
    assert set(other) <= known, set(other) - known
    return types.SimpleNamespace(
        speculative_config=None, num_hash_lookahead_tokens=0, weight_transfer_config=None,
        lora_config=None,
        instance_id=uuid.uuid4().hex,
        **{name: types.SimpleNamespace(
            **{**part, **{one: other[one] for one in part if one in other}})
           for name, part in parts.items()})


def cache_config(block=16):
    """The part of a KVCacheConfig that is used."""
    return types.SimpleNamespace(kv_cache_groups=[types.SimpleNamespace(
        layer_names=["l0", "l1"], kv_cache_spec={"block_size": block})])


def offloading_config(model, layers, bytes_per_block, cpu_bytes, tier):
    """Returns vLLM's OffloadingConfig of one rank with a KvkeepTier of these options; chunks of 16
    blocks of 16 tokens."""
    from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig,
                                           OffloadingGroupConfig, OffloadingModelConfig,
                                           OffloadingParallelConfig)
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=16, group_id=0,
                                      layer_names=tuple(f"l{at}" for at in range(layers))),),
        worker_kv_bytes_per_block=bytes_per_block, enable_kv_cache_events=False,
        engine_id=uuid.uuid4().hex,
        extra_config={"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": cpu_bytes,
                      "secondary_tiers": [{"type": "KvkeepTier", "module_path": "kvkeep.vllm",
                                           "weights": f"name:{model}", **tier}]},
        model=OffloadingModelConfig(name=model, dtype="bfloat16"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=16),
        parallel=OffloadingParallelConfig(
            rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1,
            data_parallel_index=0, data_parallel_size=1, data_parallel_rank_local=None,
            is_parallelism_agnostic=False))
