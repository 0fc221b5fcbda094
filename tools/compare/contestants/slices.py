"""Slices: the one loop that drives every contestant.

The same operation over and over, each call, of one chunk or of several, timed alone. Puts read
from, and gets write to, populated regions larger than the caches, of one page kind, gone through in
turn. Every byte of every get is compared while the clock stands; for puts, the last call's of each
64 chunks. The expected bytes lie in memory that no contestant knows. Compared bytes are spoilt
where they lie: a get that writes nothing, or not all of them, is seen the next time too. One
thread.
"""

import gc
import time

from measured import Measured
from memory import Payloads

FIRST_FRESH = 1 << 28  # puts go on from here, so that their keys are none of the loaded ones
WARM_UP = FIRST_FRESH - 1  # a chunk that is none of either
MAX_CHUNKS_BETWEEN_CHECKS = 64
MAX_LOOKUPS_BETWEEN_RESTS = 16


class LookupMissed(LookupError):
    """A lookup did not find what was put."""


class Slices:
    def __init__(self, contestant, capacity_bytes, region_bytes):
        self._contestant = contestant
        self._room = capacity_bytes // 2  # that one without eviction is filled to
        self._region = region_bytes
        self._sources = contestant.sources(region_bytes)
        self._targets = contestant.targets(region_bytes)
        self._size = self._batch = 0
        self._payloads = None
        self._filled = []  # keys of each call
        self._stored = 0  # bytes since the last clear
        self._gets = self._puts = self._lookups = self._next_target = 0  # where each goes on

    def load(self, size, batch):
        """Forgets everything; from now on chunks are of `size` bytes, calls of `batch` chunks."""
        if not 0 < size <= self._region:
            raise ValueError(f"chunks of {size} bytes in a region of {self._region}")
        self._clear()
        self._contestant.resize(size)
        if size != self._size:
            if self._payloads is not None:
                self._payloads.close()
            self._size, self._places = size, self._region // size
            self._payloads = Payloads(size, self._places)
            self._payloads.lay(self._addresses(self._sources, 0, self._places))
        self._batch, self._filled = batch, []
        self._gets = self._lookups = 0
        self._warm_up()
        gc.unfreeze()  # of an earlier load
        gc.collect()
        gc.freeze()  # what is there now is looked through no more
        gc.disable()  # it would be on the clock

    def _warm_up(self):
        """Makes untimed calls, so that nobody is charged for first connections and mappings."""
        keys = self._contestant.call_keys(WARM_UP, 1)
        self._contestant.put(keys, [self._sources], self._size)
        self._contestant.lookup_and_get(keys, [self._targets], self._size)
        self._payloads.spoil(0, self._targets)
        self._clear()

    def fill(self, calls):
        """Puts so many calls' chunks more. They are what is got and looked up."""
        measured = Measured()
        for _ in range(calls):
            first = len(self._filled) * self._batch
            self._filled.append(self._contestant.call_keys(first, self._batch))
            self._put(measured, self._filled[-1], first)
        self._contestant.rest()
        return measured

    def run(self, operation, seconds):
        if not self._filled:
            raise ValueError("nothing was filled in")
        gc.collect()
        measured = Measured()
        if operation == "get":
            self._run_gets(self._contestant.get, seconds, measured)
        elif operation == "lookup+get":
            self._run_gets(self._contestant.lookup_and_get, seconds, measured)
        elif operation == "put":
            self._run_puts(seconds, measured)
        elif operation == "lookup":
            self._run_lookups(seconds, measured)
        else:
            raise ValueError(f"no operation {operation}")
        return measured

    def _run_gets(self, get, seconds, measured):
        at_once = max(min(self._places, MAX_CHUNKS_BETWEEN_CHECKS) // self._batch, 1)
        while measured.seconds < seconds:
            done = []
            while len(done) < at_once and measured.seconds < seconds:
                call = self._gets % len(self._filled)
                targets = self._addresses(self._targets, self._next_target, self._batch)
                self._time(measured, self._size, get, self._filled[call], targets)
                done.append((call * self._batch, targets))
                self._gets += 1
                self._next_target += self._batch
            for first, targets in done:
                self._compare(first, targets, measured)
            self._contestant.rest()

    def _run_puts(self, seconds, measured):
        contestant, chunks = self._contestant, MAX_CHUNKS_BETWEEN_CHECKS
        if not contestant.evicts:
            chunks = min(chunks, self._room // self._size)
        at_once = max(chunks // self._batch, 1)
        targets = self._addresses(self._targets, 0, self._batch)
        while measured.seconds < seconds:
            needed = at_once * self._batch * self._size
            if not contestant.evicts and self._stored + needed > self._room:
                self._clear()
            for _ in range(at_once):
                first = self._puts
                self._puts += self._batch
                keys = contestant.call_keys(FIRST_FRESH + first, self._batch)
                self._put(measured, keys, first)
                if measured.seconds >= seconds:
                    break
            contestant.rest()
            contestant.get(keys, targets, self._size)
            self._compare(first, targets, measured)
            contestant.rest()

    def _run_lookups(self, seconds, measured):
        while measured.seconds < seconds:
            keys = self._filled[self._lookups % len(self._filled)]
            self._lookups += 1
            found = self._time(measured, 0, self._contestant.lookup, keys)
            if found != self._batch:
                raise LookupMissed(f"a lookup found {found} of {self._batch} keys")
            if self._lookups % MAX_LOOKUPS_BETWEEN_RESTS == 0:
                self._contestant.rest()
        self._contestant.rest()

    def _put(self, measured, keys, first):
        self._time(measured, self._size, self._contestant.put, keys,
                   self._addresses(self._sources, first, self._batch))
        self._stored += self._batch * self._size

    def _time(self, measured, size, call, keys, addresses=None):
        """`size`: bytes that are moved of each chunk."""
        arguments = (keys,) if addresses is None else (keys, addresses, size)
        self._contestant.forget_outcomes(keys)
        cpu = time.process_time_ns()
        begin = time.perf_counter_ns()
        result = call(*arguments)
        took = time.perf_counter_ns() - begin
        measured.cpu_ns += time.process_time_ns() - cpu
        measured.ns += took
        measured.calls_ns.append(took)
        measured.chunks += self._batch
        measured.bytes += self._batch * size
        return result

    def _clear(self):
        self._contestant.clear()
        self._stored = 0

    def _addresses(self, region, first, count):
        """Addresses of a call's payloads, or of the places that they are got to, in turn."""
        return [region + (first + i) % self._places * self._size for i in range(count)]

    def _compare(self, first, targets, measured):
        """The chunks from number `first` on with what was put. No target has them any more then:
        as many chunks as fit come to the same places again, and would be right by themselves."""
        if not self._contestant.keeps_bytes:
            return
        for number, got in enumerate(targets, first):
            payload = number % self._places
            measured.verified_bytes += self._size
            measured.wrong_bytes += self._payloads.count_wrong(payload, got)
            self._payloads.spoil(payload, got)
