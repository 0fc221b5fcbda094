"""vLLM: its KV memory and kvkeep, without CPU memory of vLLM's in between.

    --kv-transfer-config '{"kv_connector": "KvkeepConnector",
      "kv_connector_module_path": "kvkeep.vllm_direct", "kv_role": "kv_both",
      "kv_connector_extra_config": {}}'

vllm_connector.py has it. With an unknown version vLLM runs as without kvkeep (vllm_idle.py).
"""

from kvkeep.engine_versions import is_taken

if is_taken("vllm"):
    from kvkeep.vllm_connector import DirectOptions, KvkeepConnector
    __all__ = ["DirectOptions", "KvkeepConnector"]
else:
    from kvkeep.vllm_idle import IdleConnector as KvkeepConnector
    __all__ = ["KvkeepConnector"]
