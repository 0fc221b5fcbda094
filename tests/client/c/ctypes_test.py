"""kvkeep.h from Python with the standard library alone: puts, lookups, gets, reads in place,
completions over an event fd. A killed daemon gives a code and does not end the process.

    ctypes_test.py LIBRARY KVKEEPD
"""

import ctypes
import os
import select
import sys
import time
import unittest
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_uint8, c_uint32, c_uint64, c_void_p

from daemon import Daemon

OK, UNAVAILABLE, HIT, STORED, LEADING_RUN = 0, 14, 1, 1, 1
AUTO, LOCAL = 0, 2
LIBRARY, KVKEEPD = sys.argv[1:3]
kvkeep = ctypes.CDLL(LIBRARY)


def struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def sized(name, *fields):
    return struct(name, ("size", c_uint32), *fields)


def make(kind, **values):
    return kind(size=ctypes.sizeof(kind), **values)


Error = struct("Error", ("code", c_int32), ("message", c_char * 252))
Key = struct("Key", ("bytes", c_uint8 * 32))
Buffer = struct("Buffer", ("data", c_void_p), ("bytes", c_uint64))
Keys = struct("Keys", ("ns", c_void_p), ("keys", POINTER(Key)), ("key_count", c_uint32),
              ("part_count", c_uint32), ("parts", POINTER(c_uint32)))
ClientOptions = sized("ClientOptions", ("default_deadline_ms", c_uint32), ("endpoint", c_char_p),
                      ("client_name", c_char_p), ("backoff_min_ms", c_uint32),
                      ("backoff_max_ms", c_uint32), ("local_socket", c_char_p),
                      ("path", c_uint32), ("reserved", c_uint32))
Spec = sized("Spec", ("tokens_per_chunk", c_uint32), ("model", c_char_p), ("dtype", c_char_p),
             ("layout", c_char_p), ("hash_algorithm", c_char_p), ("hash_seed", c_char_p),
             ("bytes_per_part", c_uint64), ("parts", c_uint32), ("reserved", c_uint32))
Completion = struct("Completion", ("user_data", c_void_p), ("op", c_uint32),
                    ("reserved", c_uint32), ("error", Error))
Lookup = sized("Lookup", ("deadline_ms", c_uint32), ("keys", Keys), ("lease_mode", c_uint32),
               ("transient", c_uint32), ("presence", POINTER(c_uint8)),
               ("presence_bytes", c_uint64))
Found = sized("Found", ("leading_keys", c_uint32), ("leased_keys", c_uint32),
              ("promotion_us", c_uint32), ("leased_bytes", c_uint64), ("lease", c_void_p))
GetOutcome = struct("GetOutcome", ("status", c_uint32), ("metadata_bytes", c_uint32),
                    ("payload_bytes", c_uint64), ("bytes", c_uint64))
Get = sized("Get", ("deadline_ms", c_uint32), ("keys", Keys), ("lease", c_void_p),
            ("first_key", c_uint32), ("flags", c_uint32), ("first_piece", c_uint32),
            ("pieces", c_uint32), ("destinations", POINTER(Buffer)),
            ("outcomes", POINTER(GetOutcome)), ("metadata", c_void_p), ("chunk_count", c_uint64))
PutChunk = struct("PutChunk", ("key", Key), ("parent_key", Key), ("part", c_uint32),
                  ("has_parent", c_uint32), ("runs", POINTER(Buffer)), ("run_count", c_uint64),
                  ("metadata", c_void_p), ("metadata_bytes", c_uint64))
Put = sized("Put", ("deadline_ms", c_uint32), ("ns", c_void_p), ("chunks", POINTER(PutChunk)),
            ("chunk_count", c_uint32), ("flags", c_uint32), ("outcomes", POINTER(c_uint32)))

Acquire = sized("Acquire", ("deadline_ms", c_uint32), ("keys", Keys), ("flags", c_uint32),
                ("reserved", c_uint32))
Acquired = sized("Acquired", ("leading_keys", c_uint32), ("leased_keys", c_uint32),
                 ("chunk_count", c_uint32), ("acquired", c_void_p))
ChunkView = struct("ChunkView", ("chunk", c_uint32), ("run_count", c_uint32),
                   ("payload_bytes", c_uint64), ("runs", POINTER(Buffer)),
                   ("metadata", POINTER(Buffer)), ("metadata_run_count", c_uint32),
                   ("reserved", c_uint32))

kvkeep.kvkeep_acquired_chunks.argtypes = [c_void_p]
kvkeep.kvkeep_acquired_chunks.restype = POINTER(ChunkView)
kvkeep.kvkeep_acquired_valid.argtypes = [c_void_p]
for function in ("client_destroy", "namespace_close", "lease_release", "acquired_release"):
    getattr(kvkeep, "kvkeep_" + function).argtypes = [c_void_p]
    getattr(kvkeep, "kvkeep_" + function).restype = None


def key(number):
    return Key((c_uint8 * 32)(*number.to_bytes(32, "little")))


def buffer_of(memory):
    return Buffer(ctypes.addressof(memory), ctypes.sizeof(memory))


class Engine:
    """A client of the daemon, as a connector has it."""

    def __init__(self, endpoint, path=AUTO):
        self.error = Error()
        self.client, self.ns = c_void_p(), c_void_p()
        options = make(ClientOptions, endpoint=endpoint.encode(), client_name=b"ctypes",
                       default_deadline_ms=20_000, path=path)
        self.must(kvkeep.kvkeep_connect(byref(options), byref(self.client), byref(self.error)))
        assert kvkeep.kvkeep_wait_connected(self.client, 20_000) == 1
        spec = make(Spec, model=b"ctypes", tokens_per_chunk=256)
        self.must(kvkeep.kvkeep_namespace_open(self.client, byref(spec), 0, byref(self.ns),
                                               byref(self.error)))

    def must(self, code):
        if code != OK:
            raise AssertionError(f"{code}: {self.error.message.decode()}")

    def close(self):
        kvkeep.kvkeep_namespace_close(self.ns)
        kvkeep.kvkeep_client_destroy(self.client)

    def put(self, number, payload):
        memory = ctypes.create_string_buffer(payload, len(payload))
        run, outcome = buffer_of(memory), c_uint32()
        chunk = PutChunk(key=key(number), runs=ctypes.pointer(run), run_count=1)
        request = make(Put, ns=self.ns, chunks=ctypes.pointer(chunk), chunk_count=1,
                       outcomes=ctypes.pointer(outcome))
        self.must(kvkeep.kvkeep_put(self.client, byref(request), byref(self.error)))
        return outcome.value

    def get_request(self, keys, memories, lease=None):
        count = len(memories)
        return make(Get, keys=Keys(self.ns, keys, count), lease=lease, chunk_count=count,
                    destinations=(Buffer * count)(*map(buffer_of, memories)),
                    outcomes=(GetOutcome * count)())

    def lookup(self, keys, count):
        found, presence = make(Found), (c_uint8 * count)()
        request = make(Lookup, keys=Keys(self.ns, keys, count), lease_mode=LEADING_RUN,
                       presence=presence, presence_bytes=count)
        code = kvkeep.kvkeep_lookup(self.client, byref(request), byref(found), byref(self.error))
        return code, found, list(presence)


class CtypesTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.engine = Engine(self.daemon.endpoint)

    def tearDown(self):
        self.engine.close()
        self.daemon.__exit__()

    def test_what_was_put_is_found_leased_and_read_back(self):
        payloads = [os.urandom(1_500_000 + i) for i in range(3)]
        keys = (Key * 4)(*map(key, range(4)))
        for number, payload in enumerate(payloads):
            self.assertEqual(self.engine.put(number, payload), STORED)
        code, found, presence = self.engine.lookup(keys, 4)
        self.assertEqual((code, found.leading_keys, found.leased_keys), (OK, 3, 3))
        self.assertEqual([bit != 0 for bit in presence], [True, True, True, False])
        memories = [ctypes.create_string_buffer(2_000_000) for _ in range(3)]
        request = self.engine.get_request(keys, memories, found.lease)
        self.engine.must(kvkeep.kvkeep_get(self.engine.client, byref(request),
                                           byref(self.engine.error)))
        for memory, payload, outcome in zip(memories, payloads, request.outcomes[:3]):
            self.assertEqual((outcome.status, outcome.bytes), (HIT, len(payload)))
            self.assertEqual(memory.raw[:outcome.bytes], payload)
        kvkeep.kvkeep_lease_release(found.lease)

    def test_acquired_chunks_are_read_in_place_without_a_copy(self):
        self.engine.close()
        self.engine = Engine(self.daemon.endpoint, LOCAL)
        payloads = [os.urandom(1_500_000 + i) for i in range(3)]
        for number, payload in enumerate(payloads):
            self.assertEqual(self.engine.put(number, payload), STORED)
        request = make(Acquire, keys=Keys(self.engine.ns, (Key * 3)(*map(key, range(3))), 3))
        reply = make(Acquired)
        self.engine.must(kvkeep.kvkeep_acquire(self.engine.client, byref(request), byref(reply),
                                               byref(self.engine.error)))
        self.assertEqual((reply.leading_keys, reply.chunk_count), (3, 3))
        views = kvkeep.kvkeep_acquired_chunks(reply.acquired)
        for number, payload in enumerate(payloads):
            view, at = views[number], 0
            self.assertEqual((view.chunk, view.payload_bytes), (number, len(payload)))
            for run in view.runs[:view.run_count]:
                in_place = (c_char * run.bytes).from_address(run.data)
                self.assertTrue(memoryview(in_place).cast("B") == payload[at:at + run.bytes])
                at += run.bytes
            self.assertEqual(at, len(payload))
        self.assertEqual(kvkeep.kvkeep_acquired_valid(reply.acquired), 1)
        kvkeep.kvkeep_acquired_release(reply.acquired)

    def test_gets_complete_by_the_event_fd(self):
        payloads = [os.urandom(100_000) for _ in range(20)]
        for number, payload in enumerate(payloads):
            self.engine.put(number, payload)
        queue = c_void_p()
        self.engine.must(kvkeep.kvkeep_queue_create(64, byref(queue), byref(self.engine.error)))
        kept = []
        for number in range(20):
            keys, memory = (Key * 1)(key(number)), ctypes.create_string_buffer(100_000)
            request = self.engine.get_request(keys, [memory])
            kept.append((keys, memory, request))
            self.engine.must(kvkeep.kvkeep_get_async(
                self.engine.client, byref(request), queue, c_void_p(number + 1),
                byref(self.engine.error)))
        ended, out = set(), (Completion * 8)()
        while len(ended) < 20:
            self.assertTrue(select.select([kvkeep.kvkeep_queue_fd(queue)], [], [], 20)[0])
            for i in range(kvkeep.kvkeep_queue_poll(queue, out, 8)):
                self.assertEqual(out[i].error.code, OK, out[i].error.message)
                ended.add(out[i].user_data - 1)
        for number, (_, memory, request) in enumerate(kept):
            self.assertEqual(request.outcomes[0].status, HIT)
            self.assertEqual(memory.raw, payloads[number])
        self.engine.must(kvkeep.kvkeep_queue_destroy(queue, byref(self.engine.error)))

    def test_a_killed_daemon_is_unavailable_at_once_and_found_again(self):
        keys = (Key * 1)(key(1))
        self.daemon.kill()
        deadline = time.monotonic() + 20
        while self.engine.lookup(keys, 1)[0] != UNAVAILABLE:
            self.assertLess(time.monotonic(), deadline)
        begin = time.monotonic()
        for _ in range(50):
            self.assertEqual(self.engine.lookup(keys, 1)[0], UNAVAILABLE)
        self.assertLess(time.monotonic() - begin, 10)
        self.daemon.start()
        self.assertEqual(kvkeep.kvkeep_wait_connected(self.engine.client, 30_000), 1)
        self.assertEqual(self.engine.put(1, b"again"), STORED)
        self.assertEqual(self.engine.lookup(keys, 1)[1].leading_keys, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
