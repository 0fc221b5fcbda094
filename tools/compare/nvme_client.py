"""A client of one daemon that has an NVMe drive, in a process of its own (nvme.py): it puts chunks,
or gets chunks that are on NVMe only: found, leased, read, verified by the daemon and laid open in
its memory.

    nvme_client.py ENDPOINT FLAG    FLAG: a file that all clients share; its byte is 1 when nobody
                                    asks for anything more in this burst

It gets one chunk after the other, each asked for while the one before it is under way, as an engine
does that knows its prefix, holds on to all of them, and compares every byte later. What a chunk
holds follows from its number, so whoever put it, all know it. One thread.
"""

import collections
import ctypes
import mmap
import sys
import time

from kvkeep import Client, _abi

from kvkeep_contestant import STORED, Caller, keys_array, put_chunks, tune_malloc
from memory import Pages, Payloads, count_wrong, view
from processes import serve

PATIENCE_S, ALL_PIECES = 30, 0xFFFFFFFF
PRESENT = 2
ASKED_AT_ONCE = 2
SOURCE_BYTES, MOST_PAYLOADS = 128 << 20, 64  # that are put from; unlike each other
PUT_BYTES = 32 << 20  # of a call
ROOM_PATIENCE_S, ROOM_PAUSE_S = 10, 0.02


class NvmeClient:
    def __init__(self, endpoint, flag):
        tune_malloc()
        self._client = Client(endpoint, name="nvme", timeout=PATIENCE_S, path="local")
        self._namespace = self._client.namespace("compare-nvme", tokens_per_chunk=256)
        self._call, self._library = Caller(self._client), self._client.library
        with open(flag, "r+b") as file:
            self._burst_is_over = mmap.mmap(file.fileno(), 1)
        self._payloads, self._size = None, 0
        self._asked = collections.deque()  # not all there yet, in order
        self._held = []

    def answer(self, command):
        return getattr(self, "_" + command.pop("do"))(**command)

    def _of_size(self, size):
        if size != self._size:
            self._size, self._count = size, min(max(SOURCE_BYTES // size, 1), MOST_PAYLOADS)
            self._payloads, self._sources = Payloads(size, self._count), None

    def _put(self, size, first, chunks, spoilt=None):
        """`spoilt`: a chunk whose last byte is to be another, for tests."""
        self._of_size(size)
        if self._sources is None:
            self._sources = Pages(size * self._count)
            self._payloads.lay(self._source(number) for number in range(self._count))
        last_byte = self._source(spoilt or 0) + size - 1
        ctypes.memset(last_byte, view(last_byte, 1)[0] ^ (spoilt is not None), 1)
        at_once = max(PUT_BYTES // size, 1)
        for begin in range(first, first + chunks, at_once):
            self._put_call(range(begin, min(begin + at_once, first + chunks)))
        return {}

    def _source(self, number):
        return self._sources.address + number % self._count * self._size

    def _put_call(self, numbers):
        """Waits for room: a slow disk may have all of a small G2 dirty."""
        count = len(numbers)
        buffers, stored = (_abi.Buffer * count)(), (ctypes.c_uint32 * count)()
        for number, buffer in zip(numbers, buffers):
            buffer.data, buffer.bytes = self._source(number), self._size
        request = _abi.make(
            _abi.PutRequest, ns=self._namespace.handle, chunk_count=count, outcomes=stored,
            chunks=put_chunks(keys_array(numbers[0], count), buffers))
        give_up = time.monotonic() + ROOM_PATIENCE_S
        while True:
            self._call("kvkeep_put", ctypes.byref(request))
            if all(status in (STORED, PRESENT) for status in stored):
                return
            if time.monotonic() > give_up:
                raise OSError(f"a chunk was not taken: {self._call.error.message.decode()}")
            time.sleep(ROOM_PAUSE_S)  # for the daemon's writes

    def _prepare(self, size, begin, end, at_once):
        """To read the chunks `begin` to `end`, and to hold on to `at_once` of them."""
        self._of_size(size)
        self._begin, self._end, self._next, self._at_once = begin, end, begin, at_once
        return {}

    def _get(self, seconds):
        begin, cpu, calls = time.monotonic(), time.process_time(), 0
        now = begin
        while True:
            while len(self._asked) < ASKED_AT_ONCE and not self._burst_is_over[0]:
                if now - begin >= seconds or len(self._held) + len(self._asked) >= self._at_once:
                    self._burst_is_over[0] = 1
                else:
                    self._ask_for_next()
            if not self._asked:
                return {"calls": calls, "cpu_s": time.process_time() - cpu}
            number, acquired = self._asked.popleft()
            self._held.append((number, acquired))
            if self._library.kvkeep_acquired_wait(acquired, 0, ALL_PIECES, PATIENCE_S * 1000,
                                                  ctypes.byref(self._call.error)) != 0:
                raise self._client.exception(self._call.error)
            now = time.monotonic()
            calls += 1

    def _ask_for_next(self):
        number = self._next
        self._next = number + 1 if number + 1 < self._end else self._begin
        request = _abi.make(_abi.AcquireRequest, keys=_abi.Keys(
            ns=self._namespace.handle, keys=keys_array(number, 1), key_count=1))
        reply = _abi.make(_abi.AcquireReply)
        self._call("kvkeep_acquire", ctypes.byref(request), ctypes.byref(reply))
        if reply.chunk_count != 1:
            raise OSError("a chunk is not there any more")
        self._asked.append((number, reply.acquired))

    def _compare(self):
        """Every byte of what is held, which is let go of."""
        verified = wrong = 0
        for number, acquired in self._held:
            chunk = self._library.kvkeep_acquired_chunks(acquired)[0]
            right, at = self._payloads.address(number % self._count), 0
            for run in chunk.runs[:chunk.run_count]:
                wrong += count_wrong(run.data, right + at, min(run.bytes, self._size - at))
                at += run.bytes
            wrong += abs(self._size - at)  # what is missing is as wrong as can be
            verified += self._size
            # What was looked at may have been other bytes: this promised nothing any more.
            if not self._library.kvkeep_acquired_valid(acquired):
                raise OSError("a lease was revoked")
            self._library.kvkeep_acquired_release(acquired)
        self._held = []
        return {"verified_bytes": verified, "wrong_bytes": wrong}


if __name__ == "__main__":
    serve(NvmeClient(*sys.argv[1:]).answer)
