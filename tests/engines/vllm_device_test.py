#!/usr/bin/env python3
"""kvkeep.vllm_device: vLLM's workers on KV in the fake driver's GPU memory, with a real daemon.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_device_test.py --root SOURCES --build build/release       (with that environment's Python)

Everything that holds for host memory (vllm_direct_test.py) holds here. The worker reports what a
load may still write; a late put stores nothing; loads are cut to the daemon's room; a daemon may
come later.
"""

import os
import signal
import sys
import time
import unittest
from unittest import mock

import torch
import vllm_direct_test as direct
import vllm_layouts_test as layouts
import vllm_shards_test as shards
from on_fake_gpu import FakeDevice
from vllm_direct_test import ASKED, BUILD, blocks, chunks, keys

from kvkeep import errors, vllm_device, vllm_windows
from kvkeep.vllm_device import DeviceTransfers
from kvkeep.vllm_transfers import KvkeepWorker

DRIVER = BUILD / "fake-cuda" / "libcuda.so.1"
DEVICE = FakeDevice(DRIVER)
ON_GPU = {"LD_LIBRARY_PATH": str(DRIVER.parent)}


class OnGpu(direct.WithDaemon):
    SETTINGS = ON_GPU

    def memory(self, blocks_first, scale=1):
        return direct.Memory(blocks_first, scale, DEVICE.zeros)

    def make(self, *arguments):
        with mock.patch.object(vllm_device, "_FIRST_S", 20):  # the first jobs need the memory
            return DeviceTransfers(*arguments, DEVICE)

    def stop(self):
        """Stops all of its threads, as one of them would still answer."""
        self.daemon.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.daemon.process.pid, os.WSTOPPED)

    def go_on(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def await_certain(self, transfers, job):
        deadline = time.monotonic() + 30
        while not (told := transfers.uncertain()):
            self.assertLess(time.monotonic(), deadline)
            transfers.get_finished()
            time.sleep(0.001)
        self.assertEqual(told, {job: -1})


class Moving(OnGpu, direct.Moving):
    def test_a_daemon_that_is_away_or_hangs_is_a_job_that_failed(self):
        transfers = self.transfers(self.memory(False))
        transfers.submit_store(1, blocks([1, 2, 3, 4]), chunks(keys(1)))
        self.assertEqual(self.ended(transfers), (1, True))
        self.daemon.kill()
        deadline = time.monotonic() + 20
        while transfers._client.connected:
            self.assertLess(time.monotonic(), deadline)
        transfers.submit_load(2, chunks(keys(1)), blocks([1, 2, 3, 4]))
        self.assertEqual(self.ended(transfers), (2, False))
        self.assertEqual(transfers.uncertain(), {})
        self.daemon.start()
        deadline = time.monotonic() + 20
        while True:  # the memory is registered again
            transfers.submit_store(3, blocks([1, 2, 3, 4]), chunks(keys(1)))
            if self.ended(transfers) == (3, True):
                break
            self.assertLess(time.monotonic(), deadline)


class Sharded(OnGpu, shards.Sharded):
    pass


class Layouts(OnGpu, layouts.Layouts):
    def zeros(self, nbytes):
        return DEVICE.zeros(nbytes)


class Late(OnGpu):
    """Returns calls that a hanging daemon has not answered."""

    def setUp(self):
        super().setUp()
        self.memory_ = self.memory(False)
        self.memory_.fill(1)
        self.transfers_ = self.transfers(self.memory_)
        self.transfers_.submit_store(1, blocks([1, 2, 3, 4]), chunks(keys(1)))
        self.assertEqual(self.ended(self.transfers_), (1, True))
        self.transfers_._options = direct.DirectOptions(
            endpoint=self.daemon.endpoint, timeout_s=0.4, store_timeout_s=0.4)

    def go_on(self):
        super().go_on()
        self.transfers_._options = direct.DirectOptions(endpoint=self.daemon.endpoint)

    def test_a_load_without_an_answer_is_uncertain_until_it_has_one(self):
        self.stop()
        self.transfers_.submit_load(2, chunks(keys(1)), blocks([9, 10, 11, 12]))
        self.assertEqual(self.ended(self.transfers_), (2, False))
        self.assertEqual(self.transfers_.uncertain(), {2: 1})
        # Nothing more begins: it fails at once, and nothing of it is uncertain.
        began = time.monotonic()
        self.transfers_.submit_load(3, chunks(keys(1)), blocks([13, 14, 15, 16]))
        self.transfers_.submit_store(4, blocks([1, 2, 3, 4]), chunks(keys(1, first=4)))
        self.assertEqual([one[:2] for one in self.transfers_.get_finished()],
                         [(3, False), (4, False)])
        self.assertLess(time.monotonic() - began, 2)
        self.assertEqual(self.transfers_.uncertain(), {})
        self.go_on()
        self.await_certain(self.transfers_, 2)
        self.transfers_.submit_load(5, chunks(keys(1)), blocks([9, 10, 11, 12]))
        self.assertEqual(self.ended(self.transfers_), (5, True))
        self.assertTrue(torch.equal(self.memory_.block(9), self.memory_.block(1)))

    def test_what_waited_behind_it_has_failed_with_it(self):
        self.transfers_.submit_store(2, blocks([5, 6, 7, 8]), chunks(keys(1, first=2)))
        self.assertEqual(self.ended(self.transfers_), (2, True))
        self.stop()
        with mock.patch.multiple(vllm_windows, _REQUEST=1, _REQUESTS_UNDER_WAY=1):
            self.transfers_.submit_load(3, chunks(keys(2)), blocks(list(range(9, 17))))
            self.transfers_.submit_store(4, blocks([1, 2, 3, 4]), chunks(keys(1, first=4)))
            self.assertEqual(len(self.transfers_._windows), 2)
            finished = []
            while len(finished) < 2:
                finished += [one[:2] for one in self.transfers_.get_finished()]
            self.assertEqual(sorted(finished), [(3, False), (4, False)])
        self.assertEqual(self.transfers_.uncertain(), {3: 1})
        self.go_on()
        self.await_certain(self.transfers_, 3)

    def test_a_daemon_that_hangs_holds_no_hook_up(self):
        """However much is to be moved, no more is sent than its socket has room for."""
        self.transfers_._options = direct.DirectOptions(
            endpoint=self.daemon.endpoint, timeout_s=10, store_timeout_s=10)
        self.stop()
        began = time.monotonic()
        order = list(range(1, 1 + 8 * direct.PER_CHUNK))
        with mock.patch.object(vllm_windows, "_BYTES", 1):  # as many requests as can be
            for job in range(200):
                self.transfers_.submit_load(10 + job, chunks(keys(8)), blocks(order))
                self.transfers_.submit_store(1000 + job, blocks(order), chunks(keys(8, first=9)))
        self.assertLess(time.monotonic() - began, 10)
        # Requests already sent still lie in the socket when their time is over: nothing more is
        # sent.
        for _ in range(3):
            finished = []
            while len(finished) < 400:
                finished += self.transfers_.get_finished()
                self.assertLess(time.monotonic() - began, 60)
                time.sleep(0.001)
            self.assertFalse(any(good for _, good, *_ in finished))
            again = time.monotonic()
            for job in range(400):
                self.transfers_.submit_load(2000 + job, chunks(keys(8)), blocks(order))
            self.assertLess(time.monotonic() - again, 5)
        self.go_on()

    def test_or_until_the_daemon_is_dead(self):
        self.stop()
        self.transfers_.submit_load(2, chunks(keys(1)), blocks([9, 10, 11, 12]))
        self.assertEqual(self.ended(self.transfers_), (2, False))
        self.assertEqual(self.transfers_.uncertain(), {2: 1})
        self.daemon.kill()
        self.await_certain(self.transfers_, 2)

    def test_a_put_that_is_read_late_stores_nothing(self):
        """A store's blocks are vLLM's again at its deadline, and have other tokens' KV by the time
        at which the daemon reads them."""
        self.stop()
        began = time.monotonic()
        self.transfers_.submit_store(2, blocks([5, 6, 7, 8]), chunks(keys(1, first=2)))
        self.assertEqual(self.ended(self.transfers_), (2, False))
        self.assertGreaterEqual(time.monotonic() - began, 0.4)
        self.memory_.fill(2)
        self.go_on()
        deadline = time.monotonic() + 30
        while self.transfers_._windows.is_hung:  # until it has read the put
            self.assertLess(time.monotonic(), deadline)
            self.transfers_.get_finished()
        other = self.transfers(self.memory(False))
        other.submit_load(3, chunks(keys(1, first=2)), blocks([5, 6, 7, 8]))
        self.assertEqual(self.ended(other), (3, False))
        other.submit_load(4, chunks(keys(1)), blocks([5, 6, 7, 8]))
        self.assertEqual(self.ended(other), (4, True))

    def test_a_load_that_misses_is_certain(self):
        self.transfers_.submit_load(2, chunks(keys(1, first=7)), blocks([9, 10, 11, 12]))
        self.assertEqual(self.ended(self.transfers_), (2, False))
        self.assertEqual(self.transfers_.uncertain(), {})


class Fenced(OnGpu):
    """vLLM's jobs begin when the GPU has done what the engine began before them."""

    def setUp(self):
        super().setUp()
        self.memory_ = self.memory(False)
        self.worker = KvkeepWorker.__new__(KvkeepWorker)
        self.worker._rank, self.worker._vllm_config = 0, direct.engine_of(4)
        self.worker.worker = self.transfers(self.memory_)
        self.worker.clear()
        self.addCleanup(setattr, DEVICE, "holding", False)

    def step(self, loads=None, stores=None):
        meta = direct.OffloadingConnectorMetadata(loads or {}, stores or {}, set())
        self.worker.handle_preemptions(meta)
        self.worker.before_forward(meta)
        self.worker.start_kv_transfers(meta)
        self.worker.prepare_store_kv(meta)
        self.worker.transfer_results()

    def until(self, done):
        deadline = time.monotonic() + 30
        while not done():
            self.step()
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)

    def test_a_store_has_what_the_forward_wrote_and_a_load_waits_for_it(self):
        told = self.worker._connector_worker_meta
        self.memory_.fill(1)
        DEVICE.holding = True
        self.step(stores={1: direct.TransferJob("r", blocks([1, 2, 3, 4]), chunks(keys(1)))})
        self.step()
        self.memory_.fill(2)  # the forward's kernels
        written = self.memory_.block(1)
        DEVICE.holding = False
        self.until(lambda: 1 in told.released)
        DEVICE.holding = True
        self.step(loads={2: direct.TransferJob("r", chunks(keys(1)), blocks([9, 10, 11, 12]))})
        self.memory_.fill(3)  # the blocks' earlier user still writes them
        time.sleep(0.1)
        self.step()
        self.assertNotIn(2, told.completed_jobs)
        DEVICE.holding = False
        self.until(lambda: 2 in told.completed_jobs)
        self.assertEqual(told.failed, set())
        self.assertTrue(torch.equal(self.memory_.block(9), written))


class Freed(OnGpu):
    """vLLM's sleep: its KV memory is freed, and comes back."""

    def test_the_daemon_lets_go_of_the_memory_and_is_told_of_it_again(self):
        memory = self.memory(False)
        memory.fill(1)
        transfers = self.transfers(memory)
        transfers.submit_store(1, blocks([1, 2, 3, 4]), chunks(keys(1)))
        transfers.release()
        self.assertEqual(self.ended(transfers), (1, True))
        self.assertEqual(transfers._client.gpu_stats().registered, 1)
        transfers.submit_load(2, chunks(keys(1)), blocks([9, 10, 11, 12]))
        self.assertEqual(self.ended(transfers), (2, False))
        transfers.restore()
        transfers.submit_load(3, chunks(keys(1)), blocks([9, 10, 11, 12]))
        self.assertEqual(self.ended(transfers), (3, True))
        self.assertTrue(torch.equal(memory.block(9), memory.block(1)))
        self.assertEqual(transfers._client.gpu_stats().registered, 2)

    def test_memory_that_may_still_be_written_is_not_freed(self):
        transfers = self.transfers(self.memory(False))
        transfers.submit_store(1, blocks([1, 2, 3, 4]), chunks(keys(1)))
        self.assertEqual(self.ended(transfers), (1, True))
        self.stop()
        transfers._options = direct.DirectOptions(endpoint=self.daemon.endpoint, timeout_s=0.3)
        transfers.submit_load(2, chunks(keys(1)), blocks([9, 10, 11, 12]))
        with mock.patch.object(vllm_device, "_FIRST_S", 0.1):
            with self.assertRaisesRegex(errors.KvkeepError, "FAILED_PRECONDITION"):
                transfers.release()
        self.go_on()


class Windows(OnGpu):
    SETTINGS = {**ON_GPU, "KVKEEP_G2_CAPACITY": "64MiB"}  # gets to GPUs: 16 MiB

    def test_a_load_is_cut_and_comes_whole(self):
        source, target = self.memory(False), self.memory(True)
        source.fill(1)
        store, load = self.transfers(source), self.transfers(target)
        order = list(range(1, 1 + 8 * direct.PER_CHUNK))
        store.submit_store(1, blocks(order), chunks(keys(8)))
        self.assertEqual(self.ended(store), (1, True))
        of_chunk = direct.PER_CHUNK * sum(direct.PAGES)
        for limits in ({"_BYTES": of_chunk, "_BYTES_UNDER_WAY": 2 * of_chunk},
                       {"_BYTES": 3 * of_chunk, "_BYTES_UNDER_WAY": 3 * of_chunk},
                       {"_REQUEST": 1, "_REQUESTS_UNDER_WAY": 1},
                       {"_REQUEST": 2300, "_REQUESTS_UNDER_WAY": 5000}):
            target.fill(2)
            with mock.patch.multiple(vllm_windows, **limits):
                load.submit_load(2, chunks(keys(8)), blocks(order[1:-1], 1))
                self.assertGreater(len(load._windows), 0)
                self.assertEqual(self.ended(load), (2, True))
            for number in order[1:-1]:
                self.assertTrue(torch.equal(target.block(number), source.block(number)))
            self.assertEqual((load._windows.requests, load._windows.nbytes, len(load._windows)),
                             (0, 0, 0))

    def test_one_that_misses_a_chunk_is_over_once(self):
        memory = self.memory(False)
        load = self.transfers(memory)
        with mock.patch.object(vllm_windows, "_REQUEST", 1):
            load.submit_load(2, chunks(keys(8)), blocks(list(range(1, 33))))
            self.assertEqual(self.ended(load), (2, False))
        time.sleep(0.05)
        self.assertEqual((load.get_finished(), load._windows.requests, len(load._windows)),
                         ([], 0, 0))

    def test_a_daemon_with_less_room_than_a_load_takes_it_in_parts(self):
        memory = Large(32)
        memory.all.random_()
        before = memory.all.clone()
        transfers = self.transfers(memory)
        order = list(range(1, 1 + 6 * direct.PER_CHUNK))  # 24 MiB
        for at in range(6):  # no more at once than a small daemon takes from a GPU
            first = at * direct.PER_CHUNK
            transfers.submit_store(1, blocks(order[first:first + direct.PER_CHUNK]),
                                   chunks(keys(1, first=1 + at)))
            self.assertEqual(self.ended(transfers), (1, True))
        memory.all.zero_()
        transfers.submit_load(2, chunks(keys(6)), blocks(order))
        self.assertEqual(self.ended(transfers), (2, True))
        self.assertTrue(torch.equal(memory.all[order], before[order]))


class Large:
    """A rank's KV: one layer, pages of 1 MiB."""

    def __init__(self, pages):
        self.all = DEVICE.zeros(pages << 20).view(pages, 1 << 20)
        self.caches = direct.CanonicalKVCaches(
            [direct.CanonicalKVCacheTensor(self.all, 1 << 20)],
            [[direct.CanonicalKVCacheRef(0, 1 << 20)]])


class Registering(OnGpu):
    def test_a_daemon_that_comes_later_is_told_of_the_memory(self):
        self.daemon.kill()
        with mock.patch.object(vllm_device, "_AGAIN_S", 0.05):
            transfers = self.transfers(self.memory(False))
            transfers.submit_store(1, blocks([1, 2, 3, 4]), chunks(keys(1)))
            self.assertEqual(self.ended(transfers), (1, False))
            self.daemon.start()
            deadline = time.monotonic() + 30
            while True:
                transfers.submit_store(2, blocks([1, 2, 3, 4]), chunks(keys(1)))
                if self.ended(transfers) == (2, True):
                    break
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
        transfers._registering.join(10)
        self.assertFalse(transfers._registering.is_alive())

    def test_one_without_a_gpu_path_is_said_once_and_asked_again(self):
        self.daemon.kill()
        self.daemon.settings["KVKEEP_GPU_MODE"] = "off"
        self.daemon.start()
        with (self.assertLogs(vllm_device.logger, "ERROR") as logged,
              mock.patch.object(vllm_device, "_AGAIN_S", 0.05)):
            transfers = self.transfers(self.memory(False))
            deadline = time.monotonic() + 30
            while not logged.output:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            time.sleep(0.5)  # it is asked again several times in this time
            self.assertTrue(transfers._registering.is_alive())
            transfers.submit_load(1, chunks(keys(1)), blocks([1, 2, 3, 4]))
            self.assertEqual(self.ended(transfers), (1, False))
            transfers.release()
        self.assertEqual([line for line in logged.output if "copies no KV" not in line], [])
        self.assertEqual(len(set(logged.output)), len(logged.output))

    def test_chunks_of_more_runs_than_a_socket_has_room_for_are_refused(self):
        with mock.patch.object(vllm_device, "MOST_RUNS", 2 * direct.PER_CHUNK - 1), \
                self.assertRaisesRegex(ValueError, "tokens_per_chunk: a chunk is 8 runs"):
            self.transfers(self.memory(False))

    def test_memory_of_two_kinds_is_refused(self):
        caches = direct.Memory(False).caches
        made = vllm_device.transfers_of(
            direct.DirectOptions(endpoint=self.daemon.endpoint), direct.config(), caches, None)
        self.addCleanup(made.shutdown)
        self.assertIsInstance(made, direct.HostTransfers)
        caches.tensors[1].tensor = caches.tensors[1].tensor.to("meta")
        with self.assertRaisesRegex(ValueError, "cpu.*meta"):
            vllm_device.transfers_of(direct.DirectOptions(), direct.config(), caches, None)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
