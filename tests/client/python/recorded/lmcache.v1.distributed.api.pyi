"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True)
class ObjectKey:
    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int = 0
    cache_salt: str = ''
    def __post_init__(self) -> None: ...
    def to_encoded_object_key(self) -> 'EncodedObjectKey': ...
    @staticmethod
    def IntHash2Bytes(chunk_hash: int) -> bytes: ...
    @staticmethod
    def Bytes2IntHash(chunk_hash: bytes) -> int: ...
    @staticmethod
    def ComputeKVRank(world_size: int, global_rank: int, local_world_size: int, local_rank: int) -> int: ...
    @staticmethod
    def WorldSizeFromKVRank(kv_rank: int) -> int: ...
    ...


@dataclass(frozen=True)
class MemoryLayoutDesc:
    shapes: list[torch.Size]
    dtypes: list[torch.dtype]
    def __post_init__(self): ...
    ...
