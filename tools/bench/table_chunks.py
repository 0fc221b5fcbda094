"""The sections of the table about calls on chunks: gets, lookups, puts, the first piece of a chunk
on NVMe, and hits beside write-back."""

import contextlib
import time

from cases import SMALL_CHUNK_BYTES
from figures import MIB, bytes_text, round_up
from line import difference_line, missing_line, plain_line, ratio_line
from series import Series, Usage

BLOCK_BYTES = 4096
CHUNK_BYTES, LARGE_CHUNK_BYTES = 4 * MIB, 32 * MIB
SMALL_CHUNK_IN_G2 = 2 * BLOCK_BYTES  # header page and one block
LOOKUP_KEYS = 512
PASS_CALL_BYTES, PASS_PATIENCE_S = 32 * MIB, 120
SLICE_SECONDS = 0.1  # of hits: some follow while there is something dirty
HITS_DOUBLINGS = 3  # of the chunks that keep the drive busy
MIN_G2_BYTES = 192 * MIB


def _room_for(chunks, bytes_each):
    """G2 that holds so many chunks, and some more; never so small that a session's staging memory,
    which is limited to a share of it, does not fit."""
    size = chunks * bytes_each + chunks * bytes_each // 32 + 8 * MIB
    return round_up(max(size, MIN_G2_BYTES), 2 * MIB)


# ---- get


def measure_gets(table):
    scale = table.scale
    table.run.say("get: start kvkeepd and put")
    g2_bytes = _room_for(scale.get_keys, CHUNK_BYTES + 2 * BLOCK_BYTES)
    with table.daemon(g2_bytes) as (_, load):
        load.load(0, scale.get_keys, CHUNK_BYTES)
        one, deep, batch = all_series = [
            load.prepare(f"get 4 MiB, batch {batch}, depth {depth}", verb="get", size=CHUNK_BYTES,
                         batch=batch, depth=depth, keys=scale.get_keys,
                         verify=table.options.verify)
            for batch, depth in ((1, 1), (1, 8), (64, 1))]
        for number in range(scale.rounds):
            table.say_round("get", number)
            bare = table.baselines.ping_pong("get", 1, 1, scale.seconds)
            for series in all_series:
                load.run(series, scale.seconds)
            for keys, depth in ((64, 1), (1, 8)):
                table.baselines.ping_pong("get", keys, depth, scale.seconds / 2)
        table.add(ratio_line("get 4 MiB, batch 1, depth 1: rate against bare ping-pong", "/s",
                             one.ops_per_second(), bare.ops_per_second(), ("at least", 0.6)))
        table.add(ratio_line("get 4 MiB, batch 1, depth 1: p99 against bare p99", "us",
                             one.latency_us(0.99), bare.latency_us(0.99), ("at most", 5)))
        table.add(ratio_line("get 4 MiB, depth 8: rate against depth 1", "/s",
                             deep.ops_per_second(), one.ops_per_second(), ("more than", 1)))
        table.add(plain_line("get 4 MiB, batch 64: leases", "/s", batch.chunks_per_second(),
                             ("at least", 1e6)))
        table.keep(*all_series)
        copied = sum(series.total().copied_bytes for series in all_series)
        table.add(plain_line("get 4 MiB: copied by the client", "bytes", [copied], ("at most", 0)))


# ---- lookup


def _prepare_lookups(table, load, chunks, keys, name):
    return load.prepare(name, verb="lookup", size=SMALL_CHUNK_BYTES, batch=keys, keys=chunks,
                        verify=table.options.verify)


@contextlib.contextmanager
def _lookups(table, chunks, on_mount):
    """A daemon with a table of so many small chunks, a client that looks them up, and its series.
    On the mount, if there is one, or beside it: it holds one daemon's arena, and nobody looks at
    bytes."""
    table.run.say(f"lookup: put {chunks} chunks")
    with table.daemon(_room_for(chunks, SMALL_CHUNK_IN_G2),
                      on_mount=on_mount) as (daemon, load):
        load.load(0, chunks, SMALL_CHUNK_BYTES)
        yield daemon, load, _prepare_lookups(table, load, chunks, LOOKUP_KEYS,
                                             f"lookup 512 keys of {chunks}")


def measure_lookups(table):
    scale = table.scale
    with (_lookups(table, scale.small_table, False) as (_, small_load, small),
          _lookups(table, scale.large_table, True) as (daemon, load, large)):
        of_large = f" of {scale.large_table}"
        # A client of the large table over gRPC; it finds what the other one put.
        with table.run.load_on(daemon, path="grpc") as grpc_load:
            grpc = _prepare_lookups(table, grpc_load, scale.large_table, LOOKUP_KEYS,
                                    f"lookup 512 keys{of_large}, gRPC")
            for number in range(scale.rounds):
                table.say_round("lookup", number)
                bare = table.baselines.ping_pong("lookup", LOOKUP_KEYS, 1, scale.seconds)
                small_load.run(small, scale.seconds)
                load.run(large, scale.seconds)
                grpc_load.run(grpc, scale.seconds)
        table.add(difference_line(f"lookup 512{of_large} chunks: p50 beyond the bare round trip",
                                  "us", large.latency_us(0.5), bare.latency_us(0.5),
                                  ("at most", 40)))
        table.add(plain_line(f"lookup 512{of_large} chunks, gRPC: p50", "us",
                             grpc.latency_us(0.5), ("at most", 300)))
        table.add(ratio_line(f"lookup 512: p50 at {scale.large_table} against {scale.small_table} "
                             "chunks", "us", large.latency_us(0.5), small.latency_us(0.5),
                             ("less than", 1.6)))
        table.keep(small, large, grpc)


# ---- put


def _measure_passes(table, size, copy_threads, first, second):
    """One round: a fresh daemon, filled once, over memory that nobody has written yet, then once
    more."""
    batch = max(1, PASS_CALL_BYTES // size)
    with table.daemon(table.scale.put_g2_bytes, copy_threads=copy_threads) as (daemon, load):
        # In the first pass the clock does not stand still while the daemon prefaults.
        for series, verify in ((first, False), (second, table.options.verify)):
            series.about |= load.prepare(series.name, verb="put", size=size, batch=batch, depth=2,
                                         verify=verify).about
        first.about.setdefault("ready_to_first_put_seconds", []).append(
            time.monotonic() - daemon.ready_at)
        chunks = table.scale.put_g2_bytes // (size + 2 * BLOCK_BYTES)
        for series in (first, second):
            load.run(series, PASS_PATIENCE_S, max_ops=max(1, chunks // batch))


def measure_puts(table):
    for size in (CHUNK_BYTES, LARGE_CHUNK_BYTES):
        for copy_threads in (1, table.options.copy_threads):
            alone = copy_threads == 1
            name = f"put {bytes_text(size)}, {'one copy thread' if alone else 'copy pool'}"
            first = Series(f"{name}, first pass", daemon=Usage())
            second = Series(f"{name}, second pass", daemon=Usage())
            copied = []
            for number in range(table.scale.put_rounds):
                table.run.say_round(name, number, table.scale.put_rounds)
                copied.append(
                    table.baselines.copy(size, 1, table.scale.seconds).rounds[-1].gb_per_second)
                table.baselines.copy(size, 2, table.scale.seconds)
                _measure_passes(table, size, copy_threads, first, second)
            table.add(ratio_line(f"{name}: against cold memcpy, 1 thread", "GB/s",
                                 second.gb_per_second(), copied,
                                 ("at least", 0.65 if alone else 0.8)))
            table.add(ratio_line(f"{name}: first pass from READY against second", "GB/s",
                                 first.gb_per_second(), second.gb_per_second(),
                                 ("at least", 0.9)))
            table.keep(first, second)


# ---- pieces


def measure_pieces(table):
    scale = table.scale
    table.run.say("pieces: start kvkeepd, put and write back")
    # Twice G2: taken in turn, every chunk was evicted before it is asked for again.
    with table.daemon(scale.pieces_g2_bytes,
                      4 * scale.pieces_keys * LARGE_CHUNK_BYTES) as (_, load):
        for key in range(scale.pieces_keys):
            load.load(key, 1, LARGE_CHUNK_BYTES, no_g3=False)
            load.await_clean()
        series = load.prepare("G3 hit 32 MiB", verb="pieces", size=LARGE_CHUNK_BYTES,
                              keys=scale.pieces_keys, verify=table.options.verify, no_g3=False)
        for number in range(scale.rounds):
            table.say_round("pieces", number)
            load.run(series, scale.seconds)
        what = "G3 hit 32 MiB: first piece readable against the whole, p50"
        if series.total().first_piece.count == 0:
            table.add(missing_line(what, "only the local path tells pieces"))
        else:
            table.add(ratio_line(what, "us",
                                 series.each(lambda one: one.first_piece.quantile_us(0.5)),
                                 series.latency_us(0.5), ("less than", 0.25)))
        table.keep(series)


# ---- hits
#
# In G2 while write-back keeps the drive busy, and nothing else does anything: puts would take the
# CPU that hits want, and could not keep a drive of today busy. So chunks lie in G2 that are not
# worth a write until they are used again (admission second_use): a quiet slice of gets, then one
# lookup of all of those, and gets for as long as they are written.


class _Hits:
    def __init__(self):
        self.quiet = Series("hits of 4 MiB, quiet", daemon=Usage())
        self.busy = Series("hits of 4 MiB beside write-back", daemon=Usage())
        self.use = Series("use of what is not written", daemon=Usage())  # the lookup
        self.written_gb_per_second = []  # meanwhile
        self.chunks = None  # that are written; grows where the drive is too fast

    def get_while_dirty(self, table, load):
        """Gets until nothing is dirty or the time is up. A slice at whose end nothing was dirty any
        more does not count; where the drive was done before the first one ended, nor does the quiet
        one. Returns whether a slice counted."""
        slices = Series(self.busy.name, self.busy.about, daemon=self.busy.daemon)
        began, took = time.monotonic(), 0
        before = dirty = load.status()["g2_dirty_bytes"]
        while took < table.scale.seconds:
            load.run(slices, min(SLICE_SECONDS, table.scale.seconds))
            now_dirty = load.status()["g2_dirty_bytes"]
            if now_dirty == 0:
                slices.rounds.pop()
                break
            dirty, took = now_dirty, time.monotonic() - began
        if not slices.rounds:
            self.quiet.rounds.pop()
            return False
        self.busy.rounds.append(slices.total())
        self.written_gb_per_second.append((before - dirty) / took / 1e9)
        return True

    def measure_round(self, table):
        """Measures one round. Where the drive was done too soon, tries again with twice the chunks,
        HITS_DOUBLINGS times at most; later rounds begin with as many."""
        if self.chunks is None:
            self.chunks = table.scale.hits_dirty_chunks
        most = table.scale.hits_dirty_chunks << HITS_DOUBLINGS
        while not self.measure_with(table, self.chunks) and self.chunks < most:
            self.chunks *= 2

    def measure_with(self, table, chunks):
        """Measures `chunks` chunks on a daemon that nothing was offered to yet. Returns whether a
        slice counted."""
        scale = table.scale
        size = chunks * CHUNK_BYTES
        with table.daemon(round_up(size // 4 * 5, 2 * MIB), 2 * size,
                          admission="second_use") as (_, load):
            case = {"size": CHUNK_BYTES, "verify": table.options.verify}
            self.quiet.about = self.busy.about = load.prepare(
                self.quiet.name, verb="get", keys=scale.hits_keys, **case).about
            self.use.about = load.prepare(self.use.name, verb="lookup", keys=chunks, batch=chunks,
                                          **case).about
            load.load(0, chunks, CHUNK_BYTES, no_g3=False)
            load.run(self.quiet, scale.seconds)
            load.run(self.use, scale.seconds, max_ops=1)
            return self.get_while_dirty(table, load)


def measure_hits(table):
    hits = _Hits()
    for number in range(table.scale.rounds):
        table.say_round("hits", number)
        hits.measure_round(table)
    what = "hit of 4 MiB in G2 while write-back is at its most: "
    if not hits.busy.rounds:
        table.add(missing_line(f"{what}p50 and p99",
                               "the drive was done before a slice of gets was"))
    else:
        p50 = ratio_line(f"{what}p50 against quiet", "us", hits.busy.latency_us(0.5),
                         hits.quiet.latency_us(0.5), ("at most", 1.2))
        p50.numbers["written_gb_per_second"] = hits.written_gb_per_second
        table.add(p50)
        table.add(difference_line(f"{what}p99 beyond twice the quiet one", "us",
                                  hits.busy.latency_us(0.99),
                                  [2 * us for us in hits.quiet.latency_us(0.99)],
                                  ("at most", 100)))
    table.keep(*(series for series in (hits.quiet, hits.busy, hits.use) if series.rounds))
