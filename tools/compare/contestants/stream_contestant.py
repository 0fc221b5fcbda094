"""A bare gRPC stream, which sends and drops bytes and does nothing else with them (bare_stream.cc):
what is left of gRPC when nobody keeps or checks anything."""

import atexit
import ctypes
import os
import signal

from contestant import Contestant, main
from daemon import built
import memory

KEY_BYTES = 32


class Stream(Contestant):
    keeps_bytes = False

    def __init__(self, directory, capacity_bytes):
        self._library = ctypes.CDLL(built("lib/libkvkeep-bare-stream.so"))
        self._server = self._library.bare_stream_start(ctypes.c_uint64(capacity_bytes))
        if self._server <= 0:
            raise OSError("the bare stream did not start")
        atexit.register(self._stop)
        self._keys = memory.Pages(1).address  # as much as a lookup's keys are

    def servers(self):
        return [self._server]

    def call_keys(self, first, count):
        return count

    def put(self, keys, addresses, size):
        for address in addresses:
            self._run(self._library.bare_stream_put, address, size)

    def get(self, keys, addresses, size):
        for address in addresses:
            self._run(self._library.bare_stream_get, address, size)

    def lookup(self, keys):
        self._run(self._library.bare_stream_put, self._keys, keys * KEY_BYTES)
        return keys

    def clear(self):
        pass

    def _stop(self):
        os.kill(self._server, signal.SIGKILL)
        os.waitpid(self._server, 0)

    def _run(self, function, address, size):
        if function(ctypes.c_void_p(address), ctypes.c_uint64(size)) != 0:
            raise OSError("the bare stream ended")


if __name__ == "__main__":
    main(Stream)
