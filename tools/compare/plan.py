"""Plan of a comparison, and how long it may take. Pure functions, plain values."""

import dataclasses
from dataclasses import dataclass, field

from figures import GIB, MIB

ORDINARY_BATCH_SIZE, ORDINARY_BATCH = 4 * MIB, 8
LEAST_NVME_SIZE = 4 * MIB
NVME_SLICES = 4  # a slice beside fio is so many times as long
# With two chunks of 4 MiB asked for by each 32 MiB are under way; of fio, 16 blocks of 1 or 4 MiB.
READERS = 4
QUICK_ROUNDS, QUICK_SLICE_S = 3, 0.08
QUICK_CAPACITY_BYTES, QUICK_NVME_ROUND_BYTES = 512 * MIB, 128 * MIB
LEAST_ROUND_BYTES = 64 * MIB
BARE_MEMORY_BYTES = GIB  # at most, that the bare loop moves: more than caches have
BESIDE_G2_BYTES = 2 * GIB  # clients, fio, the loop, and what the daemon has beside the arena
ROOM = 0.9  # of what is free, that a plan may take
# How long things take, where nothing else runs, memory is touched for the first time at 2 GB/s and
# the drive moves 1 GB/s: rather more than less.
START_S = 0.6  # of a contestant and its servers
FIRST_TOUCHED_PER_S, DRIVE_PER_S = 2e9, 1e9
SLICES_OF_CALL = 3  # get, lookup+get, put
WITH_COMPARING = 1.6  # of a slice's seconds; puts are compared in part
FIO_START_S = 0.2
NVME_CONTESTANTS = 4  # kvkeep, fio in two ways, and the bare loop
QUICK_S = 120


@dataclass
class NvmePlan:
    wanted: list = field(default_factory=list)  # sizes of chunks
    round_bytes: int = 0  # of a round of writes
    seconds: float = 0.0  # of a round of reads, and of fio's
    rounds: int = 0

    def __post_init__(self):
        # So much is taken while nothing of it is written yet.
        self.g2_bytes = 2 * self.round_bytes
        # The most that the readers hold on to; each can hold a chunk, and a round has several.
        self.held_bytes = self.g2_bytes // 2
        self.bare_memory_bytes = min(self.g2_bytes, BARE_MEMORY_BYTES)
        # Bytes that are read: taken in turn, none is in G2 any more when its turn comes again.
        self.read_bytes = 3 * self.g2_bytes
        # And what is put after it, of which G2 is full when reading begins.
        self.put_first_bytes = self.read_bytes + self.g2_bytes
        # With the rounds of first fills, and room to spare.
        self.g3_bytes = self.put_first_bytes + (self.rounds + 2) * self.round_bytes
        self.disk_bytes = self.g3_bytes + self.read_bytes + self.round_bytes  # with fio's files
        self.memory_bytes = self.g2_bytes + BESIDE_G2_BYTES

    @property
    def sizes(self):
        """The wanted sizes that fit; none: NVMe is left out."""
        return [size for size in self.wanted if READERS * size <= self.held_bytes]

    @property
    def too_large(self):
        """The others, for rounds of that size."""
        return [size for size in self.wanted if size not in self.sizes]

    def fitted(self, disk_bytes, memory_bytes):
        """The rounds as large as is wanted, or as the drive and the memory have room. None: not
        even for small ones."""
        plan = self
        while plan.disk_bytes > ROOM * disk_bytes or plan.memory_bytes > ROOM * memory_bytes:
            plan = dataclasses.replace(plan, round_bytes=plan.round_bytes // 2)
            if plan.round_bytes < LEAST_ROUND_BYTES:
                return None
        return plan if plan.sizes else None

    def most_seconds(self):
        if not self.sizes:
            return 0
        fio, fill = self.seconds + FIO_START_S, self.round_bytes / DRIVE_PER_S
        bare_start = self.bare_memory_bytes / FIRST_TOUCHED_PER_S
        reads = 2 * self.seconds + 2 * fio + self.seconds + bare_start  # as long again to compare
        fills = NVME_CONTESTANTS * fill + 2 * FIO_START_S + bare_start
        overwrites = fill + 2 * fio + self.seconds + bare_start
        of_size = (START_S + self.g3_bytes / DRIVE_PER_S
                   + self.rounds * (reads + fills + overwrites))
        return self.read_bytes / DRIVE_PER_S + len(self.sizes) * of_size


@dataclass
class Plan:
    calls: list  # size and batch of each, with contestants that were started for it
    capacity_bytes: int
    region_bytes: int
    seconds: float  # of a slice
    rounds: int
    nvme: NvmePlan

    def most_call_seconds(self, contestants):
        """All contestants with one call: two regions, what is kept, and half of it filled."""
        touched = (2 * self.region_bytes + self.capacity_bytes * 1.5) / FIRST_TOUCHED_PER_S
        slices = self.rounds * SLICES_OF_CALL * self.seconds * WITH_COMPARING
        return contestants * (START_S + touched + slices)

    def most_seconds(self, contestants):
        lookups = contestants * self.rounds * self.seconds
        return (len(self.calls) * self.most_call_seconds(contestants) + lookups
                + self.nvme.most_seconds())


def plan_of(asked, sizes):
    """Each size in each batch that fits a region and half of the capacity. `asked`: the options of
    compare.py."""
    capacity, region = asked.capacity_mib * MIB, asked.region_mib * MIB
    seconds, rounds, round_bytes = asked.seconds, asked.rounds, asked.nvme_round_mib * MIB
    if asked.quick:
        capacity, round_bytes = min(capacity, QUICK_CAPACITY_BYTES), QUICK_NVME_ROUND_BYTES
        seconds, rounds = QUICK_SLICE_S, QUICK_ROUNDS

    def batches(size):
        return asked.batches or ([1, ORDINARY_BATCH] if size == ORDINARY_BATCH_SIZE else [1])

    calls = [(size, batch) for size in sizes for batch in batches(size)
             if size * batch <= min(region, capacity // 2)]
    nvme_sizes = [size for size in sizes if size >= LEAST_NVME_SIZE and not asked.no_nvme]
    return Plan(calls, capacity, region, seconds, rounds,
                NvmePlan(nvme_sizes, round_bytes, NVME_SLICES * seconds, rounds))


class QuickBudget:
    """Keeps --quick within its time: of a plan whose steps turn out to be slower than was reckoned,
    the last ones are left out."""

    def __init__(self):
        self._reckoned = 0  # for the steps that were begun

    def has_room_for(self, most_seconds, elapsed):
        """`most_seconds`: as reckoned for the next step. False: leave it out."""
        pace = max(1, elapsed / self._reckoned) if self._reckoned else 1
        if elapsed + pace * most_seconds > QUICK_S:
            return False
        self._reckoned += most_seconds
        return True
