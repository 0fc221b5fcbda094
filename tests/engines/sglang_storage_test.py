#!/usr/bin/env python3
"""kvkeep.sglang on SGLang's own storage classes, in each known version: one backend finds and gets
what another one kept, by interfaces v1 and v2. Uses a real daemon, but no GPU, model or engine.

    uv pip install sglang==0.5.21 --override tests/engines/sglang_override.txt
    sglang_storage_test.py --root SOURCES --build build/release    (with that environment's Python)

The pools are plain memory: versions before 0.5.23 make theirs otherwise (sglang_pools_test.py).
"""

import ctypes
import logging
import os
import sys
import unittest
from unittest import mock

import engine_process

ASKED = engine_process.arguments(__doc__, engine=False)
BUILD, ROOT = ASKED.build.resolve(), ASKED.root.resolve()
os.environ["KVKEEP_CLIENT_LIBRARY"] = str(BUILD / "lib" / "libkvkeep-client.so.1")
sys.path[:0] = [str(ROOT / "client" / "python"), str(ROOT / "tests" / "client" / "c")]

import torch  # noqa: E402
from daemon import Daemon  # noqa: E402
from kvkeep import engine_versions, sglang_identity  # noqa: E402
from kvkeep.identity import Identity  # noqa: E402
from kvkeep.sglang import KvkeepStorage  # noqa: E402
from sglang.srt.mem_cache import hicache_storage as hicache  # noqa: E402

PAGES, PAGE, PIECE = 8, 16, 4096  # pages of a pool, tokens of a page, bytes of K or of V in one
KEYS = [bytes([at + 1]).hex() * 32 for at in range(PAGES)]


class Pool:
    """The used part of a host pool: K and V, a page after the other."""

    dtype, layout, page_size = torch.bfloat16, "page_first", PAGE

    def __init__(self):
        self.planes = [bytearray(PAGES * PIECE) for _ in range(2)]

    def get_page_buffer_meta(self, indices):
        starts = [ctypes.addressof(ctypes.c_char.from_buffer(plane)) + first // PAGE * PIECE
                  for first in indices.tolist()[::PAGE] for plane in self.planes]
        return starts, [PIECE] * len(starts)

    def fill(self):
        for number, plane in enumerate(self.planes):
            for page in range(PAGES):
                plane[page * PIECE:(page + 1) * PIECE] = bytes([1 + page + 100 * number]) * PIECE


def indices(pages):
    return torch.tensor([page * PAGE + token for page in pages for token in range(PAGE)],
                        dtype=torch.int64)


class Storage(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(BUILD / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def backend(self):
        config = hicache.HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
            is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=True,
            model_name="m", extra_config={"interface_v1": 1,
                                          "kvkeep": {"endpoint": self.daemon.endpoint}})
        made = "kvkeep.sglang_storage."
        with mock.patch(made + "identity_of", lambda version, *_: (
                Identity("sglang", version, weights="name:m"), "m")), \
                mock.patch(made + "has_storage_from_start", lambda: True), \
                mock.patch("kvkeep.sglang_epochs.weight_version", lambda: "default"):
            backend = KvkeepStorage(config, {})
        self.addCleanup(backend.close)
        backend.register_mem_pool_host(Pool())
        return backend

    def test_this_version_is_known(self):
        self.assertIsNotNone(engine_versions.version_of("sglang").known)

    def test_every_field_of_a_server_is_there_or_has_a_value(self):
        from sglang.srt.arg_groups.model_override_base import resolved_view
        from sglang.srt.server_args import ServerArgs

        server = resolved_view(ServerArgs(model_path="m", device="cpu"))
        for name in sglang_identity._OF_THE_SERVER:
            engine_versions.field("sglang", server, "ServerArgs", name)

    def test_what_one_backend_kept_another_gets(self):
        with mock.patch("kvkeep.sglang_epochs.weight_version", lambda: "default"):
            first, second = self.backend(), self.backend()
            first.mem_pool_host.fill()
            given = KEYS[:6], indices(range(6))
            self.assertEqual(second.batch_exists(given[0]), 0)
            self.assertEqual(first.batch_set_v1(*given), [True] * 6)
            self.assertEqual(second.batch_exists(KEYS), 6)
            self.assertEqual(second.batch_get_v1(*given), [True] * 6)
            for mine, its in zip(first.mem_pool_host.planes, second.mem_pool_host.planes):
                self.assertEqual(mine[:6 * PIECE], its[:6 * PIECE])

    def test_and_by_pools(self):
        transfer = hicache.PoolTransfer(name=hicache.PoolName.KV, keys=KEYS,
                                        host_indices=indices(range(PAGES)))
        with mock.patch("kvkeep.sglang_epochs.weight_version", lambda: "default"):
            first, second = self.backend(), self.backend()
            first.mem_pool_host.fill()
            self.assertEqual(list(first.batch_set_v2([transfer]).values()), [[True] * PAGES])
            found = second.batch_exists_v2(KEYS, [])
            self.assertEqual(found.kv_hit_pages, PAGES)
            self.assertEqual(list(second.batch_get_v2([transfer]).values()), [[True] * PAGES])
            self.assertEqual(first.mem_pool_host.planes, second.mem_pool_host.planes)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
