"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


class KVCacheLayout(Enum):
    LBHNC = (0, 1, 2, 3, 4)
    LBNHC = (0, 1, 3, 2, 4)
    LHBNC = (0, 2, 1, 3, 4)
    BLHNC = (1, 0, 2, 3, 4)
    BLNHC = (1, 0, 3, 2, 4)
    BHLNC = (1, 2, 0, 3, 4)
    @property
    def stride_order(self) -> tuple[int, ...]: ...
    @property
    def layer_view_order(self) -> tuple[int, ...]: ...
    @property
    def is_layer_compact(self) -> bool: ...
    @property
    def is_block_contiguous(self) -> bool: ...
    @property
    def is_block_compact(self) -> bool: ...
    @property
    def is_block_outermost(self) -> bool: ...
    ...
