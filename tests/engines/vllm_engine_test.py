#!/usr/bin/env python3
"""Real vLLM engines on a CPU with kvkeep below them: the tokens are those of vLLM without it.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_engine_test.py --root SOURCES --build build/release       (with that environment's Python)

A random-weight Llama, greedy. Cold; a second engine beside the first; a daemon that is killed while
an engine loads; one that is back; one that is away. Engines are processes of their own. About three
minutes.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
for name in ("root", "build"):
    parser.add_argument("--" + name, type=pathlib.Path, required=True)
parser.add_argument("--engine", help="for this script's own use: the model's folder")
ASKED = parser.parse_args()
ROOT, BUILD = ASKED.root.resolve(), ASKED.build.resolve()
PROMPTS = {f"p{n}": [(i * 37 + i * i + 101 * n) % 990 + 3 for i in range(1000)] for n in range(3)}


def engine(model):
    """Makes an engine, then answers a line with a prompt's name by its tokens."""
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
    params = SamplingParams(temperature=0, max_tokens=8, detokenize=False, ignore_eos=True)
    print("ready", flush=True)
    for line in sys.stdin:
        begin = time.monotonic()
        out = llm.generate([{"prompt_token_ids": PROMPTS[line.strip()]}], params, use_tqdm=False)[0]
        print(json.dumps({"tokens": list(out.outputs[0].token_ids),
                          "cached": out.num_cached_tokens,
                          "seconds": round(time.monotonic() - begin, 3)}), flush=True)


class Engine:
    def __init__(self, model, endpoint):
        environment = dict(
            os.environ, VLLM_TARGET_DEVICE="cpu", VLLM_ENABLE_V1_MULTIPROCESSING="0",
            VLLM_CPU_CI_ENV="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1",
            HF_HUB_OFFLINE="1", KVKEEP_ENDPOINT=endpoint or "",
            KVKEEP_CLIENT_LIBRARY=str(BUILD / "lib" / "libkvkeep-client.so.1"),
            PYTHONPATH=os.pathsep.join((str(ROOT / "tests" / "engines"),
                                        str(ROOT / "client" / "python"))))
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-B", __file__, "--root", ROOT, "--build", BUILD, "--engine", model],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            text=True)
        self.read("ready")

    def read(self, wanted):
        """The next line that begins so; what vLLM prints besides is passed over."""
        while line := self.process.stdout.readline():
            if line.startswith(wanted):
                return line
        self.log.seek(0)
        raise AssertionError("the engine has ended: " + self.log.read()[-3000:])

    def ask(self, prompt):
        self.process.stdin.write(prompt + "\n")
        self.process.stdin.flush()
        said = json.loads(self.read("{"))
        print(prompt, said)
        return said

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
        self.log.close()


class VllmEngine(unittest.TestCase):
    def test_tokens_are_those_of_vllm_without_kvkeep(self):
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
        sys.path.insert(0, str(ROOT / "tests" / "client" / "c"))
        from daemon import Daemon

        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        model = holder.name
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(
            hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
            num_key_value_heads=4, head_dim=32, vocab_size=1000, max_position_embeddings=4096,
            initializer_range=0.2)).save_pretrained(model)
        plain = Engine(model, None)
        expected = {prompt: plain.ask(prompt)["tokens"] for prompt in PROMPTS}
        plain.close()
        self.assertEqual(len({tuple(tokens) for tokens in expected.values()}), len(PROMPTS))

        daemon = Daemon(BUILD / "bin" / "kvkeepd")
        daemon.start()
        self.addCleanup(daemon.__exit__)

        def check(asked, prompt, recalled):
            said = asked.ask(prompt)
            self.assertEqual(said["tokens"], expected[prompt])
            self.assertEqual(said["cached"] >= 800, recalled, said)

        first = Engine(model, daemon.endpoint)
        for prompt in PROMPTS:
            check(first, prompt, recalled=False)
        daemon.wait_clean(len(PROMPTS) * (1000 // 128))  # vLLM stores behind its answers
        second = Engine(model, daemon.endpoint)  # beside the first
        check(second, "p0", recalled=True)
        # Killed at some moment of a load: hit or miss, but never other tokens, nor a hang.
        killer = threading.Timer(0.03, daemon.kill)
        killer.start()
        self.assertEqual(second.ask("p1")["tokens"], expected["p1"])
        killer.join()
        self.assertEqual(second.ask("p2")["tokens"], expected["p2"])  # away
        second.close()
        daemon.start()
        third = Engine(model, daemon.endpoint)
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
