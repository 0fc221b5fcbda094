"""kvkeep.sglang on two ranks that ask for the same pages, one of them by a connection that stalls,
while chunks are evicted.

    sglang_ranks_test.py SOURCES LIBRARY KVKEEPD

Every call returns by its deadline and raises nothing. Pages reported as read have the right bytes,
and memory is SGLang's again when a call has returned. SGLang issue 30760 is about ranks that know
different things and wait forever. Uses SGLang's recorded classes and a real daemon.

KVKEEP_CALLS: calls of each kind, on each rank (300 by default); KVKEEP_SEED: which ones.
"""

import contextlib
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
import unittest

from sglang_rig import PIECE, Pool, WithDaemon, indices, keys

from kvkeep.engine import Breaker

LOOKUP_S, TRANSFER_S = 0.2, 0.4
SLACK_S, LONGEST_S = 2.0, 10.0  # on a machine that is not too busy, and on any
STALL_S = 3.0  # whoever waits for its end is late
STALLS_AT = 20  # a turn with a stall, whatever is drawn
KEYS, AT_ONCE = 48, 16
MARK = 0xEE  # of memory that must not be written


class Relay:
    """A proxy between a client and the daemon's socket. Nothing passes while it stalls, and nothing
    is lost."""

    def __init__(self, path, to):
        self.path, self._to, self._over = path, to, False
        self._until, self._armed = 0.0, None  # (bytes until it stalls, for how long)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._peers = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stall(self, seconds, after_bytes):
        """Stalls for this long, once this many more bytes have passed."""
        self._armed = (after_bytes, seconds)

    @property
    def stalls(self):
        return self._armed is not None or time.monotonic() < self._until

    def close(self):
        self._over = True
        self._thread.join()
        for one in (self._listener, *self._peers):
            one.close()

    def _run(self):
        while not self._over:
            if time.monotonic() < self._until:
                time.sleep(0.002)
                continue
            ready, _, _ = select.select([self._listener, *self._peers], [], [], 0.01)
            for one in ready:
                if one is self._listener:
                    self._accept()
                elif one in self._peers and time.monotonic() >= self._until:
                    self._pass(one)

    def _accept(self):
        client, daemon = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
        daemon.connect(self._to)
        self._peers.update({client: daemon, daemon: client})

    def _pass(self, one):
        other, data, most, armed = self._peers[one], b"", 1 << 16, self._armed
        if armed is not None:
            most = min(most, max(armed[0], 1))
        with contextlib.suppress(OSError):
            data = one.recv(most)
            other.sendall(data)
        if armed is not None:
            self._armed = (armed[0] - len(data), armed[1])
            if self._armed[0] <= 0:
                self._until, self._armed = time.monotonic() + armed[1], None
        if not data:
            for end in (one, other):
                del self._peers[end]
                end.close()


class Rank:
    """Asks for one rank as SGLang would: loads the pages that are there, and stores the rest.
    `right(rank, key)` returns the value of a page's first plane; the second plane has another."""

    def __init__(self, rank, backend, seed, relay=None):
        self.rank, self.backend, self.relay = rank, backend, relay
        self.pool, self.drawn = backend.mem_pool_host, random.Random(seed)
        self.stalls = random.Random(seed + 1)  # other draws, so that both ranks ask for the same
        self.waited = dict.fromkeys(("exists", "get", "set"), 0)
        self.seconds, self.found, self.read, self.failure = {}, [], 0, None

    def value(self, key):
        return (key * 2 + self.rank) % 100 + 1

    def run(self, calls):
        try:
            self.mark()
            for _ in range(calls):
                self.turn()
        except BaseException as failure:  # pylint: disable=broad-except  # fails the test's thread
            self.failure = failure

    def turn(self):
        count = self.drawn.randrange(1, AT_ONCE + 1)
        first = self.drawn.randrange(KEYS - count + 1)
        wanted = keys(count, first)
        self.stalls_before = None
        if self.relay and not self.relay.stalls:
            if len(self.found) == STALLS_AT:
                self.stalls_before = "exists"
            elif self.stalls.random() < 0.03:
                self.stalls_before = self.stalls.choice(list(self.waited))
        found = self.timed("exists", self.backend.batch_exists, wanted)
        assert 0 <= found <= count
        self.found.append(found)
        self.check_marks()
        # All of them: a page not found may have come, and a found one may be gone.
        good = self.timed("get", self.backend.batch_get_v1, wanted, indices(range(count)))
        assert len(good) == count and set(good) <= {True, False}
        for page, one in enumerate(good):
            value = self.value(first + page)
            if one:
                self.read += 1
                assert self.pool.read(page) == [{value}, {value + 100}], (page, value)
        self.mark()
        missing = [page for page, one in enumerate(good) if not one]
        if missing:
            for page in missing:
                self.pool.fill(page, self.value(first + page))
            self.timed("set", self.backend.batch_set_v1, [wanted[page] for page in missing],
                       indices(missing))
            self.mark()
        time.sleep(0.06 if self.relay and self.relay.stalls else 0.004)

    def timed(self, name, call, *arguments):
        if name == self.stalls_before:  # in the middle of the request, or of its answer
            self.relay.stall(STALL_S, self.stalls.randrange(40_000))
        begin = time.monotonic()
        answer = call(*arguments)
        took = time.monotonic() - begin
        self.seconds.setdefault(name, []).append(took)
        self.waited[name] += took > LOOKUP_S * 0.9
        return answer

    def mark(self):
        for plane in self.pool.planes:
            plane[:] = bytes([MARK]) * len(plane)

    def check_marks(self):
        """Checks that no call wrote to memory after it had given up."""
        for plane in self.pool.planes:
            assert plane == bytes([MARK]) * len(plane), "a call that is over wrote into memory"


class SGLangRanks(WithDaemon):
    def test_ranks_of_which_one_stalls_beside_evictions(self):
        calls = int(os.environ.get("KVKEEP_CALLS", "300"))
        seed = int(os.environ.get("KVKEEP_SEED", random.randrange(1 << 30)))
        print(f"KVKEEP_SEED={seed}", flush=True)
        relay = Relay(str(self.folder / "relay.sock"), f"{self.daemon.dir}/kvkeep.sock")
        self.addCleanup(relay.close)
        options = {"lookup_timeout_s": LOOKUP_S, "timeout_s": TRANSFER_S}
        ranks = []
        for rank, more in enumerate(({}, {"endpoint": f"unix://{relay.path}", "path": "grpc"})):
            backend = self.backend(Pool(pages=AT_ONCE), {**options, **more}, tp_size=2,
                                   tp_rank=rank)
            backend._link.breaker = Breaker(retry_s=0.05)  # so that some calls wait
            ranks.append(Rank(rank, backend, seed, relay if rank else None))
        over = threading.Event()
        evictor = threading.Thread(target=self.evict, args=(over, random.Random(seed + 2)))
        threads = [threading.Thread(target=one.run, args=(calls,)) for one in ranks]
        for thread in (evictor, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        over.set()
        evictor.join()
        for one in ranks:
            self.report(one)
        for one in ranks:
            if one.failure is not None:
                raise one.failure
            self.check_times(one, calls)
        differ = sum(here != there for here, there in zip(ranks[0].found, ranks[1].found))
        print({"counts that differ": differ, "of": calls, "evictions": self.evictions}, flush=True)
        self.assertGreater(differ, 0)
        self.assertGreater(self.evictions, 0)
        self.check_well(ranks[1])

    def evict(self, over, drawn):
        """Most pages come from DRAM, some from NVMe alone."""
        self.evictions = 0
        while not over.is_set():
            tier = drawn.choice(("g2", "g2", "g3"))
            subprocess.run([*self.daemon._tool(), "evict", "--yes", "--tier", tier,
                            str(drawn.choice((8, 16, 32)) * 2 * PIECE)], check=True,
                           capture_output=True)
            over.wait(0.03)
            tenant = self.daemon.status()["tenants"][0]
            self.evictions = tenant["g2_evictions"] + tenant["g3_evictions"]

    @staticmethod
    def report(one):
        print({"rank": one.rank, **{name: len(times) for name, times in one.seconds.items()},
               "longest": {name: round(max(times), 3) for name, times in one.seconds.items()},
               "waited": one.waited, "found": sum(one.found), "pages read": one.read,
               "given up": one.backend._link.breaker.given_up}, flush=True)

    def check_times(self, one, calls):
        for name, limit in (("exists", LOOKUP_S), ("get", TRANSFER_S), ("set", TRANSFER_S)):
            times = one.seconds.get(name, [])
            if name != "set":
                self.assertEqual(len(times), calls)
            late = [took for took in times if took > limit + SLACK_S]
            self.assertLessEqual(len(late), max(2, calls // 100), (one.rank, name, late))
            self.assertLess(max(times, default=0), LONGEST_S, (one.rank, name))
        self.assertGreater(one.read, 0)
        if one.relay is not None:
            self.assertGreater(sum(one.waited.values()), 0)

    def check_well(self, one):
        """Checks that the rank that stalled stores and finds everything again."""
        wanted = keys(AT_ONCE)
        for page in range(AT_ONCE):
            one.pool.fill(page, one.value(1 + page))

        def well():
            one.backend._link.breaker = Breaker(retry_s=0.05)
            stored = one.backend.batch_set_v1(wanted, indices(range(AT_ONCE)))
            return stored == [True] * AT_ONCE and one.backend.batch_exists(wanted) == AT_ONCE

        deadline = time.monotonic() + 30 + STALL_S
        while not well():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
