"""vLLM: the direct connector's worker half, between a rank's KV memory and the daemon.

vLLM's hooks call KvkeepWorker; Transfers move the bytes of its jobs. HostTransfers are for KV in
host memory (CPU engines), where the client library copies on threads of its own; vllm_device.py is
for KV in a GPU's memory. Hooks start calls and poll for their ends; none of them waits. A load that
failed is a failed load, and does not end the engine as in vLLM's own worker. A store that vLLM
wants flushed is reported as completed at once and goes on: the scheduler's half has pinned its
blocks until it is `released`.

A chunk's payload is its blocks, one after the other. A block is the pages of its group's layers, in
the order of the KV cache configuration, without padding, so the payload does not depend on strides.
"""

import concurrent.futures
import dataclasses
import itertools
import time
from typing import NamedTuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import LoadStoreSpec, OffloadingWorker

from kvkeep import calls, errors
from kvkeep.completions import Completions
from kvkeep.engine import check_chunk_bytes, connect
from kvkeep.memory import Pointer, skip
from kvkeep.vllm_epochs import EngineWorkerMetadata
from kvkeep.vllm_facts import Facts
from kvkeep.vllm_shards import of_rank
from kvkeep.vllm_weights import WritesToTell

logger = init_logger(__name__)

NULL_BLOCK = 0  # vLLM's number of a missing block, as behind a sliding window


@dataclasses.dataclass
class ChunksSpec(LoadStoreSpec):
    """A job for the workers: for each of its KV groups the namespace, as arguments of
    Client.namespace, and the chunks' keys in order."""

    groups: dict  # group: (arguments, keys)
    facts: dict = dataclasses.field(default_factory=dict)  # of a store. group: Facts of each key
    only_here: bool = False  # only this engine will find what it stores
    epoch: int = 0  # number of the epoch of its keys


class StepNews(NamedTuple):
    """News of the scheduler's half for workers in every step: the number of the epoch, and of the
    latest write of each rank's weights that it knows (Epochs)."""

    epoch: int = 0
    writes: dict = {}


@dataclasses.dataclass
class KvkeepWorkerMetadata(EngineWorkerMetadata):
    """News of one worker, or all of them, for the scheduler's half since last time, by job."""

    released: dict = dataclasses.field(default_factory=dict)  # job: by how many workers
    failed: set = dataclasses.field(default_factory=set)
    # Ended loads whose blocks may still be written: how many more workers say so.
    uncertain: dict = dataclasses.field(default_factory=dict)
    progress: bool = False  # a call has begun or ended

    def aggregate(self, other):
        both = super().aggregate(other)
        return KvkeepWorkerMetadata(both.completed_jobs, both.transfer_stats, both.writes,
                                    _added(self.released, other.released),
                                    self.failed | other.failed,
                                    _added(self.uncertain, other.uncertain),
                                    self.progress or other.progress)

    @property
    def says_something(self):
        return bool(self.completed_jobs or self.released or self.failed or self.uncertain or
                    self.writes or self.progress)


def _added(one, other):
    return {job: one.get(job, 0) + other.get(job, 0) for job in {**one, **other}}


class Page(NamedTuple):
    """One of a group's pages in each block: that of block b is at address + b * stride."""

    address: int
    stride: int
    nbytes: int


class PartOfChunk(NamedTuple):
    """payload: its places, in the form of its Transfers. parent, metadata: as in puts."""

    key: bytes
    part: int
    payload: object
    parent: bytes
    metadata: bytes


class PartsOfGroup(NamedTuple):
    """A job's chunks of one KV group: of each key the parts that are moved, in order."""

    ns: object  # Namespace
    keys: list
    numbers: tuple  # of the parts
    parts: list  # PartOfChunk, by keys and then numbers
    nbytes: int  # of each
    only_here: bool  # ChunksSpec's


class Transfers(OffloadingWorker):
    """Base of all kinds. kv_caches: vLLM's CanonicalKVCaches. shards: of a page
    (vllm_shards.shards_of)."""

    def __init__(self, options, config, kv_caches, shards):
        self._options, rank = options, config.parallel.rank
        self._blocks_per_chunk = config.cache.blocks_per_chunk
        self._pages = [list(map(self._page(kv_caches), refs))  # by group
                       for refs in kv_caches.group_data_refs]
        self._parts = [of_rank(shards, rank, refs) for refs in kv_caches.group_data_refs]
        # Bytes of a part in a block.
        self._bytes = [sum(page.nbytes for page in pages) // len(parts.all)
                       for pages, parts in zip(self._pages, self._parts)]
        self._kept = kv_caches
        self._client = connect(options, f"vllm {config.engine_id} rank {rank}", logger)
        check_chunk_bytes(self._client, self._blocks_per_chunk * max(self._bytes, default=0),
                          "a part of a chunk (tokens_per_chunk)", options.lookup_timeout_s)
        self._completions = Completions(self._client, capacity=1024)
        self._opener = concurrent.futures.ThreadPoolExecutor(1, "kvkeep-open")
        self._namespaces = {}  # arguments: Future of the namespace
        self._finished = []

    @staticmethod
    def _page(kv_caches):
        def of(ref):
            tensor = kv_caches.tensors[ref.tensor_idx].tensor
            return Page(tensor.data_ptr(), tensor.stride(0) * tensor.element_size(),
                        ref.page_size_bytes)
        return of

    def _store(self, job_id, groups, moved):
        """Begins it; its end comes to _finished. groups: PartsOfGroup; moved: total bytes."""
        raise NotImplementedError

    def _load(self, job_id, groups, moved):
        raise NotImplementedError

    def _payload(self, group, blocks, shard):
        """Returns the places of a chunk part's bytes. blocks: None for a missing one; shard: its
        number among the rank's own."""
        raise NotImplementedError

    def fence(self):
        """Returns a fence for is_over: behind everything that the engine has begun by now."""
        return None

    def is_over(self, fence):
        del fence
        return True

    def knows(self, chunks):
        """Returns whether the namespaces of a job's chunks are open. Starts to open the others, for
        which submit_store and submit_load would wait."""
        return all([self._opening(arguments).done() for arguments, _ in chunks.groups.values()])

    def submit_store(self, job_id, src_spec, dst_spec):
        self._start(job_id, src_spec, dst_spec, self._store, lambda parts: parts.written)
        return True

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):
        self._start(job_id, dst_spec, src_spec, self._load, lambda parts: parts.all)
        return True

    def get_finished(self):
        """Returns (job, whether all of it went well, bytes, seconds) of jobs that have ended."""
        self._completions.poll()
        finished, self._finished = self._finished, []
        return finished

    def refuse(self, job_id):
        """Reports a job as failed that does not begin."""
        self._finished.append((job_id, False, 0, 0.0))

    @property
    def progress(self):
        """A number that changes whenever a call begins or ends."""
        return self._completions.pending, len(self._finished)

    def uncertain(self):
        """Returns changes for ended loads since last time. job: 1, its memory may still be written;
        -1, it may not any more."""
        return {}

    def release(self):
        """Stops, as vLLM frees its KV memory now or puts it to sleep."""

    def restore(self):
        """Goes on, as vLLM has the memory again, at the same addresses."""

    def wait(self, job_ids):
        raise AssertionError("kvkeep: no hook waits")

    def shutdown(self):
        if self._completions.wait(self._options.timeout_s):
            self._completions.close()
        self._opener.shutdown()  # each with its lookup_timeout_s
        self._namespaces.clear()
        self._client.close()

    def _start(self, job_id, blocks, chunks, begin, moved_of):
        """Starts a job of the parts that moved_of(a rank's RankShards) returns. A mistake fails the
        job, as an exception would end the engine."""
        try:
            begin(job_id, *self._located(blocks, chunks, moved_of))
        except Exception:  # pylint: disable=broad-except  # ours, or the library's
            logger.exception("kvkeep: job %s", job_id)
            self.refuse(job_id)

    def _located(self, blocks, chunks, moved_of):
        """Returns ([PartsOfGroup], total bytes). blocks: the GPULoadStoreSpec, whose groups are in
        our order."""
        groups, moved, numbers = [], 0, iter(blocks.block_ids.tolist())
        for at, (size, first) in enumerate(zip(blocks.group_sizes, blocks.block_indices)):
            of_group = list(itertools.islice(numbers, size))
            if not of_group:
                continue
            arguments, keys = chunks.groups[at]
            wanted = moved_of(self._parts[at])
            groups.append(PartsOfGroup(
                self._namespace(arguments), keys, wanted,
                list(self._parts_of(at, wanted, keys, self._of_chunks(of_group, first, len(keys)),
                                    chunks.facts.get(at) or [Facts()] * len(keys))),
                self._blocks_per_chunk * self._bytes[at], chunks.only_here))
            moved += size * self._bytes[at] * len(wanted)
        return groups, moved

    def _parts_of(self, group, wanted, keys, blocks, facts):
        """Yields the parts. A chunk's metadata, which all its parts share, comes with the first
        one."""
        first = self._parts[group].all[0]
        for key, of_chunk, said in zip(keys, blocks, facts):
            for part in wanted:
                yield PartOfChunk(key, part, self._payload(group, of_chunk, part - first),
                                  said.parent, said.metadata() if part == 0 else b"")

    def _of_chunks(self, blocks, first, chunks):
        """Returns each chunk's blocks. The first chunk may begin before the blocks do, and the last
        one end behind them: None stands for a missing block."""
        before = first % self._blocks_per_chunk
        behind = chunks * self._blocks_per_chunk - before - len(blocks)
        if not 0 <= behind < self._blocks_per_chunk or NULL_BLOCK in blocks:
            raise ValueError(
                f"kvkeep: {len(blocks)} blocks from {first} on are not {chunks} chunks")
        wanted = [None] * before + blocks + [None] * behind
        return [wanted[at:at + self._blocks_per_chunk]
                for at in range(0, len(wanted), self._blocks_per_chunk)]

    def _ends(self, job_id, moved, sizes):
        """Returns the function to call with the outcomes of a job's calls, for chunks of these
        sizes."""
        begin = time.monotonic()

        def ended(outcomes):
            good = True
            for (result, mistake), size in zip(outcomes, sizes):
                if mistake is not None:
                    logger.warning("kvkeep: job %s: %s", job_id, mistake)
                good = good and mistake is None and all(result.good)
                # A chunk of another size is not ours, whatever its key says.
                good = good and all(one == size for one in getattr(result, "nbytes", ()))
            self._finished.append((job_id, good, moved, time.monotonic() - begin))

        return ended

    def _opening(self, arguments):
        if arguments not in self._namespaces:
            self._namespaces[arguments] = self._opener.submit(
                self._client.namespace, **dict(arguments), timeout=self._options.lookup_timeout_s)
        return self._namespaces[arguments]

    def _namespace(self, arguments):
        try:
            return self._opening(arguments).result()
        except errors.KvkeepError:  # the next job tries again, for all namespaces at once
            for failed in [other for other, opening in self._namespaces.items()
                           if opening.done() and opening.exception() is not None]:
                del self._namespaces[failed]
            raise


class HostTransfers(Transfers):
    """Transfers of KV in host memory."""

    def _store(self, job_id, groups, moved):
        self._completions.start_all(
            [calls.put(of.ns, [calls.Chunk(one.key, one.payload, one.part, one.parent, one.metadata)
                               for one in of.parts],
                       no_g3=of.only_here, timeout=self._options.store_timeout_s)
             for of in groups],
            self._ends(job_id, moved, [of.nbytes for of in groups]))

    def _load(self, job_id, groups, moved):
        self._completions.start_all(
            [calls.get(of.ns, of.keys, [one.payload for one in of.parts], parts=of.numbers,
                       timeout=self._options.timeout_s) for of in groups],
            self._ends(job_id, moved, [of.nbytes for of in groups]))

    def _payload(self, group, blocks, shard):
        runs, shards = [], len(self._parts[group].all)
        for block in blocks:
            if block is None:
                runs.append(skip(self._bytes[group]))
                continue
            for page in self._pages[group]:
                nbytes = page.nbytes // shards
                at = page.address + block * page.stride + shard * nbytes
                if runs and runs[-1].address and runs[-1].address + runs[-1].nbytes == at:
                    runs[-1] = Pointer(runs[-1].address, runs[-1].nbytes + nbytes)
                else:
                    runs.append(Pointer(at, nbytes))
        return runs


class KvkeepWorker(OffloadingConnectorWorker):
    """vLLM's worker, with other jobs. It begins no job while the scheduler's half does not know
    that this rank's weights were written, as the keys are those of the weights before. Loads under
    way then, or when an epoch begins, fail."""

    def __init__(self, spec, vllm_config, kv_cache_config):
        super().__init__(spec, vllm_config, kv_cache_config)
        self._rank, self._vllm_config = spec.config.parallel.rank, vllm_config
        self.clear()

    def clear(self):
        """Has no jobs and no news."""
        self._connector_worker_meta = KvkeepWorkerMetadata()
        self._writes = WritesToTell(self._vllm_config, self._rank)
        self._news, self._progress = StepNews(), None
        self._load_jobs = {}  # job: its request
        self._stale_loads = set()  # those of them that bring KV from before
        self._loads_fence = None
        self._due_loads = []  # (fence, job, the chunks, the blocks)
        self._queued = []  # stores of this step: (fence, job, the blocks, the chunks)
        self._due = []  # stores of earlier steps
        self._storing = set()  # jobs
        self._abandoned = set()  # those of them that vLLM was told are completed

    def handle_preemptions(self, kv_connector_metadata):
        """Reports the jobs that vLLM wants flushed as completed. Also begins the stores of the last
        step: its forward has run to its end, as this is the next step."""
        self._hear(kv_connector_metadata)
        self._due += self._queued
        self._queued = []
        self._begin_due()
        told = self._connector_worker_meta
        for job in kv_connector_metadata.jobs_to_flush or ():
            if kv_connector_metadata.store_jobs.pop(job, None) is not None:
                told.released[job] = 1  # it did not begin, and this step overwrites its blocks
                told.mark_completed(job)
            elif job in self._storing and job not in self._abandoned:
                self._abandoned.add(job)
                told.mark_completed(job)

    def before_forward(self, metadata):
        """Fences loads: earlier uses of their blocks began before this step's forward."""
        if metadata.load_jobs:
            self._loads_fence = self.worker.fence()

    def start_kv_transfers(self, metadata):
        trusted = self._hear(metadata)
        for job, entry in metadata.load_jobs.items():
            self._load_jobs[job] = entry.req_id
            if not trusted or not self._is_of_now(entry.src_spec):
                self.worker.refuse(job)
                continue
            self._due_loads.append((self._loads_fence, job, entry.src_spec, entry.dst_spec))
        self._begin_due()

    def prepare_store_kv(self, metadata):
        """Called even if the forward raised, so nothing may be stored yet."""
        if not metadata.store_jobs:
            return
        fence, trusted = self.worker.fence(), self._hear(metadata)
        for job, entry in metadata.store_jobs.items():
            self._storing.add(job)
            if not trusted or not self._is_of_now(entry.dst_spec):
                self.worker.refuse(job)
                continue
            self._queued.append((fence, job, entry.src_spec, entry.dst_spec))

    def _hear(self, metadata):
        """Returns whether the scheduler's half knows which weights this rank has."""
        news = getattr(metadata, "news", self._news)
        if news.epoch != self._news.epoch:
            self._stale_loads.update(self._load_jobs)
        self._news = news
        self._look_for_writes()
        return news.writes.get(self._rank, 0) == self._writes.latest

    def _is_of_now(self, chunks):
        return getattr(chunks, "epoch", self._news.epoch) == self._news.epoch

    def give_up_what_waits(self):
        """Fails jobs that have not begun, as vLLM's KV memory loses its content."""
        for _, job, *_ in (*self._queued, *self._due, *self._due_loads):
            self.worker.refuse(job)
        self._queued, self._due, self._due_loads = [], [], []

    def _look_for_writes(self):
        changed = self._writes.take()
        if changed:
            self._connector_worker_meta.writes.update(changed)
            self._stale_loads.update(self._load_jobs)

    def _begin_due(self):
        """Begins due jobs whose fences are over. Fences end in the order in which they were
        made."""
        for due, chunks, begin in ((self._due_loads, 2, self.worker.submit_load),
                                   (self._due, 3, self.worker.submit_store)):
            while due and self.worker.is_over(due[0][0]) and self.worker.knows(due[0][chunks]):
                _, job, source, target = due.pop(0)
                begin(job, source, target)

    def transfer_results(self):
        self._begin_due()
        self._look_for_writes()
        told, results = self._connector_worker_meta, KVConnectorTransferResults()
        if self.worker.progress != self._progress or self._queued or self._due:
            self._progress, told.progress = self.worker.progress, True
        finished = self.worker.get_finished()
        told.uncertain = _added(told.uncertain, self.worker.uncertain())
        for job, good, nbytes, seconds in finished:
            request = self._load_jobs.pop(job, None)
            if request is not None:
                good = good and job not in self._stale_loads
                self._stale_loads.discard(job)
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
        self.clear()
        if self.worker is not None:
            self.worker.shutdown()

