"""kvkeep.trtllm on TensorRT-LLM's recorded classes, with a real daemon and GPU memory of the fake
driver. No real TensorRT-LLM has run it.

    trtllm_test.py SOURCES LIBRARY KVKEEPD FAKE_DRIVER
"""

import dataclasses
import importlib
import inspect
import os
import random
import signal
import sys
import time
import types
import unittest
from unittest import mock

from trtllm_rig import (BLOCK, LAYOUT, PROMPT, THEIRS, VERSION, Engine, Rank, Stream, WithDaemon,
                        arguments, request_of, settings)

from kvkeep import engine_versions, trtllm, trtllm_identity, trtllm_worker  # noqa: E402
from kvkeep.client import Namespace  # noqa: E402
from kvkeep.errors import DeadlineExceeded  # noqa: E402

OTHER = [7] + PROMPT[1:]


class Recorded(unittest.TestCase):
    def test_every_hook_is_there_with_its_parameters(self):
        idle = importlib.import_module("kvkeep.trtllm_idle")
        for base, kinds in ((THEIRS.KvCacheConnectorScheduler,
                             (trtllm.KvkeepScheduler, idle.IdleScheduler)),
                            (THEIRS.KvCacheConnectorWorker,
                             (trtllm.KvkeepWorker, idle.IdleWorker))):
            for kind in kinds:
                self.assertEqual(kind.__abstractmethods__, frozenset())
                self.assertIs(kind.supports_attention_dp, True)
                for name, theirs in vars(base).items():
                    if not inspect.isfunction(theirs) or name.startswith("__"):
                        continue
                    ours = getattr(kind, name)
                    self.assertEqual(list(inspect.signature(ours).parameters),
                                     list(inspect.signature(theirs).parameters), name)
                    inherited = name in ("_clear_connector_meta", "get_connector_meta",
                                         "wait_for_initialization", "bind_connector_meta")
                    self.assertTrue(ours is not theirs or inherited, name)

    def test_classes_are_named_as_the_configuration_wants_them(self):
        module = importlib.import_module("kvkeep.trtllm")
        self.assertTrue(issubclass(module.KvkeepScheduler, THEIRS.KvCacheConnectorScheduler))
        self.assertTrue(issubclass(module.KvkeepWorker, THEIRS.KvCacheConnectorWorker))


class Recall(WithDaemon):
    def test_another_engine_finds_every_byte(self):
        engine = self.keep()
        self.assertEqual(engine.run(PROMPT), 10 * BLOCK)
        self.assertEqual(self.engine().run(PROMPT), 10 * BLOCK)
        self.assertEqual(self.engine().run(PROMPT[:6 * BLOCK + 2] + [1, 2, 3]), 6 * BLOCK)
        # The last token is always computed.
        self.assertEqual(self.engine().run(PROMPT[:6 * BLOCK]), 5 * BLOCK)
        self.assertEqual(self.engine().run(OTHER), 0)
        self.assertEqual(self.engine().run(PROMPT[:3]), 0)

    def test_what_the_engine_has_itself_is_not_loaded(self):
        self.keep()
        for computed in (BLOCK, 9 * BLOCK):
            self.assertEqual(self.engine().run(PROMPT, computed=computed), 10 * BLOCK - computed)
        for computed in (10 * BLOCK, BLOCK + 1):  # all of it; a part of a block
            self.assertEqual(self.engine().begin(PROMPT, computed=computed)[1], 0)

    def test_generated_blocks_are_kept_too(self):
        engine = self.engine()
        engine.run(PROMPT, generated=range(2 * BLOCK))
        engine.drain()
        self.assertEqual(self.engine().run(PROMPT + list(range(2 * BLOCK))), 12 * BLOCK)

    def test_a_prompt_in_several_chunks(self):
        engine = self.engine()
        request, _ = engine.begin(PROMPT)
        pages = [engine.free.pop() for _ in range(11)]
        # With all pages at once, and blocks that are filled in part.
        for first, end, given in ((0, 4 * BLOCK, pages[:7]), (4 * BLOCK, 6 * BLOCK + 1, pages[7:]),
                                  (6 * BLOCK + 1, 10 * BLOCK + 1, [])):
            new = engine.data(request.request_id, PROMPT if first == 0 else [], given, first,
                              end - first)
            meta = engine.step([new] if first == 0 else [], [new] if first else [])
            self.assertEqual(len(meta.saves), end // BLOCK - first // BLOCK)
            engine.compute(PROMPT, pages, first // BLOCK, end // BLOCK)
            engine.after_forward()
        engine.end(request, pages)
        engine.drain()
        self.assertEqual(self.engine().run(PROMPT), 10 * BLOCK)

    def test_other_salts_weights_names_and_arguments_find_nothing(self):
        engine = self.engine()
        engine.run(PROMPT, salt="a")
        engine.drain()
        self.assertEqual(self.engine().run(PROMPT, salt="a"), 10 * BLOCK)
        for salt in (None, "b", ""):
            self.assertEqual(self.engine().run(PROMPT, salt=salt), 0)
        for args in ({"dtype": "float16"}, {"max_seq_len": 8192}, {"added_later": 1}):
            self.assertEqual(self.engine(**args).run(PROMPT, salt="a"), 0)
        for args in ({"max_batch_size": 9}, {"free_gpu_memory_fraction": 0.5}):
            self.assertEqual(self.engine(**args).run(PROMPT, salt="a"), 10 * BLOCK)
        for options in ({"weights": "name:b"}, {"name": "another"}):
            self.options(**options)
            self.assertEqual(self.engine().run(PROMPT, salt="a"), 0)

    def test_requests_whose_kv_depends_on_more_than_tokens_are_left_alone(self):
        engine = self.keep()
        for other in ({"multimodal_positions": [1]}, {"mrope_rotary_cos_sin": object()},
                      {"prompt_embedding_table": object()}, {"position_ids": [3]},
                      {"py_multimodal_data": {"image": object()}}, {"py_lora_path": "x"},
                      {"py_encoder_input_features": object()}):
            self.assertEqual(engine.run(PROMPT, **other), 0)
        for name, value in (("lora_task_id", 0), ("multimodal_hashes", [[1]]), ("cache_salt", 5)):
            request = request_of(99, PROMPT)
            setattr(request, name, value)
            self.assertEqual(engine.scheduler.get_num_new_matched_tokens(request, 0), (0, False))
        del request.cache_salt
        self.assertEqual(engine.scheduler.get_num_new_matched_tokens(request, 0), (0, False))
        self.assertEqual(self.engine().run(PROMPT, multimodal_positions=[], py_multimodal_data={}),
                         10 * BLOCK)

    def with_4_blocks_found(self, matched):
        """Returns an engine, a request of PROMPT, pages for it, and its data in the first step, as
        TensorRT-LLM reports it when it uses `matched` of the 4 blocks. None: it does not say."""
        engine = self.engine()
        request, found = engine.begin(PROMPT)
        self.assertEqual(found, 4 * BLOCK)
        request.py_num_connector_matched_tokens = matched
        if matched is None:
            del request.py_num_connector_matched_tokens
            matched = found
        pages = [engine.free.pop() for _ in range(11)]
        return engine, request, pages, engine.data(request.request_id, PROMPT, pages, 0,
                                                   len(PROMPT) - matched)

    def test_the_step_that_loads_saves_what_its_forward_fills(self):
        self.keep(PROMPT[:4 * BLOCK + 1])
        for matched, scheduled, position, end in (
                (4 * BLOCK, 6 * BLOCK + 1, 0, 10), (4 * BLOCK, 2 * BLOCK, 0, 6),
                (4 * BLOCK, 2 * BLOCK, 4 * BLOCK, 6),  # a position without what was found
                (2 * BLOCK, 3 * BLOCK, 0, 5), (2 * BLOCK, 2 * BLOCK, 0, 4),  # it uses less
                (10 ** 6, 2 * BLOCK, 0, 6), (None, 6 * BLOCK + 1, 0, 6)):
            engine, request, pages, data = self.with_4_blocks_found(matched)
            data.computed_position, data.num_scheduled_tokens = position, scheduled
            meta = engine.step([data])
            self.assertEqual(len(meta.loads), 4)
            of_pages = [list(one) for one in zip(*engine.by_group(pages))]
            self.assertEqual([list(save[-1]) for save in meta.saves], of_pages[4:end])
            self.assertEqual([save[1] for save in meta.saves],
                             engine.scheduler._requests[request.request_id].keys[4:end])

    def test_a_block_is_not_saved_later_than_in_the_step_that_fills_it(self):
        # By then its page can be another's (allow_seq_rebasing), of which no hook tells.
        for matched, kept in ((None, 6), (4 * BLOCK, 10)):
            self.options(name=f"{kept}")
            self.keep(PROMPT[:4 * BLOCK + 1])
            engine, request, pages, data = self.with_4_blocks_found(matched)
            engine.step([data])
            engine.compute(PROMPT, pages, 4, 10)
            engine.after_forward()
            engine.ranks[0].stream.synchronize()
            for view, right in engine.of_block(engine.ranks[0], OTHER, pages, 8):
                view[:] = right
            engine.step(cached=[engine.data(request.request_id, [5], [], len(PROMPT), 1)])
            engine.after_forward()
            engine.end(request, pages)
            engine.drain()
            self.assertEqual(self.engine().run(PROMPT), kept * BLOCK)  # run compares every byte

    def test_fewer_pages_than_were_found(self):
        self.keep()
        engine = self.engine()
        for count in (10, 3, 0):
            request, found = engine.begin(PROMPT)
            self.assertEqual(found, 10 * BLOCK)
            room = len(engine.scheduler.process.found.free)
            pages = [engine.free.pop() for _ in range(count)]
            there = pages + [-1] * (2 if count < 10 else 0)
            data = engine.data(request.request_id, PROMPT, pages, 0, BLOCK)
            data.new_block_ids_by_layer_group = [
                one + [-1] * (len(there) - count) for one in engine.by_group(pages)]
            meta = engine.step([data])
            self.assertEqual(len(meta.loads), count)
            self.assertEqual(engine.wrong(PROMPT, pages, 0, count), 0)
            engine.finished([])
            engine.scheduler.process.found.reclaim()
            self.assertEqual(len(engine.scheduler.process.found.free), room + 10)
            engine.end(request, pages)

    def test_a_request_that_never_runs_gives_its_room_back(self):
        self.keep()
        engine = self.engine()
        room = len(engine.scheduler.process.found.free)
        for _ in range(3):
            request, found = engine.begin(PROMPT)
            self.assertEqual(found, 10 * BLOCK)
            self.assertEqual(len(engine.scheduler.process.found.free), room - 10)
            self.assertFalse(engine.scheduler.request_finished(request, []))
        request, _ = engine.begin(PROMPT)
        engine.scheduler.get_num_new_matched_tokens(request, 0)  # asked again, as after a reset
        self.assertEqual(len(engine.scheduler.process.found.free), room - 10)

    def test_room_for_what_is_found_is_a_limit(self):
        part = sum(one.size for group in Rank(0, arguments(), 4).layout.groups
                   for one in group.regions)
        many = [random.Random(2).randrange(9) for _ in range(100 * BLOCK + 1)]
        self.keep(many, slots=128)
        self.options(load_bytes=1 << 20)
        self.assertEqual(self.engine(slots=128).run(many), (1 << 20) // part * BLOCK)


class Failures(WithDaemon):
    def stop(self):
        self.daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)

    def resume(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def test_a_daemon_that_ends_between_count_and_load(self):
        for number, end in enumerate((self.daemon.kill, self.stop)):
            prompt = [number] + PROMPT
            self.keep(prompt)
            engine = self.engine()
            engine.before_load = end
            self.assertEqual(engine.run(prompt), 10 * BLOCK)  # run compares every byte
            process = engine.scheduler.process
            process.options = dataclasses.replace(process.options, lookup_timeout_s=0.2)
            engine.before_load = lambda: None
            began = time.monotonic()
            self.assertEqual(engine.run([number] + OTHER, generated=range(5)), 0)
            self.assertLess(time.monotonic() - began, 5.0)
            if end == self.daemon.kill:
                self.daemon.start()
                self.daemon.wait_joined()
            else:
                self.resume()
            self.again(engine, 5 + number)

    def test_a_daemon_that_ends_between_lookup_and_count(self):
        self.keep()
        lookup = Namespace.lookup
        for end in (self.stop, self.resume, self.daemon.kill):
            def ended(*given, end=end, **named):
                found = lookup(*given, **named)
                end()
                return found

            engine = self.engine()
            with mock.patch.object(Namespace, "lookup", ended):
                began = time.monotonic()
                found = engine.run(PROMPT)  # which compares every byte
            self.assertIn(found, range(0, 10 * BLOCK + 1, BLOCK))
            self.assertLess(time.monotonic() - began, 10.0)
            if end == self.stop:
                self.resume()

    def again(self, engine, first=5):
        """Waits until the engine keeps and finds again: a prompt that is new."""
        tokens, deadline = [first] + PROMPT, time.monotonic() + 30
        while not engine.run(tokens):
            self.assertLess(time.monotonic(), deadline)
            engine.drain()
            time.sleep(0.05)

    def test_a_daemon_that_hangs_costs_a_lookup_every_half_second(self):
        self.keep()
        self.options(lookup_timeout_s=0.01)
        engine = self.engine()
        self.stop()
        self.addCleanup(self.resume)
        began, whole = time.monotonic(), Namespace.lookup
        with mock.patch.object(Namespace, "lookup", autospec=True, side_effect=whole) as lookups:
            for number in range(50):
                self.assertEqual(engine.begin([number] + PROMPT)[1], 0)
        self.assertLessEqual(lookups.call_count, 1 + (time.monotonic() - began) / 0.5)
        self.assertGreater(lookups.call_count, 0)

    def test_a_daemon_that_hangs_after_lookups_costs_little_of_the_time(self):
        self.keep()
        self.options(load_timeout_s=0.5)
        engine, calls = self.engine(), []

        def late(namespace, keys, *given, **named):
            calls.append(named["timeout"])
            time.sleep(named["timeout"])
            return types.SimpleNamespace(error=DeadlineExceeded("DEADLINE_EXCEEDED", ""),
                                         good=[False] * len(keys), payload_bytes=[0] * len(keys))

        began = time.monotonic()
        with mock.patch.object(Namespace, "get", late):
            while time.monotonic() < began + 5:
                self.assertEqual(engine.begin(PROMPT)[1], 0)
                time.sleep(0.01)
        self.assertGreater(len(calls), 0)
        self.assertLessEqual(sum(calls), 0.2 * (time.monotonic() - began))
        while not engine.begin(PROMPT)[1]:
            # A request of which nothing is known does not stand in for the get.
            self.assertEqual(engine.begin(OTHER)[1], 0)
            self.assertLess(time.monotonic(), began + 30)
            time.sleep(0.01)

    def test_an_engine_that_starts_without_a_daemon_finds_it_later(self):
        self.keep()
        self.daemon.kill()
        engine = self.engine()
        self.assertEqual(engine.run(PROMPT), 0)
        self.daemon.start()
        self.daemon.wait_joined()
        self.again(engine)

    def test_what_only_nvme_has_is_a_miss_and_comes(self):
        engine = self.keep()
        self.daemon.wait_clean(10)
        self.daemon.restart()
        engine = self.engine()
        deadline, found = time.monotonic() + 30, []
        while not found or found[-1] < 10 * BLOCK:
            request, tokens = engine.begin(PROMPT)
            found.append(tokens)
            engine.scheduler.request_finished(request, [])
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual(found[0], 0)
        self.assertEqual(engine.run(PROMPT), 10 * BLOCK)

    def test_bytes_that_do_not_come_are_not_counted(self):
        self.keep()
        engine, whole = self.engine(), Namespace.get

        def get(failing, *given, **named):
            got = whole(*given, **named)
            return types.SimpleNamespace(
                error=None, payload_bytes=got.payload_bytes,
                good=[one and at != failing for at, one in enumerate(got.good)])

        room = len(engine.scheduler.process.found.free)
        for failing in (0, 4, 9):
            with mock.patch.object(Namespace, "get", lambda *given, **named: get(
                    failing, *given, **named)):
                self.assertEqual(engine.run(PROMPT), failing * BLOCK)
        for instead in (mock.Mock(side_effect=ValueError("broken")),
                        lambda *given, **named: types.SimpleNamespace(error=None, good=[],
                                                                      payload_bytes=[])):
            with mock.patch.object(Namespace, "get", instead):
                self.assertEqual(engine.begin(PROMPT)[1], 0)
        engine.finished([])
        engine.scheduler.process.found.reclaim()
        self.assertEqual(len(engine.scheduler.process.found.free), room)

    def test_a_store_that_hangs_holds_no_block(self):
        self.options(store_timeout_s=0.3)
        engine = self.engine()
        engine.run(OTHER)
        engine.drain()
        self.stop()
        for number in range(20):  # more than store_bytes
            engine.run([number] + PROMPT * 3)
        self.assertEqual(len(engine.free), 64)
        self.resume()
        engine.drain()
        self.again(engine)

    def test_a_request_is_kept_until_its_blocks_are_copied(self):
        engine = self.engine()
        request, _ = engine.begin(PROMPT)
        pages = [engine.free.pop() for _ in range(11)]
        engine.step([engine.data(request.request_id, PROMPT, pages, 0, len(PROMPT))])
        engine.compute(PROMPT, pages, 0, 10)
        settings("copy_delay_us 100000")
        engine.after_forward()
        self.assertTrue(engine.scheduler.request_finished_by_layer_group(request, []))
        self.assertEqual(engine.finished([request.request_id]), set())
        settings()
        engine.ranks[0].stream.synchronize()
        self.assertEqual(engine.finished([]), {request.request_id})
        self.assertEqual(engine.finished([]), set())
        engine.drain()
        self.assertEqual(self.engine().run(PROMPT), 10 * BLOCK)

    def test_hooks_that_are_called_twice_for_a_step_act_once(self):
        self.keep()
        engine = self.engine()
        request, _ = engine.begin(PROMPT)
        pages = [engine.free.pop() for _ in range(11)]
        engine.step([engine.data(request.request_id, PROMPT, pages, 0, 1)])
        engine.compute(OTHER, pages, 0, 10)  # the pages are another's by now
        worker, stream = engine.ranks[0].worker, engine.ranks[0].stream
        worker.start_load_kv(stream)
        stream.synchronize()
        self.assertEqual(engine.wrong(OTHER, pages, 0, 10), 0)
        worker.wait_for_save(stream)
        other = engine.run(OTHER)
        self.assertEqual(other, 0)
        engine.drain()
        with mock.patch.object(type(worker), "_save") as saved:
            worker.wait_for_save(stream)
        saved.assert_not_called()

    def test_a_request_that_is_not_what_was_looked_up_ends_the_engine(self):
        self.keep()
        engine = self.engine()
        for change, why in (
                (lambda data: setattr(data, "new_tokens", OTHER), "not those that were looked up"),
                (lambda data: data.new_block_ids_by_layer_group[0].insert(2, -1), "before one"),
                (lambda data: data.new_block_ids_by_layer_group[1].insert(2, 64), "not in"),
                (lambda data: data.new_block_ids_by_layer_group.pop(), "1 layer groups, not")):
            request, found = engine.begin(PROMPT)
            self.assertEqual(found, 10 * BLOCK)
            data = engine.data(request.request_id, PROMPT, range(11), 0, 1)
            change(data)
            with self.assertRaisesRegex(RuntimeError, f"counts on 10 blocks.*{why}"):
                engine.step([data])
            engine.scheduler.request_finished(request, [])
        request, _ = engine.begin(PROMPT)
        settings("fail cuMemcpyHtoDAsync 2")
        with self.assertRaisesRegex(RuntimeError, "cannot be copied.*cuMemcpyHtoDAsync.*error 2"):
            engine.step([engine.data(request.request_id, PROMPT, range(11), 0, 1)])
        settings()
        request, _ = engine.begin(PROMPT)
        with self.assertRaisesRegex(RuntimeError, "its first blocks were not told"):
            engine.step(cached=[engine.data(request.request_id, [], range(11), 0, 1)])


class Ranks(WithDaemon):
    def test_tensor_parallel_ranks_share_what_rank_0_finds(self):
        engine = self.engine(ranks=3)
        self.assertEqual(engine.run(PROMPT), 0)
        engine.drain()
        another = self.engine(ranks=3)
        self.assertEqual(another.run(PROMPT), 0)  # ranks open its memory in the first step
        self.assertEqual(another.run(PROMPT), 10 * BLOCK)
        another.before_load = self.daemon.kill
        self.assertEqual(another.run(PROMPT), 10 * BLOCK)
        self.assertEqual(self.engine(ranks=1).run(PROMPT), 0)

    def test_what_is_found_stays_until_every_rank_has_copied_it(self):
        engine = self.engine(ranks=2)
        engine.run(PROMPT)
        engine.drain()
        found = engine.scheduler.process.found
        request, tokens = engine.begin(PROMPT)
        self.assertEqual(tokens, 10 * BLOCK)
        free = len(found.free)
        meta = engine.scheduler.build_connector_meta(THEIRS.SchedulerOutput(
            [engine.data(request.request_id, PROMPT, range(11), 0, 1)]))
        for rank in engine.ranks:
            found.reclaim()
            self.assertEqual(len(found.free), free)
            rank.worker.bind_connector_meta(meta)
            rank.worker.start_load_kv(rank.stream)
            rank.stream.synchronize()
            rank.worker.get_finished([], [])
        found.reclaim()
        self.assertEqual(len(found.free), free + 10)

    def test_a_block_of_which_one_rank_kept_nothing_is_a_miss(self):
        engine = self.engine(ranks=2)
        with mock.patch.object(engine.ranks[1].worker, "_save"):
            engine.run(PROMPT)
        engine.drain()
        another = self.engine(ranks=2)
        another.run(OTHER)
        self.assertEqual(another.run(PROMPT), 0)

    def test_a_rank_that_cannot_read_what_is_found(self):
        engine = self.engine(ranks=2)
        refused = mock.patch.object(trtllm_worker, "Attached",
                                    mock.Mock(side_effect=PermissionError("/proc")))
        with refused, self.assertLogs("kvkeep", "ERROR") as logged:
            for _ in range(3):
                self.assertEqual(engine.run(PROMPT), 0)
        self.assertEqual(len(logged.output), 1)
        self.assertIn("rank 1 cannot read what rank 0 finds", logged.output[0])

    def test_attention_data_parallelism(self):
        adp = {"tensor_parallel_size": 2, "enable_attention_dp": True}
        with self.assertRaisesRegex(ValueError, 'enable_attention_dp.*"attention_dp": true'):
            Engine(**adp)
        self.options(attention_dp=True)
        engine = self.engine(first_rank=0, **adp)
        engine.run(PROMPT)
        engine.drain()
        other = self.engine(first_rank=1, **adp)
        for rank in other.ranks:
            rank.number = 0  # every rank has all of a request's KV
        self.assertEqual(other.run(PROMPT), 10 * BLOCK)


class Start(WithDaemon):
    def test_what_cannot_be_right_is_refused_with_the_option_and_the_way_out(self):
        for args, what in (
                ({"max_beam_width": 2}, "max_beam_width: set it to 1"),
                ({"pipeline_parallel_size": 2}, "pipeline_parallel_size: set it to 1"),
                ({"context_parallel_size": 2}, "context_parallel_size: set it to 1"),
                ({"host_cache_size": 1}, "kv_cache_config.host_cache_size: set it to 0"),
                ({"host_cache_size": None}, "kv_cache_config.host_cache_size: set it to 0"),
                ({"speculative_config": object()}, "speculative_config: unset it"),
                ({"sparse_attention_config": object()}, "sparse_attention_config: unset it"),
                ({"enable_sleep": True}, "enable_sleep: unset it"),
                ({"ray_worker_extension_cls": "x"}, "ray_worker_extension_cls: unset it")):
            for half in (trtllm.KvkeepScheduler, trtllm.KvkeepWorker):
                with self.assertRaisesRegex(ValueError, f"{what}.*without kv_connector_config"):
                    half(arguments(**args))
        lacking = arguments()
        del lacking.pipeline_parallel_size
        with self.assertRaisesRegex(ValueError, "have no pipeline_parallel_size"):
            trtllm.KvkeepScheduler(lacking)
        with self.assertRaisesRegex(ValueError, "no stable form: at: .*unset it"):
            trtllm.KvkeepScheduler(arguments(at=object()))

    def test_options(self):
        for given, why in (("{", "JSON object"), ("[]", "JSON object"), ('{"nam": 1}', "nam"),
                           ('{"load_bytes": 5}', "load_bytes: 1 MiB"),
                           ('{"remote_wait_s": 1}', "remote_wait_s"),
                           ('{"attention_dp": 1}', "attention_dp"), ('{"weights": "x"}', "weights"),
                           ('{"load_timeout_s": 0}', "load_timeout_s: above 0")):
            os.environ[trtllm_identity.ENVIRONMENT] = given
            with self.assertRaisesRegex(ValueError, f"KVKEEP_TRTLLM.*{why}"):
                trtllm.KvkeepWorker(arguments())
        for given in ("", "{}"):
            os.environ[trtllm_identity.ENVIRONMENT] = given
            self.assertEqual(trtllm_identity.options_of_environment().weights, "auto")
        self.options(weights="auto")
        with self.assertRaisesRegex(ValueError, 'cannot be told which weights.*"name:X"'):
            trtllm.KvkeepScheduler(arguments())
        with self.assertRaisesRegex(ValueError, "load_format dummy"):
            trtllm.KvkeepScheduler(arguments(load_format="DUMMY"))

    def test_memory_that_cannot_be_kept_is_refused(self):
        for other, what in (({"window": 128}, "attention window .128.*max_attention_window"),
                            ({"tokens_per_block": 8}, "tokens_per_block is 4, .* 8: set it to 8")):
            rank = Rank(0, arguments(), 4, **other)
            self.addCleanup(rank.worker.shutdown)
            with self.assertRaisesRegex(ValueError, f"{what}.*without kv_connector_config"):
                rank.register()
        with self.assertRaisesRegex(ValueError, "use_kv_cache_manager_v2 to true"):
            rank.worker.register_kv_caches(None)
        for groups in ((), tuple(dataclasses.replace(one, layer_group_id=one.layer_group_id + 1)
                                 for one in rank.layout.groups)):
            with self.assertRaisesRegex(ValueError, "without kv_connector_config"):
                rank.worker.register_kv_cache_layout(
                    LAYOUT.KvCacheLayout(BLOCK, groups, "torch.bfloat16"))

    def test_an_unknown_version_starts_and_keeps_and_finds_nothing(self):
        os.environ.pop(engine_versions.UNCHECKED, None)
        with mock.patch.dict(sys.modules), mock.patch.object(engine_versions, "_told", set()):
            sys.modules["tensorrt_llm"].__version__ = "1.5.0"
            self.addCleanup(setattr, sys.modules["tensorrt_llm"], "__version__", VERSION)
            for name in ("kvkeep.trtllm", "kvkeep.trtllm_idle"):
                sys.modules.pop(name, None)
            idle = importlib.import_module("kvkeep.trtllm")
            with self.assertLogs("kvkeep", "WARNING") as logged:
                scheduler, worker = idle.KvkeepScheduler(arguments(max_beam_width=4)), \
                    idle.KvkeepWorker(arguments())
                idle.KvkeepScheduler(arguments())
            self.assertEqual(len(logged.output), 1)
            self.assertIn("tensorrt_llm 1.5.0 IS NOT KNOWN", logged.output[0])
            self.assertEqual(scheduler.get_num_new_matched_tokens(None, 0), (0, False))
            self.assertFalse(scheduler.request_finished(None, []))
            self.assertFalse(scheduler.request_finished_by_layer_group(None, [[]]))
            worker.bind_connector_meta(scheduler.build_connector_meta(None))
            for hook in (worker.start_load_kv, worker.wait_for_save, worker.register_kv_caches,
                         worker.register_kv_cache_layout):
                hook(None)
            self.assertEqual(worker.get_finished([1], []), ([1], []))
            os.environ[engine_versions.UNCHECKED] = "refuse"
            sys.modules.pop("kvkeep.trtllm")
            with self.assertRaisesRegex(ValueError, "tensorrt_llm 1.5.0 is not known"):
                importlib.import_module("kvkeep.trtllm")

    def test_without_pinned_memory_nothing_is_kept_and_the_engine_runs(self):
        settings("fail cuMemHostRegister 2")
        with self.assertLogs("kvkeep", "WARNING") as logged:
            engine = self.engine()
        settings()
        self.assertIn("nothing is kept", " ".join(logged.output))
        self.assertEqual([engine.run(PROMPT), engine.run(PROMPT)], [0, 0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
