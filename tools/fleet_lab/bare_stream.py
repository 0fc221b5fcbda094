"""The bare stream of tools/compare/contestants/bare_stream.cc, by mutual TLS. A child process, as
its library and the client's have the same protobuf files.

bare_stream.py DIRECTORY NODE NAME BYTES: with the certificate of that node, and a server that sends
from so many bytes. Answers a number of bytes to get by the seconds that they took.
"""

import ctypes
import os
import sys
import time

from daemon import built
from processes import serve


def main(directory, node, name, capacity):
    library = ctypes.CDLL(str(built("lib/libkvkeep-bare-stream.so")))
    files = [os.fsencode(f"{directory}/{file}") for file in ("ca.pem", f"{node}.pem",
                                                             f"{node}.key")]
    if library.bare_stream_start_tls(ctypes.c_uint64(int(capacity)), *files, name.encode()) <= 0:
        raise OSError("the bare stream did not start")
    memory = bytearray(int(capacity))  # touched, as the other side's is
    address = (ctypes.c_char * len(memory)).from_buffer(memory)

    def get(asked):
        began = time.monotonic()
        if library.bare_stream_get(address, ctypes.c_uint64(asked["bytes"])) != 0:
            raise OSError("the bare stream ended")
        return {"seconds": time.monotonic() - began}

    serve(get)


if __name__ == "__main__":
    main(*sys.argv[1:])
