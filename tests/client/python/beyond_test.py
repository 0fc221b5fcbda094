"""Gets of the package, and of the C library below it, bring what another node put.

    beyond_test.py SOURCES LIBRARY KVKEEPD
"""

import asyncio
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

import kvkeep  # noqa: E402
import kvkeep.aio  # noqa: E402
from daemon import Daemon  # noqa: E402
from kvkeep import GetStatus  # noqa: E402

NBYTES = 300_000
STORED = 12


def key(number):
    return number.to_bytes(32, "little")


def payload(number):
    return bytes([number]) * NBYTES


class Beyond(unittest.TestCase):
    """Two nodes of a fleet: the first one put chunks and is gone, the second one has none."""

    @classmethod
    def setUpClass(cls):
        place = pathlib.Path(tempfile.mkdtemp(prefix="kvkeep-g4-"))
        cls.addClassCleanup(shutil.rmtree, place, ignore_errors=True)
        (place / "objects").mkdir()
        (place / "objects" / ".kvkeep").write_text("tests\n")
        key_file = place / "key"
        key_file.write_text("5" * 32 + "0" * 32)
        key_file.chmod(0o600)
        settings = {"KVKEEP_G4_URL": f"file://{place}/objects", "KVKEEP_G4_ADMISSION": "all",
                    "KVKEEP_G4_WRITE_BYTES_PER_SECOND": "1GiB", "KVKEEP_FLEET_NAME": "tests",
                    "KVKEEP_FLEET_KEY_FILE": str(key_file)}
        with Daemon(KVKEEPD, settings) as first:
            with kvkeep.Client(first.endpoint, timeout=20) as client:
                ns = client.namespace("beyond", tokens_per_chunk=16)
                put = ns.put([(key(number), payload(number)) for number in range(STORED)])
                assert (put.stored, put.error) == (STORED, None)
                first.wait_beyond(STORED)
        cls.second = Daemon(KVKEEPD, settings)
        cls.second.start()
        cls.addClassCleanup(cls.second.__exit__)

    def by_each_path(self, check):
        for path in ("grpc", "local"):
            with self.subTest(path=path), \
                    kvkeep.Client(self.second.endpoint, path=path, timeout=20) as client:
                self.assertTrue(client.wait_connected(20))
                self.second.clear()
                check(client.namespace("beyond", tokens_per_chunk=16))

    def get(self, ns, numbers, **options):
        into = [bytearray(NBYTES) for _ in numbers]
        got = ns.get([key(number) for number in numbers], into, **options)
        self.assertIsNone(got.error)
        for number, memory, good in zip(numbers, into, got.good):
            if good:
                self.assertTrue(memory == payload(number), number)
        return got.statuses

    def test_it_has_it_unless_it_asks_nobody(self):
        def check(ns):
            self.assertEqual(self.get(ns, [3], remote_wait=0), [GetStatus.MISS])
            deadline = time.monotonic() + 60
            while self.get(ns, [3]) == [GetStatus.MISS]:  # it waits for a second
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(self.get(ns, [3], remote_wait=0), [GetStatus.HIT])
            self.assertEqual(self.get(ns, [200, *range(STORED)], remote_wait=10),
                             [GetStatus.MISS] + [GetStatus.HIT] * STORED)

        self.by_each_path(check)

    def test_so_has_one_that_nobody_waits_for(self):
        async def go(ns):
            async with kvkeep.aio.Calls(ns.client) as calls:
                into = bytearray(NBYTES)
                got = await calls.get(ns, [key(5)], [into], remote_wait=10)
                return got.hits, into == payload(5)

        self.by_each_path(lambda ns: self.assertEqual(asyncio.run(go(ns)), (1, True)))

    def test_a_wait_above_the_limit_is_a_mistake_and_one_above_the_timeout_is_cut(self):
        def check(ns):
            with self.assertRaisesRegex(ValueError, "remote_wait_us is 11000000"):
                self.get(ns, [1], remote_wait=11, timeout=60)
            began = time.monotonic()
            self.assertEqual(self.get(ns, [201], remote_wait=10, timeout=4), [GetStatus.MISS])
            self.assertLess(time.monotonic() - began, 4)

        self.by_each_path(check)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
