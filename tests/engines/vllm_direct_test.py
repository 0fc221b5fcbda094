#!/usr/bin/env python3
"""kvkeep.vllm_direct's parts on vLLM's own classes, with a real daemon; no GPU, no model.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_direct_test.py --root SOURCES --build build/release       (with that environment's Python)

Workers move the bytes of the blocks, whatever their strides, and touch nothing else. vLLM reuses no
block that a store reads, completes what it flushes once, and chunks carry their metadata.
"""

import os
import random
import signal
import sys
import threading
import time
import types
import unittest
from unittest import mock

import engine_process
import torch

ASKED = engine_process.arguments(__doc__, engine=False)
ROOT, BUILD = ASKED.root.resolve(), ASKED.build.resolve()
os.environ.update(KVKEEP_CLIENT_LIBRARY=str(BUILD / "lib" / "libkvkeep-client.so.1"),
                  VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
sys.path[:0] = [str(ROOT / "client" / "python"), str(ROOT / "tests" / "client" / "c")]

from daemon import Daemon  # noqa: E402
from kvkeep import errors, vllm_connector  # noqa: E402
from kvkeep.metadata import chunk_metadata  # noqa: E402
from kvkeep.vllm_blocks import Doubts, Pins, Present  # noqa: E402
from kvkeep.vllm_direct import DirectOptions, KvkeepConnector  # noqa: E402
from kvkeep.vllm_epochs import observe_resets  # noqa: E402
from kvkeep.vllm_facts import ChunkFacts, Facts  # noqa: E402
from kvkeep.vllm_keys import OwnKeys  # noqa: E402
from kvkeep.vllm_transfers import ChunksSpec, HostTransfers, KvkeepWorkerMetadata  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (  # noqa: E402
    OffloadingConnectorMetadata, TransferJob)
from vllm.v1.core.block_pool import BlockPool  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec  # noqa: E402
from vllm.v1.kv_offload.base import (CanonicalKVCacheRef, CanonicalKVCaches,  # noqa: E402
                                     CanonicalKVCacheTensor, CanonicalPageMapping, CopyRun,
                                     GPULoadStoreSpec, ReqContext, make_offload_key)

BLOCKS, PER_CHUNK, PAGES = 40, 4, (4096, 1000)  # the second layer's pages have padding


class Memory:
    """A rank's KV: two layers of one group. blocks_first: a block's pages lie side by side. scale:
    a multiple of PAGES. zeros: makes a tensor of a number of bytes."""

    def __init__(self, blocks_first, scale=1,
                 zeros=lambda nbytes: torch.zeros(nbytes, dtype=torch.int8)):
        room, self.nbytes = 4096 * scale, [nbytes * scale for nbytes in PAGES]
        if blocks_first:
            self.all = zeros(BLOCKS * 2 * room).view(BLOCKS, 2 * room)
            layers = self.all[:, :room], self.all[:, room:]
        else:
            self.all = zeros(2 * BLOCKS * room).view(2, BLOCKS, room)
            layers = self.all[0], self.all[1]
        self.pages = [layer[:, :nbytes] for layer, nbytes in zip(layers, self.nbytes)]
        self.caches = CanonicalKVCaches(
            [CanonicalKVCacheTensor(layer, room) for layer in layers],
            [[CanonicalKVCacheRef(at, nbytes) for at, nbytes in enumerate(self.nbytes)]])

    def is_of(self, rank, ranks, writers=1):
        """Its pages are this many of the whole ones; or, as one of `writers` ranks, it has all of
        them."""
        whole, first = (ranks, rank) if writers == 1 else (1, 0)
        self.caches.group_data_refs[0] = [
            CanonicalKVCacheRef(at, nbytes, CanonicalPageMapping(
                whole * nbytes, nbytes, (CopyRun(0, first * nbytes, nbytes, 1, nbytes, nbytes),),
                writers, rank if writers > 1 else 0, True))
            for at, nbytes in enumerate(self.nbytes)]
        return self

    def fill(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.all.copy_(torch.randint(-128, 128, self.all.shape, generator=generator,
                                     dtype=torch.int8))

    def block(self, number):
        return torch.cat([page[number] for page in self.pages])


def config(rank=0):
    return types.SimpleNamespace(engine_id="test", parallel=types.SimpleNamespace(rank=rank),
                                 cache=types.SimpleNamespace(blocks_per_chunk=PER_CHUNK))


def engine_of(heads, ranks=1, rank=0):
    """The part of a VllmConfig that vLLM's derivation of pages uses."""
    return types.SimpleNamespace(
        instance_id="engine",
        model_config=types.SimpleNamespace(get_total_num_kv_heads=lambda: heads),
        parallel_config=types.SimpleNamespace(
            tensor_parallel_size=ranks, prefill_context_parallel_size=1, rank=rank,
            decode_context_parallel_size=1, world_size=ranks, cp_kv_cache_interleave_size=1))


def keys(count, first=1):
    return [bytes([first + at]) * 32 for at in range(count)]


def chunks(wanted, parts=1):
    return ChunksSpec({0: ((("model", "m"), ("tokens_per_chunk", 16), ("parts", parts)), wanted)})


def blocks(numbers, first=0):
    return GPULoadStoreSpec(numbers, group_sizes=[len(numbers)], block_indices=[first])


class WithDaemon(unittest.TestCase):
    SETTINGS = {}

    def setUp(self):
        self.daemon = Daemon(BUILD / "bin" / "kvkeepd", dict(self.SETTINGS))
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def memory(self, blocks_first, scale=1):
        return Memory(blocks_first, scale)

    def make(self, *arguments):
        return HostTransfers(*arguments)

    def transfers(self, memory, rank=0, timeout_s=5.0, shards=None):
        made = self.make(DirectOptions(endpoint=self.daemon.endpoint, timeout_s=timeout_s,
                                       store_timeout_s=timeout_s), config(rank), memory.caches,
                         shards)
        self.addCleanup(made.shutdown)
        return made

    def ended(self, transfers):
        """Returns the next job's (number, whether it went well)."""
        deadline = time.monotonic() + 30
        while not (finished := transfers.get_finished()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        (job, good, _, _), = finished
        return job, good


class Moving(WithDaemon):
    def test_what_was_stored_is_loaded_into_any_blocks_of_any_strides(self):
        for blocks_first in (False, True):
            source = self.memory(blocks_first)
            source.fill(1)
            order = random.Random(blocks_first).sample(range(1, BLOCKS), 3 * PER_CHUNK)
            wanted = keys(3, first=1 + 10 * blocks_first)
            store = self.transfers(source)
            store.submit_store(7, blocks(order), chunks(wanted))
            self.assertEqual(self.ended(store), (7, True))
            for target_first in (False, True):
                target = self.memory(target_first)
                target.fill(2)
                before = target.all.clone()
                load = self.transfers(target)
                to = random.Random(5).sample(range(1, BLOCKS), 3 * PER_CHUNK)
                load.submit_load(8, chunks(wanted), blocks(to))
                self.assertEqual(self.ended(load), (8, True))
                for had, has in zip(order, to):
                    self.assertTrue(torch.equal(source.block(had), target.block(has)))
                untouched = [number for number in range(BLOCKS) if number not in to]
                where = (untouched,) if target_first else (slice(None), untouched)
                self.assertTrue(torch.equal(target.all[where], before[where]))
                if not target_first:  # nor is the padding
                    self.assertTrue(torch.equal(target.all[1, :, 1000:], before[1, :, 1000:]))

    def test_a_load_may_begin_and_end_within_chunks(self):
        source, target = self.memory(False), self.memory(True)
        source.fill(1)
        store, load = self.transfers(source), self.transfers(target)
        order = list(range(1, 1 + 3 * PER_CHUNK))
        store.submit_store(1, blocks(order), chunks(keys(3)))
        self.assertEqual(self.ended(store), (1, True))
        for first, count in ((0, 12), (1, 11), (3, 2), (3, 6), (5, 1), (6, 6), (11, 1)):
            target.fill(2)
            before = target.all.clone()
            to = list(range(20, 20 + count))
            of = keys(3)[first // PER_CHUNK:-(-(first + count) // PER_CHUNK)]
            load.submit_load(2, chunks(of), blocks(to, first))
            self.assertEqual(self.ended(load), (2, True), (first, count))
            for at, number in enumerate(to):
                self.assertTrue(torch.equal(target.block(number), source.block(order[first + at])))
            self.assertTrue(torch.equal(target.all[:20], before[:20]))
            self.assertTrue(torch.equal(target.all[20 + count:], before[20 + count:]))

    def test_what_is_not_there_or_of_another_size_is_a_load_that_failed(self):
        memory = self.memory(False)
        transfers = self.transfers(memory)
        transfers.submit_load(1, chunks(keys(2)), blocks(list(range(1, 9))))
        self.assertEqual(self.ended(transfers), (1, False))
        transfers.submit_store(2, blocks([1, 2, 3, 4]), chunks(keys(1)))
        self.assertEqual(self.ended(transfers), (2, True))
        transfers.submit_load(3, chunks(keys(2)), blocks(list(range(1, 9))))
        self.assertEqual(self.ended(transfers), (3, False))
        # A mistake of ours does not end the engine.
        transfers.submit_load(4, chunks(keys(2)), blocks([1, 2, 3]))
        self.assertEqual(self.ended(transfers), (4, False))
        transfers.submit_store(5, blocks([1, 0, 2, 3]), chunks(keys(1)))
        self.assertEqual(self.ended(transfers), (5, False))
        # A smaller chunk under the key is none of ours.
        client = transfers._client
        small = client.namespace("m", tokens_per_chunk=16)
        self.assertEqual(small.put([(keys(1, first=9)[0], b"short")]).stored, 1)
        transfers.submit_load(6, chunks(keys(1, first=9)), blocks([1, 2, 3, 4]))
        self.assertEqual(self.ended(transfers), (6, False))

    def test_each_rank_has_its_part(self):
        ranks = [self.memory(False), self.memory(True)]
        for rank, memory in enumerate(ranks):
            memory.fill(rank)
            transfers = self.transfers(memory, rank)
            transfers.submit_store(1, blocks([1, 2, 3, 4]), chunks(keys(1), parts=2))
            self.assertEqual(self.ended(transfers), (1, True))
        for rank, source in enumerate(ranks):
            target = self.memory(False)
            transfers = self.transfers(target, rank)
            transfers.submit_load(1, chunks(keys(1), parts=2), blocks([9, 8, 7, 6]))
            self.assertEqual(self.ended(transfers), (1, True))
            self.assertTrue(torch.equal(target.block(9), source.block(1)))

    def test_a_daemon_that_is_away_or_hangs_is_a_job_that_failed(self):
        memory = self.memory(False)
        transfers = self.transfers(memory)
        transfers.submit_store(1, blocks([1, 2, 3, 4]), chunks(keys(1)))
        self.assertEqual(self.ended(transfers), (1, True))
        transfers._options = DirectOptions(endpoint=self.daemon.endpoint, timeout_s=3.0,
                                           store_timeout_s=3.0)
        self.daemon.process.send_signal(signal.SIGSTOP)
        # Stops all of its threads, as one of them would still answer.
        os.waitid(os.P_PID, self.daemon.process.pid, os.WSTOPPED)
        begin = time.monotonic()
        transfers.submit_store(2, blocks([1, 2, 3, 4]), chunks(keys(1, first=2)))
        transfers.submit_load(3, chunks(keys(1)), blocks([1, 2, 3, 4]))
        self.assertLess(time.monotonic() - begin, 1.5)  # half as long as a call may take
        finished = []
        while len(finished) < 2:
            finished += [(job, good) for job, good, *_ in transfers.get_finished()]
            self.assertLess(time.monotonic() - begin, 20)
            time.sleep(0.001)
        self.assertEqual(sorted(finished), [(2, False), (3, False)])
        self.daemon.process.send_signal(signal.SIGCONT)
        self.daemon.kill()
        deadline = time.monotonic() + 20
        while transfers._client.connected:
            self.assertLess(time.monotonic(), deadline)
        transfers.submit_load(4, chunks(keys(1)), blocks([1, 2, 3, 4]))
        self.assertEqual(self.ended(transfers), (4, False))


class Before33(unittest.TestCase):
    """Parts of vLLM that tell a connector too little in versions before 0.33."""

    @staticmethod
    def configure(sleeps=False, **options):
        vllm_connector._configure(types.SimpleNamespace(
            kv_transfer_config=types.SimpleNamespace(
                kv_role="kv_both", kv_load_failure_policy="recompute",
                kv_connector_extra_config=options),
            attention_config=types.SimpleNamespace(hisparse_config=None),
            model_config=types.SimpleNamespace(enable_sleep_mode=sleeps),
            cache_config=types.SimpleNamespace(get_resolved_kv_cache_layout=lambda: None)), None)

    def test_sleep_and_events_by_the_engine_are_refused(self):
        for lacks, cases in (
                (True, (("do not tell a connector that they sleep", {"sleeps": True}),
                        ('"events": "engine" needs vLLM 0.33', {"events": "engine"}))),
                (False, ((None, {"sleeps": True}), (None, {"events": "engine"})))):
            for why, case in cases:
                # What is not refused goes on, and has no KV groups here.
                with mock.patch.object(vllm_connector, "lacks", lambda *_, has=lacks: has), \
                        mock.patch.object(vllm_connector, "check_layout"), \
                        self.assertRaisesRegex(ValueError if why else AttributeError,
                                               why or "kv_cache_groups"):
                    self.configure(**case)


class Opening(WithDaemon):
    def test_a_namespace_opens_while_nobody_waits(self):
        transfers = self.transfers(self.memory(False))
        opens, may_open = transfers._client.namespace, threading.Event()

        def slow(*arguments, **named):
            may_open.wait(20)
            return opens(*arguments, **named)

        transfers._client.namespace = slow
        self.assertFalse(transfers.knows(chunks(keys(1))))
        self.assertFalse(transfers.knows(chunks(keys(1))))
        may_open.set()
        deadline = time.monotonic() + 20
        while not transfers.knows(chunks(keys(1))):
            self.assertLess(time.monotonic(), deadline)
        transfers.submit_store(1, blocks([1, 2, 3, 4]), chunks(keys(1)))
        self.assertEqual(self.ended(transfers), (1, True))

    def test_one_that_does_not_open_is_a_job_that_failed_and_is_tried_again(self):
        transfers = self.transfers(self.memory(False))
        opens = transfers._client.namespace
        transfers._client.namespace = mock.Mock(
            side_effect=[errors.make("DEADLINE_EXCEEDED", "no answer"),
                         opens("m", tokens_per_chunk=16)])
        for job, good in ((1, False), (2, True)):
            transfers.submit_store(job, blocks([1, 2, 3, 4]), chunks(keys(1)))
            self.assertEqual(self.ended(transfers), (job, good))
        self.assertTrue(transfers.knows(chunks(keys(1))))


class Pinned(unittest.TestCase):
    def test_blocks_that_a_store_reads_are_given_to_nobody(self):
        pool = BlockPool(num_gpu_blocks=20, enable_caching=True, hash_block_size=16)
        pins = Pins(0.5, pool)
        taken = pool.get_new_blocks(6)
        numbers = [block.block_id for block in taken]
        pins.hold("job", [0, *numbers[:4]])  # vLLM's null block is none
        self.assertEqual((pins.blocks, pins.room, bool(pins)), (4, 6, True))
        pool.free_blocks(reversed(taken))  # their request is over
        free = pool.get_num_free_blocks()
        others = {block.block_id for block in pool.get_new_blocks(free)}
        self.assertTrue(others.isdisjoint(numbers[:4]))
        pins.hold("other", numbers[:1])
        pins.let_go("job")
        self.assertEqual(pool.get_num_free_blocks(), 3)
        pins.let_go("job")
        pins.let_go("other")
        self.assertEqual((pool.get_num_free_blocks(), pins.blocks, bool(pins)), (4, 0, False))

    def test_blocks_that_may_still_be_written_are_kept_until_no_worker_says_so(self):
        pool = BlockPool(num_gpu_blocks=20, enable_caching=True, hash_block_size=16)
        taken = pool.get_new_blocks(6)
        numbers = [block.block_id for block in taken]
        doubts = Doubts(pool)
        doubts.change(1, 2, [0, *numbers])
        pool.free_blocks(reversed(taken))
        for _ in range(2):
            self.assertEqual((doubts.blocks, pool.get_num_free_blocks()), (6, 13))
            doubts.change(1, -1, [])
        self.assertEqual((doubts.blocks, pool.get_num_free_blocks()), (0, 19))
        doubts.change(2, 0, numbers)  # of one worker, over at once
        self.assertEqual(doubts.blocks, 0)

    def test_a_reset_of_vllms_prefix_cache_finds_no_block_held_and_they_are_held_after_it(self):
        pool = BlockPool(num_gpu_blocks=20, enable_caching=True, hash_block_size=16)
        taken = pool.get_new_blocks(6)
        numbers, told = [block.block_id for block in taken], []
        pins, doubts = Pins(0.5, pool), Doubts(pool)
        pins.hold("job", numbers[:4])
        doubts.change(1, 1, numbers[2:])
        self.assertFalse(pool.reset_prefix_cache())
        observe_resets(pool, lambda: told.append(pool.get_num_free_blocks()),
                       lambda: told.append("gone"),
                       lambda: (pins.given_back(), doubts.given_back()))
        self.assertFalse(pool.reset_prefix_cache())  # a request has them
        pool.free_blocks(reversed(taken))
        self.assertTrue(pool.reset_prefix_cache())
        self.assertEqual((told, pool.get_num_free_blocks()), ([13, 13, "gone"], 13))
        others = {block.block_id for block in pool.get_new_blocks(13)}
        self.assertTrue(others.isdisjoint(numbers))
        pins.let_go("job")
        doubts.change(1, -1, [])
        self.assertEqual(pool.get_num_free_blocks(), 6)

    def test_an_idle_engine_steps_for_stores_that_go_on(self):
        now = [100.0]
        pool = BlockPool(num_gpu_blocks=20, enable_caching=True, hash_block_size=16)
        pins = Pins(0.5, pool, clock=lambda: now[0])
        self.assertFalse(pins.want_a_step())
        pins.hold("job", [pool.get_new_blocks(1)[0].block_id])
        self.assertTrue(pins.want_a_step())
        now[0] += 1
        self.assertFalse(pins.want_a_step())  # beside a daemon that hangs
        pins.note_progress()
        self.assertTrue(pins.want_a_step())
        pins.let_go("job")
        self.assertFalse(pins.want_a_step())

    def test_no_more_than_a_part_is_held_and_without_a_pool_nothing(self):
        pool = BlockPool(num_gpu_blocks=20, enable_caching=True, hash_block_size=16)
        pins = Pins(0.1, pool)
        numbers = [block.block_id for block in pool.get_new_blocks(4)]
        self.assertEqual(pins.room, 2)
        pins.hold("a", numbers[:2])
        self.assertEqual((pins.room, Pins(0.1).room), (0, 0))

    def test_what_is_stored_is_remembered_for_a_while(self):
        now = [0.0]
        present = Present(clock=lambda: now[0])
        present.add([b"a"])
        self.assertTrue(b"a" in present and b"b" not in present)
        now[0] = 400.0
        self.assertNotIn(b"a", present)
        with mock.patch("kvkeep.vllm_blocks._PRESENT_KEYS", 2):
            present.add([b"a", b"b", b"a", b"c"])
        self.assertEqual([one in present for one in (b"a", b"b", b"c")], [True, False, True])


class Doubtful(unittest.TestCase):
    """The connector, while workers say that a load's blocks may still be written."""

    def setUp(self):
        self.pool = BlockPool(num_gpu_blocks=20, enable_caching=True, hash_block_size=16)
        self.taken = self.pool.get_new_blocks(6)
        self.connector = connector = KvkeepConnector.__new__(KvkeepConnector)
        connector._workers, connector._stores, connector._loads = 2, {}, {}
        connector._doubts, connector._manager = Doubts(self.pool), mock.Mock(
            pins=Pins(0.1, self.pool), options=DirectOptions(), events=None,
            epochs=mock.Mock(number=0, known_writes={}))
        connector.connector_scheduler = mock.Mock(_jobs={}, _req_status={}, **{
            "has_pending_push_work.return_value": False})
        connector.connector_scheduler.build_connector_meta.return_value = (
            OffloadingConnectorMetadata({7: TransferJob("r", None, blocks(
                [block.block_id for block in self.taken]))}, {}, set()))
        connector.build_connector_meta(types.SimpleNamespace(finished_req_ids=(),
                                                             preempted_req_ids=None))

    def tell(self, request_is_over=False, **told):
        """Reports a step's workers together; vLLM then frees the blocks of requests that are
        over."""
        scheduler = self.connector.connector_scheduler
        scheduler.update_connector_output.side_effect = lambda _: request_is_over and (
            self.pool.free_blocks(reversed(self.taken)))
        self.connector.update_connector_output(types.SimpleNamespace(
            kv_connector_worker_meta=KvkeepWorkerMetadata(
                told.get("completed", {}), failed=set(told.get("failed", ())),
                uncertain=told.get("uncertain", {}))))
        return self.pool.get_num_free_blocks()

    def test_blocks_are_held_before_vllm_frees_them(self):
        self.assertEqual(self.tell(True, completed={7: 2}, failed=[7], uncertain={7: 1}), 13)
        self.assertTrue(self.connector.has_pending_push_work())  # to hear of the end
        self.assertEqual(self.tell(uncertain={7: -1}), 19)
        self.assertFalse(self.connector.has_pending_push_work())

    def test_workers_say_so_one_after_the_other(self):
        self.assertEqual(self.tell(completed={7: 1}, failed=[7]), 13)
        self.assertEqual(self.tell(True, completed={7: 1}, failed=[7], uncertain={7: 1}), 13)
        self.assertEqual(self.connector._loads, {})
        self.assertEqual(self.tell(uncertain={7: -1}), 19)

    def test_or_at_once_and_are_certain_one_after_the_other(self):
        self.assertEqual(self.tell(True, completed={7: 2}, failed=[7], uncertain={7: 2}), 13)
        self.assertEqual(self.tell(uncertain={7: -1}), 13)
        self.assertEqual(self.tell(uncertain={7: -1}), 19)

    def test_a_daemon_that_hangs_for_ever_keeps_no_idle_engine_busy(self):
        self.tell(True, completed={7: 2}, uncertain={7: 1})
        with mock.patch("kvkeep.vllm_blocks._NEW_DOUBTS_S", 0):
            steps = [self.connector.has_pending_push_work() for _ in range(100)]
        self.assertEqual(sum(steps), 1)  # in a second
        self.assertTrue(self.connector.has_pending_push_work())

    def test_where_many_blocks_are_kept_nothing_more_is_loaded(self):
        self.connector.bind_gpu_block_pool(self.pool)
        may_load = self.connector._manager.may_load
        self.assertTrue(may_load())
        self.tell(True, completed={7: 2}, failed=[7], uncertain={7: 1})
        self.assertFalse(may_load())  # 6 of 20
        self.tell(uncertain={7: -1})
        self.assertTrue(may_load())


class Told(unittest.TestCase):
    """The metadata of chunks of 8 tokens, of a prompt of 20; blocks of 4."""

    KEYS = [make_offload_key(bytes([number]) * 32, 0) for number in range(3)]

    def facts(self, key, end, tell_tokens=True, keys=KEYS[:2], epoch=False, **request):
        request = types.SimpleNamespace(**{
            "all_token_ids": list(range(100, 120)), "mm_features": [], "cache_salt": None,
            "prompt_embeds": None, "lora_request": None, **request})
        status = types.SimpleNamespace(
            req=request, group_states=[types.SimpleNamespace(offload_keys=list(keys))])
        scheduler = types.SimpleNamespace(
            _req_status={"r": status}, config=types.SimpleNamespace(kv_group_configs=[
                types.SimpleNamespace(group_idx=0, tokens_per_chunk=8)]))
        spec = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32)
        own = OwnKeys({}, None, types.SimpleNamespace(
            private=epoch, name="e" if epoch else "", number=0))
        context = ReqContext("r")
        if end is not None:
            context.set_offload_key_position(key, end)
        facts = ChunkFacts(scheduler, types.SimpleNamespace(kv_cache_groups=[
            types.SimpleNamespace(kv_cache_spec=spec)]), own, tell_tokens)
        self.assertEqual(facts.of(key, ReqContext("gone")), Facts())
        return facts.of(key, context)

    def test_a_chunk_says_its_tokens_and_the_key_before_it(self):
        first, second = self.facts(self.KEYS[0], 8), self.facts(self.KEYS[1], 16)
        self.assertEqual((first.parent, second.parent), (None, bytes([0]) * 32))
        self.assertEqual(first.metadata(), chunk_metadata(range(100, 108), None, 4))
        self.assertEqual(second.metadata(),
                         chunk_metadata(range(108, 116), bytes([0]) * 32, 4))
        adapter = types.SimpleNamespace(lora_name="a")
        self.assertEqual(self.facts(self.KEYS[0], 8, lora_request=adapter).metadata(),
                         chunk_metadata(range(100, 108), None, 4, "a"))

    def test_what_tokens_alone_do_not_find_is_not_told_of(self):
        for why in ({"tell_tokens": False}, {"mm_features": ["an image"]}, {"cache_salt": "s"},
                    {"prompt_embeds": torch.zeros(1)}, {"epoch": True}):
            with self.subTest(why=why):
                said = self.facts(self.KEYS[1], 16, **why)
                self.assertEqual((said.tokens, said.metadata()), (b"", b""))
                self.assertIsNotNone(said.parent)

    def test_what_is_no_whole_chunk_of_the_prompt_has_no_facts(self):
        for key, end, keys in ((self.KEYS[0], None, self.KEYS), (self.KEYS[0], 6, []),
                               (self.KEYS[1], 8, self.KEYS), (self.KEYS[2], 24, self.KEYS[:2])):
            self.assertEqual(self.facts(key, end, keys=keys), Facts())


class Options(unittest.TestCase):
    def test_what_makes_no_sense_is_refused_in_words(self):
        for wrong, why in (({"tokens_per_chunk": 0}, "tokens_per_chunk"),
                           ({"weights": 1}, "weights"),
                           ({"max_pinned_part": 0.6}, "max_pinned_part"),
                           ({"on_reset": ""}, "epoch"), ({"tp_parts": 0}, "tp_parts"),
                           ({"events": "both"}, "events"), ({"kv_layout": "LHBNC"}, "kv_layout"),
                           ({"store_timeout_s": 0}, "store_timeout_s"), ({"other": 1}, "unknown")):
            with self.assertRaisesRegex(ValueError, why):
                DirectOptions.of(wrong)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
