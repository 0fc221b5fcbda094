"""What keeps chunks of KV beyond the GPU, behind one seam: kvkeep, or a dict for tests.

A key is the digest of a chunk's whole prefix, and a chunk lies in whole blocks of the cache. A call
returns when its blocks may be used again. Calls come from several threads.
"""

import threading
import time

import kvkeep

BATCH_BYTES = 1 << 29  # of one get or put: a large one holds leases and space for long
TIMEOUT_S = 30
# A put that finds no room, as NVMe is slower than the engine, is tried again so long. Its blocks
# are in use until then, so a full daemon slows the engine down, and loses nothing.
REFUSED_S, AGAIN_S = 20, 0.05


class Store:
    """Base: counts, for the report."""

    path = "none"

    def __init__(self):
        self._lock = threading.Lock()
        self.counts = {"asked_chunks": 0, "hit_chunks": 0, "from_g3_chunks": 0, "lost_chunks": 0,
                       "put_chunks": 0, "refused_chunks": 0}

    def recall(self, keys, blocks):
        """Brings the leading chunks that are there into the blocks of each. Returns how many."""
        raise NotImplementedError

    def put(self, keys, blocks):
        """Keeps these chunks, if it can."""
        raise NotImplementedError

    def _count(self, **more):
        with self._lock:
            for name, count in more.items():
                self.counts[name] += count

    def close(self):
        pass


class DictStore(Store):
    """Copies in host memory. spoil(tensor): may change what comes back, in place."""

    path = "a dict"

    def __init__(self, cache, spoil=None):
        super().__init__()
        self._cache, self._kept, self._spoil = cache, {}, spoil

    def recall(self, keys, blocks):
        came = 0
        for key, each in zip(keys, blocks):
            if key not in self._kept:
                break
            found = self._kept[key].clone()
            if self._spoil is not None:
                self._spoil(found)
            for block, part in zip(each, found):
                self._cache.all[block].copy_(part)
            came += 1
        self._count(asked_chunks=len(keys), hit_chunks=came)
        return came

    def put(self, keys, blocks):
        for key, each in zip(keys, blocks):
            self._kept.setdefault(key, self._cache.copy_of(each).cpu())
        self._count(put_chunks=len(keys))


class KvkeepStore(Store):
    """One client of one daemon. The daemon copies from and to a CUDA tensor itself, if it can."""

    def __init__(self, cache, endpoint, wanted_path="auto", identity="gpu-serve"):
        super().__init__()
        shape = cache.shape
        self._client = kvkeep.Client(endpoint, name="gpu-serve", timeout=TIMEOUT_S,
                                     path=wanted_path)
        if not self._client.wait_connected(TIMEOUT_S):
            raise RuntimeError(f"no daemon answers at {endpoint}")
        self._namespace = self._client.namespace(
            f"{identity}-{shape.name}", tokens_per_chunk=shape.chunk_tokens, dtype=shape.dtype,
            layout="blocks_first")
        self._batch = max(1, BATCH_BYTES // (shape.chunk_tokens * shape.token_bytes))
        self._mover, self.path = _mover_of(cache, self._client, self._namespace)

    def recall(self, keys, blocks):
        came = lost = only_g3 = 0
        while came < len(keys):
            found = self._namespace.lookup(keys[came:], lease=True)
            if found.lease is None:
                break
            leased = found.leased_keys
            with found.lease as lease:
                got = self._get(keys[came:came + leased], blocks[came:came + leased], lease)
            only_g3 += sum(1 for there in found.presence[:got] if not there & found.IN_G2)
            came, lost = came + got, lost + leased - got
            if got < leased or leased == found.leading_keys:
                break  # otherwise the promise did not fit: the rest is looked up again
        self._count(asked_chunks=len(keys), hit_chunks=came, from_g3_chunks=only_g3,
                    lost_chunks=lost)
        return came

    def _get(self, keys, blocks, lease):
        """How many came before the first that did not."""
        for first in range(0, len(keys), self._batch):
            end = min(first + self._batch, len(keys))
            good = self._mover.get(keys[first:end], blocks[first:end], lease, first)
            if False in good:
                return first + good.index(False)
        return len(keys)

    def put(self, keys, blocks):
        for first in range(0, len(keys), self._batch):
            left = list(zip(keys[first:first + self._batch], blocks[first:first + self._batch]))
            until = time.monotonic() + REFUSED_S
            while True:
                good = self._mover.put(*zip(*left))
                self._count(put_chunks=sum(good))
                left = [one for one, kept in zip(left, good) if not kept]
                if not left or time.monotonic() > until:
                    break
                time.sleep(AGAIN_S)  # the daemon tells nobody that there is room
            self._count(refused_chunks=len(left))

    def close(self):
        self._mover.close()
        self._client.close()


def _mover_of(cache, client, namespace):
    """(mover, in words which way the bytes take)."""
    reached = client.path
    host = {"local": "shared memory", "grpc": "gRPC"}[reached.name]
    if cache.shared is None:
        return _HostMover(cache, namespace), f"{host}, as there is no CUDA device"
    try:
        return _GpuMover(cache, client, namespace), "CUDA IPC"
    except kvkeep.KvkeepError as why:
        return _StagedMover(cache, namespace), f"{host} and host memory between, as: {why}"


class _GpuMover:
    """The daemon copies; no byte passes this process."""

    def __init__(self, cache, client, namespace):
        shape = cache.shape
        self._namespace, self._block_tokens = namespace, shape.block_tokens
        memory, driver = cache.shared
        self._region = kvkeep.GpuRegion(client, memory, driver=driver)
        self._planner = kvkeep.KvPlanner(
            kvkeep.KvFormat.BLOCKS_FIRST, layers=shape.layers, blocks=cache.blocks,
            block_tokens=shape.block_tokens, heads=shape.kv_heads,
            head_bytes=shape.head_dim * shape.element_bytes, tensors=[self._region.run()])

    def _chunks(self, keys, blocks):
        return [kvkeep.GpuChunk(key, self._planner.plan(each, 0, len(each) * self._block_tokens))
                for key, each in zip(keys, blocks)]

    def get(self, keys, blocks, lease, _):
        return self._over(self._namespace.gpu_get(self._chunks(keys, blocks), lease=lease)).good

    def put(self, keys, blocks):
        return self._over(self._namespace.gpu_put(self._chunks(keys, blocks))).good

    def _over(self, result):
        """A call that broke off is a miss, unless the daemon may still copy: this engine has no
        other blocks to go on with."""
        if self._region.in_use and result.error is not None:
            raise result.error
        return result

    def close(self):
        self._region.close()


class _HostMover:
    """KV lies in this process's memory: blocks are buffers."""

    def __init__(self, cache, namespace):
        self._cache, self._namespace = cache, namespace

    def get(self, keys, blocks, lease, first):
        into = [[self._cache.all[block] for block in each] for each in blocks]
        return self._namespace.get(keys, into, lease=lease, first_key=first).good

    def put(self, keys, blocks):
        return self._namespace.put([(key, [self._cache.all[block] for block in each])
                                    for key, each in zip(keys, blocks)]).good

    def close(self):
        pass


class _StagedMover:
    """KV in GPU memory that the daemon cannot reach: copies through host memory."""

    def __init__(self, cache, namespace):
        self._cache, self._namespace = cache, namespace

    def get(self, keys, blocks, lease, first):
        staged = [self._cache.staging(len(each)) for each in blocks]
        good = self._namespace.get(keys, staged, lease=lease, first_key=first).good
        self._cache.fill([(each, part) for each, part, hit in zip(blocks, staged, good) if hit])
        return good

    def put(self, keys, blocks):
        return self._namespace.put([(key, self._cache.copy_of(each).cpu())
                                    for key, each in zip(keys, blocks)]).good

    def close(self):
        pass
