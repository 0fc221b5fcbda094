"""NIXL's OBJ backend, driven with the calls of vLLM's obj tier, without vLLM itself.

    python3 -m venv VENV && VENV/bin/pip install nixl==1.5.1 numpy

A lookup is one query_memory of all keys: a HEAD each. A load and a store are one transfer of all
chunks, polled every millisecond, with the tier's four I/O threads. The engine's memory is one
region, registered when the tier begins.
"""

import importlib.metadata
import time

from arm import Arm, main

IO_THREADS = 4  # the tier's default
POLL_S = 0.001  # as the tier's drain_jobs
PATIENCE_S = 120
DRAM = 0  # device of host memory
AGENT = "ObjAgent"


class Nixl(Arm):
    def __init__(self, where):
        super().__init__(where)
        self.version = importlib.metadata.version("nixl")

    def begin(self, size, places, region):
        # The wheel's build for CUDA 12: the OBJ plugin of that for 13 wants libcuobjclient, which
        # no package has.
        from nixl_cu12._api import nixl_agent, nixl_agent_config
        key_id, secret = self.where.keys()
        self._agent = nixl_agent(AGENT, nixl_agent_config(backends=[]))
        self._agent.create_backend("OBJ", {
            "bucket": self.where.bucket, "endpoint_override": self.where.endpoint,
            "scheme": "http", "access_key": key_id, "secret_key": secret,
            "region": self.where.region, "use_virtual_addressing": "false",
            "num_threads": str(IO_THREADS)})
        self._size, self._first = size, places[0]
        self._memory = self._agent.register_memory([(*region, DRAM, "")], "DRAM")
        self._blocks = self._agent.prep_xfer_dlist(
            "NIXL_INIT_AGENT", [(place, size, DRAM) for place in places], "DRAM")
        self._next_device = 1  # each object of a transfer has a number of its own

    def end(self):
        self._agent.release_dlist_handle(self._blocks)
        self._agent.deregister_memory(self._memory)
        self._agent = None

    def _name(self, key):
        return f"compare-{self._size}/{key.hex()}.bin"

    def look_up(self, keys):
        found = self._agent.query_memory([(0, 1, 0, self._name(key)) for key in keys],
                                         "OBJ", "OBJ")
        return next((i for i, one in enumerate(found) if one is None), len(keys))

    def put(self, keys, places):
        self._transfer("WRITE", keys, places)

    def load(self, keys, places):
        self._transfer("READ", keys, places)

    def _transfer(self, operation, keys, places):
        objects = self._agent.register_memory(
            [(0, self._size, device, self._name(key))
             for device, key in enumerate(keys, self._next_device)], "OBJ")
        self._next_device += len(keys)
        remote = self._agent.prep_xfer_dlist(AGENT, objects.trim())
        blocks = [(place - self._first) // self._size for place in places]
        transfer = self._agent.make_prepped_xfer(operation, self._blocks, blocks, remote,
                                                 list(range(len(keys))))
        state = self._agent.transfer(transfer)
        deadline = time.monotonic() + PATIENCE_S
        while state == "PROC" and time.monotonic() < deadline:
            time.sleep(POLL_S)
            state = self._agent.check_xfer_state(transfer)
        self._agent.release_xfer_handle(transfer)
        self._agent.release_dlist_handle(remote)
        self._agent.deregister_memory(objects)
        if state != "DONE":
            raise OSError(f"a transfer of NIXL's ended as {state}")


if __name__ == "__main__":
    main(Nixl)
