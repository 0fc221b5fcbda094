"""vLLM: the direct connector's worker half for KV in a GPU's memory, which the daemon copies.

The rank's KV memory is registered with the daemon once, also over its restarts. A store is a
gpu_put of runs of that memory, a load is one or more gpu_gets. Bytes pass neither this process nor
host memory of vLLM's.

Order: a job begins when the GPU has done what the engine began before it (a CUDA event, which hooks
poll: so a job begins up to a step late). After a put's deadline its blocks may be written again
even without an answer: the daemon stores nothing that it read later, or refuses the put (`reused`
regions). The blocks of a load that ended without the daemon's answer may still be written. It has
failed, and is `uncertain` until the answer comes or the daemon's process has ended.

If the daemon copies nothing of this GPU (it is away, its GPU path is off, MIG, another PID
namespace), the log says why, no job begins, and the registration is tried again.
"""

import threading
import time

import torch
from vllm.logger import init_logger

from kvkeep import errors, gpu
from kvkeep.memory import Pointer
from kvkeep.pages import PagePlanner, PageTensor
from kvkeep.seldom import SeldomWarnings
from kvkeep.vllm_transfers import HostTransfers, Transfers
from kvkeep.vllm_windows import MOST_RUNS, Job, Windows, cut

logger = init_logger(__name__)

_FIRST_S, _AGAIN_S = 2.0, 5.0  # the engine's start waits for the registration, which is repeated


def transfers_of(options, config, kv_caches, shards):
    """Returns the Transfers for the kind of memory that has the KV."""
    devices = {tensor.tensor.device for tensor in kv_caches.tensors}
    if {device.type for device in devices} == {"cpu"}:
        return HostTransfers(options, config, kv_caches, shards)
    if {device.type for device in devices} == {"cuda"} and len(devices) == 1:
        return DeviceTransfers(options, config, kv_caches, shards, Cuda(devices.pop()))
    raise ValueError(f"kvkeep: the KV of this engine is on {sorted(map(str, devices))}: the direct "
                     "connector is for one CUDA device or host memory a rank")


class Cuda:
    """Calls to a GPU, besides the driver's calls of the client library."""

    driver = None  # another name of libcuda.so.1

    def __init__(self, device):
        self._device = device

    def use(self):
        """Makes its context current on this thread."""
        torch.cuda.set_device(self._device)

    @staticmethod
    def fence():
        """Returns an event behind everything that this thread's stream has been given so far."""
        event = torch.cuda.Event()
        event.record()
        return event

    @staticmethod
    def is_over(fence):
        return fence.query()


class DeviceTransfers(Transfers):
    """device: as Cuda."""

    def __init__(self, options, config, kv_caches, shards, device):
        super().__init__(options, config, kv_caches, shards)
        runs = self._blocks_per_chunk * max(map(len, self._pages), default=0)
        if runs > MOST_RUNS:  # one request of it would wait in the socket of a daemon that hangs
            raise ValueError(f"tokens_per_chunk: a chunk is {runs} runs of bytes, at most "
                             f'{MOST_RUNS}: fewer tokens, or "kv_layout": "BLHNC"')
        self._device, self._blocks = device, kv_caches.tensors[0].tensor.shape[0]
        storages = [tensor.tensor.untyped_storage() for tensor in kv_caches.tensors]
        self._memory = {storage.data_ptr(): storage.nbytes() for storage in storages}
        self._warnings = SeldomWarnings(logger)
        self._refusal = None  # of the last registration
        self._planners = self._registering = None
        self._windows = Windows(self._completions, self._call, self._warn, self._over)
        self._late_stores = []  # jobs whose blocks the daemon may still read for a put that counts
        self._doubtful, self._uncertain = [], {}  # loads, for uncertain()
        self.restore()

    # ---- the memory

    def restore(self):
        """Registers the memory, at once or in the background. Idempotent."""
        if self._planners is not None or (self._registering and self._registering.is_alive()):
            return
        self._regions, self._planners = {}, None  # None: not registered
        self._closing = threading.Event()
        self._registering = threading.Thread(target=self._keep_registering, name="kvkeep-register",
                                             daemon=True)
        if not self._register(_FIRST_S if self._client.connected else 0.001):
            self._registering.start()

    def release(self):
        """Returns when the daemon has released the memory, which is about to be freed. Raises
        KvkeepError if that is uncertain within timeout_s; no further job begins either way."""
        self._closing.set()
        if self._registering.is_alive():
            self._registering.join()
        self._planners = None
        self._windows.give_up()
        deadline = time.monotonic() + self._options.timeout_s
        self._completions.wait(self._options.timeout_s)
        for region in self._regions.values():
            region.close(max(deadline - time.monotonic(), _FIRST_S))

    def _register(self, timeout):
        """Registers the memory. Returns whether all of it is registered."""
        try:
            for address, nbytes in self._memory.items():
                if address not in self._regions:
                    self._regions[address] = gpu.GpuRegion(
                        self._client, Pointer(address, nbytes), driver=self._device.driver,
                        reused=True, timeout=timeout)
        except errors.KvkeepError as mistake:
            if str(mistake) != self._refusal:
                self._refusal = str(mistake)
                logger.error("kvkeep: the daemon copies no KV of this engine, as yet: %s", mistake)
            return False
        self._refusal = None
        self._planners = [PagePlanner(map(self._tensor, pages), shards=len(parts.all))
                          for pages, parts in zip(self._pages, self._parts)]
        return True

    def _keep_registering(self):
        self._device.use()
        while not self._closing.wait(_AGAIN_S) and not self._register(_AGAIN_S):
            pass

    def _tensor(self, page):
        """Returns a group's page as the only layer of a tensor."""
        of = next(begin for begin, nbytes in self._memory.items()
                  if begin <= page.address < begin + nbytes)
        return PageTensor(
            self._regions[of].run(page.address - of,
                                  (self._blocks - 1) * page.stride + page.nbytes),
            layers=1, blocks=self._blocks, layer_stride=page.nbytes, block_stride=page.stride,
            page_bytes=page.nbytes)

    def _payload(self, group, blocks, shard):
        there = [block for block in blocks if block is not None]
        before = next(at for at, block in enumerate(blocks) if block is not None)
        after = len(blocks) - before - len(there)
        return self._planners[group].plan(there, shard).within(before * self._bytes[group],
                                                               after * self._bytes[group])

    # ---- jobs

    def fence(self):
        return self._device.fence()

    def is_over(self, fence):
        return self._device.is_over(fence)

    def _start(self, job_id, blocks, chunks, begin, moved_of):
        if self._planners is None or not self._client.connected or self._windows.is_hung:
            self.refuse(job_id)
        else:
            super()._start(job_id, blocks, chunks, begin, moved_of)

    def _store(self, job_id, groups, moved):
        self._begin(job_id, groups, moved, self._options.store_timeout_s, is_store=True)

    def _load(self, job_id, groups, moved):
        self._begin(job_id, groups, moved, self._options.timeout_s, is_store=False)

    def _begin(self, job_id, groups, moved, timeout, is_store):
        now = time.monotonic()
        job = Job(job_id, is_store, moved, now, now + timeout,
                  only_here=any(of.only_here for of in groups))
        self._windows.add(job, cut(job, groups))

    def _call(self, window, timeout):
        window.use = gpu.GpuUse(self._client)
        if window.job.is_store:
            return gpu.gpu_put(window.ns, [
                gpu.GpuChunk(one.key, one.payload, one.part, one.parent, one.metadata)
                for one in window.parts], no_g3=window.job.only_here, use=window.use,
                timeout=timeout)
        return gpu.gpu_get(window.ns, [gpu.GpuChunk(one.key, one.payload, one.part)
                                       for one in window.parts], use=window.use, timeout=timeout)

    def _over(self, job):
        if job.is_store and job.free_at > time.monotonic() and job.in_use:
            self._late_stores.append(job)
            return
        if not job.is_store and job.in_use:
            self._uncertain[job.job_id] = self._uncertain.get(job.job_id, 0) + 1
            self._doubtful.append(job)
        self._tell(job)

    def _tell(self, job):
        self._finished.append((job.job_id, job.good, job.moved, time.monotonic() - job.begin))

    def get_finished(self):
        self._completions.poll()
        self._windows.pump()
        for job in [job for job in self._doubtful if not job.in_use]:
            self._doubtful.remove(job)
            self._uncertain[job.job_id] = self._uncertain.get(job.job_id, 0) - 1
        now = time.monotonic()
        for job in [job for job in self._late_stores if job.free_at <= now or not job.in_use]:
            self._late_stores.remove(job)
            self._tell(job)
        return super().get_finished()

    @property
    def progress(self):
        return (*super().progress, len(self._windows))

    def uncertain(self):
        told, self._uncertain = self._uncertain, {}
        return told

    def _warn(self, error):
        why = getattr(error, "code", type(error).__name__)
        self._warnings.say(why, "kvkeep: KV of this GPU: %s", error)

    def shutdown(self):
        try:
            self.release()
        except errors.KvkeepError as mistake:  # its memory is kept until the daemon has released it
            logger.warning("kvkeep: the KV memory is still registered: %s", mistake)
        super().shutdown()
