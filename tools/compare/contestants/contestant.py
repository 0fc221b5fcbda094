"""Contestant: one way to keep chunks, as compared: kvkeep by one of its paths, another project's
daemon, or a baseline that only moves bytes.

Each is a program of its own: main(SomeContestant) makes one of a class. All are driven by one loop
(slices.py), so that they differ in nothing but this interface. Calls block. One thread, though a
contestant's library may have its own. Failures are raised.
"""

import pathlib
import sys

COMPARE = pathlib.Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(COMPARE), str(COMPARE.parent / "measure")]

from memory import Pages  # noqa: E402
from processes import serve  # noqa: E402
from slices import LookupMissed, Slices  # noqa: E402


class Contestant:
    """Started with servers of its own, ready and of their full size, when its constructor returns.

    It keeps `capacity_bytes` at most; bytes under one key never change. Keys are what call_keys()
    made of a call's chunks. Addresses lie in memory that sources() and targets() gave.
    """

    version = ""
    # Whether a put makes the room that it needs, however full the store is. One that does not is
    # cleared before half of its capacity is used: evicting is never on its time.
    evicts = True
    keeps_bytes = True  # else nothing that is got is compared

    def __init__(self, directory, capacity_bytes):
        """`directory` is there for sockets, files and logs."""

    def servers(self):
        """Process ids of what serves this contestant."""
        return []

    def sources(self, size):
        """Where payloads lie that are to be put: a place of its choice, populated, if it has one.
        It lives as long as the contestant."""
        return Pages(size).address

    def targets(self, size):
        """Where chunks are got to."""
        return Pages(size).address

    def resize(self, size):
        """Chunks are of `size` bytes from now on; what was put may be lost."""

    def call_keys(self, first, count):
        """The keys of one call's chunks, numbers `first` and on; never on the clock. The same
        numbers are always asked for together."""
        raise NotImplementedError

    def forget_outcomes(self, keys):
        """Forgets the outcomes of earlier calls with these keys, so that they are not taken for the
        next call's. Called before each timed call, never on the clock."""

    def put(self, keys, addresses, size):
        """All of it is stored when this returns."""
        raise NotImplementedError

    def get(self, keys, addresses, size):
        """All bytes lie at the addresses when this returns."""
        raise NotImplementedError

    def lookup(self, keys):
        """How many of them are there."""
        raise NotImplementedError

    def lookup_and_get(self, keys, addresses, size):
        """LookupMissed when not all of them are there."""
        found = self.lookup(keys)
        if found != len(addresses):
            raise LookupMissed(f"a lookup found {found} of {len(addresses)} keys")
        self.get(keys, addresses, size)

    def rest(self):
        """Work that its users would do later; never on the clock, between every few calls."""

    def clear(self):
        """Forgets everything."""
        raise NotImplementedError


class Commands:
    """Commands of the contest: start, load, fill, then slices of an operation each."""

    def __init__(self, make):
        self._make = make
        self._slices = None

    def answer(self, command):
        what = command["do"]
        if what == "start":
            contestant = self._make(command["directory"], command["capacity_bytes"])
            self._slices = Slices(contestant, command["capacity_bytes"], command["region_bytes"])
            return {"version": contestant.version, "servers": contestant.servers()}
        if what == "load":
            self._slices.load(command["size"], command["batch"])
            return {}
        if what == "fill":
            return self._slices.fill(command["calls"]).answer()
        return self._slices.run(what, command["seconds"]).answer()


def main(make):
    """Until standard input ends. `make` is a Contestant's class."""
    serve(Commands(make).answer)
