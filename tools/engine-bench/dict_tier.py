"""A tier below vLLM's offloading that is a dict of its process: the least that a tier can cost.

It outlives engines of its process, and is never full. For comparison only.
"""

from vllm.v1.kv_offload.base import LookupResult, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

_KEPT = {}  # key: bytes


class DictTier(SecondaryTierManager):
    medium = Medium.CPU

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self._rows = primary_kv_view.cast("B")
        self._finished = []

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        return LookupResult.HIT if key in _KEPT else LookupResult.MISS

    def submit_store(self, job_metadata):
        for key, slot in zip(job_metadata.keys, job_metadata.chunk_ids):
            _KEPT[key] = bytes(self._row(slot))
        self._finished.append(JobResult(job_metadata.job_id, True))

    def submit_load(self, job_metadata):
        for key, slot in zip(job_metadata.keys, job_metadata.chunk_ids):
            self._row(slot)[:] = _KEPT[key]
        self._finished.append(JobResult(job_metadata.job_id, True))

    def get_finished_jobs(self):
        finished, self._finished = self._finished, []
        return finished

    def drain_jobs(self):
        pass

    def shutdown(self):
        self._rows.release()

    def _row(self, slot):
        at = int(slot) * self.block_size_bytes
        return self._rows[at:at + self.block_size_bytes]
