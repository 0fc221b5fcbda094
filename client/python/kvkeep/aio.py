"""The asyncio form: the same calls, awaited. No thread is used: ends of calls come by an eventfd.

    async with kvkeep.aio.Calls(client) as calls:
        found = await calls.lookup(ns, keys, lease=True)

A task that is cancelled while it waits does not end its call: that goes on to its own end, and what
it was given stays untouched by us until then.
"""

import asyncio
import ctypes

from kvkeep import _abi, calls as calls_module

_AT_ONCE = 64  # completions taken in one go


class Calls:
    """Calls of one client under one event loop, which it is made and used in."""

    def __init__(self, client, capacity=1024):
        self._client, self._library = client, client.library
        self._loop = asyncio.get_running_loop()
        self._pending = {}  # number: (call, future)
        self._over = asyncio.Event()  # a call is, whoever still waits for it
        self._last = 0
        self._out = (_abi.Completion * _AT_ONCE)()
        queue = ctypes.c_void_p()
        error = _abi.Error()
        if self._library.kvkeep_queue_create(capacity, ctypes.byref(queue), ctypes.byref(error)):
            raise client.exception(error)
        self._queue = queue.value
        self._fd = self._library.kvkeep_queue_fd(self._queue)
        self._loop.add_reader(self._fd, self._drain)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def close(self):
        """Waits for the calls under way, each of which has its own timeout. Idempotent."""
        if self._queue is None:
            return
        while self._pending:
            self._over.clear()
            await self._over.wait()
        self._loop.remove_reader(self._fd)
        queue, self._queue = self._queue, None
        error = _abi.Error()
        if self._library.kvkeep_queue_destroy(queue, ctypes.byref(error)):
            raise self._client.exception(error)

    def lookup(self, ns, keys, *, parts=None, lease=None, transient=False, timeout=None):
        return self.run(calls_module.lookup(ns, keys, parts, lease, transient, timeout))

    def get(self, ns, keys, into, *, parts=None, lease=None, first_key=0, first_piece=0, pieces=0,
            transient=False, verify=True, metadata=False, timeout=None):
        return self.run(calls_module.get(ns, keys, into, parts, lease, first_key, first_piece,
                                         pieces, transient, verify, metadata, timeout))

    def put(self, ns, chunks, *, durable=False, transient=False, no_g3=False, checksum=False,
            timeout=None):
        return self.run(calls_module.put(ns, chunks, durable, transient, no_g3, checksum, timeout))

    def touch(self, ns, keys, *, parts=None, timeout=None):
        return self.run(calls_module.touch(ns, keys, parts, timeout))

    def prefetch(self, ns, keys, *, parts=None, timeout=None):
        return self.run(calls_module.prefetch(ns, keys, parts, timeout))

    def delete(self, ns, keys, *, parts=None, timeout=None):
        return self.run(calls_module.delete(ns, keys, parts, timeout))

    def acquire(self, ns, keys, *, parts=None, all_present=False, transient=False, timeout=None):
        return self.run(calls_module.acquire(ns, keys, parts, all_present, transient, timeout))

    def run(self, call):
        """Starts a call of kvkeep.calls; a future of its result."""
        future = self._loop.create_future()
        if call.empty:
            future.set_result(call.finish(None, ""))
            return future
        self._last += 1
        number, error = self._last, _abi.Error()
        self._pending[number] = (call, future)
        function = getattr(self._library, f"kvkeep_{call.name}_async")
        code = function(self._client.usable(), *map(ctypes.byref, call.structs), self._queue,
                        number, ctypes.byref(error))
        if code != 0:  # refused: no completion comes
            self._settle(number, error)
        return future

    def _drain(self):
        while count := self._library.kvkeep_queue_poll(self._queue, self._out, _AT_ONCE):
            for completion in self._out[:count]:
                self._settle(completion.user_data, completion.error)

    def _settle(self, number, error):
        call, future = self._pending.pop(number)
        self._over.set()
        try:
            result = call.finish(self._client.exception(error) if error.code != 0 else None,
                                 error.message.decode(errors="replace"))
        except Exception as mistake:  # pylint: disable=broad-except  # the caller's, or ours
            if not future.cancelled():
                future.set_exception(mistake)
            return
        if not future.cancelled():
            future.set_result(result)
        # Else nobody has it: leases in it are given back as it is collected.
