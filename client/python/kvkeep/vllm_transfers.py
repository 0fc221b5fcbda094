"""vLLM: the worker's half of the direct connector: between a rank's KV memory and the daemon.

KvkeepWorker is what vLLM's hooks call; Transfers move the bytes of its jobs, HostTransfers of KV in
host memory (CPU engines), where the client library copies, on threads of its own; for KV in a GPU's
memory there is vllm_device.py. Hooks start calls and hear of their ends; none of them waits. A load
that failed is a failed load, and not the end of the engine, as it is for vLLM's own worker. A store
that vLLM wants flushed is reported as completed at once and goes on: the scheduler's half has
pinned its blocks until it is `released`.

A chunk's payload is its blocks, one after the other; of a block the pages of its group's layers, as
the KV cache configuration has them, without padding. So it does not depend on their strides.
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

NULL_BLOCK = 0  # vLLM's: of what is not there, as behind a sliding window


@dataclasses.dataclass
class ChunksSpec(LoadStoreSpec):
    """A job, for the workers: for each of its KV groups the namespace, as arguments of
    Client.namespace, and the chunks' keys in order."""

    groups: dict  # group: (arguments, keys)
    facts: dict = dataclasses.field(default_factory=dict)  # of a store. group: Facts of each key
    only_here: bool = False  # only this engine will find what it stores
    epoch: int = 0  # the number of the one that its keys are of


class StepNews(NamedTuple):
    """News of the scheduler's half for workers in every step: the number of the epoch, and of the
    latest write of each rank's weights that it knows (Epochs)."""

    epoch: int = 0
    writes: dict = {}


@dataclasses.dataclass
class KvkeepWorkerMetadata(EngineWorkerMetadata):
    """News of one worker, or all of them, for the scheduler's half since last time. Jobs."""

    released: dict = dataclasses.field(default_factory=dict)  # job: by how many workers
    failed: set = dataclasses.field(default_factory=set)
    # Loads that have ended and whose blocks may still be written: how many workers more say so.
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
    """One of a group's pages in each block: block b's is at address + b * stride."""

    address: int
    stride: int
    nbytes: int


class PartOfChunk(NamedTuple):
    """payload: where it lies in memory, as its Transfers has that. parent, metadata: as puts."""

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
    parts: list  # PartOfChunk, as keys and then numbers
    nbytes: int  # of each
    only_here: bool  # ChunksSpec's


class Transfers(OffloadingWorker):
    """Base of all kinds. kv_caches: vLLM's CanonicalKVCaches. shards: of a page, as
    vllm_shards.shards_of says."""

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
        self._namespaces = {}  # arguments: a Future of it
        self._finished = []

    @staticmethod
    def _page(kv_caches):
        def of(ref):
            tensor = kv_caches.tensors[ref.tensor_idx].tensor
            return Page(tensor.data_ptr(), tensor.stride(0) * tensor.element_size(),
                        ref.page_size_bytes)
        return of

    def _store(self, job_id, groups, moved):
        """Begins it; its end comes to _finished. groups: of PartsOfGroup; moved: bytes in all."""
        raise NotImplementedError

    def _load(self, job_id, groups, moved):
        raise NotImplementedError

    def _payload(self, group, blocks, shard):
        """Where the bytes of a chunk's part lie. blocks: None for what is not there; shard: which
        one of a rank's own."""
        raise NotImplementedError

    def fence(self):
        """Something to ask is_over of: whether all that the engine has begun by now is done."""
        return None

    def is_over(self, fence):
        del fence
        return True

    def knows(self, chunks):
        """Whether the namespaces of a job's chunks are open; that begins where they are not, and
        submit_store and submit_load would wait for it."""
        return all([self._opening(arguments).done() for arguments, _ in chunks.groups.values()])

    def submit_store(self, job_id, src_spec, dst_spec):
        self._start(job_id, src_spec, dst_spec, self._store, lambda parts: parts.written)
        return True

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):
        self._start(job_id, dst_spec, src_spec, self._load, lambda parts: parts.all)
        return True

    def get_finished(self):
        """(job, all of it went well, bytes, seconds)"""
        self._completions.poll()
        finished, self._finished = self._finished, []
        return finished

    def refuse(self, job_id):
        """A job that has failed, as it is not begun."""
        self._finished.append((job_id, False, 0, 0.0))

    @property
    def progress(self):
        """Changes whenever a call begins or ends."""
        return self._completions.pending, len(self._finished)

    def uncertain(self):
        """Since last time, of loads that have ended. job: 1, its memory may still be written; -1,
        it is not any more."""
        return {}

    def release(self):
        """vLLM frees its KV memory now, or puts it to sleep."""

    def restore(self):
        """And has it again, at the same addresses."""

    def wait(self, job_ids):
        raise AssertionError("kvkeep: no hook waits")

    def shutdown(self):
        if self._completions.wait(self._options.timeout_s):
            self._completions.close()
        self._opener.shutdown()  # each by its lookup_timeout_s
        self._namespaces.clear()
        self._client.close()

    def _start(self, job_id, blocks, chunks, begin, moved_of):
        """moved_of(a rank's RankShards): the parts. A mistake is a job that failed: it would be the
        end of the engine."""
        try:
            begin(job_id, *self._located(blocks, chunks, moved_of))
        except Exception:  # pylint: disable=broad-except  # ours, or the library's
            logger.exception("kvkeep: job %s", job_id)
            self.refuse(job_id)

    def _located(self, blocks, chunks, moved_of):
        """([PartsOfGroup], bytes in all). blocks: the GPULoadStoreSpec, whose groups are in the
        order of ours."""
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
        """A chunk's metadata, which all its parts share, comes with the first."""
        first = self._parts[group].all[0]
        for key, of_chunk, said in zip(keys, blocks, facts):
            for part in wanted:
                yield PartOfChunk(key, part, self._payload(group, of_chunk, part - first),
                                  said.parent, said.metadata() if part == 0 else b"")

    def _of_chunks(self, blocks, first, chunks):
        """Each chunk's blocks. The first chunk may begin before the blocks do, and the last one end
        behind them: None stands for a block that is not there."""
        before = first % self._blocks_per_chunk
        behind = chunks * self._blocks_per_chunk - before - len(blocks)
        if not 0 <= behind < self._blocks_per_chunk or NULL_BLOCK in blocks:
            raise ValueError(
                f"kvkeep: {len(blocks)} blocks from {first} on are not {chunks} chunks")
        wanted = [None] * before + blocks + [None] * behind
        return [wanted[at:at + self._blocks_per_chunk]
                for at in range(0, len(wanted), self._blocks_per_chunk)]

    def _ends(self, job_id, moved, sizes):
        """The function to call with the outcomes of a job's calls, for chunks of these sizes."""
        begin = time.monotonic()

        def ended(outcomes):
            good = True
            for (result, mistake), size in zip(outcomes, sizes):
                if mistake is not None:
                    logger.warning("kvkeep: job %s: %s", job_id, mistake)
                good = good and mistake is None and all(result.good)
                # A chunk of another size is no chunk of ours, whatever its key says.
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
        except errors.KvkeepError:  # the next job tries again, and not one a namespace
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
    """vLLM's, but for what it does with jobs. It begins none while the scheduler's half does not
    know that the weights of this rank were written: its keys are those of the weights before. Loads
    that are under way then, or when an epoch begins, fail."""

    def __init__(self, spec, vllm_config, kv_cache_config):
        super().__init__(spec, vllm_config, kv_cache_config)
        self._rank, self._vllm_config = spec.config.parallel.rank, vllm_config
        self.clear()

    def clear(self):
        """No jobs, and nothing to tell."""
        self._connector_worker_meta = KvkeepWorkerMetadata()
        self._writes = WritesToTell(self._vllm_config, self._rank)
        self._news, self._progress = StepNews(), None
        self._load_jobs = {}  # job: its request
        self._stale_loads = set()  # of these, what brings KV from before
        self._loads_fence = None
        self._due_loads = []  # (fence, job, the chunks, the blocks)
        self._queued = []  # stores of this step: (fence, job, the blocks, the chunks)
        self._due = []  # and of those before
        self._storing = set()  # jobs
        self._abandoned = set()  # of these, what vLLM has been told of as completed

    def handle_preemptions(self, kv_connector_metadata):
        """Marks the jobs that vLLM wants flushed as completed, as far as vLLM is concerned. Also
        begins the stores of the last step: its forward has run to its end, or there were no next
        step."""
        self._hear(kv_connector_metadata)
        self._due += self._queued
        self._queued = []
        self._begin_due()
        told = self._connector_worker_meta
        for job in kv_connector_metadata.jobs_to_flush or ():
            if kv_connector_metadata.store_jobs.pop(job, None) is not None:
                told.released[job] = 1  # not begun, and this step overwrites its blocks
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
        """Called also where the forward has raised: nothing may be stored yet."""
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
        """Whether the scheduler's half knows which weights this rank has."""
        news = getattr(metadata, "news", self._news)
        if news.epoch != self._news.epoch:
            self._stale_loads.update(self._load_jobs)
        self._news = news
        self._look_for_writes()
        return news.writes.get(self._rank, 0) == self._writes.latest

    def _is_of_now(self, chunks):
        return getattr(chunks, "epoch", self._news.epoch) == self._news.epoch

    def give_up_what_waits(self):
        """vLLM's KV memory loses its content: jobs that have not begun are no chunks any more."""
        for _, job, *_ in (*self._queued, *self._due, *self._due_loads):
            self.worker.refuse(job)
        self._queued, self._due, self._due_loads = [], [], []

    def _look_for_writes(self):
        changed = self._writes.take()
        if changed:
            self._connector_worker_meta.writes.update(changed)
            self._stale_loads.update(self._load_jobs)

    def _begin_due(self):
        """In their order: fences are over in the order in which they were made."""
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

