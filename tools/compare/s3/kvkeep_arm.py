"""kvkeep: a daemon with the bucket as its G4, and one client on the local path, as engines have it.

begin() starts a daemon with new directories and the same fleet key, so chunks of before are in the
bucket and nowhere on the node. A lookup asks beyond the node and leases; a load gets what that
leased. A put is over when the daemon's metrics say that G4 has the chunks.

$KVKEEP_COMPARE_DAEMON is the program; $KVKEEP_COMPARE_ENCRYPTION is true or false.
"""

import ctypes
import os
import pathlib
import re
import shutil
import time
import urllib.request

from arm import Arm, serve
import kvkeep
import kvkeep.registered
from server import Server, free_port

SEGMENT = 64 << 20
LEAST_G2 = 256 << 20
G2_OF_RUN = 5  # times its bytes: what comes from G4 may be a quarter of G2 at once
REMOTE_WAIT_S = 10
PATIENCE_S = 120
# Between two looks at the metrics, as nothing tells when G4 has a chunk. A look costs the daemon
# some milliseconds of CPU time, so the next one comes after a part of what the rest should take.
LEAST_PAUSE_S = 0.01
PAUSE_OF_REST, PAUSE_OF_ELAPSED = 0.5, 0.1  # the lesser
PUT_AT_ONCE_BYTES = 64 << 20  # a quarter of G2 may be reserved by puts


class Kvkeep(Arm):
    def __init__(self, where):
        super().__init__(where)
        self._encryption = os.environ["KVKEEP_COMPARE_ENCRYPTION"]
        self.version = "encrypted" if self._encryption == "true" else "not encrypted"
        self._base = pathlib.Path(where.directory)
        self._fleet_key = self._base / "fleet.key"
        self._fleet_key.touch(mode=0o600)
        self._fleet_key.write_text(os.urandom(32).hex())
        self._directory = self._base / "node"

    def begin(self, size, places, region):
        self._size = size
        self._g2 = max(-(-G2_OF_RUN * region[1] // SEGMENT) * SEGMENT, LEAST_G2)
        self._directory.mkdir()
        self._metrics = free_port()
        config = self._directory / "config.yaml"
        config.write_text(self._config())
        self._daemon = Server("kvkeepd", [os.environ["KVKEEP_COMPARE_DAEMON"], "--config", config],
                              self._directory, self._is_ready)
        self._client = kvkeep.Client(f"unix://{self._directory}/kvkeep.sock", path="local",
                                     timeout=PATIENCE_S)
        if not self._client.wait_connected(PATIENCE_S):
            raise OSError("the client found no daemon")
        # The others' memory is all there before they are timed.
        self._await("arena_prefaulted_bytes", self._g2)
        # One a chunk size, so that a namespace's chunks have one size.
        self._namespace = self._client.namespace(f"compare-{size}", tokens_per_chunk=256,
                                                 bytes_per_part=size)
        self._found = None
        self._memory = kvkeep.registered.of_mapping(self._client, *region, reused=True)

    def _config(self):
        where, at = self.where, self._directory
        return "\n".join((
            f"listen: {{unix: {at}/kvkeep.sock, local: {at}/local.sock, admin: {at}/admin.sock}}",
            f"state: {{dir: {at}/state}}",
            f"g2: {{capacity: {self._g2}, segment_bytes: {SEGMENT}}}",
            f"metrics: {{listen: '127.0.0.1:{self._metrics}'}}",
            f"fleet: {{name: compare, key_file: {self._fleet_key}}}",
            f"g4: {{url: '{where.endpoint}/{where.bucket}', region: {where.region},"
            f" credentials_file: {where.credentials}, connections: {where.connections},"
            f" admission: all, write_bytes_per_second: 64GiB, encryption: {self._encryption}}}",
            ""))

    def _is_ready(self):
        return (self._directory / "kvkeep.sock").exists()

    def end(self):
        if self._found is not None:
            self._found.lease.release()
        self._namespace = None
        for registered in self._memory:
            registered.release()
        self._client.close()
        self._daemon.stop()
        shutil.rmtree(self._directory)

    def pids(self):
        return [self._daemon.pid]

    def _counted(self, *names):
        """One look at the metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics") as answer:
            text = answer.read().decode()
        return [sum(float(value) for value in re.findall(
            rf"^kvkeep_{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)) for name in names]

    def _await(self, name, wanted):
        began, first = time.monotonic(), None
        while True:
            counted, dropped = self._counted(name, "g4_dropped_chunks_total")
            if counted >= wanted:
                return
            if dropped:
                raise OSError(f"{dropped:.0f} writes to the bucket were dropped")
            first = counted if first is None else first
            elapsed = time.monotonic() - began
            if elapsed > PATIENCE_S:
                raise OSError(f"{name} is {counted:.0f}, not {wanted:.0f}")
            rest = elapsed * (wanted - counted) / (counted - first) if counted > first else 0
            time.sleep(max(LEAST_PAUSE_S, min(PAUSE_OF_REST * rest, PAUSE_OF_ELAPSED * elapsed)))

    def _buffers(self, places):
        return [memoryview((ctypes.c_char * self._size).from_address(place)).cast("B")
                for place in places]

    def put(self, keys, places):
        wanted = self._counted("g4_written_chunks_total")[0] + len(keys)
        buffers = self._buffers(places)
        at_once = max(PUT_AT_ONCE_BYTES // self._size, 1)
        for first in range(0, len(keys), at_once):
            chunks = [kvkeep.Chunk(keys[i], buffers[i], parent=keys[i - 1] if i else None)
                      for i in range(first, min(first + at_once, len(keys)))]
            stored = self._namespace.put(chunks).raise_for_error()
            if stored.stored != len(chunks):
                raise OSError(f"{stored.stored} of {len(chunks)} chunks were taken: {stored.why}")
        self._await("g4_written_chunks_total", wanted)

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
    serve(Kvkeep)
