"""kvkeep.connect: names and bytes, blocking and with asyncio, on a real daemon.

    cache_test.py SOURCES LIBRARY KVKEEPD
"""

import asyncio
import os
import pathlib
import subprocess
import sys
import unittest

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

import kvkeep  # noqa: E402
from daemon import Daemon  # noqa: E402
from kvkeep.cache import key_of  # noqa: E402

# Sizes below and above those of a key, of the first buffer for a value, and of a call's bytes.
SIZES = [1, 100, 64 * 1024, 64 * 1024 + 1, 3_000_000, 30_000_000, 5]


def value(number, size):
    return (number.to_bytes(4, "little") * (size // 4 + 1))[:size]


class Names(unittest.TestCase):
    def test_a_key_is_itself_and_all_else_is_hashed(self):
        digest = bytes(range(32))
        self.assertEqual(key_of(digest), digest)
        self.assertEqual(key_of(digest.hex()), digest)
        self.assertEqual(key_of(digest.hex().upper()), digest)
        for name in ("", "a", "x" * 64, "é", b"a", b"x" * 100_000, digest.hex()[:-1]):
            self.assertEqual(len(key_of(name)), 32)
        self.assertEqual(key_of("a"), key_of(b"a"))
        self.assertNotEqual(key_of(digest.hex() + "\n"), digest)


class WithDaemon(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.__enter__()
        self.addCleanup(self.daemon.__exit__, None, None, None)

    def connect(self, **options):
        cache = kvkeep.connect(self.daemon.endpoint, timeout=20, **options)
        self.addCleanup(cache.close)
        return cache


class Blocking(WithDaemon):
    def test_what_was_put_comes_back_by_each_path(self):
        for path in ("local", "grpc"):
            with self.subTest(path=path), self.connect(path=path, namespace=path) as cache:
                self.assertIsNone(cache.get("greeting"))
                self.assertNotIn("greeting", cache)
                self.assertTrue(cache.put("greeting", b"hello"))
                self.assertEqual(cache.get("greeting"), b"hello")
                self.assertIn("greeting", cache)
                self.assertEqual(cache.exists("greeting", "greeting", "none"), 2)
                # It never changes.
                self.assertTrue(cache.put("greeting", b"others"))
                self.assertEqual(cache.get("greeting"), b"hello")
                self.assertEqual(cache.delete("greeting", "greeting", "none"), 1)
                self.assertIsNone(cache.get("greeting"))

    def test_values_of_all_sizes_and_many_names(self):
        cache = self.connect()
        names = [f"name {i}" for i in range(150)]
        kept = {name: value(i, SIZES[i % 4] if i >= len(SIZES) else SIZES[i])
                for i, name in enumerate(names)}
        self.assertEqual(cache.put_many(kept), len(kept))
        asked = names[:80] + ["none", names[0]] + names[80:]
        for name, data in cache.get_many(iter(asked)):
            self.assertEqual(data, kept.get(name), name)
        self.assertEqual([cache.get(name) for name in names], list(kept.values()))
        self.assertEqual(cache.exists(*asked), 151)
        self.assertEqual(cache.delete(*asked), 150)

    def test_buffers_of_all_kinds_and_mistakes(self):
        cache = self.connect()
        self.assertEqual(cache.put_many([("a", bytearray(b"1")), ("b", memoryview(b"2"))]), 2)
        self.assertEqual(dict(cache.get_many("ab")), {"a": b"1", "b": b"2"})
        with self.assertRaisesRegex(ValueError, "'empty': a value has 1 to 268435456 bytes"):
            cache.put("empty", b"")
        with self.assertRaises(TypeError):
            cache.put("text", "no bytes")
        # This is above a limit of this daemon.
        self.assertFalse(cache.put("large", bytes(40_000_000)))
        with self.assertRaisesRegex(kvkeep.ResourceExhausted, "limit is 33554432"):
            self.connect(strict=True).put("large", bytes(40_000_000))
        self.assertEqual(cache.delete(), 0)
        self.assertEqual(list(cache.get_many([])), [])

    def test_the_command_line_has_the_same_names(self):
        cache = self.connect()
        cache.put("from python", b"bytes", durable=True)
        tool = [str(pathlib.Path(KVKEEPD).parent / "kvkeep"), "--endpoint", self.daemon.endpoint]
        back = f"{self.daemon.dir}/back"
        subprocess.run([*tool, "get", "from python", "-o", back], check=True, capture_output=True)
        self.assertEqual(pathlib.Path(back).read_bytes(), b"bytes")
        subprocess.run([*tool, "put", "from the tool", back], check=True, capture_output=True)
        self.assertEqual(cache.get("from the tool"), b"bytes")

    def test_the_example_prints_what_it_put_and_deleted(self):
        example = SOURCES / "client" / "python" / "examples" / "names.py"
        done = subprocess.run(
            [sys.executable, "-B", example, self.daemon.endpoint], capture_output=True, text=True,
            check=False, env=os.environ | {"PYTHONPATH": str(SOURCES / "client" / "python")})
        self.assertEqual(done.stdout.splitlines(), [
            "b'hello'", "one b'1'", "two b'2'", "three None", "3 deleted", "None"], done.stderr)

    def test_a_daemon_that_is_away_is_a_miss_or_with_strict_an_error(self):
        cache, strict = self.connect(), self.connect(strict=True)
        cache.put("a", b"1")
        self.daemon.kill()
        self.assertIsNone(cache.get("a", timeout=5))
        self.assertFalse(cache.put("b", b"2", timeout=5))
        self.assertEqual((cache.exists("a"), cache.delete("a")), (0, 0))
        for call in (lambda: strict.get("a", timeout=5), lambda: strict.put("a", b"1", timeout=5),
                     lambda: strict.delete("a"), lambda: "a" in strict):
            with self.assertRaises(ConnectionError):
                call()
        with self.assertRaisesRegex(ConnectionError, "kvkeep up"):
            kvkeep.connect(self.daemon.endpoint, timeout=0.2)


    def test_a_close_beside_calls_lets_them_end(self):
        """In a process of its own: the fault was a crash."""
        program = f"""
import sys, threading, kvkeep
for _ in range(40):
    cache = kvkeep.connect({self.daemon.endpoint!r}, timeout=20)
    cache.put("a", b"1")
    def use():
        try:
            while True:
                assert cache.get("a") in (b"1", None)
        except ValueError:
            pass  # closed
    threads = [threading.Thread(target=use) for _ in range(6)]
    [thread.start() for thread in threads]
    cache.close()
    [thread.join(30) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)
"""
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program],
                              env={**os.environ, "PYTHONPATH": sys.path[0]}, capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_small_values_are_cheap_after_a_large_one(self):
        cache = self.connect()
        cache.put("large", bytes(20_000_000))
        self.assertEqual(len(cache.get("large")), 20_000_000)
        self.assertLessEqual(cache._room, 1 << 20)


class Asyncio(WithDaemon):
    def test_more_calls_than_may_be_at_once_wait_for_their_turn(self):
        async def use():
            async with await kvkeep.connect_async(self.daemon.endpoint, timeout=20) as cache:
                await cache.put("a", b"1")
                got = await asyncio.gather(*(cache.get("a") for _ in range(2500)))
                self.assertEqual(set(got), {b"1"})
                # A task that is cancelled keeps its turn until its call is over, and no longer.
                for _ in range(3):
                    tasks = [asyncio.ensure_future(cache.get("a")) for _ in range(1500)]
                    await asyncio.sleep(0)
                    [task.cancel() for task in tasks]
                    await asyncio.gather(*tasks, return_exceptions=True)
                self.assertEqual(await cache.get("a"), b"1")
        asyncio.run(use())

    def test_it_closes_once_and_after_a_client_that_is_gone(self):
        async def use():
            cache = await kvkeep.connect_async(self.daemon.endpoint, timeout=20)
            await cache.put("a", b"1")
            gets = [asyncio.ensure_future(cache.get("a")) for _ in range(300)]
            await asyncio.sleep(0)
            await asyncio.gather(cache.close(), cache.close())
            self.assertEqual(set(await asyncio.gather(*gets)), {b"1"})
            other = await kvkeep.connect_async(self.daemon.endpoint, timeout=20)
            other.client.close()
            with self.assertRaises(ValueError):
                await other.get("a")
            await asyncio.wait_for(other.close(), 20)
        asyncio.run(use())

    def test_the_same_with_asyncio(self):
        async def use():
            async with await kvkeep.connect_async(self.daemon.endpoint, timeout=20) as cache:
                kept = {f"name {i}": value(i, size) for i, size in enumerate(SIZES)}
                self.assertEqual(await cache.put_many(kept), len(kept))
                got = await asyncio.gather(*(cache.get(name) for name in kept))
                self.assertEqual(got, list(kept.values()))
                found = {name: data async for name, data in cache.get_many([*kept, "none"])}
                self.assertEqual(found, {**kept, "none": None})
                self.assertTrue(await cache.put("name 0", b"others"))
                self.assertEqual(await cache.exists("name 0", "none"), 1)
                self.assertEqual(await cache.delete("name 0"), 1)
                self.assertIsNone(await cache.get("name 0"))
                self.assertIn("local", cache.client.path)
        asyncio.run(use())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
