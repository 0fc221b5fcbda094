"""Keys of blocks, and the payload of a key: anyone who has the key knows each byte.

A payload is the key, then a stretch of one pool of random bytes that begins where the key says. So
a piece of another chunk, or of another place in the same one, is seen as wrong.
"""

import hashlib
import random

KEY_BYTES = 32
POOL_BYTES = 16 << 20


class Payloads:
    """mutate: the share of keys whose payload is put with one wrong byte, to test the checks."""

    def __init__(self, chunk_bytes, seed=0, mutate=0.0):
        if chunk_bytes <= KEY_BYTES:
            raise ValueError(f"a chunk of the lab has more than {KEY_BYTES} bytes")
        self._rest, self._seed, self._mutate = chunk_bytes - KEY_BYTES, seed, mutate
        self._pool = memoryview(random.Random(seed).randbytes(POOL_BYTES + chunk_bytes))

    def key_of(self, block):
        return hashlib.sha256(f"{self._seed} {block}".encode()).digest()

    def _rest_of(self, key):
        at = int.from_bytes(key[:8], "little") % POOL_BYTES
        return self._pool[at:at + self._rest]

    def to_put(self, key):
        """Returns the buffers that make the payload."""
        if int.from_bytes(key[8:16], "little") >= self._mutate * 2**64:
            return [key, self._rest_of(key)]
        wrong = bytearray(self._rest_of(key))
        wrong[len(wrong) // 2] ^= 1
        return [key, wrong]

    def wrong_bytes(self, key, got):
        """Returns how many bytes of a bytearray are not those of the key's payload."""
        rest = bytes(self._rest_of(key))
        if got[:KEY_BYTES] == key and got[KEY_BYTES:] == rest:
            return 0
        expected = key + rest
        return abs(len(got) - len(expected)) + sum(a != b for a, b in zip(got, expected))
