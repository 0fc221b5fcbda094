"""SGLang: kvkeep as a storage backend of HiCache (written against sglang 0.5.23).

    --enable-hierarchical-cache --hicache-mem-layout page_first
    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
      "backend_name": "kvkeep", "module_path": "kvkeep.sglang", "class_name": "KvkeepStorage",
      "interface_v1": 1}'

Pages that SGLang writes back go into the node's daemon, from SGLang's own host pool and back into
it, and are found there by every engine of the same model and geometry, after any of them, or the
daemon, was restarted. Every failure is a miss. Calls wait for the daemon, on SGLang's threads for
storage, up to their timeouts; not at all while it is away, and hardly while it hangs.

A page is a key; its K and V planes are parts of it, on each rank. SGLang never says that it is done
with what it found: that is held until it was fetched, and `lease_s` at the longest. Models with
pools beside K and V (Mamba, sliding windows, indexers: interface v2) are refused.
"""

import array
import hashlib
import logging
import os

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from kvkeep import calls
from kvkeep.engine import Breaker, LeaseOptions, connect, keys_worth_loading
from kvkeep.held import HeldLeases
from kvkeep.memory import Pointer

logger = logging.getLogger(__name__)

_OPAQUE_DTYPES = ("uint8", "int8")  # what SGLang stores every kind of fp8 as


class KvkeepStorage(HiCacheStorage):
    """"kvkeep" in the extra config: options of kvkeep.engine.LeaseOptions, all of them optional."""

    def __init__(self, storage_config, kwargs):
        del kwargs
        extra = storage_config.extra_config or {}
        if not extra.get("interface_v1"):
            raise ValueError('kvkeep: the extra config needs "interface_v1": 1')
        if storage_config.dcp_size > 1:  # ranks would hold other tokens under one page key
            raise ValueError("kvkeep: decode context parallelism is not kept")
        self._config = storage_config
        self._options = LeaseOptions.of(extra.get("kvkeep", {}))
        if not storage_config.model_name and not self._options.name:
            raise ValueError('kvkeep: SGLang names no model here: give a "name"')
        self._client = connect(self._options, f"sglang {os.getpid()}", logger)
        self._breaker = Breaker()
        self._held = HeldLeases(self._options.lease_s)
        self._pool = self._namespace = None
        self._parts = []  # of a page, on this rank

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        self._pool = mem_pool_host
        if mem_pool_host.layout == "layer_first":
            raise ValueError("kvkeep: a page must lie in one piece for all layers; "
                             "use --hicache-mem-layout page_first or page_first_direct")
        _, sizes = mem_pool_host.get_page_buffer_meta(
            array.array("q", range(mem_pool_host.page_size)))
        self._namespace = self._open_namespace(mem_pool_host, sizes)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        if str(host_pool_name) != "kv":  # that one is announced both ways
            raise ValueError(f"kvkeep: models with a pool {host_pool_name} are not kept")

    # ---- what SGLang asks for

    def batch_exists(self, keys, extra_info=None):
        """Leading pages that are there, held until they were fetched."""
        digests = self._worth_loading([_digest(key) for key in keys])
        if not digests:
            return 0
        found = self._lookup(digests, lease="leading")
        if found is None or found.lease is None:
            return 0
        self._held.hold(found.lease, digests[:found.leased_keys])
        return found.leased_keys

    def exists(self, key):
        found = self._lookup([_digest(key)])
        return found is not None and found.leading_keys == 1

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        digests, into = [_digest(key) for key in keys], self._pieces(host_indices)
        try:
            if not self._breaker.allows():
                return [False] * len(keys)
            got = self._namespace.get(digests, into, parts=self._parts,
                                      timeout=self._options.timeout_s)
        finally:
            self._held.let_go(digests)
        self._breaker.heard(got.error)
        return self._by_page(good and nbytes == piece.nbytes
                             for good, nbytes, piece in zip(got.good, got.nbytes, into))

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        if not self._breaker.allows():
            return [False] * len(keys)
        before = getattr(extra_info, "prefix_keys", None) or [None]
        parent, pieces, chunks = before[-1] and _digest(before[-1]), self._pieces(host_indices), []
        for number, key in enumerate(keys):
            first = number * len(self._parts)
            chunks += [calls.Chunk(_digest(key), piece, part, parent)
                       for part, piece in zip(self._parts, pieces[first:])]
            parent = chunks[-1].key
        stored = self._namespace.put(chunks, timeout=self._options.timeout_s)
        self._breaker.heard(stored.error)
        return self._by_page(stored.good)

    def clear(self):
        logger.warning("kvkeep: not cleared from here: other engines use it; see `kvkeep clear`")

    def close(self):
        """Idempotent."""
        self._held.close()
        self._client.close()

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

    def _lookup(self, digests, lease=None):
        """A Found; None: not asked."""
        if not self._breaker.allows():
            return None
        found = self._namespace.lookup(digests, parts=self._parts, lease=lease,
                                       timeout=self._options.lookup_timeout_s)
        self._breaker.heard(found.error)
        return found

    def _worth_loading(self, digests):
        """Asked for apart and without a lease: a lease would bring from NVMe what is not worth
        it."""
        if self._options.prefill_tokens_per_s is None:
            return digests
        found = self._lookup(digests)
        return digests[:keys_worth_loading(
            self._options, found, self._pool.page_size) if found else 0]

    def _pieces(self, host_indices):
        """Where the pages' bytes are: page by page, K before V."""
        addresses, sizes = self._pool.get_page_buffer_meta(host_indices)
        return [Pointer(address, nbytes) for address, nbytes in zip(addresses, sizes)]

    def _by_page(self, of_pieces):
        of_pieces, step = list(of_pieces), len(self._parts)
        return [all(of_pieces[at:at + step]) for at in range(0, len(of_pieces), step)]

    def _open_namespace(self, pool, sizes):
        """All that changes a page's bytes tells namespaces apart, the number of parts too. Ranks
        that hold the same bytes (MLA) are one; of the others each has parts of its own."""
        config, dtype = self._config, str(pool.dtype).split(".")[-1]
        if dtype in _OPAQUE_DTYPES and not self._options.name:
            raise ValueError(f'kvkeep: pages of {dtype} do not say which format they are in: give '
                             'a "name", another one for each --kv-cache-dtype')
        ranks, rank = (1, 0) if config.is_mla_model else (config.tp_size, config.tp_rank)
        self._parts = [rank * len(sizes) + piece for piece in range(len(sizes))]
        return self._client.namespace(
            config.model_name or "unnamed", tokens_per_chunk=pool.page_size, dtype=dtype,
            layout=(f"sglang page 1: {pool.layout} pieces={','.join(map(str, sizes))} "
                    f"pp={config.pp_rank}/{config.pp_size} "
                    f"cp={config.attn_cp_rank}/{config.attn_cp_size} "
                    f"name={self._options.name!r}"),
            hash_algorithm="sglang page keys", parts=ranks * len(sizes),
            timeout=self._options.lookup_timeout_s)


def _digest(key):
    """Page keys are SHA-256 in hex; those of the unified scheme say more after it."""
    if len(key) == 64:
        return bytes.fromhex(key)
    return hashlib.sha256(key.encode()).digest()
