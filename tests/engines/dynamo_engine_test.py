#!/usr/bin/env python3
"""Dynamo's own indexer fed by a vLLM engine's own events, with kvkeep's direct connector below it.

    KVKEEP_DYNAMO_PYTHON=$(tests/engines/venv dynamo) \\
      $(tests/engines/venv vllm) tests/engines/dynamo_engine_test.py --root . --build build/release

The connector reports chunks by vLLM's stream ("events": "engine"). Dynamo counts them as the
engine's tokens in DRAM, up to the last whole chunk, and stops counting what the daemon has lost.
"""

import os
import sys
import time
import unittest

import dynamo_events_test
import vllm_engine
import vllm_engine_test as engines
from engine_process import PROMPTS

PYTHON = os.environ.get("KVKEEP_DYNAMO_PYTHON")
# An indexer that missed an engine's first message takes none of the others.
SUBSCRIBES_WITHIN_S = 3


@unittest.skipUnless(PYTHON, "KVKEEP_DYNAMO_PYTHON: no Dynamo")
class DynamoHearsVllm(unittest.TestCase):
    SCRIPT, setUp = engines.VllmEngine.SCRIPT, engines.VllmEngine.setUp
    daemon, engine = engines.VllmEngine.daemon, engines.VllmEngine.engine

    def test_the_indexer_knows_what_the_engine_would_load(self):
        port, daemon = dynamo_events_test.free_port(), self.daemon()
        asked = self.engine(daemon.endpoint, gpu=24 << 20, events=f"tcp://*:{port}",
                            direct={"events": "engine", "max_pinned_part": 0.5})
        indexer = dynamo_events_test.Indexer(f"tcp://127.0.0.1:{port}", PYTHON,
                                             vllm_engine.BLOCK_TOKENS)
        self.addCleanup(indexer.process.wait)
        self.addCleanup(indexer.process.terminate)
        others = iter(range(100, 1000))

        def known(prompt):
            return indexer.tiers(engines.prompt_named(prompt))

        def ask_another():
            """An idle engine reports nothing, and six prompts later it has none of the earlier ones
            itself."""
            asked.ask(f"p{next(others)}", quiet=True)

        time.sleep(SUBSCRIBES_WITHIN_S)
        for prompt in PROMPTS:
            asked.ask(prompt)
        whole = engines.CHUNKS * vllm_engine.CHUNK_TOKENS

        def becomes(tokens):
            ask_another()
            said = [known(prompt) for prompt in PROMPTS]
            return [(one.get("gpu", 0), one.get("cpu", 0)) for one in said] == [(0, tokens)] * 3

        dynamo_events_test.until(lambda: becomes(whole), "what is stored is known")
        daemon.clear()
        dynamo_events_test.until(lambda: becomes(0), "what is gone is known")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *engines.ASKED.tests])
