"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True)
class L1MemoryDesc:
    ptr: int
    size: int
    align_bytes: int
    stable_registration_size: int | None = None
    ...


class L2StoreResult(int):
    def __new__(cls, success: bool, bytes_transferred: int) -> 'L2StoreResult': ...
    def is_successful(self) -> bool: ...
    def bytes_transferred(self) -> int: ...
    ...
