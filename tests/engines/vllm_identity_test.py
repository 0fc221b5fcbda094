#!/usr/bin/env python3
"""Real vLLM engines whose KV differs: none finds what another has stored, and the tokens of each
are those of vLLM without kvkeep.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_identity_test.py --root SOURCES --build build/release      (with that environment's Python)

They have other weights under the same path, another dtype, RoPE scaling, block size, content of a
LoRA adapter or version of vLLM, or weights that may have changed in place. Each gets the same
prompt, and what was stored first is found again at the end. Needs the targets kvkeep_c, kvkeepd and
kvkeep.
"""

import pathlib
import sys
import tempfile
import time
import unittest

import engine_process
import vllm_engine

ASKED = engine_process.arguments(__doc__)
PROMPT = "p0"
CHUNKS = 1000 // vllm_engine.CHUNK_TOKENS  # of it


def engine(model):
    """Makes an engine, in a process of its own: first without kvkeep, for the expected tokens, then
    with it."""
    import vllm
    from vllm.lora.request import LoRARequest

    options = engine_process.options()
    vllm.__version__ = options.get("version", vllm.__version__)
    if options["direct"]:
        connector = vllm_engine.direct()
    else:
        connector = vllm_engine.offloading([vllm_engine.KVKEEP])
        connector["kv_connector_extra_config"]["blocks_per_chunk"] = (
            vllm_engine.CHUNK_TOKENS // options["made"].get("block_size", vllm_engine.BLOCK_TOKENS))
    adapter = options.get("adapter")
    if adapter:
        adapter = LoRARequest("tuned", 1, adapter)
        options["made"].update(enable_lora=True, max_lora_rank=engine_process.LORA_RANK)

    def tokens(llm):
        (out,) = llm.generate(
            [{"prompt_token_ids": engine_process.PROMPTS[PROMPT]}],
            vllm_engine.sampling(engine_process.ANSWER_TOKENS), use_tqdm=False,
            lora_request=adapter)
        return list(out.outputs[0].token_ids), out.num_cached_tokens

    expected, _ = tokens(vllm_engine.make(model, **options["made"]))
    llm = vllm_engine.make(model, connector, **options["made"])

    def answer(line):
        if line == "reset":  # as an update of the weights does
            return {"reset": llm.reset_prefix_cache(reset_connector=True)}
        if line == "load":  # as a server does, before any request has it
            return {"loaded": llm.llm_engine.add_lora(adapter)}
        said, cached = tokens(llm)
        return {"tokens": said, "expected": expected, "cached": cached}

    engine_process.serve(answer)


class VllmIdentity(unittest.TestCase):
    DIRECT = False

    def setUp(self):
        sys.path.insert(0, str(ASKED.root / "tests" / "client" / "c"))
        from daemon import Daemon

        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.model = str(self.folder / "model")
        engine_process.make_model(self.model)
        self.daemon = Daemon(ASKED.build / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)
        self.stored = 0

    def engine(self, version=None, adapter=None, model=None, **made):
        options = {"made": made, "direct": self.DIRECT}
        options.update({name: value for name, value in (("version", version), ("adapter", adapter))
                        if value})
        asked = engine_process.EngineProcess(
            __file__, ASKED, model or self.model, self.daemon.endpoint, vllm_engine.ENVIRONMENT,
            options=options)
        self.addCleanup(asked.close)
        return asked

    def check(self, found, asked=None, **options):
        """Checks whether the engine finds the prompt; its tokens are right in any case. Returns
        them, once what it stores is there."""
        asked, opened = asked or self.engine(**options), asked is None
        said = asked.ask(PROMPT)
        self.assertEqual(said["tokens"], said["expected"], options)
        self.assertEqual(said["cached"], CHUNKS * vllm_engine.CHUNK_TOKENS if found else 0, options)
        if not found:
            self.stored += CHUNKS
            self.daemon.wait_clean(self.stored)
        if opened:
            asked.close()
        return said["tokens"]

    def test_engines_whose_kv_differs_share_nothing(self):
        rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
        differ = {"first": self.check(False)}
        for name, options in (("RoPE", {"hf_overrides": {"rope_parameters": rope}}),
                              ("dtype", {"dtype": "bfloat16"}), ("block", {"block_size": 64}),
                              ("version", {"version": "0.33.99"})):
            with self.subTest(name):
                differ[name] = self.check(False, **options)
        self.assertNotEqual(differ["RoPE"], differ["first"])  # stale KV would have shown
        engine_process.make_model(self.model, seed=1)
        self.assertNotEqual(self.check(False), differ["first"])  # other weights, the same path
        # The first ones, unchanged and elsewhere.
        for folder in ("model", "elsewhere"):
            engine_process.make_model(self.folder / folder)
            self.assertEqual(self.check(True, model=str(self.folder / folder)), differ["first"])
        # A text model has no such file; with images KV depends on it.
        (self.folder / "model" / "preprocessor_config.json").write_text('{"image_mean": [0.5]}')
        self.check(False)

    def test_an_adapter_is_its_content_and_not_its_path(self):
        adapter = str(self.folder / "adapter")
        without = self.check(False)
        engine_process.make_adapter(adapter, seed=1)
        first = self.check(False, adapter=adapter)
        engine_process.make_adapter(adapter, seed=2)
        second = self.check(False, adapter=adapter)
        self.assertEqual(len({tuple(one) for one in (without, first, second)}), 3)
        engine_process.make_adapter(adapter, seed=1)
        self.assertEqual(self.check(True, adapter=adapter), first)

    def test_an_adapter_whose_files_are_replaced_after_it_was_loaded_is_as_it_was_loaded(self):
        adapter = str(self.folder / "adapter")
        engine_process.make_adapter(adapter, seed=1)
        asked = self.engine(adapter=adapter)
        self.assertEqual(asked.ask("load"), {"loaded": True})
        engine_process.make_adapter(adapter, seed=2)
        said = asked.ask(PROMPT)
        self.assertEqual((said["tokens"], said["cached"]), (said["expected"], 0))
        asked.close()
        self.assertNotEqual(self.check(False, adapter=adapter), said["tokens"])

    def test_what_was_stored_before_weights_may_have_changed_is_not_found(self):
        asked = self.engine()
        self.check(False, asked)
        self.assertEqual(asked.ask("reset"), {"reset": True})
        said = asked.ask(PROMPT)
        self.assertEqual((said["tokens"], said["cached"]), (said["expected"], 0))
        # No other engine finds the chunks that it stores now, so they are kept off NVMe.
        deadline = time.monotonic() + 30
        while self.daemon.status()["g2"]["chunks"] < 2 * self.stored:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.daemon.wait_clean(self.stored)
        self.assertEqual(self.daemon.status()["g3"]["chunks"], self.stored)


class DirectIdentity(VllmIdentity):
    """The same engines with the direct connector."""

    DIRECT = True


if __name__ == "__main__":
    if ASKED.engine:
        engine(ASKED.engine)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
