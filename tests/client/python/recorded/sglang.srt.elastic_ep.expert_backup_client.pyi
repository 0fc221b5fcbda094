"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


class ExpertBackupClient:
    def update_weights(self, weight_name_filter=None): ...
    ...
