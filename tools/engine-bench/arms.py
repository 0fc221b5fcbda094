"""The compared arms: vLLM with nothing below it, and with each store that could keep its KV.

    none     no KV connector
    cpu      vLLM's offloading into memory of its own; lost at a restart
    fs       that, and vLLM's own tier of files below it
    dict     that, and a dict of the same process below it (dict_tier.py)
    kvkeep   that, and kvkeep below it
    direct   kvkeep's own connector: no memory of vLLM's between
    lmcache  LMCache's connector, and `lmcache server` with all of it in its memory

An arm keeps what it keeps over all engines that are made of it, until it is closed.
"""

import json
import os
import pathlib
import shutil
import tempfile

import engine_process
import lmcache_server
import served
import vllm_engine
from daemon import Daemon

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("none", "cpu", "fs", "dict", "kvkeep", "direct", "lmcache")
# Environment variables: LMCache's program, and a folder with its package for vLLM's Python.
LMCACHE, LMCACHE_PACKAGE = "KVKEEP_LMCACHE", "KVKEEP_LMCACHE_PACKAGE"


class Arm:
    """asked: the command line (root, build). scale: sizes, as of engine_bench.Scale."""

    def __init__(self, name, asked, model, scale, daemon=None):
        """daemon: one that serves, of the caller; else arms that need one have their own."""
        if name not in NAMES:
            raise ValueError(f"no arm {name}: there are {', '.join(NAMES)}")
        self.name = name
        self._asked, self._model, self._scale = asked, model, scale
        self._engine = self._lmcache = self._served = None
        self._daemon, self._owns_daemon = daemon, daemon is None
        self._kept = set()  # chunks that the daemon should have
        self._dir = tempfile.mkdtemp(prefix="kvkeep-engine-bench-")
        if name in ("kvkeep", "direct") and self._owns_daemon:
            self._daemon = Daemon(asked.build / "bin" / "kvkeepd")
            self._daemon.settings = {
                "KVKEEP_G2_CAPACITY": str(scale.tier_bytes),
                "KVKEEP_G3_PATHS": json.dumps([{"dir": f"{self._daemon.dir}/nvme",
                                                "capacity": 2 * scale.tier_bytes}])}
            self._daemon.start()
        elif name == "lmcache":
            self._lmcache = lmcache_server.Server(
                os.environ[LMCACHE], dict(os.environ, LMCACHE_DISABLE_BANNER="1"),
                ["--chunk-size", str(vllm_engine.CHUNK_TOKENS)])

    def _connector(self):
        if self.name == "none":
            return None
        if self.name == "direct":
            return vllm_engine.direct()
        if self.name == "lmcache":
            return {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both",
                    "kv_connector_extra_config": {
                        "lmcache.mp.host": "tcp://127.0.0.1",
                        "lmcache.mp.port": self._lmcache.port}}
        tiers = {"cpu": [], "dict": [{"type": "DictTier", "module_path": "dict_tier"}],
                 "fs": [{"type": "fs", "root_dir": self._dir}],
                 "kvkeep": [vllm_engine.KVKEEP]}[self.name]
        return vllm_engine.offloading(tiers, self._scale.cpu_bytes)

    def start(self):
        """An engine in a new process."""
        self.stop()
        self._engine = engine_process.EngineProcess(
            HERE / "measured_engine.py", self._asked, self._model,
            self._daemon and self._daemon.endpoint,
            vllm_engine.ENVIRONMENT,
            path=self._path(),
            options={"connector": self._connector(), "llm": self._scale.llm})

    def _path(self):
        return [HERE, *([os.environ[LMCACHE_PACKAGE]] if self._lmcache else [])]

    def serve(self, engines):
        """So many of them, as servers, until the next stop()."""
        self.stop()
        self._served = served.ServedEngines(
            engines, HERE / "served_engine.py", self._asked, self._model,
            self._daemon and self._daemon.endpoint, self._path(), self._connector(),
            self._scale.llm)
        return self._served

    def host_bytes(self):
        """Memory of the servers and of the stores below them."""
        below = [one.process.pid for one in (self._daemon, self._lmcache) if one is not None]
        return served.host_bytes([*self._served.pids, *below])

    def restart(self):
        """Another engine in the same process."""
        self._engine.ask(json.dumps({"restart": True}), quiet=True)

    def ask(self, prompts, answer_tokens):
        """The answer of measured_engine.py; returns when nothing is written behind any more."""
        said = self._engine.ask(
            json.dumps({"ask": prompts, "answer_tokens": answer_tokens}), quiet=True)
        if self._daemon is not None:
            whole = vllm_engine.CHUNK_TOKENS
            self._kept.update(hash(tuple(prompt[:end])) for prompt in prompts
                              for end in range(whole, len(prompt) + 1, whole))
            # Recalled chunks may stay in G2 alone; who brought the daemon knows.
            self._daemon.wait_clean(len(self._kept) if self._owns_daemon else 0)
        return said

    def stop(self):
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        if self._served is not None:
            self._served.stop()
            self._served = None

    def close(self):
        """Idempotent."""
        self.stop()
        if self._daemon is not None and self._owns_daemon:
            self._daemon.__exit__()
        self._daemon = None
        if self._lmcache is not None:
            self._lmcache.close()
            self._lmcache = None
        shutil.rmtree(self._dir, ignore_errors=True)
