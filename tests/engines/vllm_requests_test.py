#!/usr/bin/env python3
"""Real vLLM engines on a CPU with kvkeep's direct connector, and requests that do not simply end.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_requests_test.py --root SOURCES --build build/release     (with that environment's Python)

Requests are preempted while they compute, aborted while they load, or have a salt; and a hybrid
model has a window in every other layer. The tokens are those of vLLM without kvkeep. KV lies in
host memory, or in the fake driver's (test_gpu_*). Needs the targets kvkeep_c, kvkeepd, kvkeep and
kvkeep_fake_cuda. About ten minutes.
"""

import json
import os
import sys
import time
import unittest

import engine_process
import vllm_engine
import vllm_engine_test as engines
from vllm_engine_test import DIRECT, ON_GPU

WHOLE = engines.CHUNKS * vllm_engine.CHUNK_TOKENS  # tokens of a prompt
BLOCK_BYTES = 4 * 2 * 4 * 32 * 4 * vllm_engine.BLOCK_TOKENS  # of make_model's model
LONG_ANSWER = 96
WINDOW = vllm_engine.BLOCK_TOKENS * 5 // 2


class Engine:
    """An engine, in a process of its own. A line is JSON: {"ask": [prompt], "tokens": N, "salt":
    S}, all at once; {"abort": prompt}, while it loads; {"preempt": prompt}, while it computes;
    {"reset": 0}.
    """

    def __init__(self, model):
        options, connector = engine_process.options(), None
        if options.get("tiers") is not None:
            connector = vllm_engine.offloading(options["tiers"])
        elif os.environ.get("KVKEEP_ENDPOINT"):
            connector = vllm_engine.direct(lookup_timeout_s=10, **options.get("direct", {}))
        self._llm = vllm_engine.make(model, connector,
                                     kv_cache_memory_bytes=options.get("gpu", 64 << 20))
        self._engine, self._aborted, self._preempted = self._llm.llm_engine, 0, 0
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        preempt = self._scheduler._preempt_request

        def counted(*arguments, **named):
            self._preempted += 1
            preempt(*arguments, **named)

        self._scheduler._preempt_request = counted

    def answer(self, line):
        asked = json.loads(line)
        if "reset" in asked:
            return {"reset": self._llm.reset_prefix_cache()}
        if "preempt" in asked:
            return self.preempt(asked["preempt"])
        return self.abort(asked["abort"]) if "abort" in asked else self.ask(**asked)

    def ask(self, ask, tokens, salt=None):
        extra = {"cache_salt": salt} if salt else {}
        outs = self._llm.generate(
            [{"prompt_token_ids": engines.prompt_named(name), **extra} for name in ask],
            vllm_engine.sampling(tokens), use_tqdm=False)
        return {"tokens": [list(out.outputs[0].token_ids) for out in outs],
                "cached": [out.num_cached_tokens for out in outs], "preempted": self._preempted,
                "groups": len(self._scheduler.kv_cache_config.kv_cache_groups)}

    def preempt(self, prompt):
        """Returns how many blocks a request loads that is preempted once its prompt is stored, and
        its tokens."""
        core, connector = self._engine.engine_core.engine_core, self._scheduler.connector
        build, loaded = connector.build_connector_meta, []

        def counted(scheduled):
            meta = build(scheduled)
            loaded.extend(len(job.dst_spec.block_ids) for job in meta.load_jobs.values())
            return meta

        connector.build_connector_meta = counted
        self._engine.add_request("preempted", {
            "prompt_token_ids": engines.prompt_named(prompt)}, vllm_engine.sampling(LONG_ANSWER))
        said = []

        def step():
            said.extend(self._engine.step())

        (request,) = self._scheduler.requests.values()
        while request.num_output_tokens < 8:
            step()
        for _ in range(20):  # what it stored is there, and the scheduler knows
            step()
            time.sleep(0.05)
        before = sum(loaded)
        assert core.reset_prefix_cache(reset_running_requests=True)
        while self._engine.has_unfinished_requests():
            step()
        connector.build_connector_meta = build
        (out,) = [one for one in said if one.finished]
        return {"blocks": sum(loaded) - before, "tokens": [list(out.outputs[0].token_ids)]}

    def abort(self, prompt):
        self._aborted += 1
        name = f"aborted {self._aborted}"
        self._engine.add_request(name, {"prompt_token_ids": engines.prompt_named(prompt)},
                                 vllm_engine.sampling(engine_process.ANSWER_TOKENS))
        (request,), loading = self._scheduler.requests.values(), False
        while self._engine.has_unfinished_requests() and not loading:
            self._engine.step()
            loading = request.status.name == "WAITING_FOR_REMOTE_KVS"
        self._engine.abort_request([name])
        return {"loading": loading}


class Requests(unittest.TestCase):
    SCRIPT = __file__
    setUp = engines.VllmEngine.setUp
    daemon, engine = engines.VllmEngine.daemon, engines.VllmEngine.engine

    def said(self, asked, prompts, tokens=engine_process.ANSWER_TOKENS, **other):
        return asked.ask(json.dumps({"ask": prompts, "tokens": tokens, **other}), quiet=True)

    def expect(self, prompts, tokens=engine_process.ANSWER_TOKENS):
        plain = self.engine(None)
        self.expected = {one: self.said(plain, [one], tokens)["tokens"][0] for one in prompts}
        plain.close()
        self.assertEqual(len({tuple(said) for said in self.expected.values()}), len(prompts))

    def check(self, asked, prompts, tokens=engine_process.ANSWER_TOKENS, **other):
        """Returns how many tokens of each prompt were not computed."""
        said = self.said(asked, prompts, tokens, **other)
        self.assertEqual(said["tokens"], [self.expected[one] for one in prompts])
        return said["cached"]

    @staticmethod
    def settle(daemon):
        """Waits until everything that engines have stored is in G3, and nothing new came for a
        while."""
        before = None
        while before != (before := daemon.status()["g3"]["chunks"]) or before == 0:
            daemon.wait_clean(1)
            time.sleep(1)

    def test_direct_preempted(self):
        self.preempted(**DIRECT)

    def test_gpu_preempted(self):
        self.preempted(**ON_GPU)

    def preempted(self, **options):
        """Four prompts fit, but not their answers. Prompts come again, so that some load while
        others are preempted."""
        prompts = [f"p{number}" for number in range(6)]
        self.expect(prompts, LONG_ANSWER)
        daemon = self.daemon()
        asked = self.engine(daemon.endpoint, gpu=132 * BLOCK_BYTES, **options)
        cached = []
        for first in range(6):
            cached += self.check(asked, [prompts[(first + at) % 6] for at in range(4)], LONG_ANSWER)
        self.settle(daemon)
        # Nothing that was stored meanwhile is wrong.
        second = self.engine(daemon.endpoint, **options)
        for prompt in prompts:
            self.assertGreaterEqual(self.check(second, [prompt], LONG_ANSWER)[0], WHOLE)
        preempted = self.said(asked, prompts[:1], 1)["preempted"]
        whole = sum(one >= 800 for one in cached)
        print({"preempted": preempted, "recalled whole": whole, "of": len(cached)}, flush=True)
        self.assertGreater(preempted, 3)
        self.assertGreater(whole, 3)

    def test_a_preempted_request_finds_what_it_stored_itself(self):
        """It finds as many blocks as with vLLM's own offloading."""
        self.expect(["p0"], LONG_ANSWER)
        found = {}
        kept = {"on_reset": "ignore"}
        for name, options in (("vllm", {"tiers": []}), ("direct", {"direct": kept}),
                              ("tier", {"tiers": [{**vllm_engine.KVKEEP, **kept}]})):
            daemon = self.daemon()
            asked = self.engine(daemon.endpoint, **options)
            said = asked.ask(json.dumps({"preempt": "p0"}), quiet=True)
            self.assertEqual(said["tokens"], [self.expected["p0"]], name)
            found[name] = said["blocks"]
            asked.close()
        print(found, flush=True)
        self.assertGreaterEqual(min(found.values()), found["vllm"])
        self.assertGreater(found["vllm"], 0)

    def test_a_request_finds_what_the_one_before_it_missed_and_stored(self):
        self.expect(["p0"])
        daemon = self.daemon()
        asked = self.engine(daemon.endpoint, direct={"on_reset": "ignore"})
        self.assertEqual(self.check(asked, ["p0"]), [0])
        self.check(asked, ["p0"])  # by vLLM's own prefix cache; a step, for stores to begin
        daemon.wait_clean(engines.CHUNKS)
        self.assertEqual(asked.ask(json.dumps({"reset": 0})), {"reset": True})
        self.assertGreaterEqual(self.check(asked, ["p0"])[0], WHOLE)

    def test_a_daemon_that_lost_all_is_given_the_hottest_prompt_at_its_next_use(self):
        self.expect(["p0", "p1"])
        daemon = self.daemon()
        asked = self.engine(daemon.endpoint, **DIRECT)
        self.check(asked, ["p0"])
        self.check(asked, ["p0"])
        daemon.wait_clean(engines.CHUNKS)
        daemon.clear()
        daemon.kill()
        daemon.start()
        daemon.wait_joined()
        self.assertEqual(daemon.status()["g3"]["chunks"], 0)
        deadline = time.monotonic() + 30
        while daemon.status()["g3"]["chunks"] < engines.CHUNKS:  # the engine has to connect first
            self.assertLess(time.monotonic(), deadline)
            self.check(asked, ["p0"])
            time.sleep(0.5)

    def test_direct_aborted(self):
        self.aborted(**DIRECT)

    def test_gpu_aborted(self):
        self.aborted(**ON_GPU)

    def aborted(self, **options):
        """Aborts a request while it loads into blocks that the next request gets."""
        prompts = [f"p{number}" for number in range(6)]
        self.expect(prompts)
        daemon = self.daemon()
        first = self.engine(daemon.endpoint, **options)
        self.check(first, prompts)
        self.settle(daemon)
        first.close()
        asked = self.engine(daemon.endpoint, gpu=80 * BLOCK_BYTES, **options)  # of two prompts
        loading = 0
        for at in range(12):
            said = asked.ask(json.dumps({"abort": prompts[at % 6]}), quiet=True)
            loading += said["loading"]
            self.check(asked, [prompts[(at + 2) % 6]])
            self.check(asked, [prompts[at % 6]])
        print({"aborted while it loaded": loading}, flush=True)
        self.assertGreater(loading, 6)

    def test_direct_salted(self):
        """A request without the salt finds nothing."""
        self.expect(["p0"])
        daemon = self.daemon()
        first = self.engine(daemon.endpoint, **DIRECT)
        self.assertEqual(self.check(first, ["p0"], salt="a"), [0])
        self.settle(daemon)
        second = self.engine(daemon.endpoint, **DIRECT)
        self.assertEqual(self.check(second, ["p0"], salt="b"), [0])
        self.assertEqual(self.check(second, ["p0"]), [0])
        self.assertGreaterEqual(self.check(second, ["p0"], salt="a")[0], WHOLE)

    def test_direct_hybrid(self):
        self.hybrid(**DIRECT)

    def test_gpu_hybrid(self):
        self.hybrid(**ON_GPU)

    def hybrid(self, **options):
        """Layers in two KV groups, one of which keeps a window only."""
        engine_process.make_model(self.model, sliding_window=WINDOW, layer_types=[
            "full_attention", "sliding_attention"] * 2)
        prompts = [f"p{number}" for number in range(3)]
        self.expect(prompts)
        daemon = self.daemon()
        first = self.engine(daemon.endpoint, **options)
        self.assertEqual(self.check(first, prompts), [0] * 3)
        self.settle(daemon)
        second = self.engine(daemon.endpoint, **options)
        for prompt in prompts:
            self.assertGreaterEqual(self.check(second, [prompt])[0], WHOLE)
        daemon.kill()
        self.check(second, ["p0"])
        daemon.start()
        daemon.wait_joined()
        third = self.engine(daemon.endpoint, **options)
        self.assertGreaterEqual(min(self.check(third, prompts)), WHOLE)
        self.assertEqual(self.said(third, prompts[:1])["groups"], 2)


if __name__ == "__main__":
    if engines.ASKED.engine:
        engine_process.serve(Engine(engines.ASKED.engine).answer)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *engines.ASKED.tests])
