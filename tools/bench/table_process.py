"""The sections of the table about the daemon as a process, as /proc shows it: its first touch of
its arena, and what it holds and does at rest; and the one about two drives instead of one."""

import json
import os
import pathlib
import time

from figures import GIB, MIB
from line import missing_line, plain_line, ratio_line
from proc_status import resident_beside_shared_bytes, resident_shared_bytes, wake_ups
from processes import run as run_program

MOST_TOUCH_THREADS = 4  # of the daemon's copy pool, unless it is configured
TOUCH_BEGUN, TOUCH_PATIENCE_S, LOOK_PAUSE_S = 16 * MIB, 120, 0.001
DEVICES_PATIENCE_S = 3600
CONNECTIONS, REST_CHUNK_BYTES, REST_BATCH, REST_KEYS = 16, 4 * MIB, 2, 32
REST_POOL_BYTES = 16 * MIB  # of each client
REST_PATIENCE_S = 600


# ---- prefault: how fast a daemon that starts brings its pages there, beside as many threads of
# ours that do nothing else


class _Touched:
    """Between the first look that shows some of the arena and the first that shows all."""

    def __init__(self, size):
        self._size, self._begun = size, None
        self.gb_per_second = None

    def look(self, pid):
        there, now = resident_shared_bytes(pid), time.monotonic()
        if self._begun is None and there >= min(TOUCH_BEGUN, self._size // 8):
            self._begun = now, min(there, self._size)
        if self._begun is not None and self.gb_per_second is None and there >= self._size:
            seconds = max(now - self._begun[0], LOOK_PAUSE_S)  # it was looked once in that time
            self.gb_per_second = (self._size - self._begun[1]) / seconds / 1e9


def _daemons_touch(table, size):
    """GB/s."""
    touched = _Touched(size)
    with table.run.start_daemon(size, meanwhile=touched.look) as daemon:
        give_up = time.monotonic() + TOUCH_PATIENCE_S
        while touched.gb_per_second is None:
            touched.look(daemon.pid)
            if time.monotonic() > give_up:
                raise OSError("the arena is not touched")
            time.sleep(LOOK_PAUSE_S)  # for another process
    return touched.gb_per_second


def measure_prefault(table):
    size = table.scale.put_g2_bytes
    threads = table.options.copy_threads or min(os.cpu_count() or 1, MOST_TOUCH_THREADS)
    daemons, ours = [], []
    for number in range(table.scale.rounds):
        table.say_round("prefault", number)
        # Pages that somebody has just given back come sooner: each is the first in turn.
        for is_daemon in (number % 2 == 0, number % 2 != 0):
            if is_daemon:
                daemons.append(_daemons_touch(table, size))
            else:
                ours.append(table.baselines.touch_gb_per_second(size, threads))
    word = "thread" if threads == 1 else "threads"
    line = ratio_line(f"prefault: against a touch by {threads} {word}", "GB/s", daemons, ours,
                      ("at least", 0.8))
    line.numbers["bytes"] = size
    table.add(line)


# ---- devices: a machine that measures has one drive, so two are simulated, under the store alone,
# by kvkeep-devices-bench (tests/bench/store), which is built beside the daemon. It measures; judged
# is here


def measure_devices(table):
    scale = table.scale
    program = pathlib.Path(table.options.daemon).absolute().with_name("kvkeep-devices-bench")
    if not program.exists():
        table.add(missing_line("two simulated drives against one",
                               "build kvkeep-devices-bench, too"))
        return
    table.run.say(f"devices: {scale.rounds} rounds")
    said, code = run_program([program, "--json", "--mib", scale.device_bytes // MIB, "--rounds",
                              scale.rounds, "--seconds", scale.seconds], DEVICES_PATIENCE_S)
    try:
        found = json.loads(said)
    except ValueError:
        code = code or 1
    if code != 0:
        raise OSError(f"{program}: {said}")
    of = (f"two simulated drives of {found['bytes_per_second'] / 1e6:g} MB/s and "
          f"{found['latency_us']} us against one: ")
    table.add(ratio_line(f"{of}reads", "GB/s", found["read_two"], found["read_one"],
                         ("at least", 1.9)))
    table.add(ratio_line(f"{of}write-back", "GB/s", [found["written_two"]],
                         [found["written_one"]]))


# ---- rest


def _move_bytes(table, load):
    """Half of it put, half of it got."""
    calls = table.scale.rest_bytes // 2 // CONNECTIONS // (REST_BATCH * REST_CHUNK_BYTES) + 1
    load.load(0, REST_KEYS, REST_CHUNK_BYTES)
    for verb in ("get", "put"):
        series = load.prepare(f"{verb} 4 MiB, batch 2, gRPC, 16 connections", verb=verb,
                              size=REST_CHUNK_BYTES, batch=REST_BATCH, keys=REST_KEYS,
                              verify=table.options.verify)
        load.run(series, REST_PATIENCE_S, max_ops=calls)
        table.keep(series)


def _wake_ups_line(before, after, seconds):
    """In all, and in the JSON which threads they were."""
    by_thread = {name: max(count - before.get(name, 0), 0) / seconds
                 for name, count in after.items()}
    line = plain_line("idle, 16 clients connected: wake-ups", "/s", [sum(by_thread.values())],
                      ("at most", 10))
    line.numbers["by_thread"] = {name: rate for name, rate in by_thread.items() if rate > 0}
    return line


def measure_rest(table):
    scale = table.scale
    table.run.say("rest: move bytes over 16 connections of gRPC")
    # Not on a mount: shared memory is told apart by the kernel.
    with table.run.start_daemon(GIB, on_mount=False) as daemon:
        fresh_bytes = resident_beside_shared_bytes(daemon.pid)
        with table.run.load_on(daemon, CONNECTIONS, path="grpc",
                               pool_bytes=REST_POOL_BYTES) as load:
            _move_bytes(table, load)
            table.run.say("rest: wait")
            # Its clients are still connected.
            time.sleep(scale.rest_seconds * 2 / 3)  # for the daemon to come to rest
            before, began = wake_ups(daemon.pid), time.monotonic()
            time.sleep(scale.rest_seconds / 3)  # for nothing: that is what is measured
            after, seconds = wake_ups(daemon.pid), time.monotonic() - began
            resident_bytes = resident_beside_shared_bytes(daemon.pid)
    line = plain_line(f"{scale.rest_seconds:g} s after {scale.rest_bytes / 1e9:.2g} GB of gRPC "
                      "on 16 connections: resident beside the arena", "MiB",
                      [resident_bytes / MIB], ("at most", 300))
    line.numbers |= {"bytes_moved": scale.rest_bytes, "seconds_of_rest": scale.rest_seconds,
                     "resident_bytes_when_fresh": fresh_bytes}
    table.add(line)
    table.add(_wake_ups_line(before, after, seconds))
