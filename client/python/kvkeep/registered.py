"""Memory of this process that the daemon reads in place, so that a put makes one copy.

    of_mapping(client, address, nbytes)  # existing files in memory, such as /dev/shm's

Memory can also be registered while the daemon is away. Until it is back, or if the daemon cannot
promise what `in_use` says, puts copy as usual.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
from typing import TYPE_CHECKING, Iterator, List, NamedTuple, Optional, Tuple, cast

from kvkeep import _abi
from kvkeep.handle import Handle

if TYPE_CHECKING:
    from kvkeep.client import Client

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+)"
                      r"(?: +(.*))?")


class _Mapping(NamedTuple):
    """A part of the address space: `bytes` at `address`, backed by the file from `offset` on."""

    address: int
    bytes: int
    shared: bool
    offset: int
    file: Tuple[int, int, int]
    path: Optional[str]


class RegisteredMemory(Handle):
    """`nbytes` at `address`, which map the file `fd` from its beginning: a memfd, or a file of
    /dev/shm. They must stay mapped while this lives.

    reused: the memory is written again once its put has ended, at the latest at the put's deadline,
    and `in_use` is False."""

    def __init__(self, client: Client, fd: int, address: int, nbytes: int,
                 reused: bool = False) -> None:
        self.address, self.nbytes = address, nbytes
        handle, error = ctypes.c_void_p(), _abi.Error()
        register = (client.library.kvkeep_memory_register_reused if reused
                    else client.library.kvkeep_memory_register)
        with client.in_use() as owner:
            code = register(owner, fd, address, nbytes, ctypes.byref(handle), ctypes.byref(error))
        if code != 0:
            raise client.exception(error)
        super().__init__(client, handle.value, client.library.kvkeep_memory_unregister)

    @property
    def in_use(self) -> bool:
        """Returns whether the daemon may still read and store a put that ended unanswered. Do not
        change its bytes while this is True. It is False from the put's deadline on, if the daemon
        takes deadlines."""
        kept = self.kept  # another thread may release it while it is used
        return kept.handle is not None and bool(
            self._client.library.kvkeep_memory_in_use(kept.handle))


def of_mapping(client: Client, address: int, nbytes: int,
               reused: bool = False) -> List[RegisteredMemory]:
    """Registers this process's shared memory in that range, whoever mapped it. Returns a list of
    RegisteredMemory, one for each file. Raises ValueError if memory is not shared, or has no
    descriptor here."""
    made = []
    for mapping in _files_at(address, nbytes):
        fd = _open(mapping)
        try:
            of_file = min(mapping.bytes, os.fstat(fd).st_size)
            if mapping.address + of_file < min(address + nbytes, mapping.address + mapping.bytes):
                raise ValueError(f"{mapping.path} has {of_file} bytes, its mapping more")
            made.append(RegisteredMemory(client, fd, mapping.address, of_file, reused))
        finally:
            os.close(fd)
    return made


def _files_at(address: int, nbytes: int) -> List[_Mapping]:
    """Returns each file's whole mapping."""
    at, end = address, address + nbytes
    found: List[_Mapping] = []
    for mapping in _whole_mappings():
        if mapping.address <= at < mapping.address + mapping.bytes and at < end:
            if not mapping.shared or mapping.offset != 0:
                raise ValueError(f"{mapping.path or 'anonymous memory'} is not shared, or not "
                                 "mapped from its beginning")
            found.append(mapping)
            at = mapping.address + mapping.bytes
    if at < end:
        raise ValueError(f"{end - at} bytes at {at:#x} are not mapped")
    return found


def _whole_mappings() -> Iterator[_Mapping]:
    """Yields the original mappings: joins pieces that the kernel has split."""
    last = None
    for mapping in _mappings():
        if last is not None and last.shared == mapping.shared and last.file == mapping.file and (
                last.address + last.bytes == mapping.address) and (
                last.offset + last.bytes == mapping.offset):
            last = last._replace(bytes=last.bytes + mapping.bytes)
            continue
        if last is not None:
            yield last
        last = mapping
    if last is not None:
        yield last


def _mappings() -> Iterator[_Mapping]:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            match = _MAPPING.match(line.rstrip("\n"))
            if match is None:
                continue
            begin, end, rights, offset, major, minor, inode, path = match.groups()
            yield _Mapping(int(begin, 16), int(end, 16) - int(begin, 16), rights[3] == "s",
                           int(offset, 16), (int(major, 16), int(minor, 16), int(inode)), path)


def _open(mapping: _Mapping) -> int:
    """Returns a descriptor of the file: an open one, as its name may be gone, else one opened by
    name."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") != mapping.path:
                continue  # not looked at: its file system may hang
            fd = os.dup(int(name))
        except OSError:
            continue  # closed meanwhile
        if _is(os.fstat(fd), mapping.file):
            return fd
        os.close(fd)  # and another one was opened
    try:
        fd = os.open(cast(str, mapping.path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as why:
        raise ValueError(f"{mapping.path}: no descriptor of it is open here, and {why}") from why
    if _is(os.fstat(fd), mapping.file):
        return fd
    os.close(fd)
    raise ValueError(f"{mapping.path}: another file has its name now")


def _is(found: os.stat_result, file: Tuple[int, int, int]) -> bool:
    device = os.major(found.st_dev), os.minor(found.st_dev)
    return stat.S_ISREG(found.st_mode) and (*device, found.st_ino) == file
