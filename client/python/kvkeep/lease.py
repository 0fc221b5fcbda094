"""Leases: the daemon's promise that chunks stay readable; and chunks read in place.

Both are context managers. A forgotten one is given back when it is collected, or when the client is
closed. One thread at a time may use one.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, List, Optional, Tuple

from kvkeep import _abi, errors, memory
from kvkeep.handle import Handle

if TYPE_CHECKING:
    from kvkeep.client import Client


class Lease(Handle):
    """A lease on the keys of a lookup."""

    def __init__(self, client: Client, handle: int) -> None:
        super().__init__(client, handle, client.library.kvkeep_lease_release)

    @property
    def alive(self) -> bool:
        """Returns False if it was released or its session is over, so that its chunks may be
        gone."""
        kept = self.kept
        return kept.handle is not None and bool(
            self._client.library.kvkeep_lease_alive(kept.handle))

    def shrink(self, keep_keys: int) -> None:
        """Keeps the chunks of the first keys, and gives the others back."""
        kept = self.kept
        self._client.library.kvkeep_lease_shrink(kept.handle, keep_keys)


def _show(buffer: ctypes.Structure) -> memoryview:
    """Returns the memory itself, read-only, without a copy."""
    array = (ctypes.c_ubyte * buffer.bytes).from_address(buffer.data or 0)
    return memoryview(array).cast("B").toreadonly()


class AcquiredChunk:
    """One chunk in the daemon's memory. `index` is its number among the acquired chunks."""

    def __init__(self, owner: Acquired, index: int, view: ctypes.Structure) -> None:
        self._owner, self.index = owner, index
        self.chunk: int = view.chunk  # key * parts + part, within the request
        self.nbytes: int = view.payload_bytes
        self.runs: Tuple[memoryview, ...] = tuple(
            _show(view.runs[i]) for i in range(view.run_count))
        self._metadata = [(view.metadata[i].data, view.metadata[i].bytes)
                          for i in range(view.metadata_run_count)]

    @property
    def view(self) -> memoryview:
        """Returns the payload in one piece. Raises ValueError if it lies in several `runs`, which
        is rare."""
        if len(self.runs) != 1:
            raise ValueError(f"this chunk lies in {len(self.runs)} runs: use runs, or copy_into")
        return self.runs[0]

    @property
    def metadata(self) -> bytes:
        """Returns a copy. Read it once the whole chunk is there."""
        return b"".join(ctypes.string_at(data, nbytes) for data, nbytes in self._metadata)

    @property
    def ready_pieces(self) -> int:
        """Returns how many leading pieces of 1 MiB can be read now. Makes no call."""
        kept = self._owner.kept
        return int(self._owner.library.kvkeep_acquired_ready(kept.handle, self.index))

    def wait(self, pieces: Optional[int] = None, timeout: float = 5.0) -> None:
        """Waits until so many pieces, or all, are there. DATA_LOSS: the chunk is damaged and a
        miss."""
        self._owner.must("wait", self.index, 0xFFFFFFFF if pieces is None else pieces,
                         int(timeout * 1000))

    def copy_into(self, buffers: memory.Payload, offset: int = 0, timeout: float = 5.0) -> None:
        """Copies the payload from `offset` on, each piece as soon as it is there. Copied bytes are
        good without a call of `valid`. After an exception the buffers may hold anything."""
        array, kept = memory.runs(buffers, writable=True)
        request = _abi.make(_abi.CopyRequest, index=self.index, offset=offset, to=array,
                            to_count=len(array), timeout_ms=int(timeout * 1000))
        self._owner.must("copy", ctypes.byref(request))
        del kept

    def _forget(self) -> None:
        for run in self.runs:
            run.release()


class Acquired(Handle):
    """Leased chunks that can be read in place, and a lookup's answer.

    Views end with the release: reading one later is a ValueError. An array made of one (numpy's or
    torch's frombuffer) makes the release a BufferError, so drop it first.
    """

    def __init__(self, error: Optional[errors.KvkeepError], client: Client,
                 reply: ctypes.Structure) -> None:
        self.library = client.library
        self.error = error
        self.leading_keys: int = reply.leading_keys
        self.leased_keys: int = reply.leased_keys
        self.chunks: List[AcquiredChunk] = []
        super().__init__(client, reply.acquired, self.library.kvkeep_acquired_release)
        if reply.acquired:
            views = self.library.kvkeep_acquired_chunks(reply.acquired)
            self.chunks = [AcquiredChunk(self, i, views[i]) for i in range(reply.chunk_count)]

    @property
    def valid(self) -> bool:
        """Returns whether the bytes read so far are good. Call it after reading, before use. False
        once the daemon is gone, or revoked the lease because this process was stopped for long."""
        kept = self.kept
        return kept.handle is not None and bool(self.library.kvkeep_acquired_valid(kept.handle))

    def release(self) -> None:
        for chunk in self.chunks:
            chunk._forget()  # pylint: disable=protected-access
        super().release()

    def must(self, function: str, *arguments: Any) -> None:
        """Calls kvkeep_acquired_`function`. Raises an exception unless it is OK."""
        kept = self.kept
        if kept.handle is None:
            raise errors.make("FAILED_PRECONDITION", "this was released already")
        error = _abi.Error()
        call = getattr(self.library, "kvkeep_acquired_" + function)
        if call(kept.handle, *arguments, ctypes.byref(error)) != 0:
            raise self._client.exception(error)
