"""SGLang: the linker for unknown versions, which keeps and finds nothing.

It replaces the one of kvkeep.sglang_linker, and needs nothing of SGLang's but the base class.
"""

import logging

from kvkeep.engine_versions import can_be_idle, needs, tell_idle

with needs("sglang"):
    from sglang.srt.mem_cache.unified_cache.unified_cache_linker import UnifiedCacheLinker

logger = logging.getLogger(__name__)


class _NothingToWaitFor:
    """Counts the layers of loads: there are none."""

    def set_consumer(self, index):
        pass

    def wait_until(self, threshold):
        pass


@can_be_idle("sglang")
class IdleLinker(UnifiedCacheLinker):
    """Accepts any options, and ignores them."""

    def __init__(self, server_args, params, *, components, extra_config=None, forward_stream=None):
        del server_args, params, components, extra_config
        self.forward_stream, self.pools = forward_stream, {}
        self.layer_done_counter = _NothingToWaitFor()
        tell_idle("sglang", logger)

    def lookup(self, rid, transfers):
        return []

    def load(self, rid, transfers):
        return False

    def cancel_queued_load(self, rid):
        return False

    def start_layer_wise_loading(self):
        return -1

    def finish_layer_wise_loading(self, counter_index):
        return False

    def offload(self, transfers, session_id=None):
        return False

    def num_completed_offloads(self):
        return 0

    def pop_completed_offload(self):
        return False

    def reset(self):
        """Nothing is kept."""

    def close(self):
        """Nothing is open."""
