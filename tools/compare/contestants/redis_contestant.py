"""A redis-server of our own, on a Unix socket or by TCP on the loopback, RESP by hand: a payload
goes from its memory to the socket and back without a copy of ours."""

import functools
import socket
import sys
from typing import NamedTuple

from contestant import Contestant, main
from memory import view
from processes import Server, free_port, listens_at, socket_path

READ_AHEAD_BYTES = 512


class Call(NamedTuple):
    """The keys of a call as words of a command, and the command that asks for all of them."""

    words: list
    exists: bytes


class Redis(Contestant):
    def __init__(self, tcp, directory, capacity_bytes):
        path = socket_path(directory, "redis.sock")
        port = free_port() if tcp else 0
        self._server = Server(
            "redis-server",
            ["redis-server", "--port", str(port), "--unixsocket", path, "--save", "",
             "--appendonly", "no", "--maxmemory", capacity_bytes, "--maxmemory-policy",
             "allkeys-lru"],
            directory, lambda: listens_at(path))
        if tcp:
            self._socket = socket.create_connection(("127.0.0.1", port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(str(path))
        self._ahead = b""  # what was read too far

    def servers(self):
        return [self._server.pid]

    def call_keys(self, first, count):
        words = [b"$32\r\n%032x\r\n" % number for number in range(first, first + count)]
        return Call(words, b"*%d\r\n$6\r\nEXISTS\r\n" % (count + 1) + b"".join(words))

    def put(self, keys, addresses, size):
        for key, address in zip(keys.words, addresses):
            head = b"*3\r\n$3\r\nSET\r\n%b$%d\r\n" % (key, size)
            self._send([head, view(address, size), b"\r\n"], len(head) + size + 2)
            self._expect(b"+OK")

    def get(self, keys, addresses, size):
        for key, address in zip(keys.words, addresses):
            self._socket.sendall(b"*2\r\n$3\r\nGET\r\n" + key)
            self._expect(b"$%d" % size)
            self._read(view(address, size))
            self._expect(b"")

    def lookup(self, keys):
        self._socket.sendall(keys.exists)
        return int(self._line()[1:])

    def clear(self):
        self._socket.sendall(b"*1\r\n$8\r\nFLUSHALL\r\n")
        self._expect(b"+OK")

    def _send(self, parts, size):
        if self._socket.sendmsg(parts) != size:
            raise OSError("redis-server took a part of a put")

    def _expect(self, wanted):
        line = self._line()
        if line != wanted:
            raise OSError(f"redis-server says {line}, not {wanted}")

    def _line(self):
        while b"\r\n" not in self._ahead:
            got = self._socket.recv(READ_AHEAD_BYTES)
            if not got:
                raise OSError("redis-server is gone")
            self._ahead += got
        line, _, self._ahead = self._ahead.partition(b"\r\n")
        return line

    def _read(self, to):
        had = min(len(to), len(self._ahead))
        to[:had], self._ahead = self._ahead[:had], self._ahead[had:]
        if had + self._socket.recv_into(to[had:], 0, socket.MSG_WAITALL) < len(to):
            raise OSError("redis-server is gone")


if __name__ == "__main__":
    main(functools.partial(Redis, "TCP" in sys.argv[1:]))
