"""The parts of tools/engine-bench that need no engine: the load, the figures, the report, and the
order in which scenarios ask arms.

    engine_bench_test.py SOURCES
"""

import asyncio
import contextlib
import io
import pathlib
import sys
import time
import types
import unittest
import xml.etree.ElementTree as ElementTree

SOURCES = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(SOURCES / "tools" / "engine-bench"), str(SOURCES / "tools")]

import engine_bench  # noqa: E402
import figures  # noqa: E402
import report  # noqa: E402
from load import RESERVED, Load  # noqa: E402
from users import Users  # noqa: E402

SMALL = Load(users=3, rounds=3, system_tokens=10, history_tokens=20, question_tokens=5,
             answer_tokens=4, vocabulary=50)


class LoadTest(unittest.TestCase):
    def test_a_round_adds_a_question_and_the_answer_that_was_heard(self):
        talk = SMALL.talks()[0]
        first = talk.ask()
        self.assertEqual(len(first), 10 + 20 + 5)
        talk.hear([7, 8, 9])
        second = talk.ask()
        self.assertEqual(second[:len(first) + 3], first + [7, 8, 9])
        self.assertEqual(len(second), len(first) + 3 + 5)

    def test_users_share_the_system_prompt_and_nothing_else(self):
        prompts = [talk.ask() for talk in SMALL.talks()]
        self.assertEqual(len({tuple(one[:10]) for one in prompts}), 1)
        self.assertEqual(len({tuple(one[10:30]) for one in prompts}), 3)
        self.assertEqual(len({tuple(one[30:]) for one in prompts}), 3)

    def test_a_load_says_the_same_each_time_and_another_one_something_else(self):
        again, other = (Load(**{**vars(SMALL), "seed": seed}) for seed in (0, 1))
        first, same, differs = (one.talks()[1].ask() for one in (SMALL, again, other))
        self.assertEqual(first, same)
        self.assertNotEqual(first, differs)
        self.assertTrue(all(RESERVED <= token < 50 for token in first + differs))

    def test_the_longest_conversation_is_as_long_as_it_was_said(self):
        talk = SMALL.talks()[0]
        for _ in range(SMALL.rounds):
            length = len(talk.ask()) + SMALL.answer_tokens
            talk.hear([3] * SMALL.answer_tokens)
        self.assertEqual(length, SMALL.longest_tokens())

    def test_turns_are_taken_and_loads_have_limits(self):
        talk = SMALL.talks()[0]
        with self.assertRaises(AssertionError):
            talk.hear([3])
        talk.ask()
        with self.assertRaises(AssertionError):
            talk.ask()
        with self.assertRaisesRegex(ValueError, "rounds: at least 2"):
            Load(rounds=1)


class UsersTest(unittest.TestCase):
    def play(self, heard, token, qps=1000.0):
        """Returns both halves of the rounds; the users, and when each was asked what."""
        users, asked = Users(SMALL, qps, heard), []

        async def ask(prompt, answer_tokens):
            asked.append((time.monotonic(), prompt))
            return {"tokens": [token] * answer_tokens}

        for rounds in (range(1), range(1, SMALL.rounds)):
            asyncio.run(users.play(rounds, ask))
        return users, asked

    def test_each_user_goes_on_where_it_was(self):
        users, asked = self.play({}, 7)
        self.assertEqual(len(asked), SMALL.users * SMALL.rounds)
        self.assertEqual(users.prompts, [prompt for _, prompt in asked])
        for user in range(SMALL.users):
            of_user = [prompt for _, prompt in asked
                       if prompt[10:30] == SMALL.talks()[user].ask()[10:30]]
            self.assertEqual(len(of_user), SMALL.rounds)
            for earlier, later in zip(of_user, of_user[1:]):
                self.assertEqual(later[:-5], earlier + [7] * SMALL.answer_tokens)

    def test_what_one_arm_heard_the_others_hear(self):
        heard = {}
        first, _ = self.play(heard, 7)
        second, _ = self.play(heard, 8)
        self.assertEqual(sorted(first.prompts), sorted(second.prompts))
        self.assertEqual(second.said[0]["tokens"], [8] * SMALL.answer_tokens)

    def test_questions_come_no_faster_than_their_pace(self):
        _, asked = self.play({}, 7, qps=50)
        times = [at for at, _ in asked]
        self.assertGreaterEqual(times[-1] - times[0], (SMALL.users * (SMALL.rounds - 1) - 1) / 50)
        with self.assertRaisesRegex(ValueError, "qps: above 0"):
            Users(SMALL, 0, {})


def request(ttft_s, cached=0, itl_s=(0.1, 0.3)):
    return {"ttft_s": ttft_s, "itl_s": list(itl_s), "cached": cached, "tokens": [1, 2, 3]}


def rows(**ttft_of_rounds):
    return [{"arm": arm, "round": number, "ttft_s": ttft, "tps": 10.0 / ttft, "hit_ratio": 0.5}
            for arm, of_arm in ttft_of_rounds.items() for number, ttft in enumerate(of_arm)]


class FiguresTest(unittest.TestCase):
    def test_a_row_of_a_round(self):
        row = figures.of_round("kvkeep", 2, [[1] * 10, [1] * 30], 2.0,
                               [request(1.0, cached=5), request(3.0, cached=15)])
        self.assertEqual((row["arm"], row["round"]), ("kvkeep", 2))
        self.assertEqual((row["ttft_s"], row["hit_ratio"], row["tps"]), (2.0, 0.5, 3.0))
        self.assertAlmostEqual(row["itl_s"], 0.2)

    def test_answers_of_one_token_have_no_gaps(self):
        row = figures.of_round("a", 0, [[1]], 1.0, [request(1.0, itl_s=())])
        self.assertEqual(set(row), {"arm", "round", "ttft_s", "hit_ratio"})
        with self.assertRaisesRegex(ValueError, "1 prompts and 0 answers"):
            figures.of_round("a", 0, [[1]], 1.0, [])

    def test_percentiles_are_times_that_were_measured(self):
        said = figures.percentiles([request(one / 100, itl_s=[one]) for one in range(1, 101)])
        self.assertEqual([said[f"ttft_p{one}_s"] for one in (50, 90, 99)], [0.5, 0.9, 0.99])
        self.assertEqual(said["itl_p99_s"], 99)
        few = figures.percentiles([request(1.0, itl_s=()), request(2.0, itl_s=())])
        self.assertEqual(few, {"ttft_p50_s": 1.0, "ttft_p90_s": 2.0, "ttft_p99_s": 2.0})

    def test_a_ratio_is_of_the_same_round(self):
        # 2 times in each round, though the rounds differ by far more.
        measured = rows(none=[2.0, 20.0, 200.0], kvkeep=[1.0, 10.0, 100.0])
        ratio = figures.ratios(measured, "none")["kvkeep"]
        self.assertEqual([ratio["ttft_s"][one] for one in ("median", "min", "max", "spread")],
                         [0.5, 0.5, 0.5, 0.0])
        self.assertEqual(ratio["tps"]["median"], 2.0)
        self.assertNotIn("hit_ratio", ratio)

    def test_rounds_that_one_of_them_lacks_are_left_out(self):
        measured = rows(none=[2.0, 4.0], kvkeep=[1.0, 1.0, 50.0])
        ratio = figures.ratios(measured, "none")["kvkeep"]["ttft_s"]
        self.assertEqual((ratio["count"], ratio["min"], ratio["max"]), (2, 0.25, 0.5))
        self.assertAlmostEqual(ratio["spread"], 0.25 / 0.375)
        self.assertEqual(figures.ratios(measured, "absent"), {"none": {}, "kvkeep": {}})


class ReportTest(unittest.TestCase):
    def said(self, kvkeep, scenario="recall", quick=False):
        return report.document(scenario, rows(cold=[15.0, 30.0, 45.0], dict=[0.9, 1.8, 2.7],
                                              kvkeep=kvkeep), ["cold", "dict"], {"quick": quick})

    def test_what_was_promised_is_held_to_the_medians(self):
        good = self.said([1.0, 1.9, 9.0])
        self.assertEqual([holds for _, holds in report.promises(good)], [True, True])
        slow = self.said([1.1, 2.2, 3.3])
        self.assertEqual([holds for _, holds in report.promises(slow)], [False, False])
        self.assertIn("DOES NOT HOLD: TTFT of kvkeep / dict: at most 1.2, is 1.22",
                      report.table(slow))

    def test_what_was_not_measured_does_not_hold(self):
        unmeasured = report.document("no-hit", rows(none=[1.0]), ["none"], {"quick": False})
        self.assertEqual([holds for _, holds in report.promises(unmeasured)], [False, False])
        self.assertEqual(report.promises(self.said([1.0], scenario="sessions")), [])
        self.assertEqual(report.promises(self.said([50.0], quick=True)), [])

    def test_a_table_has_a_row_an_arm_for_each_base(self):
        table = report.table(self.said([1.0, 2.0, 3.0]))
        self.assertIn("| kvkeep | 0.0667 (0.0667 to 0.0667) | - | 15 (15 to 15) | "
                      "0.5 (0.5 to 0.5) |", table)
        self.assertIn("| cold | 1 | 1 | 1 | 0.5 (0.5 to 0.5) |", table)
        self.assertEqual(table.count("| kvkeep |"), 2)

    def test_hit_ratios_are_held_to_each_other_and_what_was_measured_has_a_column(self):
        def of(arm, hit_ratio, p50):
            return {"arm": arm, "round": 0, "ttft_s": 1.0, "ttft_p50_s": p50, "ttft_p99_s": 1.0,
                    "hit_ratio": hit_ratio}

        said = report.document("serve", [of("lmcache", 0.8, 1.0), of("direct", 0.7, 0.9)],
                               ["lmcache"], {"quick": False})
        self.assertEqual([holds for _, holds in report.promises(said)], [True, True, False])
        self.assertIn("| as a ratio to lmcache | TTFT | TTFT p50 | TTFT p99 | ITL | TPS | hit ratio"
                      " |", report.table(said))

    def test_an_arm_that_was_not_measured_is_no_base(self):
        some = report.document("sessions", rows(fs=[2.0], kvkeep=[1.0]), ["none"], {"quick": True})
        self.assertEqual(list(some["ratios"]), ["fs"])

    def test_every_row_is_kept(self):
        said = self.said([1.0])
        self.assertEqual(len(said["rows"]), 7)
        self.assertEqual((said["scenario"], said["quick"]), ("recall", False))

    def test_a_picture_has_a_bar_for_each_arm_and_measure(self):
        svg = ElementTree.fromstring(report.picture(self.said([1.0, 2.0, 3.0])))
        bars = [rect for rect in svg.iter("{http://www.w3.org/2000/svg}rect") if len(rect)]
        self.assertEqual(len(bars), 2 * 3 * 3)  # bases; TTFT, TPS and hit ratio; arms


class FakeArm:
    """Answers with its own name, as tokens; keeps the calls."""

    def __init__(self, name):
        self.name, self.done, self.asked = name, [], []

    def start(self):
        self.done.append("start")

    def stop(self):
        self.done.append("stop")

    def restart(self):
        self.done.append("restart")

    def ask(self, prompts, answer_tokens):
        self.done.append("ask")
        self.asked.append(prompts)
        answer = [len(self.name)] * answer_tokens
        return {"seconds": 1.0, "requests": [
            {"ttft_s": 0.5, "itl_s": [], "cached": 0, "tokens": answer} for _ in prompts]}


class FakeServers:
    """Answer with their arm's name, in tokens, and report each start to the arm."""

    def __init__(self, arm):
        self.arm = arm

    def restart(self):
        self.arm.done.append("restart")

    def play(self, users, rounds):
        async def ask(prompt, answer_tokens):
            self.arm.asked.append(prompt)
            return self.arm.ask([prompt], answer_tokens)["requests"][0]

        return asyncio.run(users.play(rounds, ask))


class ServeTest(unittest.TestCase):
    def test_servers_are_new_for_each_arm_and_start_anew_after_a_round(self):
        bench = engine_bench.Bench(types.SimpleNamespace(
            quick=True, rounds=2, num_rounds=3, qps=1e6, engines=2, restart_engine_after=1), "",
            None)
        self.assertEqual((bench.serving.load.rounds, bench.serving.load.users), (3, 2))

        class Arm(FakeArm):
            def serve(self, engines):
                self.done.append(f"{engines} servers")
                return FakeServers(self)

            def host_bytes(self):
                return 7

        bench._make = Arm
        with contextlib.redirect_stderr(io.StringIO()):
            engine_bench.serve(bench, ["none", "direct"])
        none, direct = bench.arm("none"), bench.arm("direct")
        asked = ["ask"] * 2
        self.assertEqual(none.done, ["2 servers", *asked, "restart", *asked, *asked, "stop"] * 2)
        self.assertEqual(none.done, direct.done)
        prompts = [[prompt for prompt in arm.asked if len(prompt) > 1] for arm in (none, direct)]
        self.assertEqual(*map(sorted, prompts))
        self.assertEqual([(row["arm"], row["round"], row["host_bytes"]) for row in bench.rows],
                         [("none", 0, 7), ("direct", 0, 7), ("direct", 1, 7), ("none", 1, 7)])

    def test_without_a_restart_there_is_one_part(self):
        serving = engine_bench.Serving.of(types.SimpleNamespace(), engine_bench.QUICK)
        self.assertEqual((serving.restart_after, serving.engines, serving.qps), (0, 2, 4))


class ScenarioTest(unittest.TestCase):
    def run_one(self, name, names):
        bench = engine_bench.Bench(types.SimpleNamespace(quick=True, rounds=3), "", None)
        bench._make = FakeArm
        with contextlib.redirect_stderr(io.StringIO()) as said:
            engine_bench.SCENARIOS[name][0](bench, names)
        order = [line.split('"')[3] for line in said.getvalue().splitlines()]
        return bench, [bench.arm(name) for name in names], order

    def test_users_of_all_arms_say_the_same_and_engines_are_new_each_round(self):
        bench, (none, kvkeep), order = self.run_one("sessions", ["none", "kvkeep"])
        self.assertEqual(none.asked, kvkeep.asked)
        self.assertEqual(none.done, ["start", "ask", "stop"] * 2)
        self.assertEqual(order, ["none", "kvkeep", "kvkeep", "none"])
        load = bench.scale.load
        first, second = (prompts[0] for prompts in none.asked)
        self.assertEqual(second[:len(first)], first)
        self.assertEqual(second[len(first):-load.question_tokens], [4] * load.answer_tokens)
        # No arm has any chunk in the first round; an answer that differs from the first arm's is
        # noticed.
        self.assertEqual([(row["arm"], row["round"], row["answers_as_of_first"])
                          for row in bench.rows], [("kvkeep", 1, 0.0), ("none", 1, 1.0)])

    def test_a_prompt_is_recalled_by_an_engine_that_never_saw_it(self):
        bench, (dictionary, kvkeep), order = self.run_one("recall", ["dict", "kvkeep"])
        self.assertEqual(kvkeep.done, ["start"] + ["restart", "ask"] * 6)
        for arm in (dictionary, kvkeep):
            asked = [prompts[0] for prompts in arm.asked]
            self.assertEqual(asked[0::2], asked[1::2])
            self.assertEqual(len({tuple(prompt) for prompt in asked}), 3)
        self.assertEqual(order[:4], ["dict, cold", "dict", "cold", "kvkeep"])
        self.assertEqual(len(bench.rows), 3 * 4)

    def test_nobody_is_asked_for_the_same_twice_where_nothing_may_hit(self):
        _, made, order = self.run_one("no-hit", ["none", "cpu", "kvkeep"])
        for arm in made:
            asked = [tuple(prompts[0]) for prompts in arm.asked]
            self.assertEqual((len(asked), len(set(asked))), (4, 4))  # one to warm up
            self.assertEqual(arm.asked[1:], made[0].asked[1:])
        self.assertEqual(order, ["none", "cpu", "kvkeep", "cpu", "kvkeep", "none",
                                 "kvkeep", "none", "cpu"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
