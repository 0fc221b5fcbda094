#!/usr/bin/env python3
"""Real vLLM engines on a CPU at three nodes of a fleet: what one node computed, the others recall.

    vllm_moved_test.py --root SOURCES --build build/release
                                                 (with vLLM's Python, as tests/engines/run has it)

Runs tools/engine-bench's scenario `moved` as a toy, which fails by itself if tokens differ. Here:
the whole prompt came, by the peer and, once the peer is gone, by G4.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import engine_process

ROUNDS = 2


class MovedPrompts(unittest.TestCase):
    def recalled(self, arm):
        with tempfile.TemporaryDirectory() as scratch:
            out = pathlib.Path(scratch, "moved.json")
            subprocess.run([
                sys.executable, "-B", asked.root / "tools" / "engine-bench" / "engine_bench.py",
                "moved", "--quick", "--rounds", str(ROUNDS), "--arms", arm, "--root", asked.root,
                "--build", asked.build, "--json", out], check=True)
            return json.loads(out.read_text(encoding="utf-8"))["rows"]

    def check(self, arm):
        rows = self.recalled(arm)
        shares = {(row["arm"], row["round"]): row["hit_ratio"] for row in rows}
        for number in range(ROUNDS):
            own = shares["own NVMe", number]
            self.assertGreater(own, 0.8)
            for other in ("peer", "G4"):
                self.assertGreaterEqual(shares[other, number], own, other)

    def test_the_tier_recalls_what_another_node_computed(self):
        self.check("kvkeep")

    def test_the_direct_connector_recalls_what_another_node_computed(self):
        self.check("direct")


if __name__ == "__main__":
    asked = engine_process.arguments(__doc__, engine=False)
    unittest.main(argv=[sys.argv[0], "-v", *asked.tests])
