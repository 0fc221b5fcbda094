"""TensorRT-LLM: the connector, between KVCacheManagerV2 and kvkeep: its half that decides.
trtllm_worker.py is the other half, trtllm_process.py has what both share, kvkeep.trtllm the flag,
engine_facts.py the version.

TensorRT-LLM has no way to hear of a load that failed: what the scheduler's half has counted as
found must come. So the scheduler's half counts only what this machine already has: it leases chunks
that are in the daemon's DRAM, copies them into memory that all ranks share (trtllm_memory.Found),
compares their checksums, and then counts them. From there on the daemon is not needed. The rest is
a miss. A daemon that hangs costs lookup_timeout_s at most, every half second. One that answers
lookups and hangs in gets costs load_timeout_s at most, and then nothing for ten times as long.

A block is a chunk, with a part for each tensor-parallel rank.

No hook raises, except the two that bring what was counted, where the alternative would be wrong KV:
a driver that copies nothing, and blocks that are not in the pool.
"""

from tensorrt_llm._torch.pyexecutor.connectors.kv_cache_connector import KvCacheConnectorScheduler

from kvkeep.engine import Breaker
from kvkeep.memory import Pointer
from kvkeep.trtllm_identity import next_key, seed_of
from kvkeep.trtllm_memory import ATTACHED
from kvkeep.trtllm_process import RETRY_S, KvkeepMeta, Process, quiet

_PAUSE = 10  # after a get that timed out, in load_timeout_s: each one stops the engine
_CHUNKS_AT_ONCE = 3900  # of a lookup: they fit into one packet of a socket


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
        self.process = Process.of(llm_args)
        self.process.identify(llm_args)
        self._tokens_per_block = llm_args.kv_cache_config.tokens_per_block
        self._requests, self._step = {}, ATTACHED
        self._lookups = Breaker(RETRY_S)
        self._gets = Breaker(_PAUSE * self.process.options.load_timeout_s)

    # ---- TensorRT-LLM's KvCacheConnectorScheduler

    @quiet(lambda: (0, False))
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

    @quiet(lambda: None)
    def update_state_after_alloc(self, request, block_ids):
        """Nothing: build_connector_meta gets the blocks, too."""

    @quiet(lambda: None)
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

    @quiet(lambda: False)
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
