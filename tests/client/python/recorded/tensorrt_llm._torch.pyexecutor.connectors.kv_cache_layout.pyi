"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True)
class KvCacheBufferRef:
    layer_id: int
    role: str
    expansion: int = 1
    ...


@dataclass(frozen=True)
class KvCacheRegion:
    base: int
    size: int
    stride: int
    num_slots: int
    buffers: Tuple[KvCacheBufferRef, ...]
    def address_of(self, slot_id: int) -> int: ...
    def as_tensor(self, dtype: torch.dtype=torch.uint8) -> torch.Tensor: ...
    def slot_tensor(self, slot_id: int, dtype: torch.dtype=torch.uint8) -> torch.Tensor: ...
    ...


@dataclass(frozen=True)
class KvCacheLayerGroupLayout:
    layer_group_id: int
    layer_ids: Tuple[int, ...]
    window_size: Optional[int]
    regions: Tuple[KvCacheRegion, ...]
    @property
    def bytes_per_page(self) -> int: ...
    ...


@dataclass(frozen=True)
class KvCacheLayout:
    tokens_per_block: int
    groups: Tuple[KvCacheLayerGroupLayout, ...]
    dtype: torch.dtype = torch.uint8
    def group(self, layer_group_id: int) -> KvCacheLayerGroupLayout: ...
    def group_of_layer(self, layer_id: int) -> KvCacheLayerGroupLayout: ...
    def as_single_pool_tensor(self) -> Optional[torch.Tensor]: ...
    ...
