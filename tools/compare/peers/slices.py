"""The loop of tools/compare/slice.h for a contestant in Python, by the same rules.

The same operation over and over, each call, of one chunk or of several, timed alone. What is put
is read from, and what is got is written to, populated regions larger than the caches, of one page
kind, gone through in turn. Every byte of every get is compared while the clock stands, of puts the
last call's of each 64 chunks. What it must be lies in memory that no peer knows.
"""

import random
import time

import memory
from measured import Measured

SEED = 1
FIRST_FRESH = 1 << 28  # puts go on from here, so that their keys are none of the loaded ones
WARM_UP = FIRST_FRESH - 1  # a key that is none of either
MAX_CHUNKS_BETWEEN_CHECKS = 64
MAX_LOOKUPS_BETWEEN_RESTS = 16
FILL_STEP_BYTES = 1 << 20


class LookupMissed(LookupError):
    """A lookup did not find what was put."""


def _right_bytes(size):
    """The address of what payloads must be, in memory of our own."""
    address = memory.private_pages(size)
    generator = random.Random(SEED)
    for at in range(0, size, FILL_STEP_BYTES):
        step = min(FILL_STEP_BYTES, size - at)
        memory.copy(address + at, generator.randbytes(step), step)
    return address


class Slices:
    def __init__(self, peer, capacity_bytes, region_bytes):
        self._peer = peer
        self._room = capacity_bytes // 2  # that a peer without eviction is filled to
        self._region = region_bytes
        self._sources = peer.memory(region_bytes)
        self._targets = peer.memory(region_bytes)
        self._right = _right_bytes(region_bytes)
        memory.copy(self._sources, self._right, region_bytes)
        self._size = 0
        self._batch = 1
        self._keys = []
        self._stored = 0  # bytes since the last clear
        self._gets = self._puts = self._lookups = self._next_target = 0  # where each goes on

    def load(self, size, batch):
        """Forgets everything; from now on chunks are of `size` bytes, calls of `batch` chunks."""
        if not 0 < size <= self._region:
            raise ValueError(f"chunks of {size} bytes in a region of {self._region}")
        self._clear()
        self._peer.resize(size)
        self._size, self._batch = size, batch
        self._keys = []
        self._gets = self._lookups = 0
        self._warm_up()

    def _warm_up(self):
        """What only the first calls pay, connections and mappings, is nobody's time."""
        keys = [self._peer.make_key(WARM_UP, 1)]
        self._peer.put(keys, [self._sources], self._size)
        self._peer.lookup_and_get(keys, [self._targets], self._size)
        self._clear()

    def fill(self, calls):
        """Puts so many calls' chunks more. They are what is got and looked up."""
        measured = Measured()
        for _ in range(calls):
            first = len(self._keys)
            self._keys += self._make_keys(first)
            self._put(measured, self._keys[first:], first)
        self._peer.rest()
        return measured

    def run(self, operation, seconds):
        if not self._keys:
            raise ValueError("nothing was filled in")
        measured = Measured()
        if operation == "get":
            self._run_gets(self._peer.get, seconds, measured)
        elif operation == "lookup+get":
            self._run_gets(self._peer.lookup_and_get, seconds, measured)
        elif operation == "put":
            self._run_puts(seconds, measured)
        elif operation == "lookup":
            self._run_lookups(seconds, measured)
        else:
            raise ValueError(f"no operation {operation}")
        return measured

    def _run_gets(self, get, seconds, measured):
        chunks = min(self._region // self._size, MAX_CHUNKS_BETWEEN_CHECKS)
        at_once = max(chunks // self._batch, 1)
        while measured.seconds < seconds:
            done = []
            while len(done) < at_once and measured.seconds < seconds:
                first = self._gets = self._window(self._gets)
                targets = self._addresses(self._targets, self._next_target)
                self._time(measured, self._size, get, self._keys[first:first + self._batch],
                           targets, self._size)
                done.append((first, targets))
                self._gets += self._batch
                self._next_target += self._batch
            for first, targets in done:
                self._compare(first, targets, measured)
            self._peer.rest()

    def _run_puts(self, seconds, measured):
        chunks = MAX_CHUNKS_BETWEEN_CHECKS
        if not self._peer.evicts:
            chunks = min(chunks, self._room // self._size)
        at_once = max(chunks // self._batch, 1)
        targets = self._addresses(self._targets, 0)
        while measured.seconds < seconds:
            needed = at_once * self._batch * self._size
            if not self._peer.evicts and self._stored + needed > self._room:
                self._clear()
            for _ in range(at_once):
                first = self._puts
                self._puts += self._batch
                keys = self._make_keys(FIRST_FRESH + first)
                self._put(measured, keys, first)
                if measured.seconds >= seconds:
                    break
            self._peer.rest()
            self._peer.get(keys, targets, self._size)
            self._compare(first, targets, measured)
            self._peer.rest()

    def _run_lookups(self, seconds, measured):
        calls = 0
        while measured.seconds < seconds:
            first = self._window(self._lookups)
            self._lookups = first + self._batch
            found = self._time(measured, 0, self._peer.lookup,
                               self._keys[first:first + self._batch])
            if found != self._batch:
                raise LookupMissed(f"a lookup found {found} of {self._batch} keys")
            calls += 1
            if calls % MAX_LOOKUPS_BETWEEN_RESTS == 0:
                self._peer.rest()
        self._peer.rest()

    def _make_keys(self, first):
        return [self._peer.make_key(first + i, self._batch) for i in range(self._batch)]

    def _window(self, first):
        """Where the next call's keys begin, when the last ended at `first`."""
        return first if first + self._batch <= len(self._keys) else 0

    def _put(self, measured, keys, first):
        self._time(measured, self._size, self._peer.put, keys,
                   self._addresses(self._sources, first), self._size)
        self._stored += len(keys) * self._size

    def _time(self, measured, size, call, *arguments):
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
        self._peer.clear()
        self._stored = 0

    def _addresses(self, region, first):
        """Of the payloads of a call's chunks, or where they are got to, in turn."""
        places = self._region // self._size
        return [region + (first + i) % places * self._size for i in range(self._batch)]

    def _compare(self, first, targets, measured):
        """Chunks from number `first` on, with what was put: it lies at the same place."""
        for got, right in zip(targets, self._addresses(self._right, first)):
            measured.verified_bytes += self._size
            measured.wrong_bytes += memory.count_wrong(got, right, self._size)
