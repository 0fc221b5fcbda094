"""A contestant of kvkeep-compare that is a Python program: its interface, and how it is driven.

Peer is what one has to be able to do; serve(SomePeer) makes a program of it, which answers
commands on the descriptor that tools/bench/child_process.h gives it: eight bytes of length, then
JSON. All of the measuring is in slices.py. One thread, though a peer's client may have its own.
"""

import json
import socket
import struct
import traceback

import memory
from slices import LookupMissed, Slices

SOCKET = 3  # child_process.h
INTERNAL, UNAVAILABLE, DATA_LOSS = 13, 14, 15  # absl::StatusCode
LENGTH = struct.Struct("<Q")


class Peer:
    """Started with servers of its own, ready and of their full size, when its constructor returns.

    Keys are what make_key says. Addresses are of memory that memory() gave. Failures are raised.
    """

    version = ""
    # Whether a put makes the room that it needs, however full the store is. One that does not is
    # cleared before half of its capacity is used: evicting is never on its time.
    evicts = False

    def __init__(self, directory, capacity_bytes):
        """`directory` is there for sockets and logs."""

    def servers(self):
        """Process ids of what serves this peer."""
        return []

    def memory(self, size):
        """Where payloads lie: a place of the peer's choice, populated, if it has one."""
        return memory.shared_pages(size)

    def resize(self, size):
        """Chunks are of `size` bytes from now on; what was put may be lost."""

    def make_key(self, number, batch):
        """The key of chunk `number`, never on the clock. Calls will be of `batch` keys that follow
        each other, the first one's number a multiple of `batch`."""
        raise NotImplementedError

    def put(self, keys, addresses, size):
        raise NotImplementedError

    def get(self, keys, addresses, size):
        """All bytes lie at the addresses when it returns."""
        raise NotImplementedError

    def lookup(self, keys):
        """How many of them are there."""
        raise NotImplementedError

    def lookup_and_get(self, keys, addresses, size):
        """LookupMissed when not all of them are there."""
        found = self.lookup(keys)
        if found != len(keys):
            raise LookupMissed(f"a lookup found {found} of {len(keys)} keys")
        self.get(keys, addresses, size)

    def rest(self):
        """Work that its users would do later; never on the clock, between every few calls."""

    def clear(self):
        raise NotImplementedError


class Answers:
    def __init__(self, make):
        self._make = make
        self._slices = None

    def answer(self, command):
        what = command["do"]
        if what == "start":
            peer = self._make(command["directory"], command["capacity_bytes"])
            self._slices = Slices(peer, command["capacity_bytes"], command["region_bytes"])
            return {"version": peer.version, "servers": peer.servers()}
        if what == "load":
            self._slices.load(command["size"], command["batch"])
            return {}
        if what == "fill":
            return self._slices.fill(command["calls"]).to_wire()
        return self._slices.run(what, command["seconds"]).to_wire()


def _read(connection, size):
    """None: the other end is gone."""
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


def _code(error):
    if isinstance(error, LookupMissed):
        return DATA_LOSS
    return UNAVAILABLE if isinstance(error, (ImportError, OSError)) else INTERNAL


def _reply(answers, text):
    try:
        return {"value": answers.answer(json.loads(text))}
    except Exception as error:  # whatever a peer's client may raise: the contest says it
        traceback.print_exc()
        return {"code": _code(error), "message": f"{type(error).__name__}: {error}"}


def serve(make, connection=None):
    """Until the other end is gone. `make` is a Peer's class."""
    answers = Answers(make)
    with connection or socket.socket(fileno=SOCKET) as connection:
        while head := _read(connection, LENGTH.size):
            text = _read(connection, LENGTH.unpack(head)[0])
            if text is None:
                return
            data = json.dumps(_reply(answers, text)).encode()
            connection.sendall(LENGTH.pack(len(data)) + data)
