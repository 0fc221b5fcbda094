"""Watch: reports which chunks of one namespace enter and leave the daemon's tiers.

    with kvkeep.Watch(ns) as watch:
        while (news := watch.next(timeout=5.0)) is not None:
            if news.begins != Begin.GOES_ON: known.clear()
            for event in news.events: apply(event, known)

A caller that applies the events in order knows, once the snapshot has ended, what a lookup would
find. No event is left out or repeated. After the daemon went away the watch reconnects.
"""

from __future__ import annotations

import ctypes
import enum
from typing import TYPE_CHECKING, List, NamedTuple, Optional, TypeVar

from kvkeep import _abi, calls, errors

if TYPE_CHECKING:
    from kvkeep.client import Namespace

_Watch = TypeVar("_Watch", bound="Watch")


class Begin(enum.IntEnum):
    """Any value but GOES_ON begins anew: forget everything; a snapshot begins, mixed with
    changes."""

    GOES_ON = 0
    FIRST = 1        # of this Watch
    RECONNECTED = 2  # to the same daemon
    NEW_DAEMON = 3   # it was restarted
    MISSED = 4       # the caller was too slow, or a device of G3 went away or came back


class WatchEvent(NamedTuple):
    """One chunk, one tier: 2 is DRAM, 3 NVMe."""

    key: bytes
    part: int
    tier: int
    stored: bool  # else it is gone


class News(NamedTuple):
    """snapshot_end: the snapshot is complete with these events. epoch: the daemon's incarnation."""

    begins: Begin
    snapshot_end: bool
    epoch: int
    events: List[WatchEvent]


class Watch:
    """ns: a Namespace, whose client must outlive this. Always uses gRPC, with a session of its own.
    One thread at a time calls next; another may call cancel."""

    def __init__(self, ns: Namespace) -> None:
        self._client, self._library = ns.client, ns.client.library
        self._handle: Optional[int] = None
        handle, error, options = ctypes.c_void_p(), _abi.Error(), ns.client.grpc_options()
        if self._library.kvkeep_watch_open(ctypes.byref(options), ctypes.byref(ns.spec),
                                           ctypes.byref(handle), ctypes.byref(error)) != 0:
            raise ns.client.exception(error)
        self._handle = handle.value

    def next(self, timeout: float = 5.0) -> Optional[News]:
        """Returns the next News, or None if nothing changed within the timeout (0: does not wait)
        or `cancel` was called.

        Raises Unavailable if the daemon is away: at once the first time, then after the timeout.
        Any other KvkeepError is the daemon's answer; the watch asks again after a while."""
        if self._handle is None:
            raise ValueError("this watch is closed")
        self._client.usable()
        news, error = _abi.make(_abi.WatchNews), _abi.Error()
        wait_ms = calls.milliseconds(timeout) if timeout else 0
        if self._library.kvkeep_watch_next(self._handle, wait_ms, ctypes.byref(news),
                                           ctypes.byref(error)) != 0:
            mistake = self._client.exception(error)
            if isinstance(mistake, errors.DeadlineExceeded) or mistake.code == "CANCELLED":
                return None
            raise mistake
        return News(Begin(news.begins), bool(news.snapshot_end), news.epoch, [
            WatchEvent(bytes(one.key.bytes), one.part, one.tier, bool(one.stored))
            for one in news.events[:news.event_count]])

    def cancel(self) -> None:
        """Ends the `next` that waits, and every later one."""
        if self._client.is_ours():
            self._library.kvkeep_watch_cancel(self._handle)

    def close(self) -> None:
        """REQUIRES: no `next` is under way. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None and self._client.is_ours():
            self._library.kvkeep_watch_free(handle)

    def __enter__(self: _Watch) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
