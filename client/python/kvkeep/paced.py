"""Limits the calls in flight so that their requests fit into the socket of a daemon that hangs.

The thread that starts a call sends its request itself, and would wait there once the socket is
full. So at most `keys_at_once` keys are in flight, or a single larger group of calls. Further
groups wait here in order. A group that waited ends no later than if it had started at once, so it
keeps its caller's memory no longer than that. Guarded by whatever guards the completions.
"""

import collections
import time
from typing import Callable, NamedTuple

# Limits of one queue. An engine has two, for transfers and for lookups, which wait for neither.
_KEYS_AT_ONCE = 1024
_GROUPS_WAITING = 2048


class _Group(NamedTuple):
    calls: list
    keys: int
    ended: Callable
    until: float  # by the clock


class Paced:
    """allows() says whether to ask the daemon at all; it is called when a group starts. timeout_s:
    the timeout of all calls given to this."""

    def __init__(self, completions, allows, timeout_s, keys_at_once=_KEYS_AT_ONCE,
                 groups_waiting=_GROUPS_WAITING, clock=time.monotonic):
        self._completions, self._allows, self._timeout_s = completions, allows, timeout_s
        self._most, self._most_waiting, self._clock = keys_at_once, groups_waiting, clock
        self._waiting = collections.deque()  # _Groups, in order
        self._starting = False  # what waited
        self.in_flight = 0  # keys
        self.given_up = 0  # groups given up: too many waited, or it waited for too long

    def __len__(self):
        """Returns how many groups of calls wait."""
        return len(self._waiting)

    def start_all(self, calls, keys, ended):
        """Starts calls as Completions.start_all does, at once or when there is room. A group that
        is given up reports no outcomes to `ended`."""
        if not calls or (not self._waiting and self._fits(keys)):
            self._start(calls, keys, ended)
        elif len(self._waiting) < self._most_waiting:
            self._waiting.append(_Group(calls, keys, ended, self._clock() + self._timeout_s))
        else:
            self._give_up(ended)

    def poll(self):
        """Gives up groups that waited for too long. A call in flight started earlier with the same
        timeout, so its end comes in time to trigger this."""
        if self._starting:  # `ended` may come back here: the loop below goes on
            return
        self._starting = True
        try:
            while self._waiting:
                first, left = self._waiting[0], self._waiting[0].until - self._clock()
                if left > 0 and not self._fits(first.keys):
                    break
                self._waiting.popleft()
                if left <= 0:
                    self._give_up(first.ended)
                    continue
                for call in first.calls:
                    call.limit(left)
                self._start(first.calls if self._allows() else [], first.keys, first.ended)
        finally:
            self._starting = False

    def drop(self):
        """Forgets what waits."""
        self._waiting.clear()

    def _fits(self, keys):
        return self.in_flight == 0 or self.in_flight + keys <= self._most

    def _give_up(self, ended):
        self.given_up += 1
        ended([])

    def _start(self, calls, keys, ended):
        keys = keys if calls else 0

        def all_ended(outcomes):
            self.in_flight -= keys
            ended(outcomes)
            if keys:
                self.poll()

        self.in_flight += keys
        self._completions.start_all(calls, all_ended)
