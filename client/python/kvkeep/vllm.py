"""vLLM: kvkeep as a secondary tier of its native KV offloading.

    --kv-transfer-config '{"kv_connector": "KvkeepOffloadingConnector",
      "kv_connector_module_path": "kvkeep.vllm", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": N,
        "secondary_tiers": [{"type": "KvkeepTier", "module_path": "kvkeep.vllm"}]}}'

vllm_tier.py has it. With an unknown version vLLM runs as without kvkeep (vllm_idle.py).
"""

from kvkeep.engine_versions import is_taken

if is_taken("vllm"):
    from kvkeep.vllm_tier import KvkeepOffloadingConnector, KvkeepTier, tiers_of
    __all__ = ["KvkeepOffloadingConnector", "KvkeepTier", "tiers_of"]
else:
    from kvkeep.vllm_idle import IdleConnector as KvkeepOffloadingConnector
    __all__ = ["KvkeepOffloadingConnector"]
