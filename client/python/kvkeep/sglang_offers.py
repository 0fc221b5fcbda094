"""Offers: the daemon's chunks that were found for waiting requests, and the leases on them.

SGLang asks for a request in every round in which it might begin, and never says that it gave one
up. So an answer is kept, with its lease, until the request is loaded or asked for with other keys,
or `hold_s` passes. An answer that left keys out is asked for again soon, and then less and less
often while it does not grow. Only an answer that is as good replaces it, as the holder of a lease
needs no daemon. Thread-safe.
"""

import collections
import dataclasses
import threading
import time

_AGAIN_S, _AGAIN_AT_MOST_S = 0.02, 1.0


@dataclasses.dataclass
class _Offer:
    keys: list
    lease: object  # None: on no page
    pages: int
    made: float
    asked: float
    again_s: float = _AGAIN_S


class Offers:
    """ask(keys) returns (a lease or None, how many leading pages it holds). holds(lease, keys)
    returns whether the lease still holds."""

    def __init__(self, ask, holds, hold_s, clock=time.monotonic):
        self._ask, self._holds, self._hold_s, self._clock = ask, holds, hold_s, clock
        self._lock = threading.Lock()
        self._of = collections.OrderedDict()  # request: _Offer, in the order of their ends

    def __len__(self):
        with self._lock:
            return len(self._of)

    def pages(self, request, keys):
        """Returns how many leading pages are held for the request now."""
        with self._lock:
            known, now = self._of.get(request), self._clock()
            held = self._held(known, keys)
            if held is not None and (held == len(keys) or now - known.asked < known.again_s):
                return held
            lease, pages = self._ask(keys)
            if held is not None and pages <= held:
                _release(lease)
                known.asked, known.again_s = now, min(2 * known.again_s, _AGAIN_AT_MOST_S)
                return held
            self._drop(request)
            self._of[request] = _Offer(keys, lease, pages, now, now)
            return pages

    def take(self, request, keys):
        """Hands the lease on these leading pages over to the caller, or returns None if they are
        not held."""
        with self._lock:
            known = self._of.get(request)
            if known is None or known.keys[:len(keys)] != keys or known.pages < len(keys) or (
                    not self._holds(known.lease, keys)):
                self._drop(request)
                return None
            del self._of[request]
            known.lease.shrink(len(keys))
            return known.lease

    def expire(self):
        """Gives back offers that were not taken in time."""
        with self._lock:
            now = self._clock()
            while self._of:
                request, first = next(iter(self._of.items()))
                if now - first.made < self._hold_s:
                    return
                self._drop(request)

    def clear(self):
        with self._lock:
            for request in list(self._of):
                self._drop(request)

    def _held(self, known, keys):
        """Returns how many of these pages an offer holds, or None if it is for others or does not
        hold. SGLang asks for all of a prompt to rank it, and for all but its last token to begin
        it."""
        if known is None or known.keys[:len(keys)] != keys:
            return None
        pages = min(known.pages, len(keys))
        return pages if pages == 0 or self._holds(known.lease, keys[:pages]) else None

    def _drop(self, request):
        known = self._of.pop(request, None)
        if known is not None:
            _release(known.lease)


def _release(lease):
    if lease is not None:
        lease.release()
