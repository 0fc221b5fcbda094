"""Reads the daemon's messages to routers, byte for byte those of tests/server/events, with vLLM's
own classes, and SGLang's arrays with classes of its fields.

    $(tests/engines/venv vllm) tests/engines/kv_events_golden.py
"""

import pathlib
import re

import msgspec
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

GOLDEN = pathlib.Path(__file__).parents[1] / "server" / "events" / "block_events_test.cc"
TWO = [0x0102030405060707, 0x0102030405060708]


class Stored(msgspec.Struct, array_like=True, tag="BlockStored"):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None


class Removed(msgspec.Struct, array_like=True, tag="BlockRemoved"):
    block_hashes: list[int]
    medium: str | None = None


class Cleared(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[Stored | Removed | Cleared]
    attn_dp_rank: int | None = None


def golden(name):
    text = GOLDEN.read_text()
    quoted = re.search(name + r"\[\] =\s*((?:\"[0-9a-f]+\"\s*)+);", text).group(1)
    return bytes.fromhex("".join(re.findall(r"[0-9a-f]+", quoted)))


def main():
    tokens = [1, 127, 128, 300, 70000, 5]
    vllm = msgspec.msgpack.decode(golden("kVllmBytes"), type=KVEventBatch)
    assert vllm == KVEventBatch(ts=1700000000.25, data_parallel_rank=0, events=[
        AllBlocksCleared(),
        BlockStored(block_hashes=TWO, parent_block_hash=None, token_ids=tokens, block_size=3,
                    lora_id=None, medium="CPU", lora_name=None),
        BlockStored(block_hashes=[2**64 - 2], parent_block_hash=TWO[1], token_ids=list(range(20)),
                    block_size=20, lora_id=None, medium="STORAGE", lora_name="an adapter",
                    locality="LOCAL"),
        BlockRemoved(block_hashes=[2**64 - 2], medium="STORAGE", locality="LOCAL"),
        BlockRemoved(block_hashes=[7, 300], medium="CPU")]), vllm
    sglang = msgspec.msgpack.decode(golden("kSglangBytes"), type=Batch)
    assert sglang == Batch(1700000000.25, [
        Cleared(), Stored(TWO, None, tokens, 3, None, "CPU_PINNED"),
        Stored([2**64 - 2], TWO[1], list(range(20)), 20, None, "DISK"),
        Removed([2**64 - 2], "DISK"), Removed([7, 300], "CPU_PINNED")], 0), sglang
    print("both forms are read as they were meant")


if __name__ == "__main__":
    main()
