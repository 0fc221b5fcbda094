"""vLLM: which of its scheduler's keys the daemon has. Shared by the tier and the direct connector.

vLLM's key is a block's hash and its KV group; ours also has the content of its request's LoRA
adapter. Lookups are asked for in one step and answered in a later one, with a call for each group.
Leases hold found chunks until the request is over. Not thread-safe; no call waits.
"""

import hashlib

from vllm.v1.kv_offload.base import (LookupResult, get_offload_block_hash, get_offload_group_idx,
                                     make_offload_key)

from kvkeep import calls, vllm_stats
from kvkeep.engine import Breaker, asks_remote, keys_worth_loading
from kvkeep.identity import HASH_BYTES
from kvkeep.lookups import Lookups
from kvkeep.vllm_identity import Adapters


def hashes(keys):
    return [get_offload_block_hash(key) for key in keys]


def by_group(keys):
    """Returns {group: its keys, in order}."""
    groups = {}
    for key in keys:
        groups.setdefault(get_offload_group_idx(key), []).append(key)
    return groups


class Groups:
    """An engine's KV groups by their numbers, as vLLM's offloading config has them."""

    def __init__(self, config):
        self._config = config
        self._groups = {group.group_id: group for group in config.groups}

    def __iter__(self):
        return iter(self._groups)

    def _group(self, number):
        if number not in self._groups:
            raise ValueError(f"kvkeep: a key of the KV group {number}: the engine has "
                             f"{sorted(self._groups)}")
        return self._groups[number]

    def tokens_per_key(self, number):
        return self._group(number).tokens_per_block * self._config.cache.blocks_per_chunk

    def layout(self, number, shards=None):
        """Returns the layout of a group's bytes, whoever moves them. It names no rank, as that is a
        part. shards: of a page, in place of the number of ranks."""
        config, parallel = self._config, self._config.parallel
        names = "\0".join(self._group(number).layer_names)
        layers = hashlib.sha256(names.encode()).hexdigest()[:16]
        ranks = f"tp={parallel.tp_size}" if shards is None else f"shards={shards}"
        return (f"group={number} layers={layers} blocks={config.cache.blocks_per_chunk} "
                f"{ranks} pp={parallel.pp_size} pcp={parallel.pcp_size} "
                f"dcp={parallel.dcp_size} kv={config.kv_cache_layout}")


class OwnKeys:
    """of_request: Futures of adapters' contents, for requests that have one. epochs: Epochs."""

    def __init__(self, of_request, stats, epochs):
        self._of_request, self._stats, self._epochs = of_request, stats, epochs
        self._began = {}  # request: the number of the epoch in which it began
        self._without_images = {}  # request: vLLM's

    @property
    def private(self):
        """Returns whether no other engine finds what is stored now."""
        return self._epochs.private

    def begin(self, request):
        """Notes that all the request's KV is computed or loaded from now on. Called again if vLLM
        starts it anew."""
        self._began[request] = self._epochs.number

    def refuse_images(self, request):
        """Finds and keeps nothing of vLLM's request while it has images, audio or video. Its input
        may come in parts, so it may have some later."""
        self._without_images[request.request_id] = request

    def over(self, request):
        self._began.pop(request, None)
        self._without_images.pop(request, None)

    def known(self, request):
        """Returns whether the request's adapter is known by now."""
        adapter = self._of_request.get(request)
        return adapter is None or adapter.done()

    def of(self, key, request, operation):
        """Returns the daemon's key, which includes the content of the request's adapter and the
        epoch. None: nothing may be found or kept under it."""
        of_vllm = self._without_images.get(request)
        if of_vllm is not None and of_vllm.mm_features:
            self._stats.failed(operation, vllm_stats.MULTIMODAL, 1)
            return None
        # KV from before the epoch may be of other weights.
        if operation == "store" and self._began.get(request, 0) != self._epochs.number:
            self._stats.failed(operation, vllm_stats.EPOCH, 1)
            return None
        digest = get_offload_block_hash(key)
        if len(digest) < HASH_BYTES:  # whoever made it: making another such is not hard
            self._stats.failed(operation, vllm_stats.SHORT_HASH, 1)
            return None
        adapter = self._of_request.get(request)
        if adapter is not None:
            content = adapter.result() if adapter.done() else Adapters.UNKNOWN
            if content == Adapters.UNKNOWN:
                self._stats.failed(operation, vllm_stats.ADAPTER, 1)
                return None
            digest = hashlib.sha256(f"kvkeep adapter {content}\0".encode() + digest).digest()
        if self._epochs.private:
            digest = hashlib.sha256(f"kvkeep epoch {self._epochs.name}\0".encode() +
                                    digest).digest()
        return make_offload_key(digest, get_offload_group_idx(key))


class Finder:
    """namespace(group) returns the group's. tokens_per_key(group): tokens of a key. found(keys) is
    called once with the keys of ours that are there and leased, missed(keys) with the others."""

    def __init__(self, options, own, completions, stats, logger, *, namespace, tokens_per_key,
                 found=lambda keys: None, missed=lambda keys: None):
        self._options, self._own, self._completions = options, own, completions
        self._stats, self._logger = stats, logger
        self._namespace, self._tokens_per_key = namespace, tokens_per_key
        self._found, self._missed = found, missed
        self._breaker = Breaker()
        self._leases = {}  # request: its leases; live requests only
        self.reset()

    def reset(self):
        """Forgets all lookups, as keys have changed."""
        self._lookups = Lookups(self._find)

    @property
    def leases(self):
        """Returns the number of held leases."""
        return sum(map(len, self._leases.values()))

    def begin(self, request):
        self._own.begin(request)
        self._leases.setdefault(request, [])

    def lookup(self, key, request):
        if not self._own.known(request):
            return LookupResult.RETRY
        key = self._own.of(key, request, "lookup")
        if key is None:
            return LookupResult.MISS
        found = self._lookups.want(key, request)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def flush(self):
        self._completions.poll()
        self._lookups.flush()

    def missed(self, own_keys):
        """Makes these keys misses."""
        self._lookups.missed(own_keys)

    def stored(self, own_keys):
        """Notes that these keys may be there by now."""
        self._lookups.may_be_there(own_keys)

    def preempted(self, request):
        """Notes that the chunks that the request missed may be there by now."""
        self._lookups.ask_again(request)

    def release(self, request):
        """Releases the leases of the request."""
        held, self._leases[request] = self._leases.get(request, []), []
        for lease in held:
            lease.release()

    def over(self, request):
        self._lookups.forget(request)
        self.release(request)
        del self._leases[request]
        self._own.over(request)

    def clear(self):
        self._leases.clear()

    def _find(self, keys, request, ended):
        """The `find` of Lookups: makes a call for each group, which leases chunks for the
        request."""
        def leased(worth):
            self._look_up(worth, "all", hold, ended)

        def hold(found, keys):
            if found.lease is not None and request in self._leases:
                self._leases[request].append(found.lease)
            elif found.lease is not None:
                found.lease.release()
            parts = found.parts  # all parts of a key, or it is not there
            there = [key for at, key in enumerate(keys)
                     if all(found.leased[at * parts:(at + 1) * parts])]
            self._found(there)
            if found.error is None and len(there) < len(keys):
                self._missed(set(keys).difference(there))
            return there

        if self._options.prefill_tokens_per_s is None:
            leased(keys)
        else:  # first without a lease, which would bring unworthy chunks from NVMe
            self._look_up(keys, None, self._worth_loading, leased)

    def _look_up(self, keys, lease, judge, ended):
        """Calls ended with the keys that `judge` took, in order."""
        groups = by_group(keys) if self._breaker.allows() else {}
        if not groups:
            self._stats.failed("lookup", vllm_stats.BREAKER, len(keys))

        def heard(outcomes):
            taken = set()
            for of_group, (found, mistake) in zip(groups.values(), outcomes):
                self._stats.ended("lookup", len(of_group), found, mistake)
                if mistake is not None:
                    self._logger.warning("kvkeep: lookup: %s", mistake)
                    continue
                self._breaker.heard(found.error)
                taken.update(judge(found, of_group))
            ended([key for key in keys if key in taken])

        self._completions.start_all(
            [calls.lookup(self._namespace(group), hashes(of_group), lease=lease,
                          timeout=self._options.lookup_timeout_s,
                          **asks_remote(self._options, self._tokens_per_key(group)))
             for group, of_group in groups.items()], heard)

    def _worth_loading(self, found, keys):
        tokens = self._tokens_per_key(get_offload_group_idx(keys[0]))
        return keys[:keys_worth_loading(self._options, found, tokens)]
