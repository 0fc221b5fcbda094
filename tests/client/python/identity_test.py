"""Facts that distinguish engines' KV, without engine or daemon.

    identity_test.py SOURCES
"""

import dataclasses
import enum
import json
import logging
import os
import pathlib
import random
import struct
import sys
import time
import types
import unittest
from unittest import mock

SOURCES = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(SOURCES / "client" / "python"))

import signatures  # noqa: E402
import vllm_rig  # noqa: E402
from kvkeep import identity, vllm_identity, weights  # noqa: E402
from kvkeep.identity import Identity, canonical, model_config  # noqa: E402
from kvkeep.vllm_identity import VllmOptions  # noqa: E402
from weights_rig import LARGE, PAGE, WithModel, safetensors  # noqa: E402

LOGGER = logging.getLogger("test")
signatures.installed("vllm", "0.33.0")
# Files that define how images, audio and video become input.
PROCESSORS = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
              "audio_tokenizer_config.json", "tekken.json")


class Kind(enum.Enum):
    FULL, WINDOW = 1, 2


@dataclasses.dataclass
class Spec:
    block_size: int
    kind: Kind


def shuffled(value, rng):
    """Returns the value with the keys of every dict in another order."""
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    return [shuffled(one, rng) for one in value] if isinstance(value, list) else value


class Canonical(unittest.TestCase):
    FACTS = {
        "weights": "sha256:1", "name": None, "dtype": "float32", "kv_dtype": "auto",
        "config": {"architectures": ["LlamaForCausalLM"], "hidden_size": 256, "heads": 8,
                   "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        "groups": [{"layers": ["l0", "l1"], "spec": Spec(16, Kind.FULL)}],
        "layout": "LBHNC", "parallel": {"tp": 1, "rank": 0}, "hashes": ("sha256", "seed", 0),
        "adapters": {"a": "sha256:2"}, "drafter": None}

    def digest(self, version="0.33.0", **other):
        return Identity("vllm", version, **{**self.FACTS, **other}).digest

    def test_each_fact_is_in_the_digest(self):
        config, rope = self.FACTS["config"], self.FACTS["config"]["rope_parameters"]
        others = [
            {"weights": "sha256:3"}, {"name": "tuned"}, {"dtype": "float16"}, {"kv_dtype": "fp8"},
            {"config": {**config, "heads": 4}},
            {"config": {**config, "rope_parameters": {**rope, "rope_theta": 5e5}}},
            {"config": {**config, "rope_parameters": {**rope, "rope_type": "yarn", "factor": 2}}},
            {"groups": [{"layers": ["l0"], "spec": Spec(16, Kind.FULL)}]},
            {"groups": [{"layers": ["l0", "l1"], "spec": Spec(32, Kind.FULL)}]},
            {"groups": [{"layers": ["l0", "l1"], "spec": Spec(16, Kind.WINDOW)}]},
            {"layout": "BLHNC"}, {"parallel": {"tp": 2, "rank": 0}},
            {"parallel": {"tp": 1, "rank": 1}}, {"hashes": ("sha256_cbor", "seed", 0)},
            {"hashes": ("sha256", "1", 0)}, {"adapters": {"a": "sha256:4"}}, {"adapters": {}},
            {"drafter": "sha256:5"}, {"one more": None}, {"version": "0.33.1"}]
        digests = [self.digest()] + [self.digest(**other) for other in others]
        self.assertEqual(len(set(digests)), len(others) + 1)
        self.assertNotEqual(Identity("sglang", "0.33.0", **self.FACTS).digest, digests[0])
        with mock.patch.object(identity, "FORMAT", 2):
            self.assertNotEqual(self.digest(), digests[0])

    def test_the_order_of_keys_is_not(self):
        seed = random.randrange(2 ** 32)
        print("seed", seed)
        rng = random.Random(seed)
        for _ in range(100):
            self.assertEqual(self.digest(**shuffled(self.FACTS, rng)), self.digest())

    def test_it_is_the_same_in_every_process_and_version(self):
        """This digest changes with FORMAT only: otherwise everything kept is lost without need."""
        self.assertEqual(Identity("e", "1", a=[1, 2.5, None, True, b"\0", {"b", "a"}],
                                  b=Spec(16, Kind.FULL), c={1: "x"}).digest,
                         "cfde01e8c10d997e23c8c4935e25a801d4c17dcb14d80d6d614a50d722cd51da")

    def test_what_it_is_of_can_be_read(self):
        said = json.loads(str(Identity("vllm", "0.33.0", **self.FACTS)))
        self.assertEqual((said["engine"], said["groups"][0]["spec"]["block_size"]), ("vllm", 16))
        made = Identity("vllm", "0.33.0", **self.FACTS)
        self.assertEqual(made.name_of(self.FACTS["config"]),
                         f"LlamaForCausalLM {made.digest[:16]}")
        self.assertTrue(made.name_of({"model_type": "llama"}).startswith("llama "))

    def test_values_of_other_kinds_are_other_values(self):
        same = [1, 1.0], [[1, 2], (1, 2)], [{"a": 1}, types.MappingProxyType({"a": 1})], \
            [{"a", "b"}, frozenset(("b", "a"))]
        for one, other in same:
            self.assertEqual(canonical(one), canonical(other))
        others = [1, True, "1", b"1", 1.5, float("inf"), None, [1], {1}, {"1": 1}, Kind.FULL, Kind,
                  "Kind.FULL", complex(1, 2)]
        texts = {json.dumps(canonical(one), sort_keys=True) for one in others}
        self.assertEqual(len(texts), len(others))

    def test_what_has_no_stable_form_is_an_error_that_names_it(self):
        for bad in (object(), lambda: None):
            with self.assertRaisesRegex(TypeError, r"identity.model.a\[1\]: a .* no canonical"):
                Identity("e", "1", model={"a": [0, bad]})
        with self.assertRaisesRegex(TypeError, "two keys"):
            canonical({1: "a", "1": "b"})


class Models(unittest.TestCase):
    def test_where_a_configuration_was_read_from_does_not_count(self):
        class Config:
            def __init__(self, **other):
                self.other = other

            def to_dict(self):
                return {"hidden_size": 1, "text_config": {"_name_or_path": "/a", "layers": 2},
                        **self.other}

        first = model_config(Config(_name_or_path="/x", transformers_version="5.0"))
        self.assertEqual(first, model_config(Config(_name_or_path="/y")))
        self.assertEqual(first, {"hidden_size": 1, "text_config": {"layers": 2}})
        self.assertNotEqual(first, model_config(Config(rope_scaling={"type": "linear"})))

    def test_the_longest_sequence_counts_where_rope_depends_on_it(self):
        def of(rope, key="rope_scaling"):
            return identity.rope_depends_on_length({"text_config": {key: rope}})

        for rope in (None, {}, {"rope_type": "default"}, {"type": "linear", "factor": 2},
                     {"rope_type": "yarn"}, {"rope_theta": 1e4, "rope_type": "llama3"},
                     {"full": {"rope_type": "default"}, "sliding": {"rope_type": "linear"}}):
            self.assertFalse(of(rope), rope)
        for rope in ({"type": "dynamic"}, {"rope_type": "longrope"}, {"rope_type": "of 2027"},
                     {"full": {"rope_type": "default"}, "sliding": {"rope_type": "dynamic"}}, "x"):
            self.assertTrue(of(rope), rope)
            self.assertTrue(of(rope, "rope_parameters"), rope)


class Fingerprints(WithModel):
    def pages_only(self):
        """Fingerprints files as of a model that is too large to be read whole."""
        limit = mock.patch.object(weights, "_WHOLE_BYTES", 0)
        limit.start()
        self.addCleanup(limit.stop)

    def test_the_same_files_elsewhere_or_written_anew_are_the_same_weights(self):
        for pages in (False, True):
            if pages:
                self.pages_only()
            first = self.id()
            self.assertEqual(self.id(self.make(f"copy {pages}")), first)
            for file in self.model.iterdir():
                os.utime(file, (1, 1))
            self.assertEqual(self.id(), first)
            for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
                (self.model / name).write_text('{"other": 1}')
            (self.model / "optimizer.bin").write_bytes(b"x")
            self.assertEqual(self.id(), first)
            link = self.root / f"link {pages}"  # as in the hub's cache
            link.mkdir()
            for file in [self.model / "config.json", *self.model.glob("model-*")]:
                (link / file.name).symlink_to(file)
            self.assertEqual(self.id(link), first)

    def test_other_weights_under_the_same_path_are_others(self):
        for pages in (False, True):
            if pages:
                self.pages_only()
            seen, times = {self.id()}, [file.stat() for file in self.model.iterdir()]
            middle = -LARGE // 2  # of the last tensor that has bytes
            for name, at, content in (("model-2.safetensors", middle, b"X"),
                                      ("model-2.safetensors", middle, b"Y")):
                self.write(name, at, content)
                for file, before in zip(self.model.iterdir(), times):
                    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
                seen.add(self.id())
            self.assertEqual(len(seen), 3, "same size, same time: other content")
            (self.model / "config.json").write_text('{"hidden_size": 4, "rope_theta": 1}')
            seen.add(self.id())
            (self.model / "modeling.py").write_text("1")
            seen.add(self.id())
            (self.model / "model-2.safetensors").rename(self.model / "model-3.safetensors")
            seen.add(self.id())
            safetensors(self.model / "model-3.safetensors", d=b"c" * LARGE, none=b"")
            seen.add(self.id())
            safetensors(self.model / "model-4.safetensors", e=b"e")
            seen.add(self.id())
            for name in PROCESSORS:
                (self.model / name).write_text("1")
                seen.add(self.id())
            self.assertEqual(len(seen), 8 + len(PROCESSORS))
            for file in self.model.iterdir():
                file.unlink()
            self.model.rmdir()
            self.model = self.make("model")

    def test_what_pages_do_not_show_is_seen_where_all_is_read(self):
        self.pages_only()
        pages, full = self.id(), self.id(whole=True)
        self.write("model-2.safetensors", -1, b"X")  # at the end of a large tensor
        self.assertEqual(self.id(), pages)
        self.assertNotEqual(self.id(whole=True), full)

    def test_an_element_of_any_tensor_counts(self):
        """20,000 small tensors, and some large ones, whose middle page is read."""
        self.pages_only()
        sizes = [LARGE if number % 500 == 0 else 100 for number in range(20_000)]
        file = self.model / "model-2.safetensors"
        safetensors(file, **{f"t{number}": bytes(size) for number, size in enumerate(sizes)})
        data = file.stat().st_size - sum(sizes)
        begins = [data + sum(sizes[:number]) for number in range(0, len(sizes), 500)]
        seed = random.randrange(2 ** 32)
        print("seed", seed)
        rng, first, read = random.Random(seed), self.id(), []

        def pread(number, nbytes, at, really=os.pread):
            read.append((at, nbytes))
            return really(number, nbytes, at)

        with mock.patch.object(os, "pread", pread):
            self.assertEqual(self.id(), first)
        self.assertEqual(len(read), 20_000 + 4)  # with two pages of the other file, and two headers
        self.assertLess(sum(nbytes for _, nbytes in read), 5 << 20)
        for block in rng.sample(range(len(begins)), 5):
            within = rng.randrange(500)
            at = begins[block] + (LARGE // 2 if within == 0 else LARGE + 100 * (within - 1))
            for place in (at, begins[block] + LARGE // 2):
                self.write("model-2.safetensors", place, b"X")
                self.assertNotEqual(self.id(), first, place)
                self.write("model-2.safetensors", place, b"\0")
        self.assertEqual(self.id(), first)

    def test_threads_are_of_no_account(self):
        self.pages_only()
        safetensors(self.model / "model-2.safetensors",
                    **{f"t{number}": bytes([number % 256]) * 10 for number in range(5000)})
        first = self.id()
        for threads in (1, 3, 50):
            with mock.patch.object(weights, "_THREADS_FOR_PAGES", threads):
                self.assertEqual(self.id(), first)

    def test_no_more_pages_are_read_than_may_be_of_files_that_say_nothing_of_their_tensors(self):
        self.pages_only()
        one = self.root / "one.gguf"
        with open(one, "wb") as file:
            file.truncate(9000 * LARGE)
        read = []  # not a Mock's call_count, which loses concurrent calls

        def pread(number, nbytes, at, really=os.pread):
            read.append(at)
            return really(number, nbytes, at)

        with mock.patch.object(os, "pread", pread):
            self.id(one)
        self.assertTrue(4000 < len(read) <= 4097, len(read))

    def test_files_that_say_nothing_of_their_tensors(self):
        for pages in (False, True):
            if pages:
                self.pages_only()
            folder = self.root / f"old {pages}"
            folder.mkdir()
            for number in range(2):
                (folder / f"pytorch_model-{number}.bin").write_bytes(bytes([number]) * PAGE * 20)
            first = self.id(folder)
            (folder / "pytorch_model-1.bin").write_bytes(b"\1" * PAGE * 10 + b"\2" * PAGE * 10)
            self.assertNotEqual(self.id(folder), first)
        one = self.root / "one.gguf"
        one.write_bytes(b"GGUF" + b"x" * PAGE)
        same = self.root / "same.gguf"
        same.write_bytes(one.read_bytes())
        self.assertEqual(self.id(one), self.id(same))

    def test_what_cannot_be_told_is_an_error_that_says_what_to_do(self):
        empty = self.root / "empty"
        empty.mkdir()
        for model, why in ((empty, "no weights in it"), (self.root / "absent", "is no|not there")):
            with self.assertRaisesRegex(ValueError, f'{why}.*"weights": "name:X"'):
                weights.weights_of(str(model), "auto")
        with self.assertRaisesRegex(ValueError, 'dummy.*"weights": "name:X"'):
            weights.weights_of(str(self.model), "auto", unreadable="dummy weights")
        named = weights.weights_of(str(empty), "name:X", unreadable="dummy weights")
        self.assertEqual(named, weights.Weights("name:X"))
        for bad in ("name:", "X", None, 1):
            with self.assertRaisesRegex(ValueError, "weights: "):
                weights.check_option(bad)
        self.pages_only()
        for broken in (b"", b"\xff" * 8, struct.pack("<Q", 2) + b"[]",
                       struct.pack("<Q", 2) + b"{}"[:1],
                       struct.pack("<Q", 44) + b'{"a": {"data_offsets": [0, 99], "shape": []}}'):
            (self.model / "model-2.safetensors").write_bytes(broken)
            with self.assertRaisesRegex(ValueError, "model-2.safetensors"):
                weights.weights_of(str(self.model), "auto")

    def test_files_that_change_while_they_are_read_are_an_error(self):
        def writes_meanwhile(path):
            self.write("model-1.safetensors", -1, b"!")
            os.utime(self.model / "model-1.safetensors", (7, 7))
            return digest_of(path)

        digest_of = weights._digest_of
        with mock.patch.object(weights, "_digest_of", writes_meanwhile), \
                self.assertRaisesRegex(ValueError, "changed while it was read"):
            self.id()

    def test_weights_that_are_younger_than_the_engine_are_refused(self):
        found = weights.fingerprint(self.model)
        with mock.patch.object(weights, "_IMPORTED_NS", found.changed_ns):
            weights.check_older_than_engine(found, "m")
        with mock.patch.object(weights, "_IMPORTED_NS", found.changed_ns - 1), \
                self.assertRaisesRegex(ValueError, "while the engine was starting"):
            weights.check_older_than_engine(found, "m")
        weights.check_older_than_engine(weights.Weights("name:X"), "m")

    def test_a_model_of_the_hub_is_looked_for_in_its_cache_and_never_changes(self):
        asked, hub = [], types.ModuleType("huggingface_hub")

        def snapshot_download(*given, **how):
            asked.append((given, how))
            if given != ("org/model",):
                raise OSError("offline")
            return str(self.model)

        hub.snapshot_download = snapshot_download
        with mock.patch.dict(sys.modules, {"huggingface_hub": hub}):
            found = weights.weights_of("org/model", "auto", revision="r", cache_dir="c")
            self.assertEqual(found, weights.Weights(self.id()))  # an engine may just have loaded it
            self.assertEqual(asked, [(("org/model",), {"revision": "r", "cache_dir": "c",
                                                       "local_files_only": True})])
            with self.assertRaisesRegex(ValueError, 'offline.*"weights": "name:X"'):
                weights.weights_of("org/other", "auto")


class VllmFacts(WithModel):
    """The parts of vLLM's configuration that an identity contains; without an engine."""

    def identity(self, weights="name:x", config=None, **facts):
        made = config or vllm_rig.config(str(self.model), **facts)
        return vllm_identity.identity_of(made, vllm_rig.cache_config(), "0.33.0",
                                         VllmOptions(weights=weights), LOGGER)[0]

    def digest(self, *given, **named):
        return self.identity(*given, **named).digest

    def test_what_chooses_an_attention_backend(self):
        others = [{}, {"backend": "TRITON_ATTN"}, {"backend_per_kind": {"full": "TRITON_ATTN"}},
                  {"flash_attn_version": 3}, {"use_trtllm_attention": True},
                  {"indexer_kv_dtype": "fp8"}, {"use_non_causal": True}]
        self.assertEqual(len({self.digest(**other) for other in others}), len(others))
        self.assertEqual(self.digest(), self.digest())

    def platform(self, name="cuda", capability="9.0", environment=None):
        """Returns an engine's digest on this platform."""
        device = capability and types.SimpleNamespace(as_version_str=lambda: capability)
        current = types.SimpleNamespace(
            device_name=name, get_device_capability=lambda: device,
            get_device_name=lambda: f"a {name}", is_rocm=lambda: name == "rocm",
            is_cpu=lambda: False, is_unspecified=lambda: name == "none")
        variables = {"VLLM_ROCM_USE_AITER": False, "VLLM_ROCM_USE_AITER_MHA": True,
                     "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": False, "VLLM_ROCM_OTHER": 1,
                     **(environment or {})}
        envs = types.SimpleNamespace(environment_variables=variables, **variables)
        with mock.patch.dict(sys.modules, {
                "vllm": types.SimpleNamespace(envs=envs, __version__="0.33.0"), "vllm.envs": envs,
                "vllm.platforms": types.SimpleNamespace(current_platform=current)}):
            return self.digest()

    def test_the_platform_and_rocms_environment(self):
        seen = {self.digest(), self.platform(), self.platform(capability="10.0"),
                self.platform("xpu", None), self.platform("rocm", "9.4"),
                self.platform("none", None)}
        for name, value in (("VLLM_ROCM_USE_AITER", True), ("VLLM_ROCM_USE_AITER_MHA", False),
                            ("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", True)):
            self.assertEqual(self.platform(environment={name: value}), self.platform())
            seen.add(self.platform("rocm", "9.4", {name: value}))
        self.assertEqual(len(seen), 9)
        self.assertEqual(self.platform("rocm", "9.4", {"VLLM_ROCM_OTHER": 2}),
                         self.platform("rocm", "9.4"))

    def test_how_a_drafter_attends(self):
        drafts = []
        for backend in (None, "TRITON_ATTN"):
            made = vllm_rig.config(str(self.model))
            made.speculative_config = types.SimpleNamespace(
                method="eagle", num_speculative_tokens=1, quantization=None, kv_cache_dtype=None,
                parallel_drafting=False, disable_eagle_block_drop=False, code_revision=None,
                attention_backend=backend, draft_model_config=None)
            drafts.append(self.digest(config=made))
        self.assertNotEqual(*drafts)

    def test_how_adapters_are_read_and_that_they_may_be_is_not(self):
        def lora(**other):
            made = vllm_rig.config(str(self.model))
            made.lora_config = types.SimpleNamespace(**{
                "lora_dtype": "float32", "target_modules": None,
                "enable_tower_connector_lora": False, "enable_mixed_moe_lora_format": False,
                "enable_moe_shared_loras": False, **other})
            return self.digest(config=made)

        self.assertEqual(lora(), self.digest())
        self.assertEqual(len({lora(), lora(lora_dtype="bfloat16"), lora(target_modules=["o_proj"]),
                              lora(enable_tower_connector_lora=True)}), 4)

    def test_how_images_become_input_wherever_the_weights_have_a_name(self):
        images = types.SimpleNamespace()
        text = self.digest()
        seen = {text, self.digest(multimodal_config=images)}
        for name in PROCESSORS:
            (self.model / name).write_text("1")
            seen.add(self.digest(multimodal_config=images))
        scales = self.root / "scales.json"
        for content in ("1", "2"):
            scales.write_text(content)
            images.mm_encoder_fp8_scale_path = str(scales)
            seen.add(self.digest(multimodal_config=images))
        self.assertEqual(len(seen), 4 + len(PROCESSORS))
        self.assertEqual(self.digest(), text)
        self.model = self.root / "absent"
        self.assertNotIn(self.digest(multimodal_config=images), seen)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
