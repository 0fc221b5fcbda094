"""TensorRT-LLM: the connector for unknown versions, which keeps and finds nothing.

It replaces both halves of kvkeep.trtllm, and needs nothing of TensorRT-LLM's but the base classes.
"""

import logging

from kvkeep.engine_versions import can_be_idle, needs, tell_idle

with needs("tensorrt_llm"):
    from tensorrt_llm._torch.pyexecutor.connectors.kv_cache_connector import (
        KvCacheConnectorScheduler, KvCacheConnectorWorker)

logger = logging.getLogger(__name__)


@can_be_idle("tensorrt_llm")
class IdleScheduler(KvCacheConnectorScheduler):
    """Ignores all options."""

    supports_attention_dp = True

    def __init__(self, llm_args):
        super().__init__(llm_args)
        tell_idle("tensorrt_llm", logger)

    def build_connector_meta(self, scheduler_output):
        return None

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return 0, False

    def update_state_after_alloc(self, request, block_ids):
        pass

    def update_state_after_alloc_by_layer_group(self, request, block_ids_by_layer_group):
        pass

    def request_finished(self, request, cache_block_ids):
        return False

    def request_finished_by_layer_group(self, request, cache_block_ids_by_layer_group):
        return False


@can_be_idle("tensorrt_llm")
class IdleWorker(KvCacheConnectorWorker):
    """Ignores all options."""

    supports_attention_dp = True

    def register_kv_caches(self, kv_cache_tensor):
        pass

    def register_kv_cache_layout(self, layout):
        pass

    def register_forward_pass_callable(self):
        return None

    def start_load_kv(self, stream):
        pass

    def wait_for_layer_load(self, layer_idx, stream):
        pass

    def save_kv_layer(self, layer_idx, stream):
        pass

    def wait_for_save(self, stream):
        pass

    def get_finished(self, finished_gen_req_ids, started_loading_req_ids):
        return list(finished_gen_req_ids), list(started_loading_req_ids)
