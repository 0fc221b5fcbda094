"""The parts of tools/gpu-serve that need neither torch nor a daemon: blocks, scheduler, engine,
figures, results, report and meter.

    parts_test.py SOURCES
"""

import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock
import xml.etree.ElementTree as ElementTree

SOURCES = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(SOURCES / "tools"), str(SOURCES / "client" / "python")]

import gpu_serve.store as store_module  # noqa: E402
from gpu_serve import arms, curves, meter, report, results  # noqa: E402
from gpu_serve.blocks import BlockPool, Prefix  # noqa: E402
from gpu_serve.engine import Engine  # noqa: E402
from gpu_serve.scheduler import Limits, Scheduler, Sequence, State  # noqa: E402
from gpu_serve.shapes import LLAMA_8B, TINY  # noqa: E402
from gpu_serve.store import KvkeepStore, Store  # noqa: E402

BLOCK, CHUNK = 4, 8


def digests(tokens):
    prefix = Prefix(BLOCK)
    prefix.extend(tokens)
    return prefix.digests


class ShapesTest(unittest.TestCase):
    def test_llamas_sizes(self):
        self.assertEqual(LLAMA_8B.token_bytes, 128 << 10)
        self.assertEqual(LLAMA_8B.block_bytes, 2 << 20)
        self.assertAlmostEqual(LLAMA_8B.parameters / 1e9, 8.03, places=2)
        self.assertEqual(TINY.chunk_blocks, 4)


class BlocksTest(unittest.TestCase):
    def setUp(self):
        self.pool = BlockPool(6)

    def test_a_digest_is_of_the_whole_prefix_and_of_whole_blocks(self):
        some, more, other = digests([1] * 7), digests([1] * 8), digests([2] + [1] * 7)
        self.assertEqual((len(some), len(more)), (1, 2))
        self.assertEqual(some[0], more[0])
        self.assertFalse(set(more) & set(other))
        grown = Prefix(BLOCK)
        for _ in range(8):
            grown.extend([1])
        self.assertEqual(grown.digests, more)

    def test_what_was_given_back_is_found_until_its_block_is_taken(self):
        blocks = self.pool.take([], 2)
        said = digests(range(8))
        for block, digest in zip(blocks, said):
            self.pool.publish(block, digest)
        self.pool.drop(blocks)
        self.assertEqual(self.pool.find(said), blocks)
        self.pool.take([], 3)  # blocks without a prefix go first
        self.assertEqual(self.pool.find(said), blocks)
        self.pool.take([], 1)  # then the end of the prefix
        self.assertEqual(self.pool.find(said), blocks[:1])

    def test_a_shared_block_is_free_when_its_last_user_is_gone(self):
        blocks = self.pool.take([], 2)
        self.pool.publish(blocks[0], b"a")
        again = self.pool.take(self.pool.find([b"a"]), 1)
        self.assertEqual(again[0], blocks[0])
        self.pool.drop(blocks)
        self.assertEqual(self.pool.free, 3)
        self.pool.drop(again)
        self.assertEqual(self.pool.free, 5)

    def test_there_is_no_room_for_more_than_is_free_and_found_ones_are_no_room(self):
        self.assertIsNone(self.pool.take([], 6))
        blocks = self.pool.take([], 1)
        self.pool.publish(blocks[0], b"a")
        self.pool.drop(blocks)
        self.assertIsNone(self.pool.take([blocks[0]], 5))
        self.assertEqual(len(self.pool.take([blocks[0]], 4)), 5)

    def test_a_pool_that_keeps_nothing_finds_nothing(self):
        pool = BlockPool(4, keeps=False)
        blocks = pool.take([], 1)
        pool.publish(blocks[0], b"a")
        self.assertEqual(pool.find([b"a"]), [])
        self.pool.publish(self.pool.take([], 1)[0], b"a")
        self.pool.forget_all()
        self.assertEqual(self.pool.find([b"a"]), [])


class FakeRunner:
    """Says the number of tokens so far; keeps what was computed."""

    def __init__(self):
        self.pieces = []

    def run(self, pieces):
        self.pieces.append([(one.first, one.count, one.decodes) for one in pieces])
        return [(len(one.sequence.tokens), 0.5) for one in pieces if one.wanted]


class FakeStore:
    """Keys of what was put, and as many of them as `brings` come back."""

    def __init__(self, brings=100):
        self.kept, self.brings, self.asked = set(), brings, []

    def recall(self, keys, blocks):
        self.asked.append((len(keys), [len(each) for each in blocks]))
        came = 0
        while came < min(len(keys), self.brings) and keys[came] in self.kept:
            came += 1
        return came

    def put(self, keys, _):
        self.kept.update(keys)


class AtOnce:
    """A scheduler's store, whose work is done within the call."""

    def __init__(self, store):
        self.store, self.scheduler, self.saved = store, None, 0

    def load(self, sequence, keys, blocks):
        self.scheduler.loaded(sequence, self.store.recall(keys, blocks))

    def save(self, keys, blocks):
        self.store.put(keys, blocks)
        self.saved += len(keys)
        self.scheduler.saved([block for each in blocks for block in each])


class SchedulerTest(unittest.TestCase):
    def make(self, pool=None, store=None, **limits):
        given = {"budget": 100, "rows": 4, **limits}
        self.store = AtOnce(store) if store is not None else None
        self.pool = pool or BlockPool(40)
        self.scheduler = Scheduler(self.pool, Limits(BLOCK, CHUNK, **given), self.store)
        if self.store is not None:
            self.store.scheduler = self.scheduler
        self.runner = FakeRunner()

    def add(self, prompt, answer_tokens=3):
        one = Sequence(prompt, answer_tokens, 0.0, lambda _: None, BLOCK)
        self.scheduler.add(one)
        return one

    def step(self):
        self.scheduler.admit()
        pieces = self.scheduler.compose()
        self.scheduler.advance(pieces, self.runner.run(pieces), 1.0)
        return self.runner.pieces[-1]

    def play(self, *sequences):
        for _ in range(1000):
            if self.scheduler.idle:
                return
            self.step()
        self.fail(f"not done: {[one.state for one in sequences]}")

    def test_a_prompt_then_a_token_a_step(self):
        self.make()
        one = self.add(list(range(10)))
        self.assertEqual([self.step() for _ in range(3)],
                         [[(0, 10, False)], [(10, 1, True)], [(11, 1, True)]])
        self.assertEqual((one.answer, one.state), ([10, 11, 12], State.DONE))
        self.assertEqual(self.pool.free, 39)
        self.assertEqual(self.scheduler.prefilled, 10)

    def test_running_sequences_go_on_while_a_long_prompt_is_computed_in_parts(self):
        self.make(budget=16)
        self.add([1] * 4)
        self.step()
        self.add([2] * 40)
        self.assertEqual(self.step(), [(4, 1, True), (0, 16, False)])
        self.assertEqual(self.step(), [(5, 1, True), (16, 16, False)])
        self.assertEqual(self.step(), [(32, 8, False)])

    def test_what_does_not_fit_waits_and_what_never_fits_is_refused(self):
        self.make(pool=BlockPool(6))
        first, second = self.add([1] * 9), self.add([2] * 9)
        self.step()
        self.assertEqual((first.state, second.state), (State.RUNNING, None))
        self.play(first, second)
        self.assertEqual(second.state, State.DONE)
        with self.assertRaisesRegex(ValueError, "never fits"):
            self.add([1] * 100)
        with self.assertRaisesRegex(ValueError, "does nothing"):
            Limits(BLOCK, CHUNK, budget=CHUNK - 1, rows=1, exact=True)

    def test_a_prompt_that_was_computed_is_found_but_for_its_last_token(self):
        self.make()
        self.play(self.add([1] * 12))
        again = self.add([1] * 12)
        self.play(again)
        self.assertEqual((again.cached, self.scheduler.prefilled), (8, 12 + 4))
        # With the answer that was heard, as a user goes on. The last token of an answer is not
        # computed.
        longer = self.add([1] * 12 + [12, 13, 14] + [2])
        self.play(longer)
        self.assertEqual(longer.cached, 12)

    def test_a_store_brings_whole_chunks_that_the_pool_lacks(self):
        store = FakeStore()
        self.make(store=store)
        self.play(self.add([1] * 30))
        self.assertEqual((self.store.saved, len(store.kept)), (4, 4))  # 8 tokens each, of 32
        self.pool.forget_all()
        again = self.add([1] * 30)
        self.play(again)
        self.assertEqual(store.asked[-1], (3, [2, 2, 2]))
        self.assertEqual((again.recalled, again.cached), (24, 24))
        self.assertEqual(self.scheduler.prefilled, 30 + 6)
        self.assertEqual(self.pool.free, 39)

    def test_what_a_store_loses_is_computed_and_put_again(self):
        store = FakeStore()
        self.make(store=store)
        self.play(self.add([1] * 30))
        self.pool.forget_all()
        store.brings, before = 1, self.store.saved
        again = self.add([1] * 30)
        self.play(again)
        self.assertEqual((again.recalled, self.store.saved - before), (8, 3))

    def test_exact_pieces_are_chunks_at_fixed_places_whatever_was_found(self):
        self.make(store=FakeStore(), exact=True, budget=20)
        one = self.add([1] * 30)
        self.assertEqual(self.step(), [(0, 8, False), (8, 8, False)])  # 4 of 20 are no chunk
        self.assertEqual(self.step(), [(16, 8, False), (24, 6, False)])
        self.play(one)
        # What an answer's tokens computed is not kept: 30 tokens are three chunks.
        self.assertEqual(self.store.saved, 3)
        again = self.add([1] * 30 + one.answer + [2] * 9)
        self.assertEqual(self.step(), [(24, 8, False), (32, 8, False), (40, 2, False)])
        self.assertEqual(again.cached, 24)


class EngineTest(unittest.TestCase):
    def engine(self, runner=None, store=None):
        self.pool = BlockPool(40)
        made = Engine(self.pool, Limits(BLOCK, CHUNK, budget=16, rows=4), runner or FakeRunner(),
                      store)
        self.addCleanup(made.stop)
        return made

    def test_requests_are_answered_and_stores_are_asked_beside(self):
        store = FakeStore()
        engine = self.engine(store=store)
        first = [engine.ask([at] * 20, 4) for at in range(5)]
        for asked in first:
            said = asked.result(timeout=60)
            self.assertEqual(said["tokens"], [20, 21, 22, 23])
            self.assertEqual((len(said["gaps"]), len(said["itl_s"])), (4, 3))
        engine.settle()
        self.assertEqual(self.pool.free, 39)
        self.pool.forget_all()
        self.assertEqual(engine.ask([3] * 20, 4).result(timeout=60)["recalled"], 16)
        self.assertEqual(engine.prefilled, 5 * 20 + 4)

    def test_whoever_waits_hears_of_a_failure(self):
        class Broken(FakeRunner):
            def run(self, pieces):
                raise RuntimeError("no GPU any more")

        heard = threading.Event()
        with unittest.mock.patch.object(threading, "excepthook", lambda _: heard.set()):
            engine = self.engine(Broken())
            with self.assertRaisesRegex(RuntimeError, "no GPU any more"):
                engine.ask([1] * 5, 2).result(timeout=60)
            self.assertTrue(heard.wait(60))
            with self.assertRaisesRegex(RuntimeError, "no GPU any more"):
                engine.ask([1] * 5, 2).result(timeout=60)


class StoreTest(unittest.TestCase):
    def put(self, refused_times):
        """Puts three chunks in batches of two where the second one finds no room at first."""
        store, calls = KvkeepStore.__new__(KvkeepStore), []

        def put(keys, _):
            calls.append(list(keys))
            return [key != b"b" or len(calls) > refused_times for key in keys]

        Store.__init__(store)
        store._batch, store._mover = 2, types.SimpleNamespace(put=put)
        store.put([b"a", b"b", b"c"], [[1], [2], [3]])
        return calls, store.counts

    @unittest.mock.patch.object(store_module, "AGAIN_S", 0.001)
    def test_a_chunk_without_room_is_put_again(self):
        calls, counts = self.put(2)
        self.assertEqual(calls, [[b"a", b"b"], [b"b"], [b"b"], [b"c"]])
        self.assertEqual((counts["put_chunks"], counts["refused_chunks"]), (3, 0))
        with unittest.mock.patch.object(store_module, "REFUSED_S", 0.01):
            _, counts = self.put(10 ** 9)
        self.assertEqual((counts["put_chunks"], counts["refused_chunks"]), (2, 1))


def row(arm, users, p90, **more):
    return {"arm": arm, "users": users, "ttft_p50_s": p90 / 2, "ttft_p90_s": p90,
            "ttft_p99_s": 2 * p90, "itl_s": 0.01, "tps": 100.0, "hit_ratio": 0.5,
            "recalled_tokens": 7, "prefilled_tokens": 9, "joules_per_token": 1.5, **more}


LENGTH = {"tokens": 2048, "computed_s": 1.0, "g2_s": 0.1, "nvme_s": 0.2, "g2_recalled": 1792,
          "nvme_recalled": 1792, "equal": True, "same_kv": True, "gap": 0.25}
SETTINGS = {"shape": "tiny", "check": False, "gap_s": 1, "load": {"rounds": 3}}


class ResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "figures.json")

    def test_answers_are_compared_with_the_first_arms_and_a_gap_tells_of_a_near_tie(self):
        said = {"recompute": {"a": [[1, 2, 3], [9, 0.25, 8]], "b": [[4, 5, 6], [1, 1, 1]]},
                "gpu": {"a": [[1, 2, 3], [9, 9, 9]], "b": [[4, 5, 6], [1, 1, 1]]},
                "kvkeep-g2": {"a": [[1, 7, 8], [9, 9, 9]], "c": [[1], [1]]}}
        self.assertEqual(results.differences(said), {
            "gpu": {"than": "recompute", "asked": 2, "equal": 2},
            "kvkeep-g2": {"than": "recompute", "asked": 1, "equal": 0, "largest_gap": 0.25}})

    def test_a_second_run_goes_on_where_the_first_one_ended(self):
        kept = results.Results(self.file, SETTINGS)
        kept.add(row("recompute", 20, 0.5), {"0,1": [1]}, {"a": [[1], [1.0]]})
        again = results.Results(self.file, SETTINGS)
        self.assertEqual((again.heard(20), again.heard(28)), ({"0,1": [1]}, {}))
        again.add(row("gpu", 20, 0.4), {"0,1": [1]}, {"a": [[2], [1.0]]})
        again.add_length(dict(LENGTH))
        third = results.Results(self.file, SETTINGS)
        self.assertEqual([len(third.rows(arm)) for arm in arms.ARMS], [1, 1, 0, 0])
        self.assertEqual(report.unequal(third.document),
                         ["gpu, 20 users: 1 of 1 answers differ from those of recompute"])
        with self.assertRaises(results.OtherSettings):
            results.Results(self.file, {**SETTINGS, "gap_s": 2})

    def test_a_report_has_all_arms_and_says_what_is_honest(self):
        kept = results.Results(self.file, SETTINGS)
        kept.facts_of("kvkeep-g2", {"device": "a GPU", "torch": "2.0", "cuda": "13.0", "path": "X",
                                    "energy": "NVML's", "g2_bytes": 1 << 30, "g3_bytes": 0})
        for arm in ("recompute", "kvkeep-g2"):
            for users in (20, 28):
                kept.add(row(arm, users, 0.5), {}, {"a": [[1], [1.0]]})
        kept.add_length(dict(LENGTH))
        words = report.markdown(kept.document)
        for part in ("a GPU, torch 2.0, CUDA 13.0", "reached by X", "gathered pages",
                     "| kvkeep-g2 | 28 | 0.250 | 0.500 | 1.000 | 0.010 | 100.0 | 1.50 | 50.0% | 7 "
                     "| - | - | - | 9 | 1 of 1 |", "| 2048 | 1.0000 | 0.1000 | 0.2000 |"):
            self.assertIn(part, words)
        kept.document["lengths"][0]["equal"] = False
        self.assertIn("differs, the gap is 0.25",
                      report.markdown(kept.document))
        self.assertEqual((len(report.unequal(kept.document)), report.damaged(kept.document)),
                         (1, []))
        kept.document["lengths"][0]["same_kv"] = False
        self.assertIn("DIFFERS", report.markdown(kept.document))
        self.assertEqual(len(report.damaged(kept.document)), 1)

    def test_a_picture_has_a_panel_a_measure_and_a_curve_an_arm(self):
        kept = results.Results(self.file, SETTINGS)
        for users in (20, 28):
            for arm, p90 in (("recompute", 2.0), ("gpu", 0.5)):
                kept.add(row(arm, users, p90), {}, {})
        svg = ElementTree.fromstring(report.picture(kept.document, 1.0))
        lines = list(svg.iter("{http://www.w3.org/2000/svg}polyline"))
        self.assertEqual(len(lines), 2 * 2 + 2 + 2)  # TTFT twice, TPS, joules; no lengths
        kept.add_length(dict(LENGTH))
        svg = ElementTree.fromstring(report.picture(kept.document, 1.0))
        self.assertEqual(len(list(svg.iter("{http://www.w3.org/2000/svg}polyline"))), 8 + 3)

    def test_an_axis_has_lines_where_its_values_are(self):
        decades = curves.Axis([0.02, 3.0], logarithmic=True)
        self.assertEqual((decades.low, decades.high), (0.01, 10))
        self.assertEqual(len(decades.lines), 4)
        self.assertAlmostEqual(decades.part(0.01), 0)
        self.assertAlmostEqual(decades.part(10), 1)
        self.assertAlmostEqual(curves.Axis([5, 10], False).part(0), 0)


class ArmsTest(unittest.TestCase):
    def test_users_grow_by_steps_until_the_last(self):
        self.assertEqual(list(arms.numbers_of_users(20, 1.4, 80)), [20, 28, 39, 55, 77])
        self.assertEqual(list(arms.numbers_of_users(1, 1.1, 3)), [1, 2, 3])

    def played(self, p90s, asked_of=None, kept=None):
        """Runs an arm whose TTFT is what p90s has of a number of users; what was measured."""
        measured = []

        class FakeArm:
            facts = {"device": "a GPU", "kv_blocks": 9, "path": ""}

            def __init__(self, *_):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def users(self, load, _gap_s, heard):
                measured.append(load["users"])
                return row("gpu", load["users"], p90s[load["users"]]), heard, {}

        asked = asked_of or types.SimpleNamespace(
            users=1, factor=2, most_users=8, gap_s=0, rounds=2, load_of=lambda users: {
                "users": users, "rounds": 2})
        kept = kept or unittest.mock.Mock(rows=lambda _: [])
        with unittest.mock.patch.object(arms, "Arm", FakeArm):
            arms.run_users("gpu", asked, arms.Clock(1), kept, "", lambda _: None)
        return measured

    def test_an_arm_ends_with_the_users_that_break_its_bound(self):
        self.assertEqual(self.played({1: 0.1, 2: 0.9, 4: 1.1, 8: 0.1}), [1, 2, 4])
        self.assertEqual(self.played({1: 0.1, 2: 0.9, 4: 0.9, 8: 0.9}), [1, 2, 4, 8])

    def test_what_an_earlier_run_measured_is_not_measured_again(self):
        kept = unittest.mock.Mock(rows=lambda _: [row("gpu", 1, 0.1), row("gpu", 2, 0.2)])
        self.assertEqual(self.played({4: 0.1, 8: 0.1}, kept=kept), [4, 8])
        kept.rows = lambda _: [row("gpu", 1, 0.1), row("gpu", 2, 1.2)]
        self.assertEqual(self.played({}, kept=kept), [])

    def test_time_that_is_up_ends_a_run_before_what_does_not_fit(self):
        with self.assertRaises(arms.TimeIsUp):
            arms.Clock(0.1).need(7)
        arms.Clock(0.1).need(5)

    def test_a_worker_that_is_late_is_no_failure_and_one_that_fails_is(self):
        child = unittest.mock.Mock()
        child.ask.side_effect = arms.ChildFailed("worker does not answer")
        with unittest.mock.patch.object(arms, "Child", lambda *_, **__: child), \
                unittest.mock.patch.dict("os.environ", KVKEEP_BUILD="build"):
            with self.assertRaisesRegex(arms.TimeIsUp, "play is not done"):
                arms.Worker("python", arms.Clock(0)).ask("play")
            with self.assertRaises(arms.ChildFailed):
                arms.Worker("python", arms.Clock(1)).ask("play")
        self.assertAlmostEqual(child.ask.call_args.kwargs["beyond_s"], 60, delta=5)

    def test_a_row_counts_answers_and_joules(self):
        one = {"ttft_s": 0.5, "itl_s": [0.1, 0.1], "cached": 6, "recalled": 4, "tokens": 3}
        said = arms.row_of("gpu", {"users": 2}, {"seconds": 1.0}, {
            "requests": [one, one], "prompt_tokens": [10, 14], "seconds": 2.0, "joules": 12.0,
            "counts": {"prefilled_tokens": 12}})
        self.assertEqual((said["joules_per_token"], said["tps"], said["hit_ratio"]), (2, 3, 0.5))
        self.assertEqual((said["recalled_tokens"], said["prefilled_tokens"]), (8, 12))


NVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  return strcmp(uuid, "GPU-1") == 0 ? 0 : 6;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* mj) {
  *mj = 2500;
  return 0;
}
"""


class MeterTest(unittest.TestCase):
    def test_nvmls_counter_is_in_millijoules(self):
        with tempfile.TemporaryDirectory() as folder:
            library = str(pathlib.Path(folder, "nvml.so"))
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], text=True,
                           input=NVML, check=True)
            self.assertEqual(meter.NvmlMeter("GPU-1", library).joules(), 2.5)
            with self.assertRaisesRegex(OSError, "nvmlDeviceGetHandleByUUID: 6"):
                meter.NvmlMeter("GPU-2", library)
        with self.assertRaises(OSError):
            meter.NvmlMeter("GPU-1", "libm.so.6")

    def test_power_is_added_up_over_time(self):
        with unittest.mock.patch.object(meter, "SAMPLE_S", 0.01):
            began = time.monotonic()
            sampled = meter.SampledMeter(lambda: 100.0)
            while sampled.joules() < 5 and time.monotonic() < began + 60:
                time.sleep(0.01)  # for the thread that samples
            sampled.close()
        self.assertGreaterEqual(sampled.joules(), 5)
        self.assertLessEqual(sampled.joules(), 100 * (time.monotonic() - began) + 1)

    def test_without_a_gpu_nothing_is_counted(self):
        self.assertIsNone(meter.meter_of(None))
        with unittest.mock.patch.object(meter.shutil, "which", lambda _: None):
            self.assertIsNone(meter.meter_of("GPU-none"))


class CommandTest(unittest.TestCase):
    def run_tool(self, *words):
        return subprocess.run([sys.executable, "-B", SOURCES / "tools" / "gpu-serve", *words],
                              capture_output=True, text=True, timeout=60, check=False)

    def test_what_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = self.run_tool("--build", folder, "--out", f"{folder}/a.json")
            self.assertEqual(ran.returncode, 2)
            self.assertIn("kvkeepd is not built", ran.stderr)
            for name in ("bin/kvkeepd", "bin/kvkeep", "lib/libkvkeep-client.so.1"):
                pathlib.Path(folder, name).parent.mkdir(exist_ok=True)
                pathlib.Path(folder, name).touch()
            ran = self.run_tool("--build", folder, "--out", f"{folder}/a.json", "--torch-python",
                                "/bin/false")
            self.assertEqual(ran.returncode, 2)
            self.assertIn("has no torch", ran.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
