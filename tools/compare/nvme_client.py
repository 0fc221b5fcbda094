"""A client of one daemon that has an NVMe drive, in a process of its own (nvme.py): it puts chunks,
or gets chunks that are on NVMe only: found, leased, read, verified by the daemon and laid open in
its memory.

    nvme_client.py ENDPOINT FLAG    FLAG: a file that all clients share; its byte is 1 when nobody
                                    asks for anything more in this burst

It gets one chunk after the other, each asked for while the one before it is under way, as an engine
does that knows its prefix, holds on to all of them, and compares every byte later. The content of a
chunk follows from its number, so all clients know it. One thread.
"""

import collections
import hashlib
import mmap
import pathlib
import sys
import time

from kvkeep import Client

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "measure"), str(HERE / "contestants")]

from kvkeep_contestant import staging_memory  # noqa: E402
from memory import Pages, Payloads, view  # noqa: E402
from processes import serve  # noqa: E402

PATIENCE_S, ROOM_PATIENCE_S, ROOM_PAUSE_S = 30, 10, 0.02
ASKED_AT_ONCE = 2
SOURCE_BYTES, MOST_PAYLOADS = 64 << 20, 64  # that are put from; unlike each other
PUT_BYTES = 32 << 20  # of a call


def _key(number):
    return hashlib.sha256(b"%d" % number).digest()


class NvmeClient:
    def __init__(self, endpoint, flag):
        self._client = Client(endpoint, name="nvme", timeout=PATIENCE_S, path="local")
        self._namespace = self._client.namespace("compare-nvme", tokens_per_chunk=256)
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
            self._sources = staging_memory(self._client, size * self._count)
            self._payloads.lay(self._source(number) for number in range(self._count))
        if spoilt is not None:
            view(self._source(spoilt), size)[-1] ^= 1
        at_once = max(PUT_BYTES // size, 1)
        for begin in range(first, first + chunks, at_once):
            self._put_call([(_key(number), view(self._source(number), size)) for number in
                            range(begin, min(begin + at_once, first + chunks))])
        return {}

    def _source(self, number):
        return self._sources + number % self._count * self._size

    def _put_call(self, chunks):
        """Waits for room: a slow disk may have all of a small G2 dirty."""
        give_up = time.monotonic() + ROOM_PATIENCE_S
        while not all((stored := self._namespace.put(chunks).raise_for_error()).good):
            if time.monotonic() > give_up:
                raise OSError(f"a chunk was not taken: {stored.why}")
            time.sleep(ROOM_PAUSE_S)  # for the daemon's writes

    def _prepare(self, size, begin, end, at_once):
        """To read the chunks `begin` to `end`, and to hold on to `at_once` of them."""
        self._of_size(size)
        self._begin, self._end, self._next, self._at_once = begin, end, begin, at_once
        self._copy = Pages(size)
        return {}

    def _get(self, seconds):
        cpu, calls_ns = time.process_time_ns(), []
        now = time.monotonic_ns()
        end = now + seconds * 1e9
        while True:
            while len(self._asked) < ASKED_AT_ONCE and not self._burst_is_over[0]:
                if now >= end or len(self._held) + len(self._asked) >= self._at_once:
                    self._burst_is_over[0] = 1
                else:
                    self._ask_for_next()
            if not self._asked:
                return {"calls_ns": calls_ns, "cpu_ns": time.process_time_ns() - cpu}
            number, acquired, asked_at = self._asked.popleft()
            acquired.chunks[0].wait(timeout=PATIENCE_S)
            now = time.monotonic_ns()
            calls_ns.append(now - asked_at)
            self._held.append((number, acquired))

    def _ask_for_next(self):
        number, asked_at = self._next, time.monotonic_ns()
        self._next = number + 1 if number + 1 < self._end else self._begin
        acquired = self._namespace.acquire([_key(number)])
        if acquired.error is not None:
            raise acquired.error
        if [chunk.nbytes for chunk in acquired.chunks] != [self._size]:
            raise OSError("a chunk is not there any more")
        self._asked.append((number, acquired, asked_at))

    def _compare(self):
        """Every byte of what is held, which is let go of."""
        wrong = 0
        for number, acquired in self._held:
            acquired.chunks[0].copy_into([view(self._copy.address, self._size)])
            wrong += self._payloads.count_wrong(number % self._count, self._copy.address)
            self._payloads.spoil(number % self._count, self._copy.address)  # for the next one
            acquired.release()
        verified, self._held = len(self._held) * self._size, []
        return {"verified_bytes": verified, "wrong_bytes": wrong}


if __name__ == "__main__":
    serve(NvmeClient(*sys.argv[1:]).answer)
