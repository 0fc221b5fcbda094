"""Pages of one of SGLang's host pools as chunks: their namespace and parts, the places of their
bytes.

A page is a key; its pieces (K and V; the tensors of a Mamba state) are parts of it, on each rank. A
pool has a namespace of its own, so the same key in another pool is another chunk, which comes and
goes by itself. Every failure is a miss. Calls wait for the daemon up to their timeouts, and not
while the breaker is open. Thread-safe.

With SGLang's tp_lcm_size a part is not a rank's: K and V of each shard of heads are parts, in the
order of the heads. A rank has consecutive shards, so engines of any tensor parallelism share.
"""

import dataclasses
import functools
import hashlib
import logging
import re

import torch

from kvkeep import calls
from kvkeep.client import Client
from kvkeep.engine import Breaker, LeaseOptions, asks_remote, keys_worth_loading
from kvkeep.held import HeldLeases
from kvkeep.identity import Identity
from kvkeep.memory import Pointer
from kvkeep.sglang_identity import kv_heads
from kvkeep.sglang_stats import Transfers

logger = logging.getLogger(__name__)

KV = "kv"  # SGLang's name of the pool that every model has
_MAMBA = "mamba"  # the one MLA pool whose bytes differ by rank: its states
_DTYPES = ("dtype", "temporal_dtype", "indexer_dtype")  # dtypes by which pools describe their bytes
_DRAFTS = "draft"  # how SGLang's names of a draft model's pools begin
_OPAQUE_DTYPES = ("uint8", "int8")  # how SGLang stores every kind of fp8
_CHUNKS_LOOKED_UP = 65_536  # keys the daemon takes at once; a longer prompt is found so far
_PAGES_AT_ONCE = 128  # pages in a get or a put, as SGLang does it for one pool
_PARTS_AT_ONCE = 64  # parts of a key that the daemon takes
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclasses.dataclass
class Link:
    """Objects that the pools of an engine share."""

    client: Client
    options: LeaseOptions
    breaker: Breaker
    held: HeldLeases  # by (pool's name, digest)
    identity: Identity
    model: str  # the identity's readable name
    transfers: Transfers


class PoolPages:
    """The pages of one pool on one rank. config: a HiCacheStorageConfig; page_tokens: tokens of a
    key."""

    def __init__(self, link, config, name, pool, page_tokens):
        self._link, self._name, self._pool = link, getattr(name, "value", name), pool
        self._page_tokens = page_tokens
        self._shards = _shards(config, self._name, pool)
        if pool.layout == "layer_first":
            raise ValueError("kvkeep: a page must lie in one piece for all layers; "
                             "use --hicache-mem-layout page_first or page_first_direct")
        _, sizes = self._meta(torch.arange(pool.page_size))
        ranks, rank = _ranks(config, self._name, pool)
        self._parts = [rank * len(sizes) + piece for piece in range(len(sizes))]
        self._namespace = self._open_namespace(config, sizes, ranks)

    def count(self, digests):
        """Returns how many leading pages are there and worth loading. Takes no lease, which would
        bring the others from NVMe too."""
        found = self._lookup(digests)
        return 0 if found is None else keys_worth_loading(
            self._link.options, found, self._page_tokens)

    def there(self, digests):
        """Returns whether each page is there."""
        found = self._lookup(digests)
        there = [] if found is None else self._by_page(found.presence)
        return there + [False] * (len(digests) - len(there))

    def hold(self, digests):
        """Returns how many leading pages are there. They are held until they were fetched."""
        found = self._lookup(digests, lease="leading")
        if found is None or found.lease is None:
            return 0
        held = [(self._name, digest) for digest in digests[:found.leased_keys]]
        self._link.held.hold(found.lease, held)
        return len(held)

    def let_go(self, digests):
        """Ends the holds of these pages, without a get."""
        self._link.held.let_go((self._name, digest) for digest in digests)

    def get(self, digests, host_indices):
        """Loads the pages and ends their holds. Returns whether each page is in the pool now."""
        try:
            return self._in_slices(self._link.transfers.timed_get, self._get_some, digests,
                                   host_indices)
        finally:
            self.let_go(digests)

    def put(self, digests, host_indices, parent, private=False):
        """Returns whether each page is kept now. parent: the digest before the first one, or None.
        private: only this process can find it, so NVMe is spared."""
        parents = [parent, *digests[:-1]]
        return self._in_slices(self._link.transfers.timed_put,
                               functools.partial(self._put_some, private),
                               list(zip(digests, parents)), host_indices)

    # ---- how

    def _lookup(self, digests, lease=None):
        """Returns a Found, or None if the daemon was not asked."""
        if not digests or not self._link.breaker.allows():
            return None
        most = _CHUNKS_LOOKED_UP // len(self._parts)
        found = self._namespace.lookup(digests[:most], parts=self._parts, lease=lease,
                                       timeout=self._link.options.lookup_timeout_s,
                                       **asks_remote(self._link.options, self._page_tokens))
        self._link.breaker.heard(found.error)
        return found

    def _get_some(self, digests, into):
        got = self._namespace.get(digests, into, parts=self._parts, remote_wait=0,
                                  timeout=self._link.options.timeout_s)
        return got.error, [good and nbytes == piece.nbytes
                           for good, nbytes, piece in zip(got.good, got.nbytes, into)]

    def _put_some(self, private, pages, pieces):
        of_piece = [(digest, part, parent) for digest, parent in pages for part in self._parts]
        stored = self._namespace.put(
            [calls.Chunk(digest, piece, part, parent)
             for (digest, part, parent), piece in zip(of_piece, pieces)],
            no_g3=private, timeout=self._link.options.timeout_s)
        return stored.error, stored.good

    def _in_slices(self, timed, call, pages, host_indices):
        """Runs call(pages, their pieces), which returns an error or None and whether each piece is
        good. Returns whether each page is good."""
        step, good = self._pool.page_size, []
        if host_indices is None or len(host_indices) != len(pages) * step:
            logger.error("kvkeep: %d pages of the pool %s come with %d indices: a miss", len(pages),
                         self._name, 0 if host_indices is None else len(host_indices))
            return [False] * len(pages)
        for first in range(0, len(pages), _PAGES_AT_ONCE):
            some = pages[first:first + _PAGES_AT_ONCE]
            if not self._link.breaker.allows():
                good += [False] * len(some)
                continue
            error, of_pieces = timed(call, some, self._pieces(
                host_indices[first * step:(first + len(some)) * step]))
            self._link.breaker.heard(error)
            good += self._by_page(of_pieces)
        return good

    def _pieces(self, host_indices):
        """Returns the places of the pages' bytes: page by page, shard by shard, K before V."""
        return [Pointer(address, nbytes) for address, nbytes in zip(*self._meta(host_indices))]

    def _meta(self, host_indices):
        if self._shards is None:
            return self._pool.get_page_buffer_meta(host_indices)
        return self._pool.get_split_heads_page_buffer_meta(host_indices, self._shards)

    def _by_page(self, of_pieces):
        step = len(self._parts)
        return [all(of_pieces[at:at + step]) for at in range(0, len(of_pieces), step)]

    def _open_namespace(self, config, sizes, ranks):
        """Returns a namespace's arguments: everything that changes a page's bytes, the number of
        parts too."""
        options = self._link.options
        dtypes = [str(getattr(self._pool, one)).rsplit(".", maxsplit=1)[-1]
                  for one in _DTYPES if hasattr(self._pool, one)]
        if not options.name and (opaque := set(dtypes).intersection(_OPAQUE_DTYPES)):
            raise ValueError(
                f"kvkeep: pages of {opaque.pop()} (pool {self._name}) do not say which format they "
                'are in: give a "name", another one for each --kv-cache-dtype')
        if not options.name and self._name.startswith(_DRAFTS):
            raise ValueError(
                f"kvkeep: it is not said of which draft model the pool {self._name} is: give a "
                '"name", another one for each --speculative-draft-model-path')
        of_pool = "" if self._name == KV else f" pool={self._name}"
        of_shards = ""
        if self._shards is not None:
            sizes = sizes[:len(sizes) // self._shards]  # of one
            of_shards = (f"shards={config.tp_lcm_size} heads={self._pool.head_num // self._shards}"
                         f"x{self._pool.head_dim} ")
        return self._link.client.namespace(
            self._link.model, tokens_per_chunk=self._page_tokens, dtype="+".join(dtypes),
            layout=(f"{self._link.identity.layout} sglang page 2{of_pool}: {self._pool.layout} "
                    f"format={getattr(self._pool, 'storage_format_tag', None)} "
                    f"pieces={','.join(map(str, sizes))} {of_shards}"
                    f"pp={config.pp_rank}/{config.pp_size} "
                    f"cp={config.attn_cp_rank}/{config.attn_cp_size}"),
            hash_algorithm="sglang page keys", parts=ranks * len(self._parts),
            timeout=options.lookup_timeout_s)


class NoPages:
    """A pool without pages here. `good`: the pool has no bytes (DeepSeek V4's first one only
    numbers the pages of the others), so it has whatever they have, and nothing by itself. Otherwise
    the pool was refused or never announced: it has nothing, and keeps nothing."""

    def __init__(self, good):
        self._good = good

    def count(self, digests):
        return len(digests) if self._good else 0

    def there(self, digests):
        return [False] * len(digests)

    def hold(self, digests):
        return self.count(digests)

    def let_go(self, digests):
        pass

    def get(self, digests, host_indices):
        del host_indices
        return [self._good] * len(digests)

    def put(self, digests, host_indices, parent, private=False):
        del host_indices, parent, private
        return [self._good] * len(digests)


def pages_of(link, config, name, pool, page_tokens):
    """PoolPages, or NoPages."""
    if pool.get_page_buffer_meta(torch.arange(pool.page_size)) is None:
        return NoPages(good=True)
    return PoolPages(link, config, name, pool, page_tokens)


def digest_of(key):
    """Returns a page key as a digest. SGLang's are SHA-256 in hex; keys of the unified scheme have
    more behind it, and are hashed."""
    if _SHA256.fullmatch(key):
        return bytes.fromhex(key)
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _replicated(config, name):
    """Returns whether one rank writes for all. SGLang does so for models with MLA, except Mamba
    states; this is right for pools that are not split by heads."""
    return config.is_mla_model and name != _MAMBA


def _ranks(config, name, pool):
    """Returns (how many ranks' bytes a page has, the number of this rank)."""
    if not _replicated(config, name):
        return config.tp_size, config.tp_rank
    if config.tp_size > 1 and hasattr(pool, "head_num"):
        raise ValueError(f"kvkeep: the pool {name} is split by heads beside an MLA model's: not "
                         "kept with several tensor-parallel ranks")
    return 1, 0


def _shards(config, name, pool):
    """Returns how many shards of heads this rank's page has, or None without SGLang's tp_lcm_size
    or where all ranks have the same bytes. Raises ValueError if the pool cannot be split so."""
    if not config.tp_lcm_size or _replicated(config, name):
        return None
    why = _why_not(config.tp_lcm_size, config.tp_size, name, pool)
    if why is not None:
        raise ValueError(f"kvkeep: tp_lcm_size {config.tp_lcm_size} in the extra config: {why}")
    return config.tp_lcm_size // config.tp_size


def _why_not(shards, ranks, name, pool):
    heads, leave = kv_heads(name), "leave it out, and engines of as many ranks share"
    if not isinstance(shards, int) or shards < 1 or shards % ranks:
        return f"it must be a multiple of the {ranks} ranks of tensor parallelism"
    if heads is None:
        return f"the pool {name} is not split by heads; {leave}"
    if heads % shards:
        return f"it must divide the {heads} KV heads of the pool {name}; or {leave}"
    if pool.layout != "page_head":
        return f"pages lie as {pool.layout}; use --hicache-mem-layout page_head"
    if pool.head_num * ranks != heads:
        return f"a rank has {pool.head_num} of {heads} KV heads (pool {name}); {leave}"
    if 2 * (shards // ranks) > _PARTS_AT_ONCE:
        return f"it must be at most {_PARTS_AT_ONCE // 2} times the {ranks} ranks"
    return None
