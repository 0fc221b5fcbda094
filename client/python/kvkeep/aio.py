"""The asyncio form: the same calls, awaited. No thread is used: an eventfd signals the ends of
calls.

    async with kvkeep.aio.Calls(client) as calls:
        found = await calls.lookup(ns, keys, lease=True)

A task that is cancelled while it waits does not end its call: the call goes on, and uses its
arguments until its own end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Tuple, TypeVar, Union, cast

from kvkeep import calls as calls_module, gpu
from kvkeep.completions import Completions
from kvkeep.lease import Acquired
from kvkeep.memory import Located, Payload

if TYPE_CHECKING:
    from kvkeep.client import Client, Namespace

_Answer = TypeVar("_Answer")
_Calls = TypeVar("_Calls", bound="Calls")


class Calls:
    """Calls of one client under one event loop, which it is made and used in."""

    def __init__(self, client: Client, capacity: int = 1024) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()  # the running call, whether or not anybody still waits
        self._completions = Completions(client, capacity)
        self._closed = False
        self._loop.add_reader(self._completions.fd, self._completions.poll)

    async def __aenter__(self: _Calls) -> _Calls:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for the calls under way, each by its own timeout. Idempotent."""
        if self._closed:
            return
        self._closed = True
        while self._completions.pending:
            self._over.clear()
            await self._over.wait()
        self._loop.remove_reader(self._completions.fd)
        self._completions.close()

    # Options are those of the blocking form, kvkeep.Namespace.

    def lookup(self, ns: Namespace, keys: Sequence[bytes],
               **options: Any) -> asyncio.Future[calls_module.Found]:
        return self.run(calls_module.lookup(ns, keys, **options))

    def get(self, ns: Namespace, keys: Sequence[bytes], into: Union[Located, Sequence[Payload]],
            **options: Any) -> asyncio.Future[calls_module.Got]:
        return self.run(calls_module.get(ns, keys, into, **options))

    def put(self, ns: Namespace,
            chunks: Iterable[Union[calls_module.Chunk, Tuple[bytes, Payload]]],
            **options: Any) -> asyncio.Future[calls_module.Stored]:
        return self.run(calls_module.put(ns, chunks, **options))

    def touch(self, ns: Namespace, keys: Sequence[bytes],
              **options: Any) -> asyncio.Future[calls_module.Counted]:
        return self.run(calls_module.touch(ns, keys, **options))

    def prefetch(self, ns: Namespace, keys: Sequence[bytes],
                 **options: Any) -> asyncio.Future[calls_module.Prefetched]:
        return self.run(calls_module.prefetch(ns, keys, **options))

    def delete(self, ns: Namespace, keys: Sequence[bytes],
               **options: Any) -> asyncio.Future[calls_module.Counted]:
        return self.run(calls_module.delete(ns, keys, **options))

    def acquire(self, ns: Namespace, keys: Sequence[bytes],
                **options: Any) -> asyncio.Future[Acquired]:
        return self.run(calls_module.acquire(ns, keys, **options))

    def gpu_put(self, ns: Namespace,
                chunks: Iterable[Union[gpu.GpuChunk, Tuple[bytes, gpu.Runs]]],
                **options: Any) -> asyncio.Future[calls_module.Stored]:
        return self.run(gpu.gpu_put(ns, chunks, **options))

    def gpu_get(self, ns: Namespace,
                chunks: Iterable[Union[gpu.GpuChunk, Tuple[bytes, gpu.Runs]]],
                **options: Any) -> asyncio.Future[calls_module.Got]:
        return self.run(gpu.gpu_get(ns, chunks, **options))

    def run(self, call: calls_module.Call[_Answer]) -> asyncio.Future[_Answer]:
        """Starts a call of kvkeep.calls. Returns a future of its result."""
        future: asyncio.Future[_Answer] = self._loop.create_future()

        def ended(result: Optional[_Answer], mistake: Optional[Exception]) -> None:
            self._over.set()
            if future.cancelled():
                return  # nobody has the result; its leases end when it is collected
            if mistake is not None:
                future.set_exception(mistake)
            else:
                future.set_result(cast(_Answer, result))

        self._completions.start(call, ended)
        return future
