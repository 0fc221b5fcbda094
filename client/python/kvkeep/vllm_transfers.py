"""vLLM: the worker's half of the direct connector: between a rank's KV memory and the daemon.

Host memory (CPU engines): the client library copies, on threads of its own. Hooks start calls and
hear of their ends; none of them waits. A load that failed is a failed load, and not the end of the
engine, as it is for vLLM's own worker. A store that vLLM wants flushed is reported as completed at
once and goes on: the scheduler's half has pinned its blocks until it is `released`.

A chunk's payload is its blocks, one after the other; of a block the pages of its group's layers, as
the KV cache configuration has them, without padding. So it does not depend on their strides.
"""

import dataclasses
import itertools
import time

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import LoadStoreSpec, OffloadingWorker

from kvkeep import calls
from kvkeep.completions import Completions
from kvkeep.engine import connect
from kvkeep.memory import Pointer, skip
from kvkeep.vllm_facts import Facts

logger = init_logger(__name__)

NULL_BLOCK = 0  # vLLM's: of what is not there, as behind a sliding window


@dataclasses.dataclass
class ChunksSpec(LoadStoreSpec):
    """Of a job, for the workers: of each KV group in it its namespace, as arguments of
    Client.namespace, and the chunks' keys in order."""

    groups: dict  # group: (arguments, keys)
    facts: dict = dataclasses.field(default_factory=dict)  # of a store. group: Facts of each key


@dataclasses.dataclass
class KvkeepWorkerMetadata(OffloadingWorkerMetadata):
    """What one worker, or all of them, tell the scheduler's half since last time. Jobs."""

    released: dict = dataclasses.field(default_factory=dict)  # job: by how many workers
    failed: set = dataclasses.field(default_factory=set)

    def aggregate(self, other):
        both = super().aggregate(other)
        released = dict(self.released)
        for job, workers in other.released.items():
            released[job] = released.get(job, 0) + workers
        return KvkeepWorkerMetadata(both.completed_jobs, both.transfer_stats, released,
                                    self.failed | other.failed)

    @property
    def says_something(self):
        return bool(self.completed_jobs or self.released or self.failed)


class HostTransfers(OffloadingWorker):
    """Between chunks and pages in host memory. kv_caches: vLLM's CanonicalKVCaches."""

    def __init__(self, options, config, kv_caches):
        for tensor in kv_caches.tensors:
            if tensor.tensor.device.type != "cpu":
                raise ValueError(
                    f"kvkeep: the KV of this engine is on {tensor.tensor.device}; the direct "
                    "connector moves host memory only, as yet: use KvkeepOffloadingConnector")
        self._options, self._rank = options, config.parallel.rank
        self._blocks_per_chunk = config.cache.blocks_per_chunk
        self._pages = [list(map(self._page(kv_caches), refs))  # by group
                       for refs in kv_caches.group_data_refs]
        self._bytes = [sum(nbytes for _, _, nbytes in pages) for pages in self._pages]  # a block
        self._kept = kv_caches
        self._client = connect(options, f"vllm {config.engine_id} rank {self._rank}", logger)
        self._completions = Completions(self._client, capacity=1024)
        self._namespaces = {}
        self._finished = []

    @staticmethod
    def _page(kv_caches):
        """(address, bytes from one block to the next, bytes)"""
        def of(ref):
            tensor = kv_caches.tensors[ref.tensor_idx].tensor
            return (tensor.data_ptr(), tensor.stride(0) * tensor.element_size(),
                    ref.page_size_bytes)
        return of

    def submit_store(self, job_id, src_spec, dst_spec):
        self._start(job_id, src_spec, dst_spec, self._put)
        return True

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):
        self._start(job_id, dst_spec, src_spec, self._get)
        return True

    def get_finished(self):
        """(job, all of it went well, bytes, seconds)"""
        self._completions.poll()
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids):
        raise AssertionError("kvkeep: no hook waits")

    def shutdown(self):
        if self._completions.wait(self._options.timeout_s):
            self._completions.close()
        self._namespaces.clear()
        self._client.close()

    def _start(self, job_id, blocks, chunks, make_call):
        """A mistake is a job that failed: it would be the end of the engine."""
        try:
            self._begin(job_id, blocks, chunks, make_call)
        except Exception:  # pylint: disable=broad-except  # ours, or the library's
            logger.exception("kvkeep: job %s", job_id)
            self._finished.append((job_id, False, 0, 0.0))

    def _begin(self, job_id, blocks, chunks, make_call):
        """blocks: the GPULoadStoreSpec, whose groups are in the order of ours."""
        begin, moved, sizes = time.monotonic(), 0, []
        calls_of_groups, numbers = [], iter(blocks.block_ids.tolist())
        for at, (size, first) in enumerate(zip(blocks.group_sizes, blocks.block_indices)):
            of_group = list(itertools.islice(numbers, size))
            if not of_group:
                continue
            arguments, keys = chunks.groups[at]
            buffers = self._buffers(at, of_group, first, len(keys))
            calls_of_groups.append(make_call(self._namespace(arguments), keys, buffers,
                                             chunks.facts.get(at) or [Facts()] * len(keys)))
            sizes.append(self._blocks_per_chunk * self._bytes[at])
            moved += size * self._bytes[at]

        def ended(outcomes):
            good = True
            for (result, mistake), size in zip(outcomes, sizes):
                if mistake is not None:
                    logger.warning("kvkeep: job %s: %s", job_id, mistake)
                good = good and mistake is None and all(result.good)
                # A chunk of another size is no chunk of ours, whatever its key says.
                good = good and all(one == size for one in getattr(result, "nbytes", ()))
            self._finished.append((job_id, good, moved, time.monotonic() - begin))

        self._completions.start_all(calls_of_groups, ended)

    def _put(self, ns, keys, buffers, facts):
        return calls.put(ns, [calls.Chunk(key, payload, self._rank, of.parent,
                                          of.metadata() if self._rank == 0 else b"")
                              for key, payload, of in zip(keys, buffers, facts)],
                         timeout=self._options.store_timeout_s)

    def _get(self, ns, keys, buffers, facts):
        del facts
        return calls.get(ns, keys, buffers, parts=[self._rank], timeout=self._options.timeout_s)

    def _buffers(self, group, blocks, first, chunks):
        """Of each chunk the pages of its blocks. The first chunk may begin before the blocks do,
        and the last one end behind them: what is not there is skipped."""
        before = first % self._blocks_per_chunk
        behind = chunks * self._blocks_per_chunk - before - len(blocks)
        if not 0 <= behind < self._blocks_per_chunk or NULL_BLOCK in blocks:
            raise ValueError(
                f"kvkeep: {len(blocks)} blocks from {first} on are not {chunks} chunks")
        wanted = [None] * before + blocks + [None] * behind
        return [self._runs(group, wanted[at:at + self._blocks_per_chunk])
                for at in range(0, len(wanted), self._blocks_per_chunk)]

    def _runs(self, group, blocks):
        runs = []
        for block in blocks:
            if block is None:
                runs.append(skip(self._bytes[group]))
                continue
            for address, stride, nbytes in self._pages[group]:
                at = address + block * stride
                if runs and runs[-1].address and runs[-1].address + runs[-1].nbytes == at:
                    runs[-1] = Pointer(runs[-1].address, runs[-1].nbytes + nbytes)
                else:
                    runs.append(Pointer(at, nbytes))
        return runs

    def _namespace(self, arguments):
        known = self._namespaces.get(arguments)
        if known is None:
            known = self._namespaces[arguments] = self._client.namespace(
                **dict(arguments), timeout=self._options.lookup_timeout_s)
        return known


class KvkeepWorker(OffloadingConnectorWorker):
    """vLLM's, but for what it does with jobs."""

    def __init__(self, spec, vllm_config, kv_cache_config):
        super().__init__(spec, vllm_config, kv_cache_config)
        self._connector_worker_meta = KvkeepWorkerMetadata()
        self._queued = []  # stores: (job, the blocks, the chunks)
        self._storing = set()  # jobs
        self._abandoned = set()  # of these, what vLLM has been told of as completed

    def handle_preemptions(self, kv_connector_metadata):
        """What vLLM wants flushed is completed as far as it is concerned. And the stores of the
        last step begin: its forward has run to its end, or there were no next step."""
        queued, self._queued = self._queued, []
        for job, blocks, chunks in queued:
            self.worker.submit_store(job, blocks, chunks)
        told = self._connector_worker_meta
        for job in kv_connector_metadata.jobs_to_flush or ():
            if kv_connector_metadata.store_jobs.pop(job, None) is not None:
                told.released[job] = 1  # not begun, and this step overwrites its blocks
                told.mark_completed(job)
            elif job in self._storing and job not in self._abandoned:
                self._abandoned.add(job)
                told.mark_completed(job)

    def start_kv_transfers(self, metadata):
        for job, entry in metadata.load_jobs.items():
            self._load_jobs[job] = entry.req_id
            self.worker.submit_load(job, entry.src_spec, entry.dst_spec)

    def prepare_store_kv(self, metadata):
        """Called also where the forward has raised: nothing may be stored yet."""
        for job, entry in metadata.store_jobs.items():
            self._storing.add(job)
            self._queued.append((job, entry.src_spec, entry.dst_spec))

    def transfer_results(self):
        told, results = self._connector_worker_meta, KVConnectorTransferResults()
        for job, good, nbytes, seconds in self.worker.get_finished():
            request = self._load_jobs.pop(job, None)
            if request is not None:
                results.finished_recving.add(request)
                if not good:
                    results.failed_recving.add(request)
            else:
                self._storing.discard(job)
                told.released[job] = 1
            if not good:
                told.failed.add(job)
            if job in self._abandoned:
                self._abandoned.discard(job)
            else:
                told.mark_completed(job)
            if good:
                stats = told.transfer_stats
                (stats.store if request is None else stats.load).record(nbytes, seconds)
        return results

    def build_connector_worker_meta(self):
        if not self._connector_worker_meta.says_something:
            return None
        told, self._connector_worker_meta = self._connector_worker_meta, KvkeepWorkerMetadata()
        return told

    def shutdown(self):
        self._queued.clear()
        self._load_jobs.clear()
        if self.worker is not None:
            self.worker.shutdown()

