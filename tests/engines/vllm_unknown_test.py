#!/usr/bin/env python3
"""A real vLLM of a version that engine_facts.py is made to forget. The engine starts with kvkeep,
returns the same tokens as without, and nothing is kept or found.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_unknown_test.py --root SOURCES --build build/release      (with that environment's Python)

Needs the targets kvkeep_c, kvkeepd and kvkeep. About two minutes.
"""

import os
import sys
import unittest
from unittest import mock

import vllm_engine_test
from engine_process import PROMPTS

ASKED = vllm_engine_test.ASKED


class UnknownVllm(vllm_engine_test.VllmEngine):
    SCRIPT = __file__

    def test_nothing_is_kept_or_found(self):
        self.expect(PROMPTS)
        daemon = self.daemon()
        for options in ({}, vllm_engine_test.DIRECT):
            for _ in range(2):
                made = self.engine(daemon.endpoint, **options)
                for prompt in PROMPTS:
                    self.check(made, prompt, recalled=False)
                self.assertEqual(made.said().count("IS NOT KNOWN"), 1, made.said())
                made.close()
        self.assertEqual(daemon.status()["g2"]["chunks"], 0)

    def test_an_operator_may_have_it_refused(self):
        daemon = self.daemon()
        with mock.patch.dict(os.environ, KVKEEP_UNCHECKED_ENGINE="refuse"):
            for options in ({}, vllm_engine_test.DIRECT):
                with self.assertRaisesRegex(AssertionError, "vllm .* is not known"):
                    self.engine(daemon.endpoint, **options)


def load_tests(loader, tests, pattern):
    """Runs the tests of this file, and not those that it imports from vllm_engine_test."""
    del loader, tests, pattern
    return unittest.TestSuite(UnknownVllm(name) for name in (
        "test_nothing_is_kept_or_found", "test_an_operator_may_have_it_refused"))


if __name__ == "__main__":
    if ASKED.engine:
        from kvkeep import engine_facts

        engine_facts.KNOWN["vllm"] = engine_facts.KNOWN["vllm"][1:]  # as a kvkeep of before
        vllm_engine_test.engine(ASKED.engine)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
