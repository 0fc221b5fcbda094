"""kvkeep.lmcache on LMCache's recorded classes, with a real daemon; LMCache itself is not needed.

    lmcache_test.py SOURCES LIBRARY KVKEEPD
"""

import dataclasses
import inspect
import os
import pathlib
import select
import signal
import sys
import time
import types
import unittest
from unittest import mock

import signatures

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]


class Bitmap(list):
    """The part of LMCache's class that is used."""

    def __init__(self, size):
        super().__init__([False] * size)

    def set(self, number):
        self[number] = True


class Notifier:
    def __init__(self):
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self):
        return self.fd

    def notify(self):
        os.eventfd_write(self.fd, 1)

    def consume(self):
        os.eventfd_read(self.fd)

    def close(self):
        os.close(self.fd)


class StoreResult(int):
    def __new__(cls, success, bytes_transferred):
        return super().__new__(cls, bytes_transferred if success else -1)


def fake_lmcache():
    """The records, and the code that they lack."""
    for module in signatures.WANTED:
        if module.startswith("lmcache."):
            signatures.load(module)
    signatures.installed("lmcache", "0.5.6")
    signatures.load("lmcache.lmcache_native").Bitmap = Bitmap
    signatures.load("lmcache.v1.platform").create_event_notifier = Notifier
    signatures.load("lmcache.v1.distributed.internal_api").L2StoreResult = StoreResult
    logger = types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None)
    signatures.load("lmcache.logging").init_logger = lambda _: logger
    return sys.modules["lmcache.v1.distributed.l2_adapters.base"].L2AdapterInterface


BASE = fake_lmcache()
from daemon import Daemon  # noqa: E402
from kvkeep import engine_versions  # noqa: E402
from kvkeep.engine import Breaker  # noqa: E402
from kvkeep.lmcache import KvkeepL2  # noqa: E402
from lmcache.v1.distributed.api import ObjectKey  # noqa: E402
from lmcache_rig import RefusesMixedObjects  # noqa: E402


def keys(count, **other):
    return [ObjectKey(**{"chunk_hash": bytes([i + 1]) * 32, "model_name": "m",
                         "kv_rank": 0x01000100, **other}) for i in range(count)]


class Object:
    """The part of a MemoryObj that is used."""

    def __init__(self, fill, nbytes=4096, shape=(2, 1024), dtype="bfloat16"):
        self.memory = bytearray([fill]) * nbytes
        self.byte_array = memoryview(self.memory)
        self.metadata = types.SimpleNamespace(shape=shape, dtype=dtype, shapes=None, dtypes=None)

    def get_size(self):
        return len(self.memory)


def objects(count, first=1, **other):
    return [Object(first + i, **other) for i in range(count)]


class LMCache(RefusesMixedObjects, unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def adapter(self, **options):
        adapter = KvkeepL2({"endpoint": self.daemon.endpoint, "name": "w",
                            "lookup_timeout_s": 20.0, **options}, l1_memory_desc=None)
        self.addCleanup(adapter.close)
        return adapter

    def make_one(self):
        return self.adapter()

    def wait(self, fd, query):
        """Acts as LMCache's controllers: waits for the event, then asks."""
        while True:
            self.assertTrue(select.select([fd], [], [], 30)[0], "no event")
            os.eventfd_read(fd)
            result = query()
            if result is not None:
                return result

    def store(self, adapter, *what):
        task = adapter.submit_store_task(*what)
        return self.wait(adapter.get_store_event_fd(),
                         lambda: adapter.pop_completed_store_tasks().get(task))

    def lookup(self, adapter, asked):
        task = adapter.submit_lookup_and_lock_task(asked, {})
        return self.wait(adapter.get_lookup_and_lock_event_fd(),
                         lambda: adapter.query_lookup_and_lock_result(task))

    def answers(self, adapter, tasks, fd=None, query=None):
        """Returns results by task, for several that are under way: of lookups, unless another
        method is given."""
        fd = adapter.get_lookup_and_lock_event_fd() if fd is None else fd
        query, said = query or adapter.query_lookup_and_lock_result, {}
        while len(said) < len(tasks):
            self.assertTrue(select.select([fd], [], [], 30)[0], "no event")
            os.eventfd_read(fd)
            for task in tasks:
                result = query(task)
                if result is not None:
                    said[task] = result
        return said

    def hang(self):
        self.daemon.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.daemon.process.pid, os.WUNTRACED)

    @staticmethod
    def let_lookups_take(adapter, seconds):
        adapter._options = dataclasses.replace(adapter._options, lookup_timeout_s=seconds)

    def load(self, adapter, *what):
        task = adapter.submit_load_task(*what)
        return self.wait(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))

    def status(self, adapter, name):
        return adapter.report_status().get(name, 0)

    def test_it_has_the_methods_that_lmcache_calls(self):
        for name in BASE.__abstractmethods__ | {"delete", "report_status"}:
            theirs, ours = (inspect.signature(getattr(kind, name)) for kind in (BASE, KvkeepL2))
            self.assertEqual(list(ours.parameters), list(theirs.parameters), name)
        self.assertEqual(KvkeepL2.__abstractmethods__, frozenset())
        fds = [getattr(self.adapter(), f"get_{kind}_event_fd")()
               for kind in ("store", "lookup_and_lock", "load")]
        self.assertEqual(len(set(fds)), 3)

    def test_what_one_server_stored_is_found_by_another(self):
        for path in ("local", "grpc"):
            with self.subTest(path=path):
                first, asked = self.adapter(path=path), keys(4, cache_salt=path)
                self.assertEqual(self.store(first, asked[:3], objects(3)), 3 * 4096)
                self.assertEqual(self.store(first, asked[:3], objects(3)), 3 * 4096)  # present
                self.assertEqual(self.status(first, "stored_bytes"), 3 * 4096)
                second = self.adapter(path=path)
                self.assertEqual(self.lookup(second, asked), [True, True, True, False])
                into = objects(4, first=100)
                self.assertEqual(self.load(second, asked, into), [True, True, True, False])
                for fill, one in enumerate(into[:3], start=1):
                    self.assertEqual(bytes(one.memory), bytes([fill]) * 4096)
                second.submit_unlock(asked)

    def test_another_model_rank_group_or_salt_is_another_object(self):
        adapter = self.adapter()
        self.store(adapter, keys(1), objects(1))
        for other in ({"model_name": "n"}, {"kv_rank": 0x01010101}, {"object_group_id": 1},
                      {"cache_salt": "s"}):
            self.assertEqual(self.lookup(adapter, keys(1, **other)), [False], other)
        self.assertEqual(self.lookup(self.adapter(name="tuned"), keys(1)), [False])
        self.assertEqual(self.lookup(adapter, keys(1) + keys(1, model_name="n")), [True, False])
        self.store(self.adapter(name="v2"), keys(2), objects(2))
        self.assertEqual(self.lookup(adapter, keys(2, model_name="m v2")), [False] * 2)

    def test_an_object_of_another_size_or_layout_is_a_miss(self):
        adapter = self.adapter()
        self.store(adapter, keys(1), objects(1))
        for other in ({"nbytes": 8192}, {"nbytes": 2048}, {"shape": (1024, 2)},
                      {"dtype": "float16"}):
            self.assertEqual(self.load(adapter, keys(1), objects(1, **other)), [False], other)
        self.assertEqual(self.load(adapter, keys(1), objects(1)), [True])

    def of_two_ranks(self, chunks):
        """Asks rank by rank, as LMCache does."""
        return keys(chunks) + keys(chunks, kv_rank=0x01010101)

    def test_what_nvme_alone_has_is_found_only_where_that_is_faster_than_computing(self):
        asked = self.of_two_ranks(3)
        self.store(self.adapter(), asked, objects(6))
        self.daemon.wait_clean(6)
        self.daemon.restart()  # its DRAM is empty
        fast, slow = (self.adapter(prefill_tokens_per_s=rate) for rate in (1e12, 1e-3))
        for _ in range(2):  # and this does not bring it to DRAM
            self.assertEqual(self.lookup(fast, asked), [False] * 6)
        self.assertEqual(self.status(fast, "leases"), 0)
        first = self.of_two_ranks(1) + keys(2)[1:]  # one rank of the second chunk
        self.assertEqual(self.lookup(slow, first), [True] * 3)
        self.assertEqual(self.load(slow, first, objects(3)), [True] * 3)
        slow.submit_unlock(first)
        # Only a chunk that DRAM has in whole is found: the first one, for each rank.
        self.assertEqual(self.lookup(fast, asked), [True, False, False] * 2)
        self.assertEqual((self.status(fast, "worth_good"), self.status(fast, "lookup_good")),
                         (2, 2))
        self.assertEqual(self.lookup(slow, self.of_two_ranks(4)), [True] * 3 + [False]
                         + [True] * 3 + [False])
        self.daemon.kill()
        self.assertEqual(self.lookup(slow, asked), [False] * 6)

    def test_it_may_close_between_the_two_lookups(self):
        adapter = self.adapter(prefill_tokens_per_s=1.0)
        self.store(adapter, keys(2), objects(2))
        adapter.submit_lookup_and_lock_task(keys(2), {})
        adapter.close()

    def test_locks_are_leases(self):
        adapter = self.adapter()
        self.store(adapter, keys(3), objects(3))
        self.lookup(adapter, keys(3))
        self.lookup(adapter, keys(2))
        self.assertEqual(self.status(adapter, "leases"), 2)
        adapter.submit_unlock(keys(3))
        self.assertEqual(self.status(adapter, "leases"), 1)
        adapter.submit_unlock(keys(2))
        self.assertEqual(self.status(adapter, "leases"), 0)

    def test_locks_of_one_model_are_not_those_of_another(self):
        adapter = self.adapter()
        mine, others = keys(1), keys(1, model_name="n")
        for of_model in (mine, others):
            self.store(adapter, of_model, objects(1))
            self.assertEqual(self.lookup(adapter, of_model), [True])
        adapter.submit_unlock(others + others)
        self.assertEqual(self.status(adapter, "leases"), 1)
        adapter.submit_unlock(mine)
        self.assertEqual(self.status(adapter, "leases"), 0)

    def test_an_object_that_broke_meanwhile_costs_its_own_call_alone(self):
        adapter = self.adapter()
        self.store(adapter, keys(1), objects(1))
        broken = objects(1)
        broken[0].get_size = None
        self.assertEqual(self.load(adapter, keys(1), broken), [False])
        self.assertEqual(self.load(adapter, keys(1), objects(1)), [True])

    def test_what_the_daemon_does_not_promise_is_not_found(self):
        adapter, asked = self.adapter(), keys(100)  # half of the daemon's 128 MiB may be leased
        self.store(adapter, asked, objects(100, nbytes=1 << 20))
        found = self.lookup(adapter, asked)
        self.assertTrue(30 < sum(found) < 64, sum(found))
        leased = [key for key, one in zip(asked, found) if one]
        into = objects(len(leased), nbytes=1 << 20)
        self.assertEqual(self.load(adapter, leased, into), [True] * len(leased))
        adapter.submit_unlock(leased)
        self.assertTrue(any(self.lookup(adapter, asked[64:])))

    def test_what_is_deleted_is_a_miss(self):
        adapter = self.adapter()
        self.store(adapter, keys(2), objects(2))
        adapter.delete(keys(1))
        while not self.status(adapter, "delete_good"):  # nothing reports its end
            self.lookup(adapter, keys(2))
        self.assertEqual(self.lookup(adapter, keys(2)), [False, True])

    def test_a_daemon_that_is_away_is_a_miss_and_found_again(self):
        adapter = self.adapter()
        self.store(adapter, keys(2), objects(2))
        self.daemon.kill()
        self.assertEqual(self.lookup(adapter, keys(2)), [False, False])
        self.assertEqual(self.load(adapter, keys(2), objects(2)), [False, False])
        self.assertEqual(self.store(adapter, keys(2), objects(2)), -1)
        self.assertFalse(self.status(adapter, "is_healthy"))
        self.daemon.start()
        self.assertTrue(adapter._client.wait_connected(30))
        self.assertEqual(self.store(adapter, keys(2), objects(2)), 2 * 4096)
        self.assertEqual(self.lookup(adapter, keys(2)), [True, True])

    def test_a_server_may_start_before_the_daemon(self):
        self.daemon.kill()
        adapter = self.adapter(lookup_timeout_s=0.05)
        self.assertEqual(self.lookup(adapter, keys(1)), [False])
        self.daemon.start()
        self.assertTrue(adapter._client.wait_connected(30))
        self.assertEqual(self.store(adapter, keys(1), objects(1)), 4096)

    def test_a_daemon_that_hangs_is_waited_for_once(self):
        adapter = self.adapter()
        self.store(adapter, keys(1), objects(1))
        adapter._breaker = Breaker(retry_s=3600)
        self.hang()
        self.let_lookups_take(adapter, 0.2)
        for _ in range(20):
            self.assertEqual(self.lookup(adapter, keys(1)), [False])
        self.assertEqual(self.status(adapter, "calls_given_up"), 19)
        self.daemon.process.send_signal(signal.SIGCONT)
        adapter._breaker = Breaker()  # as if its time had come
        self.assertEqual(self.load(adapter, keys(1), objects(1)), [True])
        deadline = time.monotonic() + 30
        while self.lookup(adapter, keys(1)) != [True]:  # which has 0.2 s
            self.assertLess(time.monotonic(), deadline)
            adapter._breaker = Breaker()

    def test_what_is_asked_of_a_daemon_that_hangs_is_bounded(self):
        adapter = self.adapter(lookup_timeout_s=30)  # nothing is given up before it is counted
        many = keys(200)  # one request fits into the socket, all of them do not
        self.store(adapter, many, objects(200))
        self.hang()
        tasks = [adapter.submit_lookup_and_lock_task(many, {}) for _ in range(100)]
        paced = adapter._paced_lookups
        with adapter._lock:
            self.assertEqual((paced.in_flight, len(paced)), (1000, 95))
        self.daemon.kill()
        self.assertEqual(set(map(any, self.answers(adapter, tasks).values())), {False})
        self.daemon.start()
        self.assertTrue(adapter._client.wait_connected(30))
        self.assertEqual(self.store(adapter, many, objects(200)), 200 * 4096)
        tasks = [adapter.submit_lookup_and_lock_task(many, {}) for _ in range(30)]
        self.assertEqual(set(map(all, self.answers(adapter, tasks).values())), {True})
        self.assertEqual((paced.in_flight, len(paced)), (0, 0))

    def test_a_lookup_does_not_wait_for_loads(self):
        adapter = self.adapter(timeout_s=3600)
        many = keys(200)
        self.store(adapter, many, objects(200))
        self.hang()
        self.let_lookups_take(adapter, 0.2)
        for _ in range(10):
            adapter.submit_load_task(many, objects(200))
        self.assertEqual(self.lookup(adapter, many), [False] * 200)
        with adapter._lock:
            self.assertEqual((adapter._paced.in_flight, len(adapter._paced)), (1000, 5))
        self.daemon.kill()  # otherwise closing waits for the loads

    def test_what_waited_for_too_long_is_given_up(self):
        adapter = self.adapter(timeout_s=3600)
        many = keys(200)
        self.store(adapter, many, objects(200))
        clock = types.SimpleNamespace(now=0.0)
        adapter._paced._clock = lambda: clock.now
        self.hang()
        loads = [adapter.submit_load_task(many, objects(200)) for _ in range(8)]
        with adapter._lock:
            self.assertEqual(len(adapter._paced), 3)
            clock.now = 3600.0
        self.daemon.process.send_signal(signal.SIGCONT)
        said = self.answers(adapter, loads, adapter.get_load_event_fd(), adapter.query_load_result)
        self.assertEqual([all(said[task]) for task in loads], [True] * 5 + [False] * 3)
        self.assertEqual(self.status(adapter, "calls_given_up"), 3)

    def test_results_that_nobody_asks_for_are_dropped_in_the_end(self):
        adapter = self.adapter()
        results = adapter._loads
        for task in range(5000):
            results.add(task, task)
        self.assertIsNone(results.take(0))
        self.assertEqual(results.take(4999), 4999)
        self.assertEqual(len(results.take_all()), 4095)

    def test_a_typo_in_the_flag_is_refused(self):
        for bad in ({"endpiont": "x"}, {"chunk_tokens": 0}):
            with self.assertRaisesRegex(ValueError, next(iter(bad))):
                KvkeepL2({"name": "w", **bad})

    def test_a_version_that_is_not_known_keeps_and_finds_nothing(self):
        self.store(self.adapter(), keys(1), objects(1))
        warned = mock.Mock()
        with mock.patch.object(sys.modules["lmcache"], "__version__", "0.6.0"), \
                mock.patch.object(sys.modules["kvkeep.lmcache"].logger, "warning", warned):
            idle, _ = self.adapter(), self.adapter()
            self.assertEqual(warned.call_count, 1)
            self.assertRegex(warned.call_args[0][0] % warned.call_args[0][1:],
                             "lmcache 0.6.0 IS NOT KNOWN: kvkeep knows 0.5.6, .*refuse")
            self.assertEqual(self.store(idle, keys(2), objects(2)), -1)
            self.assertEqual(self.lookup(idle, keys(2)), [False, False])
            with mock.patch.dict(os.environ, KVKEEP_UNCHECKED_ENGINE="1"):
                self.assertEqual(self.lookup(self.adapter(), keys(2)), [False, False])
                self.store(self.adapter(), keys(1), objects(1))
                self.assertEqual(self.lookup(self.adapter(), keys(2)), [True, False])
                with mock.patch.object(engine_versions, "looks_as", lambda _: "other classes"):
                    self.assertEqual(self.lookup(self.adapter(), keys(2)), [False, False])
            self.assertEqual(self.lookup(idle, keys(2)), [False, False])
            with mock.patch.dict(os.environ, KVKEEP_UNCHECKED_ENGINE="refuse"), \
                    self.assertRaisesRegex(ValueError, "0.6.0 is not known"):
                self.adapter()

    def test_what_could_be_taken_for_other_kv_is_refused(self):
        for unnamed in ({}, {"name": ""}):
            with self.assertRaisesRegex(ValueError, 'give a "name"'):
                KvkeepL2(unnamed)
        self.store(self.adapter(), keys(1), objects(1))
        with mock.patch.object(sys.modules["lmcache"], "__version__", "0.5.7"):
            self.assertEqual(self.lookup(self.adapter(), keys(1)), [False])
        adapter, counting = self.adapter(), self.adapter(short_hashes=True)
        short = keys(1, chunk_hash=b"\1" * 16)  # of --hash-algorithm builtin: 8
        self.assertEqual(self.store(counting, short, objects(1)), 4096)
        self.assertEqual(self.lookup(counting, short), [True])
        self.assertEqual(self.store(adapter, keys(1, kv_rank=5) + short, objects(2)), -1)
        self.assertEqual(self.lookup(adapter, short + keys(1)), [False, True])
        self.assertEqual(self.status(adapter, "short_hashes"), 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
