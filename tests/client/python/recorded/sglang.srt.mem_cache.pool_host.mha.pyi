"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


class MHATokenToKVPoolHost:
    def get_split_heads_page_buffer_meta(self, indices: torch.Tensor, split_factor: int): ...
    def get_page_buffer_meta(self, indices): ...
    ...
