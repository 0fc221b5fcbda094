"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True)
class UnifiedCacheLinkerConfig:
    linker: str
    linker_module_path: str
    linker_extra_config: dict[str, Any] = field(default_factory=dict)
    @classmethod
    def from_dict(cls, value: dict[str, Any] | None) -> UnifiedCacheLinkerConfig: ...
    ...
