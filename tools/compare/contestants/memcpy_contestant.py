"""A copy from cold memory to cold memory: what the machine can do. Get and put are that, a lookup
counts. Chunks lie one after the other in pages like the arena's; the oldest is written over."""

from contestant import Contestant, main
import memory


class Memcpy(Contestant):
    def __init__(self, directory, capacity_bytes):
        self._pages = memory.Pages(capacity_bytes)
        self.clear()

    def clear(self):
        self._places, self._oldest = {}, []  # by chunk; in order, to be written over in turn
        self._puts = 0

    def call_keys(self, first, count):
        return range(first, first + count)

    def put(self, keys, addresses, size):
        slots = self._pages.size // size
        for key, address in zip(keys, addresses):
            slot = self._puts % slots
            if self._puts >= slots:
                del self._places[self._oldest[slot]]
                self._oldest[slot] = key
            else:
                self._oldest.append(key)
            self._puts += 1
            self._places[key] = place = self._pages.address + slot * size
            memory.copy(place, address, size)

    def get(self, keys, addresses, size):
        for key, address in zip(keys, addresses):
            memory.copy(address, self._places[key], size)

    def lookup(self, keys):
        return sum(map(self._places.__contains__, keys))


if __name__ == "__main__":
    main(Memcpy)
