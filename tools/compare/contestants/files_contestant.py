"""A file a chunk, in the page cache: what a directory on tmpfs or a warm disk gives. Written under
another name and renamed, so that a reader never sees half a file; the oldest is removed."""

import collections
import os
import tempfile

from contestant import Contestant, main
from memory import view


class Files(Contestant):
    def __init__(self, directory, capacity_bytes):
        self._directory = tempfile.mkdtemp(prefix="files-", dir=directory)
        self._capacity = capacity_bytes
        self._paths = collections.deque()  # the oldest first

    def call_keys(self, first, count):
        return [f"{self._directory}/{number:064x}" for number in range(first, first + count)]

    def put(self, keys, addresses, size):
        for path, address in zip(keys, addresses):
            if len(self._paths) >= self._capacity // size:
                os.unlink(self._paths.popleft())
            descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                if os.write(descriptor, view(address, size)) != size:
                    raise OSError(f"{path}: no room")
            finally:
                os.close(descriptor)
            os.rename(path + ".new", path)
            self._paths.append(path)

    def get(self, keys, addresses, size):
        for path, address in zip(keys, addresses):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                if os.readv(descriptor, [view(address, size)]) != size:
                    raise OSError(f"{path} ends early")
            finally:
                os.close(descriptor)

    def lookup(self, keys):
        return sum(os.access(path, os.R_OK) for path in keys)

    def clear(self):
        while self._paths:
            os.unlink(self._paths.popleft())


if __name__ == "__main__":
    main(Files)
