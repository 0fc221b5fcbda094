"""LMCache: kvkeep as a connector of its adapter `native_plugin`, for servers without the type
`plugin`, for which kvkeep.lmcache is (versions: engine_facts.py).

    lmcache server ... --l2-adapter '{"type": "native_plugin",
      "module_path": "kvkeep.lmcache_native", "class_name": "KvkeepConnector",
      "adapter_params": {"name": "X"}}'

This adapter does less than kvkeep.lmcache, as LMCache passes less. A `name` is mandatory here, too.
LMCache never unlocks a key: found chunks are held until they were fetched, at most for `lease_s`.
LMCache does not describe an object either: one of another size is a miss, and several dtypes or
layouts of one model need a "name" each. It shares no objects with kvkeep.lmcache. Every failure is
a miss. Only close and the very first call wait for the daemon, at most for a lookup's timeout.
"""

import dataclasses
import hashlib
import logging
import os
import re
import select
import threading

from kvkeep import calls
from kvkeep.completions import Completions
from kvkeep.engine import Breaker, NoCalls, Options, asks_remote, connect, require_name
from kvkeep.engine_versions import check_engine, is_taken, tell_idle
from kvkeep.held import HeldLeases
from kvkeep.identity import HASH_BYTES, Identity
from kvkeep.lmcache_groups import refuse_mixed_objects
from kvkeep.paced import Paced

logger = logging.getLogger(__name__)

_CALLS_AT_ONCE = 4096
_NOT_ASKED = "the daemon hangs, or is far behind, or this LMCache is not known"
_SHORT_HASH = "a chunk hash is short: use LMCache's --hash-algorithm blake3"
_KEY = re.compile(r"@[0-9a-f]{8}@[0-9a-f]+@([0-9a-f]+)(@[^@]*)?$")  # rank, group, hash, salt


@dataclasses.dataclass(frozen=True)
class ConnectorOptions(Options):
    """name: mandatory. lease_s: how long found chunks are held for a server that does not fetch
    them. short_hashes: as in kvkeep.lmcache.
    """

    lease_s: float = 30.0
    short_hashes: bool = False

    def __post_init__(self):
        super().__post_init__()
        require_name(self, "LMCache")


class KvkeepConnector:
    """adapter_params: those of ConnectorOptions, all but `name` optional. Thread-safe."""

    def __init__(self, **adapter_params):
        self._options = ConnectorOptions.of(adapter_params)
        is_idle = not is_taken("lmcache")  # every call ends at once, as a miss
        version = (tell_idle if is_idle else check_engine)("lmcache", logger)
        identity = Identity("lmcache", version, name=self._options.name)
        if not is_idle:
            refuse_mixed_objects(logger)
        self._client = connect(self._options, f"lmcache {os.getpid()}", logger)
        self._namespace = self._client.namespace(
            "of LMCache's key", tokens_per_chunk=1,  # LMCache's hashes cover it
            layout=f"{identity.layout} lmcache native object 2",
            hash_algorithm="sha256 of LMCache's native key",
            timeout=self._options.lookup_timeout_s)
        self._breaker = NoCalls() if is_idle else Breaker()
        self._held = HeldLeases(self._options.lease_s)
        self._lock = threading.Lock()  # guards all that follows
        self._completions = Completions(self._client, _CALLS_AT_ONCE)
        self._paced, self._paced_lookups = (
            Paced(self._completions, lambda: self._breaker.allows(), timeout_s)
            for timeout_s in (self._options.timeout_s, self._options.lookup_timeout_s))
        self._answered = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # calls without a daemon
        self._events = select.epoll()
        for fd in (self._completions.fd, self._answered):
            self._events.register(fd, select.EPOLLIN)
        self._done = []
        self._last = 0
        self._short_hashes = 0  # calls with such keys, which were not made
        self._closed = False

    def event_fd(self):
        return self._events.fileno()

    def submit_batch_exists(self, keys):
        digests = [_digest(key) for key in keys]

        def judge(found):
            if found.lease is not None:
                self._held.hold(found.lease, [one for one, leased in zip(digests, found.leased)
                                              if leased])
            return found.leased  # present chunks without a promise may be gone by the load

        return self._start(self._paced_lookups, keys, judge, lambda: calls.lookup(
            self._namespace, digests, lease="all", timeout=self._options.lookup_timeout_s,
            **asks_remote(self._options)))

    def submit_batch_get(self, keys, memoryviews):
        digests, sizes = [_digest(key) for key in keys], [view.nbytes for view in memoryviews]

        def judge(got):
            return [good and nbytes == size
                    for good, nbytes, size in zip(got.good, got.nbytes, sizes)]

        return self._start(self._paced, keys, judge, lambda: calls.get(
            self._namespace, digests, memoryviews, remote_wait=0,
            timeout=self._options.timeout_s),
            over=lambda: self._held.let_go(digests))

    def submit_batch_set(self, keys, memoryviews):
        chunks = [(_digest(key), view) for key, view in zip(keys, memoryviews)]
        return self._start(
            self._paced, keys, lambda stored: stored.good,
            lambda: calls.put(self._namespace, chunks, timeout=self._options.timeout_s), whole=True)

    def submit_batch_delete(self, keys):
        return self._start(
            self._paced, keys, lambda deleted: [deleted.error is None] * len(keys),
            lambda: calls.delete(self._namespace, [_digest(key) for key in keys],
                                 timeout=self._options.timeout_s))

    def drain_completions(self):
        """Returns the ended calls: for each (number, whether it went well, why not, and each
        key)."""
        with self._lock:
            if self._closed:
                return []
            try:
                os.eventfd_read(self._answered)
            except BlockingIOError:
                pass
            self._completions.poll()
            self._paced.poll()
            self._paced_lookups.poll()
            done, self._done = self._done, []
            return done

    def close(self):
        """Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._paced.drop()
            self._paced_lookups.drop()
            if self._completions.wait(2 * self._options.timeout_s):  # each has its own timeout
                self._completions.close()
            self._events.close()
            os.close(self._answered)
        self._held.close()
        self._client.close()

    def _start(self, paced, keys, judge, make, over=lambda: None, whole=False):
        """judge(result) returns whether each key went well. make() returns the call. over() is
        called once, at its end. whole: a call with a failed part failed."""
        def ended(outcomes):
            over()
            (result, mistake), = outcomes or [(None, why_not or _NOT_ASKED)]
            good, why = [False] * len(keys), mistake
            if mistake is None:
                self._breaker.heard(result.error)
                good, why = judge(result), result.error
            elif mistake not in (_NOT_ASKED, _SHORT_HASH):
                logger.warning("kvkeep: a call of %d keys: %s", len(keys), mistake)
            went_well = all(good) if whole else why is None
            self._done.append((number, went_well, "" if why is None else str(why), good))

        why_not = None if all(map(self._takes, keys)) else _SHORT_HASH
        with self._lock:
            if why_not is not None:
                self._short_hashes += 1
                if self._short_hashes == 1:
                    logger.warning("kvkeep: nothing is found or kept: %s", why_not)
            self._last += 1
            number, before = self._last, len(self._done)
            if self._closed or why_not or not self._breaker.allows():
                ended([])
            else:
                try:
                    paced.start_all([make()], len(keys), ended)
                except Exception as mistake:  # pylint: disable=broad-except  # unreadable memory
                    ended([(None, mistake)])
            if len(self._done) > before and not self._closed:
                os.eventfd_write(self._answered, 1)
            return number

    def _takes(self, key):
        found = _KEY.search(key)
        return self._options.short_hashes or (
            found is not None and len(found.group(1)) >= 2 * HASH_BYTES)


def _digest(key):
    """Returns a digest of the whole key: model, rank, group, chunk's hash, salt."""
    return hashlib.sha256(key.encode()).digest()
