"""LMCache's server, and here what an engine's worker is to it: `lmcache server` with an L1 in
shared memory, written to and read from by the client (engine driven transfers).

    python3 -m venv VENV && VENV/bin/pip install lmcache==0.5.6

A put asks for a slot, copies, and commits. A get is a lookup, which holds the chunk in place, then
asks where it lies, copies, and lets go: there is none without a lookup. A key is a prompt's tokens,
256 a chunk, as engines have them; those of a lookup are one prompt.
"""

import importlib.metadata
import json
import os
import pathlib
import sys
import urllib.request

from contestant import Contestant, main
import memory
from processes import Server, free_port
from slices import LookupMissed

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")

BIN = pathlib.Path(sys.executable).parent
CHUNK_TOKENS, BLOCK_TOKENS = 256, 16  # LMCache's default, vLLM's default
LAYER_PARTS = 2  # keys and values
TOKEN = 9906
PATIENCE_S = 60
WORLD, RANK = 1, 0


def _healthy(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=5) as answer:
            return json.load(answer)["status"] == "healthy"
    except OSError:
        return False


class LMCache(Contestant):
    evicts = False

    def __init__(self, directory, capacity_bytes):
        self.version = importlib.metadata.version("lmcache")
        port, http = free_port(), free_port()
        self._server = Server(
            "lmcache_server",
            [BIN / "lmcache", "server", "--port", str(port), "--http-port", str(http),
             "--l1-size-gb", str(capacity_bytes / (1 << 30)), "--no-l1-use-lazy",
             "--shm-name", f"kvkeep_compare_{os.getpid()}", "--eviction-policy", "LRU",
             "--supported-transfer-mode", "engine_driven", "--disable-metrics"],
            directory, lambda: _healthy(http))
        import zmq
        from lmcache.v1.multiprocess import custom_types, transfer_context
        from lmcache.v1.multiprocess.transport.factory import RequestClientFactory
        self._types, self._context_base = custom_types, transfer_context.base
        self._zmq = zmq.Context()
        self._client = RequestClientFactory.create(f"tcp://127.0.0.1:{port}", context=self._zmq)
        self._context = None  # the shared memory, once something is registered
        self._instance = 0
        self._model = ""
        self._requests = 0
        self._looked_up = []  # keys whose chunks are still held
        self._ended = []  # requests to end

    def servers(self):
        return [self._server.pid]

    def resize(self, size):
        """Registers a model whose chunks are of that size: one layer, bytes."""
        if size % (LAYER_PARTS * CHUNK_TOKENS) != 0:
            raise ValueError(f"chunks of {size} bytes are not {CHUNK_TOKENS} tokens of anything")
        self._instance += 1
        self._model = f"compare-{size}"
        answer = self._client.register_kv_cache_engine_driven_context(
            self._types.RegisterEngineDrivenContextPayload(
                instance_id=self._instance, model_name=self._model, world_size=WORLD,
                block_size=BLOCK_TOKENS, num_layers=1, dtype_str="uint8", use_mla=False,
                hidden_dim_size=size // (LAYER_PARTS * CHUNK_TOKENS),
                num_physical_slots=CHUNK_TOKENS)).result(timeout=PATIENCE_S)
        if self._context is None:
            self._context = self._context_base.create_engine_driven_context(
                None, self._client, PATIENCE_S, answer.shm_name, answer.pool_size)
            if "Shm" not in type(self._context).__name__:
                raise OSError("LMCache's server gave no shared memory")
            os.unlink(f"/dev/shm/{answer.shm_name.lstrip('/')}")  # both have it: nothing is left

    def call_keys(self, first, count):
        """A prompt of its own, all of its chunks."""
        return (first,) + (TOKEN,) * (count * CHUNK_TOKENS - 1)

    def _key(self, tokens):
        """The key of one request, so it is made in each call."""
        self._requests += 1
        return self._types.IPCCacheServerKey(
            model_name=self._model, world_size=WORLD, worker_id=RANK, num_kv_readers=1,
            token_ids=tokens, start=0, end=len(tokens), request_id=f"r{self._requests}")

    def put(self, keys, addresses, size):
        key = self._key(keys)
        slots, _ = self._context.prepare_store(key, self._instance) or ([], [])
        if len(slots) != len(addresses):
            raise OSError(f"LMCache has room for {len(slots)} of {len(addresses)} chunks")
        for slot, address in zip(slots, addresses):
            memory.copy(slot.data_ptr(), address, size)
        if not self._context.commit_store(key, self._instance, []):
            raise OSError("LMCache did not commit a store")
        self._ended.append(key.request_id)

    def _look_up(self, key):
        self._client.lookup(key.no_worker_id_version(), WORLD).result(timeout=PATIENCE_S)
        while (found := self._client.query_prefetch_status(key.request_id).result(
                timeout=PATIENCE_S)) is None:
            pass
        return found

    def get(self, keys, addresses, size):
        key = self._key(keys)
        found = self._look_up(key)
        if found != len(addresses):
            raise LookupMissed(f"LMCache finds {found} of {len(addresses)} chunks that were put")
        slots = self._context.prepare_retrieve(key, self._instance) or []
        if len(slots) != len(addresses):
            raise OSError("LMCache does not give what its lookup found")
        for slot, address in zip(slots, addresses):
            memory.copy(address, slot.data_ptr(), size)
        if not self._context.commit_retrieve(key, self._instance):
            raise OSError("LMCache did not commit a retrieve")
        self._ended.append(key.request_id)

    def lookup(self, keys):
        key = self._key(keys)
        found = self._look_up(key)
        self._looked_up.append(key)
        self._ended.append(key.request_id)
        return found

    def lookup_and_get(self, keys, addresses, size):
        self.get(keys, addresses, size)  # there is no get without

    def rest(self):
        for key in self._looked_up:
            self._client.free_lookup_locks(key.no_worker_id_version(), WORLD).result(
                timeout=PATIENCE_S)
        for request in self._ended:
            self._client.end_session(request).result(timeout=PATIENCE_S)
        self._looked_up, self._ended = [], []

    def clear(self):
        self.rest()
        self._client.clear().result(timeout=PATIENCE_S)


if __name__ == "__main__":
    main(LMCache)
