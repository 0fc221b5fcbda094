"""What tells engines' KV apart, with neither an engine nor a daemon.

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
import tempfile
import types
import unittest
from unittest import mock

SOURCES = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(SOURCES / "client" / "python"))

from kvkeep import identity, weights  # noqa: E402
from kvkeep.identity import Identity, canonical, model_config  # noqa: E402
from kvkeep.vllm_identity import Adapters  # noqa: E402

LOGGER = logging.getLogger("test")
PAGE = 4096


class Kind(enum.Enum):
    FULL, WINDOW = 1, 2


@dataclasses.dataclass
class Spec:
    block_size: int
    kind: Kind


def shuffled(value, rng):
    """The same, with the keys of every dict in another order."""
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
        """This digest may change with FORMAT only: else all that is kept is lost without need."""
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


class Versions(unittest.TestCase):
    def check(self, version, package="vllm"):
        with mock.patch.dict(sys.modules, {package: types.SimpleNamespace(__version__=version)}):
            return identity.check_engine(package, LOGGER)

    def test_those_that_were_read_are_taken(self):
        for version in ("0.33.0", "0.33.7", "0.33.1rc2+cpu"):
            self.assertEqual(self.check(version), version)
        self.assertEqual(self.check("0.5.23.post1", "sglang"), "0.5.23.post1")

    def test_others_are_refused_in_words_unless_they_are_asked_for(self):
        for version in ("0.34.0", "0.3.3", "0.330.0", "1.33.0"):
            with self.assertRaisesRegex(ValueError, f"vllm 0.33, and this is {version}.*"
                                                    "KVKEEP_UNCHECKED_ENGINE=1"):
                self.check(version)
            with mock.patch.dict(os.environ, {identity.UNCHECKED: "1"}), \
                    self.assertLogs(LOGGER, "WARNING"):
                self.assertEqual(self.check(version), version)
        with self.assertRaises(ValueError):
            self.check("0.5.24", "sglang")


def safetensors(path, metadata=None, **tensors):
    """As their own library writes them: name=bytes, each of which is a tensor of bytes."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, content in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(content)],
                        "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))


class WithModel(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        self.model = self.make("model")

    def make(self, name):
        folder = self.root / name
        folder.mkdir()
        (folder / "config.json").write_text('{"hidden_size": 4}')
        (folder / "tokenizer.json").write_text("{}")
        safetensors(folder / "model-1.safetensors", a=b"a" * 3 * PAGE, b=b"b" * 100)
        safetensors(folder / "model-2.safetensors", c=b"c" * 5 * PAGE, none=b"")
        return folder

    def id(self, folder=None, **how):
        return weights.fingerprint(folder or self.model, **how).id

    def write(self, name, at, content):
        with open(self.model / name, "r+b") as file:
            file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
            file.write(content)


class Fingerprints(WithModel):
    def pages_only(self):
        """As of a model that is too large to be read in whole."""
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
            (self.model / "tokenizer.json").write_text('{"other": 1}')
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
            middle = -5 * PAGE // 2  # of the last tensor that has bytes
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
            safetensors(self.model / "model-3.safetensors", d=b"c" * 5 * PAGE, none=b"")
            seen.add(self.id())
            safetensors(self.model / "model-4.safetensors", e=b"e")
            seen.add(self.id())
            self.assertEqual(len(seen), 8)
            for file in self.model.iterdir():
                file.unlink()
            self.model.rmdir()
            self.model = self.make("model")

    def test_what_pages_do_not_show_is_seen_where_all_is_read(self):
        self.pages_only()
        pages, full = self.id(), self.id(whole=True)
        self.write("model-2.safetensors", -1, b"X")  # at the end of five pages
        self.assertEqual(self.id(), pages)
        self.assertNotEqual(self.id(whole=True), full)

    def test_no_more_pages_are_read_than_may_be(self):
        self.pages_only()
        safetensors(self.model / "model-2.safetensors",
                    **{f"t{number}": b"t" * 10 for number in range(9000)})
        with mock.patch.object(os, "pread", side_effect=os.pread) as reads:
            self.id()
        self.assertTrue(2000 < reads.call_count <= 4096, reads.call_count)

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


class AdaptersOfRequests(WithModel):
    def setUp(self):
        super().setUp()
        self.adapters = Adapters(LOGGER)
        self.addCleanup(self.adapters.close)

    def of(self, path=None, name="a", number=1):
        return self.adapters.of(types.SimpleNamespace(
            lora_int_id=number, lora_name=name, lora_path=str(path or self.model))).result(30)

    def test_an_adapter_is_its_content(self):
        first = self.of()
        self.assertEqual(first, self.id())
        self.assertEqual(self.of(self.make("copy"), "b", 2), first)
        other = self.make("other")
        safetensors(other / "model-2.safetensors", c=b"d" * 5 * PAGE, none=b"")
        self.assertNotEqual(self.of(other), first)  # under the same name
        with mock.patch.object(weights, "_digest_of", side_effect=AssertionError):
            self.assertEqual(self.of(), first)  # read once

    def test_one_whose_files_change_under_a_running_engine_is_unknown(self):
        self.of()
        os.utime(self.model / "model-1.safetensors", (3, 3))
        with self.assertLogs(LOGGER, "WARNING"):
            self.assertEqual(self.of(), Adapters.UNKNOWN)
        self.assertEqual(self.of(self.root / "absent", number=3), Adapters.UNKNOWN)
        self.assertEqual(self.adapters.unknown, 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
