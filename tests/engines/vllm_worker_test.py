#!/usr/bin/env python3
"""The worker's half of kvkeep.vllm_direct, as vLLM's hooks call it: its reports of jobs, and the
jobs that it does not begin. Run it as vllm_direct_test.py.
"""

import sys
import types
import unittest
from unittest import mock

from vllm_direct_test import ASKED, engine_of  # before kvkeep: it says where that is

from kvkeep.vllm_transfers import KvkeepWorker, KvkeepWorkerMetadata, StepNews  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (  # noqa: E402
    OffloadingConnectorMetadata, TransferJob)


class Worker(unittest.TestCase):
    """vLLM's jobs, on transfers that end on request."""

    class Transfers:
        progress = None  # of calls: none

        def __init__(self):
            self.begun, self.finished, self.doubts = [], [], {}
            self.busy, self.opening = False, []

        def submit_store(self, job, *_):
            self.begun.append(job)

        submit_load = submit_store

        def refuse(self, job):
            self.finished.append((job, False))

        def get_finished(self):
            finished, self.finished = self.finished, []
            return [(job, good, 1, 0.1) for job, good in finished]

        def uncertain(self):
            told, self.doubts = self.doubts, {}
            return told

        def fence(self):
            return "fence"

        def is_over(self, fence):
            return fence == "fence" and not self.busy

        def knows(self, chunks):
            return chunks not in self.opening

    def setUp(self):
        self.worker = KvkeepWorker.__new__(KvkeepWorker)
        self.worker._rank, self.worker._vllm_config = 1, engine_of(4)
        self.transfers = self.worker.worker = self.Transfers()
        self.worker.clear()

    @staticmethod
    def meta(loads=(), stores=(), flush=(), news=None):
        jobs = [{job: TransferJob(f"r{job}", f"chunks of {job}", None) for job in loads},
                {job: TransferJob(f"r{job}", None, f"chunks of {job}") for job in stores}]
        meta = OffloadingConnectorMetadata(*jobs, set(flush))
        if news is not None:
            meta.news = news
        return meta

    def step(self, finished=(), **jobs):
        """Returns the worker's report of the step: completed, released, failed, and its results."""
        meta = self.meta(**jobs)
        self.transfers.finished += finished
        self.worker.handle_preemptions(meta)
        self.worker.before_forward(meta)
        self.worker.start_kv_transfers(meta)
        self.worker.prepare_store_kv(meta)
        results = self.worker.transfer_results()
        told = self.worker.build_connector_worker_meta() or KvkeepWorkerMetadata()
        return (sorted(told.completed_jobs), sorted(told.released), sorted(told.failed),
                sorted(results.finished_recving), sorted(results.failed_recving))

    def test_no_job_begins_until_the_scheduler_knows_which_weights_there_are(self):
        with mock.patch("kvkeep.vllm_weights.writes", lambda _: 7):
            self.assertEqual(self.step(loads=[1], stores=[2]),
                             ([1, 2], [2], [1, 2], ["r1"], ["r1"]))
            self.assertEqual(self.step(loads=[3], news=StepNews(1, {0: 7})),
                             ([3], [], [3], ["r3"], ["r3"]))  # of another rank
            self.assertEqual(self.transfers.begun, [])
            self.step(loads=[4], stores=[5], news=StepNews(1, {1: 7}))
            self.step(news=StepNews(1, {1: 7}))
            self.assertEqual(self.transfers.begun, [4, 5])

    def test_a_rank_tells_once_that_its_weights_were_written(self):
        told = []
        for count in (None, 0, 5, 5, 6):
            with mock.patch("kvkeep.vllm_weights.writes", lambda _, count=count: count):
                self.worker.transfer_results()
            told.append(getattr(self.worker.build_connector_worker_meta(), "writes", None))
        self.assertEqual(told, [None, None, {1: 5}, None, {1: 6}])
        both = KvkeepWorkerMetadata(writes={0: 3}).aggregate(KvkeepWorkerMetadata(writes={1: 4}))
        self.assertEqual(both.writes, {0: 3, 1: 4})

    def test_what_was_not_begun_when_the_memory_loses_its_content_is_never_begun(self):
        self.transfers.busy = True
        self.step(loads=[1], stores=[2])
        self.step(stores=[3])
        self.worker.give_up_what_waits()
        self.transfers.busy = False
        self.assertEqual(self.step(flush=[2]), ([1, 2, 3], [2, 3], [1, 2, 3], ["r1"], ["r1"]))
        self.assertEqual(self.transfers.begun, [])

    def test_a_job_with_keys_of_another_epoch_is_not_begun(self):
        meta = self.meta(loads=[1], stores=[2], news=StepNews(2, {}))
        meta.load_jobs[1].src_spec = meta.store_jobs[2].dst_spec = types.SimpleNamespace(epoch=1)
        self.worker.handle_preemptions(meta)
        self.worker.start_kv_transfers(meta)
        self.worker.prepare_store_kv(meta)
        self.step()
        self.assertEqual(self.transfers.begun, [])

    def test_stores_that_wait_are_a_reason_to_step(self):
        self.step(stores=[1])
        self.transfers.busy = True
        for _ in range(3):
            self.worker.transfer_results()
            self.assertTrue(self.worker.build_connector_worker_meta().progress)

    def test_a_load_of_kv_from_before_fails(self):
        self.step(loads=[1, 2], news=StepNews(0, {}))
        self.assertEqual(self.step([(1, True)], news=StepNews(1, {})),
                         ([1], [], [1], ["r1"], ["r1"]))
        with mock.patch("kvkeep.vllm_weights.writes", lambda _: 1):
            self.assertEqual(self.step([(2, True)], news=StepNews(1, {})),
                             ([2], [], [2], ["r2"], ["r2"]))
        self.step(loads=[3], news=StepNews(1, {1: 1}))
        self.assertEqual(self.step([(3, True)], news=StepNews(1, {1: 1})),
                         ([3], [], [], ["r3"], []))

    def test_loads_and_stores_are_told_of_once(self):
        self.assertEqual(self.step(loads=[1], stores=[2]), ([], [], [], [], []))
        self.assertEqual(self.transfers.begun, [1])  # the forward may have raised
        self.assertEqual(self.step(finished=[(1, True)]), ([1], [], [], ["r1"], []))
        self.assertEqual(self.transfers.begun, [1, 2])
        self.assertEqual(self.step(finished=[(2, False)]), ([2], [2], [2], [], []))
        self.assertEqual(self.step(loads=[3], finished=[(3, False)]),
                         ([3], [], [3], ["r3"], ["r3"]))

    def test_what_is_flushed_is_completed_at_once_and_released_later(self):
        self.step(stores=[1, 2])
        self.assertEqual(self.step(flush=[1]), ([1], [], [], [], []))
        self.assertEqual(self.step(flush=[1]), ([], [], [], [], []))
        self.assertEqual(self.step(finished=[(1, True), (2, True)]), ([2], [1, 2], [], [], []))
        self.assertEqual(self.step(flush=[1, 2]), ([], [], [], [], []))  # too late
        # New, and flushed in the same step: its blocks are overwritten, so it does not begin.
        self.assertEqual(self.step(stores=[5], flush=[5]), ([5], [5], [], [], []))
        self.assertNotIn(5, self.transfers.begun)
        self.step(loads=[6])
        self.assertEqual(self.step(flush=[6]), ([], [], [], [], []))  # it ends as it would

    def test_jobs_begin_when_the_gpu_has_done_what_was_before_them(self):
        self.transfers.busy = True
        self.step(loads=[1], stores=[2])
        self.step(stores=[3])
        self.assertEqual(self.transfers.begun, [])
        self.assertEqual(self.step(flush=[2]), ([2], [], [], [], []))  # not released
        self.transfers.busy = False
        self.step(loads=[4])
        self.assertEqual(self.transfers.begun, [1, 2, 3, 4])
        self.assertEqual(self.step(finished=[(1, True), (2, True)]), ([1], [2], [], ["r1"], []))

    def test_jobs_begin_when_their_namespaces_are_open(self):
        self.transfers.opening = ["chunks of 1", "chunks of 2"]
        self.step(loads=[1], stores=[2, 3])
        self.step(loads=[4])
        self.assertEqual(self.transfers.begun, [])
        self.assertEqual(self.step(flush=[2]), ([2], [], [], [], []))  # not released
        self.transfers.opening = []
        self.step()
        self.assertEqual(self.transfers.begun, [1, 4, 2, 3])

    def test_what_may_still_be_written_is_told_with_the_end_of_its_load(self):
        self.step(loads=[1])
        self.transfers.doubts = {1: 1}
        meta = self.meta()
        self.transfers.finished = [(1, False)]
        self.worker.handle_preemptions(meta)
        self.worker.transfer_results()
        told = self.worker.build_connector_worker_meta()
        self.assertEqual((told.failed, told.uncertain), ({1}, {1: 1}))
        self.transfers.doubts = {1: -1}
        self.worker.transfer_results()
        self.assertEqual(self.worker.build_connector_worker_meta().uncertain, {1: -1})
        self.assertIsNone(self.worker.build_connector_worker_meta())

    def test_what_workers_say_is_added_up(self):
        one = KvkeepWorkerMetadata({1: 1}, released={2: 1}, failed={3}, uncertain={1: 1})
        both = one.aggregate(KvkeepWorkerMetadata({1: 1, 4: 1}, released={2: 1, 5: 1}, failed={6},
                                                  uncertain={1: 1, 2: -1}))
        self.assertEqual((both.completed_jobs, both.released, both.failed, both.uncertain),
                         ({1: 2, 4: 1}, {2: 2, 5: 1}, {3, 6}, {1: 2, 2: -1}))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
