#!/usr/bin/env python3
"""Real vLLM engines on a CPU with kvkeep below them: the tokens are those of vLLM without it.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_engine_test.py --root SOURCES --build build/release       (with that environment's Python)

A random-weight Llama, greedy. Cold; a second engine beside the first; a daemon that is killed while
an engine loads; one that is back; one that is away. Engines are processes of their own. About three
minutes.
"""

import os
import sys
import tempfile
import threading
import time
import unittest

import engine_process
from engine_process import PROMPTS

ASKED = engine_process.arguments(__doc__)
ENVIRONMENT = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
               "VLLM_CPU_CI_ENV": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}


def engine(model):
    """In a process of its own."""
    import vllm_on_cpu  # noqa: F401  # pylint: disable=unused-import
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    transfer = None
    if os.environ.get("KVKEEP_ENDPOINT"):
        transfer = KVTransferConfig(
            kv_role="kv_both", kv_connector="OffloadingConnector", kv_connector_extra_config={
                "spec_name": "HostSpec", "spec_module_path": "vllm_on_cpu",
                "cpu_bytes_to_use": 64 << 20, "blocks_per_chunk": 4,
                "secondary_tiers": [{"type": "KvkeepTier", "module_path": "kvkeep.vllm"}]})
    llm = LLM(model=model, skip_tokenizer_init=True, dtype="float32", enforce_eager=True, seed=0,
              block_size=32, max_model_len=2048, kv_cache_memory_bytes=64 << 20, max_num_seqs=4,
              compilation_config={"custom_ops": ["none"]}, kv_transfer_config=transfer)
    params = SamplingParams(temperature=0, max_tokens=engine_process.ANSWER_TOKENS,
                            detokenize=False, ignore_eos=True)

    def answer(prompt):
        begin = time.monotonic()
        out = llm.generate([{"prompt_token_ids": PROMPTS[prompt]}], params, use_tqdm=False)[0]
        return {"tokens": list(out.outputs[0].token_ids), "cached": out.num_cached_tokens,
                "seconds": round(time.monotonic() - begin, 3)}

    engine_process.serve(answer)


def make_engine(model, endpoint):
    return engine_process.EngineProcess(__file__, ASKED, model, endpoint, ENVIRONMENT)


class VllmEngine(unittest.TestCase):
    def test_tokens_are_those_of_vllm_without_kvkeep(self):
        sys.path.insert(0, str(ASKED.root / "tests" / "client" / "c"))
        from daemon import Daemon

        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        model = holder.name
        engine_process.make_model(model)
        plain = make_engine(model, None)
        expected = {prompt: plain.ask(prompt)["tokens"] for prompt in PROMPTS}
        plain.close()
        self.assertEqual(len({tuple(tokens) for tokens in expected.values()}), len(PROMPTS))

        daemon = Daemon(ASKED.build / "bin" / "kvkeepd")
        daemon.start()
        self.addCleanup(daemon.__exit__)

        def check(asked, prompt, recalled):
            said = asked.ask(prompt)
            self.assertEqual(said["tokens"], expected[prompt])
            self.assertEqual(said["cached"] >= 800, recalled, said)

        first = make_engine(model, daemon.endpoint)
        for prompt in PROMPTS:
            check(first, prompt, recalled=False)
        daemon.wait_clean(len(PROMPTS) * (1000 // 128))  # vLLM stores behind its answers
        second = make_engine(model, daemon.endpoint)  # beside the first
        check(second, "p0", recalled=True)
        # Killed at some moment of a load: hit or miss, but never other tokens, nor a hang.
        killer = threading.Timer(0.03, daemon.kill)
        killer.start()
        self.assertEqual(second.ask("p1")["tokens"], expected["p1"])
        killer.join()
        self.assertEqual(second.ask("p2")["tokens"], expected["p2"])  # away
        second.close()
        daemon.start()
        third = make_engine(model, daemon.endpoint)
        for prompt in PROMPTS:
            check(third, prompt, recalled=True)
        third.close()
        self.assertEqual(first.ask("p0")["tokens"], expected["p0"])  # it has seen two daemons
        first.close()


if __name__ == "__main__":
    if ASKED.engine:
        engine(ASKED.engine)
    else:
        unittest.main(argv=[sys.argv[0], "-v"])
