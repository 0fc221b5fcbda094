"""Contest: the contestants, each in a process of its own with servers of its own, and rounds in
which each has one slice.

The order moves on by one each round, so that nobody always follows the same neighbour. Contestants
are programs (contestants/); those of other projects are run by the interpreter of the environment
that they are installed in. One thread.
"""

import contextlib
import pathlib
import sys
from dataclasses import dataclass, field

from figures import ratios
from measured import Slice
from processes import Child, ChildFailed, cpu_seconds

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONTESTANTS = HERE / "contestants"
LMCACHE, MOONCAKE = "LMCache", "Mooncake"
LOCAL, STAGING = "kvkeep local", "kvkeep staging"
GRPC, STREAM, MEMCPY = "kvkeep gRPC", "gRPC stream", "memcpy"  # and what is beside it
# Contestants and their programs; the others are reported as shares of the first.
PROGRAMS = {MEMCPY: ["memcpy_contestant.py"],
            LOCAL: ["kvkeep_contestant.py", "local"],
            STAGING: ["kvkeep_contestant.py", "staging"],
            GRPC: ["kvkeep_contestant.py", "gRPC"],
            "kvkeep TCP": ["kvkeep_contestant.py", "TCP"],
            "kvkeep bulk": ["kvkeep_contestant.py", "bulk"],
            "kvkeep bulk TCP": ["kvkeep_contestant.py", "bulk TCP"],
            STREAM: ["stream_contestant.py"],
            "Redis": ["redis_contestant.py"],
            "Redis TCP": ["redis_contestant.py", "TCP"],
            "files": ["files_contestant.py"],
            LMCACHE: ["lmcache_peer.py"],
            MOONCAKE: ["mooncake_peer.py"]}
PEERS = (LMCACHE, MOONCAKE)
MAY_BE_ABSENT = ("Redis", "Redis TCP", *PEERS)  # which somebody else installs


def environment_of(build):
    """Variables by which our Python programs find the client, its library and the daemon. They find
    their own modules by themselves: servers of others inherit this, and our names must not hide
    theirs."""
    return {"KVKEEP_BUILD": str(build), "PYTHONDONTWRITEBYTECODE": "1",
            "KVKEEP_CLIENT_LIBRARY": str(build / "lib/libkvkeep-client.so.1"),
            "PYTHONPATH": str(ROOT / "client/python")}


def turns(rounds, everybody):
    """(round, who): everybody once a round, and who is first moves on by one."""
    for turn in range(rounds):
        first = turn % len(everybody)
        for one in everybody[first:] + everybody[:first]:
            yield turn, one


@dataclass
class Discipline:
    """Results of all contestants in one operation: name -> a slice of each round."""

    operation: str  # "get"; "first put": into stores that were just started
    size: int  # of a chunk
    batch: int  # chunks, or keys, of a call
    results: dict = field(default_factory=dict)

    def each(self, name, figure):
        """One figure of each round; empty: that one was not there."""
        return [getattr(one, figure) for one in self.results.get(name, ())]

    def times_as_fast(self, ours, theirs):
        """How many times as fast `ours` was, round by round: of lookups by the median call."""
        if self.operation == "lookup":
            return ratios(self.each(theirs, "p50_us"), self.each(ours, "p50_us"))
        return ratios(self.each(ours, "gb_per_s"), self.each(theirs, "gb_per_s"))


class Contest:
    """A context manager: what was started ends with it."""

    def __init__(self, options, plan, directory, say):
        """Starts those that are wanted, with stores that nobody has touched yet. `options`: of
        compare.py. `directory`: a fresh one. `say` hears who is started, and why one is not there.
        ChildFailed: one of ours did not start."""
        self._plan, self._untouched = plan, True
        self._children, self._servers, self.versions = {}, {}, {}
        self._ending = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.push(self._ending)
            for name in PROGRAMS:
                if not options.only or name in options.only:
                    say(f"starting {name}")
                    self._start_if_there(name, options, directory, say)
            if not self._children:
                raise ChildFailed("nobody to compare")
            undo.pop_all()

    @property
    def names(self):
        return list(self._children)

    def _start_if_there(self, name, options, directory, say):
        try:
            self._start(name, options, directory)
        except (ChildFailed, OSError) as failure:
            if name not in MAY_BE_ABSENT:
                raise ChildFailed(f"{name} did not start: {failure}") from failure
            say(f"{name} is not there: {failure}")

    def _start(self, name, options, directory):
        program = [CONTESTANTS / PROGRAMS[name][0], *PROGRAMS[name][1:]]
        python = sys.executable
        if name in PEERS:
            environment = {LMCACHE: options.lmcache, MOONCAKE: options.mooncake}[name]
            if environment is None:
                raise OSError("no environment was named that has it")
            python, program = environment / "bin/python3", [options.peers / PROGRAMS[name][0]]
        own = pathlib.Path(directory) / str(list(PROGRAMS).index(name))  # short: for sockets
        own.mkdir()
        child = Child(name, [python, "-B", *program], environment_of(options.build), own / "log")
        with contextlib.ExitStack() as undo:
            undo.callback(child.stop)
            started = child.ask("start", directory=str(own),
                                capacity_bytes=self._plan.capacity_bytes,
                                region_bytes=self._plan.region_bytes)
            self._ending.push(undo.pop_all())
        self._children[name], self._servers[name] = child, started["servers"]
        if started["version"]:
            self.versions[name] = started["version"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ending.close()

    def run(self, operations, size, keys, batch):
        """Fills in `keys` chunks of `size` bytes, then runs the rounds of one operation after the
        other, in calls of `batch` chunks: a Discipline each. The first filling is one too, in as
        many rounds as it has calls, or fewer."""
        for child in self._children.values():
            child.ask("load", size=size, batch=batch)
        calls = max(keys // batch, 1)
        parts = min(self._plan.rounds, calls)
        filling = Discipline("first put", size, batch)
        for part, name in turns(parts, self.names):
            self._take(filling, name, "fill",
                       calls=calls * (part + 1) // parts - calls * part // parts)
        found, self._untouched = [filling] if self._untouched else [], False
        for operation in operations:
            found.append(Discipline(operation, size, batch))
            for _, name in turns(self._plan.rounds, self.names):
                self._take(found[-1], name, operation, seconds=self._plan.seconds)
        return found

    def _take(self, discipline, name, command, **arguments):
        before = cpu_seconds(self._servers[name])
        one = Slice(**self._children[name].ask(command, **arguments))
        one.server_cpu_s = cpu_seconds(self._servers[name]) - before
        discipline.results.setdefault(name, []).append(one)
