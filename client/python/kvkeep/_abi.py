"""kvkeep.h in ctypes: its structs, its functions, and the place of the library.

Nothing here decides anything. The structs are those of client/c/kvkeep.h and of the headers beside
it, field for field; tests/client/python compares their sizes and offsets with the headers', as a C
compiler sees them.
ctypes releases the GIL during every call.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import (POINTER, c_char, c_char_p, c_int, c_int32, c_uint8, c_uint16, c_uint32,
                    c_uint64, c_void_p)
from typing import Any, Dict, List, Sequence, Tuple, Type, TypeVar

ABI_VERSION = 1
KEY_BYTES = 32
MAX_METADATA_BYTES = 16384


_Struct = TypeVar("_Struct", bound=ctypes.Structure)
_Field = Tuple[str, Any]  # ctypes's metaclass is of no public type


def _struct(name: str, *fields: _Field) -> Type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def _sized(name: str, *fields: _Field) -> Type[ctypes.Structure]:
    return _struct(name, ("size", c_uint32), *fields)


Error = _struct("Error", ("code", c_int32), ("message", c_char * 252))
Key = _struct("Key", ("bytes", c_uint8 * KEY_BYTES))
Buffer = _struct("Buffer", ("data", c_void_p), ("bytes", c_uint64))
Keys = _struct("Keys", ("ns", c_void_p), ("keys", POINTER(Key)), ("key_count", c_uint32),
               ("part_count", c_uint32), ("parts", POINTER(c_uint32)))
ClientOptions = _sized(
    "ClientOptions", ("default_deadline_ms", c_uint32), ("endpoint", c_char_p),
    ("client_name", c_char_p), ("backoff_min_ms", c_uint32), ("backoff_max_ms", c_uint32),
    ("local_socket", c_char_p), ("path", c_uint32), ("reserved", c_uint32), ("ca_file", c_char_p),
    ("cert_file", c_char_p), ("key_file", c_char_p), ("server_name", c_char_p),
    ("token_file", c_char_p), ("bulk", c_char_p))
PathInfo = _sized("PathInfo", ("path", c_uint32), ("why", c_char * 256))
ClientStats = _sized(
    "ClientStats", ("reserved", c_uint32), ("sessions_opened", c_uint64), ("calls", c_uint64),
    ("failed_fast", c_uint64), ("corrupt_chunks", c_uint64), ("bytes_received", c_uint64),
    ("bytes_sent", c_uint64))
NamespaceSpec = _sized(
    "NamespaceSpec", ("tokens_per_chunk", c_uint32), ("model", c_char_p), ("dtype", c_char_p),
    ("layout", c_char_p), ("hash_algorithm", c_char_p), ("hash_seed", c_char_p),
    ("bytes_per_part", c_uint64), ("parts", c_uint32), ("reserved", c_uint32),
    ("tenant", c_char_p))
Completion = _struct("Completion", ("user_data", c_void_p), ("op", c_uint32),
                     ("reserved", c_uint32), ("error", Error))
LookupRequest = _sized(
    "LookupRequest", ("deadline_ms", c_uint32), ("keys", Keys), ("lease_mode", c_uint32),
    ("transient", c_uint32), ("presence", POINTER(c_uint8)), ("presence_bytes", c_uint64),
    ("remote_wait_us", c_uint32), ("recompute_us_per_key", c_uint32))
LookupReply = _sized(
    "LookupReply", ("leading_keys", c_uint32), ("leased_keys", c_uint32),
    ("promotion_us", c_uint32), ("leased_bytes", c_uint64), ("lease", c_void_p),
    ("remote_keys", c_uint32), ("remote_us", c_uint32), ("remote_asked", c_uint32),
    ("reserved", c_uint32))
GetOutcome = _struct("GetOutcome", ("status", c_uint32), ("metadata_bytes", c_uint32),
                     ("payload_bytes", c_uint64), ("bytes", c_uint64))
GetRequest = _sized(
    "GetRequest", ("deadline_ms", c_uint32), ("keys", Keys), ("lease", c_void_p),
    ("first_key", c_uint32), ("flags", c_uint32), ("first_piece", c_uint32), ("pieces", c_uint32),
    ("destinations", POINTER(Buffer)), ("outcomes", POINTER(GetOutcome)),
    ("metadata", POINTER(Buffer)), ("chunk_count", c_uint64), ("run_counts", POINTER(c_uint32)),
    ("remote_wait_us", c_uint32), ("reserved", c_uint32))
PutChunk = _struct(
    "PutChunk", ("key", Key), ("parent_key", Key), ("part", c_uint32), ("has_parent", c_uint32),
    ("runs", POINTER(Buffer)), ("run_count", c_uint64), ("metadata", c_void_p),
    ("metadata_bytes", c_uint64))
PutRequest = _sized(
    "PutRequest", ("deadline_ms", c_uint32), ("ns", c_void_p), ("chunks", POINTER(PutChunk)),
    ("chunk_count", c_uint32), ("flags", c_uint32), ("outcomes", POINTER(c_uint32)))
KeysRequest = _sized("KeysRequest", ("deadline_ms", c_uint32), ("keys", Keys))
CountReply = _sized("CountReply", ("reserved", c_uint32), ("chunks", c_uint64))
PrefetchReply = _sized("PrefetchReply", ("reserved", c_uint32), ("started_chunks", c_uint64),
                       ("ready_chunks", c_uint64))
AcquireRequest = _sized("AcquireRequest", ("deadline_ms", c_uint32), ("keys", Keys),
                        ("flags", c_uint32), ("reserved", c_uint32))
AcquireReply = _sized(
    "AcquireReply", ("leading_keys", c_uint32), ("leased_keys", c_uint32),
    ("chunk_count", c_uint32), ("acquired", c_void_p))
ChunkView = _struct(
    "ChunkView", ("chunk", c_uint32), ("run_count", c_uint32), ("payload_bytes", c_uint64),
    ("runs", POINTER(Buffer)), ("metadata", POINTER(Buffer)), ("metadata_run_count", c_uint32),
    ("reserved", c_uint32))
CopyRequest = _sized(
    "CopyRequest", ("index", c_uint32), ("offset", c_uint64), ("to", POINTER(Buffer)),
    ("to_count", c_uint32), ("timeout_ms", c_uint32))
ServerInfo = _sized(
    "ServerInfo", ("reserved", c_uint32), ("incarnation", c_uint64),
    ("max_keys_per_call", c_uint64), ("max_parts_per_call", c_uint64),
    ("max_payload_bytes", c_uint64), ("max_metadata_bytes", c_uint64),
    ("max_leases_per_session", c_uint64), ("max_leased_bytes", c_uint64),
    ("max_sessions", c_uint64), ("version", c_char * 64), ("state", c_char * 32),
    ("features", c_char * 256))
# kvkeep_gpu.h
GpuRange = _sized("GpuRange", ("deadline_ms", c_uint32), ("address", c_uint64),
                  ("bytes", c_uint64), ("driver", c_char_p), ("flags", c_uint32),
                  ("reserved", c_uint32))
GpuRun = _struct("GpuRun", ("region", c_uint64), ("offset", c_uint64), ("bytes", c_uint64))
GpuPutChunk = _struct(
    "GpuPutChunk", ("key", Key), ("parent_key", Key), ("part", c_uint32), ("has_parent", c_uint32),
    ("runs", POINTER(GpuRun)), ("run_count", c_uint64), ("metadata", c_void_p),
    ("metadata_bytes", c_uint64))
GpuPutRequest = _sized(
    "GpuPutRequest", ("deadline_ms", c_uint32), ("ns", c_void_p), ("chunks", POINTER(GpuPutChunk)),
    ("chunk_count", c_uint32), ("flags", c_uint32), ("outcomes", POINTER(c_uint32)),
    ("use", c_void_p))
GpuGetChunk = _struct("GpuGetChunk", ("key", Key), ("part", c_uint32), ("reserved", c_uint32),
                      ("runs", POINTER(GpuRun)), ("run_count", c_uint64))
GpuGetRequest = _sized(
    "GpuGetRequest", ("deadline_ms", c_uint32), ("ns", c_void_p), ("lease", c_void_p),
    ("chunks", POINTER(GpuGetChunk)), ("chunk_count", c_uint32), ("flags", c_uint32),
    ("outcomes", POINTER(GetOutcome)), ("metadata", POINTER(Buffer)), ("use", c_void_p))
GpuStats = _sized(
    "GpuStats", ("reserved", c_uint32), ("registered", c_uint64), ("registered_again", c_uint64),
    ("refused", c_uint64), ("unanswered", c_uint64), ("bytes_put", c_uint64),
    ("bytes_got", c_uint64))
# kvkeep_pin.h
PinRequest = _sized("PinRequest", ("device", c_uint32), ("driver", c_char_p))
PinStats = _sized("PinStats", ("finished", c_uint32), ("pinned_bytes", c_uint64),
                  ("refused_bytes", c_uint64), ("first_refusal", Error))
# kvkeep_watch.h
WatchEvent = _struct("WatchEvent", ("key", Key), ("part", c_uint32), ("tier", c_uint16),
                     ("stored", c_uint16))
WatchNews = _sized(
    "WatchNews", ("begins", c_uint32), ("snapshot_end", c_uint32), ("reserved", c_uint32),
    ("epoch", c_uint64), ("event_count", c_uint64), ("events", POINTER(WatchEvent)))
# kvkeep_kv.h
KvLayout = _sized(
    "KvLayout", ("format", c_uint32), ("layers", c_uint32), ("blocks", c_uint32),
    ("block_tokens", c_uint32), ("heads", c_uint32), ("head_bytes", c_uint32),
    ("order", c_uint32), ("tensors", POINTER(GpuRun)), ("strides", POINTER(c_uint64)),
    ("tensor_count", c_uint32), ("reserved", c_uint32))
KvPlanRequest = _sized(
    "KvPlanRequest", ("reserved", c_uint32), ("block_table", POINTER(c_uint32)),
    ("block_count", c_uint64), ("first_token", c_uint64), ("tokens", c_uint64),
    ("runs", POINTER(GpuRun)), ("room", c_uint64))
PageTensor = _struct(
    "PageTensor", ("region", c_uint64), ("offset", c_uint64), ("bytes", c_uint64),
    ("layers", c_uint32), ("blocks", c_uint32), ("layer_stride", c_uint64),
    ("block_stride", c_uint64), ("page_bytes", c_uint64))
PageLayout = _sized(
    "PageLayout", ("shards", c_uint32), ("tensors", POINTER(PageTensor)),
    ("tensor_count", c_uint32), ("reserved", c_uint32))
PagePlanRequest = _sized(
    "PagePlanRequest", ("shard", c_uint32), ("blocks", POINTER(c_uint32)),
    ("block_count", c_uint64), ("runs", POINTER(GpuRun)), ("room", c_uint64))

_H = c_void_p  # a handle
_ERROR = POINTER(Error)
_OUT = POINTER(c_void_p)
# Name: what it returns, what it takes. Calls with a request have an asynchronous form beside them.
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "abi_version": (c_uint32, []),
    "version": (c_char_p, []),
    "code_name": (c_char_p, [c_int]),
    "connect": (c_int, [POINTER(ClientOptions), _OUT, _ERROR]),
    "client_destroy": (None, [_H]),
    "connected": (c_int, [_H]),
    "wait_connected": (c_int, [_H, c_uint32]),
    "client_path": (c_int, [_H, POINTER(PathInfo), _ERROR]),
    "stats": (c_int, [_H, POINTER(ClientStats), _ERROR]),
    "namespace_open": (c_int, [_H, POINTER(NamespaceSpec), c_uint32, _OUT, _ERROR]),
    "namespace_close": (None, [_H]),
    "namespace_digest": (None, [_H, POINTER(c_uint8)]),
    "queue_create": (c_int, [c_uint32, _OUT, _ERROR]),
    "queue_destroy": (c_int, [_H, _ERROR]),
    "queue_fd": (c_int, [_H]),
    "queue_poll": (c_uint32, [_H, POINTER(Completion), c_uint32]),
    "lease_alive": (c_int, [_H]),
    "lease_shrink": (None, [_H, c_uint32]),
    "lease_release": (None, [_H]),
    "acquired_release": (None, [_H]),
    "acquired_chunks": (POINTER(ChunkView), [_H]),
    "acquired_ready": (c_uint32, [_H, c_uint32]),
    "acquired_wait": (c_int, [_H, c_uint32, c_uint32, c_uint32, _ERROR]),
    "acquired_valid": (c_int, [_H]),
    "acquired_copy": (c_int, [_H, POINTER(CopyRequest), _ERROR]),
    "staging_allocate": (c_int, [_H, c_uint64, POINTER(Buffer), _OUT, _ERROR]),
    "staging_in_use": (c_int, [_H]),
    "staging_free": (None, [_H]),
    "memory_register": (c_int, [_H, c_int, c_void_p, c_uint64, _OUT, _ERROR]),
    "memory_register_reused": (c_int, [_H, c_int, c_void_p, c_uint64, _OUT, _ERROR]),
    "memory_in_use": (c_int, [_H]),
    "memory_unregister": (None, [_H]),
    "gpu_register": (c_int, [_H, POINTER(GpuRange), _OUT, _ERROR]),
    "gpu_region_id": (c_uint64, [_H]),
    "gpu_region_in_use": (c_int, [_H]),
    "gpu_region_usable": (c_int, [_H, _ERROR]),
    "gpu_unregister": (c_int, [_H, c_uint32, _ERROR]),
    "gpu_region_free": (None, [_H]),
    "gpu_get_stats": (c_int, [_H, POINTER(GpuStats), _ERROR]),
    "gpu_use_create": (c_int, [_OUT, _ERROR]),
    "gpu_use_in_use": (c_int, [_H]),
    "gpu_use_is_awaited": (c_int, [_H]),
    "gpu_use_free": (None, [_H]),
    "arena_pin": (c_int, [_H, POINTER(PinRequest), _OUT, _ERROR]),
    "pinned_arena_wait": (c_int, [_H, c_uint32, _ERROR]),
    "pinned_arena_stats": (c_int, [_H, POINTER(PinStats), _ERROR]),
    "pinned_arena_covers": (c_int, [_H, c_void_p, c_uint64]),
    "pinned_arena_free": (None, [_H]),
    "watch_open": (c_int, [POINTER(ClientOptions), POINTER(NamespaceSpec), _OUT, _ERROR]),
    "watch_next": (c_int, [_H, c_uint32, POINTER(WatchNews), _ERROR]),
    "watch_cancel": (None, [_H]),
    "watch_free": (None, [_H]),
    "kv_planner_create": (c_int, [POINTER(KvLayout), _OUT, _ERROR]),
    "kv_planner_bytes_per_token": (c_uint64, [_H]),
    "kv_plan": (c_int, [_H, POINTER(KvPlanRequest), POINTER(c_uint64), _ERROR]),
    "kv_planner_free": (None, [_H]),
    "page_planner_create": (c_int, [POINTER(PageLayout), _OUT, _ERROR]),
    "page_planner_bytes_per_block": (c_uint64, [_H]),
    "page_plan": (c_int, [_H, POINTER(PagePlanRequest), POINTER(c_uint64), _ERROR]),
    "page_planner_free": (None, [_H]),
    "get_server_info": (c_int, [_H, c_uint32, POINTER(ServerInfo), _ERROR]),
}
_CALLS: Dict[str, List[Any]] = {
    "lookup": [POINTER(LookupRequest), POINTER(LookupReply)],
    "get": [POINTER(GetRequest)],
    "put": [POINTER(PutRequest)],
    "touch": [POINTER(KeysRequest), POINTER(CountReply)],
    "prefetch": [POINTER(KeysRequest), POINTER(PrefetchReply)],
    "delete": [POINTER(KeysRequest), POINTER(CountReply)],
    "acquire": [POINTER(AcquireRequest), POINTER(AcquireReply)],
    "gpu_put": [POINTER(GpuPutRequest)],
    "gpu_get": [POINTER(GpuGetRequest)],
}


def _paths() -> List[str]:
    """Returns the library's possible paths, best first: configured, the wheel's, the system's."""
    said = os.environ.get("KVKEEP_CLIENT_LIBRARY")
    if said:
        return [said]
    name = f"libkvkeep-client.so.{ABI_VERSION}"
    return [str(pathlib.Path(__file__).with_name("lib") / name), name]


def load() -> ctypes.CDLL:
    """Returns the library with declared functions. OSError: there is none, or its ABI differs."""
    tried = []
    for path in _paths():
        try:
            library = ctypes.CDLL(path)
            break
        except OSError as error:
            tried.append(str(error))
    else:
        raise OSError("libkvkeep-client.so cannot be loaded; name it with KVKEEP_CLIENT_LIBRARY: "
                      + "; ".join(tried))
    version = _function(library, path, "abi_version", *_FUNCTIONS["abi_version"])()
    if version != ABI_VERSION:
        raise OSError(f"{path}: ABI {version}, this package is for {ABI_VERSION}")
    for name, (result, arguments) in _FUNCTIONS.items():
        _function(library, path, name, result, arguments)
    for name, arguments in _CALLS.items():
        _function(library, path, name, c_int, [_H, *arguments, _ERROR])
        _function(library, path, name + "_async", c_int, [_H, *arguments, _H, c_void_p, _ERROR])
    return library


def _function(library: ctypes.CDLL, path: str, name: str, result: Any,
              arguments: List[Any]) -> Any:
    """Returns the declared function. OSError: an older library of this ABI, which only grows."""
    try:
        function = getattr(library, "kvkeep_" + name)
    except AttributeError:
        raise OSError(f"{path}: has no kvkeep_{name}: it is older than this package") from None
    function.restype, function.argtypes = result, arguments
    return function


def array(kind: Type[_Struct], rows: Sequence[Any]) -> ctypes.Array[_Struct]:
    """Returns an array of structs, each of the fields in its row."""
    return (kind * len(rows))(*rows)


def make(kind: Type[_Struct], **values: Any) -> _Struct:
    """Returns a struct that begins with its own size."""
    return kind(size=ctypes.sizeof(kind), **values)
