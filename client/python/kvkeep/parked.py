"""Parked: objects that a thread polls until they may be dropped.

It is for memory that a daemon may still write after this process has dropped it. One thread a
process runs from the first `watch` on, and sleeps while nothing is parked. Objects still parked
when the process ends are never torn down.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import queue
import threading
from typing import Any, Callable, Generic, List, Optional, TypeVar

_PAUSE_S = 0.25  # between two rounds
_One = TypeVar("_One")


class Parked(Generic[_One]):
    """`ask(one)` returns, without waiting, whether `one` may be dropped. It is called on the
    thread."""

    def __init__(self, ask: Callable[[_One], bool]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._pid: Optional[int] = None  # the process that has the thread
        # SimpleQueue's put takes no lock that an interrupted put, cut off by a collection, could
        # hold.
        self._new: queue.SimpleQueue[Optional[_One]] = queue.SimpleQueue()

    def watch(self) -> None:
        """Polls parked objects from now on. A child of fork calls it again, and does not poll its
        parent's objects."""
        with self._lock:
            if self._pid == os.getpid():
                return
            new: queue.SimpleQueue[Optional[_One]] = queue.SimpleQueue()
            thread = threading.Thread(target=self._run, args=(new,), name="kvkeep-parked",
                                      daemon=True)
            thread.start()
            self._pid, self._new = os.getpid(), new
            # The thread must not be within the library when that is unloaded.
            atexit.register(self._end, new, thread)

    def park(self, one: _One) -> None:
        """Parks an object, also from a `__del__`, on any thread."""
        self._new.put(one)

    @staticmethod
    def _end(new: queue.SimpleQueue[Optional[_One]], thread: threading.Thread) -> None:
        # One extra reference keeps everything in the queue from being dropped there.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(new))
        new.put(None)
        thread.join(1)

    def _run(self, new: queue.SimpleQueue[Optional[_One]]) -> None:
        parked: List[Any] = []  # the only reference: what is dropped here is gone
        while True:
            try:
                parked.append(new.get(timeout=_PAUSE_S) if parked else new.get())
            except queue.Empty:
                pass
            if parked[-1] is None:
                for left in parked[:-1]:
                    new.put(left)
                return
            parked = [left for left in parked if not self._ask(left)]
