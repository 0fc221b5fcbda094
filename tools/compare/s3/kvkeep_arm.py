"""kvkeep: a daemon with the bucket as its G4, and one client on the local path, as engines have it.

begin() starts a daemon with new directories and the same fleet key, so chunks of before are in the
bucket and nowhere on the node. A lookup asks beyond the node and leases; a load gets what that
leased. A put is over when the daemon's metrics say that G4 has the chunks.
"""

import os
import pathlib

from arm import Arm, main
from daemon import Daemon
import kvkeep
import kvkeep.registered
from memory import view

SEGMENT = 64 << 20
LEAST_G2 = 256 << 20
G2_OF_RUN = 5  # times its bytes: what comes from G4 may be a quarter of G2 at once
REMOTE_WAIT_S = 10
PATIENCE_S = 120
PUT_AT_ONCE_BYTES = 64 << 20  # a quarter of G2 may be reserved by puts


class Kvkeep(Arm):
    def __init__(self, where):
        super().__init__(where)
        self.version = "encrypted"
        self._fleet_key = pathlib.Path(where.directory) / "fleet.key"
        self._fleet_key.touch(mode=0o600)
        self._fleet_key.write_text(os.urandom(32).hex())

    def begin(self, size, places, region):
        where, self._size = self.where, size
        g2 = max(-(-G2_OF_RUN * region[1] // SEGMENT) * SEGMENT, LEAST_G2)
        self._daemon = Daemon(where.directory, {
            "g2": {"capacity": g2, "segment_bytes": SEGMENT},
            "fleet": {"name": "compare", "key_file": str(self._fleet_key)},
            "g4": {"url": f"{where.endpoint}/{where.bucket}", "region": where.region,
                   "credentials_file": where.credentials, "connections": where.connections,
                   "admission": "all", "write_bytes_per_second": "64GiB"}})
        self._client = kvkeep.Client(self._daemon.endpoint, path="local", timeout=PATIENCE_S)
        if not self._client.wait_connected(PATIENCE_S):
            raise OSError("the client found no daemon")
        # The others' memory is all there before they are timed.
        self._daemon.wait_for(lambda: g2 - self._daemon.metrics("arena_prefaulted_bytes")[0])
        # One a chunk size, so that a namespace's chunks have one size.
        self._namespace = self._client.namespace(f"compare-{size}", tokens_per_chunk=256,
                                                 bytes_per_part=size)
        self._found = None
        self._memory = kvkeep.registered.of_mapping(self._client, *region, reused=True)

    def end(self):
        if self._found is not None:
            self._found.lease.release()
        self._namespace = None
        for registered in self._memory:
            registered.release()
        self._client.close()
        self._daemon.stop()

    def pids(self):
        return [self._daemon.pid]

    def _written(self):
        written, dropped = self._daemon.metrics("g4_written_chunks_total",
                                                "g4_dropped_chunks_total")
        if dropped:
            raise OSError(f"{dropped:.0f} writes to the bucket were dropped")
        return written

    def _buffers(self, places):
        return [view(place, self._size) for place in places]

    def put(self, keys, places):
        wanted = self._written() + len(keys)
        buffers = self._buffers(places)
        at_once = max(PUT_AT_ONCE_BYTES // self._size, 1)
        for first in range(0, len(keys), at_once):
            chunks = [kvkeep.Chunk(keys[i], buffers[i], parent=keys[i - 1] if i else None)
                      for i in range(first, min(first + at_once, len(keys)))]
            stored = self._namespace.put(chunks).raise_for_error()
            if stored.stored != len(chunks):
                raise OSError(f"{stored.stored} of {len(chunks)} chunks were taken: {stored.why}")
        self._daemon.wait_for(lambda: wanted - self._written())

    def look_up(self, keys):
        if self._found is not None:
            self._found.lease.release()
            self._found = None
        found = self._namespace.lookup(keys, lease=True, remote_wait=REMOTE_WAIT_S)
        found.raise_for_error()
        if found.lease is not None:
            self._found = found
        return found.leased_keys

    def load(self, keys, places):
        got = self._namespace.get(keys, self._buffers(places), lease=self._found.lease)
        got.raise_for_error()
        if got.hits != len(keys):
            raise OSError(f"{got.hits} of {len(keys)} chunks came")


if __name__ == "__main__":
    main(Kvkeep)
