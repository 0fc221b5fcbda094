"""Keys: digests of up to 32 bytes, each of which covers the whole prefix before it."""

from kvkeep import _abi


def pack(keys):
    """An array of the C ABI's keys. Keys are bytes (shorter ones are filled up with zeros)."""
    array = (_abi.Key * len(keys))()
    for at, key in zip(array, keys):
        if not 1 <= len(key) <= _abi.KEY_BYTES:
            raise ValueError(f"a key has 1 to {_abi.KEY_BYTES} bytes, not {len(key)}")
        at.bytes[:len(key)] = key
    return array
