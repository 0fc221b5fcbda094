"""LMCache: kvkeep as an L2 adapter of its server (versions: engine_facts.py).

    lmcache server --l1-size-gb N --eviction-policy LRU --l2-adapter '{"type": "plugin",
      "module_path": "kvkeep.lmcache", "class_name": "KvkeepL2", "adapter_params": {"name": "X"}}'

Chunks in the server's own memory go on into the node's daemon. Every server of the same model and
layout finds them there, also after a restart of any server or the daemon. Every failure is a miss.
LMCache tells a model by its name alone, without the weights, adapters, RoPE or version of its
engines. So a `name`, which stands for them, is mandatory here: give another one whenever any of
them changes. Only close and the first call about a model wait for the daemon, at most for a
lookup's timeout.

LMCache's locks are leases: a key that a lookup found stays readable until it is unlocked. LMCache
passes sizes only with an object. So a description of each object is kept beside its bytes, and an
object of another size or shape is a miss. Hashes must be the same in every process and resist
collisions, as LMCache's default (blake3) does; shorter ones, as of --hash-algorithm builtin, are
never found or kept. All formats of fp8 look like uint8 here: with several of one model, give each
adapter another "name". The daemon evicts. LMCache is told of no bytes used here, so its own L2
eviction and quotas never act on this adapter.
"""

import collections
import dataclasses
import functools
import hashlib
import os
import select
import threading

from kvkeep import calls, errors
from kvkeep.completions import Completions
from kvkeep.engine import (
    Breaker, LeaseOptions, NoCalls, asks_remote, connect, keys_worth_loading, require_name)
from kvkeep.engine_versions import (
    can_be_idle, check_engine, imported, is_taken, needs, tell_idle)
from kvkeep.held import HeldLeases
from kvkeep.identity import HASH_BYTES, Identity
from kvkeep.lmcache_groups import refuse_mixed_objects
from kvkeep.paced import Paced

with needs("lmcache"):
    from lmcache.v1.distributed.internal_api import L2StoreResult
    from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
    from lmcache.v1.platform import create_event_notifier
    Bitmap = imported("lmcache", "Bitmap")
try:
    from lmcache.logging import init_logger
except ImportError:
    from logging import getLogger as init_logger

logger = init_logger(__name__)

_CALLS_AT_ONCE = 4096
_RESULTS_KEPT = 4096  # that were not collected, of requests that LMCache gave up
_MODELS_AT_ONCE = 64
_LOOKUPS = ("lookup", "worth")  # the kinds of tasks that look up


@dataclasses.dataclass(frozen=True)
class L2Options(LeaseOptions):
    """name: mandatory. short_hashes: also takes keys of fewer than 32 bytes, which a user who
    writes prompts might choose; for `lmcache bench`, which counts. chunk_tokens: LMCache's
    --chunk-size; only for prefill_tokens_per_s.
    """

    chunk_tokens: int = 256
    short_hashes: bool = False

    def __post_init__(self):
        super().__post_init__()
        require_name(self, "LMCache")
        if not isinstance(self.chunk_tokens, int) or self.chunk_tokens < 1:
            raise ValueError(f"chunk_tokens: 1 or more, not {self.chunk_tokens!r}")


class _Results:
    """Results of one kind of task that were not collected yet, and how LMCache hears of them."""

    def __init__(self):
        self.notifier = create_event_notifier()
        self._ended = collections.OrderedDict()  # task: result

    def add(self, task, result):
        self._ended[task] = result
        if len(self._ended) > _RESULTS_KEPT:
            self._ended.popitem(last=False)
        self.notifier.notify()

    def take(self, task):
        return self._ended.pop(task, None)

    def take_all(self):
        ended, self._ended = dict(self._ended), collections.OrderedDict()
        return ended


@can_be_idle("lmcache")
class KvkeepL2(L2AdapterInterface):
    """adapter_params: those of L2Options, all but `name` optional."""

    def __init__(self, adapter_params, l1_memory_desc=None):
        super().__init__()  # without a capacity, which is the daemon's
        del l1_memory_desc  # its objects have addresses
        self._options = L2Options.of(adapter_params)
        is_idle = not is_taken("lmcache")  # every task ends at once, as a miss
        version = (tell_idle if is_idle else check_engine)("lmcache", logger)
        self._identity = Identity("lmcache", version, name=self._options.name)
        if not is_idle:
            refuse_mixed_objects(logger)
        self._client = connect(self._options, f"lmcache {os.getpid()}", logger)
        self._namespace = functools.lru_cache(_MODELS_AT_ONCE)(self._open_namespace)
        self._breaker = NoCalls() if is_idle else Breaker()
        self._held = HeldLeases(self._options.lease_s)
        self._lock = threading.Lock()  # guards all that follows
        self._completions = Completions(self._client, _CALLS_AT_ONCE)
        self._stores, self._lookups, self._loads = _Results(), _Results(), _Results()
        self._paced, self._paced_lookups = (
            Paced(self._completions, lambda: self._breaker.allows(), timeout_s)
            for timeout_s in (self._options.timeout_s, self._options.lookup_timeout_s))
        self._counts = collections.Counter()
        self._last_task = 0
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="kvkeep-lmcache", daemon=True)
        self._wake = create_event_notifier()  # for the thread's end
        self._thread.start()

    # ---- stores

    def get_store_event_fd(self):
        return self._stores.notifier.fileno()

    def submit_store_task(self, keys, objects):
        def make(ns, at):
            return calls.put(ns, [calls.Chunk(_digest(keys[i]), objects[i].byte_array,
                                              metadata=_layout(objects[i])) for i in at],
                             timeout=self._options.timeout_s)

        def judge(stored, at):
            for i, status in zip(at, stored.statuses):
                if status == calls.PutStatus.STORED:
                    self._counts["stored_bytes"] += objects[i].get_size()
            return stored.good

        def finish(task, good):
            nbytes = sum(one.get_size() for one, kept in zip(objects, good) if kept)
            self._stores.add(task, L2StoreResult(all(good), nbytes))

        return self._start("store", keys, make, judge, finish)

    def pop_completed_store_tasks(self):
        with self._lock:
            return self._stores.take_all()

    # ---- lookups and locks

    def get_lookup_and_lock_event_fd(self):
        return self._lookups.notifier.fileno()

    def submit_lookup_and_lock_task(self, keys, group_layout_descs):
        del group_layout_descs  # a hint, which may be wrong
        digests = [_digest(key) for key in keys]

        def lease(ns, at):
            return calls.lookup(ns, [digests[i] for i in at], lease="all",
                                timeout=self._options.lookup_timeout_s,
                                **self._asks_remote(keys, at))

        def judge(found, at):
            if found.lease is not None:
                leased = [_held_key(keys[i]) for i, one in zip(at, found.leased) if one]
                self._held.hold(found.lease, leased)
            return found.leased  # present chunks without a promise may be gone by the load

        def finish(task, good):
            self._lookups.add(task, _bitmap(good))

        if self._options.prefill_tokens_per_s is None:
            return self._start("lookup", keys, lease, judge, finish)

        # A separate lookup without a lease, which would bring unworthy chunks from NVMe.
        def ask(ns, at):
            return calls.lookup(ns, [digests[i] for i in _chunk_by_chunk(keys, at)],
                                timeout=self._options.lookup_timeout_s,
                                **self._asks_remote(keys, at))

        def then(task, worth):
            among = [number for number, one in enumerate(worth) if one]
            made, numbers = self._make_calls("lookup", keys, lease, among)
            self._run(task, "lookup", keys, made, numbers, judge, finish)

        return self._start("worth", keys, ask,
                           lambda found, at: self._worth_loading(keys, found, at), then)

    def _asks_remote(self, keys, at):
        chunks = len({keys[i].chunk_hash for i in at})
        return asks_remote(self._options, self._options.chunk_tokens * chunks / len(at))

    def _worth_loading(self, keys, found, at):
        """Returns whether each of those keys is usable. A chunk is usable when all of its keys are
        there."""
        ordered, chunks = _chunk_by_chunk(keys, at), len({keys[i].chunk_hash for i in at})
        together = len(at) // chunks
        if together * chunks != len(at):  # groups of unlike reach: each key by itself
            together = 1
        tokens = self._options.chunk_tokens * chunks * together / len(at)
        worth = keys_worth_loading(self._options, found, tokens, together)
        there = {number for number, presence in zip(ordered, found.presence) if presence}
        if worth < found.leading_keys // together:  # otherwise chunks behind a gap count too
            there &= set(ordered[:worth * together])
        return [number in there for number in at]

    def query_lookup_and_lock_result(self, task_id):
        with self._lock:
            return self._lookups.take(task_id)

    def submit_unlock(self, keys):
        self._held.let_go([_held_key(key) for key in keys])

    # ---- loads

    def get_load_event_fd(self):
        return self._loads.notifier.fileno()

    def submit_load_task(self, keys, objects):
        def make(ns, at):
            return calls.get(ns, [_digest(keys[i]) for i in at],
                             [objects[i].byte_array for i in at], metadata=True,
                             remote_wait=0, timeout=self._options.timeout_s)

        def judge(got, at):
            return [hit and nbytes == objects[i].get_size() and layout == _layout(objects[i])
                    for i, hit, nbytes, layout in zip(at, got.good, got.nbytes, got.metadata)]

        def finish(task, good):
            self._counts["loaded_bytes"] += sum(
                one.get_size() for one, loaded in zip(objects, good) if loaded)
            self._loads.add(task, _bitmap(good))

        return self._start("load", keys, make, judge, finish)

    def query_load_result(self, task_id):
        with self._lock:
            return self._loads.take(task_id)

    # ---- the rest

    def delete(self, keys):
        def make(ns, at):
            return calls.delete(ns, [_digest(keys[i]) for i in at],
                                timeout=self._options.timeout_s)

        self._start("delete", keys, make, lambda deleted, at: [deleted.error is None] * len(at),
                    lambda task, good: None)

    def report_status(self):
        with self._lock:
            counts = dict(self._counts)
            given_up = self._paced.given_up + self._paced_lookups.given_up
        return {"is_healthy": self._client.connected, "type": type(self).__name__,
                "path": self._client.path.why, "leases": len(self._held),
                "leases_ran_out": self._held.ran_out,
                "calls_given_up": self._breaker.given_up + given_up,
                **counts}

    def close(self):
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._paced.drop()
            self._paced_lookups.drop()
        self._wake.notify()
        self._thread.join()
        with self._lock:  # nothing starts any more
            if self._completions.wait(2 * self._options.timeout_s):  # each has its own timeout
                self._completions.close()
        self._held.close()
        self._client.close()
        for results in (self._stores, self._lookups, self._loads):
            results.notifier.close()
        self._wake.close()

    def _start(self, kind, keys, make, judge, finish):
        """A task: a call for each model of the keys.

        make(namespace, numbers of keys) returns the call. judge(result, numbers) returns whether
        each went well. finish(task, whether each key went well) is called once, under the lock.
        """
        made, numbers = self._make_calls(kind, keys, make, range(len(keys)))
        with self._lock:
            self._last_task += 1
            if not self._closed:
                self._run(self._last_task, kind, keys, made, numbers, judge, finish)
            return self._last_task

    def _make_calls(self, kind, keys, make, among):
        """Returns calls for those of the keys, by their numbers, and the numbers of each. None
        while the daemon hangs, or for unreadable memory."""
        by_model = collections.defaultdict(list)
        for number in among:
            if self._options.short_hashes or len(keys[number].chunk_hash) >= HASH_BYTES:
                by_model[keys[number].model_name].append(number)
            else:
                self._refuse_hash(len(keys[number].chunk_hash))
        if not by_model or not self._breaker.allows():
            return [], []
        try:
            made = [make(self._namespace(model), at) for model, at in by_model.items()]
            return made, list(by_model.values())
        except Exception as mistake:  # pylint: disable=broad-except  # unreadable memory
            if isinstance(mistake, errors.DeadlineExceeded):  # otherwise it was not the daemon
                self._breaker.heard(mistake)
            logger.warning("kvkeep: a %s of %d keys: %s", kind, len(keys), mistake)
            return [], []

    def _run(self, task, kind, keys, made, numbers, judge, finish):
        """Starts a task, at once or when there is room for it. REQUIRES: the lock is held."""
        def ended(outcomes):
            good = [False] * len(keys)
            for at, (result, mistake) in zip(numbers, outcomes):
                if mistake is not None:
                    logger.warning("kvkeep: a %s of %d keys: %s", kind, len(at), mistake)
                    continue
                self._breaker.heard(result.error)
                try:  # LMCache may have changed it since it gave it up
                    for number, one in zip(at, judge(result, at)):
                        good[number] = one
                except Exception as broken:  # pylint: disable=broad-except
                    logger.warning("kvkeep: a %s of %d keys: %r", kind, len(at), broken)
            self._counts[kind + "_keys"] += len(keys)
            self._counts[kind + "_good"] += sum(good)
            finish(task, good)

        paced = self._paced_lookups if kind in _LOOKUPS else self._paced
        paced.start_all(made, len(keys), ended)

    def _watch(self):
        """Takes ends of calls as they come, until closed."""
        poller = select.poll()
        for fd in (self._completions.fd, self._wake.fileno()):
            poller.register(fd, select.POLLIN)
        while True:
            poller.poll()
            with self._lock:
                if self._closed:
                    return
                self._completions.poll()
                self._paced.poll()
                self._paced_lookups.poll()

    def _refuse_hash(self, nbytes):
        with self._lock:
            self._counts["short_hashes"] += 1
            first = self._counts["short_hashes"] == 1
        if first:
            logger.warning("kvkeep: chunk hashes of %d bytes are neither found nor kept: use "
                           "LMCache's --hash-algorithm blake3", nbytes)

    def _open_namespace(self, model):
        return self._client.namespace(
            model, tokens_per_chunk=1,  # LMCache's hashes cover it
            layout=f"{self._identity.layout} lmcache object 2, described in its metadata",
            hash_algorithm="sha256 of rank, group, salt, LMCache's chunk hash",
            timeout=self._options.lookup_timeout_s)


def _digest(key):
    """Returns all of an ObjectKey but its model. A salt has no "@"."""
    text = f"{key.kv_rank:x}@{key.object_group_id:x}@{key.cache_salt}@"
    return hashlib.sha256(text.encode() + key.chunk_hash).digest()


def _chunk_by_chunk(keys, at):
    """Returns the numbers `at`, with the keys of each chunk adjacent, and chunks in the order they
    first came."""
    first = {}
    for number in at:
        first.setdefault(keys[number].chunk_hash, len(first))
    return sorted(at, key=lambda number: first[keys[number].chunk_hash])


def _held_key(key):
    return key.model_name, _digest(key)


def _layout(one):
    """Returns text that distinguishes objects of one size."""
    meta = one.metadata
    shapes, dtypes = meta.shapes or [meta.shape], meta.dtypes or [meta.dtype]
    return ";".join(f"{dtype} {tuple(shape)}" for shape, dtype in zip(shapes, dtypes)).encode()


def _bitmap(good):
    bitmap = Bitmap(len(good))
    for number, one in enumerate(good):
        if one:
            bitmap.set(number)
    return bitmap
