"""kvkeep by one of its paths, with a daemon of its own, through the C ABI by ctypes; its Python
client only connects. kvkeep_contestant.py local|staging|gRPC|TCP|bulk|"bulk TCP".

local and staging take the local path, and put from the client's own memory, or from staging memory,
where an engine would have laid it. gRPC is over the Unix socket, TCP over the loopback; so are the
two of the bulk door. Requests are made off the clock; on it addresses are set, and one function is
called.
"""

import ctypes
import functools
import hashlib
import sys

from kvkeep import Client, _abi

from contestant import Contestant, main
from daemon import ROOMY, Daemon

PATIENCE_S = 30
NO_G3 = 4  # KVKEEP_PUT_NO_G3
HIT, STORED = 1, 1
# As client/payload_malloc.h, for processes that move chunks through gRPC.
MALLOC_SETTINGS = {-3: 32 << 20, -1: 1 << 30, -2: 64 << 20}  # mmap threshold, trim threshold, pad


def tune_malloc():
    for parameter, value in MALLOC_SETTINGS.items():
        ctypes.CDLL(None).mallopt(parameter, value)


def keys_array(first, count):
    keys = (_abi.Key * count)()
    for i, key in enumerate(keys):
        ctypes.memmove(ctypes.byref(key), hashlib.sha256(b"%d" % (first + i)).digest(),
                       _abi.KEY_BYTES)
    return keys


def put_chunks(keys, buffers):
    """Each key's payload is what the buffer says."""
    chunks = (_abi.PutChunk * len(keys))()
    for key, chunk, buffer in zip(keys, chunks, buffers):
        chunk.key, chunk.runs, chunk.run_count = key, ctypes.pointer(buffer), 1
    return chunks


class Caller:
    """Runs the calls of a client."""

    def __init__(self, client):
        self._client, self._library = client, client.library
        self.error = _abi.Error()
        self._error = ctypes.byref(self.error)

    def __call__(self, name, *structs):
        if getattr(self._library, name)(self._client.handle, *structs, self._error) != 0:
            raise self._client.exception(self.error)


def staging_memory(client, size):
    """Returns the address of staging memory, where an engine lays what it puts. It stays."""
    memory, staging = _abi.Buffer(), ctypes.c_void_p()
    Caller(client)("kvkeep_staging_allocate", size, ctypes.byref(memory), ctypes.byref(staging))
    return memory.data


class Call:
    """The keys of a call, and its requests."""

    def __init__(self, namespace, first, count):
        self.keys = keys_array(first, count)
        self.buffers = (_abi.Buffer * count)()
        self.stored, got = (ctypes.c_uint32 * count)(), (_abi.GetOutcome * count)()
        self.all_stored, self.all_hit = [STORED] * count, [HIT] * count
        words = ctypes.sizeof(_abi.GetOutcome) // ctypes.sizeof(ctypes.c_uint32)
        self._got, self._words = (ctypes.c_uint32 * (count * words)).from_buffer(got), words
        named = _abi.Keys(ns=namespace, keys=self.keys, key_count=count)
        self.requests = (  # ctypes keeps what they name
            _abi.make(_abi.LookupRequest, keys=named),
            _abi.make(_abi.GetRequest, keys=named, destinations=self.buffers, outcomes=got,
                      chunk_count=count),
            _abi.make(_abi.PutRequest, ns=namespace, chunk_count=count, flags=NO_G3,
                      chunks=put_chunks(self.keys, self.buffers), outcomes=self.stored))
        self.lookup, self.get, self.put = map(ctypes.byref, self.requests)

    def name(self, addresses, size):
        for buffer, address in zip(self.buffers, addresses):
            buffer.data, buffer.bytes = address, size

    def forget_outcomes(self):
        """No chunk was got or stored: a call that says nothing of one is an error."""
        for outcomes in (self.stored, self._got):
            ctypes.memset(outcomes, 0, ctypes.sizeof(outcomes))

    def got(self):
        """The status of each chunk: the first word of its outcome."""
        return self._got[::self._words]


class Kvkeep(Contestant):
    def __init__(self, path, directory, capacity_bytes):
        tune_malloc()
        self._daemon = Daemon(directory, {**ROOMY, "g2": {**ROOMY["g2"],
                                                          "capacity": capacity_bytes}},
                              tcp="TCP" in path, bulk="bulk" in path)
        self._stages = path == "staging"
        self._client = Client(
            self._daemon.tcp_endpoint if "TCP" in path else self._daemon.endpoint, name="compare",
            timeout=PATIENCE_S, path="local" if path in ("local", "staging") else "grpc",
            bulk={"bulk": self._daemon.bulk, "bulk TCP": self._daemon.bulk_tcp}.get(path))
        self._namespace = self._client.namespace("compare", tokens_per_chunk=256)
        self._call = Caller(self._client)
        self._found = _abi.make(_abi.LookupReply)
        self._reply = ctypes.byref(self._found)

    def servers(self):
        return [self._daemon.pid]

    def sources(self, size):
        if not self._stages:
            return super().sources(size)
        return staging_memory(self._client, size)

    def call_keys(self, first, count):
        return Call(self._namespace.handle, first, count)

    def forget_outcomes(self, keys):
        keys.forget_outcomes()
        self._found.leading_keys = 0

    def put(self, keys, addresses, size):
        keys.name(addresses, size)
        self._call("kvkeep_put", keys.put)
        if keys.stored[:] != keys.all_stored:
            raise OSError(f"kvkeep did not store a chunk: {self._call.error.message.decode()}")

    def get(self, keys, addresses, size):
        keys.name(addresses, size)
        self._call("kvkeep_get", keys.get)
        if keys.got() != keys.all_hit:
            raise OSError(f"kvkeep's get says {keys.got()}")

    def lookup(self, keys):
        self._call("kvkeep_lookup", keys.lookup, self._reply)
        return self._found.leading_keys

    def clear(self):
        self._daemon.clear()


if __name__ == "__main__":
    main(functools.partial(Kvkeep, sys.argv[1]))
