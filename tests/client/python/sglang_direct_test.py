"""kvkeep.sglang_direct on SGLang's recorded classes, with a real daemon; SGLang itself is not
needed.

    sglang_direct_test.py SOURCES LIBRARY KVKEEPD
"""

import array
import ctypes
import dataclasses
import inspect
import os
import pathlib
import signal
import statistics
import sys
import threading
import time
import types
import unittest
from concurrent.futures import Future
from unittest import mock

import signatures
from sglang_rig import ENGINE, HICACHE, PAGE, PIECE, SERVING, Pool, WithDaemon, keys, updates

POOLS = signatures.load("sglang.srt.mem_cache.memory_pool")
THEIRS = signatures.load("sglang.srt.mem_cache.unified_cache.unified_cache_linker")
PARALLEL = types.SimpleNamespace(tp_size=1, attn_tp_rank=0, attn_tp_size=1, pp_size=1,
                                 attn_cp_size=1, attn_dcp_size=1)
sys.modules["sglang.srt.runtime_context"].get_parallel = lambda: PARALLEL


class Counter:
    """SGLang's LayerWiseLoadCounter, as far as it is used: its record has no bodies."""

    def __init__(self, num_layers):
        self.num_layers, self.futures, self._last, self.order = num_layers, {}, -1, []

    def update_producer(self):
        self._last += 1
        self.futures[self._last] = [Future() for _ in range(self.num_layers)]
        return self._last

    def complete(self, index, layer):
        self.order.append(layer)
        self.futures[index][layer].set_result(None)

    def fail(self, index, error):
        for future in self.futures[index]:
            if not future.done():
                future.set_exception(error)

    def finish(self, index):
        landed = all([future.exception(60) is None for future in self.futures.get(index, ())])
        self.futures.pop(index, None)
        return landed

    def reset(self):
        self.futures.clear()


THEIRS.LayerWiseLoadCounter = Counter
from kvkeep.errors import Unavailable  # noqa: E402
from kvkeep.sglang_direct import KvkeepLinker  # noqa: E402

LAYERS, PAGES, ROW = 4, 16, PIECE // 4 // PAGE  # bytes of K, or of V, of a token in a layer
KV = HICACHE.PoolName.KV


class Tensor:
    """The KV of one layer: rows of tokens, in host memory."""

    device = types.SimpleNamespace(type="cpu")
    shape = (PAGES * PAGE, 1, ROW)

    def __init__(self):
        self.rows = bytearray(PAGES * PAGE * ROW)

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.rows))

    def stride(self, _):
        return ROW

    def element_size(self):
        return 1

    def is_contiguous(self):
        return True

    def page(self, number):
        return self.rows[number * PAGE * ROW:(number + 1) * PAGE * ROW]


class DevicePool(POOLS.MHATokenToKVPool):
    def __init__(self):
        self.size, self.page_size, self.layer_num = (PAGES - 1) * PAGE, PAGE, LAYERS
        self.store_dtype, self.kv_cache_layout, self.k_scale_buffer = "torch.bfloat16", "nhd", None
        self.k_buffer, self.v_buffer = ([Tensor() for _ in range(LAYERS)] for _ in range(2))

    def fill(self, page, seed):
        """Fills it with bytes that no other page, plane or layer has."""
        for plane, tensors in enumerate((self.k_buffer, self.v_buffer)):
            for layer, tensor in enumerate(tensors):
                tensor.rows[page * PAGE * ROW:(page + 1) * PAGE * ROW] = bytes(
                    (seed * 59 + plane * 31 + layer * 7 + at) % 251 for at in range(PAGE * ROW))

    def planes(self, page):
        """Returns a page's K and its V, as HiCache's page_first_direct has them."""
        return [b"".join(tensor.page(page) for tensor in tensors)
                for tensors in (self.k_buffer, self.v_buffer)]


sys.modules["kvkeep.sglang_linker"].MHATokenToKVPool = DevicePool  # what it takes is no other one


def transfer(count, pages=None, first=1):
    """Makes a transfer of the pages of a prompt; pages: their places."""
    rows = pages and array.array("q", [page * PAGE + token for page in pages
                                       for token in range(PAGE)])
    return [HICACHE.PoolTransfer(KV, device_indices=rows, keys=keys(count, first))]


class Direct(WithDaemon):
    def linker(self, pool=None, components=("FULL",), params=(), **options):
        """The time-outs are long, as the machine may be busy; tests of the time give their own."""
        pool = pool or DevicePool()
        made = KvkeepLinker(
            None, types.SimpleNamespace(**{
                "token_to_kv_pool_allocator": types.SimpleNamespace(get_kvcache=lambda: pool),
                "mtp_draft_device_pools": (), "sidecar_draft_device_pools": (), **dict(params)}),
            components=[types.SimpleNamespace(name=name) for name in components],
            extra_config={"endpoint": self.daemon.endpoint, "lookup_timeout_s": 20.0,
                          "store_timeout_s": 60.0, "max_pinned_part": 1.0, **options})
        self.addCleanup(made.close)
        made.pool = pool
        return made

    def store(self, linker, count=3, first=1, good=True):
        for page in range(count):
            linker.pool.fill(page + 1, first + page)
        self.assertTrue(linker.offload(transfer(count, range(1, count + 1), first)))
        self.assertEqual(self.ends(linker), [good])

    def ends(self, linker):
        """Waits for the end of all stores that began; returns which ended well."""
        deadline = time.monotonic() + 60
        while linker.num_completed_offloads() < len(linker._stores):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        return [linker.pop_completed_offload() for _ in range(linker.num_completed_offloads())]

    def load(self, linker, count, into, first=1):
        """Returns whether the whole load landed."""
        self.assertTrue(linker.load("r", transfer(count, into, first)))
        return linker.finish_layer_wise_loading(linker.start_layer_wise_loading())

    def come(self, linker):
        """Waits until the three pages of a prompt are found for "r"."""
        deadline = time.monotonic() + 60
        while linker.lookup("r", transfer(3)) != [1, 2, 3]:
            self.assertLess(time.monotonic(), deadline)

    def check(self, linker, into, first=1):
        wanted = DevicePool()
        for number, page in enumerate(into):
            wanted.fill(0, first + number)
            self.assertEqual(linker.pool.planes(page), wanted.planes(0), page)

    def stop(self):
        self.daemon.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.daemon.process.pid, os.WUNTRACED)

    def go_on(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def let_stores_take(self, linker, seconds):
        linker._options = dataclasses.replace(linker._options, store_timeout_s=seconds)

    # ---- what moves

    def test_it_has_the_methods_that_sglang_calls(self):
        base = THEIRS.UnifiedCacheLinker
        for name in base.__abstractmethods__:
            theirs, ours = (inspect.signature(getattr(kind, name))
                            for kind in (base, KvkeepLinker))
            self.assertEqual(list(ours.parameters), list(theirs.parameters), name)
        self.assertEqual(KvkeepLinker.__abstractmethods__, frozenset())

    def test_what_one_engine_stored_another_one_loads_layer_by_layer(self):
        self.store(self.linker(), 5)
        second = self.linker()
        self.assertEqual(second.lookup("r", transfer(7)), [1, 2, 3, 4, 5])
        self.assertEqual(second.lookup("r", transfer(7, first=2)), [1, 2, 3, 4])
        self.assertEqual(second.lookup("r", transfer(7)), [1, 2, 3, 4, 5])
        self.assertTrue(self.load(second, 4, [9, 2, 15, 4]))  # SGLang may take fewer
        self.check(second, [9, 2, 15, 4])
        self.assertEqual(second.layer_done_counter.order, list(range(LAYERS)))
        self.assertEqual(second.pool.planes(5), DevicePool().planes(5))  # and nothing else

    def test_several_requests_of_a_batch_are_loaded_together(self):
        self.store(self.linker(), 5)
        linker = self.linker()
        for name, count in (("a", 2), ("b", 3), ("c", 4)):
            linker.lookup(name, transfer(count))
        linker.load("a", transfer(2, [1, 2]))
        linker.load("b", transfer(3, [3, 4, 5]))
        linker.load("c", transfer(4, [6, 7, 8, 9]))
        self.assertTrue(linker.cancel_queued_load("c"))
        self.assertFalse(linker.cancel_queued_load("c"))
        self.assertTrue(linker.finish_layer_wise_loading(linker.start_layer_wise_loading()))
        self.check(linker, [1, 2])
        self.check(linker, [3, 4, 5])
        self.assertEqual(linker.pool.planes(6), DevicePool().planes(6))
        self.assertEqual(linker.start_layer_wise_loading(), -1)
        self.assertTrue(linker.finish_layer_wise_loading(-1))

    def test_hicache_and_the_linker_share_pages_of_the_same_bytes(self):
        linker = self.linker()
        self.store(linker, 2)
        pool = Pool(layout="page_first_direct")
        hicache = self.backend(pool)
        self.assertEqual(hicache.batch_get_v1(keys(2), pool.indices([3, 5])), [True, True])
        for page, at in ((1, 3), (2, 5)):
            for plane, wanted in zip(pool.planes, linker.pool.planes(page)):
                self.assertEqual(plane[at * PIECE:(at + 1) * PIECE], wanted)
        for at in range(2):
            for plane, wanted in zip(pool.planes, linker.pool.planes(at + 1)):
                plane[at * PIECE:(at + 1) * PIECE] = wanted
        self.assertEqual(hicache.batch_set_v1(keys(2, first=101), pool.indices([0, 1]), None),
                         [True, True])
        other = self.linker()
        self.assertEqual(other.lookup("r", transfer(3, first=101)), [1, 2])
        self.assertTrue(self.load(other, 2, [7, 8], first=101))
        self.check(other, [7, 8])

    def test_what_is_there_is_not_sent_again(self):
        linker = self.linker()
        self.store(linker)
        sent = linker._client.stats().bytes_sent
        self.store(linker)
        self.assertEqual(linker._client.stats().bytes_sent, sent)
        self.store(linker, 5)  # two of them are new
        self.assertEqual(linker._client.stats().bytes_sent - sent, sent * 2 // 3)
        self.assertEqual(self.linker().lookup("r", transfer(5)), [1, 2, 3, 4, 5])

    def test_each_rank_has_its_own_bytes(self):
        with mock.patch.multiple(PARALLEL, tp_size=2, attn_tp_size=2):
            first = self.linker()
            with mock.patch.multiple(PARALLEL, attn_tp_rank=1):
                second = self.linker()
        self.store(first)
        self.assertEqual(second.lookup("r", transfer(3)), [])
        self.assertEqual(first.lookup("r", transfer(3)), [1, 2, 3])
        self.assertEqual(self.linker().lookup("r", transfer(3)), [])

    # ---- what is found

    def test_what_nvme_alone_has_is_a_miss_that_begins_to_come(self):
        self.store(self.linker())
        self.daemon.wait_clean(3 * 2)
        self.daemon.restart()  # its DRAM is empty
        linker = self.linker()
        self.assertEqual(linker.lookup("first", transfer(3)), [])
        self.come(linker)
        self.assertTrue(self.load(linker, 3, [1, 2, 3]))
        self.check(linker, [1, 2, 3])

    def test_what_is_found_stays_readable_until_it_is_loaded(self):
        linker = self.linker()
        self.store(linker)
        self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
        self.daemon.clear()
        self.stop()  # and no call is made any more
        for page in range(PAGES):
            linker.pool.fill(page, 77)
        self.assertTrue(self.load(linker, 3, [4, 5, 6]))
        self.check(linker, [4, 5, 6])
        self.go_on()
        self.assertEqual(linker.lookup("r", transfer(3)), [])

    def test_what_was_found_and_is_never_loaded_is_given_back(self):
        linker = self.linker(lease_s=0.05)
        self.store(linker)
        self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
        deadline = time.monotonic() + 60
        while len(linker._offers):
            self.assertLess(time.monotonic(), deadline)
            linker.num_completed_offloads()
        self.assertFalse(linker.load("r", transfer(3, [4, 5, 6])))

    def test_the_scheduler_does_not_wait_for_a_daemon_that_hangs(self):
        self.store(self.linker())
        linker = self.linker(lookup_timeout_s=0.002)
        linker._lookups._retry_s = 0.0  # each store is begun
        self.stop()
        self.addCleanup(self.go_on)
        times = []
        for number in range(50):
            begin = time.monotonic()
            self.assertEqual(linker.lookup(f"r{number}", transfer(3)), [])
            times.append(time.monotonic() - begin)
        self.assertLess(statistics.median(times), 0.2, times)
        linker._lookups._retry_s = 3600.0
        linker.lookup("r", transfer(3))
        given_up = linker._lookups.given_up
        self.assertEqual(linker.lookup("s", transfer(3)), [])
        self.assertEqual(linker._lookups.given_up, given_up + 1)

    # ---- failures

    def test_a_daemon_that_dies_before_a_load_begins_is_a_miss(self):
        linker = self.linker()
        self.store(linker)
        self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
        self.daemon.kill()
        self.assertFalse(linker.load("r", transfer(3, [4, 5, 6])))
        self.assertEqual(linker.lookup("away", transfer(3)), [])
        self.store(linker, good=False)
        self.daemon.start()
        self.assertTrue(linker._client.wait_connected(30))
        self.store(linker)
        self.come(linker)  # its NVMe may have had them before
        self.assertTrue(self.load(linker, 3, [4, 5, 6]))
        self.check(linker, [4, 5, 6])

    def test_beside_other_ranks_it_is_a_load_that_fails(self):
        with mock.patch.multiple(PARALLEL, tp_size=2, attn_tp_size=2):
            linker = self.linker()
        self.store(linker)
        self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
        self.daemon.kill()
        self.assertFalse(self.load(linker, 3, [4, 5, 6]))

    def test_a_daemon_that_dies_during_a_load_fails_it_and_hangs_nobody(self):
        linker = self.linker()
        self.store(linker)
        linker.lookup("r", transfer(3))
        read = linker._pages.read_layer

        def read_layer(lease, of, rows, layer):
            if layer == 2:
                self.daemon.kill()
            read(lease, of, rows, layer)

        with mock.patch.object(linker._pages, "read_layer", read_layer):
            self.assertFalse(self.load(linker, 3, [4, 5, 6]))
        self.assertEqual(linker.layer_done_counter.order, [0, 1])

    def test_bytes_that_are_not_what_was_stored_fail_a_load(self):
        linker = self.linker()
        self.store(linker)
        linker.lookup("r", transfer(3))
        self.spoil(linker.pool.planes(2)[1])
        self.assertFalse(self.load(linker, 3, [4, 5, 6]))
        deadline = time.monotonic() + 30
        while (found := linker.lookup("again", transfer(3))) == [1, 2, 3]:  # it would fail again
            self.assertLess(time.monotonic(), deadline)
            linker._offers.clear()
        self.assertIn(found, ([1], [1, 2]))
        linker._offers.clear()
        self.store(linker)
        self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
        linker.load("r", transfer(3, [4, 5, 6]))
        linker._loads["r"].keys[1] = linker._loads["r"].keys[0]  # not the lease's
        self.assertFalse(linker.finish_layer_wise_loading(linker.start_layer_wise_loading()))

    def spoil(self, payload):
        """Changes a byte of it in the daemon's memory, against whose change its files are
        sealed."""
        process = pathlib.Path("/proc", str(self.daemon.process.pid))
        with open(process / "mem", "r+b", buffering=0) as memory:
            for line in (process / "maps").read_text(encoding="utf-8").splitlines():
                if "memfd:" not in line or "rw" not in line:
                    continue
                begin, end = (int(one, 16) for one in line.split()[0].split("-"))
                at = os.pread(memory.fileno(), end - begin, begin).find(payload)
                if at >= 0:
                    os.pwrite(memory.fileno(), bytes([payload[5] ^ 1]), begin + at + 5)
                    return
        self.fail("it is nowhere in the daemon's memory")

    def test_no_error_of_the_daemons_reaches_sglang(self):
        linker = self.linker()
        self.store(linker)
        refused = mock.Mock(side_effect=Unavailable("UNAVAILABLE", "a test says so"))
        with mock.patch.multiple(linker._pages._namespace, lookup=refused, put=refused):
            self.assertEqual(linker.lookup("r", transfer(3)), [])
            self.store(linker, good=False)
        with mock.patch.object(linker._pages._namespace, "get", refused):
            self.assertEqual(linker.lookup("s", transfer(3)), [])
        self.assertFalse(linker.offload(transfer(2, [1])))  # a page too few
        self.assertFalse(linker.load("r", [HICACHE.PoolTransfer(
            KV, device_indices=array.array("q", range(2, 14)), keys=keys(3))]))

    # ---- stores, resets, the end

    def test_stores_hold_no_more_pages_than_they_may(self):
        linker, go = self.linker(max_pinned_part=0.2), threading.Event()  # 3 pages of 15
        linker._storer.submit(go.wait)
        self.assertTrue(linker.offload(transfer(5, range(1, 6))))  # a single one may be larger
        self.assertFalse(linker.offload(transfer(1, [6], first=11)))
        go.set()
        self.assertEqual(self.ends(linker), [True])
        go.clear()
        linker._storer.submit(go.wait)
        self.assertTrue(linker.offload(transfer(1, [6], first=11)))
        self.assertTrue(linker.offload(transfer(2, [7, 8], first=21)))
        self.assertFalse(linker.offload(transfer(1, [9], first=31)))
        self.assertEqual(linker.num_completed_offloads(), 0)
        go.set()
        self.assertEqual(self.ends(linker), [True, True])
        self.assertTrue(linker.offload(transfer(1, [9], first=31)))

    def test_after_a_reset_nothing_of_before_is_found(self):
        linker = self.linker()
        self.store(linker)
        self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
        linker.load("r", transfer(3, [4, 5, 6]))
        linker.reset()
        self.assertEqual(linker.start_layer_wise_loading(), -1)
        self.assertEqual(linker.lookup("r", transfer(3)), [])
        self.store(linker, 2)
        self.assertEqual(linker.lookup("s", transfer(3)), [1, 2])  # its own
        self.assertEqual(self.linker().lookup("r", transfer(3)), [1, 2, 3])  # of before

    def test_who_only_flushes_finds_what_was_there(self):
        linker = self.linker(on_reset="ignore")
        self.store(linker)
        linker.reset()
        self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
        with mock.patch.object(SERVING, "weight_version", "7"):  # and the weights changed here
            self.assertEqual(linker.lookup("r", transfer(3)), [])
            self.assertFalse(linker.load("r", transfer(3, [4, 5, 6])))

    def test_a_change_of_the_weights_that_is_no_reset_is_seen(self):
        for update in updates():
            linker = self.linker(on_reset="ignore")
            self.store(linker)
            self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
            update("given")
            self.assertFalse(linker.load("r", transfer(3, [4, 5, 6])))
            self.assertEqual(linker.lookup("r", transfer(3)), [])
            self.store(linker, first=101)
            self.assertEqual(linker.lookup("s", transfer(3, first=101)), [1, 2, 3])  # its own
            self.assertEqual(self.linker().lookup("r", transfer(3, first=101)), [])
            self.assertEqual(self.linker().lookup("r", transfer(3)), [1, 2, 3])  # of before

    def test_a_reset_after_a_change_forgets_what_was_stored_between_whoever_flushes(self):
        linker = self.linker(on_reset="ignore")
        updates()[0]("given")
        self.store(linker)
        self.assertEqual(linker.lookup("r", transfer(3)), [1, 2, 3])
        linker.reset()
        self.assertEqual(linker.lookup("r", transfer(3)), [])

    def test_nvme_is_spared_what_nobody_else_can_find(self):
        linker, puts = self.linker(), []
        put = linker._pages._namespace.put

        def watched(*given, **named):
            puts.append(named["no_g3"])
            return put(*given, **named)

        with mock.patch.object(linker._pages._namespace, "put", watched):
            self.store(linker)
            linker.reset()
            self.store(linker)
        self.assertEqual(puts, [False, True])

    def reset_beside(self, linker, name, begin):
        """Returns how often `name` of the pages was called, with calls as long as a reset lets them
        be."""
        calls, begun, go, over = [], threading.Event(), threading.Event(), threading.Event()

        def slowly(*given):
            calls.append(given)
            begun.set()
            return go.wait(60)

        with mock.patch.object(linker._pages, name, slowly):
            begin()
            self.assertTrue(begun.wait(60))
            resetting = threading.Thread(target=lambda: (linker.reset(), over.set()))
            resetting.start()
            self.assertTrue(linker._stopping.wait(60))
            self.assertFalse(over.wait(0.2))
            go.set()
            resetting.join()
        return len(calls)

    def test_a_reset_returns_when_nothing_reads_the_pool(self):
        linker = self.linker()

        def begin():
            for first in (1, 101, 201):
                linker.offload(transfer(2, [1, 2], first))

        self.assertEqual(self.reset_beside(linker, "store", begin), 1)  # the others do not begin

    def test_a_reset_returns_when_nothing_writes_the_pool(self):
        linker = self.linker()
        self.store(linker)
        linker.lookup("r", transfer(3))

        def begin():
            linker.load("r", transfer(3, [4, 5, 6]))
            linker.start_layer_wise_loading()

        self.assertEqual(self.reset_beside(linker, "read_layer", begin), LAYERS)

    def test_a_reset_forgets_stores_and_waits_for_one_put_at_most(self):
        linker = self.linker()
        self.let_stores_take(linker, 0.5)
        self.stop()
        for number in range(5):
            self.assertTrue(linker.offload(transfer(2, [1, 2], first=1 + 10 * number)))
        begin = time.monotonic()
        linker.reset()
        self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual((linker.num_completed_offloads(), len(linker._stores)), (0, 0))
        self.go_on()
        linker._puts.heard(None)
        self.let_stores_take(linker, 60)
        self.store(linker, first=101)

    def test_a_close_takes_two_seconds_at_most_and_may_come_twice(self):
        linker = self.linker()
        self.store(linker)
        linker.lookup("r", transfer(3))
        self.let_stores_take(linker, 0.5)
        self.stop()
        for number in range(5):
            linker.offload(transfer(2, [1, 2], first=101 + 10 * number))
        begin = time.monotonic()
        linker.close()
        self.assertLess(time.monotonic() - begin, 2)
        linker.close()
        self.go_on()

    # ---- what is refused

    def test_what_it_cannot_load_is_refused_in_words(self):
        gpu, hnd, gaps, scales = (DevicePool() for _ in range(4))
        gpu.k_buffer[0].device = types.SimpleNamespace(type="cuda")
        hnd.kv_cache_layout = "hnd"
        gaps.v_buffer[1].is_contiguous = lambda: False
        scales.k_scale_buffer = []
        other = types.SimpleNamespace(k_buffer=[], v_buffer=[])
        for words, given in (
                ("states or windows .SWA", {"components": ("FULL", "SWA")}),
                ("of the kind SimpleNamespace", {"pool": other}), ("GPU", {"pool": gpu}),
                ("NHD", {"pool": hnd}), ("gaps", {"pool": gaps}), ("scales", {"pool": scales}),
                ("draft", {"params": {"sidecar_draft_device_pools": (1,)}}),
                ("draft", {"params": {"mtp_draft_device_pools": (1,)}}),
                ("path: .*kvkeep.sglang", {"path": "grpc"}),
                ("remote_wait_s", {"remote_wait_s": 1}),
                ("'leases'", {"leases": 1}), ("on_reset", {"on_reset": "never"}),
                ("max_pinned_part", {"max_pinned_part": 2}), ("weights", {"weights": "x"})):
            with self.assertRaisesRegex(ValueError, words):
                self.linker(**given)
        for size in ("pp_size", "attn_cp_size", "attn_dcp_size"):
            with mock.patch.multiple(PARALLEL, **{size: 2}), \
                    self.assertRaisesRegex(ValueError, "parallelism.*--enable-hierarchical-cache"):
                self.linker()
        with mock.patch.dict(ENGINE.of_model, is_generation=False), \
                self.assertRaisesRegex(ValueError, "does not generate"):
            self.linker()
        with mock.patch.multiple(ENGINE, load_format="dummy"), \
                self.assertRaisesRegex(ValueError, 'dummy .*"name:X"'):
            self.linker()
        llava = types.SimpleNamespace(architectures=["Llava"], to_dict=dict)
        with mock.patch.dict(ENGINE.of_model, is_multimodal=True, hf_config=llava):
            with self.assertRaisesRegex(ValueError, 'Llava takes images.*"multimodal": "trusted"'):
                self.linker()
            self.store(self.linker(multimodal="trusted"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
