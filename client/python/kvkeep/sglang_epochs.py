"""SGLang: whether an engine uses shared keys or keys of its own.

An engine whose weights have changed is private until it is started anew: its keys are its own, so
it finds nothing from before and shares nothing. Each further change, and each reset of its cache,
begins another epoch, as KV from before the reset may belong to weights from before the change.
"""

import hashlib
import os
import threading

from kvkeep.sglang_changes import OBSERVED
from kvkeep.sglang_identity import weight_version

SHARED = b""  # epoch of an engine whose weights are those of its start


class Epochs:
    """logger: told once that the engine is private. Thread-safe."""

    def __init__(self, logger):
        self._logger, self._lock = logger, threading.Lock()
        self._seen, self._epoch = self._look(), SHARED

    def now(self):
        """Returns the epoch: SHARED, or bytes that no other process has."""
        with self._lock:
            if (seen := self._look()) != self._seen:
                private = self._epoch != SHARED or seen[:2] != self._seen[:2]
                self._seen = seen
                if private:  # a reset alone changes nothing: the weights are the same
                    self._begin("the weights were changed")
            return self._epoch

    def begin(self, why):
        """Begins a private epoch."""
        with self._lock:
            self._begin(why)

    def _begin(self, why):
        if self._epoch == SHARED:
            self._logger.warning(
                "kvkeep: %s: nothing from before is found any more, and nothing is shared, until "
                "the engine is started anew", why)
        self._epoch = os.urandom(32)

    @staticmethod
    def _look():
        return weight_version(), OBSERVED.changes, OBSERVED.resets


def own(epoch, digests):
    """Returns the digests of page keys in that epoch."""
    if epoch == SHARED:
        return digests
    return [hashlib.sha256(epoch + one).digest() for one in digests]
