"""vLLM: the connector for unknown versions, which keeps and finds nothing.

It replaces the connectors of kvkeep.vllm and kvkeep.vllm_direct, and needs nothing of vLLM's but
the base class of connectors, with its metadata and roles. CPU memory of vLLM's own offloading is
not used either.
"""

from kvkeep.engine_versions import can_be_idle, needs, tell_idle

with needs("vllm"):
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (
        KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole)
try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import SupportsHMA
except ImportError:
    SupportsHMA = object
try:
    from vllm.logger import init_logger
except ImportError:
    from logging import getLogger as init_logger

logger = init_logger(__name__)


@can_be_idle("vllm")
class IdleConnector(KVConnectorBase_V1, SupportsHMA):
    """Accepts any options, and ignores them."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        if role == KVConnectorRole.SCHEDULER:
            tell_idle("vllm", logger)

    # ---- the scheduler's half

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return 0, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        pass

    def build_connector_meta(self, scheduler_output):
        return KVConnectorMetadata()

    def request_finished(self, request, block_ids):
        return False, None

    def request_finished_all_groups(self, request, block_ids):
        return False, None

    # ---- the workers' half

    def register_kv_caches(self, kv_caches):
        pass

    def start_load_kv(self, forward_context, **kwargs):
        pass

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        pass
