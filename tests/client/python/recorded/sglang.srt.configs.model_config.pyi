"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


class ModelConfig:
    @staticmethod
    def from_server_args(server_args: ServerArgs, model_path: str=None, model_revision: str=None, is_draft_model: bool=False, context_length: Optional[int]=None, **kwargs): ...
    def get_num_kv_heads(self, tensor_parallel_size: int, dcp_size: int=1) -> int: ...
    def get_swa_num_kv_heads(self, tensor_parallel_size) -> int: ...
    ...
