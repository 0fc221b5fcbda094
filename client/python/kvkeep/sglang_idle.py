"""SGLang: the storage backend for unknown versions, which keeps and finds nothing.

It replaces the one of kvkeep.sglang_storage, and needs nothing of SGLang's but the base class.
"""

import logging

from kvkeep.engine_versions import can_be_idle, needs, tell_idle

with needs("sglang"):
    from sglang.srt.mem_cache import hicache_storage
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

logger = logging.getLogger(__name__)


@can_be_idle("sglang")
class IdleStorage(HiCacheStorage):
    """Accepts any options, and ignores them."""

    def __init__(self, storage_config, kwargs):
        del storage_config, kwargs
        tell_idle("sglang", logger)

    def exists(self, key):
        return False

    def batch_exists(self, keys, extra_info=None):
        return 0

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        return hicache_storage.PoolTransferResult.empty()

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return [False] * len(keys)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        return [False] * len(keys)

    def batch_get_v2(self, transfers, extra_info=None):
        return {one.name: [False] * len(one.keys or ()) for one in transfers}

    def batch_set_v2(self, transfers, extra_info=None):
        return self.batch_get_v2(transfers)

    def get(self, key, target_location=None, target_sizes=None):
        return None

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        return [None] * len(keys)

    def set(self, key, value=None, target_location=None, target_sizes=None):
        return False

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        return False

    def close(self):
        """Nothing is open."""
