"""What tests of kvkeep.vllm share: as much of an engine's configuration as is looked at."""

import types


def config(model, **other):
    """As much of a VllmConfig as is used. other: "dtype" and such of any part of it."""
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
        "attention_config": {"indexer_kv_dtype": None},
        "parallel_config": {"cp_kv_cache_interleave_size": 1, "enable_expert_parallel": False}}
    known = {name for part in parts.values() for name in part}
    assert set(other) <= known, set(other) - known
    return types.SimpleNamespace(
        speculative_config=None, num_hash_lookahead_tokens=0,
        **{name: types.SimpleNamespace(
            **{**part, **{one: other[one] for one in part if one in other}})
           for name, part in parts.items()})


def cache_config(block=16):
    """As much of a KVCacheConfig as is used."""
    return types.SimpleNamespace(kv_cache_groups=[types.SimpleNamespace(
        layer_names=["l0", "l1"], kv_cache_spec={"block_size": block})])
