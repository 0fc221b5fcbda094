"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


class WeightChecker:
    def _reset_tensors(self, skip_tensor_list: Optional[List[str]]=None): ...
    ...
