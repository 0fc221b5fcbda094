"""Common code of the tests of vLLM engines that describe prompts by their parts and read the
engine's own metrics. So the engine may run in vLLM's default mode, in a process of its own.

Runs in the engine's process (engine_process.py). Its options: "direct": options of
kvkeep.vllm_direct, or "tiers": a list of tiers, or neither; "gpu", "cpu": bytes of memory; "llm":
further arguments of vllm.LLM.
"""

import json
import os
import time

import engine_process
import vllm_engine

# vLLM's default, with the scheduler in a process of its own.
ENVIRONMENT = {**vllm_engine.ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
_SUMS = {"vllm:num_preemptions": "preempted", "vllm:spec_decode_num_draft_tokens": "drafted",
         "vllm:spec_decode_num_accepted_tokens": "accepted"}
_FAILED = "vllm:kvkeep_failed_chunks"


def prompt_named(name):
    """Returns a prompt. "3:900+103:100": the first 900 tokens of prompt 3, and then 100 of prompt
    103."""
    tokens = []
    for part in name.split("+"):
        number, _, count = part.partition(":")
        tokens += engine_process.prompt(int(number), int(count))
    return tokens


class Engine:
    """An engine. A line is JSON: {"ask": [prompt], "tokens": N} asks for all at once; {"reset": 0}
    resets vLLM's prefix cache."""

    def __init__(self, model):
        options, connector = engine_process.options(), None
        if os.environ.get("KVKEEP_ENDPOINT") and "direct" in options:
            connector = vllm_engine.direct(**options["direct"])
        elif os.environ.get("KVKEEP_ENDPOINT"):
            connector = vllm_engine.offloading(options["tiers"], options.get("cpu", 64 << 20))
        self._llm = vllm_engine.make(model, connector, disable_log_stats=False, **{
            "kv_cache_memory_bytes": options.get("gpu", 64 << 20), **options.get("llm", {})})

    def answer(self, line):
        asked = json.loads(line)
        if "reset" in asked:
            return {"reset": self._llm.reset_prefix_cache()}
        return self.ask(**asked)

    def ask(self, ask, tokens):
        begin = time.monotonic()
        outs = self._llm.generate([{"prompt_token_ids": prompt_named(name)} for name in ask],
                                  vllm_engine.sampling(tokens), use_tqdm=False)
        return {"tokens": [list(out.outputs[0].token_ids) for out in outs],
                "cached": [out.num_cached_tokens for out in outs],
                "seconds": round(time.monotonic() - begin, 3), **self.metrics()}

    def metrics(self):
        """failed: number of chunks of kvkeep's operations, by "operation reason"."""
        sums, failed = dict.fromkeys(_SUMS.values(), 0), {}
        for one in self._llm.get_metrics():
            if one.name in _SUMS:
                sums[_SUMS[one.name]] += one.value
            elif one.name == _FAILED:
                failed[f"{one.labels['operation']} {one.labels['reason']}"] = one.value
        return {**sums, "failed": failed}
