#!/usr/bin/env python3
"""Real vLLM engines whose weights change while they run, and whose caches are reset.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_weights_test.py --root SOURCES --build build/release     (with that environment's Python)

Engines run in vLLM's default mode, an engine core in a process of its own, and in one process with
the user; with the direct connector and with the tier. A round is an answer, a change of the weights
in one of vllm_updates.CHANGES, a reset of the prefix cache, and answers. The tokens are those of
vLLM without kvkeep, also for an engine with the old files beside it. A reset and a sleep return and
take what they do without kvkeep. KVKEEP_ROUNDS: rounds of each; by default each way once, in half
of the kinds of engines. Needs the targets kvkeep_c, kvkeepd and kvkeep. About ten minutes.
"""

import itertools
import json
import os
import pathlib
import random
import signal
import sys
import time
import unittest

import engine_process
import vllm_engine
import vllm_engine_test as engines

ROUNDS = int(os.environ.get("KVKEEP_ROUNDS", "0"))
SEED = int(os.environ.get("KVKEEP_SEED", str(random.randrange(1 << 30))))
WHOLE = engines.CHUNKS * vllm_engine.CHUNK_TOKENS  # tokens of a prompt
PROMPTS = ("p0", "p1")
QUICK_S = 1.0  # of a reset or a sleep, beyond its time without kvkeep
_RESETS = ({}, {"reset_running_requests": True},
           {"reset_running_requests": True, "reset_connector": True})


class Engine:
    """An engine, in a process of its own. A line is JSON, a verb and its argument."""

    def __init__(self, model):
        import vllm_updates

        options = engine_process.options()
        connector = vllm_engine.connector_of(options.get("kind"), lookup_timeout_s=10,
                                             **options.get("extra", {}))
        made = {}
        if options.get("updates"):  # otherwise the engine is not made for them
            made = {"weight_transfer_config": {"backend": "files"},
                    "worker_extension_cls": "vllm_updates.Extension"}
        self._llm = vllm_engine.make(model, connector, **made)
        self._changes = {**vllm_updates.CHANGES, **vllm_updates.COLOCATED}

    def answer(self, line):
        (verb, argument), = json.loads(line).items()
        begin = time.monotonic()
        said = getattr(self, verb)(argument)
        return {**said, "seconds": round(time.monotonic() - begin, 3)}

    def ask(self, asked):
        (out,) = self._llm.generate(
            [{"prompt_token_ids": engine_process.PROMPTS[asked["prompt"]]}],
            vllm_engine.sampling(asked.get("tokens", engine_process.ANSWER_TOKENS)),
            use_tqdm=False)
        return {"tokens": list(out.outputs[0].token_ids), "cached": out.num_cached_tokens}

    def change(self, asked):
        self._changes[asked["way"]](self._llm, asked["model"])
        return {}

    def reset(self, arguments):
        try:
            return {"said": self._llm.reset_prefix_cache(**arguments)}
        except Exception as mistake:  # pylint: disable=broad-except  # the asker compares it
            return {"said": f"{type(mistake).__name__}: {mistake}"}

    def sleep(self, level):
        self._llm.sleep(level)
        return {}

    def wake(self, tags):
        self._llm.wake_up(tags)
        return {}


class Weights(unittest.TestCase):
    SCRIPT = __file__

    def setUp(self):
        sys.path.insert(0, str(engines.ASKED.root / "tests" / "client" / "c"))
        engines.VllmEngine.setUp(self)
        self.models = {name: str(pathlib.Path(self.model) / name) for name in ("old", "new")}
        for seed, folder in enumerate(self.models.values()):
            engine_process.make_model(folder, seed=seed)

    daemon = engines.VllmEngine.daemon

    def engine(self, endpoint, in_process, model="old", **options):
        environment = dict(vllm_engine.ENVIRONMENT, VLLM_ALLOW_INSECURE_SERIALIZATION="1",
                           VLLM_ENABLE_V1_MULTIPROCESSING="0" if in_process else "1")
        made = engine_process.EngineProcess(self.SCRIPT, engines.ASKED, self.models[model],
                                            endpoint, environment, options=options)
        self.addCleanup(made.close)
        return made

    @staticmethod
    def tell(asked, verb, argument):
        return asked.ask(json.dumps({verb: argument}), quiet=True)

    def expect(self):
        self.expected = {}
        for model in self.models:
            plain = self.engine(None, True, model)
            for prompt in PROMPTS:
                self.expected[model, prompt] = self.tell(plain, "ask", {"prompt": prompt})["tokens"]
            plain.close()
        self.assertEqual(len({tuple(said) for said in self.expected.values()}), 4)

    def check(self, asked, model, prompt, why=None):
        """Returns how many tokens were not computed."""
        said = self.tell(asked, "ask", {"prompt": prompt})
        self.assertEqual(said["tokens"], self.expected[model, prompt], (model, prompt, why))
        return said["cached"]

    def test_no_token_is_of_other_weights(self):
        self.expect()
        print(f"KVKEEP_SEED={SEED} KVKEEP_ROUNDS={ROUNDS}", flush=True)
        kinds = itertools.product((False, True), ("direct", "tier"), (False, True))
        if not ROUNDS:
            kinds = ((False, "direct", True), (False, "tier", False), (True, "direct", False),
                        (True, "tier", True))
        for number, (in_process, kind, updates) in enumerate(kinds):
            with self.subTest(in_process=in_process, kind=kind, updates=updates):
                self.rounds(random.Random(SEED + number), in_process, kind, updates)

    def rounds(self, chosen, in_process, kind, updates):
        """updates: the engine is made for them, and shares all the same."""
        ways = ["reload", "paused", "apply"] + (["transfer", "extension"] if updates else [])
        ways += ["load_weights", "in place"] if in_process else []
        daemon = self.daemon()
        extra = {"risk_unseen_weight_updates": True} if updates else {}
        first = self.engine(daemon.endpoint, in_process, kind=kind, updates=updates, extra=extra)
        beside = self.engine(daemon.endpoint, in_process, kind=kind)
        self.check(first, "old", "p0")
        daemon.wait_clean(engines.CHUNKS)
        # Any engine may use the chunks that it stores before a change.
        self.assertGreaterEqual(self.check(beside, "old", "p0"), WHOLE)
        order, model = chosen.sample(ways, len(ways)), "old"
        for number in range(max(ROUNDS, len(ways))):
            way = order[number % len(order)]
            model = "new" if model == "old" else "old"
            self.tell(first, "change", {"way": way, "model": self.models[model]})
            said = self.tell(first, "reset", {})
            self.assertEqual(said["said"], True, way)
            self.assertLess(said["seconds"], QUICK_S, way)
            prompts = chosen.sample(PROMPTS, 2)
            for prompt in prompts:
                self.check(first, model, prompt, (way, order, number))
            self.check(beside, "old", prompts[0], (way, "beside"))
        beside.close()
        fresh = self.engine(daemon.endpoint, in_process, kind=kind)
        for prompt in PROMPTS:
            self.check(fresh, "old", prompt, "fresh")
        fresh.close()
        first.close()
        daemon.__exit__()

    def test_an_engine_that_takes_updates_shares_nothing(self):
        self.expect()
        for kind in ("direct", "tier"):
            daemon = self.daemon()
            first = self.engine(daemon.endpoint, False, kind=kind, updates=True)
            self.check(first, "old", "p0")
            time.sleep(1)
            second = self.engine(daemon.endpoint, False, kind=kind)
            self.assertEqual(self.check(second, "old", "p0"), 0)
            daemon.wait_clean(engines.CHUNKS)
            self.assertEqual(daemon.status()["g3"]["chunks"], engines.CHUNKS)  # the second's alone
            first.close()
            second.close()
            daemon.__exit__()

    def test_a_reset_and_a_sleep_are_as_without_kvkeep(self):
        for in_process, kind in itertools.product((False, True), ("direct", "tier")):
            with self.subTest(in_process=in_process, kind=kind):
                daemon = self.daemon()
                pair = (self.engine(None, in_process),
                        self.engine(daemon.endpoint, in_process, kind=kind))
                for tokens in (1, 8):
                    for arguments in _RESETS:
                        self.same(pair, tokens, "reset", arguments)
                    self.same(pair, tokens, "sleep", 1)
                os.kill(daemon.process.pid, signal.SIGSTOP)
                try:
                    # With the tier the others wait until nothing writes vLLM's CPU memory.
                    for arguments in _RESETS if kind == "direct" else _RESETS[:1]:
                        self.same(pair, 2, "reset", arguments)
                    if kind == "direct":
                        self.same(pair, 2, "sleep", 1)
                finally:
                    os.kill(daemon.process.pid, signal.SIGCONT)
                for asked in pair:
                    asked.close()
                daemon.__exit__()

    def same(self, pair, tokens, verb, argument):
        """An engine without kvkeep and one with it answer a prompt, and at once each is told to do
        that."""
        said = []
        for asked in pair:
            self.tell(asked, "ask", {"prompt": "p0", "tokens": tokens})
            said.append(self.tell(asked, verb, argument))
            if verb == "sleep":
                self.tell(asked, "wake", None)
        took = [one.pop("seconds") for one in said]
        self.assertEqual(said[1], said[0], (tokens, verb, argument))
        self.assertLess(took[1], took[0] + QUICK_S, (tokens, verb, argument))

    def test_an_engine_that_slept_shares_again(self):
        self.expect()
        for kind in ("direct", "tier"):
            for in_process in (False, True):
                with self.subTest(kind=kind, in_process=in_process):
                    daemon = self.daemon()
                    asked = self.engine(daemon.endpoint, in_process, kind=kind)
                    self.check(asked, "old", "p0")
                    daemon.wait_clean(engines.CHUNKS)
                    self.tell(asked, "sleep", 1)
                    self.tell(asked, "wake", None)
                    found = self.check(asked, "old", "p0")
                    # In one process its user may have written tensors meanwhile.
                    self.assertEqual(found >= WHOLE, not in_process)
                    self.tell(asked, "sleep", 1)
                    self.tell(asked, "wake", ["weights"])
                    self.tell(asked, "change", {"way": "reload", "model": self.models["new"]})
                    self.tell(asked, "wake", ["kv_cache"])
                    self.assertEqual(self.check(asked, "new", "p0"), 0)
                    asked.close()
                    daemon.__exit__()


if __name__ == "__main__":
    if engines.ASKED.engine:
        engine_process.serve(Engine(engines.ASKED.engine).answer)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *engines.ASKED.tests])
