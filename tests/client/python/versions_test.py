"""Checks with which versions of engines adapters work, and that they do nothing with others. Runs
on the engines' recorded classes, without a daemon or an engine.

    versions_test.py SOURCES LIBRARY
"""

import abc
import importlib
import logging
import os
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

SOURCES = pathlib.Path(sys.argv[1])
os.environ["KVKEEP_CLIENT_LIBRARY"] = sys.argv[2]
sys.path.insert(0, str(SOURCES / "client" / "python"))

import signatures  # noqa: E402
from kvkeep import engine_facts, engine_records, engine_versions  # noqa: E402
from kvkeep.engine_facts import Known  # noqa: E402

LOGGER = logging.getLogger("test")
WANTED = {"engine": ("Base", "Called.one"), "engine.inner.part": ("Made",)}
FIELDS = {"engine.inner.config": ("Config",)}
BASE = '''"""An engine."""
class Base:
    def ask(self, key: str) -> bool:
        return key in self
class Called:
    def one(self): ...
    def other(self): ...
'''
HICACHE = "sglang.srt.mem_cache.hicache_storage"
LINKER = "sglang.srt.mem_cache.unified_cache.unified_cache_linker"
LMCACHE_BASE = "lmcache.v1.distributed.l2_adapters.base"
TRTLLM_BASE = "tensorrt_llm._torch.pyexecutor.connectors.kv_cache_connector"
VLLM_BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
PART = "@dataclass\nclass Made:\n    size: int = 1\n"


class WithEngine(unittest.TestCase):
    """An engine's package in a folder, which is read and never imported."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "inner").mkdir()
        self.write(BASE, PART)
        for patched in (mock.patch.dict(engine_records.WANTED, WANTED, clear=True),
                        mock.patch.dict(engine_records.FIELDS, FIELDS, clear=True),
                        mock.patch.dict(engine_facts.KNOWN, engine=()),
                        mock.patch.object(engine_versions, "_told", set()),
                        mock.patch.dict(os.environ)):
            patched.start()
            self.addCleanup(patched.stop)
        os.environ.pop(engine_versions.UNCHECKED, None)
        self.engine = types.SimpleNamespace(__path__=[str(self.folder)])

    def write(self, base, part):
        (self.folder / "__init__.py").write_text(base)
        (self.folder / "inner" / "part.py").write_text(part)

    def know(self, *known):
        engine_facts.KNOWN["engine"] = known

    def digest(self):
        return engine_records.digest_of("engine", self.folder)

    def of(self, version):
        """Returns the Version of an engine that reports this one."""
        engine_versions._judged.cache_clear()
        self.engine.__version__ = version
        patched = mock.patch.dict(sys.modules, engine=self.engine)
        patched.start()
        self.addCleanup(patched.stop)
        return engine_versions.version_of("engine")


class Versions(WithEngine):
    def test_a_version_whose_classes_are_the_recorded_ones_is_known(self):
        self.know(Known("1.3", "1.3.0", "other"), Known("1.2", "1.2.0", self.digest()))
        for version in ("1.2.0", "1.2.7", "1.2", "1.2.1rc2+cpu"):
            self.assertEqual(self.of(version).known.recorded, "1.2.0")
            self.assertTrue(engine_versions.is_taken("engine"))
            self.assertEqual(engine_versions.check_engine("engine", LOGGER), version)

    def test_a_version_that_looks_otherwise_or_is_of_no_range_is_not(self):
        self.know(Known("1.3", "1.3.0", "other"), Known("1.2", "1.2.0", self.digest()))
        for version, why in (("1.3.1", "classes are not those of 1.3.0"),
                             ("1.4.0", "knows 1.3.0, 1.2.0"), ("1.20.0", "knows"),
                             ("0.1.dev5", "knows")):
            self.assertIsNone(self.of(version).known)
            self.assertIn(why, self.of(version).why)
            self.assertFalse(engine_versions.is_taken("engine"))
            with self.assertRaisesRegex(ValueError, f"engine {version} is not known"):
                engine_versions.check_engine("engine", LOGGER)

    def test_only_changes_of_what_adapters_use_count(self):
        before = self.digest()
        self.write(BASE.replace("return key in self", "return False") + "class New: ...\n",
                   "import dataclass\n" + PART)
        self.assertEqual(self.digest(), before)
        self.write(BASE.replace("def other(self)", "def other(self, more)"), PART)
        self.assertEqual(self.digest(), before)
        for base, part in ((BASE.replace("key: str", "key: str, more"), PART),
                           (BASE.replace("def one(self)", "def one(self, more)"), PART),
                           (BASE, PART.replace("int = 1", "int = 2")),
                           (BASE, PART + "    added: int = 0\n"), (BASE, "")):
            self.write(base, part)
            self.assertNotEqual(self.digest(), before)
        self.write(BASE, PART)
        self.assertEqual(self.digest(), before)
        config = self.folder / "inner" / "config.py"
        config.write_text("class Config:\n    size: int = 1\n    def of(self): ...\n")
        with_config = self.digest()
        config.write_text("class Config:\n    size: int = 2\n    def other(self): ...\n")
        self.assertEqual(self.digest(), with_config)
        config.write_text("class Config:\n    size: int = 1\n    more: int = 0\n")
        self.assertEqual(len({self.digest(), before, with_config}), 3)
        config.unlink()
        (self.folder / "inner" / "part.py").unlink()
        self.assertNotEqual(self.digest(), before)

    def test_members_of_enums_count_however_the_enum_is_imported(self):
        for head in ("import enum\nclass Made(enum.Enum):\n", "class Made(Enum):\n",
                     "class Made(str, enum.Enum):\n"):
            self.write(BASE, head + "    ONE = 1\n")
            before = self.digest()
            self.write(BASE, head + "    ONE = 2\n")
            self.assertNotEqual(self.digest(), before, head)

    def test_an_engine_that_cannot_be_read_is_not_known(self):
        self.know(Known("1.2", "1.2.0", self.digest()))
        self.write("class", PART)
        with self.assertLogs("kvkeep", "WARNING"):
            self.assertIsNone(self.of("1.2.0").known)
        self.engine.__path__ = []
        with self.assertLogs("kvkeep", "WARNING"):
            self.assertIsNone(self.of("1.2.0").known)

    def test_several_that_look_alike_are_told_by_their_names(self):
        self.know(Known("1", "1.2.0", self.digest()), Known("1", "1.1.0", self.digest()))
        self.assertEqual(self.of("1.1.0").known.recorded, "1.1.0")
        self.assertEqual(self.of("1.1.1").known.recorded, "1.2.0")

    def test_the_operator_may_refuse_or_take_what_is_not_known(self):
        self.know(Known("1.2", "1.2.0", self.digest()))
        self.of("1.4.0")
        os.environ[engine_versions.UNCHECKED] = "refuse"
        with self.assertRaisesRegex(ValueError, "engine 1.4.0 is not known: kvkeep knows 1.2.0"):
            engine_versions.is_taken("engine")
        os.environ[engine_versions.UNCHECKED] = "1"
        self.assertTrue(engine_versions.is_taken("engine"))
        with self.assertLogs(LOGGER, "WARNING") as logged:
            self.assertEqual(engine_versions.check_engine("engine", LOGGER),
                             f"1.4.0, classes {self.digest()}")
        self.assertIn("1.4.0 is not known, and is taken as it is", logged.output[0])
        os.environ[engine_versions.UNCHECKED] = "yes"
        with self.assertRaisesRegex(ValueError, '"refuse" or "1", not .yes.'):
            engine_versions.is_taken("engine")
        self.of("1.2.0")
        os.environ[engine_versions.UNCHECKED] = "refuse"
        self.assertTrue(engine_versions.is_taken("engine"))

    def test_trees_of_one_version_text_are_told_by_their_classes(self):
        self.know(Known("1.2", "1.2.0", self.digest(), without=("part",)))
        self.write(BASE.replace("key: str", "key: str, more"), PART)
        newer = self.digest()
        self.know(Known("1.3", "1.3.0", newer), *engine_facts.KNOWN["engine"])
        taken = []
        for base, recorded in ((BASE, "1.2.0"), (BASE.replace("key: str", "key"), None),
                               (BASE.replace("key: str", "key: str, more"), "1.3.0")):
            self.write(base, PART)
            for text in ("unknown", "dev"):
                version = self.of(text)
                self.assertEqual(version.known and version.known.recorded, recorded)
                os.environ[engine_versions.UNCHECKED] = "1"
                if recorded is None:
                    with self.assertRaisesRegex(ValueError, f"engine {text}.*is not a version"):
                        engine_versions.is_taken("engine")
                    with self.assertRaisesRegex(ValueError, f"engine {text}.*is not a version"):
                        engine_versions.check_engine("engine", LOGGER)
                    del os.environ[engine_versions.UNCHECKED]
                    self.assertFalse(engine_versions.is_taken("engine"))
                    continue
                self.assertEqual(engine_versions.lacks("engine", "part"), recorded == "1.2.0")
                taken.append(engine_versions.check_engine("engine", LOGGER))
                os.environ[engine_versions.UNCHECKED] = "refuse"
                self.assertEqual(engine_versions.check_engine("engine", LOGGER), taken[-1])
        os.environ[engine_versions.UNCHECKED] = "1"
        for base in (BASE, BASE.replace("key: str", "key")):
            self.write(base, PART)
            self.of("1.4.0")
            taken.append(engine_versions.check_engine("engine", LOGGER))
        self.assertEqual(len(set(taken)), 6, taken)
        self.write("class", PART)
        self.of("1.4.0")
        with self.assertLogs("kvkeep", "WARNING"), \
                self.assertRaisesRegex(ValueError, "engine 1.4.0.*cannot be read"):
            engine_versions.check_engine("engine", LOGGER)

    def test_an_engine_without_a_version_or_a_place_is_not_known(self):
        self.know(Known("1.2", "1.2.0", "other"))
        self.assertIsNone(self.of(None).known)
        self.assertEqual(engine_versions.engine_version("engine"), "unknown")
        self.assertFalse(engine_versions.is_taken("engine"))
        self.know(Known("1.2", "1.2.0", self.digest()))
        self.assertEqual(self.of(None).known.recorded, "1.2.0")
        self.engine.__path__ = None
        for found in (None, types.SimpleNamespace(submodule_search_locations=None)):
            with mock.patch("importlib.util.find_spec", lambda _, found=found: found), \
                    self.assertLogs("kvkeep", "WARNING") as logged:
                self.assertIsNone(self.of("1.2.0").known)
            self.assertIn("the classes of engine cannot be read", logged.output[0])

    def test_it_is_said_once(self):
        self.know(Known("1.2", "1.2.0", self.digest()))
        self.of("1.4.0")
        with self.assertLogs(LOGGER, "WARNING") as logged:
            engine_versions.tell_idle("engine", LOGGER)
            engine_versions.tell_idle("engine", LOGGER)
        self.assertEqual(len(logged.output), 1)
        self.assertRegex(logged.output[0], "engine 1.4.0 IS NOT KNOWN: kvkeep knows 1.2.0. NOTHING")

    def test_a_field_that_a_version_lacks_has_its_value(self):
        self.know(Known("1.3", "1.3.0", self.digest()),
                  Known("1.2", "1.2.0", self.digest(), {"Made.size": 7}, ("part",)))
        old, new = types.SimpleNamespace(), types.SimpleNamespace(size=3)
        for version, has in (("1.2.0", True), ("1.3.0", False), ("1.4.0", False)):
            self.of(version)
            self.assertEqual(engine_versions.field("engine", new, "Made", "size"), 3)
            self.assertEqual(engine_versions.lacks("engine", "part"), has)
            if has:
                self.assertEqual(engine_versions.field("engine", old, "Made", "size"), 7)
            else:
                with self.assertRaises(AttributeError):
                    engine_versions.field("engine", old, "Made", "size")

    def test_an_unknown_version_lacks_what_its_neighbours_lack(self):
        self.know(Known("1.4", "1.4.0", "other"), Known("1.3", "1.3.2", "other", {}, ("new",)),
                  Known("1.3", "1.3.1", "other", {}, ("new", "middle")),
                  Known("1.2", "1.2.0", "other", {}, ("old",)))
        for text, lacking in (
                ("1.5", ""), ("1.4.0", ""), ("1.4", ""), ("1.4.0+cpu", ""), ("1.4.0.post1", ""),
                ("1.4.0-custom", ""), ("1.4.1.dev3+g12", ""), ("v1.5", ""),
                ("1.4.0rc1", "new"), ("1.4.dev2", "new"), ("1.3.9", "new"), ("1.3.2", "new"),
                ("1.3.1", "new middle"), ("1.3.2rc1", "new middle"),
                ("1.3.0", "new middle old"), ("1.2", "new middle old"),
                ("1.1.9", "new middle old"), ("0.1.dev5", "new middle old"),
                ("nightly-20261130", "new middle old"), ("unknown", "new middle old")):
            self.of(text)
            self.assertEqual({part for part in ("new", "middle", "old")
                              if engine_versions.lacks("engine", part)}, set(lacking.split()), text)

    def test_a_name_that_moved_is_found_where_it_is(self):
        places = {"Thing": ("engine.new", "engine.old"), "Newer": ("engine.new", None)}
        old = types.SimpleNamespace(Thing=1)
        self.of("1.2.0")
        with mock.patch.dict(engine_versions.PLACES, engine=places):
            with mock.patch.dict(sys.modules, {"engine.old": old}):
                self.assertEqual(engine_versions.imported("engine", "Thing"), 1)
                self.assertIsNone(engine_versions.imported("engine", "Newer"))
            with self.assertRaisesRegex(ImportError, "engine 1.2.0 has no Thing in engine.new, "):
                engine_versions.imported("engine", "Thing")


class Facts(unittest.TestCase):
    def test_the_newest_of_each_engine_is_the_recorded_one(self):
        written = (signatures.RECORDED / "README.md").read_text(encoding="utf-8")
        for package, known in engine_facts.KNOWN.items():
            self.assertIn(f"{package} {known[0].recorded}", written)
            self.assertEqual(len({one.recorded for one in known}), len(known))
            for one in known:
                self.assertTrue((one.recorded + ".").startswith(one.range + "."))
                self.assertRegex(one.digest, "^[0-9a-f]{64}$")
                for other in known:
                    if other.digest == one.digest:
                        self.assertEqual((one.absent, one.without), (other.absent, other.without))

    def test_the_newest_version_comes_first(self):
        for known in engine_facts.KNOWN.values():
            numbers = [engine_versions._number(one.recorded) for one in known]
            self.assertEqual(numbers, sorted(numbers, reverse=True))


class Idle(unittest.TestCase):
    """Adapters of unknown versions, which have only the base classes left."""

    def setUp(self):
        patched = mock.patch.dict(sys.modules)
        patched.start()
        self.addCleanup(patched.stop)
        for patched in (mock.patch.object(engine_versions, "_told", set()),
                        mock.patch.dict(os.environ)):
            patched.start()
            self.addCleanup(patched.stop)
        os.environ.pop(engine_versions.UNCHECKED, None)

    def adapter(self, package, version, module, name, *bases):
        """Returns the class of that name, as an engine loads it."""
        signatures.load(package).__version__ = version
        for base in bases:
            signatures.load(base)
        sys.modules.pop(f"kvkeep.{module}", None)
        return getattr(importlib.import_module(f"kvkeep.{module}"), name)

    def refused(self, *given):
        os.environ[engine_versions.UNCHECKED] = "refuse"
        with self.assertRaisesRegex(ValueError, "is not known"):
            self.adapter(*given)
        del os.environ[engine_versions.UNCHECKED]

    def vllm(self):
        logger = types.SimpleNamespace(warning=mock.Mock())
        signatures.load("vllm.logger").init_logger = lambda _: logger
        base = signatures.load(VLLM_BASE)
        base.KVConnectorMetadata = type("KVConnectorMetadata", (), {})
        base.KVConnectorRole = types.SimpleNamespace(SCHEDULER=0, WORKER=1)
        base.KVConnectorBase_V1.__init__ = lambda self, *given: None
        return logger.warning

    def test_connectors_of_vllm(self):
        for module, name in (("vllm", "KvkeepOffloadingConnector"),
                             ("vllm_direct", "KvkeepConnector")):
            engine_versions._told.clear()
            warned = self.vllm()
            sys.modules.pop("kvkeep.vllm_idle", None)
            made = self.adapter("vllm", "0.34.0", module, name)
            given = types.SimpleNamespace(), 1, types.SimpleNamespace()
            made(*given)
            warned.assert_not_called()  # each worker would
            scheduler = made(types.SimpleNamespace(), 0, types.SimpleNamespace())
            made(types.SimpleNamespace(), 0, types.SimpleNamespace())
            self.assertEqual(warned.call_count, 1)
            self.assertIn("0.34.0", warned.call_args[0])
            self.assertEqual(scheduler.get_num_new_matched_tokens(None, 0), (0, False))
            self.assertEqual(scheduler.request_finished(None, []), (False, None))
            self.assertEqual(scheduler.request_finished_all_groups(None, ([],)), (False, None))
            self.assertIsNotNone(scheduler.build_connector_meta(None))
            self.assertFalse(hasattr(sys.modules[f"kvkeep.{module}"], "KvkeepTier"))
            self.refused("vllm", "0.34.0", module, name)

    def test_a_vllm_whose_names_moved_has_an_idle_connector_all_the_same(self):
        self.vllm()
        del sys.modules[VLLM_BASE].SupportsHMA
        sys.modules["vllm.logger"] = None
        for module, name in (("vllm", "KvkeepOffloadingConnector"),
                             ("vllm_direct", "KvkeepConnector")):
            sys.modules.pop("kvkeep.vllm_idle", None)
            engine_versions._told.clear()
            made = self.adapter("vllm", "0.34.0", module, name)
            with self.assertLogs("kvkeep.vllm_idle", "WARNING") as logged:
                scheduler = made(types.SimpleNamespace(), 0, types.SimpleNamespace())
            self.assertIn("vllm 0.34.0 IS NOT KNOWN", logged.output[0])
            self.assertEqual(scheduler.get_num_new_matched_tokens(None, 0), (0, False))

    def test_what_even_an_idle_adapter_needs_is_named(self):
        for package, module, place, missing in (
                ("vllm", "vllm", VLLM_BASE, "KVConnectorBase_V1"),
                ("vllm", "vllm_direct", VLLM_BASE, "KVConnectorMetadata"),
                ("sglang", "sglang", HICACHE, "HiCacheStorage"),
                ("sglang", "sglang_direct", LINKER, "UnifiedCacheLinker"),
                ("lmcache", "lmcache", LMCACHE_BASE, "L2AdapterInterface"),
                ("lmcache", "lmcache", "lmcache.lmcache_native", "Bitmap"),
                ("lmcache", "lmcache", "lmcache.v1.platform", "create_event_notifier"),
                ("tensorrt_llm", "trtllm", TRTLLM_BASE, "KvCacheConnectorWorker"),
                ("transformers", "transformers", "transformers", "DynamicCache")):
            for whole in (False, True)[:1 if package == place else 2]:
                with self.subTest(missing, whole=whole), mock.patch.dict(sys.modules):
                    self.engine(package)
                    if whole:
                        sys.modules[place] = None
                    else:
                        delattr(sys.modules[place], missing)
                    with self.assertRaisesRegex(
                            ImportError, f"kvkeep: {package} 9.0.0 .*even an adapter that keeps "
                            f"nothing.*{place if whole else missing}"):
                        self.adapter(package, "9.0.0", module, "any")
                    os.environ[engine_versions.UNCHECKED] = "refuse"
                    with self.assertRaisesRegex(ValueError, f"{package} 9.0.0 is not known"):
                        self.adapter(package, "9.0.0", module, "any")
                    del os.environ[engine_versions.UNCHECKED]

    def test_methods_that_an_idle_adapter_has_not_are_named(self):
        for package, module, place, base in (
                ("vllm", "vllm_direct", VLLM_BASE, "KVConnectorBase_V1"),
                ("sglang", "sglang", HICACHE, "HiCacheStorage"),
                ("sglang", "sglang_direct", LINKER, "UnifiedCacheLinker"),
                ("tensorrt_llm", "trtllm", TRTLLM_BASE, "KvCacheConnectorScheduler"),
                ("lmcache", "lmcache", LMCACHE_BASE, "L2AdapterInterface")):
            with self.subTest(base), mock.patch.dict(sys.modules):
                self.engine(package)
                old, asks = getattr(sys.modules[place], base), abc.abstractmethod(lambda self: None)
                setattr(sys.modules[place], base, type(old)(base, (old,), {"foresee": asks}))
                with self.assertRaisesRegex(ImportError, f"{package} 9.0.0 .*foresee"):
                    self.adapter(package, "9.0.0", module, "any")

    def engine(self, package):
        """Puts what idle adapters of the package need in place, as if none had been imported."""
        for idle in ("vllm_idle", "sglang_idle", "sglang_idle_linker", "trtllm_idle"):
            sys.modules.pop(f"kvkeep.{idle}", None)
        for module in (HICACHE, LINKER, TRTLLM_BASE, VLLM_BASE, LMCACHE_BASE):
            if module.startswith(package + "."):
                signatures.load(module)
        if package == "vllm":
            self.vllm()
        elif package == "lmcache":
            for module, name in (("logging", "init_logger"), ("lmcache_native", "Bitmap"),
                                 ("v1.platform", "create_event_notifier"),
                                 ("v1.distributed.internal_api", "L2StoreResult")):
                setattr(signatures.load(f"lmcache.{module}"), name, mock.Mock())
        elif package == "transformers":
            signatures.load("torch")
            signatures.load("transformers").DynamicCache = mock.Mock()

    def test_the_storage_of_sglang(self):
        made = self.adapter("sglang", "0.5.24", "sglang", "KvkeepStorage", HICACHE)
        sys.modules[HICACHE].PoolTransferResult.empty = classmethod(lambda cls: cls(0, {}))
        with self.assertLogs("kvkeep", "WARNING") as logged:
            storage = made(None, {})
        self.assertIn("sglang 0.5.24 IS NOT KNOWN", logged.output[0])
        transfers = [types.SimpleNamespace(name="kv", keys=["a", "b"])]
        self.assertEqual(storage.batch_exists(["a"]), 0)
        self.assertFalse(storage.exists("a"))
        self.assertEqual(storage.batch_exists_v2(["a"], transfers).kv_hit_pages, 0)
        for call in (storage.batch_get_v1, storage.batch_set_v1):
            self.assertEqual(call(["a", "b"], None), [False, False])
        for call in (storage.batch_get_v2, storage.batch_set_v2):
            self.assertEqual(call(transfers), {"kv": [False, False]})
        self.assertEqual((storage.get("a"), storage.batch_get(["a"])), (None, [None]))
        self.assertEqual((storage.set("a", 1), storage.batch_set(["a"], [1])), (False, False))
        storage.close()
        self.refused("sglang", "0.5.24", "sglang", "KvkeepStorage", HICACHE)

    def test_the_linker_of_sglang(self):
        signatures.load(LINKER)
        made = self.adapter("sglang", "0.5.24", "sglang_direct", "KvkeepLinker")
        with self.assertLogs("kvkeep", "WARNING"):
            linker = made(None, None, components=(), forward_stream=5)
        self.assertEqual((linker.lookup("r", []), linker.load("r", [])), ([], False))
        self.assertEqual((linker.offload([], None), linker.num_completed_offloads()), (False, 0))
        self.assertEqual((linker.start_layer_wise_loading(), linker.forward_stream), (-1, 5))
        linker.reset()
        linker.close()
        self.refused("sglang", "0.5.24", "sglang_direct", "KvkeepLinker")
        self.adapter("sglang", "0.5.20", "sglang_direct", "KvkeepLinker")
        os.environ[engine_versions.UNCHECKED] = "1"
        with self.assertRaisesRegex(ValueError, "SGLang 0.5.20 takes no linker"):
            self.adapter("sglang", "0.5.20", "sglang_direct", "KvkeepLinker")

    def test_an_sglang_without_linkers_from_elsewhere_refuses_ours(self):
        signatures.load("sglang").__version__ = "0.5.22"
        known = engine_facts.KNOWN["sglang"]
        with mock.patch.object(engine_versions, "looks_as", lambda _: next(
                one.digest for one in known if one.recorded == "0.5.22")), \
                self.assertRaisesRegex(ValueError, "SGLang 0.5.22 takes no linker"):
            engine_versions._judged.cache_clear()
            self.adapter("sglang", "0.5.22", "sglang_direct", "KvkeepLinker")

    def test_the_keeper_of_transformers(self):
        cache = types.SimpleNamespace(layers=[], get_seq_length=lambda: 0)
        signatures.load("torch")
        package = signatures.load("transformers")
        package.DynamicCache, package.PretrainedConfig = lambda config: cache, type("C", (), {})
        made = self.adapter("transformers", "6.0.0", "transformers", "CacheKeeper")
        client = mock.Mock()
        with self.assertLogs("kvkeep", "WARNING") as logged:
            keeper = made(client, types.SimpleNamespace(config=None))
        self.assertIn("transformers 6.0.0 IS NOT KNOWN", logged.output[0])
        self.assertEqual(keeper.restore([1, 2, 3]), (cache, 0))
        self.assertEqual(keeper.save([1, 2, 3], cache).stored, 0)
        self.assertEqual(client.mock_calls, [])
        os.environ[engine_versions.UNCHECKED] = "refuse"
        with self.assertRaisesRegex(ValueError, "transformers 6.0.0 is not known"):
            made(client, types.SimpleNamespace(config=None))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
