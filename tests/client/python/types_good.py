"""Uses of the client whose types are right. types_test.py checks them; nothing runs them."""

import array
import asyncio
import mmap
from typing import Any, Dict, Iterator, List, Optional, Tuple

import kvkeep
from kvkeep import aio, memory


class Numpy:
    """What of a numpy array its stubs tell to every version of Python."""

    @property
    def nbytes(self) -> int:
        return 8

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {}


class Torch:
    """What of a torch tensor calls use."""

    device = "a torch.device"

    @property
    def nbytes(self) -> int:
        return 8

    def data_ptr(self) -> int:
        return 0

    def is_contiguous(self, memory_format: object = None) -> bool:
        return memory_format is None


def names(texts: List[str], pieces: Dict[str, bytes]) -> int:
    with kvkeep.connect("unix:///run/kvkeep/kvkeep.sock", namespace="mine", strict=True) as cache:
        kept: bool = cache.put("greeting", bytearray(b"hello"), durable=True, timeout=1)
        found: Optional[bytes] = cache.get(b"greeting")
        pairs: Iterator[Tuple[str, Optional[bytes]]] = cache.get_many(texts)
        for text, data in pairs:
            print(text.upper(), "" if data is None else data.decode())
        count: int = cache.put_many(pieces) + cache.put_many([("a", b"1"), (b"b", memoryview(b""))])
        count += cache.put_many({b"a": b"1"})
        path: kvkeep.Path = cache.client.path
        return count + cache.delete("a", b"b") + cache.exists(*texts) + len(path.why) + (
            kept and found is not None and "greeting" in cache)


async def names_awaited(texts: List[str]) -> int:
    async with await kvkeep.connect_async(timeout=2.5) as cache:
        found: Optional[bytes] = await cache.get("greeting")
        async for text, data in cache.get_many(texts):
            print(text.upper(), data)
        together: List[Optional[bytes]] = await asyncio.gather(*(cache.get(one) for one in texts))
        return await cache.put_many({"a": found or b""}) + len(together)


def chunks(keys: List[bytes], numpy: Numpy, torch: Torch) -> List[bytes]:
    client = kvkeep.Client(path="local", timeout=3)
    ns: kvkeep.Namespace = client.namespace("model", tokens_per_chunk=256, parts=2)
    whole = array.array("i", range(8))
    pieces: List[memory.Memory] = [b"1", torch]
    ns.put([(keys[0], b"1"), (keys[0], numpy), (keys[0], torch), (keys[0], whole),
            (keys[0], mmap.mmap(-1, 8)), (keys[0], kvkeep.Pointer(0, 8)), (keys[0], pieces),
            kvkeep.Chunk(keys[0], b"2", part=1, parent=keys[1])]).raise_for_error().stored
    found: kvkeep.Found = ns.lookup(keys, lease="all", parts=[0], remote_wait=0.5)
    if found.lease is not None:
        with found.lease as lease:
            into = [bytearray(100) for _ in keys]
            got = ns.get(keys[:found.leased_keys], into, lease=lease)
            hits = [status == kvkeep.GetStatus.HIT for status in got.statuses]
            print(sum(hits), lease.alive)
    ns.get(keys, [[bytearray(1), memory.skip(3), torch] for _ in keys])
    count: int = ns.touch(keys).chunks + ns.prefetch(keys).ready_chunks + ns.delete(keys).chunks
    why: Optional[kvkeep.KvkeepError] = found.error
    print(count, why, client.stats().calls, ns.digest.hex())
    with ns.acquire(keys) as acquired:
        views: List[memoryview] = [chunk.view for chunk in acquired.chunks]
        return [bytes(view) for view in views if acquired.valid]


async def chunks_awaited(client: kvkeep.Client, ns: kvkeep.Namespace, keys: List[bytes]) -> int:
    async with aio.Calls(client) as calls:
        found: kvkeep.Found = await calls.lookup(ns, keys, lease=True)
        stored: kvkeep.Stored = await calls.put(ns, [(keys[0], b"1")])
        return found.leading_keys + stored.stored


def gpu(client: kvkeep.Client, ns: kvkeep.Namespace, key: bytes) -> int:
    with kvkeep.GpuRegion(client, kvkeep.Pointer(1 << 30, 2 << 20)) as region:
        planner = kvkeep.KvPlanner(kvkeep.KvFormat.LATENT, layers=1, blocks=4, block_tokens=16,
                                   heads=1, head_bytes=64, tensors=[region.run()])
        runs: kvkeep.GpuRuns = planner.plan([0, 1], first_token=0, tokens=16)
        first: kvkeep.GpuRun = runs[0]
        ns.gpu_put([(key, runs), kvkeep.GpuChunk(key, first), (key, [first])])
        return ns.gpu_get([(key, runs)], use=kvkeep.GpuUse(client)).hits


def news(ns: kvkeep.Namespace) -> List[bytes]:
    with kvkeep.Watch(ns) as watch:
        heard = watch.next(timeout=1)
        return [] if heard is None else [event.key for event in heard.events if event.stored]
