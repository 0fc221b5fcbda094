"""LMCache's S3 adapter, S3L2Adapter, as LMCache's server drives it: lookup task, then load task.

    python3 -m venv VENV && VENV/bin/pip install lmcache==0.5.6

It sends a HEAD for each key of a lookup and keeps what it found; begin() makes another adapter,
which knows nothing. It gives out and takes memory by address, as an L1 has it.
"""

import importlib.metadata
import os
import select
import urllib.parse

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")

from arm import Arm, main  # noqa: E402
from memory import view  # noqa: E402

PATIENCE_MS = 120_000
MODEL = "compare"


class Slot:
    """A chunk's place in memory, in what the adapter asks of LMCache's MemoryObj."""

    def __init__(self, address, size):
        self.data_ptr, self.byte_array = address, view(address, size)
        self._size = size

    def get_size(self):
        return self._size

    get_physical_size = get_size


class LMCache(Arm):
    def __init__(self, where):
        super().__init__(where)
        self.version = importlib.metadata.version("lmcache")
        from lmcache.v1.distributed import api
        from lmcache.v1.distributed.l2_adapters import s3_l2_adapter
        self._api, self._s3 = api, s3_l2_adapter

    def begin(self, size, places, region):
        key_id, secret = self.where.keys()
        # Virtual-host style: the bucket is the first part of the host's name. The gateway takes
        # 127.0.0.1 for the bucket 127 of the domain 0.0.1 (gateway.py).
        address = urllib.parse.urlsplit(self.where.endpoint)
        self._adapter = self._s3.S3L2Adapter(self._s3.S3L2AdapterConfig(
            s3_endpoint=f"{self.where.bucket}.0.0.1:{address.port}",
            s3_region=self.where.region, s3_prefer_http2=False, disable_tls=True,
            aws_access_key_id=key_id, aws_secret_access_key=secret))
        self._size = size

    def end(self):
        self._adapter.close()

    def _keys(self, keys):
        return [self._api.ObjectKey(chunk_hash=key, model_name=f"{MODEL}-{self._size}", kv_rank=0)
                for key in keys]

    def _await(self, descriptor, result):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while (done := result()) is None:
            if not poll.poll(PATIENCE_MS):
                raise OSError("LMCache's adapter did not end a task")
            os.eventfd_read(descriptor)
        return done

    def put(self, keys, places):
        adapter = self._adapter
        task = adapter.submit_store_task(self._keys(keys),
                                         [Slot(place, self._size) for place in places])
        done = self._await(adapter.get_store_event_fd(),
                           lambda: adapter.pop_completed_store_tasks().get(task))
        if not done.is_successful():
            raise OSError("LMCache's adapter did not store a chunk")

    def look_up(self, keys):
        adapter, named = self._adapter, self._keys(keys)
        task = adapter.submit_lookup_and_lock_task(named, {})
        found = self._await(adapter.get_lookup_and_lock_event_fd(),
                            lambda: adapter.query_lookup_and_lock_result(task))
        self._held = named
        return next((i for i in range(len(keys)) if not found.test(i)), len(keys))

    def load(self, keys, places):
        adapter = self._adapter
        slots = [Slot(place, self._size) for place in places]
        task = adapter.submit_load_task(self._keys(keys), slots)
        loaded = self._await(adapter.get_load_event_fd(),
                             lambda: adapter.query_load_result(task))
        if not all(loaded.test(i) for i in range(len(keys))):
            raise OSError("LMCache's adapter did not load a chunk")
        adapter.submit_unlock(self._held)


if __name__ == "__main__":
    main(LMCache)
