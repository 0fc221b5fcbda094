"""GPU memory from Python against a real daemon, both on the fake driver, without torch.

    gpu_test.py SOURCES LIBRARY KVKEEPD FAKE_DRIVER
"""

import asyncio
import gc
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import unittest
import weakref

SOURCES, LIBRARY, KVKEEPD, DRIVER = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / folder)
                for folder in ("client/python", "tests/client/c", "tests/fakes/cuda")]

import kvkeep  # noqa: E402
import kvkeep.aio  # noqa: E402
from daemon import Daemon  # noqa: E402
from fake_gpu import FakeGpu  # noqa: E402
from kvkeep import (GetStatus, GpuChunk, GpuRun, GpuRuns, KvFormat, KvPlanner,  # noqa: E402
                    PagePlanner, PageTensor, PutStatus)

BLOCK = 64 << 10
MEMORY = 4 << 20
GPU = FakeGpu(DRIVER)


def key(number):
    return number.to_bytes(32, "little")


def payload(number, nbytes=BLOCK):
    return random.Random(number).randbytes(nbytes)


class CudaTensor:
    """The part of a torch tensor that is used."""

    class Device:
        def __init__(self, kind):
            self.type = kind

    def __init__(self, address, nbytes, device="cuda", contiguous=True):
        self.address, self.nbytes, self.contiguous = address, nbytes, contiguous
        self.device = CudaTensor.Device(device)

    def data_ptr(self):
        return self.address

    def is_contiguous(self):
        return self.contiguous


class WithDaemon(unittest.TestCase):
    SETTINGS = {}

    def setUp(self):
        self.daemon = Daemon(KVKEEPD, dict(self.SETTINGS,
                                           LD_LIBRARY_PATH=str(pathlib.Path(DRIVER).parent)))
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def connect(self, path="local"):
        client = kvkeep.Client(self.daemon.endpoint, path=path, name="worker", timeout=20)
        self.addCleanup(client.close)
        self.assertTrue(client.wait_connected(20))
        return client

    def region(self, client):
        """Memory that lives as long as this process: the fake ends the process if the daemon has
        freed memory open."""
        return kvkeep.GpuRegion(client, kvkeep.Pointer(GPU.alloc(MEMORY), MEMORY), driver=DRIVER)

    def watched(self, owner):
        """Returns a weak reference to what a region keeps for its memory, and an event that says it
        is gone."""
        gone = threading.Event()
        return weakref.ref(owner, lambda _: gone.set()), gone

    def write(self, region, block, what):
        GPU.view(region.address + block * BLOCK, BLOCK)[:] = what

    def block(self, region, number):
        return bytes(GPU.view(region.address + number * BLOCK, BLOCK))


class Calls(WithDaemon):
    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.ns = self.client.namespace("model", tokens_per_chunk=256)

    def test_what_was_put_comes_back_into_other_runs_of_another_client(self):
        with self.region(self.client) as source:
            self.write(source, 3, payload(1))
            self.write(source, 9, payload(2))
            runs = [source.run(3 * BLOCK, BLOCK), source.run(9 * BLOCK, BLOCK)]
            stored = self.ns.gpu_put([GpuChunk(key(1), runs, metadata=b"tail"),
                                      (key(2), runs[1])])
            self.assertEqual((stored.statuses, stored.error), ([PutStatus.STORED] * 2, None))
            self.assertEqual(self.client.gpu_stats().bytes_put, 3 * BLOCK)
        self.assertEqual(source.id, 0)
        other = self.connect()
        ns = other.namespace("model", tokens_per_chunk=256)
        with self.region(other) as target:
            to = [target.run(40 * BLOCK, BLOCK), target.run(20 * BLOCK, BLOCK)]
            with ns.lookup([key(1)], lease=True).lease as lease:
                got = ns.gpu_get([(key(1), to), (key(3), to[0])], lease=lease, metadata=True)
            self.assertEqual(got.statuses, [GetStatus.HIT, GetStatus.MISS])
            self.assertEqual((got.nbytes, got.metadata), ([2 * BLOCK, 0], [b"tail", b""]))
            self.assertTrue(self.block(target, 40) == payload(1))
            self.assertTrue(self.block(target, 20) == payload(2))
        # Host memory's calls work too.
        into = bytearray(2 * BLOCK)
        self.assertEqual(ns.get([key(1)], [into]).hits, 1)
        self.assertTrue(into == payload(1) + payload(2))

    def test_paged_memory_goes_by_its_block_tables(self):
        layers, heads, head_bytes, blocks, tokens = 2, 4, 256, 32, 16
        with self.region(self.client) as region:
            layer = 2 * blocks * tokens * heads * head_bytes
            planner = KvPlanner(
                KvFormat.LAYERS_KV_BLOCKS, layers=layers, blocks=blocks, block_tokens=tokens,
                heads=heads, head_bytes=head_bytes,
                tensors=[region.run(i * layer, layer) for i in range(layers)])
            self.assertEqual(planner.bytes_per_token, 2 * layers * heads * head_bytes)
            GPU.view(region.address, layers * layer)[:] = payload(5, layers * layer)
            whole = bytes(GPU.view(region.address, layers * layer))
            source, target = planner.plan([7, 2, 30], 0, 40), planner.plan([1, 5, 6], 0, 40)
            self.assertEqual(source.nbytes, 40 * planner.bytes_per_token)
            self.assertEqual((len(source), len(target)), (12, 8))  # 5 and 6 are adjacent
            self.assertEqual(self.ns.gpu_put([(key(1), source)]).stored, 1)
            self.assertEqual(self.ns.gpu_get([(key(1), target)]).hits, 1)
            back = bytes(GPU.view(region.address, layers * layer))
            self.assertTrue(b"".join(whole[run.offset:run.offset + run.nbytes] for run in source)
                            == b"".join(back[run.offset:run.offset + run.nbytes]
                                        for run in target))

    def test_a_get_skips_bytes_of_a_chunk(self):
        with self.region(self.client) as region:
            self.write(region, 1, payload(1))
            self.assertEqual(self.ns.gpu_put([(key(1), region.run(BLOCK, BLOCK))]).stored, 1)
            before = bytes(GPU.view(region.address, MEMORY))
            some = GpuRuns([region.run(8 * BLOCK, 1000)]).within(500, BLOCK - 1500)
            self.assertEqual((len(some), some.nbytes), (3, BLOCK))
            self.assertEqual(self.ns.gpu_get([(key(1), some)]).hits, 1)
            at = 8 * BLOCK
            after = before[:at] + payload(1)[500:1500] + before[at + 1000:]
            self.assertTrue(bytes(GPU.view(region.address, MEMORY)) == after)
            with self.assertRaisesRegex(kvkeep.InvalidArgument, "none that is of a region"):
                self.ns.gpu_get([(key(1), GpuRun(0, 0, BLOCK))])
            with self.assertRaisesRegex(kvkeep.InvalidArgument, "of no region"):
                self.ns.gpu_put([(key(2), some)])

    def test_a_get_without_an_answer_is_in_use_until_it_comes(self):
        with self.region(self.client) as region:
            self.assertEqual(self.ns.gpu_put([(key(1), region.run(0, BLOCK))]).stored, 1)
            use, other = kvkeep.GpuUse(self.client), kvkeep.GpuUse(self.client)
            into = [(key(1), region.run(BLOCK, BLOCK))]
            self.assertEqual(self.ns.gpu_get(into, use=other).hits, 1)
            self.daemon.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.daemon.process.pid, os.WSTOPPED)
            got = self.ns.gpu_get(into, use=use, timeout=0.3)
            self.assertEqual((got.hits, got.error.code), (0, "DEADLINE_EXCEEDED"))
            self.assertEqual((use.in_use, other.in_use), (True, False))
            self.daemon.process.send_signal(signal.SIGCONT)
            deadline = time.monotonic() + 20
            while use.in_use:
                self.assertLess(time.monotonic(), deadline)
            use.release()
            self.assertFalse(use.in_use)

    def test_a_put_of_reused_memory_is_over_by_its_deadline(self):
        """What the daemon reads later is not stored."""
        memory = kvkeep.Pointer(GPU.alloc(MEMORY), MEMORY)
        with kvkeep.GpuRegion(self.client, memory, driver=DRIVER, reused=True) as region:
            self.write(region, 1, payload(1))
            self.daemon.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.daemon.process.pid, os.WSTOPPED)
            stored = self.ns.gpu_put([(key(1), region.run(BLOCK, BLOCK))], timeout=0.3)
            self.assertEqual((stored.stored, stored.error.code), (0, "DEADLINE_EXCEEDED"))
            self.write(region, 1, payload(2))
            self.daemon.process.send_signal(signal.SIGCONT)
            deadline = time.monotonic() + 20
            while region.in_use:
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(self.ns.lookup([key(1)]).leading_keys, 0)

    def test_asyncio_awaits_them(self):
        async def main(region):
            async with kvkeep.aio.Calls(self.client) as calls:
                stored = await asyncio.gather(*(
                    calls.gpu_put(self.ns, [(key(i), region.run(i * BLOCK, BLOCK))])
                    for i in range(8)))
                got = await asyncio.gather(*(
                    calls.gpu_get(self.ns, [(key(i), region.run((i + 8) * BLOCK, BLOCK))])
                    for i in range(8)))
            return sum(one.stored for one in stored), sum(one.hits for one in got)

        with self.region(self.client) as region:
            for i in range(8):
                self.write(region, i, payload(i))
            self.assertEqual(asyncio.run(main(region)), (8, 8))
            for i in range(8):
                self.assertTrue(self.block(region, i + 8) == payload(i))

    def test_a_call_about_nothing_is_answered_with_nothing(self):
        self.assertEqual((self.ns.gpu_put([]).statuses, self.ns.gpu_get([]).statuses), ([], []))

    def test_mistakes_are_exceptions_that_name_them(self):
        with self.region(self.client) as region:
            with self.assertRaisesRegex(kvkeep.InvalidArgument, "runs: 2 bytes at"):
                self.ns.gpu_put([(key(1), region.run(MEMORY - 1, 2))])
            with self.assertRaisesRegex(kvkeep.InvalidArgument, "is not registered"):
                self.ns.gpu_get([(key(1), GpuRun(region.id + 99, 0, 1))])
            with self.assertRaisesRegex(kvkeep.InvalidArgument, "run_count"):
                self.ns.gpu_put([(key(1), [])])
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "is not registered"):
            self.ns.gpu_put([(key(1), GpuRun(1, 0, BLOCK))])  # it belonged to the region
        host = bytearray(MEMORY)
        address, nbytes, _ = kvkeep.memory.locate(host)
        with self.assertRaises(kvkeep.KvkeepError):
            kvkeep.GpuRegion(self.client, kvkeep.Pointer(address, nbytes), driver=DRIVER)
        with self.assertRaisesRegex(kvkeep.KvkeepError, "NOT_FOUND"):
            kvkeep.GpuRegion(self.client, kvkeep.Pointer(address, nbytes), driver="libno-such.so")
        with self.assertRaisesRegex(TypeError, "bytearray"):
            kvkeep.GpuRegion(self.client, host)

    def test_tensors_are_looked_for_on_a_gpu_and_in_their_region(self):
        address = GPU.alloc(MEMORY)
        tensor = CudaTensor(address, MEMORY)
        with kvkeep.GpuRegion(self.client, tensor, driver=DRIVER) as region:
            part = CudaTensor(address + BLOCK, BLOCK)
            self.assertEqual(region.run_of(part), (region.id, BLOCK, BLOCK))
            for outside in (address - 1, address + MEMORY - BLOCK + 1):
                with self.assertRaisesRegex(ValueError, "not within"):
                    region.run_of(CudaTensor(outside, BLOCK))
            with self.assertRaisesRegex(ValueError, "not on"):
                region.run_of(CudaTensor(address, BLOCK, device="cpu"))
            with self.assertRaisesRegex(ValueError, "contiguous"):
                region.run_of(CudaTensor(address, BLOCK, contiguous=False))
        GPU.free(address)  # the daemon has it open no more

    def meanwhile(self, question, free, end):
        """From now on other threads end() a handle between a question and its answer. Returns what
        was freed, and what existed at each answer."""
        freed, seen, library = [], [], self.client.library

        class Library:
            def __getattr__(self, name):
                return {question: asked, free: was_freed}.get(name, getattr(library, name))

        def was_freed(handle):
            freed.append(handle)
            getattr(library, free)(handle)

        def asked(*arguments):
            end()
            seen.append(list(freed))
            return getattr(library, question)(*arguments)

        self.client.library = Library()
        self.addCleanup(setattr, self.client, "library", library)
        return freed, seen

    def test_a_close_beside_a_question_ends_the_handle_after_it(self):
        freed, seen = self.meanwhile("kvkeep_gpu_region_in_use", "kvkeep_gpu_region_free",
                                     lambda: region.close())
        region = self.region(self.client)
        self.assertFalse(region.in_use)
        self.assertEqual((seen, len(freed), region.id), ([[]], 1, 0))

    def test_a_forgotten_region_is_given_back(self):
        address = GPU.alloc(MEMORY)
        tensor = CudaTensor(address, MEMORY)
        memory, gone = self.watched(tensor)
        region = kvkeep.GpuRegion(self.client, tensor, driver=DRIVER)
        run = region.run(0, BLOCK)
        del region, tensor
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "is not registered"):
            self.ns.gpu_put([(key(1), run)])
        self.assertTrue(gone.wait(60))
        self.assertIsNone(memory())
        GPU.free(address)  # the fake would end this process if the daemon had it open

    def test_a_daemon_that_comes_back_is_told_again(self):
        with self.region(self.client) as region:
            self.daemon.kill()
            run = region.run(0, BLOCK)
            while self.client.connected:  # it learns of it by its socket
                self.assertEqual(self.ns.gpu_get([(key(1), run)]).hits, 0)
            got = self.ns.gpu_get([(key(1), run)])
            self.assertEqual((got.hits, got.error.code), (0, "UNAVAILABLE"))
            self.daemon.start()
            self.assertTrue(self.client.wait_connected(30))
            self.write(region, 0, payload(7))
            self.assertEqual(self.ns.gpu_put([(key(1), run)]).stored, 1)
            self.assertEqual(self.client.gpu_stats().registered_again, 1)
            self.assertFalse(region.in_use)

    def test_the_arena_is_pinned_and_covers_what_was_acquired(self):
        self.ns.put([(key(1), payload(1))])
        with kvkeep.PinnedArena(self.client, driver=DRIVER) as pinned:
            pinned.wait(20)
            stats = pinned.stats
            self.assertTrue(stats.finished and stats.pinned_bytes > 0)
            self.assertEqual((stats.refused_bytes, stats.first_refusal), (0, None))
            with self.ns.acquire([key(1)]) as acquired:
                self.assertTrue(pinned.covers(acquired.chunks[0].view))
            self.assertFalse(pinned.covers(payload(1)))
        with self.assertRaisesRegex(kvkeep.KvkeepError, "NOT_FOUND"):
            kvkeep.PinnedArena(self.client, device=9, driver=DRIVER)

    def test_a_pin_that_is_ended_beside_a_question_ends_after_it(self):
        def end():
            enders = [threading.Thread(target=pinned.release) for _ in range(2)]
            for ender in enders:
                ender.start()
            for ender in enders:
                ender.join()

        freed, seen = self.meanwhile("kvkeep_pinned_arena_wait", "kvkeep_pinned_arena_free", end)
        pinned = kvkeep.PinnedArena(self.client, driver=DRIVER)
        pinned.wait(20)
        self.assertEqual((seen, len(freed)), ([[]], 1))
        self.assertFalse(pinned.covers(payload(1)))
        with self.assertRaises(kvkeep.InvalidArgument):
            pinned.wait(20)


class LongLeases(WithDaemon):
    SETTINGS = {"KVKEEP_LIMITS_KEYS_PER_CALL": "4"}

    def test_a_get_goes_under_whichever_of_the_daemons_leases_holds_its_key(self):
        client = self.connect()
        ns = client.namespace("model", tokens_per_chunk=256)
        keys = [key(number) for number in range(10)]
        with self.region(client) as region:
            for number in range(10):
                self.write(region, number, payload(number))
            self.assertEqual(ns.gpu_put([(one, [region.run(number * BLOCK, BLOCK)])
                                         for number, one in enumerate(keys)]).stored, 10)
            found = ns.lookup(keys, lease=True)
            self.assertEqual((found.leading_keys, found.leased_keys), (10, 10))
            ns.delete(keys)  # from now on the leases alone hold them
            with found.lease as lease:
                order = [9, 0, 5, 4, 8, 1]
                got = ns.gpu_get([(keys[number], [region.run((20 + number) * BLOCK, BLOCK)])
                                  for number in order], lease=lease)
                self.assertEqual((got.error, got.hits), (None, len(order)))
                for number in order:
                    self.assertTrue(self.block(region, 20 + number) == payload(number))


class HungGpu(WithDaemon):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.said = pathlib.Path(scratch.name, "settings")
        self.say("")
        self.SETTINGS = {"KVKEEP_FAKE_CUDA": str(self.said)}
        super().setUp()

    def say(self, settings):
        fresh = self.said.with_suffix(".new")
        fresh.write_text(settings)
        fresh.rename(self.said)

    def test_memory_stays_in_use_until_the_daemon_is_done_with_it(self):
        client = self.connect()
        ns = client.namespace("model", tokens_per_chunk=256)
        address = GPU.alloc(MEMORY)
        region = kvkeep.GpuRegion(client, kvkeep.Pointer(address, MEMORY), driver=DRIVER)
        self.assertEqual(ns.gpu_put([(key(1), region.run(0, BLOCK))]).stored, 1)
        self.say("hang stream\n")
        got = ns.gpu_get([(key(1), region.run(BLOCK, BLOCK))], timeout=1)
        self.assertEqual((got.hits, got.error.code), (0, "DEADLINE_EXCEEDED"))
        self.assertTrue(region.in_use)
        self.assertEqual(client.gpu_stats().unanswered, 1)
        with self.assertRaisesRegex(kvkeep.FailedPrecondition, "not answered"):
            region.close()
        self.say("")
        limit = time.monotonic() + 60
        while region.in_use:
            self.assertLess(time.monotonic(), limit)
        region.close()
        GPU.free(address)  # the fake would end this process if the daemon had it open

    def test_memory_of_a_forgotten_region_stays_while_the_daemon_may_write_it(self):
        client = self.connect()
        ns = client.namespace("model", tokens_per_chunk=256)
        address = GPU.alloc(MEMORY)
        tensor = CudaTensor(address, MEMORY)
        memory, gone = self.watched(tensor)
        region = kvkeep.GpuRegion(client, tensor, driver=DRIVER)
        del tensor
        self.assertEqual(ns.gpu_put([(key(1), region.run(0, BLOCK))]).stored, 1)
        self.say("hang stream\n")
        got = ns.gpu_get([(key(1), region.run(BLOCK, BLOCK))], timeout=1)
        self.assertEqual(got.error.code, "DEADLINE_EXCEEDED")
        with self.assertRaises(kvkeep.FailedPrecondition):
            region.close()
        del region
        gc.collect()
        self.assertFalse(gone.wait(1))
        self.assertIsNotNone(memory())
        self.say("")
        self.assertTrue(gone.wait(60))
        GPU.free(address)

    def test_memory_that_a_closed_client_left_goes_with_the_daemon(self):
        client = self.connect()
        ns = client.namespace("model", tokens_per_chunk=256)
        tensor = CudaTensor(GPU.alloc(MEMORY), MEMORY)
        memory, gone = self.watched(tensor)
        region = kvkeep.GpuRegion(client, tensor, driver=DRIVER)
        del tensor
        self.assertEqual(ns.gpu_put([(key(1), region.run(0, BLOCK))]).stored, 1)
        self.say("hang stream\n")
        got = ns.gpu_get([(key(1), region.run(BLOCK, BLOCK))], timeout=1)
        self.assertEqual(got.error.code, "DEADLINE_EXCEEDED")
        del region
        client.close()
        self.assertFalse(gone.wait(1))
        self.assertIsNotNone(memory())
        self.daemon.kill()
        self.assertTrue(gone.wait(60))

    def test_a_call_under_way_keeps_its_regions(self):
        client = self.connect()
        ns = client.namespace("model", tokens_per_chunk=256)
        address = GPU.alloc(MEMORY)
        tensor = CudaTensor(address, MEMORY)
        memory, gone = self.watched(tensor)
        region = kvkeep.GpuRegion(client, tensor, driver=DRIVER)
        del tensor
        self.write(region, 0, payload(1))
        self.assertEqual(ns.gpu_put([(key(1), region.run(0, BLOCK))]).stored, 1)
        self.say("hang stream\n")
        run = region.run(BLOCK, BLOCK)

        async def main(forget):
            async with kvkeep.aio.Calls(client) as calls:
                under_way = calls.gpu_get(ns, [(key(1), run)], timeout=60)
                forget()
                gc.collect()
                self.assertIsNotNone(memory())
                self.say("")
                return await under_way

        kept = [region]
        del region
        self.assertEqual(asyncio.run(main(kept.clear)).hits, 1)
        self.assertTrue(bytes(GPU.view(address + BLOCK, BLOCK)) == payload(1))
        self.assertTrue(gone.wait(60))
        GPU.free(address)


class Planner(unittest.TestCase):
    def planner(self, **changed):
        return KvPlanner(KvFormat.ONE_TENSOR, **(dict(
            layers=2, blocks=1024, block_tokens=4, heads=2, head_bytes=8,
            tensors=[GpuRun(7, 4096, 1 << 20)]) | changed))

    def test_runs_are_a_sequence(self):
        runs = self.planner().plan([3, 1, 2], 4, 8)
        self.assertEqual(runs[0], GpuRun(7, 4096 + 64, 128))
        self.assertEqual((len(runs), runs.nbytes, len(runs[1:3])), (4, 8 * 64, 2))
        self.assertEqual(list(kvkeep.GpuRuns(runs)), list(runs))

    def test_a_plan_of_many_runs_finds_its_room(self):
        planner = self.planner()
        self.assertEqual(len(planner.plan(range(0, 1024, 2), 0, 2048)), 4 * 512)
        self.assertEqual(len(planner.plan([5], 0, 4)), 4)

    def test_two_threads_may_plan_at_once(self):
        planner = self.planner()

        class PlannedMeanwhile:
            """The library, with another thread's plan of many runs in between."""

            def __getattr__(self, name):
                return getattr(library, name)

            def kvkeep_kv_plan(self, *arguments):
                code = library.kvkeep_kv_plan(*arguments)
                planner._library = library
                planner.plan(range(0, 1024, 2), 0, 2048)
                return code

        library, planner._library = planner._library, PlannedMeanwhile()
        self.assertEqual(len(planner.plan(range(0, 512, 2), 0, 1024)), 4 * 256)

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "tensor_count"):
            self.planner(tensors=[])
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "overlap"):
            self.planner(strides=[4096, 2048, 64, 16, 4])
        with self.assertRaisesRegex(ValueError, "five axes"):
            self.planner(strides=[1])
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "block table"):
            self.planner().plan([1], 0, 5)


class Pages(unittest.TestCase):
    def planner(self, shards=1, **changed):
        return PagePlanner([PageTensor(**(dict(
            run=GpuRun(7, 4096, 1 << 20), layers=2, blocks=1024, layer_stride=64,
            block_stride=128, page_bytes=64) | changed))], shards=shards)

    def test_blocks_become_runs(self):
        planner = self.planner()
        self.assertEqual(list(planner.plan([3, 1, 2])),
                         [GpuRun(7, 4096 + 3 * 128, 128), GpuRun(7, 4096 + 128, 256)])
        self.assertEqual(planner.bytes_per_block, 128)
        self.assertEqual(len(planner.plan(range(0, 1024, 2))), 512)  # more than there is room for

    def test_a_shard_is_its_part_of_each_page(self):
        planner = self.planner(shards=2)
        self.assertEqual(list(planner.plan([1], 1)),
                         [GpuRun(7, 4096 + 160, 32), GpuRun(7, 4096 + 224, 32)])

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "tensor_count"):
            PagePlanner([])
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "overlap"):
            self.planner(block_stride=127)
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "its pages take"):
            self.planner(run=GpuRun(7, 4096, 1024))
        with self.assertRaisesRegex(kvkeep.InvalidArgument, "shard is 1 of 1"):
            self.planner().plan([0], 1)


class PathIsOff(WithDaemon):
    SETTINGS = {"KVKEEP_GPU_MODE": "off"}

    def test_and_the_reason_is_told(self):
        with self.assertRaisesRegex(kvkeep.KvkeepError, "gpu.mode is off"):
            self.region(self.connect())
        self.assertEqual(self.connect("grpc").gpu_stats(), (0, 0, 0, 0, 0, 0))
        with self.assertRaises(kvkeep.FailedPrecondition):
            self.region(self.connect("grpc"))
        with self.assertRaises(kvkeep.FailedPrecondition):
            kvkeep.PinnedArena(self.connect("grpc"), driver=DRIVER)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
