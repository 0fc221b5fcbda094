#!/usr/bin/env python3
"""The loop that drives contestants in Python, with one that is a dictionary: it measures what it
says, finds a wrong byte, and answers in the form that kvkeep-compare reads."""

import json
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "dictionary"))

from mooncake_peer import Dictionary  # noqa: E402  (which says where the rest is)
import memory  # noqa: E402
import peer  # noqa: E402
import server  # noqa: E402
from measured import bucket_of  # noqa: E402
from slices import LookupMissed, Slices  # noqa: E402

REGION, CAPACITY, SIZE = 4 << 20, 8 << 20, 100_000
SLICE_S = 0.02


class SlicesTest(unittest.TestCase):
    def slices(self, batch=1, calls=60):
        self.peer = Dictionary("", CAPACITY)
        slices = Slices(self.peer, CAPACITY, REGION)
        slices.load(SIZE, batch)
        self.filled = slices.fill(calls)
        self.peer.gets = self.peer.clears = self.peer.rests = 0
        return slices

    def test_every_byte_of_every_get_is_compared(self):
        for operation in ("get", "lookup+get"):
            for batch in (1, 8):
                with self.subTest(operation=operation, batch=batch):
                    measured = self.slices(batch, 60 // batch).run(operation, SLICE_S)
                    self.assertGreater(measured.chunks, 60)
                    self.assertEqual(measured.chunks, len(measured.calls_ns) * batch)
                    self.assertEqual(measured.bytes, measured.chunks * SIZE)
                    self.assertEqual(measured.verified_bytes, measured.bytes)
                    self.assertEqual(measured.wrong_bytes, 0)
                    self.assertGreater(measured.cpu_ns, 0)

    def test_one_wrong_byte_is_found_wherever_it_lies(self):
        for batch in (1, 8):
            for at in (0, SIZE // 2, SIZE - 1):
                slices = self.slices(batch, 60 // batch)
                self.peer.spoil_get, self.peer.spoil_at = 7, at
                self.assertEqual(slices.run("get", SLICE_S).wrong_bytes, 1)

    def test_another_chunks_bytes_are_wrong(self):
        slices = self.slices()
        self.peer.chunks[3] = self.peer.chunks[4]
        self.assertGreater(slices.run("get", SLICE_S).wrong_bytes, SIZE // 2)

    def test_bytes_are_wrong_that_were_changed_where_they_were_put_from(self):
        slices = self.slices()
        put = self.peer.put

        def put_and_spoil(keys, addresses, size):
            memory.copy(addresses[0], b"\0" * size, size)
            put(keys, addresses, size)

        self.peer.put = put_and_spoil
        self.assertGreater(slices.run("put", SLICE_S).wrong_bytes, 0)

    def test_puts_are_read_back_and_are_of_new_keys(self):
        slices = self.slices()
        before = set(self.peer.chunks)
        measured = slices.run("put", SLICE_S)
        self.assertGreaterEqual(measured.verified_bytes, SIZE)
        self.assertEqual(measured.wrong_bytes, 0)
        self.assertTrue(self.peer.clears > 0 or before < set(self.peer.chunks))
        self.peer.gets, self.peer.spoil_get, self.peer.spoil_at = 0, 1, 5
        self.assertEqual(slices.run("put", SLICE_S).wrong_bytes, 1)

    def test_a_peer_that_does_not_evict_is_never_more_than_half_full(self):
        slices = self.slices(calls=CAPACITY // 2 // SIZE)
        measured = slices.run("put", 0.1)
        self.assertGreater(measured.bytes, CAPACITY)
        self.assertGreater(self.peer.clears, 2)
        self.assertLessEqual(self.peer.most_bytes, CAPACITY // 2)
        self.peer.evicts, self.peer.clears = True, 0
        slices.run("put", 0.1)
        self.assertEqual(self.peer.clears, 0)

    def test_lookups_must_find_all(self):
        slices = self.slices(16, 4)
        measured = slices.run("lookup", SLICE_S)
        self.assertEqual(measured.chunks, 16 * len(measured.calls_ns))
        self.assertGreater(self.peer.rests, 1)
        self.peer.forgotten = 1
        for operation in ("lookup", "lookup+get"):
            with self.assertRaises(LookupMissed):
                slices.run(operation, SLICE_S)

    def test_the_first_fill_is_measured(self):
        self.slices(4, 6)
        self.assertEqual((len(self.filled.calls_ns), self.filled.chunks), (6, 24))
        self.assertEqual(self.filled.bytes, 24 * SIZE)
        self.assertEqual(sum(n for _, n in self.filled.to_wire()["latency"]["buckets"]), 6)

    def test_what_cannot_be_measured_is_refused(self):
        slices = self.slices()
        self.assertRaises(ValueError, slices.run, "dance", SLICE_S)
        self.assertRaises(ValueError, slices.load, REGION + 1, 1)
        slices.load(SIZE, 1)
        self.assertRaises(ValueError, slices.run, "get", SLICE_S)


class MemoryTest(unittest.TestCase):
    def test_shared_pages_are_aligned_for_huge_pages_and_writable(self):
        address = memory.shared_pages(3 << 20)
        self.assertEqual(address % memory.HUGE_PAGE_BYTES, 0)
        memory.copy(address + (3 << 20) - 4, b"kept", 4)
        copied = memory.private_pages(4096)
        memory.copy(copied, address + (3 << 20) - 4, 4)
        self.assertEqual(memory.count_wrong(copied, b"kept", 4), 0)
        self.assertEqual(memory.count_wrong(copied, b"kexx", 4), 2)


class BucketTest(unittest.TestCase):
    def test_buckets_are_64_for_each_power_of_two(self):
        self.assertEqual([bucket_of(ns) for ns in (0, 127, 128, 129, 130, 255, 256, 259, 260)],
                         [0, 127, 128, 128, 129, 191, 192, 192, 193])


class ServeTest(unittest.TestCase):
    def test_commands_are_answered_until_the_other_end_goes(self):
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=peer.serve, args=(Dictionary, theirs))
        thread.start()

        def call(**command):
            text = json.dumps(command).encode()
            ours.sendall(struct.pack("<Q", len(text)) + text)
            (size,) = struct.unpack("<Q", ours.recv(8, socket.MSG_WAITALL))
            return json.loads(ours.recv(size, socket.MSG_WAITALL))

        started = call(do="start", directory="", capacity_bytes=CAPACITY, region_bytes=REGION)
        self.assertEqual(started, {"value": {"version": "of a dictionary", "servers": []}})
        self.assertEqual(call(do="load", size=SIZE, batch=2), {"value": {}})
        self.assertEqual(call(do="fill", calls=3)["value"]["chunks"], 6)
        self.assertEqual(call(do="get", seconds=SLICE_S)["value"]["wrong_bytes"], 0)
        refused = call(do="load", size=0, batch=1)
        self.assertEqual(refused["code"], peer.INTERNAL)
        self.assertIn("0 bytes", refused["message"])
        ours.close()
        thread.join(10)
        self.assertFalse(thread.is_alive())


class ServerTest(unittest.TestCase):
    def test_a_server_that_ends_at_once_says_its_last_words(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaisesRegex(OSError, "no such thing here"):
                server.Server("talker", ["sh", "-c", "echo no such thing here; exit 1"], directory,
                              lambda: False)

    def test_a_server_is_there_when_it_says_so(self):
        with tempfile.TemporaryDirectory() as directory:
            ready = pathlib.Path(directory) / "ready"
            started = server.Server("sleeper", ["sh", "-c", f"touch {ready}; exec sleep 60"],
                                    directory, ready.exists)
            self.addCleanup(started.stop)
            os.kill(started.pid, 0)

    def test_a_server_dies_with_its_owner_however_that_ends(self):
        program = ("import server, sys\n"
                   "one = server.Server('sleeper', ['sleep', '60'], sys.argv[1], lambda: True)\n"
                   "print(one.pid, flush=True)\n"
                   "sys.stdin.read()\n")
        with tempfile.TemporaryDirectory() as directory:
            with subprocess.Popen([sys.executable, "-B", "-c", program, directory],
                                  cwd=pathlib.Path(server.__file__).parent,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
                ended = os.pidfd_open(int(owner.stdout.readline()))
                self.addCleanup(os.close, ended)
                self.assertEqual(select.select([ended], [], [], 0)[0], [])
                owner.kill()
            self.assertEqual(select.select([ended], [], [], 20)[0], [ended])


if __name__ == "__main__":
    unittest.main()
