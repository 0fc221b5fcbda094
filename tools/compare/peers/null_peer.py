#!/usr/bin/env python3
"""What the loop in slices.py itself costs: null_peer.py prints it, of calls that do nothing."""

import memory
from peer import Peer
from slices import Slices

REGION, SIZE, SECONDS = 64 << 10, 1 << 10, 0.002  # of what is timed


class Null(Peer):
    evicts = True

    def __init__(self):
        super().__init__("", REGION)
        self._place = memory.shared_pages(REGION)

    def memory(self, size):
        return self._place  # what is got is there already

    def make_key(self, number, batch):
        return number

    def put(self, keys, addresses, size):
        pass

    def get(self, keys, addresses, size):
        pass

    def lookup(self, keys):
        return len(keys)

    def clear(self):
        pass


def main():
    for batch in (1, 8):
        slices = Slices(Null(), REGION, REGION)
        slices.load(SIZE, batch)
        slices.fill(1)
        for operation in ("get", "lookup+get", "put", "lookup"):
            calls = sorted(slices.run(operation, SECONDS).calls_ns)
            print(f"{operation} of {batch}: {calls[len(calls) // 2]} ns")


if __name__ == "__main__":
    main()
