"""Memory by its address: shared pages of the arena's kind, copies and comparisons of them.

As tools/bench/shared_pages.h: a memfd, mapped where huge pages can lie, advised as the arena does
it, every page there before it is used. Nothing is given back: it goes with the process.
"""

import ctypes
import os

HUGE_PAGE_BYTES = 2 << 20
PAGE_BYTES = 4096
PROT_NONE, PROT_READ_WRITE = 0, 3
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE = 1, 2, 0x10, 0x20, 0x4000
MADV_HUGEPAGE, MADV_POPULATE_WRITE = 14, 23

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

copy = ctypes.memmove  # (to, from, bytes), addresses


def _map(address, size, protection, flags, descriptor):
    mapped = _libc.mmap(address, size, protection, flags, descriptor, 0)
    if mapped in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"cannot map {size} bytes: {os.strerror(ctypes.get_errno())}")
    return mapped


def populate(address, size):
    """Every page is there from now on, huge ones where the kernel gives them."""
    _libc.madvise(address, size, MADV_HUGEPAGE)  # a hint, as the arena gives it
    if _libc.madvise(address, size, MADV_POPULATE_WRITE) != 0:  # before Linux 5.14
        for at in range(0, size, PAGE_BYTES):
            ctypes.memset(address + at, 0, 1)


def shared_pages(size):
    """The address of `size` bytes."""
    size = -(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    descriptor = os.memfd_create("kvkeep-compare", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size)
    reserved = _map(None, size + HUGE_PAGE_BYTES, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1)
    aligned = -(-reserved // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    address = _map(aligned, size, PROT_READ_WRITE, MAP_SHARED | MAP_FIXED, descriptor)
    os.close(descriptor)
    populate(address, size)
    return address


def private_pages(size):
    """The address of `size` bytes that nobody else can have mapped."""
    return _map(None, size, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1)


def count_wrong(got, right, size):
    """How many of the bytes at `got` are not those at `right`."""
    if _libc.memcmp(got, right, size) == 0:
        return 0
    pairs = zip(ctypes.string_at(got, size), ctypes.string_at(right, size))
    return sum(1 for one, other in pairs if one != other)
