"""SGLang: its KV pool and kvkeep, without a host pool of SGLang's in between. kvkeep.sglang_direct
has the flags, engine_facts.py the versions.

The linker puts pages of the pool into the node's daemon and copies them back, layer by layer during
SGLang's forward. They are the pages of HiCache with the layout page_first_direct, and engines that
run it share them (sglang_device_pages.py). The linker is for pools in host memory, of models whose
every layer attends to everything; it refuses other pools at the start.

SGLang ends the requests of a failed load with 503. So a page is found only where it is leased and
can be read now, and a load makes no call. It fails only if, between a lookup and the end of the
copy, the daemon dies or revokes the lease of a process that was stopped for long. A chunk that only
NVMe has is a miss, and begins to come. Every other failure is a miss.

Threads: SGLang's scheduler calls everything here, and waits for the daemon in `lookup` alone, up to
lookup_timeout_s. One thread gives back what was found and not loaded. One thread copies loads and
another one stores, both in order, so that all ranks hear of the ends of stores in the same order.
"""

import collections
import concurrent.futures
import dataclasses
import logging
import os
import threading
from typing import NamedTuple, Optional

from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolName
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import (LayerWiseLoadCounter,
                                                                     UnifiedCacheLinker)
from sglang.srt.runtime_context import get_parallel

from kvkeep import errors, sglang_multimodal, weights
from kvkeep.engine import Breaker, Options, connect
from kvkeep.engine_versions import check_engine
from kvkeep.lease import Lease
from kvkeep.seldom import SeldomWarnings
from kvkeep.sglang_changes import OBSERVED
from kvkeep.sglang_device_pages import DevicePages, Lost
from kvkeep.sglang_epochs import SHARED, Epochs, own
from kvkeep.sglang_identity import generates, identity_of
from kvkeep.sglang_offers import Offers
from kvkeep.sglang_pages import Link, digest_of

logger = logging.getLogger(__name__)

_START_S = 1.0  # how long the engine's start waits for the daemon
_RETRY_S = 0.5  # between two lookups of a daemon that hangs: each one stops the scheduler
_PAGES_AT_ONCE = 16  # in a put: a close waits for one, and its Python delays the scheduler


@dataclasses.dataclass(frozen=True)
class LinkerOptions(Options):
    """lookup_timeout_s: how long the scheduler waits for a lookup. lease_s: how long found pages
    are held for a request that does not begin. store_timeout_s: the timeout of a put; a reset waits
    for one put.
    max_pinned_part: the part of the pool's pages that stores may hold; above it no store begins.
    weights, multimodal: as in StorageOptions. on_reset: "epoch": the weights may be others from
    then on, so nothing from before is found any more and nothing is shared. "ignore": for users
    that only flush, until a change of the weights is seen.
    """

    lookup_timeout_s: float = 0.002
    remote_wait_s: float = 0
    path: str = "local"
    lease_s: float = 5.0
    store_timeout_s: float = 1.5
    max_pinned_part: float = 0.1
    weights: str = "auto"
    multimodal: str = "refused"
    on_reset: str = "epoch"

    def __post_init__(self):
        super().__post_init__()
        weights.check_option(self.weights)
        sglang_multimodal.check_option(self.multimodal)
        if self.path != "local":
            raise ValueError(f'path: the linker reads the daemon\'s memory, "local", not '
                             f"{self.path!r}; kvkeep.sglang, for HiCache, takes every path")
        if self.remote_wait_s:
            raise ValueError("remote_wait_s: a linker does not wait for what lies beyond the node; "
                             "kvkeep.sglang, for HiCache, does")
        if not 0 < self.max_pinned_part <= 1:
            raise ValueError(
                f"max_pinned_part: above 0 and up to 1, not {self.max_pinned_part!r}")
        if self.on_reset not in ("epoch", "ignore"):
            raise ValueError(f'on_reset: "epoch" or "ignore", not {self.on_reset!r}')


class _Load(NamedTuple):
    lease: Optional[Lease]  # None if it was lost
    keys: list
    rows: list


class KvkeepLinker(UnifiedCacheLinker):
    """extra_config: the options of LinkerOptions, all optional."""

    def __init__(self, server_args, params, *, components, extra_config=None, forward_stream=None):
        del server_args
        options = LinkerOptions.of(extra_config or {})
        pool = _checked_pool(params, components)
        self.forward_stream, self.pools = forward_stream, {PoolName.KV: pool}
        self.layer_done_counter = LayerWiseLoadCounter(pool.layer_num)
        version = check_engine("sglang", logger)
        OBSERVED.begin(at_start=True)  # a linker cannot be attached later
        self._options, self._epochs, self._epoch = options, Epochs(logger), SHARED
        identity, model = identity_of(version, options, logger)
        at_start = dataclasses.replace(options, lookup_timeout_s=_START_S)
        self._client = connect(at_start, f"sglang {os.getpid()}", logger)
        self._lookups, self._puts = Breaker(_RETRY_S), Breaker(_RETRY_S)
        parallel = get_parallel()
        self._alone = parallel.attn_tp_size == 1
        self._pages = DevicePages(
            Link(self._client, at_start, self._puts, None, identity, model, None),
            HiCacheStorageConfig(
                tp_rank=parallel.attn_tp_rank, tp_size=parallel.attn_tp_size, pp_rank=0, pp_size=1,
                attn_cp_rank=0, attn_cp_size=1, is_mla_model=False, enable_storage_metrics=False,
                is_page_first_layout=False, model_name=None),
            pool, self._lookups)
        self._offers = Offers(self._find, self._pages.holds, options.lease_s)
        self._loads = {}  # request: _Load, queued
        self._most_pages = int(pool.size // pool.page_size * options.max_pinned_part)
        self._stores = collections.deque()  # (pages, future of their store)
        self._held_pages = 0  # of those
        self._stopping, self._warnings = threading.Event(), SeldomWarnings(logger)
        self._loader, self._storer = (concurrent.futures.ThreadPoolExecutor(1, name)
                                      for name in ("kvkeep-load", "kvkeep-store"))
        self._closed = threading.Event()
        self._expirer = threading.Thread(target=self._expire, name="kvkeep-offers", daemon=True)
        self._expirer.start()

    # ---- loads

    def lookup(self, rid, transfers):
        keys = self._keys(transfers)
        return list(range(1, self._offers.pages(rid, keys) + 1)) if keys else []

    def load(self, rid, transfers):
        """With several ranks, returns True even if this rank has just lost what it had found: with
        False here and True elsewhere the ranks would differ. The load fails instead."""
        keys, rows = self._keys(transfers), self._rows(transfers)
        if not keys or len(rows) != len(keys):
            return False
        lease = self._offers.take(rid, keys)
        if lease is None and self._alone:
            return False
        self._loads[rid] = _Load(lease, keys, rows)
        return True

    def cancel_queued_load(self, rid):
        load = self._loads.pop(rid, None)
        _release([load] if load is not None else [])
        return load is not None

    def start_layer_wise_loading(self):
        if not self._loads:
            return -1
        index = self.layer_done_counter.update_producer()
        loads, self._loads = list(self._loads.values()), {}
        self._loader.submit(self._copy, index, loads)
        return index

    def finish_layer_wise_loading(self, counter_index):
        return self.layer_done_counter.finish(counter_index)

    # ---- stores

    def offload(self, transfers, session_id=None):
        """Begins to store these pages, or returns False. Only SGLang's calls change the budget, in
        the same order on all ranks, so the ranks agree."""
        del session_id
        keys, rows = self._keys(transfers), self._rows(transfers)
        if not keys or len(rows) != len(keys):
            return False
        if self._stores and self._held_pages + len(keys) > self._most_pages:
            return False
        self._held_pages += len(keys)
        self._stores.append((len(keys), self._storer.submit(self._store, keys, rows,
                                                            self._epoch != SHARED)))
        return True

    def num_completed_offloads(self):
        return next((at for at, (_, end) in enumerate(self._stores) if not end.done()),
                    len(self._stores))

    def pop_completed_offload(self):
        pages, end = self._stores.popleft()
        self._held_pages -= pages
        return end.result()

    # ---- the end

    def reset(self):
        """Returns when the pool's memory is neither read nor written. Copies end, and so does the
        put under way, by its timeout; the other puts do not begin. Pages stored since the weights
        changed may have KV of weights from before, whatever on_reset says."""
        self._quiesce()
        self._stores.clear()
        self._held_pages = 0
        self.layer_done_counter.reset()
        if self._options.on_reset == "epoch" or self._epochs.now() != SHARED:
            self._epochs.begin("the cache was reset, as updates of the weights do")

    def close(self):
        """Idempotent."""
        if self._client.handle is None:
            return
        self._closed.set()
        self._expirer.join()
        self._quiesce()
        self._loader.shutdown()
        self._storer.shutdown()
        self._client.close()

    # ---- how

    def _keys(self, transfers):
        """Returns the keys of K and V. After the weights changed they belong to an epoch of this
        process."""
        if (epoch := self._epochs.now()) != self._epoch:
            self._epoch = epoch
            self._offers.clear()
        wanted = _of_kv(transfers)
        return own(epoch, [digest_of(key) for key in
                           (wanted.keys if wanted is not None else None) or ()])

    def _rows(self, transfers):
        """Returns the first row of each page, or none where SGLang has not given whole pages."""
        try:
            return self._pages.planes.rows(_of_kv(transfers).device_indices)
        except (AttributeError, TypeError, ValueError) as mistake:
            self._warn("rows", mistake)
            return []

    def _expire(self):
        """Gives overdue offers back, on a thread of its own, as a paused engine calls nothing."""
        while not self._closed.wait(min(self._options.lease_s / 4, 1.0)):
            self._offers.expire()

    def _find(self, keys):
        """Leases pages, as the `find` of Offers: returns (the lease, how many leading pages it
        has)."""
        if not self._lookups.allows():
            return None, 0
        try:
            return self._pages.lease(keys, self._options.lookup_timeout_s)
        except errors.KvkeepError as mistake:
            self._warn("lookup", mistake)
            return None, 0

    def _copy(self, index, loads):
        """Copies a load's pages, on the loader's thread."""
        try:
            if any(load.lease is None for load in loads):
                raise Lost("what was found is not held any more")
            for layer in range(self.layer_done_counter.num_layers):
                for load in loads:
                    self._pages.read_layer(load.lease, load.keys, load.rows, layer)
                self.layer_done_counter.complete(index, layer)
        except Exception as mistake:  # pylint: disable=broad-except  # SGLang waits for an end
            logger.error("kvkeep: a load of %d requests failed: %s", len(loads), mistake)
            self.layer_done_counter.fail(index, mistake)
            self._forget(getattr(mistake, "damaged", ()))
        finally:
            _release(loads)

    def _forget(self, keys):
        """Runs on the loader's thread, after the load has ended."""
        if not keys:
            return
        logger.error("kvkeep: %d pages are not what was stored, and are deleted", len(keys))
        try:
            self._pages.forget(keys, self._options.store_timeout_s)
        except errors.KvkeepError as mistake:
            self._warn("delete", mistake)

    def _store(self, keys, rows, private):
        """Returns whether all pages are kept now. Runs on the storer's thread."""
        try:
            for first in range(0, len(keys), _PAGES_AT_ONCE):
                if self._stopping.is_set() or not self._puts.allows():
                    return False
                some = slice(first, first + _PAGES_AT_ONCE)
                if not self._pages.store(keys[some], rows[some], keys[first - 1] if first else None,
                                         self._options.store_timeout_s, private):
                    return False
        except Exception as mistake:  # pylint: disable=broad-except  # likewise
            self._warn("store", mistake)
            return False
        return True

    def _quiesce(self):
        self._stopping.set()
        _release(self._loads.values())
        self._loads.clear()
        self._offers.clear()
        for thread in (self._loader, self._storer):
            thread.submit(int).result()
        self._stopping.clear()

    def _warn(self, what, mistake):
        self._warnings.say(what, "kvkeep: %s: %s", what, mistake)


def _of_kv(transfers):
    return next((one for one in transfers if one.name == PoolName.KV), None)


def _release(loads):
    for load in loads:
        if load.lease is not None:
            load.lease.release()


def _checked_pool(params, components):
    """Returns the KV pool. Raises ValueError if this cannot load and store it; HiCache may."""
    pool, parallel = params.token_to_kv_pool_allocator.get_kvcache(), get_parallel()
    other = sorted(one.name for one in components if one.name != "FULL")
    tensors = (*(getattr(pool, "k_buffer", None) or ()), *(getattr(pool, "v_buffer", None) or ()))
    for refused, why in (
            (not generates(), "a model that does not generate: SGLang's forwards of embeddings and "
             "rewards do not wait for what is loaded"),
            (other, f"states or windows ({', '.join(other)})"),
            (type(pool) is not MHATokenToKVPool, f"a KV pool of the kind {type(pool).__name__}"),
            (getattr(pool, "kv_cache_layout", "nhd") != "nhd", "a KV layout other than NHD"),
            (getattr(pool, "k_scale_buffer", None) is not None or
             getattr(pool, "native_k_scale_buffer", None) is not None, "KV with scales"),
            (any(one.device.type != "cpu" for one in tensors), "KV in a GPU's memory"),
            (not all(one.is_contiguous() for one in tensors), "KV tensors with gaps"),
            (params.mtp_draft_device_pools or params.sidecar_draft_device_pools,
             "the KV of a draft model"),
            (parallel.pp_size > 1, "pipeline parallelism"),
            (parallel.attn_cp_size > 1 or parallel.attn_dcp_size > 1, "context parallelism")):
        if refused:
            raise ValueError(f"kvkeep: the linker does not take {why}: use HiCache with the "
                             "backend kvkeep.sglang (--enable-hierarchical-cache)")
    return pool
