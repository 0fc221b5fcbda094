"""TensorRT-LLM: the two halves of the connector, between KVCacheManagerV2 and kvkeep.
kvkeep.trtllm has the flag, engine_facts.py the version.

TensorRT-LLM has no way to hear of a load that failed: what the scheduler's half has counted as
found must come. So the scheduler's half counts only what this machine already has: it leases chunks
that are in the daemon's DRAM, copies them into memory that all ranks share (trtllm_memory.Found),
compares their checksums, and then counts them. From there on the daemon is not needed. The rest is
a miss. A daemon that hangs costs lookup_timeout_s at most, every half second. One that answers
lookups and hangs in gets costs load_timeout_s at most, and then nothing for ten times as long.

A block is a chunk, with a part for each tensor-parallel rank. Ranks copy blocks that a forward has
filled into host memory of their own, in the stream's order, and put them from there. A request that
has ended keeps its blocks until these copies, never the puts, are over.

No hook raises, except the two that bring what was counted, where the alternative would be wrong KV:
a driver that copies nothing, and blocks that are not in the pool.
"""

import concurrent.futures
import dataclasses
import functools
import logging
import os
import threading
import time

from tensorrt_llm._torch.pyexecutor.connectors.kv_cache_connector import (
    KvCacheConnectorScheduler, KvCacheConnectorWorker)
from tensorrt_llm._utils import mpi_rank

from kvkeep import calls
from kvkeep.completions import Completions
from kvkeep.engine import Breaker, check_chunk_bytes, connect
from kvkeep.engine_versions import check_engine
from kvkeep.memory import Pointer
from kvkeep.seldom import SeldomWarnings
from kvkeep.trtllm_identity import (check_args, identity_of, next_key, options_of_environment,
                                    ranks_of, seed_of)
from kvkeep.trtllm_memory import (ATTACHED, Attached, Driver, Found, Pages, anonymous_room)

logger = logging.getLogger(__name__)

_RETRY_S = 0.5  # between two lookups of a daemon that hangs: each one stops the engine
_PAUSE = 10  # after a get that timed out, in load_timeout_s: each one stops the engine
_START_S = 1.0  # how long the engine's start waits for the daemon
_CHUNKS_AT_ONCE = 3900  # of a lookup: they fit into one packet of a socket
_PUT_BYTES = 64 << 20  # of one put

_kept = []  # workers whose memory the GPU may still use


@dataclasses.dataclass
class KvkeepMeta:
    """What all ranks do in a step. place: of Found, or None. pages: a page of each layer group."""

    namespace: tuple = ()  # arguments of Client.namespace
    place: tuple = None
    step: int = 0
    loads: list = dataclasses.field(default_factory=list)  # (slot, pages)
    saves: list = dataclasses.field(default_factory=list)  # (request, key, parent, pages)


class _Process:
    """What both halves of one process share: options, the connection, namespaces, the pages."""

    _made, _lock = {}, threading.Lock()  # both halves are made at once, on two threads

    @classmethod
    def of(cls, llm_args):
        """Returns the one of these arguments, which both halves get."""
        with cls._lock:
            found = cls._made.get(id(llm_args))
            if found is None or found.closed:
                found = cls._made[id(llm_args)] = cls(llm_args)
            return found

    def __init__(self, llm_args):
        self._kept = llm_args  # or another could get its id
        self.options = options_of_environment()
        check_args(llm_args, self.options)
        self.version = check_engine("tensorrt_llm", logger)
        self.ranks = ranks_of(llm_args)
        self.rank = mpi_rank() if self.ranks > 1 else 0
        self.pages = self.arguments = self.found = None
        self._identity, self.closed = None, False
        self.client = connect(dataclasses.replace(self.options, lookup_timeout_s=_START_S),
                              f"tensorrt_llm rank {mpi_rank()} {os.getpid()}", logger)
        self._opener = concurrent.futures.ThreadPoolExecutor(1, "kvkeep-open")
        self._namespaces, self._warnings = {}, SeldomWarnings(logger)

    def identify(self, llm_args):
        """Finds out what this engine's chunks depend on. For the process of a scheduler's half."""
        self._identity = identity_of(llm_args, self.version, self.options, logger)

    def register(self, pages):
        """Takes the KV memory. Raises ValueError if its chunks can never be kept."""
        configured = self._kept.kv_cache_config.tokens_per_block
        if pages.tokens_per_block != configured:
            raise ValueError(
                f"kvkeep: kv_cache_config.tokens_per_block is {configured}, and this engine's "
                f"blocks have {pages.tokens_per_block}: set it to {pages.tokens_per_block}, or "
                "start without kv_connector_config")
        check_chunk_bytes(self.client, pages.part_bytes,
                          "a block's part (kv_cache_config.tokens_per_block)")
        self.pages = pages
        if self._identity is None:
            return
        try:
            self.found = self.found or Found(self.options.load_bytes, pages.part_bytes, self.ranks)
        except (OSError, ValueError) as why:
            self.warn("nothing is found: no memory for load_bytes", why)
        identity, model = self._identity
        self.arguments = (
            ("model", model), ("tokens_per_chunk", pages.tokens_per_block), ("parts", self.ranks),
            ("bytes_per_part", pages.part_bytes),
            ("layout", f"{identity.layout} trtllm 1: {pages.form}"),
            ("hash_algorithm", "kvkeep trtllm 1 sha256"))
        self.namespace(self.arguments)
        concurrent.futures.wait(self._namespaces.values(), _START_S)

    def namespace(self, arguments):
        """Returns the Namespace, or None while it is opened, which does not wait here."""
        if not arguments:
            return None
        opening = self._namespaces.get(arguments)
        if opening is not None and opening.done():
            if opening.exception() is None:
                return opening.result()
            self.warn("namespace", opening.exception())
            opening = None
        if opening is None:
            self._namespaces[arguments] = self._opener.submit(
                self.client.namespace, **dict(arguments), timeout=_START_S)
        return None

    def warn(self, what, why):
        self._warnings.say(what, "kvkeep: %s: %s", what, why)

    def close(self):
        """Ends the connection. Idempotent."""
        if not self.closed:
            self.closed = True
            self._made.pop(id(self._kept), None)
            self._opener.shutdown()
            self._namespaces.clear()
            self.client.close()


def _quiet(instead):
    """Decorates a hook that does not raise: a mistake is logged, and is a miss. instead(): returns
    what the hook returns then."""
    def decorate(hook):
        @functools.wraps(hook)
        def quiet(self, *given, **named):
            try:
                return hook(self, *given, **named)
            except Exception as mistake:  # pylint: disable=broad-except  # it would end the engine
                self.process.warn(hook.__name__, f"{type(mistake).__name__}: {mistake}")
                return instead()
        return quiet
    return decorate


class _Request:
    """A request of the engine's. seed: from seed_of. theirs: the LlmRequest."""

    def __init__(self, seed, tokens_per_block, theirs):
        self.seed, self._step = seed, tokens_per_block
        self.tokens, self.keys, self.pages = [], [], []
        self.first, self.slots = 0, []  # what was found: its first block, and the slots
        self.saved_up_to = 0  # blocks
        self.has_saves, self.theirs = False, theirs

    def extend(self, tokens):
        """Adds tokens, and keys of the blocks that they fill."""
        self.tokens.extend(tokens)
        for end in range((len(self.keys) + 1) * self._step, len(self.tokens) + 1, self._step):
            self.keys.append(next_key(self.parent(len(self.keys)) or self.seed,
                                      self.tokens[end - self._step:end]))

    def parent(self, block):
        return self.keys[block - 1] if block else None

    def place(self, data, is_new, groups):
        """Takes the tokens and pages of a step's RequestData. Raises ValueError if they do not
        continue what was there."""
        given = data.new_block_ids_by_layer_group
        if len(given) != groups:
            raise ValueError(f"it has blocks of {len(given)} layer groups, not of {groups}")
        if is_new:  # its blocks are others now
            tokens, counted = list(data.new_tokens), (self.first + len(self.slots)) * self._step
            if self.slots and tokens[:counted] != self.tokens[:counted]:
                raise ValueError("its tokens are not those that were looked up")
            if tokens != self.tokens:
                self.tokens, self.keys = [], []
                self.extend(tokens)
            self.pages = [list(of_group) for of_group in given]
            return
        if not self.pages:
            raise ValueError("its first blocks were not told")
        self.extend(data.new_tokens)
        for mine, new in zip(self.pages, given):
            mine.extend(new)

    def blocks(self, first, end):
        """Returns the pages of each block from `first` to `end`, before the first block that has
        none. Raises ValueError if a later one has some."""
        found = list(zip(*(of_group[first:end] for of_group in self.pages)))
        there = next((at for at, pages in enumerate(found) if -1 in pages), len(found))
        if any(-1 not in pages for pages in found[there:]):
            raise ValueError("a block without pages is before one that has some")
        return found[:there]


class KvkeepScheduler(KvCacheConnectorScheduler):
    """The half that decides: on rank 0, or on every rank with attention data parallelism."""

    supports_attention_dp = True  # options.attention_dp decides

    def __init__(self, llm_args):
        super().__init__(llm_args)
        self.process = _Process.of(llm_args)
        self.process.identify(llm_args)
        self._tokens_per_block = llm_args.kv_cache_config.tokens_per_block
        self._requests, self._step = {}, ATTACHED
        self._lookups = Breaker(_RETRY_S)
        self._gets = Breaker(_PAUSE * self.process.options.load_timeout_s)

    # ---- TensorRT-LLM's KvCacheConnectorScheduler

    @_quiet(lambda: (0, False))
    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        """Returns (tokens that were found and will come before the next forward, False)."""
        before = self._forget(request.request_id)
        seed = seed_of(request)
        if seed is None:
            return 0, False
        state = _Request(seed, self._tokens_per_block, request)
        state.has_saves = before is not None and before.has_saves
        state.extend(request.get_tokens(0))
        first, rest = divmod(num_computed_tokens, self._tokens_per_block)
        state.first = state.saved_up_to = first
        # The engine computes at least the last token itself.
        keys = state.keys[first:(len(state.tokens) - 1) // self._tokens_per_block]
        if first >= 0 and not rest and keys:
            state.slots = self._find(keys)
        self._requests[request.request_id] = state
        return len(state.slots) * self._tokens_per_block, False

    @_quiet(lambda: None)
    def update_state_after_alloc(self, request, block_ids):
        """Nothing: build_connector_meta gets the blocks, too."""

    @_quiet(lambda: None)
    def update_state_after_alloc_by_layer_group(self, request, block_ids_by_layer_group):
        """Nothing, likewise."""

    def build_connector_meta(self, scheduler_output):
        """Returns a KvkeepMeta. Raises RuntimeError if it cannot bring what was counted."""
        self._step += 1
        found = self.process.found
        meta = KvkeepMeta(self.process.arguments or (), found and found.place, self._step)
        for requests, is_new in ((scheduler_output.new_requests, True),
                                 (scheduler_output.cached_requests, False)):
            for data in requests:
                self._plan(data, is_new, meta)
        if meta.loads:
            self.process.found.sent([slot for slot, _ in meta.loads], self._step)
        return meta

    @_quiet(lambda: False)
    def request_finished(self, request, cache_block_ids):
        """Returns whether ranks may still copy its blocks: get_finished says when they do not."""
        state = self._forget(request.request_id)
        return state is not None and state.has_saves

    def request_finished_by_layer_group(self, request, cache_block_ids_by_layer_group):
        return self.request_finished(request, cache_block_ids_by_layer_group)

    def shutdown(self):
        """Ends both halves of this process."""
        self.process.close()

    # ---- how

    def _forget(self, request):
        state = self._requests.pop(request, None)
        if state is not None and state.slots:
            self.process.found.give_back(state.slots)
            state.slots = []
        return state

    def _find(self, keys):
        """Returns a slot with the verified bytes of all ranks for each leading key that is
        found."""
        process, ranks, room = self.process, self.process.ranks, self.process.found
        if room is None or process.pages.part_bytes != room.part_bytes or not room.attached():
            return []
        namespace = process.namespace(process.arguments)
        room.reclaim()
        keys = keys[:min(len(room.free), _CHUNKS_AT_ONCE // ranks)]
        if namespace is None or not keys or self._gets.pauses() or not self._lookups.allows():
            return []
        found = namespace.lookup(keys, lease="leading", timeout=process.options.lookup_timeout_s)
        self._lookups.heard(found.error)
        if found.error is not None:
            process.warn("lookup", found.error)
        if found.lease is None:
            return []
        with found.lease:
            there = found.presence[:found.leased_keys * ranks]
            in_dram = next((at for at, one in enumerate(there) if not one & found.IN_G2),
                           len(there))
            return self._copy(namespace, keys[:in_dram // ranks], found.lease)

    def _copy(self, namespace, keys, lease):
        """Returns the slots of the leading keys whose bytes are good."""
        ranks, room = self.process.ranks, self.process.found
        slots, good, nbytes = room.take(len(keys)), 0, room.part_bytes
        try:
            got = namespace.get(
                keys, [Pointer(room.at(slot, part * nbytes), nbytes)
                       for slot in slots for part in range(ranks)],
                lease=lease, remote_wait=0, timeout=self.process.options.load_timeout_s)
            self._gets.heard(got.error)
            whole = [one and size == nbytes for one, size in zip(got.good, got.payload_bytes)]
            good = whole.index(False) // ranks if False in whole else len(whole) // ranks
        finally:
            room.give_back(slots[good:])
        return slots[:good]

    def _plan(self, data, is_new, meta):
        """Adds a request's loads and saves of this step."""
        try:
            state = self._requests.get(data.request_id)
        except (AttributeError, TypeError) as mistake:
            self.process.warn("plan", mistake)
            return
        if state is None:
            return
        try:
            state.place(data, is_new, self.process.pages.groups)
            # Beyond the pages of this step the engine counts nothing of what was found.
            loads = list(zip(state.slots, state.blocks(state.first,
                                                       state.first + len(state.slots))))
            if not all(self.process.pages.has(pages) for _, pages in loads):
                raise ValueError("its blocks are not in the KV cache")
        except Exception as mistake:
            if state.slots:
                raise RuntimeError(
                    f"kvkeep: request {data.request_id} counts on {len(state.slots)} blocks that "
                    f"cannot be brought into what TensorRT-LLM gave it: {mistake}") from mistake
            self.process.warn("plan", mistake)
            # Its blocks are not certain any more. Its copies may still run.
            state.saved_up_to = float("inf")
            return
        if state.slots:
            brought = {slot for slot, _ in loads}
            self.process.found.give_back([slot for slot in state.slots if slot not in brought])
            state.saved_up_to = state.first + len(loads)
            state.slots = []
            meta.loads += loads
        try:
            self._save(data, state, meta, len(loads) * self._tokens_per_block)
        except Exception as mistake:  # pylint: disable=broad-except  # nothing is promised
            self.process.warn("save", mistake)
            state.saved_up_to = float("inf")

    def _save(self, data, state, meta, loaded):
        """Adds the blocks that this step's forward fills, and none that was full before: without a
        word TensorRT-LLM puts another sequence's page in the place of a full block's
        (allow_seq_rebasing), and ours can be anyone's then. loaded: tokens."""
        position = data.computed_position
        if loaded and position <= state.first * self._tokens_per_block:
            # TensorRT-LLM has subtracted what it uses of them.
            position += min(getattr(state.theirs, "py_num_connector_matched_tokens", 0), loaded)
        end = min(position + data.num_scheduled_tokens, len(state.tokens))
        state.saved_up_to = max(state.saved_up_to, position // self._tokens_per_block)
        if state.saved_up_to >= end // self._tokens_per_block:
            return
        for pages in state.blocks(state.saved_up_to, end // self._tokens_per_block):
            block, state.saved_up_to = state.saved_up_to, state.saved_up_to + 1
            if self.process.pages.has(pages):
                state.has_saves = True
                meta.saves.append((data.request_id, state.keys[block], state.parent(block), pages))


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
        self.process = _Process.of(llm_args)
        self._completions = Completions(self.process.client)
        self._driver = self._room = None  # room: of what is stored
        self._found, self._refused = None, None  # the Attached, or the place that cannot be read
        self._pinned = []  # functions that unpin
        self._to_load, self._to_save = [], None
        self._loading = []  # (step, fence), in order
        self._copying = []  # _Copies, in order
        self._ended = set()  # requests that have ended, and whose blocks may be copied
        self._puts = Breaker(_RETRY_S)

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

    @_quiet(lambda: None)
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

    @_quiet(lambda: None)
    def wait_for_layer_load(self, layer_idx, stream):
        """Nothing: the stream is in order."""

    @_quiet(lambda: None)
    def save_kv_layer(self, layer_idx, stream):
        """Nothing: blocks are copied behind the forward."""

    @_quiet(lambda: None)
    def wait_for_save(self, stream):
        """Begins to copy the blocks that this forward has filled, once a step. Does not wait."""
        meta, self._to_save = self._to_save, None
        if meta is not None and meta.saves and self._room is not None:
            self._save(meta, stream.cuda_stream)

    @_quiet(lambda: ([], []))
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

    @_quiet(lambda: None)
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

    @_quiet(lambda: None)
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
