"""`field` of tools/engine-bench without an engine: what LMBenchmark and AIPerf wrote is read, the
scenario asks all arms the same, and the report counts users.

    field_test.py SOURCES

field/ has a file that LMBenchmark wrote, and the read parts of one that AIPerf wrote.
"""

import contextlib
import io
import json
import pathlib
import sys
import types
import unittest
import xml.etree.ElementTree as ElementTree

SOURCES = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(SOURCES / "tools" / "engine-bench"), str(SOURCES / "tools")]

import engine_bench  # noqa: E402
import field  # noqa: E402
import field_report  # noqa: E402
from load import Load  # noqa: E402

RECORDED = pathlib.Path(__file__).resolve().parent / "field"
LOAD = Load(users=2, rounds=3, system_tokens=10, history_tokens=20, question_tokens=5,
            answer_tokens=4, vocabulary=1000)


class ReadTest(unittest.TestCase):
    def test_what_lmbenchmark_wrote_is_read(self):
        said = field.of_lmbenchmark((RECORDED / "lmbenchmark.csv").read_text(encoding="utf-8"))
        self.assertEqual(said["requests"], 19)
        self.assertAlmostEqual(said["ttft_p50_s"], 0.0252, places=4)
        self.assertAlmostEqual(said["ttft_p99_s"], 0.0433, places=4)
        self.assertAlmostEqual(said["itl_s"], 0.00983, places=5)
        self.assertAlmostEqual(said["latency_p90_s"], 0.1127, places=4)
        self.assertAlmostEqual(said["tps"], 8 * said["rps"])

    def test_requests_without_an_answer_do_not_count(self):
        head = ("prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,"
                "launch_time,finish_time\n")
        none, one = "9,0,0,0,1,1,0,1\n", "9,5,0.5,2,1,2,10,12.5\n"
        said = field.of_lmbenchmark(head + none + one)
        self.assertEqual((said["requests"], said["itl_s"], said["tps"]), (1, 0.5, 2.0))
        with self.assertRaisesRegex(ValueError, "no answers"):
            field.of_lmbenchmark(head + none)

    def test_what_aiperf_wrote_is_read_in_seconds(self):
        wrote = json.loads((RECORDED / "aiperf.json").read_text(encoding="utf-8"))
        said = field.of_aiperf(wrote)
        self.assertEqual(said["requests"], 12)
        self.assertAlmostEqual(said["ttft_p50_s"], 0.0331, places=4)
        self.assertAlmostEqual(said["latency_p99_s"], 0.2675, places=4)
        self.assertAlmostEqual(said["itl_s"], 0.01079, places=5)
        self.assertAlmostEqual(said["hit_ratio"], 0.76, places=2)
        self.assertEqual(set(said) - {"hit_ratio"}, set(field.of_lmbenchmark(
            (RECORDED / "lmbenchmark.csv").read_text(encoding="utf-8"))))


class WordsTest(unittest.TestCase):
    def test_users_whose_number_is_no_word_are_refused(self):
        tools = field.Tools("python", ".", "model", ".")
        with self.assertRaisesRegex(ValueError, "200 users have"):
            tools.run("lmbenchmark", "", LOAD, field.Rate(2, 2.0), 10, 190)

    def test_users_differ_in_words_of_the_tokenizer(self):
        words = field.words(1000)
        self.assertEqual(len(words), len(set(words)))
        self.assertLess(len(words), 500)
        self.assertLessEqual({"hi", "hi.For", "0,", "199,", "#1:", "ASSISTANT:"}, set(words))

    def test_conversations_are_of_words_that_are_tokens(self):
        lines = [json.loads(line) for line in field.conversations(LOAD, 3, 7).splitlines()]
        self.assertEqual([line["session_id"] for line in lines], ["user-7", "user-8", "user-9"])
        first = [line["turns"][0]["text"].split() for line in lines]
        self.assertEqual(first[0][:10], first[1][:10])
        self.assertNotEqual(first[0][10:], first[1][10:])
        self.assertEqual([len(turn["text"].split()) for turn in lines[0]["turns"]], [35, 5, 5])
        named = 1000 - len(field.words(1000))
        self.assertTrue(all(int(word[1:]) < named for words in first for word in words))


class FakeTools:
    def __init__(self):
        self.runs = []

    def run(self, tool, url, load, rate, seconds, first_user):
        self.runs.append((url, tool, rate.users, first_user))
        ttft = {measure: rate.users * 1.0 for measure in ("ttft_p50_s", "ttft_p90_s")}
        return {**ttft, "tps": 1.0, "rps": rate.qps, "requests": 3}


class FakeArm:
    def __init__(self, name):
        self.name, self.stopped = name, 0

    def serve(self, engines):
        assert engines == 1
        return types.SimpleNamespace(urls=[self.name])

    def stop(self):
        self.stopped += 1


class ScenarioTest(unittest.TestCase):
    def setUp(self):
        made = {}
        self.tools = FakeTools()
        self.bench = types.SimpleNamespace(
            asked=types.SimpleNamespace(gap=2.0, seconds=5, users_at=[2, 4], tools=field.TOOLS),
            serving=types.SimpleNamespace(load=LOAD), rounds=2, rows=[],
            arm=lambda name: made.setdefault(name, FakeArm(name)))
        with contextlib.redirect_stderr(io.StringIO()):
            engine_bench.field(self.bench, ["none", "kvkeep"], self.tools)

    def test_arms_get_the_same_users_and_runs_get_others(self):
        of = {name: [run[1:] for run in self.tools.runs if run[0] == name]
              for name in ("none", "kvkeep")}
        self.assertEqual(of["none"], of["kvkeep"])
        firsts = [first for _, _, first in of["none"]]
        self.assertEqual(len(firsts), 2 * 2 * 2)  # rounds, rates, tools
        self.assertEqual(firsts, sorted(set(firsts)))
        self.assertEqual(self.bench.arm("none").stopped, 2)

    def test_users_below_the_bound_are_of_the_highest_rate_that_keeps_it(self):
        said = field_report.document(self.bench.rows, 3.0, {})
        self.assertEqual(said["users_below_bound"]["aiperf"], {"none": 2, "kvkeep": 2})
        said = field_report.document(self.bench.rows, 1.0, {})
        self.assertEqual(said["users_below_bound"]["lmbenchmark"]["none"], 0)
        self.assertIn("| kvkeep | 4 | 2 | 4 | 4 | - |", field_report.table(said))

    def test_a_picture_has_a_bar_for_each_arm_tool_rate_and_measure(self):
        said = field_report.document(self.bench.rows, 3.0, {})
        svg = ElementTree.fromstring(field_report.picture(said))
        bars = [rect for rect in svg.iter("{http://www.w3.org/2000/svg}rect") if len(rect)]
        self.assertEqual(len(bars), 2 * 2 * (2 * 4 + 1))  # arms, tools; rates, measures; users


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
