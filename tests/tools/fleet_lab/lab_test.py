#!/usr/bin/env python3
"""A short run of the whole lab: chunks come from peers and from G4, under faults; and a wrong byte
that was put on purpose is found. Reads from a peer beside a bare stream. lab_test.py BUILD_TREE"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import path

BUILD = pathlib.Path()
PATIENCE_S = 800
# Without costs: a read that a busy machine makes late tells the daemon that reads are not worth it.
SHORT = ["--no-cost", "--chunk-bytes", "64KiB", "--g2", "64MiB", "--g3", "64MiB", "--bins", "20",
         "--move", "0.5", "--pause-seconds", "1", "--timeout", "3", "--slack", "2"]


class LabTest(unittest.TestCase):
    def setUp(self):
        self.out = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def lab(self, *options):
        """Returns the exit status, what was printed, and the report, if there is one."""
        done = subprocess.run(
            [sys.executable, "-B", path.ROOT / "tools/fleet_lab/fleet_lab.py", "--build", BUILD,
             "--out", self.out, *options], capture_output=True, text=True, timeout=PATIENCE_S,
            check=False)
        file = self.out / "report.json"
        said = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        return done.returncode, done.stdout + done.stderr, said

    def test_a_short_run_with_faults(self):
        code, printed, said = self.lab(*SHORT, "--requests", "250", "--seconds", "10", "--g4",
                                       "directory", "--faults", "demo")
        self.assertEqual(code, 0, printed)
        self.assertEqual(said["wrong_bytes"], 0, printed)
        self.assertEqual(said["late"] + said["hung"], 0, printed)
        self.assertEqual(said["failures"], [])
        self.assertEqual(len(said["faults"]), 17, printed)
        sources = said["sources"]
        self.assertEqual(sum(sources.values()), said["asked"])
        for source in ("g2", "peer", "g4", "recomputed"):
            self.assertGreater(sources[source], 0, printed)
        self.assertGreater(said["got"], 0)
        for node in said["nodes"].values():
            self.assertEqual(sum(sum(one.values()) for one in node["sources_over_time"]),
                             node["asked"])
        self.assertGreater(min(said["moved_bytes"][f"{one} to {other}"] for one in "abc"
                               for other in "abc" if one != other), 0)
        self.assertIn("kill b", (self.out / "report.svg").read_text(encoding="utf-8"))
        self.assertIn("| peer |", (self.out / "report.md").read_text(encoding="utf-8"))

    def test_a_wrong_byte_is_found(self):
        code, printed, said = self.lab(*SHORT, "--requests", "60", "--seconds", "2", "--g4", "none",
                                       "--faults", "none", "--no-namespaces", "--mutate", "0.2")
        self.assertEqual(code, 1, printed)
        self.assertGreater(said["wrong_chunks"], 0)
        self.assertEqual(said["wrong_bytes"], said["wrong_chunks"])  # one in each
        self.assertIn("FAILED", printed)

    def test_reads_from_a_peer_are_measured_beside_a_bare_stream(self):
        file = self.out / "reads.json"
        done = subprocess.run(
            [sys.executable, "-B", path.ROOT / "tools/fleet_lab/peer_reads.py", "--build", BUILD,
             "--mib", "1,9", "--chunk-bytes", "1MiB", "--rounds", "2", "--json", file],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("9 MiB", done.stdout)
        for one, size in zip(json.loads(file.read_text(encoding="utf-8")), (1, 9)):
            self.assertEqual((one["bytes"], one["wrong_chunks"]), (size << 20, 0))
            self.assertGreater(one["ratio"]["min"], 0)

    def test_wrong_usage(self):
        script = self.out / "script"
        script.write_text("1 burn a\n", encoding="utf-8")
        code, printed, _ = self.lab("--faults", script)
        self.assertEqual((code, "line 1" in printed), (2, True), printed)
        self.assertEqual(self.lab("--requests", "0")[0], 2)
        for size in ("0", "x"):
            done = subprocess.run(
                [sys.executable, "-B", path.ROOT / "tools/fleet_lab/peer_reads.py", "--mib", size],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
