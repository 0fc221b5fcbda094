#!/usr/bin/env python3
"""A real LMCache server on a CPU with kvkeep below it: bytes outlive the server and the daemon.

    uv pip install lmcache==0.5.6
    lmcache_server_test.py --root SOURCES --build build/release    (with that environment's Python)

LMCache's own benchmark client stands for the engine. It stores KV of a prompt, and looks it up and
gets it back after a restart of the server, a SIGKILL of the daemon, and both; also while the daemon
is away, and after it came back. Then `lmcache bench l2` runs with verification, for both adapters.
Needs the targets kvkeep_c, kvkeepd and kvkeep. About three minutes.
"""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

import torch
from lmcache.v1.kv_layer_groups import KVLayerGroupsManager
from lmcache.v1.multiprocess.group_view import EngineGroupInfo

import engine_process
import lmcache_server
from daemon import Daemon
from lmcache_server import wait_until

try:
    from lmcache import lmcache_native
    from lmcache.cli.commands.bench.server_bench.client import ServerBenchClient
    from lmcache.cli.commands.bench.server_bench.config import BenchConfig
except ImportError:  # versions that lack what these tests drive, and have `lmcache bench l2`
    ServerBenchClient = None

ASKED = engine_process.arguments(__doc__, engine=False)
ROOT, BUILD = ASKED.root.resolve(), ASKED.build.resolve()
RECORDED = importlib.metadata.version("lmcache") == "0.5.6"
LMCACHE = str(pathlib.Path(sys.executable).parent / "lmcache")

def adapter(kind, module, name, **params):
    return json.dumps({"type": kind, "module_path": module, "class_name": name,
                       "adapter_params": {"name": "test", **params}})


PLUGIN = "plugin", "kvkeep.lmcache", "KvkeepL2"
NATIVE = "native_plugin", "kvkeep.lmcache_native", "KvkeepConnector"
CHUNK_TOKENS, CHUNKS, RANKS = 256, 8, 2
SHAPE = "(2,256,16,2,64):bfloat16:4"  # K and V, blocks of 16 tokens, heads, size; four layers


def environment(daemon):
    return dict(os.environ, KVKEEP_ENDPOINT=daemon.endpoint, LMCACHE_DISABLE_BANNER="1",
                KVKEEP_CLIENT_LIBRARY=str(BUILD / "lib" / "libkvkeep-client.so.1"),
                PYTHONPATH=str(ROOT / "client" / "python"), PYTHONDONTWRITEBYTECODE="1")


class Server(lmcache_server.Server):
    """A server with kvkeep below its own memory."""

    def __init__(self, daemon):
        super().__init__(LMCACHE, environment(daemon), ["--l2-adapter", adapter(*PLUGIN)])

    def adapter(self):
        """Returns KvkeepL2.report_status, wherever LMCache shows it."""
        def find(tree):
            if isinstance(tree, dict) and tree.get("type") == "KvkeepL2":
                return tree
            branches = tree.values() if isinstance(tree, dict) else tree
            branches = [one for one in branches if isinstance(one, (dict, list))]
            return next(filter(None, map(find, branches)), None)

        return find(self.ask("GET", "status"))

    def wait_stored(self, chunks):
        wait_until(lambda: self.adapter().get("store_keys", 0) >= chunks,
                   lambda: f"{self.adapter()} {self.said()}")


class Engine:
    """LMCache's benchmark client, which has KV caches of two ranks in its own memory."""

    def __init__(self, server):
        self.client = ServerBenchClient(BenchConfig(
            rpc_url=f"tcp://127.0.0.1:{server.port}", http_url=f"http://127.0.0.1:{server.http}",
            mode="cpu", transfer_mode="engine_driven", tp_size=RANKS, use_mla=False,
            num_tokens=CHUNKS * CHUNK_TOKENS, kvcache_shape_spec=SHAPE, num_blocks=256,
            block_size=16), lambda _: None)
        self.client.start()
        self.asked = 0

    def request(self, prompt):
        self.asked += 1
        return self.client.create_request(prompt, f"r{self.asked}-{id(self)}", "test")

    def store(self, prompt):
        """Stores other bytes for each prompt and rank; returns checksums of the chunks."""
        for rank, worker in enumerate(self.client._workers):
            seed = torch.Generator().manual_seed(100 * prompt + rank)
            for tensor in worker.kv_caches.values():
                tensor.normal_(generator=seed)
        request = self.request(prompt)
        done = self.client.store(request, 0, request.num_full_tokens)
        sums = self.client.compute_checksums(request, 0, request.num_full_tokens)
        self.client.end_session(request)
        assert done.succeeded and len(set(sums)) == CHUNKS * RANKS, (done, sums)
        return sums

    def hits(self, prompt):
        request = self.request(prompt)
        found = self.client.lookup(request)
        self.client.end_session(request)
        assert found.succeeded, found
        return found.hit_chunks

    def load(self, prompt):
        """Gets a prompt's KV into zeroed memory. Returns checksums, as store does."""
        request = self.request(prompt)
        found = self.client.lookup(request)
        assert found.hit_chunks == CHUNKS, found
        self.client.zero_destination(request, 0, request.num_full_tokens)
        done = self.client.retrieve(request, 0, request.num_full_tokens)
        sums = self.client.compute_checksums(request, 0, request.num_full_tokens)
        self.client.end_session(request)
        assert done.succeeded, done
        return sums

    def close(self):
        self.client.close()


def objects(separate, **other):
    """Returns how many objects LMCache makes of a layer of attention and one with `other`, for a
    model that registers on a server."""
    infos = [EngineGroupInfo(0, (0,), 16), EngineGroupInfo(1, (1,), 16, **other)]
    return KVLayerGroupsManager(
        [torch.zeros(2, 4, 16, 2, 64) for _ in infos],
        [lmcache_native.EngineKVFormat.NL_X_TWO_NB_BS_NH_HS] * len(infos), infos, CHUNK_TOKENS,
        separate_object_groups=separate).num_object_groups


class LMCacheServer(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(BUILD / "bin" / "kvkeepd")
        self.daemon.start()
        self.addCleanup(self.daemon.__exit__)

    def start(self):
        self.server = Server(self.daemon)
        self.engine = Engine(self.server)

    def stop(self):
        self.engine.close()
        self.server.close()

    def clear(self):
        """Clears LMCache's own memory; chunks that are found then were kept by the daemon."""
        self.server.ask("POST", "cache/clear")

    @unittest.skipUnless(RECORDED, "this LMCache has no such client, or another one")
    def test_bytes_outlive_the_server_the_daemon_and_both(self):
        self.start()
        self.addCleanup(self.stop)
        first, second = self.engine.store(1), self.engine.store(2)
        self.assertNotEqual(first, second)
        self.server.wait_stored(2 * CHUNKS * RANKS)
        self.assertEqual(self.server.adapter()["store_good"], 2 * CHUNKS * RANKS)
        self.clear()
        self.assertEqual(self.engine.load(1), first)
        print("the server has forgotten: equal", self.server.adapter())

        self.stop()
        self.start()
        self.assertEqual([self.engine.load(prompt) for prompt in (1, 2)], [first, second])
        self.assertEqual(self.engine.hits(3), 0)
        print("another server: equal", self.server.adapter())

        self.clear()
        self.daemon.wait_clean(2 * CHUNKS * RANKS)
        self.daemon.kill()
        self.assertEqual(self.engine.hits(1), 0)
        third = self.engine.store(3)  # into LMCache's own memory only
        self.assertEqual(self.engine.load(3), third)
        self.assertFalse(self.server.adapter()["is_healthy"])
        print("no daemon: a miss", self.server.adapter())
        self.daemon.start()
        self.daemon.wait_joined()
        wait_until(lambda: self.server.adapter()["is_healthy"], self.server.said)
        self.assertEqual([self.engine.load(prompt) for prompt in (2, 1)], [second, first])
        print("the daemon after a SIGKILL: equal", self.server.adapter())

        self.stop()
        self.daemon.restart()
        self.start()
        self.assertEqual([self.engine.load(prompt) for prompt in (1, 2)], [first, second])
        self.assertEqual(self.server.adapter()["leases"], 0)
        print("both: equal", self.server.adapter())

    @unittest.skipUnless(RECORDED, "another version is recorded")
    def test_the_recorded_signatures_are_those_of_this_lmcache(self):
        check = ROOT / "tests" / "client" / "python" / "signatures.py"
        subprocess.run([sys.executable, "-B", check, "check"], check=True)

    def test_lmcache_bench_verifies_what_it_gets(self):
        self.bench(adapter(*PLUGIN, short_hashes=True))  # its keys are numbers

    def test_lmcache_bench_verifies_what_the_plain_connector_gets(self):
        self.bench(adapter(*NATIVE, short_hashes=True))

    @unittest.skipUnless(ServerBenchClient, "this LMCache has no such client")
    def test_models_whose_layers_lmcache_would_mix_in_one_object_are_refused(self):
        os.environ.update(environment(self.daemon))
        sys.path.insert(0, str(ROOT / "client" / "python"))
        from kvkeep.lmcache import KvkeepL2
        from kvkeep.lmcache_native import KvkeepConnector

        given = {"name": "test", "endpoint": self.daemon.endpoint}
        mixed = ({"sw_size_tokens": 16, "recurrent_state": True}, {"sw_size_tokens": 64})
        for make in (lambda: KvkeepL2(given), lambda: KvkeepConnector(**given)):
            theirs = KVLayerGroupsManager._detect_object_groups
            with mock.patch.object(KVLayerGroupsManager, "_detect_object_groups", theirs):
                self.assertEqual([objects(False, **one) for one in mixed], [1, 1])
                made = make()
                self.addCleanup(made.close)
                for one in mixed:
                    with self.assertRaisesRegex(ValueError, "--separate-object-groups"):
                        objects(False, **one)
                    self.assertEqual(objects(True, **one), 2)
                self.assertEqual(objects(False), 1)

    def bench(self, adapter):
        asked = [LMCACHE, "bench", "l2", "--l2-adapter", adapter, "--num-keys", "4",
                 "--rounds", "3", "--in-flight", "2", "--data-size-kb", "1024",
                 "--lookup-max-hit-rate", "1.0", "--no-skip-verify"]
        # It unlocks nothing, so everything must fit what may be leased.
        done = subprocess.run(asked, env=environment(self.daemon), capture_output=True, text=True,
                              timeout=300, check=True)
        lines = [line.strip() for line in done.stdout.splitlines()]
        rounds = [line for line in lines if "] Round" in line]
        self.assertEqual(len(rounds), 3 * 4, done.stdout)
        for line in rounds:
            self.assertRegex(line, r"=8/8$")
        self.assertIn("[Verify] All 8 keys data verified OK.", lines)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
