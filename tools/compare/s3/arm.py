"""An arm of the comparison on one S3 server: what it must be able to do, and how it is driven.

An arm is a process. It reads a command a line from its standard input and writes an answer a line
to its standard output, both JSON. serve(SomeArm) makes a program of a class; bare_curl.cc answers
the same commands. It measures its own times, so no time of the pipe is in them. Nothing of what
is prepared or compared is timed. One thread, though an arm's library may have its own.
"""

import ctypes
import hashlib
import json
import mmap
import os
import pathlib
import random
import sys
import time
import traceback
from typing import NamedTuple

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "peers"))

import memory  # noqa: E402

STEP = 64  # payload i begins so many bytes after payload i - 1 in the same random bytes
FILL_STEP_BYTES = 1 << 20
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
    """Failures are raised. `places` are addresses in one region, `size` bytes each."""

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


class Pages:
    """Populated memory of our own, until it is closed: a memfd, as engines have for their host KV,
    whose descriptor stays open."""

    def __init__(self, size):
        self._descriptor = os.memfd_create("kvkeep-compare-s3", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, size)
        self._map = mmap.mmap(self._descriptor, size)
        self._view = ctypes.c_char.from_buffer(self._map)
        self.address, self.size = ctypes.addressof(self._view), size
        memory.populate(self.address, size)

    def close(self):
        self._view = None
        self._map.close()
        os.close(self._descriptor)


class Payloads:
    """What the chunks of every prompt hold: for each number of a chunk other bytes."""

    def __init__(self, size, chunks):
        self._pages = Pages(size + chunks * STEP)
        generator = random.Random(size)
        for at in range(0, self._pages.size, FILL_STEP_BYTES):
            step = min(FILL_STEP_BYTES, self._pages.size - at)
            memory.copy(self._pages.address + at, generator.randbytes(step), step)

    def address(self, number):
        return self._pages.address + number * STEP

    def close(self):
        self._pages.close()


class Commands:
    def __init__(self, arm):
        self._arm = arm
        self._size = self._chunks = 0
        self._pages = self._payloads = None

    def answer(self, command):
        return getattr(self, "_do_" + command["do"])(command)

    def _do_hello(self, _):
        return {"version": self._arm.version}

    def _do_begin(self, command):
        self._size, self._chunks = command["size"], command["chunks"]
        self._pages = Pages(self._size * self._chunks)
        self._payloads = Payloads(self._size, self._chunks)
        self._arm.begin(self._size, self._places(self._chunks),
                        (self._pages.address, self._pages.size))
        return {"pids": self._arm.pids()}

    def _do_end(self, _):
        self._arm.end()
        self._pages.close()
        self._payloads.close()
        return {}

    def _do_put(self, command):
        count = command["chunks"]
        places = self._places(count)
        for number, place in enumerate(places):
            memory.copy(place, self._payloads.address(number), self._size)
        keys = keys_of(command["prompt"], count)
        began = time.perf_counter()
        self._arm.put(keys, places)
        return {"seconds": time.perf_counter() - began}

    def _do_lookup(self, command):
        keys = keys_of(command["prompt"], command["keys"])
        began = time.perf_counter()
        found = self._arm.look_up(keys)
        return {"seconds": time.perf_counter() - began, "found": found}

    def _do_load(self, command):
        """Of the first chunks of the prompt that was looked up last."""
        places = self._places(command["chunks"])
        ctypes.memset(self._pages.address, NOT_LOADED, self._pages.size)
        keys = keys_of(command["prompt"], command["chunks"])
        began = time.perf_counter()
        self._arm.load(keys, places)
        return {"seconds": time.perf_counter() - began}

    def _do_compare(self, command):
        return {"wrong_bytes": sum(
            memory.count_wrong(place, self._payloads.address(number), self._size)
            for number, place in enumerate(self._places(command["chunks"])))}

    def _places(self, count):
        if count > self._chunks:
            raise ValueError(f"{count} chunks in room for {self._chunks}")
        return [self._pages.address + number * self._size for number in range(count)]


def serve(make):
    """Until standard input ends. `make` is an Arm's class; Where's fields are the arguments."""
    where = Where(*sys.argv[1:5], int(sys.argv[5]), sys.argv[6])
    # What a library prints goes to standard error, so that it is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    commands = None
    for line in sys.stdin:
        try:
            commands = commands or Commands(make(where))
            answer = commands.answer(json.loads(line))
        except Exception as error:  # whatever an arm's library may raise: the contest says it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
