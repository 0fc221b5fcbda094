"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum


@dataclass
class TransferJob:
    req_id: ReqId
    src_spec: LoadStoreSpec
    dst_spec: LoadStoreSpec
    sync: bool = False
    ...


@dataclass
class OffloadingConnectorMetadata:
    load_jobs: dict[int, TransferJob]
    store_jobs: dict[int, TransferJob]
    jobs_to_flush: set[int] | None = None
    ...


@dataclass
class OffloadingWorkerMetadata:
    completed_jobs: dict[int, int] = field(default_factory=dict)
    transfer_stats: TransferStats = field(default_factory=TransferStats)
    def mark_completed(self, job_id: int) -> None: ...
    def aggregate(self, other: 'KVConnectorWorkerMetadata') -> 'KVConnectorWorkerMetadata': ...
    ...
