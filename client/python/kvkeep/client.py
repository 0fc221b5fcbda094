"""Client and Namespace: the blocking form. kvkeep.aio has the same for asyncio.

    client = kvkeep.Client()                                  # the node's daemon
    ns = client.namespace("my-model", tokens_per_chunk=256)
    ns.put([(key, tensor), ...])
    with ns.lookup(keys, lease=True).lease as lease: ...

Guarantees, those of client/client.h: never wrong bytes, never a hang (every call ends by its
timeout), and while the daemon is known to be away calls end at once with misses. The client
reconnects when the daemon comes back. Thread-safe; calls release the GIL. A child of fork must make
its own client.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from typing import (Any, Callable, Dict, Iterable, Iterator, Literal, NamedTuple, Optional,
                    Sequence, Tuple, TypeVar, Union)

from kvkeep import _abi, calls, errors, gpu
from kvkeep.lease import Acquired, Lease
from kvkeep.memory import Located, Payload

_PATHS = {"auto": 0, "grpc": 1, "local": 2}
_FilePath = Union[str, "os.PathLike[str]"]
_Answer = TypeVar("_Answer")
_Client = TypeVar("_Client", bound="Client")


_SYSTEM_SOCKET = "/run/kvkeep/kvkeep.sock"


def default_endpoint() -> str:
    """Returns $KVKEEP_ENDPOINT, else the socket of the system's daemon; of a user's daemon, which
    `kvkeep up` starts, if there is only that."""
    if endpoint := os.environ.get("KVKEEP_ENDPOINT"):
        return endpoint
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.expanduser("~/.local/state")
    of_user = os.path.join(state, "kvkeep", "kvkeep.sock")
    only_that = not os.path.exists(_SYSTEM_SOCKET) and os.path.exists(of_user)
    return f"unix://{of_user if only_that else _SYSTEM_SOCKET}"


def _text(value: Optional[_FilePath]) -> Optional[bytes]:
    return None if value is None else os.fspath(value).encode()


class Path(NamedTuple):
    """The path that calls take now, and why."""

    name: str
    why: str


class Stats(NamedTuple):
    """Counts of this client since it was made."""

    sessions_opened: int
    calls: int
    failed_fast: int
    corrupt_chunks: int
    bytes_received: int
    bytes_sent: int


class Client:
    """A connection to one daemon, made again whenever it breaks.

    endpoint: "unix:///path" or "host:port"; without one default_endpoint().
    timeout: in seconds, of calls without one.
    path: "auto" (local if the daemon offers it, else gRPC), "local" or "grpc".
    bulk: the daemon's listen.bulk or listen.bulk_tcp, "unix:///path" or "host:port": gets and puts
    that would go by gRPC go there.
    TLS and tokens, over TCP: ca_file turns TLS on; files are read at every connect.
    """

    def __init__(self, endpoint: Optional[str] = None, *, name: Optional[str] = None,
                 timeout: float = 5.0, path: Literal["auto", "grpc", "local"] = "auto",
                 local_socket: Optional[_FilePath] = None, ca_file: Optional[_FilePath] = None,
                 cert_file: Optional[_FilePath] = None, key_file: Optional[_FilePath] = None,
                 server_name: Optional[str] = None,
                 token_file: Optional[_FilePath] = None, bulk: Optional[str] = None) -> None:
        self._pid = os.getpid()
        self.handle: Optional[int] = None
        self._lock = threading.Lock()
        self._users = 0  # of the handle, in functions of the C ABI
        # By the number that runs name.
        self.gpu_regions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        if path not in _PATHS:
            raise ValueError(f"path is one of {', '.join(_PATHS)}, not {path!r}")
        self.library = _abi.load()
        self.endpoint = endpoint or default_endpoint()
        self.options = _abi.make(
            _abi.ClientOptions, default_deadline_ms=calls.milliseconds(timeout),
            endpoint=_text(self.endpoint), client_name=_text(name),
            local_socket=_text(local_socket), path=_PATHS[path], ca_file=_text(ca_file),
            cert_file=_text(cert_file), key_file=_text(key_file), server_name=_text(server_name),
            token_file=_text(token_file), bulk=_text(bulk))
        handle = ctypes.c_void_p()
        self._must(self.library.kvkeep_connect, ctypes.byref(self.options), ctypes.byref(handle))
        self.handle = handle.value

    def close(self) -> None:
        """Ends the calls in flight and gives all leases back. Idempotent. Calls that other threads
        wait in go on, each until its own end; the last one ends the connection."""
        if self.handle is None or not self.is_ours():
            return
        with self._lock:
            handle, self.handle = self.handle, None
            ends = handle is not None and self._users == 0
        if ends:
            self.library.kvkeep_client_destroy(handle)

    def __enter__(self: _Client) -> _Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def is_ours(self) -> bool:
        """Returns False in a child of fork, which must leave handles alone."""
        return os.getpid() == self._pid

    @property
    def connected(self) -> bool:
        """Returns whether a session is open. A hint: the next call may find the daemon away."""
        with self.in_use() as handle:
            return bool(self.library.kvkeep_connected(handle))

    def wait_connected(self, timeout: float = 5.0) -> bool:
        """Waits until a session is open. Returns False if the timeout passed first."""
        with self.in_use() as handle:
            return bool(self.library.kvkeep_wait_connected(handle, int(timeout * 1000)))

    @property
    def path(self) -> Path:
        """Returns the path that calls take now, and why: a `Path`."""
        info = _abi.make(_abi.PathInfo)
        with self.in_use() as handle:
            self._must(self.library.kvkeep_client_path, handle, ctypes.byref(info))
        return Path("local" if info.path == _PATHS["local"] else "grpc", info.why.decode())

    def stats(self) -> Stats:
        """Returns counts of this client since it was made: a `Stats`."""
        found = _abi.make(_abi.ClientStats)
        with self.in_use() as handle:
            self._must(self.library.kvkeep_stats, handle, ctypes.byref(found))
        return Stats(*(getattr(found, name) for name in Stats._fields))

    def gpu_stats(self) -> gpu.GpuStats:
        """Returns counts of the GPU path: a `GpuStats`."""
        return gpu.stats(self)

    def server_info(self, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Returns the daemon's limits, version and state, by name."""
        info = _abi.make(_abi.ServerInfo)
        with self.in_use() as handle:
            self._must(self.library.kvkeep_get_server_info, handle, calls.milliseconds(timeout),
                       ctypes.byref(info))
        values = {name: getattr(info, name) for name, *_ in info._fields_[2:]}
        return {name: value.decode() if isinstance(value, bytes) else value
                for name, value in values.items()}

    def namespace(self, model: str, *, tokens_per_chunk: int, dtype: str = "", layout: str = "",
                  hash_algorithm: str = "", hash_seed: str = "", bytes_per_part: int = 0,
                  parts: int = 1, tenant: Optional[str] = None,
                  timeout: Optional[float] = None) -> Namespace:
        """Returns a `Namespace`: the meaning of the bytes under a key. Each argument distinguishes
        namespaces. Works while the daemon is away, too.

        bytes_per_part: every put must have this size; 0: sizes vary.
        parts: ranks, KV groups or pipeline stages that are kept under one key.
        tenant: the name of another tenant that lets ours read; puts and deletes there fail.
        """
        return Namespace(self, _abi.make(
            _abi.NamespaceSpec, model=_text(model), tokens_per_chunk=tokens_per_chunk,
            dtype=_text(dtype), layout=_text(layout), hash_algorithm=_text(hash_algorithm),
            hash_seed=_text(hash_seed), bytes_per_part=bytes_per_part, parts=parts,
            tenant=_text(tenant)), timeout)

    def grpc_options(self) -> ctypes.Structure:
        """Returns this client's options in the form for kvkeep_watch_open."""
        options = _abi.ClientOptions()
        ctypes.pointer(options)[0] = self.options
        options.path = _PATHS["grpc"]
        return options

    def run(self, call: calls.Call[_Answer]) -> _Answer:
        """Runs a call of kvkeep.calls and waits for it."""
        if call.empty:
            return call.finish(None, "")
        error = _abi.Error()
        function = getattr(self.library, "kvkeep_" + call.name)
        handle = self.begin()
        try:
            code = function(handle, *map(ctypes.byref, call.structs), ctypes.byref(error))
        finally:
            self.end(handle)
        return call.finish(self.exception(error) if code != 0 else None,
                           error.message.decode(errors="replace"))

    def exception(self, error: ctypes.Structure) -> errors.KvkeepError:
        """Returns the exception for an error of the C ABI."""
        return errors.of(self.library, error)

    def begin(self) -> int:
        """Returns the handle for functions of the C ABI. It stays until `end`: a close in another
        thread leaves the client's end to the last user."""
        if not self.is_ours():  # first: a thread that the fork left behind may have had the lock
            raise RuntimeError("this client is of the process before the fork: make another")
        with self._lock:
            if self.handle is None:
                raise ValueError("this client is closed")
            self._users += 1
            return self.handle

    def end(self, handle: int) -> None:
        """Gives back what `begin` returned."""
        with self._lock:
            self._users -= 1
            is_last = self._users == 0 and self.handle is None
        if is_last:
            self.library.kvkeep_client_destroy(handle)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[int]:
        """Gives the handle for functions of the C ABI within its block."""
        handle = self.begin()
        try:
            yield handle
        finally:
            self.end(handle)

    def usable(self) -> None:
        """Raises if this client is closed, or of the process before a fork."""
        self.end(self.begin())

    def _must(self, function: Callable[..., Any], *arguments: Any) -> None:
        error = _abi.Error()
        if function(*arguments, ctypes.byref(error)) != 0:
            raise self.exception(error)


class Namespace:
    """Chunks of one meaning. Keys are bytes, head of the prompt first; "per chunk" is in the order
    keys x parts. `parts=None` is all of the namespace's."""

    def __init__(self, client: Client, spec: ctypes.Structure, timeout: Optional[float]) -> None:
        self.handle: Optional[int] = None
        self.client = client
        self.parts: int = max(spec.parts, 1)
        self.spec = spec
        handle, error = ctypes.c_void_p(), _abi.Error()
        with client.in_use() as owner:
            code = client.library.kvkeep_namespace_open(
                owner, ctypes.byref(spec), calls.milliseconds(timeout), ctypes.byref(handle),
                ctypes.byref(error))
        if code != 0:
            raise client.exception(error)
        self.handle = handle.value

    def __del__(self) -> None:
        if self.handle is not None and self.client.is_ours():
            self.client.library.kvkeep_namespace_close(self.handle)

    @property
    def digest(self) -> bytes:
        """Returns the 16 bytes that the daemon computed; zero while it has not been reached yet."""
        digest = (ctypes.c_uint8 * 16)()
        self.client.library.kvkeep_namespace_digest(self.handle, digest)
        return bytes(digest)

    def lookup(self, keys: Sequence[bytes], *, parts: Optional[Sequence[int]] = None,
               lease: calls.LeaseMode = None, transient: bool = False, remote_wait: float = 0,
               recompute_per_key: float = 0, timeout: Optional[float] = None) -> calls.Found:
        """Returns a `Found`. lease: None, "leading" (or True: the leading keys) or "all" present
        chunks.

        remote_wait: seconds, at most 10, that the daemon may search beyond the node for keys after
        the leading ones. recompute_per_key: seconds to recompute a missing key, 0 if not known: a
        chunk that takes over 0.7 of that is not brought. 60, the most: it cannot be computed;
        otherwise a few missing chunks are not searched for."""
        return self.client.run(calls.lookup(
            self, keys, parts=parts, lease=lease, transient=transient, remote_wait=remote_wait,
            recompute_per_key=recompute_per_key, timeout=timeout))

    def get(self, keys: Sequence[bytes], into: Union[Located, Sequence[Payload]], *,
            parts: Optional[Sequence[int]] = None, lease: Optional[Lease] = None,
            first_key: int = 0, first_piece: int = 0, pieces: int = 0, transient: bool = False,
            verify: bool = True, metadata: bool = False, remote_wait: float = 1,
            timeout: Optional[float] = None) -> calls.Got:
        """Copies chunks into buffers, and returns a `Got`. A chunk has one buffer, or a list that
        its bytes fill one after the other (`memory.skip` for bytes to skip). With a lease, keys
        must be the lease's from first_key on. Buffers of chunks that are no HIT may hold anything.

        remote_wait: seconds, at most 10 and half of the timeout, that the daemon may search beyond
        the node for chunks that it lacks; they are got once they have come. 0: they are misses. Has
        no effect with a lease, or if nothing lies beyond the node."""
        return self.client.run(calls.get(
            self, keys, into, parts=parts, lease=lease, first_key=first_key,
            first_piece=first_piece, pieces=pieces, transient=transient, verify=verify,
            metadata=metadata, remote_wait=remote_wait, timeout=timeout))

    def put(self, chunks: Iterable[Union[calls.Chunk, Tuple[bytes, Payload]]], *,
            durable: bool = False, transient: bool = False, no_g3: bool = False,
            checksum: bool = False, timeout: Optional[float] = None) -> calls.Stored:
        """Stores `Chunk`s, or (key, payload) pairs, and returns a `Stored`. durable: answered after
        they are on stable storage."""
        return self.client.run(calls.put(
            self, chunks, durable=durable, transient=transient, no_g3=no_g3, checksum=checksum,
            timeout=timeout))

    def touch(self, keys: Sequence[bytes], *, parts: Optional[Sequence[int]] = None,
              timeout: Optional[float] = None) -> calls.Counted:
        """Marks chunks as still used elsewhere. Returns a `Counted`."""
        return self.client.run(calls.touch(self, keys, parts=parts, timeout=timeout))

    def prefetch(self, keys: Sequence[bytes], *, parts: Optional[Sequence[int]] = None,
                 timeout: Optional[float] = None) -> calls.Prefetched:
        """Starts reading chunks that are not in DRAM from NVMe. Returns a `Prefetched`."""
        return self.client.run(calls.prefetch(self, keys, parts=parts, timeout=timeout))

    def delete(self, keys: Sequence[bytes], *, parts: Optional[Sequence[int]] = None,
               timeout: Optional[float] = None) -> calls.Counted:
        """Removes chunks from all tiers. Returns a `Counted` once no kill brings them back."""
        return self.client.run(calls.delete(self, keys, parts=parts, timeout=timeout))

    def acquire(self, keys: Sequence[bytes], *, parts: Optional[Sequence[int]] = None,
                all_present: bool = False, transient: bool = False,
                timeout: Optional[float] = None) -> Acquired:
        """Leases chunks to read them in place, and returns an `Acquired`. On the local path only:
        over gRPC it is a mistake; while the daemon is away it is a miss, as all calls are."""
        return self.client.run(calls.acquire(
            self, keys, parts=parts, all_present=all_present, transient=transient,
            timeout=timeout))

    def gpu_put(self, chunks: Iterable[Union[gpu.GpuChunk, Tuple[bytes, gpu.Runs]]], *,
                durable: bool = False, transient: bool = False, no_g3: bool = False,
                use: Optional[gpu.GpuUse] = None,
                timeout: Optional[float] = None) -> calls.Stored:
        """Stores `GpuChunk`s, or (key, runs) pairs, that the daemon reads from registered GPU
        memory, and returns a `Stored`. kvkeep.gpu says when that memory may be touched again."""
        return self.client.run(gpu.gpu_put(
            self, chunks, durable=durable, transient=transient, no_g3=no_g3, use=use,
            timeout=timeout))

    def gpu_get(self, chunks: Iterable[Union[gpu.GpuChunk, Tuple[bytes, gpu.Runs]]], *,
                lease: Optional[Lease] = None, transient: bool = False, metadata: bool = False,
                use: Optional[gpu.GpuUse] = None,
                timeout: Optional[float] = None) -> calls.Got:
        """Has the daemon copy chunks into registered GPU memory, and returns a `Got`. The runs of a
        chunk must add up to its payload's size, or it is no HIT. use: a GpuUse, to ask if this gets
        no answer."""
        return self.client.run(gpu.gpu_get(
            self, chunks, lease=lease, transient=transient, metadata=metadata, use=use,
            timeout=timeout))
