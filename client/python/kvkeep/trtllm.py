"""TensorRT-LLM: a KV cache connector, in its configuration (`trtllm-serve --config FILE`).

    kv_connector_config:
      connector_module: kvkeep.trtllm
      connector_scheduler_class: KvkeepScheduler
      connector_worker_class: KvkeepWorker
    kv_cache_config:
      {enable_block_reuse: true, use_kv_cache_manager_v2: true, host_cache_size: 0}

The environment's KVKEEP_TRTLLM has the options of TrtllmOptions (trtllm_identity.py) as a JSON
object. No real TensorRT-LLM has run this: it is tested on recorded classes. trtllm_scheduler.py is
where to begin. With an unknown version TensorRT-LLM runs as without kvkeep (trtllm_idle.py).
"""

from kvkeep.engine_versions import is_taken

if is_taken("tensorrt_llm"):
    from kvkeep.trtllm_scheduler import KvkeepScheduler
    from kvkeep.trtllm_worker import KvkeepWorker
else:
    from kvkeep.trtllm_idle import IdleScheduler as KvkeepScheduler
    from kvkeep.trtllm_idle import IdleWorker as KvkeepWorker

__all__ = ["KvkeepScheduler", "KvkeepWorker"]
