"""GPU memory: the daemon copies chunks from and to an engine's paged KV memory, on its own host.

    region = kvkeep.GpuRegion(client, kv)                  # once: a CUDA tensor
    ns.gpu_put([kvkeep.GpuChunk(key, planner.plan(table, first_token, tokens))])
    got = ns.gpu_get([kvkeep.GpuChunk(key, planner.plan(other_table, first_token, tokens))])

`planner`: kvkeep.KvPlanner. The bytes never pass this process.

Order: synchronise the stream that wrote a put's source, or last used a get's target, before the
call. Leave those bytes alone until the call is over. If its `error` is not None, leave them alone
until `in_use` is false for all regions that it named, or for its GpuUse; bytes of a put in `reused`
regions until its deadline. A get that is no HIT may leave anything in its runs. A call keeps the
regions that it names, and so their memory, until it is over.

Without a GPU path (no driver, no local path, a GPU whose memory cannot be exported, a daemon that
has it off) a `KvkeepError` says why, at once or from any later call: the calls of `kvkeep.calls`
serve the same chunks. A failure of a healthy path, as when the daemon is away, is a miss as always.
"""

from __future__ import annotations

import collections.abc
import ctypes
import sys
from typing import (TYPE_CHECKING, Any, Callable, FrozenSet, Iterable, Iterator, List, NamedTuple,
                    Optional, Protocol, Tuple, TypeVar, Union, cast, overload)

from kvkeep import _abi, calls, errors, keys as key_arrays, parked
from kvkeep.handle import Handle, Kept
from kvkeep.lease import Lease
from kvkeep.memory import Memory, Pointer, Tensor, locate

if TYPE_CHECKING:
    from kvkeep.client import Client, Namespace

_Region = TypeVar("_Region", bound="GpuRegion")


class GpuTensor(Tensor, Protocol):
    """A tensor in a GPU's memory: `device.type` is "cuda"."""

    @property
    def device(self) -> Any: ...


class GpuRun(NamedTuple):
    """`nbytes` at `offset` of the registered memory numbered `region`. In a get, region 0 skips
    bytes of the payload."""

    region: int
    offset: int
    nbytes: int


class GpuRuns(collections.abc.Sequence[GpuRun]):
    """The runs of one payload in the form of the C ABI, which planners return."""

    def __init__(self, runs: Iterable[GpuRun]) -> None:
        runs = list(runs)
        self.array = _abi.array(_abi.GpuRun, runs)
        # At least the regions that the runs name.
        self.regions: FrozenSet[int] = frozenset(run[0] for run in runs)

    @classmethod
    def of(cls, runs: Iterable[GpuRun]) -> GpuRuns:
        return runs if isinstance(runs, cls) else cls(runs)

    @classmethod
    def adopt(cls, array: ctypes.Array[ctypes.Structure], count: int,
              regions: FrozenSet[int]) -> GpuRuns:
        """Returns the first runs of an array that is not written any more, with these regions."""
        made = cls(())
        made.array, made.regions = (_abi.GpuRun * count).from_buffer(array), regions
        return made

    def within(self, before: int, after: int) -> GpuRuns:
        """Returns runs for a get of a chunk that has this many more bytes before and after, to be
        skipped."""
        if not before and not after:
            return self
        array = (_abi.GpuRun * (len(self) + 2))()
        array[0] = _abi.GpuRun(0, 0, before)
        array[len(self) + 1] = _abi.GpuRun(0, 0, after)
        first = ctypes.sizeof(_abi.GpuRun)
        ctypes.memmove(ctypes.addressof(array) + first, self.array, len(self) * first)
        begin, end = 0 if before else 1, len(array) - (0 if after else 1)
        return GpuRuns.adopt((_abi.GpuRun * (end - begin)).from_buffer(array, begin * first),
                             end - begin, self.regions)

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, at: int) -> GpuRun: ...

    @overload
    def __getitem__(self, at: slice) -> List[GpuRun]: ...

    def __getitem__(self, at: Union[int, slice]) -> Union[GpuRun, List[GpuRun]]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        run = self.array[at]
        return GpuRun(run.region, run.offset, run.bytes)

    @property
    def nbytes(self) -> int:
        """Returns the payload's size in bytes."""
        return sum(run.bytes for run in self.array)


Runs = Union[GpuRun, Iterable[GpuRun]]


class GpuChunk(NamedTuple):
    """One chunk. `runs` is one GpuRun, or several that make one payload; all runs of a call are on
    one GPU. `parent` and `metadata` are for puts."""

    key: bytes
    runs: Runs
    part: int = 0
    parent: Optional[bytes] = None  # the previous key of its prefix
    metadata: bytes = b""


_Left = Tuple["Client", int, Any]


def _is_over(left: _Left) -> bool:
    """Ends the handle of a region that the daemon has certainly closed. Otherwise asks the daemon
    to close it, without waiting."""
    client, handle, _ = left
    error = _abi.Error()
    if not client.is_ours() or client.library.kvkeep_gpu_unregister(
            handle, 0, ctypes.byref(error)) != 0:
        return False
    client.library.kvkeep_gpu_region_free(handle)
    return True


# (client, handle, memory) of regions that were dropped while the daemon may have them open.
_left = parked.Parked(_is_over)


class _Registered:
    """A region's handle and memory, shared by the region, its calls and users of the handle. The
    last one releases it."""

    def __init__(self, client: Client, handle: int, memory: Any) -> None:
        self._client, self.handle, self._memory = client, handle, memory

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if finalizing():
            return  # the process ends, and with it its session
        left = (self._client, self.handle, self._memory)
        if not _is_over(left):
            _left.park(left)


class GpuRegion:
    """GPU memory of this process, registered with the daemon over reconnects. Thread-safe.

    memory: a CUDA tensor, or a `Pointer` to the driver's memory. It lies within one allocation of
    at least 2 MiB, all of which the daemon sees, and is kept alive until close. A context of its
    device must be current on this thread, as it is once torch has used that device.
    driver: another name of libcuda.so.1.
    reused: the source of a put may be written again once its call and its deadline are over, even
    if the daemon did not answer; puts fail if the daemon could still store the new bytes.

    Close it before the memory is freed, and before the client, as a context manager does. A region
    that is dropped is given back in the background: a thread of this module keeps its memory until
    the daemon has closed it, or the daemon's process has ended.
    """

    def __init__(self, client: Client, memory: Union[Pointer, GpuTensor], *,
                 driver: Optional[str] = None, reused: bool = False,
                 timeout: Optional[float] = None) -> None:
        self.address, self.nbytes = _locate(memory)
        self._client, self._library = client, client.library
        _left.watch()
        request = _abi.make(
            _abi.GpuRange, deadline_ms=calls.milliseconds(timeout), address=self.address,
            bytes=self.nbytes, driver=driver.encode() if driver is not None else None,
            flags=1 if reused else 0)
        handle, error = ctypes.c_void_p(), _abi.Error()
        with client.in_use() as owner:
            code = self._library.kvkeep_gpu_register(owner, ctypes.byref(request),
                                                     ctypes.byref(handle), ctypes.byref(error))
        if code != 0:
            raise client.exception(error)
        registered = _Registered(client, cast(int, handle.value), memory)
        self._registered: Optional[_Registered] = registered
        client.gpu_regions[self.id] = registered

    @property
    def id(self) -> int:
        """Returns the number by which runs name the region, or 0 once it is closed."""
        return int(self._ask(self._library.kvkeep_gpu_region_id))

    @property
    def in_use(self) -> bool:
        """Returns whether the daemon may still read or write the memory for an unanswered call."""
        return bool(self._ask(self._library.kvkeep_gpu_region_in_use))

    @property
    def why_not(self) -> Optional[errors.KvkeepError]:
        """Returns why it cannot be used, or None if the next call finds or makes the
        registration."""
        error = _abi.Error()
        if self._ask(self._library.kvkeep_gpu_region_usable, ctypes.byref(error)) == 0:
            return None
        return self._client.exception(error)

    def _ask(self, function: Callable[..., Any], *more: Any) -> Any:
        registered = self._registered  # another thread may close it while it is used
        return function(registered.handle if registered is not None else None, *more)

    def run(self, offset: int = 0, nbytes: Optional[int] = None) -> GpuRun:
        """Returns a run of the region, up to its end without `nbytes`."""
        return GpuRun(self.id, offset, self.nbytes - offset if nbytes is None else nbytes)

    def run_of(self, part: Union[Pointer, GpuTensor]) -> GpuRun:
        """Returns the run of a tensor or `Pointer` within the region. Raises ValueError if it lies
        elsewhere."""
        address, nbytes = _locate(part)
        offset = address - self.address
        if not 0 <= offset <= self.nbytes - nbytes:
            raise ValueError(f"{nbytes} bytes at {address:#x} are not within the {self.nbytes} at "
                             f"{self.address:#x} that are registered")
        return GpuRun(self.id, offset, nbytes)

    def close(self, timeout: float = 5.0) -> None:
        """Waits until the daemon has closed the region. Then the memory may be freed.

        Raises if that is not certain, and keeps the memory, though not for calls:
        FAILED_PRECONDITION, it is in use; DEADLINE_EXCEEDED, the daemon has not answered;
        UNAVAILABLE, the daemon's process may still have it open. Try again, or drop the region.
        Idempotent."""
        registered = self._registered
        if registered is None or not self._client.is_ours():
            return
        error = _abi.Error()
        if self._library.kvkeep_gpu_unregister(
                registered.handle, calls.milliseconds(timeout), ctypes.byref(error)) != 0:
            raise self._client.exception(error)
        self._registered = None

    def __enter__(self: _Region) -> _Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _locate(owner: Union[Pointer, GpuTensor]) -> Tuple[int, int]:
    if isinstance(owner, Pointer):
        return owner.address, owner.nbytes
    if not hasattr(owner, "data_ptr"):
        raise TypeError(f"GPU memory is a tensor or a Pointer, not {type(owner).__name__}")
    if not owner.is_contiguous():
        raise ValueError("a tensor must be contiguous")
    if owner.device.type != "cuda":
        raise ValueError(f"a tensor must be in a GPU's memory, not on {owner.device}")
    return owner.data_ptr(), owner.nbytes


class GpuUse(Handle):
    """Tells whether the daemon may still use memory of the calls given this that ended
    unanswered."""

    def __init__(self, client: Client) -> None:
        handle, error = ctypes.c_void_p(), _abi.Error()
        if client.library.kvkeep_gpu_use_create(ctypes.byref(handle), ctypes.byref(error)) != 0:
            raise client.exception(error)
        super().__init__(client, handle.value, client.library.kvkeep_gpu_use_free)

    @property
    def in_use(self) -> bool:
        """Returns False once the daemon has answered, or its process has ended."""
        kept = self.kept
        return bool(self._client.library.kvkeep_gpu_use_in_use(kept.handle))

    @property
    def is_awaited(self) -> bool:
        """Returns whether an answer may still come. False while in use means that the connection
        broke."""
        kept = self.kept
        return bool(self._client.library.kvkeep_gpu_use_is_awaited(kept.handle))


class GpuStats(NamedTuple):
    """Counts of the GPU path since the client was made."""

    registered: int        # at first
    registered_again: int  # in a new session
    refused: int           # registrations, first and repeated
    unanswered: int        # puts and gets that ended unanswered
    bytes_put: int
    bytes_got: int


def stats(client: Client) -> GpuStats:
    found, error = _abi.make(_abi.GpuStats), _abi.Error()
    with client.in_use() as owner:
        code = client.library.kvkeep_gpu_get_stats(owner, ctypes.byref(found), ctypes.byref(error))
    if code != 0:
        raise client.exception(error)
    return GpuStats(*(getattr(found, name) for name in GpuStats._fields))


# ---------------------------------------------------------------- calls, for Client.run and aio


def _chunks(chunks: Iterable[Union[GpuChunk, Tuple[bytes, Runs]]]) -> Iterator[GpuChunk]:
    for chunk in chunks:
        yield chunk if isinstance(chunk, GpuChunk) else GpuChunk(*chunk)


def _fill_runs(struct: ctypes.Structure, runs: Runs, client: Client) -> object:
    """Fills `struct`. Returns the runs and their regions, to be kept until the call is over."""
    runs = GpuRuns.of([runs] if isinstance(runs, GpuRun) else runs)
    struct.runs, struct.run_count = runs.array, len(runs)
    return runs, [client.gpu_regions.get(region) for region in runs.regions]


def _used(use: Optional[GpuUse]) -> Tuple[Optional[Kept], Optional[int]]:
    """Returns what to keep until the call is over, and the handle."""
    kept = use.kept if use is not None else None
    return kept, kept.handle if kept is not None else None


def gpu_put(ns: Namespace, chunks: Iterable[Union[GpuChunk, Tuple[bytes, Runs]]], *,
            durable: bool = False, transient: bool = False, no_g3: bool = False,
            use: Optional[GpuUse] = None,
            timeout: Optional[float] = None) -> calls.Call[calls.Stored]:
    listed = list(_chunks(chunks))
    using, use_handle = _used(use)
    structs = (_abi.GpuPutChunk * len(listed))()
    kept: List[object] = [ns, using]
    for at, chunk in zip(structs, listed):
        kept.append((_fill_runs(at, chunk.runs, ns.client), calls.fill_put_chunk(at, chunk)))
    outcomes = (ctypes.c_uint32 * len(listed))()
    request = _abi.make(
        _abi.GpuPutRequest, deadline_ms=calls.milliseconds(timeout), ns=ns.handle, chunks=structs,
        chunk_count=len(listed), flags=calls.put_flags(durable, transient, no_g3),
        outcomes=outcomes, use=use_handle)
    return calls.Call("gpu_put", [request], (structs, kept),
                      lambda error, message: calls.Stored(error, outcomes, message),
                      empty=not listed)


def gpu_get(ns: Namespace, chunks: Iterable[Union[GpuChunk, Tuple[bytes, Runs]]], *,
            lease: Optional[Lease] = None, transient: bool = False, metadata: bool = False,
            use: Optional[GpuUse] = None,
            timeout: Optional[float] = None) -> calls.Call[calls.Got]:
    listed = list(_chunks(chunks))
    held = lease.kept if lease is not None else None
    using, use_handle = _used(use)
    structs = (_abi.GpuGetChunk * len(listed))()
    kept: List[object] = [ns, held, using]
    for at, chunk in zip(structs, listed):
        at.key = key_arrays.pack([chunk.key])[0]
        at.part = chunk.part
        kept.append(_fill_runs(at, chunk.runs, ns.client))
    outcomes = (_abi.GetOutcome * len(listed))()
    rooms = calls.MetadataRooms(len(listed), metadata)
    request = _abi.make(
        _abi.GpuGetRequest, deadline_ms=calls.milliseconds(timeout), ns=ns.handle,
        lease=held.handle if held is not None else None, chunks=structs,
        chunk_count=len(listed), flags=1 if transient else 0, outcomes=outcomes,
        metadata=rooms.buffers, use=use_handle)
    return calls.Call("gpu_get", [request], (structs, kept, rooms),
                      lambda error, _: calls.Got(error, outcomes, rooms.said(outcomes)),
                      empty=not listed)


# ---------------------------------------------------------------- the worker copies


class PinStats(NamedTuple):
    """first_refusal: why the driver first refused a segment, or None."""

    finished: bool  # every segment was tried
    pinned_bytes: int
    refused_bytes: int
    first_refusal: Optional[errors.KvkeepError]


class PinnedArena(Handle):
    """The daemon's memory as this process maps it, registered with the GPU's driver in the
    background.

    Copies from runs of acquired chunks to the GPU then run at the speed of the bus; nothing else
    depends on it. End it, as a context manager does, when copies from it have ended. Thread-safe:
    calls made while it ends are answered before the end.
    """

    def __init__(self, client: Client, device: int = 0, *, driver: Optional[str] = None) -> None:
        self._library = client.library
        request = _abi.make(_abi.PinRequest, device=device,
                            driver=driver.encode() if driver is not None else None)
        handle, error = ctypes.c_void_p(), _abi.Error()
        with client.in_use() as owner:
            code = self._library.kvkeep_arena_pin(owner, ctypes.byref(request),
                                                  ctypes.byref(handle), ctypes.byref(error))
        if code != 0:
            raise client.exception(error)
        super().__init__(client, handle.value, self._library.kvkeep_pinned_arena_free)

    def wait(self, timeout: float = 60.0) -> None:
        """Waits until every segment was tried. Raises the first refusal."""
        kept, error = self.kept, _abi.Error()
        if self._library.kvkeep_pinned_arena_wait(kept.handle, calls.milliseconds(timeout),
                                                  ctypes.byref(error)) != 0:
            raise self._client.exception(error)

    @property
    def stats(self) -> PinStats:
        kept, found, error = self.kept, _abi.make(_abi.PinStats), _abi.Error()
        if self._library.kvkeep_pinned_arena_stats(kept.handle, ctypes.byref(found),
                                                   ctypes.byref(error)) != 0:
            raise self._client.exception(error)
        refusal = found.first_refusal
        return PinStats(bool(found.finished), found.pinned_bytes, found.refused_bytes,
                        self._client.exception(refusal) if refusal.code != 0 else None)

    def covers(self, run: Memory) -> bool:
        """Returns whether all of a run of an AcquiredChunk is registered now. This ends when the
        daemon comes back with another arena, or stays away for seconds: pin again then."""
        kept, (address, nbytes, _) = self.kept, locate(run)
        return bool(self._library.kvkeep_pinned_arena_covers(kept.handle, address, nbytes))
