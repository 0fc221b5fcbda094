#!/usr/bin/env python3
"""The comparison as a whole: compare_test.py BUILD. Checks that it compares what it says, notices a
wrong byte, and prints the contestants. The figures themselves are not checked."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from made_up import COMPARE

DICTIONARY = pathlib.Path(__file__).resolve().parent / "dictionary"
EVERYBODY = ("memcpy", "kvkeep local", "kvkeep staging", "kvkeep gRPC", "kvkeep TCP",
             "gRPC stream", "files", "Mooncake")
SMALL = ["--region-mib=32", "--sizes=1MiB", "--seconds=0.02", "--no-nvme"]
BUILD = None


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.environment = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.environment / "bin").mkdir()
        os.symlink(sys.executable, self.environment / "bin/python3")
        self.figures = self.environment / "figures.json"

    def compare(self, *arguments, code=0, **environment):
        """Returns its output: tables and progress. The scratch directory stays as it was."""
        ran = subprocess.run(
            [sys.executable, "-B", COMPARE / "compare.py", f"--build={BUILD}", "--peers",
             DICTIONARY, "--scratch", self.scratch, "--json", self.figures, *SMALL, *arguments],
            capture_output=True, text=True, check=False, env={**os.environ, **environment})
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        self.assertEqual(list(self.scratch.iterdir()), [])
        return ran.stdout, ran.stderr

    def read(self):
        return json.loads(self.figures.read_text())

    def test_everybody_is_compared_and_what_is_left_out_is_said(self):
        out, err = self.compare("--mooncake", self.environment, "--sizes=1MiB,300000",
                                "--capacity-mib=96", "--rounds=2")
        self.assertIn("wrong bytes: 0", out)
        self.assertIn("LMCache is not there", err)
        self.assertIn("kvkeep staging / Mooncake", out)
        found = self.read()
        self.assertEqual([one["operation"] for one in found["disciplines"]],
                         2 * ["first put", "get", "lookup+get", "put"] + ["lookup"])
        self.assertEqual(found["about"]["Mooncake"], "of a dictionary")
        self.assertEqual("Redis" in found["names"], shutil.which("redis-server") is not None)
        for one in found["disciplines"]:
            self.assertEqual(len(one["times_as_fast"]), 2)  # of two paths; LMCache is not there
            self.assertGreater(one["times_as_fast"]["kvkeep local / Mooncake"]["median"], 0)
            for name in EVERYBODY:
                with self.subTest(operation=one["operation"], name=name):
                    self.check_result(one["operation"], name, one["results"][name])
        picture = self.figures.with_suffix(".svg").read_text()
        self.assertIn("kvkeep staging, 1 MiB", picture)
        self.assertIn("Mooncake, 1 MiB", picture)

    def check_result(self, operation, name, result):
        """Checks that each present peer measured something, and printed what it must."""
        self.assertEqual(result["rounds"], 2)
        self.assertGreater(result["calls"], 0)
        self.assertGreater(result["p50_us"]["median"], 0)
        if operation == "lookup":
            return
        self.assertGreater(result["gb_per_second"]["median"], 0)
        self.assertGreater(result["client_cpu_seconds_per_gb"], 0)
        self.assertEqual(result["server_cpu_seconds_per_gb"] > 0,
                         name not in ("files", "memcpy", "Mooncake"))
        self.assertEqual(result["verified_bytes"] > 0,
                         name != "gRPC stream" and operation != "first put")
        if name == "memcpy":
            self.assertEqual(result["ratio"]["median"], 1)

    def test_a_wrong_byte_is_an_exit_code(self):
        out, _ = self.compare("--mooncake", self.environment, "--only=memcpy,Mooncake",
                              "--capacity-mib=64", "--rounds=1", code=1, SPOILT_GET="3")
        self.assertIn("wrong bytes: 1\n", out)
        self.assertEqual(sum(one["results"]["Mooncake"]["wrong_bytes"]
                             for one in self.read()["disciplines"]), 1)

    def test_a_peer_that_does_not_start_is_absent_and_its_last_words_are_said(self):
        out, err = self.compare("--only=memcpy,LMCache", "--lmcache", self.environment,
                                "--capacity-mib=64", "--batches=1,8,64", "--rounds=5")
        self.assertIn("LMCache is not there", err)
        self.assertIn("lmcache_peer.py", err)  # Python names what it did not find
        self.assertIn("8 x 1.0 MiB", out)
        self.assertNotIn("64 x 1.0 MiB", out)  # more than a region
        # 32 MiB in calls of eight: no fifth round, instead of one of nothing.
        first_put = self.read()["disciplines"][4]
        self.assertEqual(first_put["operation"], "first put")
        self.assertEqual(first_put["results"]["memcpy"]["rounds"], 4)
        self.assertGreater(first_put["results"]["memcpy"]["gb_per_second"]["min"], 0)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
