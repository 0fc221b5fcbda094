#!/usr/bin/env python3
"""Real vLLM engines with a random-weight model of images: whose KV is found, and by which engine.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_images_test.py --root SOURCES --build build/release      (with that environment's Python)

Tests the direct connector and the tier, with the engine core in a process of its own. By default
nothing of a prompt with an image is kept or found, also if two images have one `uuid`, and if the
image joins a request whose input comes in parts. With "trusted" the second engine finds it, unless
the files that define how an image becomes input have changed since. Needs the targets kvkeep_c,
kvkeepd and kvkeep. About six minutes.
"""

import json
import pathlib
import sys
import unittest

import engine_process
import vllm_engine
import vllm_engine_test as engines
import vllm_vision

WHOLE = engines.CHUNKS * vllm_engine.CHUNK_TOKENS  # of a prompt, which has 1,000 tokens
FIRST_TOKENS = 200  # of a request whose input comes in parts
IMAGE, OTHER_IMAGE = 1, 2  # seeds


def engine(model):
    """Makes an engine, in a process of its own. A line is JSON: the number of a text, and an
    image's seed and uuid if it has one. in_parts: that text's first tokens come first, and get an
    answer, too."""
    options = engine_process.options()
    connector = vllm_engine.connector_of(options.get("kind"), lookup_timeout_s=10,
                                         **options.get("extra", {}))
    llm = vllm_engine.make(model, connector, skip_tokenizer_init=False)
    params = vllm_engine.sampling(engine_process.ANSWER_TOKENS)

    def answer(line):
        asked = json.loads(line)
        tokens = 1000 - (vllm_vision.IMAGE_TOKENS if "image" in asked else 0)
        prompt = {"prompt_token_ids": engine_process.prompt(asked["text"], tokens)}
        if "image" in asked:
            prompt["multi_modal_data"] = {"image": vllm_vision.image(asked["image"])}
        if "uuid" in asked:
            prompt["multi_modal_uuids"] = {"image": [asked["uuid"]]}
        if asked.get("in_parts"):
            first = {"prompt_token_ids": prompt["prompt_token_ids"][:FIRST_TOKENS]}
            return {"tokens": session(llm.llm_engine, (first, prompt), params)}
        (out,) = llm.generate([prompt], params, use_tqdm=False)
        return {"tokens": list(out.outputs[0].token_ids), "cached": out.num_cached_tokens,
                "length": len(out.prompt_token_ids)}

    engine_process.serve(answer)


def session(engine, parts, params):
    """Returns a request's answer to the last part of its input."""
    for part in parts:
        request = engine.input_processor.process_inputs(
            "session", part, params, supported_tasks=engine.get_supported_tasks(), resumable=True)
        engine.engine_core.add_request(request)
        said = []
        while len(said) < params.max_tokens:
            for output in engine.engine_core.get_output().outputs:
                said += output.new_token_ids
    engine.engine_core.abort_requests(["session"])
    return said


class Images(unittest.TestCase):
    EXPECTED = []  # of the initial model, which is the same in each test

    def setUp(self):
        sys.path.insert(0, str(engines.ASKED.root / "tests" / "client" / "c"))
        engines.VllmEngine.setUp(self)
        self.model = str(pathlib.Path(self.model) / "images")
        vllm_vision.make_model(self.model)

    daemon = engines.VllmEngine.daemon

    def engine(self, endpoint, **options):
        environment = dict(vllm_engine.ENVIRONMENT, VLLM_ENABLE_V1_MULTIPROCESSING="1")
        made = engine_process.EngineProcess(__file__, engines.ASKED, self.model, endpoint,
                                            environment, options=options)
        self.addCleanup(made.close)
        return made

    def expect(self):
        """Asks vLLM without kvkeep for each answer, with the model's current files."""
        plain = self.engine(None)
        expected = {
            (text, image): self.say(plain, text, image)["tokens"]
            for text, image in ((0, None), (1, None), (2, None), (0, IMAGE), (1, IMAGE),
                                (1, OTHER_IMAGE))}
        expected["in parts"] = self.in_parts(plain)
        plain.close()
        self.assertEqual(len({tuple(said) for said in expected.values()}), len(expected))
        return expected

    def expect_as_made(self):
        if not self.EXPECTED:
            self.EXPECTED.append(self.expect())
        self.expected = self.EXPECTED[0]

    def say(self, asked, text, image=None, uuid=None):
        line = {"text": text, "image": image, "uuid": uuid}
        said = asked.ask(json.dumps({name: value for name, value in line.items()
                                     if value is not None}))
        self.assertEqual(said["length"], 1000)
        return said

    @staticmethod
    def in_parts(asked):
        return asked.ask(json.dumps({"text": 0, "image": IMAGE, "in_parts": True}))["tokens"]

    def check(self, found, asked, text, image=None, uuid=None, says=None):
        """Checks whether it was found. says: the image that the tokens belong to, if it is
        another."""
        said = self.say(asked, text, image, uuid)
        self.assertEqual(said["tokens"], self.expected[text, says or image])
        self.assertEqual(said["cached"], WHOLE if found else 0)

    def keeps(self, daemon, prompts):
        """Checks that the daemon keeps only these. REQUIRES: the last prompt was kept."""
        daemon.wait_clean(prompts * engines.CHUNKS)
        said = daemon.status()
        self.assertEqual([said[tier]["chunks"] for tier in ("g2", "g3")],
                         2 * [prompts * engines.CHUNKS])

    def test_nothing_of_a_prompt_with_an_image_is_kept_or_found(self):
        self.expect_as_made()
        for kind in ("direct", "tier"):
            with self.subTest(kind=kind):
                daemon = self.daemon()
                first, second = (self.engine(daemon.endpoint, kind=kind) for _ in range(2))
                self.check(False, first, 0, IMAGE)
                self.check(False, first, 1, IMAGE, uuid="X")
                self.check(False, first, 0)
                self.keeps(daemon, 1)
                self.assertEqual(self.in_parts(first), self.expected["in parts"])
                self.check(False, second, 0, IMAGE)
                self.check(False, second, 1, OTHER_IMAGE, uuid="X")
                self.check(True, second, 0)
                self.check(False, second, 1)
                self.keeps(daemon, 2)
                self.check(True, first, 1)
                self.check(False, first, 2)
                self.keeps(daemon, 3)
                for asked in (first, second):
                    asked.close()
                daemon.__exit__()

    def test_trusted_images_are_found_while_they_become_the_same_input(self):
        self.expect_as_made()
        daemons = {}
        # A name of the weights says nothing of the other files, either.
        kinds = {"direct": {"multimodal": "trusted"},
                 "tier": {"multimodal": "trusted", "weights": "name:tiny"}}
        for kind, extra in kinds.items():
            with self.subTest(kind=kind):
                daemon = daemons[kind] = self.daemon()
                first, second = (self.engine(daemon.endpoint, kind=kind, extra=extra)
                                 for _ in range(2))
                self.check(False, first, 0, IMAGE)
                self.check(False, first, 1, IMAGE, uuid="X")
                daemon.wait_clean(2 * engines.CHUNKS)
                self.check(True, second, 0, IMAGE)
                # This trust can be abused: the first test would see it.
                self.check(True, second, 1, OTHER_IMAGE, uuid="X", says=IMAGE)
                for asked in (first, second):
                    asked.close()
        vllm_vision.change_processor(self.model)
        before, self.expected = self.expected, self.expect()
        self.assertNotEqual(self.expected[0, IMAGE], before[0, IMAGE])
        for kind, extra in kinds.items():
            with self.subTest(kind=kind, changed=True):
                third = self.engine(daemons[kind].endpoint, kind=kind, extra=extra)
                self.check(False, third, 0, IMAGE)
                third.close()


if __name__ == "__main__":
    if engines.ASKED.engine:
        engine(engines.ASKED.engine)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *engines.ASKED.tests])
