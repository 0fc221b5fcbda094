"""kvkeep.trtllm's hooks with anything, on TensorRT-LLM's recorded classes, with a real daemon and
GPU memory of the fake driver.

    trtllm_fuzz_test.py SOURCES LIBRARY KVKEEPD FAKE_DRIVER
"""

import itertools
import os
import random
import sys
import unittest

from trtllm_rig import BLOCK, PROMPT, THEIRS, Stream, WithDaemon, request_of


class Fuzz(WithDaemon):
    """What was counted comes, or a RuntimeError says that it cannot."""

    def junk(self, dice, number):
        """Returns RequestData, right but for some of its fields."""
        data = THEIRS.RequestData(number, PROMPT, [], 0, len(PROMPT),
                                  new_block_ids_by_layer_group=[list(range(11))] * 2)
        for name in dice.sample(["new_tokens", "new_block_ids_by_layer_group", "computed_position",
                                 "num_scheduled_tokens", "request_id"], dice.randrange(3)):
            setattr(data, name, dice.choice((None, -1, 10 ** 9, [], [None], [[]], [[1], ["x"]],
                                             [[-1] * 11] * 2, [[10 ** 6] * 11] * 2, "text", 2.5)))
        return data

    def test_anything(self):
        dice, engine = random.Random(int(os.environ.get("KVKEEP_SEED", "1"))), self.engine()
        engine.run(PROMPT)
        engine.drain()
        worker, scheduler, stream = engine.ranks[0].worker, engine.scheduler, Stream()
        counted = refused = 0
        numbers = itertools.count(1000)
        for _ in range(400):
            request = request_of(next(numbers), PROMPT)
            for name in dice.sample(["cache_salt", "get_tokens", "request_id",
                                     "py_num_connector_matched_tokens"], dice.randrange(2)):
                setattr(request, name, dice.choice((
                    None, 5, lambda beam: None, lambda beam: ["a"], lambda beam: [2 ** 70] * 9,
                    lambda: [])))
            try:
                found, later = scheduler.get_num_new_matched_tokens(
                    request, dice.choice((0, 0, 0, -4, 3, 10 ** 9, None, "x", 2.0)))
                self.assertIs(later, False)
                self.assertIn(found, range(0, 10 * BLOCK + 1, BLOCK))
            except TypeError:  # an unhashable request_id, which is no number either
                self.fail("an exception of Python's")
            data = self.junk(dice, request.request_id)
            lists = ([data], []) if dice.random() < 0.7 else ([], [data])
            try:
                meta = scheduler.build_connector_meta(THEIRS.SchedulerOutput(*lists))
            except RuntimeError as why:
                self.assertRegex(str(why), "kvkeep: request .* counts on")
                self.assertGreater(found, 0)
                refused += 1
                scheduler.request_finished(request, [])
                continue
            counted += len(meta.loads)
            worker.bind_connector_meta(dice.choice((meta, meta, None, "x"))
                                       if not meta.loads else meta)
            worker.start_load_kv(stream)
            worker.wait_for_save(stream)
            worker.wait_for_layer_load(dice.choice((0, None)), None)
            worker.save_kv_layer(dice.choice((0, None)), None)
            worker.get_finished(dice.choice(([], [request.request_id], None, 5)), [])
            scheduler.update_state_after_alloc(request, None)
            scheduler.update_state_after_alloc_by_layer_group(request, None)
            self.assertIn(scheduler.request_finished(request, dice.choice(([], None))),
                          (True, False))
            worker.get_finished([], [])
        self.assertGreater(counted, 100)
        self.assertGreater(refused, 10)
        stream.synchronize()
        engine.drain()
        scheduler.process.found.reclaim()
        self.assertEqual(engine.run(PROMPT), 10 * BLOCK)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
