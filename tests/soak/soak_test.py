"""soak.py on rows of its own: what holds, fails, hangs, is skipped, is not there."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


def row(name, script, **more):
    return {"name": name, "matrix": "0", "injection": "none", "weight": 1, "judges": ["wrong"],
            "command": ["/bin/sh", "-c", script], **more}


class SoakTest(unittest.TestCase):
    def soak(self, rows, *arguments):
        with tempfile.TemporaryDirectory() as name:
            out = Path(name)
            (out / "rows.json").write_text(json.dumps(rows))
            ended = subprocess.run(
                [sys.executable, "-B", HERE / "soak.py", "--rows", out / "rows.json", "--out", out,
                 *arguments], capture_output=True, text=True, check=False)
            report = out / "soak.json"
            table = json.loads(report.read_text())["rows"] if report.exists() else []
            return ended, {r["row"]: r for r in table}

    def test_a_row_runs_with_one_seed_after_the_other_and_its_cycles_are_summed(self):
        ended, rows = self.soak([row("a", "echo {seed} did 5 cycles, wrong 0; sleep 0.4",
                                     cycles=r"did (\d+)", wrong=r"wrong (\d+)")],
                                "--budget", "4", "--seed", "7")
        self.assertEqual(ended.returncode, 0)
        self.assertEqual(rows["a"]["seeds"][:2], [7, 8])
        self.assertEqual(rows["a"]["cycles"], 5 * rows["a"]["runs"])
        self.assertEqual((rows["a"]["wrong"], rows["a"]["hangs"]), (0, "-"))
        self.assertEqual(rows["a"]["status"], "held")

    def test_what_fails_is_said_and_ends_the_row_but_not_the_others(self):
        ended, rows = self.soak([row("bad", "echo wrong 3; exit 1", wrong=r"wrong (\d+)"),
                                 row("good", "sleep 1")], "--budget", "2")
        self.assertEqual(ended.returncode, 1)
        self.assertTrue(rows["bad"]["status"].startswith("FAILED: exit status 1"))
        self.assertEqual((rows["bad"]["wrong"], rows["bad"]["runs"]), (3, 1))
        self.assertEqual(rows["good"]["status"], "held")

    def test_what_did_not_run_says_so(self):
        missing = {**row("missing", ""), "command": ["/nowhere/at_all"]}
        _, rows = self.soak([missing, row("skips", "echo 'skipped: needs root'; sleep 1"),
                             row("other", "true")], "--budget", "2", "missing", "skips")
        self.assertEqual(rows["missing"]["status"], "did not run: at_all is not built")
        self.assertEqual(rows["missing"]["wrong"], "-")
        self.assertTrue(rows["skips"]["status"].startswith("skipped in part: needs root"))
        self.assertEqual(rows["other"]["status"], "did not run: not asked for")

    def test_a_row_that_is_not_known_is_an_error(self):
        ended, _ = self.soak([row("a", "true")], "b")
        self.assertEqual(ended.returncode, 2)

    def test_the_real_rows_name_binaries_that_cmake_builds(self):
        listed = "".join(path.read_text() for path in HERE.parent.rglob("CMakeLists.txt"))
        for spec in json.loads((HERE / "rows.json").read_text()):
            binary = os.path.basename(spec["command"][0])
            if binary == "run.sh":
                continue
            kind, _, stem = binary.removesuffix("_test").partition("_")
            self.assertTrue(binary in listed or f"kvkeep_{kind}_test({stem} " in listed, binary)


if __name__ == "__main__":
    unittest.main()
