"""vLLM: blocks that the direct connector's scheduler half holds, and keys that it remembers. For
the scheduler's thread only.
"""

import collections
import contextlib
import time

from vllm.logger import init_logger

from kvkeep.vllm_transfers import NULL_BLOCK

logger = init_logger(__name__)

# Limits for blocks that may still be written: how long an idle engine steps all the time to hear of
# their end, and the share of vLLM's blocks above which no load begins.
_NEW_DOUBTS_S, _MOST_DOUBTS = 60, 0.1
_NEW_PINS_S = 0.5  # likewise for blocks that stores hold: the daemon may hang
_PRESENT_KEYS, _PRESENT_S = 1 << 18, 300  # how many stored keys are remembered, and for how long


class Pins:
    """References to vLLM's blocks, by their holders. vLLM reuses no block that a store reads. pool:
    vLLM's BlockPool; None: there is none, and nothing can be stored."""

    def __init__(self, max_part, pool=None, clock=time.monotonic):
        self._max_part, self._pool = max_part, pool
        self._held = {}  # holder: its blocks
        self._clock, self._changed = clock, 0.0
        self.blocks = 0

    @property
    def of(self):
        """Returns the number of vLLM's blocks."""
        return 0 if self._pool is None else self._pool.num_gpu_blocks

    @property
    def room(self):
        """Returns how many more blocks may be held."""
        return max(int(self._max_part * self.of) - self.blocks, 0)

    def hold(self, holder, numbers):
        blocks = [self._pool.blocks[number] for number in numbers if number != NULL_BLOCK]
        self._pool.touch(blocks)
        self._held.setdefault(holder, []).extend(blocks)
        self.blocks += len(blocks)
        self._changed = self._clock()

    def let_go(self, holder):
        blocks = self._held.pop(holder, [])
        self.blocks -= len(blocks)
        if blocks:
            self._changed = self._clock()
            self._pool.free_blocks(reversed(blocks))

    def note_progress(self):
        """Notes that a store goes on."""
        self._changed = self._clock()

    def want_a_step(self):
        """Returns whether an idle engine must step, for stores to go on and to hear of their ends.
        False if none goes on, as vLLM completes neither a pause nor a sleep while there is work."""
        return bool(self._held) and self._clock() - self._changed < _NEW_PINS_S

    @contextlib.contextmanager
    def given_back(self):
        """Drops all holds within this context. REQUIRES: no block is given out in it."""
        for blocks in self._held.values():
            self._pool.free_blocks(reversed(blocks))
        try:
            yield
        finally:
            for blocks in self._held.values():
                self._pool.touch(blocks)

    def __bool__(self):
        return bool(self._held)


class Doubts:
    """Blocks of ended loads that workers say may still be written. References keep all of them."""

    def __init__(self, pool, clock=time.monotonic):
        self._pins, self._workers = Pins(1.0, pool), {}  # job: number of workers that say so
        self.given_back = self._pins.given_back
        self._clock, self._changed, self._stepped = clock, 0.0, 0.0

    @property
    def blocks(self):
        return self._pins.blocks

    @property
    def are_many(self):
        """Returns whether so many blocks are kept that no load may begin."""
        return self.blocks > _MOST_DOUBTS * self._pins.of

    def want_a_step(self):
        """Returns whether an idle engine must step to hear of their end: at first always, then once
        a second, as the daemon may hang for ever."""
        now = self._clock()
        if not self._workers or (now - self._changed > _NEW_DOUBTS_S and now - self._stepped < 1):
            return False
        self._stepped = now
        return True

    def change(self, job, workers, blocks):
        """Adds to the number of workers that say it of a job. blocks: the job's, while vLLM has
        them as its own."""
        now, self._changed = self._workers.get(job, 0) + workers, self._clock()
        if job not in self._workers and now > 0:
            self._pins.hold(job, blocks)
            logger.warning("kvkeep: %d of vLLM's blocks are kept from use: the daemon may still "
                           "write them", self.blocks)
        self._workers[job] = now
        if now <= 0:
            del self._workers[job]
            self._pins.let_go(job)


class Present:
    """Keys that the daemon had a while ago, which need no other put. If such a chunk is gone, a
    store is missed."""

    def __init__(self, clock=time.monotonic):
        self._clock, self._since = clock, collections.OrderedDict()

    def add(self, keys):
        now = self._clock()
        for key in keys:
            self._since[key] = now
            self._since.move_to_end(key)
        while len(self._since) > _PRESENT_KEYS:
            self._since.popitem(last=False)

    def discard(self, keys):
        for key in keys:
            self._since.pop(key, None)

    def __contains__(self, key):
        return self._since.get(key, float("-inf")) > self._clock() - _PRESENT_S

    def clear(self):
        self._since.clear()
