#!/usr/bin/env python3
"""Real vLLM engines on a CPU with hybrid models, or with drafters, and kvkeep below them.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_hybrid_test.py --root SOURCES --build build/release       (with that environment's Python)

Half of the model's layers have a window. Prompts end at every block and token around a chunk's end.
The daemon has room for a part of them, so that it evicts chunks of one KV group and keeps those of
the other. The engine, in vLLM's default mode, has room for so few requests that it preempts some.
The tokens are those of vLLM without kvkeep. Tests the direct connector and the tier. With drafters
(n-grams, and a random-weight EAGLE) the tokens are those of vLLM with the same drafter and without
kvkeep. KVKEEP_ROUNDS: number of rounds of four prompts at once (12 by default; up to four times as
many, until a request is preempted); KVKEEP_SEED: which prompts. Needs the targets kvkeep_c, kvkeepd
and kvkeep.
"""

import json
import os
import random
import subprocess
import sys
import unittest

import engine_process
import vllm_asked
import vllm_drafters_on_cpu
import vllm_engine
import vllm_engine_test as engines

BLOCK = vllm_engine.BLOCK_TOKENS
WINDOW = BLOCK * 5 // 2
END = 4 * vllm_engine.CHUNK_TOKENS  # of a chunk
LENGTHS = [END + blocks * BLOCK + tokens for blocks in range(-2, 3) for tokens in range(-2, 3)]
PROMPTS = [f"{number % 5}:{length}" for number, length in enumerate(LENGTHS)]
TOKENS = 48  # of an answer: it ends behind the next block
LAYERS = {"sliding_window": WINDOW, "layer_types": ["full_attention", "sliding_attention"] * 2}
BLOCK_BYTES = 2 * 2 * 4 * 32 * 4 * BLOCK  # of one of two groups
LLM = {"max_model_len": 640, "max_num_batched_tokens": 512}
GPU = 64 * BLOCK_BYTES  # some of four requests together are preempted
LOOKUP = {"lookup_timeout_s": 10}
DIRECT = {"direct": {**LOOKUP, "max_pinned_part": 0.5}}
NGRAMS = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2,
          "prompt_lookup_min": 1}
TIER = {"tiers": [{**vllm_engine.KVKEEP, **LOOKUP}], "cpu": 4 << 20}
SMALL = {"KVKEEP_G2_CAPACITY": "6MiB", "KVKEEP_G2_SEGMENT_BYTES": "2MiB", "KVKEEP_G3_PATHS": "[]"}


class HybridTest(unittest.TestCase):
    SCRIPT = __file__
    EXPECTED = {}  # model: prompt: tokens
    setUp = engines.VllmEngine.setUp
    daemon = engines.VllmEngine.daemon

    def engine(self, endpoint, **options):
        made = engine_process.EngineProcess(
            self.SCRIPT, engines.ASKED, self.model, endpoint, vllm_asked.ENVIRONMENT,
            options={"gpu": GPU, **options, "llm": {**LLM, **options.get("llm", {})}})
        self.addCleanup(made.close)
        return made

    @staticmethod
    def said(asked, prompts):
        return asked.ask(json.dumps({"ask": prompts, "tokens": TOKENS}), quiet=True)

    def expect(self, prompts, of_model, **options):
        """Asks vLLM without kvkeep, one by one; the same in each test of a model."""
        if of_model not in self.EXPECTED:
            plain = self.engine(None, gpu=64 << 20, **options)
            self.EXPECTED[of_model] = {one: self.said(plain, [one])["tokens"][0]
                                       for one in prompts}
            plain.close()
        self.expected = self.EXPECTED[of_model]
        self.assertGreater(len(set(map(tuple, self.expected.values()))), len(prompts) // 2)

    def check(self, asked, prompts):
        said = self.said(asked, prompts)
        for prompt, tokens in zip(prompts, said["tokens"]):
            self.assertEqual(tokens, self.expected[prompt], prompt)
        return said

    def test_direct_hybrid(self):
        self.hybrid(**DIRECT)

    def test_tier_hybrid(self):
        self.hybrid(**TIER)

    def hybrid(self, **options):
        engine_process.make_model(self.model, **LAYERS)
        self.expect(PROMPTS, "hybrid")
        said, cached = self.rounds(self.daemon(**SMALL), options, until_preempted=True)
        self.assertGreater(said["preempted"], 0)
        self.assertGreater(sum(one > 0 for one in cached), len(cached) // 4)

    def test_direct_ngrams(self):
        self.drafts(NGRAMS, "ngrams", **DIRECT)

    def test_tier_ngrams(self):
        self.drafts(NGRAMS, "ngrams", **TIER)

    def test_direct_eagle(self):
        self.drafts(self.eagle(), "eagle", **DIRECT, gpu=GPU * 3 // 2)

    def test_tier_eagle(self):
        self.drafts(self.eagle(), "eagle", **TIER, gpu=GPU * 3 // 2)

    def eagle(self):
        vllm_drafters_on_cpu.make_eagle(f"{self.model}/eagle")
        return {"method": "eagle", "model": f"{self.model}/eagle", "num_speculative_tokens": 2}

    def drafts(self, drafter, name, **options):
        """A hybrid model with such a drafter."""
        engine_process.make_model(self.model, **LAYERS)
        llm = {"llm": {"speculative_config": drafter}}
        self.expect(PROMPTS[::2], name, **llm)
        # There are three or four KV groups, where hybrid models have two.
        said, cached = self.rounds(self.daemon(**{**SMALL, "KVKEEP_G2_CAPACITY": "12MiB"}),
                                   {**options, **llm})
        print({"drafted": said["drafted"], "accepted": said["accepted"]}, flush=True)
        self.assertGreater(said["drafted"], 0)
        self.assertGreater(sum(one > 0 for one in cached), len(cached) // 8)

    def rounds(self, daemon, options, until_preempted=False):
        """Returns the last engine's answers, and how much each request found."""
        rounds = int(os.environ.get("KVKEEP_ROUNDS", "12"))
        seed = int(os.environ.get("KVKEEP_SEED", random.randrange(1 << 30)))
        print(f"KVKEEP_SEED={seed}", flush=True)
        drawn, cached, preempted = random.Random(seed), [], 0
        for _ in range(2):  # the second one has found nothing itself
            asked = self.engine(daemon.endpoint, **options)
            half = (rounds + 1) // 2
            for at in range(4 * half):
                if at % 3 == 2:
                    subprocess.run([*daemon._tool(), "evict", "--yes", "1MiB"], check=True,
                                   capture_output=True)
                said = self.check(asked, drawn.sample(list(self.expected), 4))
                cached += said["cached"]
                if at + 1 >= half and (said["preempted"] or not until_preempted):
                    break
            preempted += said["preempted"]
            asked.close()
        self.assertIsNone(daemon.process.poll())
        tenant = daemon.status()["tenants"][0]
        print({"preempted": preempted, "requests": len(cached), "found": cached,
               "evicted": tenant["g2_evictions"], "failed": said["failed"]}, flush=True)
        self.assertGreater(tenant["g2_evictions"], 10)
        return {**said, "preempted": preempted}, cached


if __name__ == "__main__":
    if engines.ASKED.engine:
        engine_process.serve(vllm_asked.Engine(engines.ASKED.engine).answer)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *engines.ASKED.tests])
