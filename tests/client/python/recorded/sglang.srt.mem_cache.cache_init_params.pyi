"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


@dataclass
class CacheInitParams:
    disable: bool
    req_to_token_pool: ReqToTokenPool
    token_to_kv_pool_allocator: BaseTokenToKVPoolAllocator
    page_size: int
    is_eagle: bool = False
    tp_cache_group: Optional[torch.distributed.ProcessGroup] = None
    attn_cp_cache_group: Optional[torch.distributed.ProcessGroup] = None
    attn_tp_cache_group: Optional[torch.distributed.ProcessGroup] = None
    pp_cache_group: Optional[torch.distributed.ProcessGroup] = None
    eviction_policy: str = 'lru'
    eviction_policy_config: Optional[dict[str, Any]] = None
    enable_metrics: bool = False
    enable_kv_cache_events: bool = False
    dynamo_kv_event_format: bool = False
    kv_event_lora_names: KvEventLoraNames = dataclasses.field(default_factory=KvEventLoraNames)
    enable_session_radix_cache: bool = False
    enable_mamba_extra_buffer: bool = False
    enable_mamba_extra_buffer_lazy: bool = False
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    chunked_prefill_size: Optional[int] = None
    sliding_window_size: Optional[int] = None
    swa_gates_prefix_match: bool = True
    decoder_swa_bounded_replay: bool = False
    draft_swa_window: int = 0
    tree_components: Optional[tuple[ComponentType, ...]] = None
    component_registry_override: Optional[dict[ComponentType, type[TreeComponent]]] = None
    tree_core_backend: Optional[str] = dataclasses.field(default=None, kw_only=True)
    mtp_draft_device_pools: tuple[object, ...] = ()
    sidecar_draft_device_pools: tuple[object, ...] = ()
    mtp_draft_mamba_pools: tuple[object, ...] = ()
    @property
    def swa_retain_window(self) -> Optional[int]: ...
    ...
