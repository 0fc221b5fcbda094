"""Threads that read files from a file system that may hang.

These are daemon threads, so the end of the process does not wait for a read that hangs. Another
thread takes the place of each that has not come back for long, so other calls do not wait either.
"""

import collections
import concurrent.futures
import threading
import time


class Readers:
    """threads: the number of calls that run at once. hung_after_s: a call that takes longer is not
    counted among them any more. Thread-safe."""

    def __init__(self, threads, hung_after_s=60.0, clock=time.monotonic):
        self._at_once, self._hung_after_s, self._clock = threads, hung_after_s, clock
        self._changed = threading.Condition()
        self._calls = collections.deque()  # (Future, function, its arguments)
        self._threads = self._idle = 0
        self._began = {}  # thread: when its call began
        self._closed = False

    @property
    def running(self):
        """Returns how many calls run now, including those that hang."""
        return len(self._began)

    def submit(self, function, *arguments):
        """Returns a Future of what the function returns. Does not wait."""
        future = concurrent.futures.Future()
        with self._changed:
            self._calls.append((future, function, arguments))
            self._changed.notify()
        self.add_thread()
        return future

    def in_order(self, function, items):
        """Yields function(*item) for each item, in order."""
        futures = [self.submit(function, *item) for item in items]
        for future in futures:
            yield future.result()

    def add_thread(self):
        """Starts a thread if a call waits and no thread is free for it."""
        with self._changed:
            now = self._clock()
            hung = sum(now - began > self._hung_after_s for began in self._began.values())
            if len(self._calls) <= self._idle or self._threads >= self._at_once + hung:
                return
            self._threads += 1
        threading.Thread(target=self._run, name="kvkeep-reader", daemon=True).start()

    def close(self):
        """Drops calls that have not begun, and ends the threads. Does not wait."""
        with self._changed:
            self._closed = True
            self._calls.clear()
            self._changed.notify_all()

    def _run(self):
        me = threading.get_ident()
        while (call := self._next(me)) is not None:
            future, function, arguments = call
            try:
                future.set_result(function(*arguments))
            except Exception as mistake:  # pylint: disable=broad-except  # the caller's
                future.set_exception(mistake)
            del call, future, function, arguments  # keeps nothing alive while it waits

    def _next(self, me):
        """Returns the next call, or None when closed."""
        with self._changed:
            self._began.pop(me, None)
            while not self._calls and not self._closed:
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            if self._closed:
                self._threads -= 1
                return None
            self._began[me] = self._clock()
            return self._calls.popleft()
