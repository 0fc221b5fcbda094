#!/usr/bin/env python3
"""The torch example as tools/gpu-check runs it, dry: on the fake driver, with real torch tensors of
the CPU in its device memory. A prompt's paged KV goes from one process to another, which has the
same bytes and computes the same logits.

Needs a Python with torch (torch_found.py). Without one, tests that need it are skipped with a
message: exit 77 if the rest is good.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gpu_check_torch  # noqa: E402
import torch_found  # noqa: E402

ASKED = argparse.ArgumentParser()
ASKED.add_argument("--build", type=pathlib.Path, required=True)
ASKED, REST = ASKED.parse_known_args()
SKIPPED = 77
EXAMPLE = ROOT / "client" / "python" / "examples" / "torch_paged_kv.py"


TORCH_PYTHON = torch_found.torch_python()
NEEDS_TORCH = unittest.skipIf(TORCH_PYTHON is None, torch_found.NONE)


def figures(**changed):
    return dict(tokens=512, restored_tokens=512, stored_chunks=2, kv="a", next_token=1) | changed


class TorchExampleTest(unittest.TestCase):
    @NEEDS_TORCH
    def test_a_second_process_gets_the_kv_of_the_first_and_says_the_same(self):
        result = gpu_check_torch.run(ASKED.build, TORCH_PYTHON, dry_run=True)
        self.assertEqual(set(result), {"first", "second", "times_faster"}, result)
        first, second = result["first"], result["second"]
        self.assertEqual((first["restored_tokens"], first["stored_chunks"]), (0, 2))
        self.assertEqual((second["restored_tokens"], second["stored_chunks"]), (512, 0))
        for same in ("kv", "logits", "next_token"):  # on a CPU also the logits
            self.assertEqual(first[same], second[same])
        self.assertGreater(second["runs_a_chunk"], 2 * 2)  # blocks are apart
        for name in ("ttft_s", "full_prefill_ttft_s", "restore_s"):
            self.assertGreater(second[name], 0)
        self.assertIn("A second process has the first one's bytes",
                      " ".join(gpu_check_torch.lines(result)))

    @NEEDS_TORCH
    @unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="",
                              PYTHONPATH=str(ROOT / "client" / "python"))
    def test_without_cuda_the_example_and_the_step_say_so(self):
        ran = subprocess.run([TORCH_PYTHON, "-B", EXAMPLE], capture_output=True, text=True,
                             timeout=100, check=False)
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertIn("finds no GPU that it can use", ran.stderr)
        result = gpu_check_torch.run(ASKED.build, TORCH_PYTHON, dry_run=False)
        self.assertIn("finds no GPU that it can use", result["not_run"])

    def test_without_torch_the_step_says_so(self):
        result = gpu_check_torch.run(ASKED.build, "/nonexistent/python", dry_run=True)
        self.assertIn("/nonexistent/python", result["not_run"])
        self.assertIn("was not run: ", " ".join(gpu_check_torch.lines(result)))

    def test_one_that_says_nothing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            silent = pathlib.Path(folder, "python")
            silent.write_text("#!/bin/sh\n")
            silent.chmod(0o755)
            self.assertIn("does not say which torch", gpu_check_torch.why_not(silent, True))
            daemon = unittest.mock.Mock(endpoint="unix:///none")
            with self.assertRaisesRegex(gpu_check_torch.Broken, "printed no figures"):
                gpu_check_torch.one_process([str(silent)], ASKED.build, daemon)

    def test_what_is_not_as_it_must_be_is_named(self):
        cold = figures(restored_tokens=0)
        gpu_check_torch.check(cold, figures())
        for first, second, words in ((figures(), figures(), "the first process got 512"),
                                     (figures(restored_tokens=0, stored_chunks=0), figures(),
                                      "stored 0 chunks"),
                                     (cold, figures(restored_tokens=256), "got 256 of 512"),
                                     (cold, figures(kv="b"), "other bytes"),
                                     (cold, figures(next_token=2), "another next token")):
            with self.assertRaisesRegex(gpu_check_torch.Broken, words):
                gpu_check_torch.check(first, second)


if __name__ == "__main__":
    RAN = unittest.main(argv=[sys.argv[0], *REST], exit=False).result
    if not RAN.wasSuccessful():
        sys.exit(1)
    if TORCH_PYTHON is None:
        print("skipped: no Python with torch: the example itself was not run")
        sys.exit(SKIPPED)
