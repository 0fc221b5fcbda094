"""Parked: objects that a thread of their own asks again and again until they may be let go of.

Made for memory that a daemon may still write: nobody of this process has it any more, so nobody
else would ask. One thread a process, from the first `watch` on; it sleeps while nothing is parked.
Objects still parked when the process ends are never torn down: they go with the process.
"""

import atexit
import ctypes
import os
import queue
import threading

_PAUSE_S = 0.25  # between two rounds of questions


class Parked:
    """`ask(one)`: whether that one is done with, without waiting. Called on the thread."""

    def __init__(self, ask):
        self._ask = ask
        self._lock = threading.Lock()
        self._pid = None  # of the process that has the thread
        # Its put takes no lock that another put, cut off by a collection, could hold.
        self._new = queue.SimpleQueue()

    def watch(self):
        """From now on what is parked is asked for. A child of fork has to say it again; what its
        parent parked is none of its business."""
        with self._lock:
            if self._pid == os.getpid():
                return
            new = queue.SimpleQueue()
            thread = threading.Thread(target=self._run, args=(new,), name="kvkeep-parked",
                                      daemon=True)
            thread.start()
            self._pid, self._new = os.getpid(), new
            # It must not be within the library when that is unloaded.
            atexit.register(self._end, new, thread)

    def park(self, one):
        """Also from a `__del__`, on any thread."""
        self._new.put(one)

    @staticmethod
    def _end(new, thread):
        # One reference too many: with it nothing that is or comes into the queue is ever dropped.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(new))
        new.put(None)
        thread.join(1)

    def _run(self, new):
        parked = []  # the only place that has them: what is dropped here is gone
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
