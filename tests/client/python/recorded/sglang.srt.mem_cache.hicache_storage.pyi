"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


@dataclass
class HiCacheStorageConfig:
    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    attn_cp_rank: int
    attn_cp_size: int
    is_mla_model: bool
    enable_storage_metrics: bool
    is_page_first_layout: bool
    model_name: Optional[str]
    tp_lcm_size: Optional[int] = None
    should_split_heads: bool = False
    dp_rank: int = 0
    extra_config: Optional[dict] = None
    dcp_size: int = 1
    dcp_rank: int = 0
    logical_page_size: Optional[int] = None
    def __post_init__(self): ...
    @property
    def is_storage_writer(self) -> bool: ...
    ...


@dataclass
class HiCacheStorageExtraInfo:
    prefix_keys: Optional[List[str]] = None
    extra_info: Optional[dict] = None
    ...


class PoolName(str, Enum):
    KV = 'kv'
    MAMBA = 'mamba'
    SWA = 'swa'
    AUXILIARY_SWA = 'auxiliary_swa'
    INDEXER = 'indexer'
    DEEPSEEK_V4_C1 = 'deepseek_v4_c1'
    DEEPSEEK_V4_C1_INDEXER = 'deepseek_v4_c1_indexer'
    DEEPSEEK_V4_C1_INDEXER_SCALE = 'deepseek_v4_c1_indexer_scale'
    DEEPSEEK_V4_C2 = 'deepseek_v4_c2'
    DEEPSEEK_V4_C2_INDEXER = 'deepseek_v4_c2_indexer'
    DEEPSEEK_V4_C2_INDEXER_SCALE = 'deepseek_v4_c2_indexer_scale'
    DEEPSEEK_V4_C4 = 'deepseek_v4_c4'
    DEEPSEEK_V4_C4_INDEXER = 'deepseek_v4_c4_indexer'
    DEEPSEEK_V4_C4_INDEXER_SCALE = 'deepseek_v4_c4_indexer_scale'
    DEEPSEEK_V4_C128 = 'deepseek_v4_c128'
    DEEPSEEK_V4_C4_ROPE = 'deepseek_v4_c4_rope'
    DEEPSEEK_V4_C128_ROPE = 'deepseek_v4_c128_rope'
    DEEPSEEK_V4_C4_STATE = 'deepseek_v4_c4_state'
    DEEPSEEK_V4_C4_INDEXER_STATE = 'deepseek_v4_c4_indexer_state'
    DEEPSEEK_V4_C128_STATE = 'deepseek_v4_c128_state'
    DRAFT = 'draft'
    DRAFT_INDEXER = 'draft_indexer'
    DRAFT_SWA = 'draft_swa'
    def __str__(self) -> str: ...
    ...


class PoolHitPolicy(str, Enum):
    ALL_PAGES = 'all_pages'
    TRAILING_PAGES = 'trailing_pages'
    BLOCK_GROUPS = 'block_groups'
    ...


@dataclass
class PoolTransfer:
    name: PoolName
    host_indices: Optional[torch.Tensor] = None
    device_indices: Optional[torch.Tensor] = None
    keys: Optional[List[str]] = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES
    nodes_to_load: Optional[List[Any]] = None
    indices_from_pool: Optional[PoolName] = None
    block_pages: int = 0
    group_pages: int = 0
    ...


@dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict[str, int]
    restorable_prefix_pages: Optional[List[int]] = None
    @classmethod
    def empty(cls) -> PoolTransferResult: ...
    def update_kv_hit_pages(self, kv_hit_pages: int) -> None: ...
    def update_extra_pool_hit_pages(self, results: dict[str, int]) -> None: ...
    ...


class HiCacheStorage(ABC):
    def register_mem_pool_host(self, mem_pool_host: HostKVCache): ...
    def register_mem_host_pool_v2(self, host_pool: HostKVCache, host_pool_name): ...
    def on_host_pools_registered(self) -> None: ...
    def batch_exists_v2(self, keys: List[str], pool_transfers: Optional[List[PoolTransfer]]=None, extra_info: Optional[HiCacheStorageExtraInfo]=None) -> PoolTransferResult: ...
    def batch_get_v2(self, transfers: List[PoolTransfer], extra_info: Optional[HiCacheStorageExtraInfo]=None) -> dict[str, List[bool]]: ...
    def batch_set_v2(self, transfers: List[PoolTransfer], extra_info: Optional[HiCacheStorageExtraInfo]=None) -> dict[str, List[bool]]: ...
    def batch_get_v1(self, keys: List[str], host_indices: torch.Tensor, extra_info: Optional[HiCacheStorageExtraInfo]=None) -> List[bool]: ...
    def batch_set_v1(self, keys: List[str], host_indices: torch.Tensor, extra_info: Optional[HiCacheStorageExtraInfo]=None) -> List[bool]: ...
    @abstractmethod
    def get(self, key: str, target_location: Optional[Any]=None, target_sizes: Optional[Any]=None) -> torch.Tensor | None: ...
    @abstractmethod
    def batch_get(self, keys: List[str], target_locations: Optional[Any]=None, target_sizes: Optional[Any]=None) -> List[torch.Tensor | None] | int: ...
    @abstractmethod
    def set(self, key: str, value: Optional[Any]=None, target_location: Optional[Any]=None, target_sizes: Optional[Any]=None) -> bool: ...
    @abstractmethod
    def batch_set(self, keys: List[str], values: Optional[Any]=None, target_locations: Optional[Any]=None, target_sizes: Optional[Any]=None) -> bool: ...
    @abstractmethod
    def exists(self, key: str) -> bool: ...
    def batch_exists(self, keys: List[str], extra_info: Optional[HiCacheStorageExtraInfo]=None) -> int: ...
    def clear(self) -> None: ...
    def get_stats(self): ...
    ...
