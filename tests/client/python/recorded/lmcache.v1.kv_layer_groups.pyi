"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


@dataclass
class KernelGroupInfo:
    layer_indices: list[int]
    shape_desc: PageBufferShapeDesc
    dtype: torch.dtype
    engine_kv_format: 'lmcache_native.EngineKVFormat | None' = None
    tokens_per_block: int = 0
    engine_group_idx: int = 0
    sw_size_tokens: int = -1
    extra_object_group_tag: int = 0
    recurrent_state: bool = False
    def __repr__(self) -> str: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def hidden_dim_size(self) -> int: ...
    @property
    def slots_per_block(self) -> int: ...
    def calculate_slots(self, num_tokens: int) -> int: ...
    ...


@dataclass
class ObjectGroupInfo:
    kernel_group_indices: list[int]
    sw_size_chunks: int = -1
    aux: bool = False
    recurrent: bool = False
    ...


class KVLayerGroupsManager:
    def __init__(self, kv_caches: 'DiscoverableKVCache', engine_kv_formats: 'Sequence[lmcache_native.EngineKVFormat]', engine_group_infos: 'Sequence[EngineGroupInfo]'=(), lmcache_tokens_per_chunk: int=256, separate_object_groups: bool=False) -> None: ...
    def _detect_object_groups(self, engine_group_infos: 'Sequence[EngineGroupInfo]') -> list[ObjectGroupInfo]: ...
    # self._kernel_groups: list[KernelGroupInfo]
    # self._lmcache_tokens_per_chunk
    ...
