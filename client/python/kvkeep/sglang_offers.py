"""Offers: what the daemon was found to have for requests that wait, and the leases on it.

SGLang asks for a request in every round in which it might begin, and never says that it gave it up.
So an answer is kept, with its lease, until the request is loaded, asked for with other keys, or
`hold_s` is over. An answer that left keys out is asked for again soon: they may have come. One
thread.
"""

import collections
import time

_AGAIN_S = 0.02


class _Offer:
    def __init__(self, keys, lease, pages, made):
        self.keys, self.lease, self.pages, self.made = keys, lease, pages, made


class Offers:
    """ask(keys): (a lease or None, how many leading pages it holds). holds(lease, keys): whether it
    still does."""

    def __init__(self, ask, holds, hold_s, clock=time.monotonic):
        self._ask, self._holds, self._hold_s, self._clock = ask, holds, hold_s, clock
        self._of = collections.OrderedDict()  # request: _Offer, as they run out

    def __len__(self):
        return len(self._of)

    def pages(self, request, keys):
        """How many leading pages are held for the request now."""
        known = self._of.get(request)
        if known is None or not self._answers(known, keys):
            self.drop(request)
            known = self._of[request] = _Offer(keys, *self._ask(keys), self._clock())
        return known.pages

    def take(self, request, keys):
        """The lease on these leading pages, the caller's from now on; None: they are not held."""
        known = self._of.get(request)
        if known is None or known.keys[:len(keys)] != keys or known.pages < len(keys) or (
                not self._holds(known.lease, keys)):
            self.drop(request)
            return None
        del self._of[request]
        known.lease.shrink(len(keys))
        return known.lease

    def drop(self, request):
        known = self._of.pop(request, None)
        if known is not None and known.lease is not None:
            known.lease.release()

    def expire(self):
        """Gives back what nobody took in time."""
        now = self._clock()
        while self._of:
            request, first = next(iter(self._of.items()))
            if now - first.made < self._hold_s:
                return
            self.drop(request)

    def clear(self):
        for request in list(self._of):
            self.drop(request)

    def _answers(self, known, keys):
        if known.keys != keys:
            return False
        if known.pages < len(keys) and self._clock() - known.made >= _AGAIN_S:
            return False
        return known.pages == 0 or self._holds(known.lease, keys[:known.pages])
