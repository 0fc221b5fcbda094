"""Stands in for Mooncake's peer: chunks in a dictionary. Spoils what it is told to, such as
$SPOILT_GET."""

import ctypes
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.append(str(ROOT / "tools/compare/contestants"))

from contestant import Contestant, main  # noqa: E402


class Dictionary(Contestant):
    version = "of a dictionary"
    evicts = False

    def __init__(self, directory, capacity_bytes):
        self.chunks = {}
        self.most_bytes = 0
        self.gets = self.clears = self.rests = 0
        # Spoils the get of that number, from 1 on.
        self.spoil_get, self.spoil_at = int(os.environ.get("SPOILT_GET", 0)), 0
        self.forgotten = 0  # that a lookup does not find

    def call_keys(self, first, count):
        return range(first, first + count)

    def put(self, keys, addresses, size):
        for key, address in zip(keys, addresses):
            self.chunks[key] = ctypes.string_at(address, size)
        self.most_bytes = max(self.most_bytes, len(self.chunks) * size)

    def get(self, keys, addresses, size):
        for key, address in zip(keys, addresses):
            ctypes.memmove(address, self.chunks[key], size)
            self.gets += 1
            if self.gets == self.spoil_get:
                byte = ctypes.c_ubyte.from_address(address + self.spoil_at)
                byte.value ^= 1

    def lookup(self, keys):
        return sum(key in self.chunks for key in keys) - self.forgotten

    def rest(self):
        self.rests += 1

    def clear(self):
        self.clears += 1
        self.chunks = {}


if __name__ == "__main__":
    main(Dictionary)
