#!/usr/bin/env python3
"""tools/gpu-check on the fake driver: it runs to its end, fails where it should, keeps nothing.

Figures of the fake mean nothing; they only have to exist.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASKED = argparse.ArgumentParser()
ASKED.add_argument("--build", type=pathlib.Path, required=True)
ASKED, REST = ASKED.parse_known_args()


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.out = pathlib.Path(scratch.name)

    def check(self, *arguments, settings="", **environment):
        (self.out / "settings").write_text(settings)
        env = dict(os.environ, KVKEEP_FAKE_CUDA=str(self.out / "settings"), **environment)
        return subprocess.run(
            [sys.executable, "-B", str(ROOT / "tools" / "gpu-check"), "--build", str(ASKED.build),
             "--mib", "8", "--rounds", "2", "--torch-python", "/nonexistent/python", *arguments],
            env=env, capture_output=True, text=True, timeout=800, check=False)

    def dry_run(self, settings="", *arguments, **environment):
        return self.check("--dry-run", "--out", str(self.out / "kept"), *arguments,
                          settings=settings, **environment)

    def result(self):
        [kept] = (self.out / "kept").glob("*.json")
        return json.loads(kept.read_text())

    def test_a_dry_run_has_every_figure_and_a_table(self):
        ran = self.dry_run()
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        result = self.result()
        self.assertEqual(result["conformance"]["failed"], [])
        self.assertGreater(result["conformance"]["passed"], 25)
        sizes = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]
        self.assertEqual([(row["direction"], row["run_bytes"]) for row in result["copies"]],
                         [(way, size) for way in ("h2d", "d2h") for size in sizes])
        for row in result["copies"]:
            for name in ("plain_gb_s", "loop_gb_s", "batch_gb_s", "batch_of_plain"):
                self.assertGreater(row[name], 0)
        self.assertGreater(result["handles"]["open_us"], 0)
        self.assertEqual([row["pages"] for row in result["registration"]],
                         ["4 KiB", "THP", "2 MiB", "4 KiB"])
        for row in result["registration"]:
            self.assertTrue("gb_s" in row or row["refused"], row)
        for row in (result["registration"][0], result["registration"][3]):
            self.assertEqual(row["huge_page_bytes"], 0)
        # The example itself: torch_example_test.py.
        self.assertIn("/nonexistent/python", result["torch_example"]["not_run"])
        self.assertIn("The torch example was not run: ", ran.stdout)
        for path in ("cuda-ipc", "pinned"):
            lines = result["paths"][path]["lines"]
            self.assertEqual({(line["direction"], line["run_bytes"]) for line in lines},
                             {(way, size) for way in ("h2d", "d2h")
                              for size in (4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20)})
            for line in lines:
                self.assertGreater(line["of_plain"], 0)
                self.assertEqual(line["target"] != "", line["verdict"] != "told")
        self.assertIn("daemon_gpu_bytes", result["paths"]["cuda-ipc"])
        self.assertIn("The daemon's context takes ", ran.stdout)
        [table] = (self.out / "kept").glob("*.md")
        self.assertIn("| h2d | 64 KiB |", table.read_text())
        self.assertIn("kvkeep, cuda-ipc: GB/s", table.read_text())
        self.assertIn(table.read_text().strip(), ran.stdout)
        if shutil.which("fio") is None:
            self.skipTest("there is no fio here, and so no figure of NVMe")
        self.check_g3(result["g3"])

    def check_g3(self, measured):
        self.assertEqual([(line["size"], line["run_bytes"]) for line in measured["lines"]],
                         [(8 << 20, 1 << 20), (8 << 20, 4 << 20)])
        for line in measured["lines"]:
            self.assertGreater(line["of_fio"], 0)
            self.assertGreater(line["fio_gb_s"], 0)
            self.assertGreaterEqual(line["from_g3"], 0.99)
            self.assertEqual((line["verified_bytes"], line["wrong_bytes"]), (line["bytes"], 0))
            self.assertEqual(line["verdict"], "told")  # the promise is about 32 MiB

    def test_what_is_missing_is_said_and_the_rest_is_measured(self):
        """An old driver has no batches; without fio nothing is reported of a drive."""
        ran = self.dry_run("version 12000\n", PATH=str(self.out))
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("| none |", ran.stdout)
        self.assertNotIn("batch_gb_s", self.result()["copies"][0])
        self.assertIn("there is no fio", self.result()["g3"]["not_run"])
        self.assertIn("From NVMe to the GPU was not measured: there is no fio", ran.stdout)

    def test_a_rule_that_does_not_hold_is_named_and_fails(self):
        ran = self.dry_run("fail cuPointerGetAttribute 999\n")
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(self.result()["conformance"]["failed"],
                         ["an address tells its device, and one of the host none"])
        self.assertIn("does not hold: an address tells", ran.stdout)

    def test_what_is_refused_is_in_the_table_and_fails(self):
        """Refusals by the driver, and of a drive that is absent."""
        ran = self.dry_run("read_only_register 0\n", "--g3-dir", str(self.out / "nowhere"))
        self.assertIn("| 4 KiB | read-only | 0 MiB | refused: ", ran.stdout, ran.stderr)
        self.assertIn("kvkeep, pinned: not to be had: ", ran.stdout)
        self.assertIn("lines", self.result()["paths"]["cuda-ipc"])
        if shutil.which("fio") is not None:
            self.assertIn("nowhere", self.result()["g3"]["failed"])
            self.assertIn("From NVMe to the GPU FAILED: ", ran.stdout)
        self.assertEqual(ran.returncode, 1)

    def test_figures_of_the_fake_are_never_kept(self):
        before = sorted((ROOT / "tests" / "gpu").rglob("*"))
        ran = self.check("--dry-run")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("not kept", ran.stderr)
        # Not even if the fake answers what is meant for a real one.
        ran = self.check("--out", str(self.out / "kept"),
                         LD_LIBRARY_PATH=str(ASKED.build / "fake-cuda"))
        self.assertEqual(ran.returncode, 1)
        self.assertIn("ask for --dry-run", ran.stderr)
        self.assertFalse((self.out / "kept").exists())
        self.assertEqual(sorted((ROOT / "tests" / "gpu").rglob("*")), before)

    def test_without_a_build_it_says_what_to_build(self):
        ran = subprocess.run([sys.executable, "-B", str(ROOT / "tools" / "gpu-check"), "--build",
                              str(self.out)], capture_output=True, text=True, timeout=60,
                             check=False)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("gpu_measure", ran.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *REST])
