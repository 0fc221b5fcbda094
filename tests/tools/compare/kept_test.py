#!/usr/bin/env python3
"""The kept figures are of a run of today's tool: they have exactly the keys that it writes. Red:
keep a new run (tools/compare/README.md). peers.json is of an older run and not checked."""

import json
import unittest

from made_up import COMPARE, ROOT, discipline, nvme_result
from about import about
import compare
from contest import GRPC, LOCAL, MEMCPY, STAGING, STREAM
from figures import MIB
from report import Comparison, document

OF_NAMES = ("results", "times_as_fast", "of_stream")  # contestants, and pairs of them


def keys_of(value, path=""):
    """Returns "a.b" and "a[].b"; names are "*"."""
    found = set()
    if isinstance(value, list):
        for entry in value:
            found |= keys_of(entry, path + "[]")
    elif isinstance(value, dict):
        for key, below in value.items():
            name = f"{path}.{'*' if path.endswith(OF_NAMES) else key}".lstrip(".")
            found |= {name} | keys_of(below, name)
    return found


class KeptTest(unittest.TestCase):
    def test_the_kept_comparison_has_what_a_run_of_the_tool_writes(self):
        options, plan = compare.parse([f"--build={ROOT}"])
        names = [MEMCPY, LOCAL, STAGING, GRPC, STREAM]  # of a run without peers
        written = document(Comparison(
            about(options, plan, 1.0), names,
            [discipline("get", 4 * MIB, 1, dict.fromkeys(names, 1))], [nvme_result(4 * MIB, 1, 1)]))
        kept = json.loads((COMPARE / "compare.json").read_text())
        self.assertEqual(keys_of(kept), keys_of(written))
        # And an ordinary run's options.
        self.assertEqual({one["operation"] for one in kept["disciplines"]},
                         {"first put", "get", "lookup", "lookup+get", "put"})
        self.assertGreaterEqual(kept["about"]["rounds"], 9)


if __name__ == "__main__":
    unittest.main()
