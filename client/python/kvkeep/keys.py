"""Keys: digests of up to 32 bytes, each of which covers the whole prefix before it."""

from __future__ import annotations

import ctypes
from typing import Sequence

from kvkeep import _abi


def pack(keys: Sequence[bytes]) -> ctypes.Array[ctypes.Structure]:
    """Returns an array of the C ABI's keys. Keys are bytes (shorter ones are zero-padded)."""
    for key in keys:
        if not 1 <= len(key) <= _abi.KEY_BYTES:
            raise ValueError(f"a key has 1 to {_abi.KEY_BYTES} bytes, not {len(key)}")
    filled = b"".join([key.ljust(_abi.KEY_BYTES, b"\0") for key in keys])
    return (_abi.Key * len(keys)).from_buffer_copy(filled)
