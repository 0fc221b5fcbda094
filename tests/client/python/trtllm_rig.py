"""Common code of the tests of kvkeep.trtllm: TensorRT-LLM's recorded classes, and engines that call
the connector as its executor does, with KV in the fake driver's GPU memory. The importing test has
the arguments SOURCES LIBRARY KVKEEPD FAKE_DRIVER.
"""

import copy
import ctypes
import functools
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import signatures

SOURCES, LIBRARY, KVKEEPD, DRIVER = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
_SETTINGS = tempfile.NamedTemporaryFile("w", prefix="kvkeep-fake-cuda-")
os.environ["KVKEEP_FAKE_CUDA"] = _SETTINGS.name
sys.path[:0] = [str(SOURCES / folder)
                for folder in ("client/python", "tests/client/c", "tests/fakes/cuda")]

VERSION = "1.4.0rc4"
_CONNECTORS = "tensorrt_llm._torch.pyexecutor.connectors"
signatures.load(_CONNECTORS)
_NAME = f"{_CONNECTORS}.kv_cache_layout"
sys.modules[_NAME] = types.ModuleType(_NAME)
sys.modules[_NAME].torch = types.SimpleNamespace(uint8="torch.uint8")  # a default of its classes
LAYOUT = signatures.load(_NAME)
THEIRS = signatures.load(f"{_CONNECTORS}.kv_cache_connector")
RANK = [0]
signatures.load("tensorrt_llm._utils").mpi_rank = lambda: RANK[0]
for _base in (THEIRS.KvCacheConnectorWorker, THEIRS.KvCacheConnectorScheduler):
    _base.__init__ = lambda self, llm_args: None
THEIRS.KvCacheConnectorWorker.bind_connector_meta = lambda self, metadata: None
signatures.installed("tensorrt_llm", VERSION)

from daemon import Daemon  # noqa: E402
from fake_gpu import FakeGpu  # noqa: E402
from kvkeep import trtllm_memory, trtllm_worker  # noqa: E402
from kvkeep.trtllm import KvkeepScheduler, KvkeepWorker  # noqa: E402

BLOCK = 4  # tokens
PROMPT = [random.Random(1).randrange(100_000) for _ in range(10 * BLOCK + 1)]
GPU = FakeGpu(DRIVER)
trtllm_worker.Driver = functools.partial(trtllm_memory.Driver, DRIVER)
# Sizes of the regions of each layer group.
GROUPS = ((8192, 1024), (4096,))


def settings(text=""):
    """Sets the fake driver (tests/fakes/cuda/README.md)."""
    _SETTINGS.seek(0)
    _SETTINGS.truncate()
    _SETTINGS.write(text)
    _SETTINGS.flush()


def arguments(**other):
    """Returns TorchLlmArgs, as far as they are read."""
    cache = {"tokens_per_block": BLOCK, "host_cache_size": 0, "dtype": "auto",
             "enable_block_reuse": True, "free_gpu_memory_fraction": 0.9}
    cache.update({name: other.pop(name) for name in list(other) if name in cache})
    return types.SimpleNamespace(**{
        "model": "/nowhere/llama", "revision": None, "load_format": "AUTO", "dtype": "bfloat16",
        "max_beam_width": 1, "tensor_parallel_size": 1, "pipeline_parallel_size": 1,
        "context_parallel_size": 1, "enable_attention_dp": False, "speculative_config": None,
        "sparse_attention_config": None, "max_seq_len": 4096, "max_batch_size": 8,
        "kv_cache_config": types.SimpleNamespace(**cache), **other})


def request_of(number, tokens, salt=None, **other):
    """Returns an LlmRequest, as far as it is read."""
    return types.SimpleNamespace(request_id=number, cache_salt=salt, lora_task_id=None,
                                 multimodal_hashes=None, get_tokens=lambda beam: list(tokens),
                                 **other)


def content(tokens, rank, group, region):
    """Returns the KV of the last block of these tokens in a region."""
    made_of = repr((list(tokens), rank, group, region))
    return random.Random(made_of).randbytes(GROUPS[group][region])


class Stream:
    def __init__(self):
        self._driver, handle = ctypes.CDLL(DRIVER), ctypes.c_void_p()
        assert self._driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
        self.cuda_stream = handle.value

    def synchronize(self):
        assert self._driver.cuStreamSynchronize(ctypes.c_void_p(self.cuda_stream)) == 0


class Rank:
    """A rank's memory and worker."""

    def __init__(self, number, llm_args, slots, window=None, tokens_per_block=BLOCK):
        RANK[0] = number
        self.number, self.stream, self.slots = number, Stream(), slots
        self.worker, self.saved = KvkeepWorker(llm_args), set()
        groups = []
        for group, sizes in enumerate(GROUPS):
            stride = sum(sizes) + 512  # a gap that is nobody's
            base = GPU.alloc(max(stride * slots, 2 << 20))
            offsets = [sum(sizes[:at]) for at in range(len(sizes))]
            groups.append(LAYOUT.KvCacheLayerGroupLayout(
                group, (group,), window, tuple(LAYOUT.KvCacheRegion(
                    base + offset, size, stride, slots,
                    (LAYOUT.KvCacheBufferRef(group, f"role {offset}"),))
                    for offset, size in zip(offsets, sizes))))
        self.layout = LAYOUT.KvCacheLayout(tokens_per_block, tuple(groups), "torch.bfloat16")

    def register(self):
        self.worker.register_kv_cache_layout(self.layout)

    def pages(self, tokens, pages):
        """Yields (view of a region's page, its right bytes) of a block, after these tokens."""
        for group, page in enumerate(pages):
            for number, region in enumerate(self.layout.groups[group].regions):
                yield (GPU.view(region.base + page * region.stride, region.size),
                       content(tokens, self.number, group, number))


class Engine:
    """Calls the halves as PyExecutor and KVCacheManagerV2 do: one request at a time."""

    def __init__(self, slots=64, ranks=1, first_rank=0, **args):
        shards = args.get("tensor_parallel_size", ranks)
        given = [arguments(**{**args, "tensor_parallel_size": shards}) for _ in range(ranks)]
        RANK[0] = first_rank
        self.scheduler = KvkeepScheduler(given[0])
        self.ranks = [Rank(first_rank + number, one, slots) for number, one in enumerate(given)]
        for rank in self.ranks:
            rank.register()
        self.free = list(range(slots))
        random.Random(slots).shuffle(self.free)
        self._last, self.before_load = 0, lambda: None

    def step(self, new=(), cached=()):
        """Runs what comes before a forward."""
        output = THEIRS.SchedulerOutput(list(new), list(cached))
        meta = self.scheduler.build_connector_meta(output)
        self.before_load()
        for rank in self.ranks:
            rank.worker.bind_connector_meta(copy.deepcopy(meta))  # as it is sent to other processes
            rank.worker.start_load_kv(rank.stream)
            rank.stream.synchronize()
        return meta

    def after_forward(self):
        for rank in self.ranks:
            rank.worker.wait_for_save(rank.stream)
        self.finished([])

    def finished(self, ended):
        """Returns the requests that all ranks have copied, each once."""
        for rank in self.ranks:
            saved, loading = rank.worker.get_finished(list(ended), [])
            assert loading == [] and not rank.saved.intersection(saved)
            rank.saved.update(saved)
        over = set.intersection(*(rank.saved for rank in self.ranks))
        for rank in self.ranks:
            rank.saved -= over
        return over

    def data(self, number, tokens, pages, position, scheduled):
        return THEIRS.RequestData(number, list(tokens), [], position, scheduled,
                                  new_block_ids_by_layer_group=self.by_group(pages))

    def by_group(self, pages):
        """Returns the pages in each layer group, which are others in each."""
        return [list(pages), [self.ranks[0].slots - 1 - page for page in pages]]

    def of_block(self, rank, tokens, pages, block):
        """Yields (view, right bytes) of a block's pages."""
        return rank.pages(tokens[:(block + 1) * BLOCK],
                          [of_group[block] for of_group in self.by_group(pages)])

    def begin(self, tokens, salt=None, computed=0, **other):
        """Looks a new request up; returns (request, tokens found)."""
        self._last += 1
        request = request_of(self._last, tokens, salt, **other)
        found, later = self.scheduler.get_num_new_matched_tokens(request, computed)
        assert later is False
        request.py_num_connector_matched_tokens = found  # V2 uses all of it
        return request, found

    def compute(self, tokens, pages, first, end):
        """Does as a forward does: fills the blocks from `first` to `end`, of all ranks."""
        for block in range(first, end):
            for rank in self.ranks:
                for view, right in self.of_block(rank, tokens, pages, block):
                    view[:] = right

    def wrong(self, tokens, pages, first, end):
        """Returns how many pages from block `first` to `end` have not their right bytes."""
        return sum(bytes(view) != right for block in range(first, end) for rank in self.ranks
                   for view, right in self.of_block(rank, tokens, pages, block))

    def run(self, tokens, salt=None, computed=0, generated=(), **other):
        """Runs a request to its end. Returns its tokens that were found, all of whose bytes are
        right."""
        request, found = self.begin(tokens, salt, computed, **other)
        whole = list(tokens) + list(generated)
        pages = [self.free.pop() for _ in range(-(-len(whole) // BLOCK))]
        self.compute(whole, pages, 0, computed // BLOCK)
        here = -(-len(tokens) // BLOCK)
        self.step([self.data(request.request_id, tokens, pages[:here], computed,
                             len(tokens) - computed - found)])
        done = (computed + found) // BLOCK
        assert self.wrong(whole, pages, 0, done) == 0, "wrong bytes"
        self.compute(whole, pages, done, len(tokens) // BLOCK)
        self.after_forward()
        for at in range(len(tokens), len(whole)):
            new = pages[here:at // BLOCK + 1]
            here += len(new)
            self.step(cached=[self.data(request.request_id, [whole[at]], new, at, 1)])
            self.compute(whole, pages, at // BLOCK, (at + 1) // BLOCK)
            self.after_forward()
        self.end(request, pages)
        return found

    def end(self, request, pages):
        if self.scheduler.request_finished_by_layer_group(request, self.by_group(pages)):
            over = self.finished([request.request_id])
            while request.request_id not in over:
                over = self.finished([])
        for rank in self.ranks:  # another request's by now
            for block in range(len(pages)):
                for view, _ in self.of_block(rank, [], pages, block):
                    view[:] = bytes([rank.number + 0xE0]) * len(view)
        self.free += pages

    def drain(self):
        """Waits until all puts have ended."""
        deadline = time.monotonic() + 60
        while any(rank.worker._completions.pending or rank.worker._copying for rank in self.ranks):
            assert time.monotonic() < deadline, "a put does not end"
            self.finished([])
            time.sleep(0.001)

    def close(self):
        for rank in self.ranks:
            rank.worker.shutdown()
        self.scheduler.shutdown()


class WithDaemon(unittest.TestCase):
    def setUp(self):
        settings()
        self.addCleanup(settings)
        self.daemon = Daemon(KVKEEPD)
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)
        patched = mock.patch.dict(os.environ)
        patched.start()
        self.addCleanup(patched.stop)
        self.options()

    def options(self, **other):
        os.environ["KVKEEP_TRTLLM"] = json.dumps({
            "endpoint": self.daemon.endpoint, "weights": "name:a", "load_bytes": 2 << 20,
            "store_bytes": 2 << 20, "lookup_timeout_s": 5, "load_timeout_s": 5,
            "store_timeout_s": 30, **other})

    def engine(self, *given, **named):
        """Makes an Engine, and waits longer for the daemon than the connector does."""
        made = Engine(*given, **named)
        self.addCleanup(made.close)
        deadline = time.monotonic() + 30
        for process in [rank.worker.process for rank in made.ranks]:
            if self.daemon.process is not None:
                process.client.wait_connected(30)
            while process.namespace(made.scheduler.process.arguments) is None:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.001)
        return made

    def keep(self, tokens=PROMPT, **args):
        """Has an engine keep a prompt."""
        engine = self.engine(**args)
        self.assertEqual(engine.run(tokens), 0)
        engine.drain()
        return engine
