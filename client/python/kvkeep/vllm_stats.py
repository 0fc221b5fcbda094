"""vLLM: metrics of a tier that vLLM's own lack: why chunks were not found, loaded or stored.

vLLM itself counts chunks, bytes and times for each tier.
"""

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata

_FAILURES = "vllm:kvkeep_failed_chunks"
BREAKER = "daemon_hangs"  # skipped, after a call that timed out
ADAPTER, SHORT_HASH = "adapter_unknown", "short_hash"
EPOCH = "epoch"  # the request began when the weights may have been others
MULTIMODAL = "multimodal"  # the request has images or the like (option "multimodal")
NOT_BEGUN = "not_begun"  # the direct connector's
NOT_LOADED = "not_loaded"  # found, but not read
MISTAKE = "mistake"  # a mistake of the adapter or its configuration; the log has it
CONFIG_INFO = ("kvkeep_endpoint", "kvkeep_path", "kvkeep_identity")


def definitions():
    """Returns the metrics, by name."""
    return {_FAILURES: OffloadingCounterMetadata(
        documentation="Chunks that kvkeep did not find, load or store, and why: a code of its "
                      f"client's errors, {BREAKER}, {ADAPTER}, {SHORT_HASH}, {EPOCH}, "
                      f"{MULTIMODAL}, {NOT_BEGUN}, {NOT_LOADED} or {MISTAKE}.",
        labelnames=("operation", "reason"))}


class Stats:
    """Returns the counts since they were taken last."""

    def __init__(self):
        self._taken = OffloadingConnectorStats()

    def failed(self, operation, reason, chunks):
        if chunks:
            self._taken.increase_counter(_FAILURES, chunks, (operation, reason))

    def ended(self, operation, chunks, result, mistake):
        """Counts a call about `chunks` chunks that ended with a result, or with a mistake."""
        if mistake is not None:
            self.failed(operation, MISTAKE, chunks)
        elif result.error is not None:
            self.failed(operation, result.error.code, chunks)

    def take(self):
        taken, self._taken = self._taken, OffloadingConnectorStats()
        return taken
