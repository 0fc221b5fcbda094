"""An arm of the comparison on one S3 server: what it must be able to do, and how it is driven.

An arm is a process: main(SomeArm) makes a program of a class. It measures its own times, so no
time of the pipe is in them. Nothing of what is prepared or compared is timed. One thread, though
an arm's library may have its own.
"""

import ctypes
import hashlib
import pathlib
import sys
import time
from typing import NamedTuple

COMPARE = pathlib.Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(COMPARE), str(COMPARE.parent / "measure")]

from memory import Pages, Payloads  # noqa: E402
from processes import serve  # noqa: E402

NOT_LOADED = 0xA5  # what a target holds before a load, so that a load of nothing is seen


class Where(NamedTuple):
    """The bucket. `directory` is for the arm's own files; it is there, and empty."""

    endpoint: str
    bucket: str
    region: str
    credentials: str  # a file: key id and secret, a line each
    connections: int
    directory: str

    def keys(self):
        return pathlib.Path(self.credentials).read_text().split()


class Arm:
    """Failures are raised. `places` are addresses in one region, `size` bytes each, one behind the
    other. Keys are those of a prompt, from the first one on."""

    version = ""

    def __init__(self, where):
        self.where = where

    def begin(self, size, places, region):
        """Begins with nothing known of the bucket, nothing cached. `region`: address and bytes of
        the memory that the places lie in."""

    def end(self):
        """Gives up what begin() made."""

    def pids(self):
        """Processes, beside this one, whose CPU time is this arm's."""
        return []

    def put(self, keys, places):
        """All of it is in the bucket when this returns."""
        raise NotImplementedError

    def look_up(self, keys):
        """How many of them are there, from the first one on without a gap."""
        raise NotImplementedError

    def load(self, keys, places):
        """Loads what a lookup of the same keys just found: all bytes lie at the places then."""
        raise NotImplementedError


def keys_of(prompt, count):
    return [hashlib.sha256(f"{prompt}/{number}".encode()).digest() for number in range(count)]


def _timed(call, *arguments):
    began = time.perf_counter()
    found = call(*arguments)
    return {"seconds": time.perf_counter() - began, "found": found}


class Commands:
    def __init__(self, arm):
        self._arm = arm
        self._size = self._chunks = 0
        self._pages = self._payloads = None

    def answer(self, command):
        return getattr(self, "_" + command.pop("do"))(**command)

    def _hello(self):
        return {"version": self._arm.version}

    def _begin(self, size, chunks):
        self._size, self._chunks = size, chunks
        self._pages, self._payloads = Pages(size * chunks), Payloads(size, chunks)
        self._arm.begin(size, self._places(chunks), (self._pages.address, self._pages.size))
        return {"pids": self._arm.pids()}

    def _end(self):
        self._arm.end()
        self._pages.close()
        self._payloads.close()
        return {}

    def _put(self, prompt, chunks):
        places = self._places(chunks)
        self._payloads.lay(places)
        return _timed(self._arm.put, keys_of(prompt, chunks), places)

    def _lookup(self, prompt, keys):
        return _timed(self._arm.look_up, keys_of(prompt, keys))

    def _load(self, prompt, chunks):
        """Loads the first chunks of the prompt that was looked up last."""
        places = self._places(chunks)
        ctypes.memset(self._pages.address, NOT_LOADED, self._pages.size)
        return _timed(self._arm.load, keys_of(prompt, chunks), places)

    def _compare(self, chunks):
        return {"wrong_bytes": sum(self._payloads.count_wrong(number, place)
                                   for number, place in enumerate(self._places(chunks)))}

    def _places(self, count):
        if count > self._chunks:
            raise ValueError(f"{count} chunks in room for {self._chunks}")
        return [self._pages.address + number * self._size for number in range(count)]


def main(make):
    """Until standard input ends. `make` is an Arm's class; Where's fields are the arguments."""
    commands = []

    def answer(command):
        if not commands:
            commands.append(Commands(make(Where(*sys.argv[1:5], int(sys.argv[5]), sys.argv[6]))))
        return commands[0].answer(command)

    serve(answer)
