"""Calls: a request, the memory it names, and the meaning of its end, for blocking and asyncio.

A call is made, run once, and finished with the code it ended with. Its keys, buffers and reply live
as long as the call object does: the runner holds it until it is over.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import math
from typing import (TYPE_CHECKING, Any, Callable, Dict, Generic, Iterable, List, Literal,
                    NamedTuple, Optional, Protocol, Sequence, Tuple, Type, TypeVar, Union)

from kvkeep import _abi, errors, keys as key_arrays, memory
from kvkeep.lease import Acquired, Lease

if TYPE_CHECKING:
    from kvkeep.client import Namespace
    from kvkeep.gpu import GpuChunk

_LONGEST_MS = 2 ** 32 - 1  # 49 days
LeaseMode = Union[None, bool, Literal["leading", "all"]]
_LEASE_MODES: Dict[LeaseMode, int] = {None: 0, False: 0, "leading": 1, True: 1, "all": 2}
_Error = Optional[errors.KvkeepError]
_Result = TypeVar("_Result", bound="Result")
_Answer = TypeVar("_Answer")


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

    def __init__(self, error: _Error = None) -> None:
        self.error: Optional[errors.KvkeepError] = error

    def raise_for_error(self: _Result) -> _Result:
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

    def __init__(self, error: _Error, reply: ctypes.Structure, presence: bytes, parts: int,
                 lease: Optional[Lease]) -> None:
        super().__init__(error)
        self.leading_keys: int = reply.leading_keys
        self.leased_keys: int = reply.leased_keys
        self.leased_bytes: int = reply.leased_bytes
        self.promotion_us: int = reply.promotion_us
        self.remote_keys: int = reply.remote_keys
        self.remote_us: int = reply.remote_us
        self.remote_asked = bool(reply.remote_asked)
        self.presence, self.parts = presence, parts
        covered = reply.leased_keys * parts if lease is not None else 0
        self.leased = [there != 0 and at < covered for at, there in enumerate(presence)]
        self.lease = lease


class Got(Result):
    """A get's answer, for each chunk: `statuses`, `nbytes` delivered, `payload_bytes`, `metadata`
    if asked for. Lists are made on demand, as a get may have thousands of chunks."""

    def __init__(self, error: _Error, outcomes: ctypes.Array[ctypes.Structure],
                 metadata: Optional[List[bytes]]) -> None:
        super().__init__(error)
        self._outcomes, self.metadata = outcomes, metadata

    @functools.cached_property
    def statuses(self) -> List[GetStatus]:
        return [GetStatus(outcome.status) for outcome in self._outcomes]

    @functools.cached_property
    def nbytes(self) -> List[int]:
        return [outcome.bytes for outcome in self._outcomes]

    @functools.cached_property
    def payload_bytes(self) -> List[int]:
        return [outcome.payload_bytes for outcome in self._outcomes]

    @property
    def hits(self) -> int:
        """Returns how many chunks were delivered."""
        return self.good.count(True)

    @property
    def good(self) -> List[bool]:
        """Returns whether each chunk was delivered."""
        hit = int(GetStatus.HIT)
        return [outcome.status == hit for outcome in self._outcomes]


class Stored(Result):
    """A put's answer: each chunk's `statuses`, and `why` the first rejected chunk was rejected."""

    def __init__(self, error: _Error, outcomes: Iterable[int], why: str) -> None:
        super().__init__(error)
        self.statuses = [PutStatus(outcome) for outcome in outcomes]
        self.why = why

    @property
    def stored(self) -> int:
        """Returns how many chunks are stored now."""
        return sum(self.good)

    @property
    def good(self) -> List[bool]:
        """Returns whether each chunk is stored now."""
        return [status in (PutStatus.STORED, PutStatus.PRESENT) for status in self.statuses]


class Counted(Result):
    """The number of chunks that were touched or deleted."""

    def __init__(self, error: _Error, reply: ctypes.Structure) -> None:
        super().__init__(error)
        self.chunks: int = reply.chunks


class Prefetched(Result):
    """The number of chunks being read from NVMe now, and of those already in DRAM."""

    def __init__(self, error: _Error, reply: ctypes.Structure) -> None:
        super().__init__(error)
        self.started_chunks: int = reply.started_chunks
        self.ready_chunks: int = reply.ready_chunks


class Chunk(NamedTuple):
    """One chunk to put: `payload` is a buffer, or a list of buffers that make one payload."""

    key: bytes
    payload: memory.Payload
    part: int = 0
    parent: Optional[bytes] = None  # the key before this one in its prefix
    metadata: bytes = b""


class Call(Generic[_Answer]):
    """`structs` are the C function's arguments between the client and the error. A call about no
    chunk is `empty`: it finishes without being run."""

    def __init__(self, name: str, structs: List[ctypes.Structure], kept: object,
                 finish: Callable[[_Error, str], _Answer], empty: bool = False) -> None:
        self.name = name
        self.empty = empty
        self.structs = structs
        self.kept = kept
        self._finish = finish

    def limit(self, timeout: Optional[float]) -> None:
        """Changes the timeout of a call that has not run yet."""
        self.structs[0].deadline_ms = milliseconds(timeout)

    def finish(self, error: _Error, message: str) -> _Answer:
        """Returns the result. Raises `error` if the caller made a mistake."""
        if error is not None and not errors.is_miss(error):
            raise error
        return self._finish(error, message)


def milliseconds(timeout: Optional[float]) -> int:
    """Returns the timeout in milliseconds; 0, the client's default, for None."""
    return 0 if timeout is None else max(1, int(min(timeout * 1000, _LONGEST_MS)))


def _keys_struct(ns: Namespace, keys: Sequence[bytes],
                 parts: Optional[Sequence[int]]) -> Tuple[ctypes.Structure, int, object]:
    packed = key_arrays.pack(keys)
    numbers = None if parts is None else (ctypes.c_uint32 * len(parts))(*parts)
    count = len(keys) * (ns.parts if parts is None else len(parts))
    struct = _abi.Keys(ns.handle, packed, len(keys), 0 if parts is None else len(parts), numbers)
    return struct, count, (packed, numbers, ns)


class MetadataRooms:
    """Memory for a get's metadata, `wanted` bytes a chunk at most. `buffers` is None if none is
    wanted."""

    def __init__(self, count: int, wanted: bool) -> None:
        self._texts: Optional[List[ctypes.Array[ctypes.c_char]]] = None
        self.buffers: Optional[ctypes.Array[ctypes.Structure]] = None
        if wanted:
            self._texts = [ctypes.create_string_buffer(_abi.MAX_METADATA_BYTES)
                           for _ in range(count)]
            self.buffers = _abi.array(
                _abi.Buffer, [(ctypes.addressof(text), len(text)) for text in self._texts])

    def said(self, outcomes: ctypes.Array[ctypes.Structure]) -> Optional[List[bytes]]:
        """Returns each chunk's metadata (b"" unless it is a HIT), or None if none was wanted."""
        if self._texts is None:
            return None
        return [text.raw[:outcome.metadata_bytes] if outcome.status == GetStatus.HIT else b""
                for text, outcome in zip(self._texts, outcomes)]


def put_flags(durable: bool, transient: bool, no_g3: bool, checksum: bool = False) -> int:
    """Returns the bits of the C ABI."""
    return sum(bit for bit, on in ((1, durable), (2, transient), (4, no_g3), (8, checksum)) if on)


def _microseconds(seconds: float) -> int:
    """Returns microseconds, rounded up so that a small time does not become 0."""
    return min(max(math.ceil(seconds * 1e6), 0), 2**32 - 1)


def lookup(ns: Namespace, keys: Sequence[bytes], *, parts: Optional[Sequence[int]] = None,
           lease: LeaseMode = None, transient: bool = False, remote_wait: float = 0,
           recompute_per_key: float = 0, timeout: Optional[float] = None) -> Call[Found]:
    struct, count, kept = _keys_struct(ns, keys, parts)
    presence, reply = (ctypes.c_uint8 * max(count, 1))(), _abi.make(_abi.LookupReply)
    request = _abi.make(
        _abi.LookupRequest, deadline_ms=milliseconds(timeout), keys=struct,
        lease_mode=_LEASE_MODES[lease], transient=int(transient), presence=presence,
        presence_bytes=len(presence), remote_wait_us=_microseconds(remote_wait),
        recompute_us_per_key=_microseconds(recompute_per_key))

    def finish(error: _Error, _: str) -> Found:
        held = Lease(ns.client, reply.lease) if reply.lease else None
        return Found(error, reply, bytes(presence)[:count], count // max(len(keys), 1), held)

    return Call("lookup", [request, reply], kept, finish, empty=count == 0)


def get(ns: Namespace, keys: Sequence[bytes],
        into: Union[memory.Located, Sequence[memory.Payload]], *,
        parts: Optional[Sequence[int]] = None, lease: Optional[Lease] = None, first_key: int = 0,
        first_piece: int = 0, pieces: int = 0, transient: bool = False, verify: bool = True,
        metadata: bool = False, remote_wait: float = 1,
        timeout: Optional[float] = None) -> Call[Got]:
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

    def finish(error: _Error, _: str) -> Got:
        return Got(error, outcomes, rooms.said(outcomes))

    return Call("get", [request], (kept, located, counts, held, rooms), finish, empty=count == 0)


def fill_put_chunk(struct: ctypes.Structure, chunk: Union[Chunk, GpuChunk]) -> object:
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


def put(ns: Namespace, chunks: Iterable[Union[Chunk, Tuple[bytes, memory.Payload]]], *,
        durable: bool = False, transient: bool = False, no_g3: bool = False,
        checksum: bool = False, timeout: Optional[float] = None) -> Call[Stored]:
    listed = [chunk if isinstance(chunk, Chunk) else Chunk(*chunk) for chunk in chunks]
    structs = (_abi.PutChunk * len(listed))()
    kept: List[object] = [ns]
    for at, chunk in zip(structs, listed):
        array, located = memory.runs(chunk.payload)
        at.runs, at.run_count = array, len(array)
        kept.append((array, located, fill_put_chunk(at, chunk)))
    outcomes = (ctypes.c_uint32 * len(listed))()
    request = _abi.make(
        _abi.PutRequest, deadline_ms=milliseconds(timeout), ns=ns.handle, chunks=structs,
        chunk_count=len(listed), flags=put_flags(durable, transient, no_g3, checksum),
        outcomes=outcomes)
    return Call("put", [request], (structs, kept),
                lambda error, message: Stored(error, outcomes, message), empty=not listed)


class _OfKeys(Protocol[_Answer]):
    def __call__(self, ns: Namespace, keys: Sequence[bytes], *,
                 parts: Optional[Sequence[int]] = None,
                 timeout: Optional[float] = None) -> Call[_Answer]: ...


def _of_keys(name: str, reply: Type[ctypes.Structure],
             result: Callable[[_Error, ctypes.Structure], _Answer]) -> _OfKeys[_Answer]:
    def make(ns: Namespace, keys: Sequence[bytes], *, parts: Optional[Sequence[int]] = None,
             timeout: Optional[float] = None) -> Call[_Answer]:
        struct, count, kept = _keys_struct(ns, keys, parts)
        request = _abi.make(_abi.KeysRequest, deadline_ms=milliseconds(timeout), keys=struct)
        answer = _abi.make(reply)
        return Call(name, [request, answer], kept, lambda error, _: result(error, answer),
                    empty=count == 0)

    return make


touch = _of_keys("touch", _abi.CountReply, Counted)
delete = _of_keys("delete", _abi.CountReply, Counted)
prefetch = _of_keys("prefetch", _abi.PrefetchReply, Prefetched)


def acquire(ns: Namespace, keys: Sequence[bytes], *, parts: Optional[Sequence[int]] = None,
            all_present: bool = False, transient: bool = False,
            timeout: Optional[float] = None) -> Call[Acquired]:
    struct, count, kept = _keys_struct(ns, keys, parts)
    flags = (1 if all_present else 0) | (2 if transient else 0)
    request = _abi.make(_abi.AcquireRequest, deadline_ms=milliseconds(timeout), keys=struct,
                        flags=flags)
    reply = _abi.make(_abi.AcquireReply)
    return Call("acquire", [request, reply], kept,
                lambda error, _: Acquired(error, ns.client, reply), empty=count == 0)
