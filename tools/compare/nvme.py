"""NVMe beside fio: how fast kvkeep reads chunks that are on NVMe only and how fast it takes new
ones when each must be written back, against fio on a file of the same directory and in the same
state, with blocks of 1 and of 4 MiB, and against a bare loop that moves as much memory as a cache
has (bare_drive.py).

kvkeep, both fios and the loop run once a round each, and the order moves on by one. kvkeep's
clients are nvme_client.py; they read in bursts, and what the daemon says it read from NVMe is what
counts as read from there. One thread.
"""

import contextlib
import mmap
import pathlib
import sys
import time
from dataclasses import dataclass, field

from bare_drive import BareDrive
from contest import HERE, environment_of, turns
from daemon import ROOMY, Daemon
from figures import MIB, median, ratios
from fio import Fio
from measured import Measured, Slice
from plan import READERS
from processes import Child, cpu_seconds

FIO_BLOCKS = (MIB, 4 * MIB)
BARE = "bare loop"
PARTS = ("read", "first fill", "overwrite")
# At most. Long: at the end of a burst those that are done wait for the last one's chunk.
BURST_S = 5
LEAST_FROM_NVME = 0.98  # of what was read; else some came from memory, or two asked for the same


@dataclass
class BesideFio:
    """kvkeep's rounds, fio's GB/s by size of block, and the bare loop's."""

    kvkeep: list = field(default_factory=list)
    fio: dict = field(default_factory=lambda: {block: [] for block in FIO_BLOCKS})
    bare: list = field(default_factory=list)

    @property
    def better(self):
        """The rounds of the blocks that fio was faster with, by the medians."""
        return max(self.fio.values(), key=median)

    def rates(self):
        return [one.gb_per_s for one in self.kvkeep]

    def of_fio(self):
        """kvkeep's share, round by round."""
        return ratios(self.rates(), self.better)

    def of_bare(self):
        return ratios(self.rates(), self.bare)


@dataclass
class NvmeResult:
    """Results for chunks of one size. Writes last until all of a burst is on NVMe: first fills go
    into space that was never written to, overwrites in the place of chunks evicted for them."""

    size: int
    parts: dict = field(default_factory=lambda: {part: BesideFio() for part in PARTS})
    promoted_bytes: int = 0  # by the daemon, from NVMe, in the rounds of reads

    @property
    def from_nvme(self):
        """The share of the bytes read that the daemon read from NVMe."""
        got = sum(one.bytes for one in self.parts["read"].kvkeep)
        return self.promoted_bytes / got if got else 0

    @property
    def refused(self):
        """`read` was measured, and is no figure of NVMe."""
        return bool(self.parts["read"].kvkeep) and self.from_nvme < LEAST_FROM_NVME


class Bursts:
    """Clients of one daemon, each in a process of its own, that get chunks which are on NVMe only.

    In a burst all begin together, and hold on to what they got. When the first has nothing left to
    ask for, nobody asks any more, and the clock runs until what is under way has come; its bytes
    count as well, as fio ends a timed run. Then the clock stands, nobody reads, and every byte is
    compared and let go of: no client has the drive to itself while others are done or compare.
    Each goes round and round in a part of the chunks that is its own.
    """

    def __init__(self, clients, size, chunks, held_bytes, burst_s=BURST_S):
        """`clients`: connected ones. `held_bytes`: at most, of all in a burst, but a chunk each.
        ValueError: they have not a chunk each."""
        if chunks < len(clients):
            raise ValueError(f"{len(clients)} clients cannot share {chunks} chunks")
        self._clients, self._size, self._burst_s = clients, size, burst_s
        for number, client in enumerate(clients):
            client.ask("prepare", size=size, begin=chunks * number // len(clients),
                       end=chunks * (number + 1) // len(clients),
                       at_once=max(held_bytes // len(clients) // size, 1))

    def run(self, flag, seconds):
        """Bursts until their time comes to `seconds`: a Slice. `flag`: memory that the clients
        share; its byte is 1 when nobody asks any more."""
        measured = Measured()
        while measured.seconds < seconds:
            flag[0] = 0
            begin = time.monotonic_ns()
            gets = self._ask_all("get", seconds=min(self._burst_s, seconds - measured.seconds))
            measured.ns += time.monotonic_ns() - begin
            for one in gets:
                measured.calls_ns += one["calls_ns"]
                measured.cpu_ns += one["cpu_ns"]
            for one in self._ask_all("compare"):
                measured.verified_bytes += one["verified_bytes"]
                measured.wrong_bytes += one["wrong_bytes"]
        measured.bytes = len(measured.calls_ns) * self._size
        return measured.slice()

    def _ask_all(self, what, **arguments):
        for client in self._clients:
            client.send(what, **arguments)
        return [client.receive() for client in self._clients]


class Drive:
    """A daemon on the drive, and its clients: one that puts, and those that read. A context
    manager; `readers` is for tests."""

    def __init__(self, build, directory, config, readers=READERS):
        self._ending = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.push(self._ending)
            self.daemon = Daemon(directory, config)
            self._ending.callback(self.daemon.stop)
            flag = pathlib.Path(self.daemon.directory) / "burst"
            flag.write_bytes(b"\0")
            with open(flag, "r+b") as file:
                self.flag = mmap.mmap(file.fileno(), 1)
            self.writer, *self.readers = (self._client(build, name, flag) for name in
                                          ["writer", *(f"reader {i}" for i in range(readers))])
            undo.pop_all()
        self._put = 0  # chunks so far

    def _client(self, build, name, flag):
        client = Child(name, [sys.executable, "-B", HERE / "nvme_client.py", self.daemon.endpoint,
                              flag], environment_of(build), f"{self.daemon.directory}/{name}.log")
        self._ending.callback(client.stop)
        return client

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ending.close()

    def write_back(self, size, chunks):
        """Puts so many chunks more, and waits until all of them are on NVMe: a Slice. ValueError:
        none, which would never come to any number of bytes."""
        if chunks < 1:
            raise ValueError("no chunks to write back")
        begin = time.monotonic()
        self.writer.ask("put", size=size, first=self._put, chunks=chunks)
        self.daemon.wait_for(lambda: self.daemon.metrics("tier_dirty_bytes")[0])
        self._put += chunks
        return Slice(time.monotonic() - begin, chunks, chunks * size)

    def write_back_until(self, total_bytes, size, chunks):
        while self._put * size < total_bytes:
            self.write_back(size, chunks)

    def promoted_bytes(self):
        return int(self.daemon.metrics('moved_bytes_total{way="promotion"}')[0])


def _run_size(options, plan, directory, fio, bare, result):
    size, chunks = result.size, plan.round_bytes // result.size
    # Under lru nothing that is read in turn is in G2 any more when its turn comes again.
    config = {**ROOMY, "g2": {**ROOMY["g2"], "capacity": plan.g2_bytes, "policy": "lru"},
              "g3": {"admission": "all", "paths": [{"dir": "{dir}/nvme0",
                                                    "capacity": plan.g3_bytes}]}}
    of_fio = {"read": fio.read, "overwrite": fio.overwrite,
              "first fill": lambda block: fio.fill(block, plan.round_bytes)}
    of_bare = {"read": bare.read, "overwrite": bare.overwrite,
               "first fill": lambda: bare.fill(plan.round_bytes)}
    with Drive(options.build, directory, config) as drive:
        drive.write_back_until(plan.put_first_bytes, size, chunks)
        bursts = Bursts(drive.readers, size, plan.read_bytes // size, plan.held_bytes)

        def read():
            before, cpu = drive.promoted_bytes(), cpu_seconds([drive.daemon.pid])
            one = bursts.run(drive.flag, plan.seconds)
            one.server_cpu_s = cpu_seconds([drive.daemon.pid]) - cpu
            result.promoted_bytes += drive.promoted_bytes() - before
            return one

        for part in PARTS:
            if part == "overwrite":  # each byte was written once: what is new takes a place
                drive.write_back_until(plan.g3_bytes, size, chunks)
            figures = result.parts[part]
            for _, who in turns(plan.rounds, [*FIO_BLOCKS, BARE, None]):
                if who in FIO_BLOCKS:
                    figures.fio[who].append(of_fio[part](who))
                elif who == BARE:
                    figures.bare.append(of_bare[part]())
                else:
                    figures.kvkeep.append(read() if part == "read"
                                          else drive.write_back(size, chunks))


def compare_with_fio(options, plan, directory, results):
    """Adds a result for each size of the plan; it has what was measured also when this fails.
    FioAbsent, FioFailed, BareDriveFailed, ChildFailed, OSError. `options`: of compare.py."""
    fio = Fio(directory, plan.read_bytes, plan.seconds)
    bare = BareDrive(directory, plan.read_bytes, plan.seconds, plan.bare_memory_bytes)
    for size in plan.sizes:
        results.append(NvmeResult(size))
        _run_size(options, plan, directory, fio, bare, results[-1])
