"""Calls that are started and polled later: the base of asyncio and engines' own loops.

Ends of calls come out of one queue of the C ABI, whose `fd` is readable while it has some. Not
thread-safe: one thread, or a lock, around start and poll.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import select
import time
from typing import (TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar)

from kvkeep import _abi

if TYPE_CHECKING:
    from kvkeep.calls import Call
    from kvkeep.client import Client

_Answer = TypeVar("_Answer")
_Ended = Callable[[Optional[_Answer], Optional[Exception]], object]

_AT_ONCE = 64  # completions taken at a time

logger = logging.getLogger(__name__)


class Completions:
    """Calls of one client. capacity: the number of calls under way at once; more are refused with
    RESOURCE_EXHAUSTED."""

    def __init__(self, client: Client, capacity: int = 1024) -> None:
        self._client, self._library = client, client.library
        self._started: Dict[int, Tuple[Call[Any], _Ended[Any]]] = {}  # number: (call, ended)
        self._last = 0
        self._out = (_abi.Completion * _AT_ONCE)()
        queue, error = ctypes.c_void_p(), _abi.Error()
        if self._library.kvkeep_queue_create(capacity, ctypes.byref(queue), ctypes.byref(error)):
            raise client.exception(error)
        self._queue = queue.value
        self.fd: int = self._library.kvkeep_queue_fd(self._queue)

    @property
    def pending(self) -> int:
        """Returns how many calls were started and have not ended yet."""
        return len(self._started)

    def start(self, call: Call[_Answer], ended: _Ended[_Answer]) -> None:
        """Starts a call of kvkeep.calls. poll reports its end to `ended(result, exception)`, one of
        which is None; a refused call is reported here. Exceptions of `ended` are logged. The call's
        arguments stay alive until its end."""
        if call.empty:
            _tell(ended, call.finish(None, ""), None)
            return
        self._last += 1
        number, error = self._last, _abi.Error()
        function = getattr(self._library, f"kvkeep_{call.name}_async")
        handle = self._client.begin()  # before the call is noted: it may raise
        try:
            self._started[number] = (call, ended)
            code = function(handle, *map(ctypes.byref, call.structs), self._queue, number,
                            ctypes.byref(error))
        finally:
            self._client.end(handle)
        if code != 0:
            self._end(number, error)

    def start_all(self, calls: Sequence[Call[Any]],
                  ended: Callable[[List[Any]], object]) -> None:
        """Starts several calls. When all have ended, `ended` gets a (result, exception) for each,
        in order."""
        outcomes: List[Any] = [None] * len(calls)
        left = [len(calls)]

        def one_ended(at: int, result: Any, mistake: Optional[Exception]) -> None:
            outcomes[at] = (result, mistake)
            left[0] -= 1
            if left[0] == 0:
                ended(outcomes)

        for at, call in enumerate(calls):
            self.start(call, functools.partial(one_ended, at))
        if not calls:
            ended(outcomes)

    def poll(self) -> None:
        """Reports every call that has ended. Does not wait."""
        while count := self._library.kvkeep_queue_poll(self._queue, self._out, _AT_ONCE):
            for completion in self._out[:count]:
                self._end(completion.user_data, completion.error)

    def wait(self, timeout: float) -> bool:
        """Polls until nothing is pending. Returns False if the timeout passed first."""
        deadline = time.monotonic() + timeout
        readable = select.poll()  # select() takes no descriptor above 1,023
        readable.register(self.fd, select.POLLIN)
        while self._started:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            readable.poll(math.ceil(left * 1000))
            self.poll()
        return True

    def close(self) -> None:
        """Closes the queue. REQUIRES: nothing is pending. Idempotent."""
        queue, self._queue = self._queue, None
        error = _abi.Error()
        if queue is not None and self._library.kvkeep_queue_destroy(queue, ctypes.byref(error)):
            raise self._client.exception(error)

    def _end(self, number: int, error: ctypes.Structure) -> None:
        call, ended = self._started.pop(number)
        try:
            result = call.finish(self._client.exception(error) if error.code != 0 else None,
                                 error.message.decode(errors="replace"))
        except Exception as mistake:  # pylint: disable=broad-except  # the caller's, or ours
            _tell(ended, None, mistake)
        else:
            _tell(ended, result, None)


def _tell(ended: _Ended[_Answer], result: Optional[_Answer],
          mistake: Optional[Exception]) -> None:
    """Calls `ended`. If it raises, only its own call's end is lost."""
    try:
        ended(result, mistake)
    except Exception:  # pylint: disable=broad-except  # the caller's
        logger.exception("kvkeep: what was to hear of the end of a call failed")
