"""The Python client of this node's KV cache daemon. kvkeep.client has the blocking form, kvkeep.aio
the form for asyncio. README.md beside this package shows how to start."""

from kvkeep.cache import AsyncCache, Cache, connect, connect_async
from kvkeep.calls import (Chunk, Counted, Found, GetStatus, Got, Prefetched, PutStatus, Result,
                          Stored)
from kvkeep.client import Client, Namespace, Path, Stats, default_endpoint
from kvkeep.errors import (DeadlineExceeded, FailedPrecondition, InvalidArgument, KvkeepError,
                           PermissionDenied, ResourceExhausted, Unavailable)
from kvkeep.gpu import GpuChunk, GpuRegion, GpuRun, GpuRuns, GpuStats, GpuUse, PinnedArena, PinStats
from kvkeep.kv import KvFormat, KvOrder, KvPlanner
from kvkeep.lease import Acquired, AcquiredChunk, Lease
from kvkeep.memory import Pointer
from kvkeep.metadata import chunk_metadata
from kvkeep.pages import PagePlanner, PageTensor
from kvkeep.watch import Watch

__all__ = [
    "Acquired", "AcquiredChunk", "AsyncCache", "Cache", "Chunk", "Client", "Counted",
    "DeadlineExceeded",
    "FailedPrecondition", "Found", "GetStatus", "Got", "GpuChunk", "GpuRegion", "GpuRun", "GpuRuns",
    "GpuStats", "GpuUse", "InvalidArgument", "KvFormat", "KvOrder", "KvPlanner", "KvkeepError",
    "Lease", "Namespace", "PagePlanner", "PageTensor", "Path", "PermissionDenied", "PinStats",
    "PinnedArena", "Pointer", "Prefetched", "PutStatus", "ResourceExhausted", "Result", "Stats",
    "Stored", "Unavailable", "Watch", "chunk_metadata", "connect",
    "connect_async", "default_endpoint",
]
