"""Invocation: the options of one call of kvkeep-bench, and what follows from them for all that it
measures: the daemon that is started, where clients connect to, what is said meanwhile."""

import contextlib
import pathlib
import sys
import tempfile

from daemon import Daemon
from load import Load

MOST_POOL_BYTES = 512 << 20  # half of what a daemon gives a session
GPU_PATHS = ("cuda-ipc", "pinned")
START_PAUSE_S = 0.001


class Invocation:
    def __init__(self, options, baselines):
        """`options`: of the command line (cli.py). `baselines`: of all that it measures."""
        self.options, self.baselines = options, baselines

    def say(self, what):
        """Tells people at a terminal what is being done now."""
        if self.options.progress:
            print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)

    def say_round(self, what, number, rounds=None):
        self.say(f"{what}: round {number + 1} of {rounds or self.options.rounds}")

    def start_daemon(self, g2_bytes, g3_bytes=0, on_mount=True, copy_threads=None,
                     admission="all", **start):
        """One of our own, on --scratch. Everything may be dirty, leased, reserved or staging
        memory: limits are not what is measured. `start`: as Daemon takes it."""
        options = self.options
        g2 = {"capacity": g2_bytes, "dirty_budget": "100%", "arena": "memfd"}
        if threads := options.copy_threads if copy_threads is None else copy_threads:
            g2["copy_threads"] = threads
        if options.arena_dir and on_mount:
            g2 |= {"arena": "mount", "arena_dir": options.arena_dir,
                   "arena_readonly_dir": options.arena_readonly_dir}
        paths = [{"dir": "{dir}/nvme0", "capacity": g3_bytes}] if g3_bytes else []
        config = {"g2": g2, "g3": {"paths": paths, "admission": admission},
                  "limits": {"leased_bytes": "90%", "reserved_bytes": "50%", "staging": "100%"}}
        return Daemon(options.scratch_dir or tempfile.gettempdir(), config, metrics=False,
                      program=pathlib.Path(options.daemon).absolute(), pause_s=START_PAUSE_S,
                      **start)

    def asked_daemon(self, g2_bytes, g3_bytes):
        """--daemon's, started, as a context manager; of None, where one that runs is used."""
        if not self.options.daemon:
            return contextlib.nullcontext()
        self.say("start kvkeepd")
        return self.start_daemon(g2_bytes, g3_bytes)

    def load_on(self, daemon, clients=1, **target):
        """Clients of a daemon, ours, or the one that the options name where it is None. `target`:
        what is not as the options say."""
        options = self.options
        target = {"endpoint": daemon.endpoint if daemon else options.endpoint,
                  "local_socket": daemon.local_socket if daemon else options.local_socket,
                  "path": "local" if options.path in GPU_PATHS else options.path,
                  "seed": options.seed,
                  "pool_bytes": min(MOST_POOL_BYTES, self.baselines.pool_bytes()), **target}
        admin = daemon.admin_endpoint if daemon else options.admin_endpoint
        return Load(options.client, target, admin, clients,
                    options.daemon_pid or (daemon.pid if daemon else 0))
