"""Mooncake's store as one node has it: a master, a client daemon with the memory, and here the
thin client that shares memory with the daemon.

    python3 -m venv VENV && VENV/bin/pip install mooncake-transfer-engine-non-cuda==0.3.13.post1

Payloads lie in memory of the thin client, which the daemon maps: it copies from and to there, once,
and nobody else does. Nothing is checksummed. It evicts in the background.
"""

import importlib.metadata
import os
import pathlib
import sys
import time

from contestant import Contestant, main
from memory import populate
from processes import Server, free_port, listens

os.environ.setdefault("GLOG_minloglevel", "2")

BIN = pathlib.Path(sys.executable).parent
SMALL_BUFFER_BYTES = 16 << 20  # the thin client's own; payloads of ours lie elsewhere
SETUP_TRIES, SETUP_PAUSE_S = 100, 0.1
PACKAGES = ("mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine")


def _version():
    for package in PACKAGES:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise ImportError("no Mooncake in this environment")


class Mooncake(Contestant):
    evicts = False

    def __init__(self, directory, capacity_bytes):
        from mooncake.store import MooncakeDistributedStore  # after the settings of its log
        self.version = _version()
        master, metrics, daemon = free_port(), free_port(), free_port()
        quiet = {"GLOG_minloglevel": "2"}
        self._master = Server(
            "mooncake_master",
            [BIN / "mooncake_master", "--rpc_address=127.0.0.1", f"--rpc_port={master}",
             "--metrics_host=127.0.0.1", f"--metrics_port={metrics}",
             "--enable_metric_reporting=false"],
            directory, lambda: listens(master), quiet)
        self._daemon = Server(
            "mooncake_client",
            [BIN / "mooncake_client", "--host=127.0.0.1", f"--port={daemon}", "--protocol=tcp",
             f"--master_server_address=127.0.0.1:{master}", "--metadata_server=P2PHANDSHAKE",
             f"--global_segment_size={capacity_bytes}"],
            directory, lambda: listens(daemon), quiet)
        self._store = MooncakeDistributedStore()
        for _ in range(SETUP_TRIES):
            if self._store.setup_dummy(0, SMALL_BUFFER_BYTES, f"127.0.0.1:{daemon}") == 0:
                return
            time.sleep(SETUP_PAUSE_S)  # it listens before it is ready, and nothing tells
        raise OSError("Mooncake's daemon does not answer")

    def servers(self):
        return [self._master.pid, self._daemon.pid]

    def sources(self, size):
        address = self._store.alloc_from_mem_pool(size)
        if not address or self._store.register_buffer(address, size) != 0:
            raise MemoryError(f"Mooncake has no {size} bytes to share")
        populate(address, size)
        return address

    targets = sources

    def call_keys(self, first, count):
        """As long as digests in hexadecimal."""
        return [f"{number:064x}" for number in range(first, first + count)]

    def put(self, keys, addresses, size):
        if len(keys) == 1:
            codes = [self._store.put_from(keys[0], addresses[0], size)]
        else:
            codes = self._store.batch_put_from(keys, addresses, [size] * len(keys))
        if any(code != 0 for code in codes):
            raise OSError(f"Mooncake's put says {codes}")

    def get(self, keys, addresses, size):
        if len(keys) == 1:
            codes = [self._store.get_into(keys[0], addresses[0], size)]
        else:
            codes = self._store.batch_get_into(keys, addresses, [size] * len(keys))
        if any(code != size for code in codes):
            raise OSError(f"Mooncake's get says {codes}")

    def lookup(self, keys):
        return sum(1 for found in self._store.batch_is_exist(keys) if found == 1)

    def clear(self):
        code = self._store.remove_all(True)
        if code < 0:
            raise OSError(f"Mooncake's remove_all says {code}")


if __name__ == "__main__":
    main(Mooncake)
