#!/usr/bin/env python3
"""tools/gpu-serve itself, as a toy on a CPU with real daemons: all arms say the same tokens, and
kvkeep's arms recall what the others compute. Once by shared memory, once by CUDA IPC on the fake
driver. Figures mean nothing; they only have to exist.

    run_test.py --build DIR

Needs a Python with torch (tests/gpu/torch_found.py). Exit 77: there is none.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import torch_found  # noqa: E402

ASKED = argparse.ArgumentParser()
ASKED.add_argument("--build", type=pathlib.Path, required=True)
ASKED, REST = ASKED.parse_known_args()
SKIPPED = 77
TORCH_PYTHON = torch_found.torch_python()
FAKE_DRIVER = ASKED.build / "fake-cuda" / "libcuda.so.1"
ARMS = ["recompute", "gpu", "kvkeep-g2", "kvkeep-g3"]


class GpuServeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name, "toy.json")

    def serve(self, *words):
        return subprocess.run(
            [sys.executable, "-B", ROOT / "tools" / "gpu-serve", "--build", ASKED.build, "--out",
             self.out, "--g3-dir", self.out.parent, "--torch-python", TORCH_PYTHON, "--threads",
             "1", "--shape", "tiny", *words],
            capture_output=True, text=True, timeout=240, check=False)

    def check(self, document, path, arms):
        rows = {row["arm"]: row for row in document["rows"]}
        self.assertEqual(list(rows), arms)
        for arm, same in document["differences"]["3"].items():
            # Also those of the first round; an engine that keeps nothing is first.
            self.assertEqual((same["than"], same["asked"], same["equal"]), ("recompute", 9, 9), arm)
        recompute = rows["recompute"]
        self.assertEqual(recompute["prefilled_tokens"], recompute["prompt_tokens"])
        self.assertEqual(recompute["hit_ratio"], 0)
        for arm in (arm for arm in arms if arm.startswith("kvkeep")):
            row = rows[arm]
            self.assertGreater(row["hit_chunks"], 0)
            self.assertEqual((row["lost_chunks"], row["refused_chunks"]), (0, 0))
            self.assertLess(row["prefilled_tokens"], recompute["prefilled_tokens"] / 2)
            if "gpu" in rows:  # its pool is too small to keep all of it
                self.assertGreater(row["hit_ratio"], rows["gpu"]["hit_ratio"])
            self.assertIn(path, document["facts"][arm]["path"])
            if arm == "kvkeep-g2":
                self.assertEqual(row["from_g3_chunks"], 0)
        self.assertGreater(rows["kvkeep-g3"]["from_g3_chunks"], 0)
        for row in document["lengths"]:
            self.assertEqual((row["equal"], row["same_kv"]), (True, True))
            chunks = (row["tokens"] - 1) // 32
            self.assertEqual((row["g2_recalled"], row["nvme_recalled"]), (32 * chunks, 32 * chunks))
            self.assertEqual((row["g2_from_g3_chunks"], row["nvme_from_g3_chunks"]), (0, chunks))
        self.assertEqual([row["tokens"] for row in document["lengths"]], [64, 128])

    def test_all_arms_say_the_same_and_kvkeeps_recall(self):
        ran = self.serve("--check")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.check(json.loads(self.out.read_text()), "shared memory, as there is no CUDA device",
                   ARMS)
        self.assertIn("| kvkeep-g3 | 3 |", self.out.with_suffix(".md").read_text())
        self.assertIn("</svg>", self.out.with_suffix(".svg").read_text())
        # It is done: nothing is measured again. Other settings are refused.
        again = self.serve("--check")
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertNotIn("gpu-serve: recompute", again.stdout)
        self.assertEqual(self.serve("--check", "--seed", "1").returncode, 2)

    @unittest.skipUnless(FAKE_DRIVER.exists(), "not built with CUDA's headers")
    def test_the_daemon_copies_from_and_to_a_gpus_memory(self):
        arms = ["recompute", "kvkeep-g3"]
        words = [word for arm in [*arms, "lengths"] for word in ("--arm", arm)]
        ran = self.serve("--check", "--dry-run", *words)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.check(json.loads(self.out.read_text()), "CUDA IPC", arms)

    def test_a_run_ends_in_time_and_the_next_one_goes_on(self):
        ran = self.serve("--minutes", "0.01", "--arm", "recompute")
        self.assertEqual(ran.returncode, 3, ran.stdout + ran.stderr)
        self.assertEqual(json.loads(self.out.read_text())["rows"], [])
        ran = self.serve("--arm", "recompute")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertEqual([row["arm"] for row in json.loads(self.out.read_text())["rows"]],
                         ["recompute"])

    def test_the_engines_parts(self):
        ran = subprocess.run([TORCH_PYTHON, "-B", HERE / "engine_parts.py", ROOT],
                             capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)


if __name__ == "__main__":
    if TORCH_PYTHON is None:
        print(f"skipped: {torch_found.NONE}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *REST])
