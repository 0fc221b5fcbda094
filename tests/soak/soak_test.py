"""soak.py on rows of its own that hold, fail, hang, are skipped, or do not exist. And the real
rows: they find their figures in their programs' output, and tests/README.md shows the kept
results."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import soak  # noqa: E402

SPECS = json.loads((HERE / "rows.json").read_text())

# For each row whose output is read: the output of its program, the counts in it, and the text made
# of it. A change of a program's output must be made here, too.
RECORDED = {
    "sim": ("""
400 seeds of 5000 steps, 0 failed: operations 1111755 faults 10667 puts 102094 reads 285633 hits
146526 verified 2153119447 kills 3591 cuts 2377 failed reads 733 drives without power 755 told""",
            {"cycles": 1111755, "wrong": 0},
            ["faults 10667", "kills 3591", "cuts 2377", "drives without power 755"]),
    "kill": ("""
  seed 1 | cycles 5 | fsck 7 | operations 13027 | durable puts 590 | keys
  checked 720 | had to survive, and did 108 | wrong 0 | lost 0 | hung 0 |
  leaked blocks 0 | ready ms p50 150, p99 197, max 211 | slowest call 65 ms
tests/crash/kill_test.cc:36: warning:
  seed 1 | cycles 5 | fsck 7 | operations 5251 | durable puts 439 | keys
  checked 1440 | had to survive, and did 0 | wrong 2 | lost 3 | hung 0 | leaked
  blocks 1 | ready ms p50 161, p99 252, max 264 | slowest call 92 ms""",
             {"cycles": 10, "wrong": 2, "hangs": 0, "leaks": 1},
             ["lost 3", "ready ms p50 150, p99 197, max 211"]),
    "kill-points": ("""
  seed 1 | each of 14 points 3 times | cycles 42 | fsck 43 | operations 45559 |
  durable puts 1522 | keys checked 4782 | had to survive, and did 185 | wrong 0
  | lost 0 | hung 0 | leaked blocks 0 | ready ms p50 255, p99 589, max 760 |
  growth | cycles 19 | fsck 11 | operations 12614 | durable puts 375 | keys
  checked 1320 | had to survive, and did 147 | wrong 0 | lost 0 | hung 0 |
  leaked blocks 0 | ready ms p50 504, p99 614, max 665 | slowest call 190 ms""",
                    {"cycles": 61, "wrong": 0, "hangs": 0, "leaks": 0},
                    ["lost 0", "ready ms p50 255, p99 589, max 760"]),
    "power": ("""
  seed 1 | power cuts 24 | lost sectors 17815 | damaged, found out 0 | stale
  records 12 | fsck: damaged 1 | cycles 24 | fsck 25 | operations 83584 |
  durable puts 3699 | keys checked 2400 | had to survive, and did 495 | wrong 0
  | lost 0 | hung 0 | leaked blocks 0 | ready ms p50 71, p99 101, max 102 |""",
              {"cycles": 24, "wrong": 0, "hangs": 0, "leaks": 0},
              ["lost sectors 17815", "lost 0"]),
    "no-memory": ("""
  seed 1 | ended 6 | refused and went on 1 | unharmed 1 | cycles 8 | fsck 9 | operations 15091 |
  durable puts 440 | keys checked 960 | had to survive, and did 54 | wrong 0 | lost 0 | hung 0 |
  leaked blocks 0 | ready ms p50 93, p99 276, max 332 | slowest call 84 ms""",
                  {"cycles": 8, "wrong": 0, "hangs": 0, "leaks": 0},
                  ["ended 6", "refused and went on 1", "unharmed 1", "lost 0"]),
    "bit-flips": ("""bit flips: seed 1, 50 flips: 33 found, 17 in unused space,
13 starts without the device, 718 right hits, 170 misses, 0 wrong chunks""",
                  {"cycles": 50, "wrong": 0},
                  ["33 found", "17 in unused space", "13 starts without the device"]),
    "index-damage": ("seed 1 | all served 8 | offline 7 | some served 1", {"cycles": 16},
                     ["all served 8", "some served 1", "offline 7"]),
    "warm-restart": ("10000 chunks of G2: serving again after 112 ms", {},
                     ["10000 chunks of G2: serving again after 112 ms"]),
    "hang": ("""
  local path: G2 hits of 64 KiB, G3 healthy p50 13.2 p99 119.2 us (79113),
  hanging p50 13.3 p99 126.7 us (72085), so p50 1.01 and p99 1.06 times
tests/sick/hang_test.cc:155: warning:
  gRPC: G2 hits of 64 KiB, G3 healthy p50 114.6 p99 383.4 us (18145), hanging
  p50 133.2 p99 391.7 us (15738), so p50 1.16 and p99 1.02 times""", {},
             ["local path: G2 hits of 64 KiB, G3 healthy p50 13.2 p99 119.2 us (79113), hanging "
              "p50 13.3 p99 126.7 us (72085), so p50 1.01 and p99 1.06 times",
              "gRPC: G2 hits of 64 KiB, G3 healthy p50 114.6 p99 383.4 us (18145), hanging "
              "p50 133.2 p99 391.7 us (15738), so p50 1.16 and p99 1.02 times"]),
    "client-kills": ("""  500 kills, all back after 3.71755 ms (median of 32 batches), 4.66217 ms
  (slowest); bystander: 1200 gets""", {"cycles": 500},
                     ["all back after 3.71755 ms", "4.66217 ms (slowest)"]),
    "dead-clients": ("  given back after 2 ms", {}, ["given back after 2 ms"]),
    "crowd": ("""
  silent: 10000 connections, 12218 bytes each, 28 threads, CPU 0 s in 1 s
  idle: 10000 connections, 20563 bytes each, 29 threads, CPU 0 s in 1 s""", {},
              ["silent: 10000 connections, 12218 bytes each",
               "idle: 10000 connections, 20563 bytes each"]),
    "slow-readers": ("  at most 16 MiB pinned, 48 gets cut, 300 gets of a bystander meanwhile", {},
                     ["at most 16 MiB pinned"]),
    "vanished": ("  given back after 1840 ms, limits.peer_timeout is 2000", {},
                 ["given back after 1840 ms"]),
    "flood": ("during the flood: 760 hits of 760 gets, p99 9355.65 us", {},
              ["760 hits of 760 gets"]),
    "storm": ("stormed p50 1194.4, p99 7290.28; storm: 29 served, 2386 refused in 0.2 s", {},
              ["storm: 29 served, 2386 refused"]),
    "threads": ("puts 5102, hits 20311, misses 411, gets under a lease 7001, deletes 301", {},
                ["puts 5102, hits 20311"]),
    "day": ("""
writes hang: 11 requests, 86.0 % of 179 chunks hit, 0 calls failed; at rest 27.6 MiB private, 21
faults 9 | requests 181 | chunks hit 1882 of 2320 | wrong 0 | calls failed 0 | second third and
last: hits 82.9 %, 84.1 %; private MiB 30.0, 27.6; descriptors 21, 21; threads 33, 33""",
            {"cycles": 9, "wrong": 0},
            ["requests 181", "calls failed 0", "hits 82.9 %, 84.1 %", "private MiB 30.0, 27.6",
             "descriptors 21, 21"]),
    "signals": ("cycles 50 | 58942 SIGHUPs, 319 durable puts, 0 lost | wrong 0",
                {"cycles": 50, "wrong": 0}, ["58942 SIGHUPs", "319 durable puts", "0 lost"]),
    "error-returns": ("""
error returns in tiers/: 667, 657 hit, 10 listed as out of reach, 0 neither""", {"cycles": 657},
                      ["error returns in tiers/: 667", "10 listed as out of reach", "0 neither"]),
    **{f"fuzz-{name}": (f"{name}       24000 inputs, nothing found", {"cycles": 24000}, [])
       for name in ("local", "wire", "requests", "media", "config")},
}


def row(name, script, **more):
    return {"id": name, "matrix": "0", "fault": "none", "weight": 1,
            "command": ["/bin/sh", "-c", script], **more}


class SoakTest(unittest.TestCase):
    def soak(self, rows, *arguments):
        with tempfile.TemporaryDirectory() as name:
            out = Path(name)
            (out / "rows.json").write_text(json.dumps(rows))
            words = [sys.executable, "-B", HERE / "soak.py", "--rows", out / "rows.json",
                     "--out", out, "--kept", out / "kept.json", *arguments]
            ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            return ended, soak.load(out / "soak.json"), soak.load(out / "kept.json")

    def one(self, script, wanted, **more):
        """Runs one row alone, with this exit status. Returns its result."""
        ended, ran, _ = self.soak([row("a", script, **more)], "--minutes", "0")
        self.assertEqual(ended.returncode, wanted, ended.stdout + ended.stderr)
        return ran["a"]

    def test_a_row_runs_with_one_seed_after_the_other_and_its_cycles_are_summed(self):
        ended, ran, kept = self.soak(
            [row("a", "echo {seed} did 5 cycles, wrong 0; sleep 1", cycles=r"did (\d+)",
                 unit="cycles", wrong=r"wrong (\d+)")], "--minutes", "0.1",
            "--seed", "7", "--keep")
        self.assertEqual(ended.returncode, 0)
        result = ran["a"]
        self.assertGreater(result["runs"], 1)
        self.assertEqual(result["seeds"][:2], [7, 8])
        self.assertEqual(result["cycles"], 5 * result["runs"])
        self.assertEqual((result["wrong"], result["hangs"]), (0, "-"))
        self.assertEqual(result["status"], "held")
        self.assertEqual(kept, ran)

    def test_each_row_runs_once_though_there_is_no_time(self):
        ended, ran, kept = self.soak([row("a", "true"), row("b", "true")], "--minutes", "0")
        self.assertEqual(ended.returncode, 0)
        self.assertEqual([ran[name]["runs"] for name in "ab"], [1, 1])
        self.assertEqual(ran["a"]["seeds"], [])  # it takes none
        self.assertEqual(kept, {})  # not asked for

    def test_what_fails_is_said_and_ends_the_row_but_not_the_others(self):
        ended, ran, _ = self.soak([row("bad", "echo wrong 3; exit 1", wrong=r"wrong (\d+)",
                                       leaks="asserted"),
                                   row("good", "true")], "--minutes", "0.01")
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(ran["bad"]["status"], "FAILED: exit status 1, see bad.log")
        self.assertEqual((ran["bad"]["wrong"], ran["bad"]["leaks"], ran["bad"]["runs"]),
                         (3, "-", 1))
        self.assertEqual(ran["good"]["status"], "held")

    def test_what_is_asserted_holds_or_is_not_known_and_is_no_count(self):
        self.assertEqual(self.one("true", 0, wrong="asserted")["wrong"], "none")
        self.assertEqual(self.one("exit 1", 1, wrong="asserted")["wrong"], "-")
        self.assertEqual(self.one("echo wrong 0; exit 1", 1, wrong=r"wrong (\d+)")["wrong"], "-")
        self.assertEqual(self.one("true", 0)["wrong"], "-")

    def test_a_figure_that_is_not_in_the_output_is_a_failure(self):
        for column in ("wrong", "hangs", "leaks", "cycles"):
            result = self.one("echo all is well", 1, **{column: r"wrong (\d+)", "unit": "cycles"})
            self.assertEqual(result["status"], f"FAILED: its output tells no {column}, see a.log")
            self.assertEqual(result[column], "-")
        result = self.one("echo No test cases matched x", 1, wrong="asserted")
        self.assertEqual((result["status"], result["wrong"]),
                         ("FAILED: ran no test, see a.log", "-"))

    def test_what_does_not_end_is_a_hang(self):
        grace, soak.GRACE_SECONDS = soak.GRACE_SECONDS, 0.5
        self.addCleanup(setattr, soak, "GRACE_SECONDS", grace)
        with tempfile.TemporaryDirectory() as out:
            stuck = soak.Row(row("a", "sleep 30", wrong="asserted", hangs="asserted"), Path("/"))
            stuck.run(0, 1, Path(out))
        self.assertEqual(stuck.result["status"], "FAILED: did not end, see a.log")
        self.assertEqual((stuck.result["hangs"], stuck.result["wrong"]), (1, "-"))

    def test_of_more_runs_the_worst_is_told(self):
        for values, wanted in (((0, 0), 0), ((0, "-"), "-"), (("none", "none"), "none"),
                               ((2, "-"), 2), (("none", "-"), "-"), ((1, 2), 3)):
            self.assertEqual(soak.added(*values), wanted)
            self.assertEqual(soak.added(*reversed(values)), wanted)

    def test_what_was_skipped_says_so_and_has_no_figures(self):
        whole = "echo 'skipped: needs root'; echo 'assertions: - none -'"
        result = self.one(whole, 3, wrong=r"wrong (\d+)", hangs="asserted")
        self.assertEqual((result["status"], result["cycles"]), ("skipped: needs root", "-"))
        self.assertEqual((result["wrong"], result["hangs"]), ("-", "-"))
        part = self.one("echo 'skipped: no mounts |'; echo wrong 0", 0, wrong=r"wrong (\d+)")
        self.assertEqual(part["status"], "held, skipped in part: no mounts")
        self.assertEqual(part["wrong"], "-")

    def test_what_catch_prints_of_a_skip_is_read(self):
        line, under = "=" * 79, "-" * 79
        case = f"""
{under}
a case
{under}
tests/sick/hang_test.cc:20
{"." * 79}

tests/sick/sick_disk.h:31: warning:
  """
        skip = f"\nx_test is a Catch v2.13.10 host application.\n{case}skipped: needs root\n\n"
        whole = f"{skip}{line}\ntest cases: 1 | 1 passed\nassertions: - none -\n\n"
        part = f"{skip}{line}\nAll tests passed (7 assertions in 2 test cases)\n\n"
        behind = part.replace(line, f"{case}wrong 0\n\n{line}")
        for output, status in ((whole, "skipped: needs root"),
                               (part, "held, skipped in part: needs root"),
                               (behind, "held, skipped in part: needs root"),
                               (behind.replace("skipped: ", "not "), "held")):
            taken = soak.Row(row("a", "", hangs="asserted"), Path("/"))
            taken.take(0, output)
            self.assertEqual(taken.result["status"], status)
            self.assertEqual(taken.result["hangs"], "none" if status == "held" else "-")

    def test_what_did_not_run_says_so(self):
        missing = {**row("missing", ""), "command": ["/nowhere/at_all"]}
        ended, ran, _ = self.soak([missing, row("other", "true"),
                                   row("long", "true", only_by_name=True)], "--minutes", "0")
        self.assertEqual(ended.returncode, 3)
        self.assertIn("did not run: at_all is not built", ended.stdout)
        self.assertIn("not asked for: long", ended.stdout)
        self.assertEqual(list(ran), ["other"])
        ended, ran, _ = self.soak([missing, row("long", "true", only_by_name=True)],
                                  "--minutes", "0", "long")
        self.assertEqual((ended.returncode, list(ran)), (0, ["long"]))

    def test_a_row_that_is_not_known_is_an_error(self):
        ended, _, _ = self.soak([row("a", "true")], "b")
        self.assertEqual(ended.returncode, 2)


class TableTest(unittest.TestCase):
    SPEC = row("a", "x", cycles="c", unit="kills")
    RESULT = {"status": "held", "how": soak.how(SPEC), "runs": 2, "cycles": 1500, "wrong": 0,
              "hangs": "none", "leaks": "-", "told": ["p50 3"], "seeds": [4, 5], "date": "D",
              "commit": "C"}

    def line(self, result):
        return soak.table([self.SPEC], {"a": result}).splitlines()[2].split(" | ")[4:]

    def test_it_tells_what_is_kept(self):
        self.assertEqual(self.line(self.RESULT),
                         ["1,500 kills", "0", "none", "-", "p50 3", "D at C, seeds 4 to 5 |"])
        failed = {**self.RESULT, "status": "FAILED: x", "seeds": [4]}
        self.assertEqual(self.line(failed)[4:], ["FAILED: x, p50 3", "D at C, seed 4 |"])

    def test_a_row_that_is_run_in_another_way_now_has_no_figures(self):
        self.assertEqual(self.line({**self.RESULT, "how": "y"}), ["-"] * 5 + ["- |"])

    def test_a_page_has_counts_and_what_did_not_hold(self):
        def lines(**changed):
            return soak.summary([self.SPEC], {"a": {**self.RESULT, **changed}}).splitlines()[2:]
        self.assertTrue(lines()[0].endswith(" | 1,500 kills | 0, none, - |"), lines())
        self.assertEqual(lines()[2], "Run D at C.")
        self.assertIn(" | 1,500 kills (FAILED: x) | ", lines(status="FAILED: x")[0])
        self.assertEqual(lines(how="y")[2], "Run never.")

    def test_it_goes_between_two_markers(self):
        page = f"before\n{soak.BEGIN}\nold\n{soak.END}\nafter\n"
        self.assertEqual(soak.with_table(page, "new\n"),
                         f"before\n{soak.BEGIN}\nnew\n{soak.END}\nafter\n")
        with self.assertRaises(SystemExit):
            soak.with_table("no markers", "new\n")


class RowsTest(unittest.TestCase):
    def test_they_name_binaries_that_cmake_builds(self):
        listed = "".join(path.read_text() for path in HERE.parent.rglob("CMakeLists.txt"))
        for spec in SPECS:
            binary = os.path.basename(spec["command"][0])
            if binary in ("run.sh", "error_returns.py"):
                self.assertTrue(Path(spec["command"][0].format(root=soak.ROOT)).exists())
                continue
            kind, _, stem = binary.removesuffix("_test").partition("_")
            self.assertTrue(re.search(rf"\b{binary}\b", listed)
                            or f"kvkeep_{kind}_test({stem} " in listed, binary)

    def test_each_is_known_by_one_name(self):
        self.assertEqual(len(SPECS), len({spec["id"] for spec in SPECS}))

    def test_each_finds_its_figures_in_what_its_program_printed(self):
        for spec in SPECS:
            figures = [name for name in ("cycles", *soak.COLUMNS)
                       if spec.get(name, soak.ASSERTED) != soak.ASSERTED]
            with self.subTest(row=spec["id"]):
                if not figures and not spec.get("told"):
                    self.assertNotIn(spec["id"], RECORDED)
                    continue
                text, wanted, told = RECORDED[spec["id"]]
                taken = soak.Row(spec, Path("/"))
                self.assertTrue(taken.take(0, text), taken.result["status"])
                self.assertEqual({name: taken.result[name] for name in figures}, wanted)
                self.assertEqual(taken.result["told"], told)

    def test_the_page_shows_what_is_kept(self):
        page = (HERE.parent / "README.md").read_text()
        block = soak.summary(SPECS, soak.load(HERE / "soak.json"))
        self.assertEqual(page, soak.with_table(page, block),
                         "run tests/soak/soak.py --write tests/README.md")


if __name__ == "__main__":
    unittest.main()
