"""SGLang's metrics of a storage backend, where they are on: pages, and how fast they came.

Thread-safe: SGLang gets and puts on threads of its own. Samples that are not collected are dropped,
the oldest first.
"""

import collections
import threading
import time

_KEPT = 4096  # transfers of each direction that are kept between two collections
_GB = 1 << 30  # as SGLang's own backends count


class Transfers:
    """Gets and puts of pages since the last collection."""

    def __init__(self):
        self._lock = threading.Lock()
        self._gets, self._puts = (collections.deque(maxlen=_KEPT) for _ in range(2))

    def timed_get(self, call, pages, pieces):
        """Returns the result of call(pages, pieces): an error or None, and whether each piece is
        good."""
        return self._timed(self._gets, call, pages, pieces)

    def timed_put(self, call, pages, pieces):
        return self._timed(self._puts, call, pages, pieces)

    def taken(self):
        """Returns them as SGLang's StorageMetrics, and forgets them."""
        # pylint: disable-next=import-outside-toplevel
        from sglang.srt.observability.metrics_collector import StorageMetrics  # moved at times

        with self._lock:
            gets, puts = list(self._gets), list(self._puts)
            self._gets.clear()
            self._puts.clear()
        metrics = StorageMetrics()
        metrics.prefetch_pgs += [pages for pages, _ in gets]
        metrics.prefetch_bandwidth += [speed for _, speed in gets]
        metrics.backup_pgs += [pages for pages, _ in puts]
        metrics.backup_bandwidth += [speed for _, speed in puts]
        return metrics

    def _timed(self, into, call, pages, pieces):
        begin = time.perf_counter()
        error, good = call(pages, pieces)
        took = time.perf_counter() - begin
        moved = sum(piece.nbytes for piece, ok in zip(pieces, good) if ok)
        if moved:
            share = moved / sum(piece.nbytes for piece in pieces)
            with self._lock:
                into.append((round(len(pages) * share), moved / took / _GB))
        return error, good
