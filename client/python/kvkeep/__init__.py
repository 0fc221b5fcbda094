"""kvkeep: this node's KV cache daemon, from Python. See client.py for the blocking form, aio.py for
asyncio; README.md beside this package for a start."""

from kvkeep.calls import (Chunk, Counted, Found, GetStatus, Got, Prefetched, PutStatus, Result,
                          Stored)
from kvkeep.client import Client, Namespace, Path, Stats, default_endpoint
from kvkeep.errors import (DeadlineExceeded, FailedPrecondition, InvalidArgument, KvkeepError,
                           PermissionDenied, ResourceExhausted, Unavailable)
from kvkeep.lease import Acquired, AcquiredChunk, Lease
from kvkeep.memory import Pointer

__all__ = [
    "Acquired", "AcquiredChunk", "Chunk", "Client", "Counted", "DeadlineExceeded",
    "FailedPrecondition", "Found", "GetStatus", "Got", "InvalidArgument", "KvkeepError", "Lease",
    "Namespace", "Path", "PermissionDenied", "Pointer", "Prefetched", "PutStatus",
    "ResourceExhausted", "Result", "Stats", "Stored", "Unavailable", "default_endpoint",
]
