"""The bare loop: libcurl's multi interface gets whole objects into memory, and puts them from there
(bare_curl.cc). It knows of no lookup; one that is asked for makes the connections."""

import ctypes

from arm import Arm, main
from daemon import built


class Bare(Arm):
    version = "libcurl"

    def __init__(self, where):
        super().__init__(where)
        self._library = ctypes.CDLL(built("lib/libkvkeep-bare-s3.so"))
        self._library.bare_s3_begin.restype = ctypes.c_void_p
        self._library.bare_s3_move.restype = ctypes.c_uint64
        self._loop = None

    def begin(self, size, places, region):
        self._size, self._places = size, places
        self._loop = ctypes.c_void_p(self._library.bare_s3_begin(
            self.where.region.encode(), ":".join(self.where.keys()).encode(),
            ctypes.c_long(self.where.connections)))

    def end(self):
        self._library.bare_s3_end(self._loop)

    def put(self, keys, places):
        self._move_all(True, keys, places)

    def look_up(self, keys):
        return self._move(False, keys[:len(self._places)], self._places)

    def load(self, keys, places):
        self._move_all(False, keys, places)

    def _move(self, puts, keys, places):
        """How many succeeded. Objects are named by the prompt's first key."""
        url = f"{self.where.endpoint}/{self.where.bucket}/bare/{self._size}/{keys[0].hex()}/"
        return self._library.bare_s3_move(
            self._loop, puts, url.encode(), ctypes.c_uint64(len(keys)),
            ctypes.c_void_p(places[0]), ctypes.c_uint64(self._size))

    def _move_all(self, puts, keys, places):
        moved = self._move(puts, keys, places)
        if moved != len(keys):
            raise OSError(f"{moved} of {len(keys)} chunks were moved")


if __name__ == "__main__":
    main(Bare)
