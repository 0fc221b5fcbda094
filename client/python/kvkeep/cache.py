"""Cache and AsyncCache: bytes under names, as one has them with redis-py.

    cache = kvkeep.connect()                  # the node's daemon; ConnectionError if there is none
    cache.put("greeting", b"hello")           # True: these bytes are kept
    cache.get("greeting")                     # b"hello", or None
    "greeting" in cache
    cache.delete("greeting")
    for name, data in cache.get_many(names): ...

    async with await kvkeep.connect_async() as cache:
        await cache.get("greeting")

A name is text or bytes of any length. Text of 64 hexadecimal digits, and bytes that are 32, are a
key themselves; of other names the SHA-256 is. So `kvkeep put` and `kvkeep get` of the command line
find the same chunks under the same text. A chunk never changes: a put under a name that is taken
keeps the bytes that are there, which is right for what a name determines, as a digest does. A value
has at most 256 MiB.

Once connected, a daemon that is away is a miss: get returns None, and put False, as for a value
that its limits do not allow. With `strict` both are exceptions, which name the limit. A Cache is
thread-safe; an AsyncCache belongs to one event loop.
"""

import asyncio
import hashlib
import itertools
import re
from types import TracebackType
from typing import (Any, AsyncIterator, Dict, Generator, Iterable, Iterator, List, Mapping,
                    Optional, Sequence, Tuple, Type, TypeVar, Union, cast)

from kvkeep import aio, calls, errors
from kvkeep.client import Client, Namespace

Name = Union[str, bytes]
Data = Union[bytes, bytearray, memoryview]
# A mapping's key type is invariant: one with keys of text is none with names.
Items = Union[Mapping[str, Data], Mapping[bytes, Data], Mapping[Name, Data],
              Iterable[Tuple[Name, Data]]]
T = TypeVar("T")
N = TypeVar("N", bound=Name)
# A piece of work that yields the calls it wants run, is sent their results, and returns its own
# result.
Steps = Generator[calls.Call[Any], Any, T]

_A_KEY = re.compile(r"[0-9a-fA-F]{64}\Z")
_FIRST_ROOM = 64 * 1024  # bytes for the first value; then as many as the last one had, up to
_MOST_ROOM = 1 << 20     # this: a larger one takes a second call
_MOST_CALLS = 1024       # of an AsyncCache at once; others wait for their turn
_AT_ONCE = 64            # names in one call
_AT_ONCE_BYTES = 64 << 20
_MOST_BYTES = 256 << 20


def key_of(name: Name) -> bytes:
    """Returns the key of a name: 32 bytes, or 64 hexadecimal digits, are the key itself; otherwise
    it is the SHA-256."""
    if isinstance(name, str):
        if _A_KEY.match(name):
            return bytes.fromhex(name)
        return hashlib.sha256(name.encode()).digest()
    return bytes(name) if len(name) == 32 else hashlib.sha256(name).digest()


def _batches(items: Iterable[T]) -> Iterator[List[T]]:
    """Yields lists of at most _AT_ONCE items."""
    rest = iter(items)
    while batch := list(itertools.islice(rest, _AT_ONCE)):
        yield batch


def _pairs(items: Items) -> Iterable[Tuple[Name, Data]]:
    return cast(Mapping[Name, Data], items).items() if isinstance(items, Mapping) else items


class _Work:
    """The common code of both forms, as Steps."""

    def __init__(self, client: Client, namespace: Namespace, strict: bool) -> None:
        self._client, self._ns, self._strict = client, namespace, strict
        self._room = _FIRST_ROOM

    @property
    def client(self) -> Client:
        """Returns the client: its path, its counts, the daemon's limits."""
        return self._client

    def _checked(self, result: Any) -> Any:
        return result.raise_for_error() if self._strict else result

    def _get(self, names: Sequence[Name], timeout: Optional[float]) -> Steps[List[Optional[bytes]]]:
        keys = [key_of(name) for name in names]
        found: List[Optional[bytes]] = [None] * len(keys)
        rooms = {at: self._room for at in range(len(keys))}
        while rooms:
            # The first call learns the sizes of values that do not fit; each of these gets a buffer
            # of its size.
            asked = self._that_fit(rooms)
            buffers = [bytearray(rooms.pop(at)) for at in asked]
            got = self._checked((yield calls.get(self._ns, [keys[at] for at in asked], buffers,
                                                 timeout=timeout)))
            for at, buffer, status, size in zip(asked, buffers, got.statuses, got.payload_bytes):
                if status == calls.GetStatus.HIT:
                    found[at] = bytes(memoryview(buffer)[:size])
                    self._room = min(max(size, 1), _MOST_ROOM)
                elif status == calls.GetStatus.TOO_SMALL:
                    rooms[at] = size
        return found

    @staticmethod
    def _that_fit(rooms: Dict[int, int]) -> List[int]:
        """Returns the first values whose buffers together fit into _AT_ONCE_BYTES, or one."""
        asked: List[int] = []
        total = 0
        for at, room in rooms.items():
            total += room
            if asked and total > _AT_ONCE_BYTES:
                break
            asked.append(at)
        return asked

    def _put(self, items: List[Tuple[Name, Data]], durable: bool,
             timeout: Optional[float]) -> Steps[List[bool]]:
        """Puts a name that comes twice only once, as it has one value."""
        for name, data in items:
            size = memoryview(data).nbytes
            if not 1 <= size <= _MOST_BYTES:
                raise ValueError(f"{name!r}: a value has 1 to {_MOST_BYTES} bytes, not {size}")
        keys = [key_of(name) for name, _ in items]
        chunks = {key: calls.Chunk(key, data) for key, (_, data) in zip(keys, items)}
        stored = self._checked((yield calls.put(self._ns, list(chunks.values()), durable=durable,
                                                timeout=timeout)))
        if self._strict and stored.why:
            raise errors.make("RESOURCE_EXHAUSTED", stored.why)
        good = dict(zip(chunks, stored.good))
        return [good[key] for key in keys]

    def _delete(self, names: List[Name], timeout: Optional[float]) -> Steps[int]:
        keys = list({key_of(name): None for name in names})
        deleted = self._checked((yield calls.delete(self._ns, keys, timeout=timeout)))
        count: int = deleted.chunks
        return count

    def _exists(self, names: List[Name], timeout: Optional[float]) -> Steps[int]:
        keys = [key_of(name) for name in names]
        once = list(dict.fromkeys(keys))
        found = self._checked((yield calls.lookup(self._ns, once, timeout=timeout)))
        there = {key for key, present in zip(once, found.presence) if present != 0}
        return sum(key in there for key in keys)


class Cache(_Work):
    """The blocking form. `connect` makes one."""

    def get(self, name: Name, *, timeout: Optional[float] = None) -> Optional[bytes]:
        """Returns the bytes under a name, or None for a miss."""
        return self._run(self._get([name], timeout))[0]

    def get_many(self, names: Iterable[N], *, timeout: Optional[float] = None
                 ) -> Iterator[Tuple[N, Optional[bytes]]]:
        """Yields each name with its bytes, in the order of the names. `timeout` is that of each
        call, which has some of them."""
        for batch in _batches(names):
            yield from zip(batch, self._run(self._get(batch, timeout)))

    def put(self, name: Name, data: Data, *, durable: bool = False,
            timeout: Optional[float] = None) -> bool:
        """Keeps bytes under a name. Returns whether the name has bytes now: these, or those of an
        earlier put. durable: returns once they are on stable storage."""
        return self._run(self._put([(name, data)], durable, timeout))[0]

    def put_many(self, items: Items, *, durable: bool = False,
                 timeout: Optional[float] = None) -> int:
        """Puts each, and returns how many are kept."""
        return sum(sum(self._run(self._put(batch, durable, timeout)))
                   for batch in _batches(_pairs(items)))

    def delete(self, *names: Name, timeout: Optional[float] = None) -> int:
        """Removes names for good, and returns how many were there."""
        return sum(self._run(self._delete(batch, timeout)) for batch in _batches(names))

    def exists(self, *names: Name, timeout: Optional[float] = None) -> int:
        """Returns how many of the names are kept on this node; a name that comes twice counts
        twice."""
        return sum(self._run(self._exists(batch, timeout)) for batch in _batches(names))

    def __contains__(self, name: Name) -> bool:
        return self.exists(name) == 1

    def close(self) -> None:
        """Ends the connection. Idempotent."""
        self._client.close()

    def __enter__(self) -> "Cache":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                call = steps.send(self._client.run(call))
        except StopIteration as end:
            result: T = end.value
            return result


class AsyncCache(_Work):
    """The asyncio form, for one event loop. `connect_async` makes one."""

    def __init__(self, client: Client, namespace: Namespace, strict: bool) -> None:
        super().__init__(client, namespace, strict)
        self._calls = aio.Calls(client, _MOST_CALLS)
        self._turns = asyncio.Semaphore(_MOST_CALLS)
        self._closing: Optional["asyncio.Future[None]"] = None

    async def get(self, name: Name, *, timeout: Optional[float] = None) -> Optional[bytes]:
        """As Cache.get."""
        return (await self._run(self._get([name], timeout)))[0]

    async def get_many(self, names: Iterable[N], *, timeout: Optional[float] = None
                       ) -> AsyncIterator[Tuple[N, Optional[bytes]]]:
        """As Cache.get_many."""
        for batch in _batches(names):
            for pair in zip(batch, await self._run(self._get(batch, timeout))):
                yield pair

    async def put(self, name: Name, data: Data, *, durable: bool = False,
                  timeout: Optional[float] = None) -> bool:
        """As Cache.put."""
        return (await self._run(self._put([(name, data)], durable, timeout)))[0]

    async def put_many(self, items: Items, *, durable: bool = False,
                       timeout: Optional[float] = None) -> int:
        """As Cache.put_many."""
        kept = 0
        for batch in _batches(_pairs(items)):
            kept += sum(await self._run(self._put(batch, durable, timeout)))
        return kept

    async def delete(self, *names: Name, timeout: Optional[float] = None) -> int:
        """As Cache.delete."""
        return sum([await self._run(self._delete(batch, timeout)) for batch in _batches(names)])

    async def exists(self, *names: Name, timeout: Optional[float] = None) -> int:
        """As Cache.exists."""
        return sum([await self._run(self._exists(batch, timeout)) for batch in _batches(names)])

    async def close(self) -> None:
        """Waits for the calls under way, and ends the connection. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._calls.close()
        self._client.close()

    async def __aenter__(self) -> "AsyncCache":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                call = steps.send(await self._ended(call))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _ended(self, call: calls.Call[Any]) -> Any:
        """Returns the result of a call once it has one. A call goes on when its task is cancelled,
        and keeps its turn so long."""
        await self._turns.acquire()
        try:
            future = self._calls.run(call)
        except BaseException:
            self._turns.release()
            raise
        future.add_done_callback(self._next)
        return await asyncio.shield(future)

    def _next(self, future: "asyncio.Future[Any]") -> None:
        self._turns.release()
        if not future.cancelled():
            future.exception()  # nobody else may ask for it


def _connect(endpoint: Optional[str], namespace: str, timeout: float,
             options: Dict[str, Any]) -> Tuple[Client, Namespace]:
    client = Client(endpoint, timeout=timeout, **options)
    try:
        connected = client.wait_connected(timeout)
        space = client.namespace(namespace, tokens_per_chunk=1)
        why = None if connected else _why_away(space)
    except BaseException:
        client.close()
        raise
    if connected:
        return client, space
    client.close()
    raise errors.make("UNAVAILABLE", f"no daemon answers at {client.endpoint} within {timeout:g} "
                                     f"s: `kvkeep up` starts one ({why})")


def _why_away(space: Namespace) -> Optional[errors.KvkeepError]:
    """Returns what a call is told of a daemon that is away."""
    try:
        return space.lookup([bytes(32)], timeout=0.1).error
    except errors.KvkeepError as error:
        return error


def connect(endpoint: Optional[str] = None, *, namespace: str = "cli", timeout: float = 5.0,
            strict: bool = False, **options: Any) -> Cache:
    """Returns a `Cache` of the node's daemon, or of the one at `endpoint`.

    namespace: separates names; the command line's is "cli".
    timeout: seconds to wait for the daemon, and for each call without one.
    strict: a call that the daemon does not answer raises instead of being a miss.
    options: those of kvkeep.Client, such as TLS and tokens.
    """
    return Cache(*_connect(endpoint, namespace, timeout, options), strict)


async def connect_async(endpoint: Optional[str] = None, *, namespace: str = "cli",
                        timeout: float = 5.0, strict: bool = False, **options: Any) -> AsyncCache:
    """As connect, for the running event loop, which it does not block."""
    made = await asyncio.get_running_loop().run_in_executor(
        None, lambda: _connect(endpoint, namespace, timeout, options))
    return AsyncCache(*made, strict)
