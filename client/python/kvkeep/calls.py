"""Calls: a request, the memory it names, and the meaning of its end, for blocking and asyncio.

A call is made, run once, and finished with the code it ended with. Its keys, buffers and reply live
as long as the call object does: the runner holds it until it is over.
"""

import ctypes
import enum
import functools
import math
from typing import NamedTuple, Optional

from kvkeep import _abi, errors, keys as key_arrays, memory
from kvkeep.lease import Acquired, Lease

_LONGEST_MS = 2 ** 32 - 1  # 49 days
_LEASE_MODES = {None: 0, False: 0, "leading": 1, True: 1, "all": 2}


class GetStatus(enum.IntEnum):
    """Outcome of a requested chunk. All except HIT are misses."""

    UNFINISHED = 0
    HIT = 1
    MISS = 2
    CORRUPT = 3
    BUSY = 4
    TOO_SMALL = 5


class PutStatus(enum.IntEnum):
    """Outcome of a chunk that was put. PRESENT is as good as STORED."""

    UNFINISHED = 0
    STORED = 1
    PRESENT = 2
    REJECTED = 3


class Result:
    """`error` says why the call broke off, or is None. Chunks without an outcome are misses."""

    def __init__(self, error=None):
        self.error: Optional[errors.KvkeepError] = error

    def raise_for_error(self):
        if self.error is not None:
            raise self.error
        return self


class Found(Result):
    """A lookup's answer.

    leading_keys: keys from the head of the prefix with all of their parts.
    leased_keys: how many of them the lease covers; fewer if the promise did not fit.
    promotion_us: estimated time until the leading keys are all readable in DRAM; 0: they are.
    remote_keys: with remote_wait, keys after the leading ones that are on their way from beyond the
        node. They are leased too; a chunk that does not come is a miss.
    remote_us: estimated time until they are in DRAM. remote_asked: whether there was a search.
    presence: a byte for each chunk (key * parts + part): IN_G2 | IN_G3 | COMING, 0 is a miss.
    parts: the parts of each key that were asked for.
    leased: for each chunk, whether it is present and the lease covers it.
    lease: to be released (it is a context manager), or None.
    """

    IN_G2, IN_G3, COMING = 1, 2, 4

    def __init__(self, error, reply, presence, parts, lease):
        super().__init__(error)
        self.leading_keys = reply.leading_keys
        self.leased_keys = reply.leased_keys
        self.leased_bytes = reply.leased_bytes
        self.promotion_us = reply.promotion_us
        self.remote_keys, self.remote_us = reply.remote_keys, reply.remote_us
        self.remote_asked = bool(reply.remote_asked)
        self.presence, self.parts = presence, parts
        covered = reply.leased_keys * parts if lease is not None else 0
        self.leased = [there != 0 and at < covered for at, there in enumerate(presence)]
        self.lease: Optional[Lease] = lease


class Got(Result):
    """A get's answer, for each chunk: `statuses`, `nbytes` delivered, `payload_bytes`, `metadata`
    if asked for. Lists are made on demand, as a get may have thousands of chunks."""

    def __init__(self, error, outcomes, metadata):
        super().__init__(error)
        self._outcomes, self.metadata = outcomes, metadata

    @functools.cached_property
    def statuses(self):
        return [GetStatus(outcome.status) for outcome in self._outcomes]

    @functools.cached_property
    def nbytes(self):
        return [outcome.bytes for outcome in self._outcomes]

    @functools.cached_property
    def payload_bytes(self):
        return [outcome.payload_bytes for outcome in self._outcomes]

    @property
    def hits(self):
        """Returns how many chunks were delivered."""
        return self.good.count(True)

    @property
    def good(self):
        """Returns whether each chunk was delivered."""
        hit = int(GetStatus.HIT)
        return [outcome.status == hit for outcome in self._outcomes]


class Stored(Result):
    """A put's answer: each chunk's `statuses`, and `why` the first rejected chunk was rejected."""

    def __init__(self, error, outcomes, why):
        super().__init__(error)
        self.statuses = [PutStatus(outcome) for outcome in outcomes]
        self.why = why

    @property
    def stored(self):
        """Returns how many chunks are stored now."""
        return sum(self.good)

    @property
    def good(self):
        """Returns whether each chunk is stored now."""
        return [status in (PutStatus.STORED, PutStatus.PRESENT) for status in self.statuses]


class Counted(Result):
    """The number of chunks that were touched or deleted."""

    def __init__(self, error, reply):
        super().__init__(error)
        self.chunks = reply.chunks


class Prefetched(Result):
    """The number of chunks being read from NVMe now, and of those already in DRAM."""

    def __init__(self, error, reply):
        super().__init__(error)
        self.started_chunks, self.ready_chunks = reply.started_chunks, reply.ready_chunks


class Chunk(NamedTuple):
    """One chunk to put: `payload` is a buffer, or a list of buffers that make one payload."""

    key: bytes
    payload: object
    part: int = 0
    parent: Optional[bytes] = None  # the key before this one in its prefix
    metadata: bytes = b""


class Call:
    """`structs` are the C function's arguments between the client and the error. A call about no
    chunk is `empty`: it finishes without being run."""

    def __init__(self, name, structs, kept, finish, empty=False):
        self.name = name
        self.empty = empty
        self.structs = structs
        self.kept = kept
        self._finish = finish

    def limit(self, timeout):
        """Changes the timeout of a call that has not run yet."""
        self.structs[0].deadline_ms = milliseconds(timeout)

    def finish(self, error, message):
        """Returns the result. Raises `error` if the caller made a mistake."""
        if error is not None and not errors.is_miss(error):
            raise error
        return self._finish(error, message)


def milliseconds(timeout):
    """Returns the timeout in milliseconds; 0, the client's default, for None."""
    return 0 if timeout is None else max(1, int(min(timeout * 1000, _LONGEST_MS)))


def _keys_struct(ns, keys, parts):
    packed = key_arrays.pack(keys)
    numbers = None if parts is None else (ctypes.c_uint32 * len(parts))(*parts)
    count = len(keys) * (ns.parts if parts is None else len(parts))
    struct = _abi.Keys(ns.handle, packed, len(keys), 0 if parts is None else len(parts), numbers)
    return struct, count, (packed, numbers, ns)


class MetadataRooms:
    """Memory for a get's metadata, `wanted` bytes a chunk at most. `buffers` is None if none is
    wanted."""

    def __init__(self, count, wanted):
        self._texts, self.buffers = None, None
        if wanted:
            self._texts = [ctypes.create_string_buffer(_abi.MAX_METADATA_BYTES)
                           for _ in range(count)]
            self.buffers = (_abi.Buffer * count)(
                *((ctypes.addressof(text), len(text)) for text in self._texts))

    def said(self, outcomes):
        """Returns each chunk's metadata (b"" unless it is a HIT), or None if none was wanted."""
        if self._texts is None:
            return None
        return [text.raw[:outcome.metadata_bytes] if outcome.status == GetStatus.HIT else b""
                for text, outcome in zip(self._texts, outcomes)]


def put_flags(durable, transient, no_g3, checksum=False):
    """Returns the bits of the C ABI."""
    return sum(bit for bit, on in ((1, durable), (2, transient), (4, no_g3), (8, checksum)) if on)


def _microseconds(seconds):
    """Returns microseconds, rounded up so that a small time does not become 0."""
    return min(max(math.ceil(seconds * 1e6), 0), 2**32 - 1)


def lookup(ns, keys, *, parts=None, lease=None, transient=False, remote_wait=0,
           recompute_per_key=0, timeout=None):
    struct, count, kept = _keys_struct(ns, keys, parts)
    presence, reply = (ctypes.c_uint8 * max(count, 1))(), _abi.make(_abi.LookupReply)
    request = _abi.make(
        _abi.LookupRequest, deadline_ms=milliseconds(timeout), keys=struct,
        lease_mode=_LEASE_MODES[lease], transient=int(transient), presence=presence,
        presence_bytes=len(presence), remote_wait_us=_microseconds(remote_wait),
        recompute_us_per_key=_microseconds(recompute_per_key))

    def finish(error, _):
        held = Lease(ns.client, reply.lease) if reply.lease else None
        return Found(error, reply, bytes(presence)[:count], count // max(len(keys), 1), held)

    return Call("lookup", [request, reply], kept, finish, empty=count == 0)


def get(ns, keys, into, *, parts=None, lease=None, first_key=0, first_piece=0, pieces=0,
        transient=False, verify=True, metadata=False, remote_wait=1, timeout=None):
    struct, count, kept = _keys_struct(ns, keys, parts)
    if len(into) != count:
        raise ValueError(f"{count} chunks are asked for (keys x parts), into {len(into)} buffers")
    destinations, located, counts = memory.runs_of_each(into)
    outcomes = (_abi.GetOutcome * count)()
    rooms = MetadataRooms(count, metadata)
    held = lease.kept if lease is not None else None
    request = _abi.make(
        _abi.GetRequest, deadline_ms=milliseconds(timeout), keys=struct,
        lease=held.handle if held is not None else None, first_key=first_key,
        flags=(1 if transient else 0) | (0 if verify else 2) | (0 if remote_wait > 0 else 4),
        first_piece=first_piece, pieces=pieces, destinations=destinations, outcomes=outcomes,
        metadata=rooms.buffers, chunk_count=count, run_counts=counts,
        remote_wait_us=_microseconds(remote_wait))

    def finish(error, _):
        return Got(error, outcomes, rooms.said(outcomes))

    return Call("get", [request], (kept, located, counts, held, rooms), finish, empty=count == 0)


def fill_put_chunk(struct, chunk):
    """Fills everything except the runs, for host or GPU memory. Returns what to keep until the put
    ends."""
    struct.key = key_arrays.pack([chunk.key])[0]
    if chunk.parent is not None:
        struct.parent_key, struct.has_parent = key_arrays.pack([chunk.parent])[0], 1
    struct.part = chunk.part
    if not chunk.metadata:
        return None
    struct.metadata, struct.metadata_bytes, locked = memory.locate(chunk.metadata)
    return locked


def put(ns, chunks, *, durable=False, transient=False, no_g3=False, checksum=False,
        timeout=None):
    chunks = [chunk if isinstance(chunk, Chunk) else Chunk(*chunk) for chunk in chunks]
    structs, kept = (_abi.PutChunk * len(chunks))(), [ns]
    for at, chunk in zip(structs, chunks):
        array, located = memory.runs(chunk.payload)
        at.runs, at.run_count = array, len(array)
        kept.append((array, located, fill_put_chunk(at, chunk)))
    outcomes = (ctypes.c_uint32 * len(chunks))()
    request = _abi.make(
        _abi.PutRequest, deadline_ms=milliseconds(timeout), ns=ns.handle, chunks=structs,
        chunk_count=len(chunks), flags=put_flags(durable, transient, no_g3, checksum),
        outcomes=outcomes)
    return Call("put", [request], (structs, kept),
                lambda error, message: Stored(error, outcomes, message), empty=not chunks)


def _of_keys(name, reply, result):
    def make(ns, keys, *, parts=None, timeout=None):
        struct, count, kept = _keys_struct(ns, keys, parts)
        request = _abi.make(_abi.KeysRequest, deadline_ms=milliseconds(timeout), keys=struct)
        answer = _abi.make(reply)
        return Call(name, [request, answer], kept, lambda error, _: result(error, answer),
                    empty=count == 0)

    return make


touch = _of_keys("touch", _abi.CountReply, Counted)
delete = _of_keys("delete", _abi.CountReply, Counted)
prefetch = _of_keys("prefetch", _abi.PrefetchReply, Prefetched)


def acquire(ns, keys, *, parts=None, all_present=False, transient=False, timeout=None):
    struct, count, kept = _keys_struct(ns, keys, parts)
    flags = (1 if all_present else 0) | (2 if transient else 0)
    request = _abi.make(_abi.AcquireRequest, deadline_ms=milliseconds(timeout), keys=struct,
                        flags=flags)
    reply = _abi.make(_abi.AcquireReply)
    return Call("acquire", [request, reply], kept,
                lambda error, _: Acquired(error, ns.client, reply), empty=count == 0)
