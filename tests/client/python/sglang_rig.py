"""Common code of the tests of kvkeep.sglang: SGLang's recorded classes, host pools, and a backend
with a real daemon. The importing test has the arguments SOURCES LIBRARY KVKEEPD.
"""

import array
import ctypes
import dataclasses
import os
import pathlib
import signal
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import signatures

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

signatures.load("sglang.srt.observability.metrics_collector")
HICACHE = signatures.load("sglang.srt.mem_cache.hicache_storage")
# The part of torch that is used: the indices of a page.
sys.modules["torch"] = types.SimpleNamespace(arange=lambda end: array.array("q", range(end)))
SERVING = types.SimpleNamespace(weight_version="default")
MEMORY = types.SimpleNamespace(hicache_storage_backend="dynamic")
SERVER = {
    "model_path": None, "revision": None, "load_format": "auto", "model_loader_extra_config": "{}",
    "custom_weight_loader": None, "download_dir": None, "kv_cache_dtype": "auto",
    "quantization": None, "quantization_param_path": None, "modelopt_quant": None,
    "quantize_and_serve": False, "rl_quant_profile": None, "model_impl": "auto",
    "json_model_override_args": "{}", "qsa_indexer_dtype": None, "page_size": 4,
    "enable_page_major_kv_layout": False, "enable_unified_memory": False, "language_only": False,
    "speculative_algorithm": None, "speculative_draft_model_path": None,
    "speculative_draft_model_revision": None, "speculative_draft_kv_cache_dtype": None,
    "speculative_draft_model_quantization": None, "lora_paths": [], "weight_cache_mode": "off"}
MODEL = {"dtype": "torch.bfloat16", "context_len": 2048, "hf_config": {
    "architectures": ["Llama"], "rope_parameters": {"rope_type": "default"}}}
TEXT_ONLY = {"is_generation": True, "is_multimodal": False, "is_audio_model": False,
             "is_image_understandable_model": False, "is_audio_understandable_model": False}


def fake_engine():
    """Fakes SGLang's account of an engine; `ENGINE` has the values that it returns."""
    signatures.installed("sglang", "0.5.23")
    context = signatures.load("sglang.srt.runtime_context")
    context.get_server_args, context.get_serving = (lambda: ENGINE), (lambda: SERVING)
    context.get_memory = lambda: MEMORY
    signatures.load("sglang.srt.arg_groups.model_override_base").resolved_view = lambda args: args
    signatures.load("sglang.srt.configs.model_config").ModelConfig = types.SimpleNamespace(
        from_server_args=lambda args: types.SimpleNamespace(**{**TEXT_ONLY, **args.of_model}))
    for module, (kind, methods) in CHANGING.items():
        place = signatures.load(f"sglang.srt.{module}")
        place = getattr(place, kind) if kind else place
        for name in methods:
            assert hasattr(place, name), f"SGLang has no {name} in {module}"
            setattr(place, name, lambda *given, **named: DURING(*given, **named))


# Functions of SGLang that change weights or reset HiCache: (class or None, its functions) by
# module.
CHANGING = {
    "model_executor.model_runner_components.weight_updater": ("WeightUpdater", (
        "update_weights_from_disk", "begin_weight_update", "end_weight_update",
        "load_weights_from_distributed", "update_weights_from_tensor", "update_weights_from_ipc")),
    "elastic_ep.expert_backup_client": ("ExpertBackupClient", ("update_weights",)),
    "utils.weight_checker": ("WeightChecker", ("_reset_tensors",)),
    "managers.scheduler_components.weight_updater": (None, ("_export_static_state",)),
    "managers.cache_controller": ("HiCacheController", ("reset",))}
RESETS = "managers.cache_controller"
DURING = mock.Mock()  # called in each of them


ENGINE = types.SimpleNamespace(**SERVER, of_model=MODEL)
fake_engine()
from daemon import Daemon  # noqa: E402
from kvkeep.engine import Breaker  # noqa: E402
from kvkeep.sglang import KvkeepStorage  # noqa: E402

PAGE, PIECE = 4, 1024  # tokens of a page, and bytes of K or of V in it


def changing(module):
    """An object that has these functions of CHANGING, as SGLang calls them."""
    place, (kind, _) = sys.modules[f"sglang.srt.{module}"], CHANGING[module]
    return object.__new__(getattr(place, kind)) if kind else place


def updates():
    """Returns SGLang's functions that change weights, to be called as SGLang does: by name each
    time."""
    return [lambda *given, on=module, name=name: getattr(changing(on), name)(*given)
            for module, (_, names) in CHANGING.items() for name in names if module != RESETS]


class Pool:
    """The part of a host pool that is used: planes of pages."""

    dtype = "torch.bfloat16"

    def __init__(self, pages=8, layout="page_first", planes=2, page_size=PAGE):
        self.layout, self.page_size = layout, page_size
        self.planes = [bytearray(pages * PIECE) for _ in range(planes)]

    def get_page_buffer_meta(self, indices):
        assert len(indices) % self.page_size == 0
        addresses = []
        for first in indices.tolist()[::self.page_size]:
            for plane in self.planes:
                start = ctypes.addressof(ctypes.c_char.from_buffer(plane))
                addresses.append(start + first // self.page_size * PIECE)
        return addresses, [PIECE] * len(addresses)

    def fill(self, page, value):
        for number, plane in enumerate(self.planes):
            plane[page * PIECE:(page + 1) * PIECE] = bytes([value + 100 * number]) * PIECE

    def read(self, page):
        return [set(plane[page * PIECE:(page + 1) * PIECE]) for plane in self.planes]

    def indices(self, pages):
        return array.array("q", [page * self.page_size + token
                                 for page in pages for token in range(self.page_size)])


def indices(pages):
    return Pool(0).indices(pages)


def keys(count, first=1):
    return [bytes([first + i]).hex() * 32 for i in range(count)]


class WithDaemon(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.write("model/model.bin", b"weights")
        self.engine(model_path=str(self.folder / "model"))

    def write(self, name, content):
        """Writes files into the test's folder, before the engine begins."""
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(content)
        began = mock.patch("kvkeep.weights._IMPORTED_NS", time.time_ns() + 10 ** 12)
        began.start()
        self.addCleanup(began.stop)

    def engine(self, **other):
        """Makes later backends belong to such an engine."""
        patched = mock.patch.multiple(ENGINE, **other)
        patched.start()
        self.addCleanup(patched.stop)

    def backend(self, pool=None, options=None, **config):
        made = KvkeepStorage(HICACHE.HiCacheStorageConfig(**{
            "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0,
            "attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": False,
            "is_page_first_layout": True, "model_name": "m", "extra_config": {
                "interface_v1": 1, "kvkeep": {"endpoint": self.daemon.endpoint,
                                              "lookup_timeout_s": 20.0, **(options or {})}},
            **config}), {})
        self.addCleanup(made.close)
        made.mem_pool_host = pool or Pool()  # as the body of SGLang's own method does
        made.register_mem_pool_host(made.mem_pool_host)
        return made

    def hang(self, backend):
        """Stops the daemon. The backend waits for it once, for 0.2 s."""
        link = backend._link
        link.options = dataclasses.replace(link.options, lookup_timeout_s=0.2)
        link.breaker = Breaker(retry_s=3600)
        self.daemon.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.daemon.process.pid, os.WUNTRACED)

    def store(self, backend, count=3, first=1):
        for page in range(count):
            backend.mem_pool_host.fill(page, first + page)
        stored = backend.batch_set_v1(keys(count, first), indices(range(count)),
                                      HICACHE.HiCacheStorageExtraInfo())
        self.assertEqual(stored, [True] * count)
