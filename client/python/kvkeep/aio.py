"""The asyncio form: the same calls, awaited. No thread is used: an eventfd signals the ends of
calls.

    async with kvkeep.aio.Calls(client) as calls:
        found = await calls.lookup(ns, keys, lease=True)

A task that is cancelled while it waits does not end its call: the call goes on, and uses its
arguments until its own end.
"""

import asyncio

from kvkeep import calls as calls_module, gpu
from kvkeep.completions import Completions


class Calls:
    """Calls of one client under one event loop, which it is made and used in."""

    def __init__(self, client, capacity=1024):
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()  # the running call, whether or not anybody still waits
        self._completions = Completions(client, capacity)
        self._closed = False
        self._loop.add_reader(self._completions.fd, self._completions.poll)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def close(self):
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

    def lookup(self, ns, keys, **options):
        return self.run(calls_module.lookup(ns, keys, **options))

    def get(self, ns, keys, into, **options):
        return self.run(calls_module.get(ns, keys, into, **options))

    def put(self, ns, chunks, **options):
        return self.run(calls_module.put(ns, chunks, **options))

    def touch(self, ns, keys, **options):
        return self.run(calls_module.touch(ns, keys, **options))

    def prefetch(self, ns, keys, **options):
        return self.run(calls_module.prefetch(ns, keys, **options))

    def delete(self, ns, keys, **options):
        return self.run(calls_module.delete(ns, keys, **options))

    def acquire(self, ns, keys, **options):
        return self.run(calls_module.acquire(ns, keys, **options))

    def gpu_put(self, ns, chunks, **options):
        return self.run(gpu.gpu_put(ns, chunks, **options))

    def gpu_get(self, ns, chunks, **options):
        return self.run(gpu.gpu_get(ns, chunks, **options))

    def run(self, call):
        """Starts a call of kvkeep.calls. Returns a future of its result."""
        future = self._loop.create_future()

        def ended(result, mistake):
            self._over.set()
            if future.cancelled():
                return  # nobody has the result; its leases end when it is collected
            if mistake is not None:
                future.set_exception(mistake)
            else:
                future.set_result(result)

        self._completions.start(call, ended)
        return future
