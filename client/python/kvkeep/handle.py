"""Handles of the C ABI. Each is ended once, when it has no user any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, TypeVar

if TYPE_CHECKING:
    from kvkeep.client import Client

_Handle = TypeVar("_Handle", bound="Handle")
_End = Callable[[int], object]


class Kept:
    """A handle, kept by its owner and its current users. The last one ends it, in the process that
    got it."""

    def __init__(self, client: Optional[Client], handle: Optional[int],
                 end: Optional[_End]) -> None:
        self._client = client  # keeps the library's client alive until this is gone
        self.handle = handle
        self._end = end

    def __del__(self) -> None:
        if (self.handle is not None and self._client is not None and self._end is not None
                and self._client.is_ours()):
            self._end(self.handle)


_RELEASED = Kept(None, None, None)


class Handle:
    """Owns a handle until its release, by any thread. A user takes `kept` first and holds it while
    it uses the handle; a release meanwhile ends the handle later."""

    kept = _RELEASED  # also runs for what was never made

    def __init__(self, client: Client, handle: Optional[int], end: _End) -> None:
        self._client = client
        self.kept = Kept(client, handle, end)

    def release(self) -> None:
        self.kept = _RELEASED

    def __enter__(self: _Handle) -> _Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()
