"""TensorRT-LLM: the connector's half that copies, on every rank. trtllm_scheduler.py: what for.

Ranks copy blocks that a forward has filled into host memory of their own, in the stream's order,
and put them from there. A request that has ended keeps its blocks until these copies, never the
puts, are over.
"""

import dataclasses
import functools
import logging
import time

from tensorrt_llm._torch.pyexecutor.connectors.kv_cache_connector import KvCacheConnectorWorker

from kvkeep import calls
from kvkeep.completions import Completions
from kvkeep.engine import Breaker
from kvkeep.memory import Pointer
from kvkeep.trtllm_memory import ATTACHED, Attached, Driver, Pages, anonymous_room
from kvkeep.trtllm_process import RETRY_S, KvkeepMeta, Process, quiet

logger = logging.getLogger(__name__)

_PUT_BYTES = 64 << 20  # of one put

_kept = []  # workers whose memory the GPU may still use


@dataclasses.dataclass
class _Copies:
    """Chunks that are copied out of the KV cache: (key, parent, slot)."""

    fence: object
    namespace: tuple
    chunks: list
    requests: set


class KvkeepWorker(KvCacheConnectorWorker):
    """The half that copies, on every rank."""

    supports_attention_dp = True  # options.attention_dp decides

    def __init__(self, llm_args):
        super().__init__(llm_args)
        self.process = Process.of(llm_args)
        self._completions = Completions(self.process.client)
        self._driver = self._room = None  # room: of what is stored
        self._found, self._refused = None, None  # the Attached, or the place that cannot be read
        self._pinned = []  # functions that unpin
        self._to_load, self._to_save = [], None
        self._loading = []  # (step, fence), in order
        self._copying = []  # _Copies, in order
        self._ended = set()  # requests that have ended, and whose blocks may be copied
        self._puts = Breaker(RETRY_S)

    # ---- TensorRT-LLM's KvCacheConnectorWorker

    def register_kv_caches(self, kv_cache_tensor):
        """Raises ValueError: a tensor does not say how many tokens a block has."""
        raise ValueError(
            "kvkeep: the connector takes KVCacheManagerV2 only: set "
            "kv_cache_config.use_kv_cache_manager_v2 to true, or start without kv_connector_config")

    def register_kv_cache_layout(self, layout):
        """Raises ValueError for a KV cache that cannot be kept."""
        pages = Pages(layout)
        self.process.register(pages)
        try:
            self._driver = Driver()
            self._room = anonymous_room(self.process.options.store_bytes, pages.part_bytes,
                                        self._driver)
            self._pinned.append(functools.partial(self._driver.unpin, self._room.at(0)))
        except (OSError, RuntimeError, ValueError) as why:
            self._room = None
            self.process.warn("nothing is kept: no pinned memory for store_bytes", why)
        if self.process.found is not None:  # other ranks hear of it in the first step
            self._attach(self.process.found.place)

    @quiet(lambda: None)
    def register_forward_pass_callable(self):
        """Returns None: wait_for_save comes behind the forward, too, and is given its stream."""
        return None

    def bind_connector_meta(self, metadata):
        super().bind_connector_meta(metadata)
        self._metadata = self._to_save = metadata if isinstance(metadata, KvkeepMeta) else None
        if self._to_save is not None:
            self._to_load += [(metadata.step, metadata.loads)] if metadata.loads else []
            self._prepare(metadata)

    def start_load_kv(self, stream):
        """Begins the copies of what was counted. They are over before the forward that comes next
        in this stream. Each is begun once, also if TensorRT-LLM calls again for the same step.
        Raises RuntimeError if the driver does not copy."""
        loads, self._to_load = self._to_load, []
        try:
            for step, slots in loads:
                self._load(step, slots, stream.cuda_stream)
        except Exception as mistake:
            raise RuntimeError("kvkeep: what TensorRT-LLM counts on cannot be copied into its KV "
                               f"cache: {mistake}") from mistake
        self._poll()

    @quiet(lambda: None)
    def wait_for_layer_load(self, layer_idx, stream):
        """Nothing: the stream is in order."""

    @quiet(lambda: None)
    def save_kv_layer(self, layer_idx, stream):
        """Nothing: blocks are copied behind the forward."""

    @quiet(lambda: None)
    def wait_for_save(self, stream):
        """Begins to copy the blocks that this forward has filled, once a step. Does not wait."""
        meta, self._to_save = self._to_save, None
        if meta is not None and meta.saves and self._room is not None:
            self._save(meta, stream.cuda_stream)

    @quiet(lambda: ([], []))
    def get_finished(self, finished_gen_req_ids, started_loading_req_ids):
        """Returns (requests that have ended and whose blocks are copied, requests that load beside
        the forwards: none does)."""
        self._ended.update(finished_gen_req_ids)
        self._poll()
        over = [request for request in self._ended
                if not any(request in one.requests for one in self._copying)]
        self._ended.difference_update(over)
        return over, list(started_loading_req_ids)

    def shutdown(self):
        """Ends both halves of this process. Waits for copies and puts, for store_timeout_s at most.
        Memory that the GPU may still read or write then is kept."""
        if self.process.closed:
            return
        deadline = time.monotonic() + self.process.options.store_timeout_s
        while (self._loading or self._copying) and time.monotonic() < deadline:
            self._poll()
            time.sleep(0.001)
        if self._completions.wait(max(deadline - time.monotonic(), 0.0)):
            self._completions.close()
        self.process.close()
        if self._loading or self._copying:
            _kept.append(self)
            return
        for unpin in self._pinned:
            try:
                unpin()
            except RuntimeError as why:
                self.process.warn("shutdown", why)

    # ---- how

    @quiet(lambda: None)
    def _prepare(self, meta):
        self._attach(meta.place)
        self.process.namespace(meta.namespace)  # opens it

    def _load(self, step, slots, stream):
        for slot, pages in slots:
            host = self._found.at(slot)
            for address, nbytes in self.process.pages.runs(pages):
                self._driver.copy_in(address, host, nbytes, stream)
                host += nbytes
        self._loading.append((step, self._driver.fence(stream)))

    def _attach(self, place):
        """Opens the memory of what is found. As long as a rank has not, nothing is found."""
        if (place is None or place == self._refused or self._driver is None
                or (self._found is not None and self._found.place == place)):
            return
        try:
            found = Attached(place, self.process.pages.part_bytes, self.process.rank)
        except (OSError, TypeError, ValueError) as why:
            self._refused = place
            logger.error("kvkeep: rank %d cannot read what rank 0 finds, so nothing is found: %s",
                         self.process.rank, why)
            return
        try:
            found.pin(self._driver)
            self._pinned.append(functools.partial(found.unpin, self._driver))
        except RuntimeError as why:  # copies are slower then
            logger.warning("kvkeep: load_bytes of host memory are not pinned: %s", why)
        found.tell(ATTACHED)
        self._found = found

    def _save(self, meta, stream):
        saves = [save for save in meta.saves if self.process.pages.has(save[-1])]
        slots, chunks = self._room.take(len(saves)), []
        if len(slots) < len(saves):
            self.process.warn("store", f"store_bytes is full: {len(saves) - len(slots)} blocks "
                              "are not kept")
        for slot, (_, key, parent, pages) in zip(slots, saves):
            host = self._room.at(slot)
            for address, nbytes in self.process.pages.runs(pages):
                self._driver.copy_out(host, address, nbytes, stream)
                host += nbytes
            chunks.append((key, parent, slot))
        if chunks:
            self._copying.append(_Copies(self._driver.fence(stream), meta.namespace, chunks,
                                         {request for request, *_ in saves}))

    @quiet(lambda: None)
    def _poll(self):
        """Goes on with all that has ended. Does not wait."""
        self._completions.poll()
        while self._loading and self._driver.is_over(self._loading[0][1]):
            self._found.tell(self._loading.pop(0)[0])
        while self._copying and self._driver.is_over(self._copying[0].fence):
            self._put(self._copying.pop(0))

    def _put(self, copies):
        """Begins the puts of copied chunks, whose slots are free when they end."""
        namespace, part = self.process.namespace(copies.namespace), self.process.rank
        nbytes = self._room.slot_bytes
        at_once = max(_PUT_BYTES // nbytes, 1)
        for first in range(0, len(copies.chunks), at_once):
            some = copies.chunks[first:first + at_once]
            ended = functools.partial(self._put_ended, [slot for *_, slot in some])
            if namespace is None or not self._puts.allows():
                ended(None, None)
                continue
            try:
                self._completions.start(calls.put(
                    namespace, [calls.Chunk(key, Pointer(self._room.at(slot), nbytes), part, parent)
                                for key, parent, slot in some],
                    timeout=self.process.options.store_timeout_s), ended)
            except Exception as mistake:  # pylint: disable=broad-except  # it did not begin
                ended(None, mistake)

    def _put_ended(self, slots, stored, mistake):
        self._room.give_back(slots)
        error = mistake if stored is None else stored.error
        if stored is not None:
            self._puts.heard(error)
        if error is not None:
            self.process.warn("store", error)
