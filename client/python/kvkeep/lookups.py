"""Lookups of an engine's scheduler: asked for in one step, known in a later one.

No thread of ours: beside an engine's loop, which holds the GIL and lets go of it for moments only,
a thread gets it after 5 ms at best, and a lookup would take it a dozen times. Here the scheduler
itself starts calls and hears of their ends, which takes microseconds; the waiting is the client
library's, where there is no GIL.

No step may be long: no more than `keys_at_once` are in flight (2,048 of them cost 0.3 ms to ask for
and to hear of), so that their requests fit into the socket of a daemon that hangs; the others wait
for a later step. Not thread-safe.
"""

import collections

_KEYS_AT_ONCE = 2048


class _Asked:
    """A key and who wants to know of it."""

    __slots__ = ("requests", "failed_for", "found", "changed")

    def __init__(self):
        self.requests = set()
        self.failed_for = set()  # requests that could not use it: it is a miss for them
        self.found = None  # not known yet
        self.changed = False  # a miss may have been stored since


class Lookups:
    """ask(keys, request, ended): starts to find out; `ended(good)`, with the keys that are there,
    is called once, at once or from a later poll. flush calls `ask`, want does not."""

    def __init__(self, ask, keys_at_once=_KEYS_AT_ONCE):
        self._ask, self._keys_at_once = ask, keys_at_once
        self._asked = {}  # key: _Asked
        self._of_request = {}  # request: its keys
        self._waiting = collections.OrderedDict()  # request: keys that were not asked for yet
        self._in_flight = 0  # keys

    def want(self, key, request):
        """Whether the key is there; None: not known yet. A key that one request found is there for
        all that ask for as long as one of them lives. A miss is asked for again by the next
        request, and by the same one where it may have been stored since."""
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked()
            self._waiting.setdefault(request, []).append(key)
        elif asked.found is False and request not in asked.failed_for and (
                asked.changed or request not in asked.requests):
            asked.found, asked.changed = None, False
            self._waiting.setdefault(request, []).append(key)
        asked.requests.add(request)
        self._of_request.setdefault(request, set()).add(key)
        return False if request in asked.failed_for else asked.found

    def flush(self):
        """Asks for what was wanted, as far as there is room: once a step."""
        while self._waiting and self._in_flight < self._keys_at_once:
            request, keys = self._waiting.popitem(last=False)
            room = self._keys_at_once - self._in_flight
            if len(keys) > room:
                self._waiting[request] = keys[room:]
                self._waiting.move_to_end(request, last=False)
                keys = keys[:room]
            self._start(request, keys)

    def missed(self, keys):
        """These are not there after all: misses for good for all requests that asked by now."""
        for key in keys:
            asked = self._asked.get(key)
            if asked is not None and asked.found:
                asked.found = False
                asked.failed_for.update(asked.requests)

    def may_be_there(self, keys):
        """These were stored: who missed them may ask again."""
        for key in keys:
            if key in self._asked:
                self._asked[key].changed = True

    def ask_again(self, request):
        """The request may ask again for the keys that it missed."""
        self.may_be_there(self._of_request.get(request, ()))

    def forget(self, request):
        """The request is over. Keys that others wait for too are asked for by one of them; keys
        that nobody else wants are asked for anew by the next request."""
        for key in self._of_request.pop(request, ()):
            asked = self._asked[key]
            asked.requests.discard(request)
            asked.failed_for.discard(request)
            if not asked.requests:
                del self._asked[key]
        for key in self._waiting.pop(request, ()):
            asked = self._asked.get(key)
            if asked is not None:
                self._waiting.setdefault(next(iter(asked.requests)), []).append(key)

    def _start(self, request, keys):
        asked = {key: self._asked[key] for key in keys}
        self._in_flight += len(keys)

        def ended(good):
            self._in_flight -= len(asked)
            good = frozenset(good)
            for key, one in asked.items():
                one.found = key in good

        self._ask(keys, request, ended)
