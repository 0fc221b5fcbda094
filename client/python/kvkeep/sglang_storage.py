"""SGLang: kvkeep as a storage backend of HiCache. kvkeep.sglang has the flags, engine_facts.py the
versions.

The adapter puts pages that SGLang writes back into the node's daemon, from SGLang's own host pools,
and gets them back into those pools. Every engine of the same identity finds them
(sglang_identity.py: weights, configuration, adapters, geometry, version), also after a restart of
an engine or the daemon. Every failure is a miss. Calls run on SGLang's threads for storage and wait
for the daemon up to their timeouts; they do not wait while it is away, and hardly while it hangs.

A page is a key; its K and V planes are parts of it, on each rank. With "tp_lcm_size": L beside
"interface_v1" and --hicache-mem-layout page_head the parts are L shards of heads instead. Then
engines of any tensor parallelism share that have the same L, a multiple of each engine's ranks that
divides the KV heads.

Interface v2 keeps models that have pools beside K and V (Mamba states, sliding windows, indexers,
drafts), pool by pool (sglang_pages.py). A prefix is found as far as every pool has what it needs
(sglang_prefixes.py). SGLang never says that it is done with what it found, so found pages are held
until they were fetched, at most for `lease_s`.

After a change of the weights (sglang_changes.py) the engine has keys of its own, and new ones after
each further change or reset of HiCache: it finds nothing from before and shares nothing.
"""

import dataclasses
import logging
import os

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from kvkeep import sglang_multimodal, weights
from kvkeep.engine import Breaker, LeaseOptions, connect
from kvkeep.engine_versions import check_engine, field
from kvkeep.held import HeldLeases
from kvkeep.sglang_changes import OBSERVED
from kvkeep.sglang_epochs import SHARED, Epochs, own
from kvkeep.sglang_identity import has_storage_from_start, identity_of
from kvkeep.sglang_pages import KV, Link, NoPages, digest_of, pages_of
from kvkeep.sglang_prefixes import ALL_PAGES, restorable, window_of
from kvkeep.sglang_stats import Transfers

logger = logging.getLogger(__name__)

_REFUSED = NoPages(good=False)


@dataclasses.dataclass(frozen=True)
class StorageOptions(LeaseOptions):
    """weights: "auto", a fingerprint of their files; "full", a fingerprint of every byte; or
    "name:X", mandatory where no files can be read. multimodal: "refused": an engine whose model
    takes images, audio or video does not start. "trusted": it starts, since nobody makes up images
    that have another image's key."""

    weights: str = "auto"
    multimodal: str = "refused"

    def __post_init__(self):
        super().__post_init__()
        weights.check_option(self.weights)
        sglang_multimodal.check_option(self.multimodal)


class KvkeepStorage(HiCacheStorage):
    """Takes the options of StorageOptions, all optional, from "kvkeep" in the extra config."""

    def __init__(self, storage_config, kwargs):
        del kwargs
        extra = storage_config.extra_config or {}
        if not extra.get("interface_v1"):
            raise ValueError('kvkeep: the extra config needs "interface_v1": 1')
        # Ranks would hold other tokens under one page key.
        if field("sglang", storage_config, "HiCacheStorageConfig", "dcp_size") > 1:
            raise ValueError("kvkeep: decode context parallelism is not kept")
        self._config = storage_config
        options = StorageOptions.of(extra.get("kvkeep", {}))
        version, at_start = check_engine("sglang", logger), has_storage_from_start()
        OBSERVED.begin(at_start)
        self._epochs = Epochs(logger)
        if not at_start and not _knows_weights(options):
            self._epochs.begin("it was attached to a running engine, whose weights may be others "
                               'than those of its start (unless "weights" is "name:X")')
        identity, model = identity_of(version, options, logger)
        self._link = Link(connect(options, f"sglang {os.getpid()}", logger), options, Breaker(),
                          HeldLeases(options.lease_s), identity, model, Transfers())
        self._page_tokens = None
        self._pools = {}  # by SGLang's names

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        self._page_tokens = mem_pool_host.page_size
        self._register(KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        if host_pool_name != KV:  # SGLang announces that pool in both ways
            self._register(host_pool_name, host_pool)

    # ---- interface v1: models with K and V only, and K and V of other models

    def batch_exists(self, keys, extra_info=None):
        """Returns how many leading pages are there. They are held until they were fetched."""
        pages, digests = self._pages(KV), own(self._epochs.now(), _digests(keys))
        if isinstance(pages, NoPages):
            return 0
        if self._link.options.prefill_tokens_per_s is not None:
            digests = digests[:pages.count(digests)]
        return pages.hold(digests)

    def exists(self, key):
        return self._pages(KV).there(own(self._epochs.now(), [digest_of(key)])) == [True]

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._get(KV, keys, host_indices)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        return self._put(KV, keys, host_indices, extra_info)

    # ---- interface v2: all pools

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        """Returns the longest end, and holds the pages that each pool needs there until they were
        fetched. Skips an end at which not all pages can be held, and holds nothing for it."""
        digests = own(self._epochs.now(), _digests(keys))
        pools = [(KV, ALL_PAGES)]
        pools += [(one.name, window_of(one)) for one in pool_transfers or ()]
        seen = {}

        def ask(name, pages):
            if name == KV:
                there = [True] * self._pages(KV).count(digests)
            else:
                there = self._pages(name).there(digests[:pages])
            seen[name] = there
            return there

        found = restorable(pools, ask)
        while found.kv_hit_pages and not self._hold(pools, digests[:found.kv_hit_pages], seen):
            found = restorable(pools, lambda name, pages: seen[name][:pages])  # a shorter end
        return found

    def batch_get_v2(self, transfers, extra_info=None):
        return {one.name: self._get(one.name, one.keys or (), one.host_indices)
                for one in transfers}

    def batch_set_v2(self, transfers, extra_info=None):
        return {one.name: self._put(one.name, one.keys or (), one.host_indices, extra_info)
                for one in transfers}

    def get_stats(self):
        """Returns SGLang's metrics of all pools since the last call, or None where they are off."""
        return self._link.transfers.taken() if self._config.enable_storage_metrics else None

    def clear(self):
        logger.warning("kvkeep: not cleared from here: other engines use it; see `kvkeep clear`")

    def close(self):
        """Idempotent."""
        self._link.held.close()
        self._link.client.close()

    # ---- interface v0, which the constructor refuses

    def get(self, key, target_location=None, target_sizes=None):
        raise NotImplementedError("kvkeep has interface v1 only")

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        raise NotImplementedError("kvkeep has interface v1 only")

    def set(self, key, value=None, target_location=None, target_sizes=None):
        raise NotImplementedError("kvkeep has interface v1 only")

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        raise NotImplementedError("kvkeep has interface v1 only")

    # ---- how

    def _register(self, name, pool):
        self._pools.pop(name, None)  # once this one is refused, the one before it is gone too
        self._pools[name] = pages_of(self._link, self._config, name, pool, self._page_tokens)

    def _pages(self, name):
        """Returns the pool's pages. SGLang goes on where an attach to a running engine was
        refused."""
        return self._pools.get(name, _REFUSED)

    def _get(self, name, keys, host_indices):
        """Returns whether each page is in the pool now: none, if the weights changed meanwhile."""
        epoch = self._epochs.now()
        good = self._pages(name).get(own(epoch, _digests(keys)), host_indices)
        return good if self._epochs.now() == epoch else [False] * len(good)

    def _put(self, name, keys, host_indices, extra_info):
        """Returns whether each page is kept now."""
        epoch, before = self._epochs.now(), getattr(extra_info, "prefix_keys", None)
        parent = own(epoch, [digest_of(before[-1])])[0] if before else None
        return self._pages(name).put(own(epoch, _digests(keys)), host_indices, parent,
                                     private=epoch != SHARED)

    def _hold(self, pools, digests, seen):
        """Holds the pages that each pool needs at the end of these pages. If not all can be held,
        holds nothing, removes the pages that could not be held from `seen`, and returns False."""
        held_now = []
        for name, window in pools:
            first = 0 if window is ALL_PAGES else max(0, len(digests) - window)
            held = self._pages(name).hold(digests[first:])
            held_now.append((name, digests[first:first + held]))
            if first + held < len(digests):
                seen[name][first + held:len(digests)] = [False] * (len(digests) - first - held)
                for one, pages in held_now:
                    self._pages(one).let_go(pages)
                return False
        return True


def _digests(keys):
    return [digest_of(key) for key in keys]


def _knows_weights(options):
    """Returns whether a running engine's weights are known: the option names them, or they were
    watched since the start and have not changed."""
    return options.weights.startswith("name:") or (
        OBSERVED.since_start and OBSERVED.changes == 0)
