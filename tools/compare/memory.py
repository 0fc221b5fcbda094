"""Memory by its address: shared pages of the arena's kind, payloads, copies and comparisons.

As tools/bench/shared_pages.h: a memfd, mapped where huge pages can lie, advised as the arena does
it, every page there before it is used.
"""

import ctypes
import os
import random
import re

HUGE_PAGE_BYTES, PAGE_BYTES = 2 << 20, 4096
PROT_NONE, PROT_READ_WRITE = 0, 3
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE = 1, 2, 0x10, 0x20, 0x4000
MADV_HUGEPAGE, MADV_POPULATE_WRITE = 14, 23
STEP = 64  # payload i begins so many bytes after payload i - 1 in the same random bytes
FILL_STEP_BYTES = 1 << 20
COMPLEMENTS = bytes(255 - byte for byte in range(256))

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

copy = ctypes.memmove  # (to, from, bytes), addresses


def _map(address, size, protection, flags, descriptor):
    mapped = _libc.mmap(address, size, protection, flags, descriptor, 0)
    if mapped in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"cannot map {size} bytes: {os.strerror(ctypes.get_errno())}")
    return mapped


def view(address, size):
    """As a buffer that can be read from and written to."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def populate(address, size):
    """Every page is there from now on, huge ones where the kernel gives them."""
    _libc.madvise(address, size, MADV_HUGEPAGE)  # a hint, as the arena gives it
    if _libc.madvise(address, size, MADV_POPULATE_WRITE) != 0:  # before Linux 5.14
        for at in range(0, size, PAGE_BYTES):
            ctypes.memset(address + at, 0, 1)


class Pages:
    """`size` bytes at `address`, until they are closed; the memfd stays open, as engines' does."""

    def __init__(self, size):
        self.size = -(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        self._descriptor = os.memfd_create("kvkeep-compare", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, self.size)
        self._room = self.size + HUGE_PAGE_BYTES
        self._reserved = _map(None, self._room, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1)
        self.address = _map(-(-self._reserved // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, self.size,
                            PROT_READ_WRITE, MAP_SHARED | MAP_FIXED, self._descriptor)
        populate(self.address, self.size)

    def are_huge(self):
        """Whether the kernel gave huge pages."""
        with open("/proc/self/smaps", encoding="utf-8") as file:
            ours = file.read().partition(f"\n{self.address:x}-")[2]
        found = re.search(r"^ShmemPmdMapped: +(\d+)", ours, re.MULTILINE)
        return found is not None and found[1] != "0"

    def close(self):
        _libc.munmap(self._reserved, self._room)
        os.close(self._descriptor)


class Payloads:
    """Content of chunks: `count` payloads of `size` bytes, all unlike, the same each time. They
    overlap, in memory that nobody else has mapped."""

    def __init__(self, size, count):
        self._size = size
        self._pages = Pages(size + count * STEP)
        generator = random.Random(size)
        for at in range(0, self._pages.size, FILL_STEP_BYTES):
            copy(self._pages.address + at, generator.randbytes(FILL_STEP_BYTES), FILL_STEP_BYTES)

    def address(self, number):
        return self._pages.address + number * STEP

    def lay(self, places):
        """Each payload at its place."""
        for number, place in enumerate(places):
            copy(place, self.address(number), self._size)

    def count_wrong(self, number, got):
        """How many of the bytes at `got` are not those of that payload."""
        return count_wrong(got, self.address(number), self._size)

    def spoil(self, number, got):
        """At `got` is not that payload any more: of each page's worth of bytes the first one is
        another, and the last one of all. Cheap, and enough to see which of them are written."""
        right, spoilt = view(self.address(number), self._size), view(got, self._size)
        for part in (slice(None, None, PAGE_BYTES), slice(self._size - 1, None)):
            spoilt[part] = right[part].tobytes().translate(COMPLEMENTS)

    def close(self):
        self._pages.close()


def count_wrong(got, right, size):
    """How many of the bytes at `got` are not those at `right`."""
    if _libc.memcmp(got, right, size) == 0:
        return 0
    pairs = zip(ctypes.string_at(got, size), ctypes.string_at(right, size))
    return sum(1 for one, other in pairs if one != other)
