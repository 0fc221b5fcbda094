"""What tests of kvkeep.sglang share: SGLang's recorded classes, host pools, and a backend with a
real daemon. The test that imports it has the arguments SOURCES LIBRARY KVKEEPD.
"""

import array
import ctypes
import os
import pathlib
import sys
import types
import unittest

import signatures

SOURCES, LIBRARY, KVKEEPD = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
os.environ["KVKEEP_CLIENT_LIBRARY"] = LIBRARY
sys.path[:0] = [str(SOURCES / "client" / "python"), str(SOURCES / "tests" / "client" / "c")]

HICACHE = signatures.load("sglang.srt.mem_cache.hicache_storage")
# As much of torch as is used: the indices of a page.
sys.modules["torch"] = types.SimpleNamespace(arange=lambda end: array.array("q", range(end)))
from daemon import Daemon  # noqa: E402
from kvkeep.sglang import KvkeepStorage  # noqa: E402

PAGE, PIECE = 4, 1024  # tokens, and bytes of K or of V, in a page


class Pool:
    """As much of a host pool as is used: planes of pages."""

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

    def backend(self, pool=None, options=None, **config):
        made = KvkeepStorage(HICACHE.HiCacheStorageConfig(**{
            "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0,
            "attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": False,
            "is_page_first_layout": True, "model_name": "m", "extra_config": {
                "interface_v1": 1, "kvkeep": {"endpoint": self.daemon.endpoint, **(options or {})}},
            **config}), {})
        self.addCleanup(made.close)
        made.mem_pool_host = pool or Pool()  # as the body of SGLang's own method does
        made.register_mem_pool_host(made.mem_pool_host)
        return made

    def store(self, backend, count=3, first=1):
        for page in range(count):
            backend.mem_pool_host.fill(page, first + page)
        stored = backend.batch_set_v1(keys(count, first), indices(range(count)),
                                      HICACHE.HiCacheStorageExtraInfo())
        self.assertEqual(stored, [True] * count)
