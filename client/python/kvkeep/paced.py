"""Calls whose requests fit together into the socket of a daemon that hangs.

Who starts a call sends its request itself, and would wait there once the socket is full. So no more
than `keys_at_once` keys are in flight, one larger group of calls by itself excepted; what comes
beyond them waits here, and is given up when what it waited for ran out of time. Guarded by whatever
guards the completions.
"""

import collections

_KEYS_AT_ONCE = 2048


class Paced:
    """allows(): whether to ask the daemon at all; what waited is asked for only then."""

    def __init__(self, completions, allows, keys_at_once=_KEYS_AT_ONCE):
        self._completions, self._allows, self._most = completions, allows, keys_at_once
        self._waiting = collections.deque()
        self.in_flight = 0  # keys

    def __len__(self):
        """Groups of calls that wait."""
        return len(self._waiting)

    def start_all(self, calls, keys, ended):
        """As Completions.start_all, at once or when there is room; `ended` gets no outcomes of what
        was given up."""
        if calls and not self._fits(keys):
            self._waiting.append((calls, keys, ended))
        else:
            self._start(calls, keys, ended)

    def drop(self):
        """Forgets what waits."""
        self._waiting.clear()

    def _fits(self, keys):
        return self.in_flight == 0 or self.in_flight + keys <= self._most

    def _start(self, calls, keys, ended):
        keys = keys if calls else 0

        def all_ended(outcomes):
            self.in_flight -= keys
            ended(outcomes)
            if keys:
                self._start_waiting()

        self.in_flight += keys
        self._completions.start_all(calls, all_ended)

    def _start_waiting(self):
        while self._waiting and self._fits(self._waiting[0][1]):
            calls, keys, ended = self._waiting.popleft()
            self._start(calls if self._allows() else [], keys, ended)
