"""The package kvkeep against a real daemon, with the standard library alone.

    client_test.py SOURCES LIBRARY KVKEEPD
"""

import array
import asyncio
import ctypes
import gc
import mmap
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

import kvkeep  # noqa: E402
import kvkeep.aio  # noqa: E402
from daemon import Daemon  # noqa: E402
from kvkeep import GetStatus, PutStatus, registered  # noqa: E402
from kvkeep.completions import Completions  # noqa: E402
from kvkeep.lookups import Lookups  # noqa: E402

PATHS = ("grpc", "local")


def key(number):
    return number.to_bytes(32, "little")


class Tensor:
    """The part of a torch tensor that is used."""

    class Device:
        def __init__(self, kind):
            self.type = kind

        def __repr__(self):
            return self.type

    def __init__(self, memory, device="cpu", contiguous=True):
        self.memory, self.device, self.contiguous = memory, Tensor.Device(device), contiguous
        self.nbytes = len(memory)

    def data_ptr(self):
        address, _, _ = kvkeep.memory.locate(self.memory)
        return address

    def is_contiguous(self):
        return self.contiguous


class Metadata(unittest.TestCase):
    def test_it_is_what_the_daemon_reads(self):
        test = (SOURCES / "tests" / "server" / "events" / "block_events_test.cc").read_text()
        quoted = re.search(r'kMetadataBytes\[\] =\s*((?:"[0-9a-f]+"\s*)+);', test).group(1)
        tokens = [1, 127, 128, 300, 70000, 5]
        said = kvkeep.chunk_metadata(tokens, bytes(range(32)), 3, "an adapter")
        self.assertEqual(said.hex(), re.sub(r'["\s]', "", quoted))
        self.assertLess(len(kvkeep.chunk_metadata(tokens)), len(said))

    def test_what_makes_no_sense_is_refused_and_what_is_too_much_is_left_out(self):
        for tokens, block in (([], 0), ([1, 2, 3], 2), ([1], -1), ([-1], 0), ([1 << 32], 0)):
            with self.assertRaises(ValueError):
                kvkeep.chunk_metadata(tokens, block_size=block)
        self.assertEqual(len(kvkeep.chunk_metadata([1] * 16_375)), 16_383)
        self.assertEqual(kvkeep.chunk_metadata([1] * 16_400), b"")


class Endpoint(unittest.TestCase):
    def test_it_is_the_users_own_daemon_only_where_the_system_has_none(self):
        with tempfile.TemporaryDirectory() as folder:
            system, own = f"{folder}/system.sock", f"{folder}/kvkeep/kvkeep.sock"
            said = {"KVKEEP_ENDPOINT": "", "XDG_STATE_HOME": folder}
            with mock.patch.dict(os.environ, said), \
                    mock.patch.object(kvkeep.client, "_SYSTEM_SOCKET", system):
                self.assertEqual(kvkeep.default_endpoint(), f"unix://{system}", "neither is there")
                os.mkdir(f"{folder}/kvkeep")
                pathlib.Path(own).touch()
                self.assertEqual(kvkeep.default_endpoint(), f"unix://{own}")
                pathlib.Path(system).touch()
                self.assertEqual(kvkeep.default_endpoint(), f"unix://{system}")
                os.environ["KVKEEP_ENDPOINT"] = "unix:///said"
                self.assertEqual(kvkeep.default_endpoint(), "unix:///said")


class Programs(unittest.TestCase):
    def test_without_a_wheel_the_console_scripts_say_what_is_missing(self):
        for name in ("kvkeepd", "kvkeep"):
            done = subprocess.run([sys.executable, "-c", f"from kvkeep import run; run.{name}()"],
                                  cwd=SOURCES / "client" / "python", capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"^{name}: .*/kvkeep/bin/{name}: No such file.*wheel")


class WithDaemon(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def connect(self, path="auto", **options):
        client = kvkeep.Client(self.daemon.endpoint, path=path, name="python", timeout=20,
                               **options)
        self.addCleanup(client.close)
        self.assertTrue(client.wait_connected(20))
        return client

    def stop(self):
        """Sends SIGSTOP, and waits until it works: a thread may run on for a while."""
        self.daemon.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.daemon.process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))

    def go_on(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def namespaces(self):
        """Yields the same namespace by each path."""
        for path in PATHS:
            with self.subTest(path=path):
                client = self.connect(path)
                self.assertEqual(client.path.name, path)
                yield client.namespace("model", tokens_per_chunk=256, layout=path)


class Calls(WithDaemon):
    def test_what_was_put_is_found_leased_and_read_back(self):
        payloads = [os.urandom(1_500_000 + i) for i in range(3)]
        keys = [key(i) for i in range(4)]
        for ns in self.namespaces():
            stored = ns.put(zip(keys, payloads))
            self.assertEqual((stored.statuses, stored.error), ([PutStatus.STORED] * 3, None))
            self.assertEqual(ns.put([(keys[0], payloads[0])]).statuses, [PutStatus.PRESENT])
            found = ns.lookup(keys, lease=True)
            self.assertEqual((found.leading_keys, found.leased_keys), (3, 3))
            self.assertEqual(found.promotion_us, 0)  # everything is in DRAM
            self.assertEqual([there != 0 for there in found.presence], [True] * 3 + [False])
            into = [bytearray(2_000_000) for _ in range(3)]
            with found.lease as lease:
                self.assertTrue(lease.alive)
                got = ns.get(keys[:3], into, lease=lease)
            self.assertFalse(lease.alive)
            self.assertEqual(got.hits, 3)
            for memory, nbytes, payload in zip(into, got.nbytes, payloads):
                self.assertTrue(memory[:nbytes] == payload)
            got = ns.get(keys[2:], [bytearray(100), bytearray(100)])
            self.assertEqual(got.statuses, [GetStatus.TOO_SMALL, GetStatus.MISS])
            self.assertEqual(got.payload_bytes[0], len(payloads[2]))
            parts, rest = [bytearray(700_000), bytearray(300_000)], bytearray(1_500_001)
            got = ns.get(keys[:2], [[parts[0], kvkeep.memory.skip(500_000), parts[1]], rest])
            self.assertEqual(got.hits, 2)
            self.assertEqual(got.nbytes, [1_500_000, 1_500_001])
            self.assertTrue(parts[0] == payloads[0][:700_000] and rest == payloads[1])
            self.assertTrue(parts[1] == payloads[0][1_200_000:])
            self.assertEqual(ns.touch(keys).chunks, 3)
            self.assertEqual(ns.prefetch(keys).ready_chunks, 3)
            self.assertEqual(ns.delete(keys).chunks, 3)
            self.assertEqual(ns.lookup(keys).leading_keys, 0)

    def test_payloads_are_taken_from_whatever_holds_bytes(self):
        for ns in self.namespaces():
            mapped = mmap.mmap(-1, 8192)
            mapped[:5] = b"hello"
            held = bytearray(b"pointed at")
            address, nbytes, kept = kvkeep.memory.locate(held)
            sources = [b"bytes", bytearray(b"bytearray"), memoryview(b"..view..")[2:6],
                       array.array("i", [1, 2, 3]), mapped, Tensor(b"a tensor"),
                       kvkeep.Pointer(address, nbytes), [b"several ", b"runs"]]
            plain = [b"bytes", b"bytearray", b"view", array.array("i", [1, 2, 3]).tobytes(),
                     bytes(mapped[:]), b"a tensor", b"pointed at", b"several runs"]
            keys = [key(100 + i) for i in range(len(sources))]
            self.assertEqual(ns.put(zip(keys, sources)).stored, len(sources))
            into = [bytearray(len(payload)) for payload in plain]
            self.assertEqual(ns.get(keys, into).hits, len(plain))
            self.assertEqual(into, [bytearray(payload) for payload in plain])
            del kept

    def test_a_call_about_nothing_is_answered_with_nothing(self):
        ns = self.connect("local").namespace("model", tokens_per_chunk=256)
        self.assertEqual((ns.lookup([]).leading_keys, ns.lookup([]).presence), (0, b""))
        self.assertEqual((ns.put([]).statuses, ns.get([], []).statuses), ([], []))
        self.assertEqual((ns.touch([]).chunks, ns.delete([]).chunks), (0, 0))
        with ns.acquire([]) as acquired:
            self.assertEqual(acquired.chunks, [])

        async def go():
            async with kvkeep.aio.Calls(ns.client) as calls:
                return await calls.put(ns, [])

        self.assertEqual(asyncio.run(go()).stored, 0)

    def test_a_buffer_may_not_be_resized_while_a_call_has_it(self):
        memory = bytearray(100)
        _, located = kvkeep.memory.runs(memory, writable=True)
        with self.assertRaises(BufferError):
            memory.extend(b"more")
        del located
        memory.extend(b"more")

    def test_parts_parents_and_metadata(self):
        for ns in self.namespaces():
            two = ns.client.namespace("parts", tokens_per_chunk=16, parts=2,
                                      layout=ns.client.path.name)
            chunks = [kvkeep.Chunk(key(k), bytes([k, part]) * 10, part, key(k - 1) if k else None,
                                   f"{k} {part}".encode()) for k in range(2) for part in range(2)]
            self.assertEqual(two.put(chunks, durable=True, checksum=True).stored, 4)
            into = [bytearray(20) for _ in range(4)]
            got = two.get([key(0), key(1)], into, metadata=True)
            self.assertEqual(got.metadata, [b"0 0", b"0 1", b"1 0", b"1 1"])
            self.assertEqual([memory[:2] for memory in into],
                             [bytes([k, part]) for k in range(2) for part in range(2)])
            self.assertEqual(two.get([key(1)], [bytearray(20)], parts=[1]).hits, 1)
            self.assertEqual(two.lookup([key(0), key(9)]).presence[2:], b"\0\0")

    def test_mistakes_are_exceptions_that_name_the_argument(self):
        ns = self.connect().namespace("model", tokens_per_chunk=256)
        with self.assertRaisesRegex(ValueError, "33"):
            ns.lookup([b"x" * 33])
        with self.assertRaisesRegex(ValueError, "2 chunks .* 1 buffers"):
            ns.get([key(1), key(2)], [bytearray(1)])
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "parts"):
            ns.lookup([key(1)], parts=[7])
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "tokens_per_chunk"):
            ns.client.namespace("model", tokens_per_chunk=0)
        rejected = ns.put([(key(1), b"")])
        self.assertEqual((rejected.statuses, rejected.error), ([PutStatus.REJECTED], None))
        self.assertNotEqual(rejected.why, "")
        with self.assertRaises((BufferError, TypeError)):
            ns.get([key(1)], [b"read-only"])
        with self.assertRaisesRegex(ValueError, "contiguous"):
            ns.put([(key(1), Tensor(b"x", contiguous=False))])
        with self.assertRaisesRegex(ValueError, "host memory, not on cuda"):
            ns.put([(key(1), Tensor(b"x", device="cuda"))])
        with self.assertRaisesRegex(ValueError, "auto, grpc, local"):
            kvkeep.Client(self.daemon.endpoint, path="fast")
        with self.assertRaises(kvkeep.FailedPrecondition):
            self.connect("grpc").namespace("m", tokens_per_chunk=1).acquire([key(1)])
        ns.client.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            ns.lookup([key(1)])

    def test_calls_let_go_of_the_gil(self):
        ns = self.connect("grpc").namespace("model", tokens_per_chunk=256)
        self.stop()  # the call waits until its deadline
        ended = threading.Event()
        waiting = threading.Thread(target=lambda: (ns.lookup([key(1)], timeout=2), ended.set()))
        waiting.start()
        turns = 0
        while not ended.is_set():
            turns += 1
            time.sleep(0.01)
        waiting.join()
        self.go_on()
        self.assertGreater(turns, 5)  # beside a call that keeps it: 2 at most

    def test_who_we_are_and_who_it_is(self):
        client = self.connect("local")
        info = client.server_info()
        self.assertEqual(info["state"], "serving")
        self.assertGreater(info["max_keys_per_call"], 0)
        self.assertIn("local", client.path.why)
        client.namespace("model", tokens_per_chunk=256).put([(key(1), b"x" * 1000)])
        self.assertEqual(client.stats().bytes_sent, 1000)


class InPlace(WithDaemon):
    def test_acquired_chunks_are_views_of_the_daemons_memory(self):
        ns = self.connect("local").namespace("model", tokens_per_chunk=256)
        payloads = [os.urandom(1_500_000 + i) for i in range(3)]
        keys = [key(i) for i in range(4)]
        ns.put([kvkeep.Chunk(k, payload, metadata=b"m") for k, payload in zip(keys, payloads)])
        with ns.acquire(keys) as acquired:
            self.assertEqual((acquired.leading_keys, len(acquired.chunks)), (3, 3))
            for chunk, payload in zip(acquired.chunks, payloads):
                chunk.wait()
                self.assertEqual(chunk.ready_pieces, 2)
                self.assertTrue(chunk.view == payload)
                self.assertTrue(chunk.view.readonly)
                self.assertEqual(chunk.metadata, b"m")
                parts = [bytearray(1_000_000), bytearray(len(payload) - 1_000_100)]
                chunk.copy_into(parts, offset=100)
                self.assertTrue(b"".join(parts) == payload[100:])
            with self.assertRaises(kvkeep.KvkeepError) as raised:
                acquired.chunks[0].copy_into(bytearray(10), offset=len(payloads[0]))
            self.assertEqual(raised.exception.code, "OUT_OF_RANGE")
            self.assertTrue(acquired.valid)
            view = acquired.chunks[0].view
        with self.assertRaises(ValueError):
            view[0]
        self.assertFalse(acquired.valid)
        with self.assertRaises(kvkeep.FailedPrecondition):
            acquired.chunks[0].wait()

    def test_a_release_while_an_array_is_made_of_a_view_is_an_error_and_keeps_the_lease(self):
        ns = self.connect("local").namespace("model", tokens_per_chunk=256)
        ns.put([(key(1), b"x" * 10)])
        acquired = ns.acquire([key(1)])
        made = kvkeep.memory.locate(acquired.chunks[0].view)
        with self.assertRaises(BufferError):
            acquired.release()
        self.assertTrue(acquired.valid)
        del made
        acquired.release()
        self.assertFalse(acquired.valid)

    def test_what_is_forgotten_is_given_back(self):
        client = self.connect("local")
        ns = client.namespace("model", tokens_per_chunk=256)
        ns.put([(key(1), b"x" * 10)])
        for _ in range(2 * client.server_info()["max_leases_per_session"]):
            found = ns.lookup([key(1)], lease=True)
            self.assertEqual((found.error, found.leased_keys), (None, 1))
        del found
        gc.collect()


class Registered(WithDaemon):
    SIZE = 3_000_000 // mmap.PAGESIZE * mmap.PAGESIZE

    def setUp(self):
        super().setUp()
        self.client = self.connect("local")
        self.ns = self.client.namespace("model", tokens_per_chunk=256)
        self.fd = os.memfd_create("rows")
        os.ftruncate(self.fd, self.SIZE)
        self.memory = mmap.mmap(self.fd, self.SIZE)
        self.address, _, self.keep = kvkeep.memory.locate(self.memory, writable=True)

    def tearDown(self):
        os.close(self.fd)
        super().tearDown()

    def of_mapping(self, **options):
        return registered.of_mapping(self.client, self.address, self.SIZE, **options)

    def test_the_daemon_reads_it_in_place(self):
        one, = self.of_mapping(reused=True)
        self.assertEqual((one.address, one.nbytes, one.in_use), (self.address, self.SIZE, False))
        self.memory[:] = payload = os.urandom(self.SIZE)
        self.assertEqual(self.ns.put([(key(1), self.memory)]).stored, 1)
        counters = self.daemon.status()["counters"]
        self.assertEqual(counters["local_registered_bytes"], self.SIZE)
        self.assertEqual(counters["local_staging_bytes"], 0)
        self.daemon.restart()
        self.assertTrue(self.client.wait_connected(30))  # and registered anew
        self.assertEqual(self.ns.put([(key(2), self.memory)]).stored, 1)
        self.assertEqual(self.daemon.status()["counters"]["local_staging_bytes"], 0)
        into = bytearray(self.SIZE)
        self.assertEqual(self.ns.get([key(2)], [into]).hits, 1)
        self.assertTrue(into == payload)
        one.release()
        self.assertFalse(one.in_use)
        deadline = time.monotonic() + 20
        while self.daemon.status()["counters"]["local_registered_bytes"] > 0:
            self.assertLess(time.monotonic(), deadline)

    def test_a_part_is_registered_with_its_file_and_files_side_by_side_are_several(self):
        os.ftruncate(self.fd, 2 * self.SIZE)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
            ctypes.c_long]
        both = libc.mmap(None, 2 * self.SIZE, mmap.PROT_READ | mmap.PROT_WRITE,
                         mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        self.addCleanup(libc.munmap, ctypes.c_void_p(both), ctypes.c_size_t(2 * self.SIZE))
        second = os.memfd_create("more")
        self.addCleanup(os.close, second)
        os.ftruncate(second, self.SIZE)
        for fd, at in ((self.fd, both), (second, both + self.SIZE)):
            self.assertEqual(at, libc.mmap(at, self.SIZE, mmap.PROT_READ | mmap.PROT_WRITE,
                                           mmap.MAP_SHARED | 0x10, fd, 0))  # MAP_FIXED
        # The kernel keeps a part with other advice as a mapping of its own.
        libc.madvise(ctypes.c_void_p(both + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE),
                     mmap.MADV_DONTFORK)
        made = registered.of_mapping(self.client, both + 10, 2 * self.SIZE - 20)
        self.assertEqual([(one.address, one.nbytes) for one in made],
                         [(both, self.SIZE), (both + self.SIZE, self.SIZE)])

    def test_what_cannot_be_is_said(self):
        private = mmap.mmap(-1, self.SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        shared = mmap.mmap(-1, self.SIZE)  # a file without a name, and without a descriptor
        holder = tempfile.NamedTemporaryFile(dir="/dev/shm")
        holder.truncate(self.SIZE)
        of_name = mmap.mmap(holder.fileno(), self.SIZE)
        fd = os.dup(holder.fileno())
        for memory, why in ((private, "not shared"), (shared, "no descriptor"), (of_name, None)):
            address, nbytes, _ = kvkeep.memory.locate(memory, writable=True)
            if why is not None:
                with self.assertRaisesRegex(ValueError, why):
                    registered.of_mapping(self.client, address, nbytes)
            else:
                self.assertEqual(len(registered.of_mapping(self.client, address, nbytes)), 1)
                holder.close()  # and its name
                self.assertEqual(len(registered.of_mapping(self.client, address, nbytes)), 1)
                os.close(fd)
        with self.assertRaisesRegex(ValueError, "not mapped"):
            registered.of_mapping(self.client, 0x1000, 10)
        with self.assertRaises(kvkeep.FailedPrecondition):
            registered.of_mapping(self.connect("grpc"), self.address, self.SIZE)

    def test_it_is_ours_at_the_deadline_of_a_daemon_that_hangs(self):
        one, = self.of_mapping(reused=True)
        for round_ in range(20):
            number = key(round_ + 1)
            self.memory[:] = payload = bytes([round_ + 1]) * self.SIZE
            stop = threading.Timer(random.random() * 0.004, self.stop)
            stop.start()
            stored = self.ns.put([(number, self.memory)], timeout=0.25)
            stop.join()
            if stored.error is not None:
                self.assertIsInstance(stored.error, kvkeep.DeadlineExceeded)
            self.assertFalse(one.in_use)
            self.memory[:] = b"\xff" * self.SIZE
            self.go_on()
            into = bytearray(self.SIZE)
            hits = self.ns.get([number], [into]).hits
            self.assertTrue(hits == 0 and stored.stored == 0 or into == payload)


class Asyncio(WithDaemon):
    def test_many_calls_at_once_come_back_to_their_own_futures(self):
        payloads = [os.urandom(50_000 + i) for i in range(60)]

        async def go(ns):
            async with kvkeep.aio.Calls(ns.client) as calls:
                stored = await asyncio.gather(*(
                    calls.put(ns, [(key(i), payload)]) for i, payload in enumerate(payloads)))
                self.assertEqual([one.stored for one in stored], [1] * 60)
                found = await calls.lookup(ns, [key(i) for i in range(60)], lease="all")
                self.assertEqual(found.leased_keys, 60)
                into = [bytearray(60_000) for _ in payloads]
                got = await asyncio.gather(*(
                    calls.get(ns, [key(i)], [into[i]], lease=found.lease, first_key=i)
                    for i in range(60)))
                for one, memory, payload in zip(got, into, payloads):
                    self.assertEqual(one.statuses, [GetStatus.HIT])
                    self.assertTrue(memory[:one.nbytes[0]] == payload)
                found.lease.release()
                with self.assertRaises(kvkeep.InvalidArgument):
                    await calls.lookup(ns, [key(1)], parts=[7])
                self.assertEqual((await calls.delete(ns, [key(0)])).chunks, 1)

        for ns in self.namespaces():
            asyncio.run(go(ns))

    def test_a_cancelled_task_leaves_its_call_to_its_end(self):
        async def go(ns):
            async with kvkeep.aio.Calls(ns.client, capacity=4) as calls:
                self.stop()
                waiting = calls.lookup(ns, [key(1)], timeout=1)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
                late = calls.lookup(ns, [key(1)], timeout=1)
                late.cancel()
            self.go_on()  # close has waited for both

        asyncio.run(go(self.connect("grpc").namespace("model", tokens_per_chunk=256)))

    def test_a_full_queue_is_an_answer_and_not_an_exception(self):
        async def go(ns):
            async with kvkeep.aio.Calls(ns.client, capacity=2) as calls:
                answers = await asyncio.gather(*(calls.lookup(ns, [key(1)]) for _ in range(50)))
                self.assertIn("RESOURCE_EXHAUSTED",
                              {answer.error.code for answer in answers if answer.error})
                self.assertIsNone((await calls.lookup(ns, [key(1)])).error)

        asyncio.run(go(self.connect("grpc").namespace("model", tokens_per_chunk=256)))


class DaemonAway(WithDaemon):
    def test_calls_are_misses_at_once_and_the_daemon_is_found_again(self):
        for path in PATHS:
            with self.subTest(path=path):
                ns = self.connect(path).namespace("model", tokens_per_chunk=256, layout=path)
                ns.put([(key(1), b"before")])
                lease = ns.lookup([key(1)], lease=True).lease
                self.daemon.kill()
                deadline = time.monotonic() + 20
                while ns.lookup([key(1)]).error is None:
                    self.assertLess(time.monotonic(), deadline)
                begin = time.monotonic()
                for _ in range(50):
                    found = ns.lookup([key(1)], lease=True)
                    self.assertEqual((found.leading_keys, found.presence), (0, b"\0"))
                    self.assertIsInstance(found.error, kvkeep.Unavailable)
                    self.assertEqual(ns.get([key(1)], [bytearray(10)]).hits, 0)
                    self.assertEqual(ns.put([(key(2), b"x")]).stored, 0)
                self.assertLess(time.monotonic() - begin, 10)
                with self.assertRaises(ConnectionError):
                    found.raise_for_error()
                self.assertFalse(lease.alive)
                self.daemon.start()
                self.assertTrue(ns.client.wait_connected(30))
                self.assertEqual(ns.put([(key(1), b"again")]).stored, 1)
                self.assertEqual(ns.lookup([key(1)]).leading_keys, 1)

    def test_an_acquire_is_a_miss_too(self):
        """Tests the path that a client picks itself, with a daemon that was killed, took its
        sockets with it, or never existed."""
        ns = self.connect().namespace("model", tokens_per_chunk=256)
        ns.put([(key(1), b"before")])
        self.daemon.kill()
        for after in ("SIGKILL", "no socket"):
            with self.subTest(after=after):
                if after == "no socket":
                    for socket in pathlib.Path(self.daemon.dir).glob("*.sock"):
                        socket.unlink()
                fresh = kvkeep.Client(self.daemon.endpoint, timeout=0.1)
                self.addCleanup(fresh.close)
                self.assertEqual(fresh.namespace("m", tokens_per_chunk=1).lookup([key(1)]).presence,
                                 b"\0")  # gRPC was tried by now
                deadline = time.monotonic() + 20
                while ns.lookup([key(1)]).error is None:
                    self.assertLess(time.monotonic(), deadline)
                for one in (ns, fresh.namespace("m", tokens_per_chunk=1)):
                    for _ in range(50):
                        with one.acquire([key(1)]) as acquired:
                            self.assertEqual((acquired.leading_keys, acquired.chunks), (0, []))
                            self.assertIsInstance(acquired.error, kvkeep.Unavailable)
        self.daemon.start()
        deadline = time.monotonic() + 30
        while ns.acquire([key(1)]).error is not None:  # never an exception, up to the first answer
            self.assertLess(time.monotonic(), deadline)

    def test_lookups_beside_a_daemon_that_hangs_never_wait(self):
        """More keys than the socket takes, so that sending one more lasts as long as the
        timeout."""
        limit_s = 20.0
        for ns in self.namespaces():
            completions = Completions(ns.client)

            def ask(keys, _, ended, ns=ns, completions=completions):
                completions.start(kvkeep.calls.lookup(ns, keys, timeout=limit_s),
                                  lambda found, _: ended([] if found.error else keys))

            lookups, keys = Lookups(ask), [key(number) for number in range(20_000)]
            self.stop()
            before = time.monotonic()
            for number, one in enumerate(keys):
                lookups.want(one, number // 1000)
            lookups.flush()
            took = time.monotonic() - before
            self.go_on()
            self.assertLess(took, limit_s / 2)
            while any(lookups.want(one, number // 1000) is None for number, one in enumerate(keys)):
                self.assertTrue(completions.wait(2 * limit_s))
                lookups.flush()
            completions.close()

    def test_a_client_of_a_daemon_that_is_not_there_yet_is_no_error(self):
        self.daemon.kill()
        client = kvkeep.Client(self.daemon.endpoint, timeout=0.1)
        ns = client.namespace("model", tokens_per_chunk=256)
        self.assertFalse(client.connected)
        self.assertEqual(ns.lookup([key(1)]).leading_keys, 0)
        client.close()

    def test_a_child_of_fork_leaves_its_parents_handles_alone(self):
        client = self.connect("local")
        ns = client.namespace("model", tokens_per_chunk=256)
        ns.put([(key(1), b"x")])
        found = ns.lookup([key(1)], lease=True)
        child = os.fork()
        if child == 0:
            try:
                ns.lookup([key(1)])
            except RuntimeError:
                del found, ns, client
                gc.collect()
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(found.lease.alive)
        self.assertEqual(ns.lookup([key(1)]).leading_keys, 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
