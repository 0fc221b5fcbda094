"""Calls about more keys than a real daemon takes at once, and chunks that are too large for it.

    long_calls_test.py SOURCES LIBRARY KVKEEPD
"""

import asyncio
import os
import pathlib
import sys
import time
import unittest

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

import kvkeep  # noqa: E402
import kvkeep.aio  # noqa: E402
from daemon import Daemon  # noqa: E402
from kvkeep import GetStatus, engine  # noqa: E402
from kvkeep.completions import Completions  # noqa: E402

MOST = 500  # keys in one request
STORED = 1_200


def key(number):
    return number.to_bytes(32, "little")


def payload(number):
    return number.to_bytes(8, "little") * 10


class LongCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(KVKEEPD, {"KVKEEP_LIMITS_KEYS_PER_CALL": str(MOST)})
        cls.daemon.start()
        cls.addClassCleanup(cls.daemon.__exit__)

    def tearDown(self):
        self.daemon.clear()

    def namespaces(self, stored=range(STORED), parts=1):
        """Yields a namespace with these keys, by each path."""
        for path in ("grpc", "local"):
            with self.subTest(path=path):
                client = kvkeep.Client(self.daemon.endpoint, path=path, name="long", timeout=60)
                self.addCleanup(client.close)
                self.assertTrue(client.wait_connected(20))
                self.assertEqual(client.server_info()["max_keys_per_call"], MOST)
                ns = client.namespace(self.id(), tokens_per_chunk=16, layout=path, parts=parts)
                put = ns.put([kvkeep.Chunk(key(k), payload(k), part)
                              for k in stored for part in range(parts)])
                self.assertEqual((put.stored, put.error), (len(stored) * parts, None))
                yield ns

    def leases(self):
        """Returns how many leases the daemon holds, once all releases have arrived."""
        deadline = time.monotonic() + 20
        while True:
            leases = sum(session["leases"] for session in self.daemon.status()["sessions"])
            if leases == 0 or time.monotonic() > deadline:
                return leases
            time.sleep(0.01)

    def test_a_lookup_of_any_length_is_one_answer_under_one_lease(self):
        for ns in self.namespaces():
            for count in (MOST, MOST + 1, STORED, 70_000):
                found = ns.lookup([key(k) for k in range(count)], lease=True)
                there = min(count, STORED)
                self.assertEqual((found.error, found.leading_keys, found.leased_keys),
                                 (None, there, there))
                self.assertEqual(sum(one != 0 for one in found.presence), there)
                self.assertEqual(found.leased, [True] * there + [False] * (count - there))
                self.assertGreater(found.leased_bytes, there * 4096)
                self.assertEqual(ns.lookup([key(k) for k in range(count)]).leading_keys, there)
                first = max(there - 600, 0)
                with found.lease as lease:
                    into = [bytearray(80) for _ in range(first, there)]
                    got = ns.get([key(k) for k in range(first, there)], into, lease=lease,
                                 first_key=first)
                    self.assertEqual((got.error, got.hits), (None, len(into)))
                    self.assertEqual(into, [payload(k) for k in range(first, there)])
                    lease.shrink(there // 2)
                    self.assertTrue(lease.alive)
                self.assertEqual(self.leases(), 0)

    def test_a_gap_ends_the_leading_run_and_its_lease_and_hides_nothing_behind_it(self):
        stored = [k for k in range(STORED) if k != 700]
        for ns in self.namespaces(stored):
            keys = [key(k) for k in range(STORED)]
            found = ns.lookup(keys, lease="leading")
            self.assertEqual((found.leading_keys, found.leased_keys), (700, 700))
            self.assertEqual([at for at, one in enumerate(found.presence) if not one], [700])
            found.lease.release()
            found = ns.lookup(keys, lease="all")
            self.assertEqual((found.leading_keys, found.leased_keys), (700, STORED))
            with found.lease as lease:
                got = ns.get(keys, [bytearray(80) for _ in keys], lease=lease)
            self.assertEqual((got.error, got.hits), (None, STORED - 1))
            self.assertEqual(got.statuses[700], GetStatus.MISS)

    def test_gets_touches_prefetches_and_deletes_of_any_length(self):
        for ns in self.namespaces():
            keys = [key(k) for k in range(70_000)]
            into = [bytearray(80) for _ in keys]
            got = ns.get(keys, into)
            self.assertEqual((got.error, got.hits), (None, STORED))
            self.assertEqual(into[:STORED], [payload(k) for k in range(STORED)])
            self.assertEqual(got.statuses[STORED], GetStatus.MISS)
            self.assertEqual(ns.touch(keys).chunks, STORED)
            self.assertEqual(ns.prefetch(keys).ready_chunks, STORED)
            self.assertEqual(ns.delete(keys).chunks, STORED)
            self.assertEqual(ns.lookup(keys).leading_keys, 0)

    def test_all_parts_of_a_key_are_asked_for_together(self):
        for ns in self.namespaces(range(300), parts=3):
            keys = [key(k) for k in range(400)]
            found = ns.lookup(keys, lease=True)
            self.assertEqual((found.leading_keys, found.leased_keys), (300, 300))
            self.assertEqual(found.presence.count(0), 300)
            into = [bytearray(80) for _ in range(600)]
            with found.lease as lease:
                got = ns.get(keys[50:250], into, lease=lease, first_key=50, timeout=20)
            self.assertEqual((got.error, got.hits), (None, 600))
            self.assertEqual(into[300], payload(150))
            self.assertEqual(ns.touch(keys).chunks, 900)
            self.assertEqual(ns.touch(keys, parts=[2]).chunks, 300)

    def test_calls_that_nobody_waits_for_are_split_too(self):
        for ns in self.namespaces():
            keys = [key(k) for k in range(70_000)]

            async def go(ns=ns, keys=keys):
                async with kvkeep.aio.Calls(ns.client) as calls:
                    found, got = await asyncio.gather(
                        calls.lookup(ns, keys, lease=True),
                        calls.get(ns, keys[:STORED], [bytearray(80) for _ in range(STORED)]))
                    found.lease.release()
                    return found.leased_keys, got.hits

            self.assertEqual(asyncio.run(go()), (STORED, STORED))
            done = Completions(ns.client)
            self.addCleanup(done.close)
            ended = []
            done.start(kvkeep.calls.lookup(ns, keys), lambda *outcome: ended.append(outcome))
            self.assertTrue(done.wait(60))
            self.assertEqual((ended[0][0].leading_keys, ended[0][1]), (STORED, None))

    def test_chunks_in_place_are_acquired_over_requests(self):
        for ns in self.namespaces([k for k in range(STORED) if k != 1_100]):
            if ns.client.path.name == "grpc":
                continue
            keys = [key(k) for k in range(STORED)]
            with ns.acquire(keys) as acquired:
                self.assertEqual((acquired.error, acquired.leading_keys, acquired.leased_keys),
                                 (None, 1_100, 1_100))
                self.assertEqual([chunk.chunk for chunk in acquired.chunks], list(range(1_100)))
                for at in (0, 499, 500, 999, 1_000, 1_099):
                    acquired.chunks[at].wait()
                    self.assertEqual(bytes(acquired.chunks[at].view), payload(at))
                self.assertTrue(acquired.valid)
            with ns.acquire(keys, all_present=True) as acquired:
                self.assertEqual(acquired.chunks[-1].chunk, STORED - 1)
                self.assertEqual(bytes(acquired.chunks[-1].view), payload(STORED - 1))
            with ns.acquire([key(k) for k in range(5_000, 6_000)]) as acquired:
                self.assertEqual((acquired.leading_keys, acquired.chunks), (0, []))
            self.assertEqual(self.leases(), 0)

    def test_one_timeout_is_for_all_of_it(self):
        for ns in self.namespaces():
            for _ in range(10):  # the daemon may come to the call and its repetition in any order
                began = time.monotonic()
                found = ns.lookup([key(k) for k in range(70_000)], lease=True, timeout=0.001)
                self.assertLess(time.monotonic() - began, 5)
                self.assertIsInstance(found.error, kvkeep.errors.DeadlineExceeded)
                self.assertEqual((found.leading_keys, found.lease), (0, None))
            self.assertEqual(self.leases(), 0)


class ChunkSizes(unittest.TestCase):
    def check(self, client, nbytes):
        engine.check_chunk_bytes(client, nbytes, "a chunk of 1024 tokens")

    def test_what_the_daemon_can_never_take_is_refused_by_name(self):
        with Daemon(KVKEEPD) as daemon:  # G2 of 128 MiB: a quarter is for puts in progress
            for path in ("grpc", "local"):
                with self.subTest(path=path):
                    client = kvkeep.Client(daemon.endpoint, path=path, timeout=20)
                    self.addCleanup(client.close)
                    self.assertTrue(client.wait_connected(20))
                    most = client.server_info()["max_payload_bytes"]
                    self.assertEqual(most, (32 << 20) - (20 << 10))
                    self.check(client, most)
                    with self.assertRaisesRegex(ValueError, f"1024 tokens.* at most {most}.*g2."):
                        self.check(client, most + 1)
                    ns = client.namespace("sizes", tokens_per_chunk=16, layout=path)
                    metadata = b"m" * (16 << 10)
                    put = ns.put([kvkeep.Chunk(key(1), bytes(most), metadata=metadata)])
                    self.assertEqual((put.stored, put.why), (1, ""))
                    into = bytearray(most)
                    self.assertEqual(ns.get([key(1)], [into]).hits, 1)
                    put = ns.put([kvkeep.Chunk(key(2), bytes(most + 1), metadata=metadata)])
                    self.assertEqual(put.stored, 0)
            daemon.kill()
            self.check(client, 1 << 40)

    def test_the_limit_of_all_daemons_is_named_where_memory_is_no_limit(self):
        class Info:
            def server_info(self, timeout):
                del timeout
                return {"max_payload_bytes": 256 << 20}

        self.check(Info(), 256 << 20)
        with self.assertRaisesRegex(ValueError, "fewer tokens, or split it into more parts$"):
            self.check(Info(), (256 << 20) + 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
