"""Warnings that are said seldom: what fails in each step of an engine would fill its log."""

import time

_EVERY_S = 10.0


class SeldomWarnings:
    """Says each kind of warning once in ten seconds. If two threads say one at the same moment, it
    may be said twice."""

    def __init__(self, logger):
        self._logger, self._said = logger, {}  # kind: when it was last said

    def say(self, kind, text, *values):
        """Logs `text` with these values, unless its kind was said just now."""
        now = time.monotonic()
        if now - self._said.get(kind, float("-inf")) >= _EVERY_S:
            self._said[kind] = now
            self._logger.warning(text, *values)
