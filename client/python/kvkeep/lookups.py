"""Lookups for an engine's scheduler, which asks in one step and gets the answer in a later one.

There is no thread here. An engine's loop holds the GIL and releases it for moments only, so another
thread gets it after 5 ms at best, and a lookup would need it a dozen times. Instead the scheduler
itself starts calls and polls for their ends, in microseconds. The client library waits, without the
GIL.

No step may be long. At most `keys_at_once` keys are in flight, so that their requests fit into the
socket of a daemon that hangs (2,048 keys cost 0.3 ms to ask for and to poll); the others wait for a
later step. Not thread-safe.
"""

import collections

_KEYS_AT_ONCE = 2048


class _Asked:
    """A key, and the requests that want to know of it."""

    __slots__ = ("requests", "failed_for", "found", "changed")

    def __init__(self):
        self.requests = set()
        self.failed_for = set()  # requests that could not use it, for which it is a miss
        self.found = None  # not known yet
        self.changed = False  # it was a miss and may have been stored since


class Lookups:
    """ask(keys, request, ended) starts a lookup and calls `ended(good)` once, with the keys that
    are there, at once or from a later poll. flush calls `ask`; want does not."""

    def __init__(self, ask, keys_at_once=_KEYS_AT_ONCE):
        self._ask, self._keys_at_once = ask, keys_at_once
        self._asked = {}  # key: _Asked
        self._of_request = {}  # request: its keys
        self._waiting = collections.OrderedDict()  # request: keys not asked for yet
        self._in_flight = 0  # keys

    def want(self, key, request):
        """Returns whether the key is there, or None while that is unknown. A found key is found for
        all requests that ask while one of them lives. A miss is asked for again by the next
        request, and by the same one if it may have been stored since."""
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
        """Asks for wanted keys while there is room. Call it once a step."""
        while self._waiting and self._in_flight < self._keys_at_once:
            request, keys = self._waiting.popitem(last=False)
            room = self._keys_at_once - self._in_flight
            if len(keys) > room:
                self._waiting[request] = keys[room:]
                self._waiting.move_to_end(request, last=False)
                keys = keys[:room]
            self._start(request, keys)

    def missed(self, keys):
        """Makes these keys misses for all requests that have asked for them."""
        for key in keys:
            asked = self._asked.get(key)
            if asked is not None and asked.found:
                asked.found = False
                asked.failed_for.update(asked.requests)

    def may_be_there(self, keys):
        """Notes that these keys were stored: requests that missed them may ask again."""
        for key in keys:
            if key in self._asked:
                self._asked[key].changed = True

    def ask_again(self, request):
        """Lets the request ask again for the keys that it missed."""
        self.may_be_there(self._of_request.get(request, ()))

    def forget(self, request):
        """Ends the request. Another request asks for keys that it wants too. The next request asks
        anew for the rest."""
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
