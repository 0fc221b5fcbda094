#!/usr/bin/env python3
"""Real SGLang engines on a CPU with kvkeep below HiCache: the tokens are those of the model itself.

    uv pip install sglang==0.5.23 --override tests/engines/sglang_override.txt
    sglang_engine_test.py --root SOURCES --build build/release     (with that environment's Python)

The models are a random-weight Llama, greedy, and a Mellum, every other layer of which has a sliding
window and a pool of its own (interface v2). transformers computes the expected tokens. The cases: a
cold start; after the engine forgot everything; the daemon is killed during a load, away, and back;
another engine; and the failures and delays that SGLang itself can inject. All of them again with a
HiCache whose memory is only a buffer. Then engines of one and of two tensor-parallel ranks, which
share by tp_lcm_size, an engine whose weights change while it runs, and engines whose KV differs:
none finds what another has stored. Engines are processes of their own. Needs the targets kvkeep_c,
kvkeepd and kvkeep. Some minutes for each model.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import engine_process
import sglang_updates
from engine_process import ANSWER_TOKENS, PROMPTS

ASKED = engine_process.arguments(__doc__)
PAGE_TOKENS = 64
PAGES = 1000 // PAGE_TOKENS  # of a prompt
BACKEND = {"backend_name": "kvkeep", "module_path": "kvkeep.sglang", "class_name": "KvkeepStorage",
           "interface_v1": 1, "prefetch_threshold": PAGE_TOKENS,
           "kvkeep": {"lookup_timeout_s": 10}}  # on a busy machine


def engine(model):
    """Makes an engine, in a process of its own. "flush" makes it forget, device and host; "update
    ..." lines are sglang_updates'. options(): further arguments."""
    import sglang

    wanted = engine_process.options()
    adapter = "tuned" if "lora_paths" in wanted else None
    made = sglang.Engine(**{
        "model_path": model, "device": "cpu", "dtype": "float32",
        "attention_backend": "torch_native", "sampling_backend": "pytorch",
        "grammar_backend": "none", "skip_tokenizer_init": True, "page_size": PAGE_TOKENS,
        "mem_fraction_static": 0.3, "max_total_tokens": 8192, "disable_cuda_graph": True,
        "disable_overlap_schedule": True, "skip_server_warmup": True, "log_level": "warning",
        "enable_hierarchical_cache": True, "hicache_ratio": 2.0,
        "hicache_mem_layout": "page_first_direct", "hicache_io_backend": "direct",
        "hicache_write_policy": "write_through",
        "hicache_storage_prefetch_policy": "wait_complete", "hicache_storage_backend": "dynamic",
        "hicache_storage_backend_extra_config": json.dumps(BACKEND), **wanted})

    def answer(line):
        if line == "flush":
            return {"flushed": made.flush_cache().success}
        if line.startswith("update "):
            return sglang_updates.update(made, line)
        begin = time.monotonic()
        out = made.generate(input_ids=PROMPTS[line], lora_path=adapter, sampling_params={
            "temperature": 0, "max_new_tokens": ANSWER_TOKENS, "ignore_eos": True})
        cached = out["meta_info"].get("cached_tokens_details") or {}
        return {"tokens": out["output_ids"], "storage": cached.get("storage", 0),
                "device": cached.get("device", 0), "seconds": round(time.monotonic() - begin, 3)}

    engine_process.serve(answer)
    made.shutdown()


def make_engine(model, endpoint, environment, options=None):
    return engine_process.EngineProcess(
        __file__, ASKED, model, endpoint, {"CUDA_VISIBLE_DEVICES": "", **environment},
        options=options, path=[ASKED.root.resolve() / "tests" / "engines" / "sglang_on_cpu"])


def greedy(model):
    """Returns what transformers generates for each prompt."""
    import torch

    said = {}
    for prompt, ids in PROMPTS.items():
        out = model.generate(torch.tensor([ids]), max_new_tokens=ANSWER_TOKENS, do_sample=False,
                             eos_token_id=None, pad_token_id=0)
        said[prompt] = out[0, len(ids):].tolist()
    return said


def make_hybrid_model(folder):
    """Makes a random-weight Mellum without experts or a tokenizer; windows are two and a half
    pages."""
    import torch
    from transformers import MellumConfig, MellumForCausalLM

    torch.manual_seed(0)
    model = MellumForCausalLM(MellumConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, head_dim=32, vocab_size=1000, max_position_embeddings=4096,
        initializer_range=0.2, sliding_window=PAGE_TOKENS * 5 // 2, mlp_layer_types=["dense"] * 4,
        layer_types=["sliding_attention", "full_attention"] * 2))
    model.save_pretrained(folder)
    return model


class Engines(unittest.TestCase):
    """A model, and a daemon for its engines."""

    make_model = staticmethod(engine_process.make_model)
    chunks = PAGES * 2  # of a prompt: K and V
    options = {}

    def setUp(self):
        sys.path.insert(0, str(ASKED.root / "tests" / "client" / "c"))
        from daemon import Daemon
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.model = holder.name
        self.expected = greedy(self.make_model(self.model))
        self.assertEqual(len({tuple(one) for one in self.expected.values()}), len(PROMPTS))
        self.daemon = Daemon(ASKED.build / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def start(self, options=None, **environment):
        made = make_engine(self.model, self.daemon.endpoint, environment,
                           {**self.options, **(options or {})})
        self.addCleanup(made.close)
        return made

    def check(self, asked, prompt, recalled):
        said = asked.ask(prompt)
        self.assertEqual(said["tokens"], self.expected[prompt])
        if recalled is not None:
            self.assertEqual(said["storage"], PAGES * PAGE_TOKENS if recalled else 0, asked.said())

    def forget(self, asked):
        """Makes the engine forget; SGLang refuses that while it still stores."""
        deadline = time.monotonic() + 60
        while not asked.ask("flush")["flushed"]:
            self.assertLess(time.monotonic(), deadline, "the engine is never idle")
            time.sleep(0.2)

    def wait_sessions(self):
        deadline = time.monotonic() + 60
        while not self.daemon.status()["sessions"]:
            self.assertLess(time.monotonic(), deadline, "the engine does not come back")
            time.sleep(0.05)


class SGLangEngine(Engines):
    def test_tokens_are_those_of_the_model(self):
        first = self.start()
        for prompt in PROMPTS:
            self.check(first, prompt, recalled=False)
        self.daemon.wait_clean(len(PROMPTS) * self.chunks)  # stored after the answers
        self.forget(first)
        self.check(first, "p0", recalled=True)
        self.forget(first)
        # Killed at some moment of a load: hit or miss, but never other tokens, nor a hang.
        killer = threading.Timer(0.02, self.daemon.kill)
        killer.start()
        self.check(first, "p1", recalled=None)
        killer.join()
        self.forget(first)
        self.check(first, "p2", recalled=False)  # away
        self.daemon.start()
        self.daemon.wait_joined()
        self.wait_sessions()
        self.forget(first)
        with self.daemon.slowed(stopped_s=1.5):  # longer than a lookup waits by default
            self.check(first, "p1", recalled=True)
        first.close()
        second = self.start()
        for prompt in PROMPTS:
            self.check(second, prompt, recalled=True)

    def test_failures_and_delays_that_sglang_injects_change_no_token(self):
        # At each call of ours; whole calls of SGLang's storage fail in turns.
        asked = self.start(SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE="0.3",
                           SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY="0.05")
        for _ in range(4):
            for prompt in PROMPTS:
                self.check(asked, prompt, recalled=None)
            self.forget(asked)


class HybridSGLangEngine(SGLangEngine):
    make_model = staticmethod(make_hybrid_model)
    chunks = PAGES * 2 + 3 * 2  # and those of the last window


class BufferOnlySGLangEngine(SGLangEngine):
    """HiCache's own memory only holds pages on their way."""

    options = {"hicache_host_memory_mode": "buffer_only", "hicache_size": 1}


class SplitHeadsSGLangEngine(Engines):
    """Engines of one tensor-parallel rank with four shards of heads, and of two with two each."""

    chunks = PAGES * 2 * 4
    options = {
        "hicache_mem_layout": "page_head", "hicache_io_backend": "kernel", "sleep_on_idle": True,
        "hicache_storage_backend_extra_config": json.dumps({**BACKEND, "tp_lcm_size": 4})}

    def ranks(self, count):
        # With more ranks than NUMA nodes SGLang needs to be told the CPUs; without NCCL it takes
        # gloo. The queue between its ranks would stay in /dev/shm.
        return self.start({"tp_size": count}, SGLANG_CPU_OMP_THREADS_BIND="0|1",
                          SGLANG_NCCL_SO_PATH="none", TORCHDYNAMO_DISABLE="1",
                          SGLANG_USE_MESSAGE_QUEUE_BROADCASTER="0")

    def test_what_ranks_stored_others_recall(self):
        two = self.ranks(2)
        self.check(two, "p0", recalled=False)
        self.daemon.wait_clean(self.chunks)
        one = self.ranks(1)
        self.check(one, "p0", recalled=True)
        self.check(one, "p1", recalled=False)
        self.daemon.wait_clean(2 * self.chunks)
        self.check(two, "p1", recalled=True)


class SGLangWeights(Engines):
    """An engine whose weights change while it runs."""

    def setUp(self):
        super().setUp()
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.new = holder.name
        self.of_weights = {self.model: self.expected,
                           self.new: greedy(self.make_model(self.new, seed=1))}

    def update(self, asked, how, folder, **named):
        """The engine then has the folder's weights, and finds nothing of other ones."""
        self.forget(asked)  # otherwise SGLang's own flush may fail
        self.assertTrue(asked.ask(sglang_updates.line(how, folder, **named))["updated"], how)
        self.forget(asked)
        self.expected = self.of_weights[folder]
        self.check(asked, "p0", recalled=False)

    def test_no_token_is_of_weights_that_were_there_before(self):
        first = self.start()
        self.check(first, "p0", recalled=False)
        self.daemon.wait_clean(self.chunks)
        self.forget(first)
        self.check(first, "p0", recalled=True)
        for how in sglang_updates.WAYS:
            self.update(first, how, self.new)
            self.update(first, how, self.model, version=f"{how} 2")
            self.update(first, how, self.new, flush=False)
        self.check(first, "p1", recalled=False)
        self.assertTrue(first.ask(sglang_updates.line("scramble"))["updated"])
        self.forget(first)
        first.ask("p0")
        self.update(first, "disk", self.new)
        first.close()
        # An engine with the initial files has what was stored before all that, and nothing else.
        self.expected = self.of_weights[self.model]
        second = self.start()
        self.check(second, "p0", recalled=True)
        self.check(second, "p1", recalled=False)


class SGLangIdentity(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(ASKED.root / "tests" / "client" / "c"))
        from daemon import Daemon
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.model = str(self.folder / "model")
        self.daemon = Daemon(ASKED.build / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)
        self.stored = 0

    def check(self, found, expected, model=None, environment=None, **options):
        """Checks whether such an engine finds the prompt; its tokens are those of the model in any
        case.
        expected: None if only such an engine answers so."""
        asked = make_engine(model or self.model, self.daemon.endpoint, environment or {}, options)
        self.addCleanup(asked.close)
        said = asked.ask("p0")
        if expected is not None:
            self.assertEqual(said["tokens"], expected, options)
        self.assertEqual(said["storage"], PAGES * PAGE_TOKENS if found else 0, options)
        if not found:
            self.stored += 2 * (1000 // options.get("page_size", PAGE_TOKENS))
            self.daemon.wait_clean(self.stored)
        asked.close()

    def test_engines_whose_kv_differs_share_nothing(self):
        rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
        scaled = greedy(engine_process.make_model(self.model, rope_parameters=rope))["p0"]
        others = greedy(engine_process.make_model(self.model, seed=1))["p0"]
        first = greedy(engine_process.make_model(self.model))["p0"]
        self.assertEqual(len({tuple(one) for one in (first, scaled, others)}), 3)
        self.check(False, first)
        self.check(False, scaled, json_model_override_args=json.dumps({"rope_parameters": rope}))
        self.check(False, None, dtype="bfloat16")
        self.check(False, first, page_size=2 * PAGE_TOKENS)
        self.check(False, first, environment={"KVKEEP_TEST_SGLANG_VERSION": "0.5.23.post9"})
        engine_process.make_model(self.model, seed=1)  # other weights, the same path
        self.check(False, others)
        for folder in ("model", "elsewhere"):  # the first ones, unchanged and elsewhere
            engine_process.make_model(self.folder / folder)
            self.check(True, first, str(self.folder / folder))

    def test_an_adapter_is_its_content_and_not_its_path(self):
        adapter = self.folder / "adapter"
        loaded = {"lora_paths": {"tuned": str(adapter)}, "max_loras_per_batch": 1,
                  "lora_backend": "torch_native"}

        def tuned(seed):
            model = engine_process.make_model(self.model)
            engine_process.make_adapter(adapter, seed, merge_into=model)
            return greedy(model)["p0"]

        first, second = tuned(1), tuned(2)  # the second one is there now
        self.assertNotEqual(first, second)
        self.check(False, second, **loaded)
        tuned(1)
        self.check(False, first, **loaded)
        tuned(2)
        self.check(True, second, **loaded)


class Models(unittest.TestCase):
    def test_images_or_audio_are_refused_by_what_sglang_says_of_a_model(self):
        import transformers
        from sglang.srt.configs.model_config import ModelConfig
        sys.path.insert(0, str(ASKED.root / "client" / "python"))
        from kvkeep.sglang_multimodal import check_text_only
        for architecture, config, other, taken in (
                ("LlamaForCausalLM", "LlamaConfig", {}, True),
                ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig", {}, False),
                ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig",
                 {"language_only": True}, False),  # an encoder elsewhere sends the images
                ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig",
                 {"language_model_only": True}, True),
                ("Gemma3ForConditionalGeneration", "Gemma3Config", {}, True),  # SGLang's default
                ("Gemma3ForConditionalGeneration", "Gemma3Config",
                 {"enable_multimodal": True}, False),
                ("WhisperForConditionalGeneration", "WhisperConfig", {}, False)):
            with self.subTest(config=config, other=other), tempfile.TemporaryDirectory() as folder:
                made = getattr(transformers, config)()
                made.architectures = [architecture]
                made.save_pretrained(folder)
                model = ModelConfig(folder, **other)
                check_text_only(model, "trusted")
                if taken:
                    check_text_only(model, "refused")
                else:
                    with self.assertRaisesRegex(ValueError, f"{architecture} takes images"):
                        check_text_only(model, "refused")


class Records(unittest.TestCase):
    def test_the_recorded_signatures_are_those_of_this_sglang(self):
        check = ASKED.root / "tests" / "client" / "python" / "signatures.py"
        subprocess.run([sys.executable, "-B", check, "check"], check=True)


if __name__ == "__main__":
    if ASKED.engine:
        engine(ASKED.engine)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
