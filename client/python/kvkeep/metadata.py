"""Metadata that tells the daemon, and through it routers, a chunk's tokens (`events.zmq`):
kvkeep.v1.ChunkMetadata of kvkeep.proto."""

from typing import Iterable, Optional

from kvkeep._abi import MAX_METADATA_BYTES

FORMAT = 0x316d766b  # "kvm1"


def chunk_metadata(token_ids: Iterable[int], parent: Optional[bytes] = None, block_size: int = 0,
                   lora_name: str = "") -> bytes:
    """Returns bytes for `Chunk.metadata`, or b"" if they would exceed a chunk's limit.

    token_ids: of the chunk, a whole number of blocks. parent: the previous key of its prefix; None:
    it is the first. block_size: tokens in a router's block; 0: the chunk is one block. Only one
    part of a key should have metadata.
    """
    tokens = list(token_ids)
    if not tokens or block_size < 0 or (block_size and len(tokens) % block_size):
        raise ValueError(f"{len(tokens)} tokens are no whole number of blocks of {block_size}")
    packed = b"".join(map(_varint, tokens))
    text = lora_name.encode()
    said = b"".join((
        b"\x0d", FORMAT.to_bytes(4, "little"),
        b"\x12" + _varint(len(parent)) + parent if parent else b"",
        b"\x1a", _varint(len(packed)), packed,
        b"\x20" + _varint(block_size) if block_size else b"",
        b"\x2a" + _varint(len(text)) + text if text else b""))
    return said if len(said) <= MAX_METADATA_BYTES else b""


def _varint(number: int) -> bytes:
    if not 0 <= number < 1 << 32:
        raise ValueError(f"{number} is no token or size of 32 bits")
    encoded = bytearray()
    while number > 0x7f:
        encoded.append(number & 0x7f | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
