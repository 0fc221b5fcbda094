"""vLLM: its KV memory and kvkeep, without CPU memory of vLLM's in between. kvkeep.vllm_direct has
the flag, engine_facts.py the versions.

The scheduler of vLLM's own offloading, which handles hybrid models, windows and drafters, decides
what to load and store. Its OffloadingManager is ours, and so are the workers (vllm_transfers.py). A
prompt of any length is found, as far as the daemon has it, and host memory holds each byte once.
The daemon copies KV in a GPU's memory; this process copies KV in host memory.

Every failure is a miss: a request whose load failed is computed once, and does not ask for the
failed chunks again. No hook waits for the daemon. A store keeps its blocks by references of its own
(Pins) until the daemon has read them, so preemption and reuse never wait. If a load into a GPU ends
unanswered, references keep its blocks until they are certainly not written.
"""

import copy
import dataclasses
import functools
import secrets
from typing import Optional

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.logger import init_logger
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.kv_offload.base import (LookupResult, OffloadingManager, OffloadingSpec,
                                     PrepareStoreOutput, RequestOffloadingContext,
                                     get_offload_block_hash, get_offload_group_idx,
                                     make_offload_key)

from kvkeep import client, vllm_stats
from kvkeep.completions import Completions
from kvkeep.engine import connect
from kvkeep.engine_versions import check_engine, engine_version, imported, lacks
from kvkeep.identity import HASH_BYTES
from kvkeep.vllm_blocks import Doubts, Pins, Present
from kvkeep.vllm_device import transfers_of
from kvkeep.vllm_epochs import Epochs, observe_resets
from kvkeep.vllm_events import EngineEvents
from kvkeep.vllm_facts import ChunkFacts, of_group
from kvkeep.vllm_identity import (Adapters, VllmOptions, check_executor, check_hashes,
                                  hash_seed, identity_of)
from kvkeep.vllm_keys import Finder, Groups, OwnKeys, by_group, hashes
from kvkeep.vllm_layout import check_layout
from kvkeep.vllm_shards import shards_of, whole_specs
from kvkeep.vllm_transfers import ChunksSpec, KvkeepWorker, StepNews
from kvkeep.vllm_weights import observe_writes

logger = init_logger(__name__)

_NO_KEY = make_offload_key(secrets.token_bytes(HASH_BYTES), 0)
# vLLM's own keys of kv_connector_extra_config, which its metrics need too.
_OF_VLLM = frozenset(("offload_prompt_only", "spec_name", "spec_module_path"))


@dataclasses.dataclass(frozen=True)
class DirectOptions(VllmOptions):
    """timeout_s: of a load, after which its request is computed. store_timeout_s: of a store, after
    which it is given up and its blocks are vLLM's again.
    tokens_per_chunk: a whole number of blocks; with several KV groups or windows a chunk is one
    block.
    max_pinned_part: the part of vLLM's blocks that stores may hold; above it no store begins.
    events: how routers hear which tokens are kept. "daemon": chunks carry their tokens, and the
    daemon reports them (`events.zmq`). "engine": by vLLM's own stream (vllm_events.py). "none".
    tp_parts: a chunk has this many parts, shards of heads, so engines with the same number share at
    any tensor parallelism; a multiple of each one's. None: each rank's part is by itself.
    kv_layout: asked of vLLM. "LBHNC": a layer's blocks lie side by side; "BLHNC": a block's layers
    do, which a copy moves in one run; "engine": the one that its attention prefers. Only engines of
    one layout share.
    """

    store_timeout_s: float = 5.0
    tokens_per_chunk: int = 256
    max_pinned_part: float = 0.1
    events: str = "daemon"
    tp_parts: Optional[int] = None
    kv_layout: str = "LBHNC"

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.tokens_per_chunk, int) or self.tokens_per_chunk < 1:
            raise ValueError(f"tokens_per_chunk: above 0, not {self.tokens_per_chunk!r}")
        if self.tp_parts is not None and not (isinstance(self.tp_parts, int) and
                                              0 < self.tp_parts <= 1024):
            raise ValueError(f"tp_parts: 1 to 1024, not {self.tp_parts!r}")
        if self.kv_layout not in ("LBHNC", "BLHNC", "engine"):
            raise ValueError(f'kv_layout: "LBHNC", "BLHNC" or "engine", not {self.kv_layout!r}')
        if self.events not in ("daemon", "engine", "none"):
            raise ValueError(f'events: "daemon", "engine" or "none", not {self.events!r}')
        if not 0 < self.max_pinned_part <= 0.5:
            raise ValueError(
                f"max_pinned_part: above 0 and up to 0.5, not {self.max_pinned_part!r}")


class KvkeepManager(OffloadingManager):
    """The offloading scheduler's manager. For the scheduler's thread only."""

    def __init__(self, options, config, vllm_config, kv_cache_config):
        self.options, self._config = options, config
        version = check_engine("vllm", logger)
        check_hashes(vllm_config, logger)
        check_executor(vllm_config)
        self.adapters, self.of_request = Adapters(logger), {}
        self._shards = shards_of(options, config, vllm_config, kv_cache_config)
        self.identity, self._model = identity_of(
            vllm_config, kv_cache_config, version, options, logger,
            None if self._shards is None else whole_specs(vllm_config, kv_cache_config))
        self.pins = Pins(options.max_pinned_part)
        self._stats = vllm_stats.Stats()
        self._client = connect(options, f"vllm {config.engine_id}", logger)
        self._completions = Completions(self._client, capacity=4096)
        self._storing = set()  # keys in vLLM's form
        self._present = Present()  # keys in our form
        self._sessions = 0  # known to be with the daemon
        self._failed = {}  # request: keys that could not be loaded for it; live requests only
        self.computed = {}  # finished request: its tokens whose KV is computed
        self.unstored = set()  # requests that store nothing more
        self.stored_up_to = lambda request, group: 0  # tokens: the connector's
        self.facts = None  # ChunkFacts: the connector's
        self.may_load = lambda: True  # likewise
        self.events = None  # EngineEvents, if the engine reports events
        self._groups = Groups(config)
        self._places = {group: at for at, group in enumerate(self._groups)}  # the workers'
        self.epochs = Epochs(vllm_config, options, self.adapters, self._epoch_began)
        self.own = OwnKeys(self.of_request, self._stats, self.epochs)
        self._finder = Finder(options, self.own, self._completions, self._stats, logger,
                              namespace=lambda group: self._namespace(group),
                              tokens_per_key=self._groups.tokens_per_key, found=self._present.add,
                              missed=self._present.discard)
        self._namespace = functools.cache(
            lambda group: self._client.namespace(**dict(self._arguments(group)),
                                                 timeout=self.options.lookup_timeout_s))
        for group in self._groups:  # now, as the scheduler would wait later
            self._namespace(group)
        self._windows = {group.group_id for group in config.groups if isinstance(
            kv_cache_config.kv_cache_groups[group.group_id].kv_cache_spec, SlidingWindowSpec)}

    def _arguments(self, group):
        """Returns arguments of Client.namespace: everything that distinguishes a group's chunks."""
        config = self._config
        return (
            ("model", self._model), ("dtype", config.model.dtype),
            ("tokens_per_chunk", self._groups.tokens_per_key(group)),
            ("parts", self._shards or config.parallel.world_size),
            ("layout", f"{self.identity.layout} vllm direct 1: "
                       f"{self._groups.layout(group, self._shards)}"),
            ("hash_algorithm", f"vllm {config.cache.tokens_per_hash} tokens a hash"),
            ("hash_seed", hash_seed()))

    # ---- vLLM's OffloadingManager

    def on_new_request(self, req_context):
        self.epochs.check()
        self._finder.begin(req_context.req_id)
        self._failed.setdefault(req_context.req_id, set())
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        self.epochs.check()
        request = req_context.req_id
        if key in self._failed.get(request, ()) or not self.may_load():
            return LookupResult.MISS
        found = self._finder.lookup(key, request)
        if found is LookupResult.HIT and self.events is not None:
            self.events.hit(key, request)
        return found

    def get_load_source(self, key, req_context):
        return imported("vllm", "CacheHitSource").HOST  # versions without it do not ask

    def prepare_load(self, keys, req_context):
        return self._chunks(keys, req_context.req_id, "load")

    def prepare_store(self, keys, req_context):
        """Returns an empty list if nothing can be stored now: after None vLLM would ask again in
        every step."""
        self.epochs.check()
        wanted = [key for key in keys if self._is_to_be_stored(key, req_context)]
        room = self.pins.room // self._config.cache.blocks_per_chunk
        if len(wanted) > room:
            self._stats.failed("store", vllm_stats.NOT_BEGUN, len(wanted) - room)
            wanted = wanted[:room]
        self._storing.update(wanted)
        chunks = self._chunks(wanted, req_context.req_id, "store")
        for key in wanted if self.events is not None else ():
            self.events.prepare(key, req_context.req_id)
        if self.facts is not None:
            chunks.facts = {self._places[group]: [self.facts.of(key, req_context) for key in keys]
                            for group, keys in by_group(wanted).items()}
        return PrepareStoreOutput(wanted, chunks, [])

    def _is_to_be_stored(self, key, req_context):
        request = req_context.req_id
        if key in self._storing or request in self.unstored:
            return False
        end, group = req_context.get_offload_key_position(key), get_offload_group_idx(key)
        # If a request ended in an error half way, vLLM counts all of its prompt as computed.
        if end is not None and end > self.computed.get(request, end):
            return False
        # vLLM also goes back to blocks behind a window, which may be others by now.
        if group in self._windows and end is not None and end <= self.stored_up_to(request, group):
            return False
        own = self.own.of(key, request, "store")
        return own is not None and own not in self._present

    def complete_load(self, keys, req_context):
        self._finder.release(req_context.req_id)

    def complete_store(self, keys, req_context, success=True):
        self._storing.difference_update(keys)

    def on_schedule_end(self, context):
        sessions = self._client.stats().sessions_opened
        if sessions != self._sessions:  # the daemon may have lost chunks
            self._sessions = sessions
            self._present.clear()
        self._finder.flush()

    def on_request_finished(self, req_context):
        if self.events is not None:
            self.events.over(req_context.req_id)
        self._finder.over(req_context.req_id)
        self._failed.pop(req_context.req_id, None)
        self.of_request.pop(req_context.req_id, None)
        self.computed.pop(req_context.req_id, None)
        self.unstored.discard(req_context.req_id)

    def has_pending_work(self):
        return self._completions.pending > 0

    def reset_cache(self):
        """Forgets all jobs, as vLLM does. The reset of its prefix cache, which came first, has
        begun an epoch."""
        self._storing.clear()
        if self.events is not None:
            self.events.reset()

    def _epoch_began(self):
        self._finder.reset()
        self._present.clear()

    def take_events(self):
        return self.events.take() if self.events is not None else ()

    def get_stats(self):
        return self._stats.take()

    def config_info(self):
        endpoint = self.options.endpoint or client.default_endpoint()
        return [dict(zip(vllm_stats.CONFIG_INFO,
                         (endpoint, self.options.path, self.identity.digest)))]

    def shutdown(self):
        self._completions.wait(self.options.lookup_timeout_s)
        self._finder.clear()
        if self.events is not None:
            self.events.close()
        self._client.close()
        self.adapters.close()
        self.epochs.close()

    # ---- called by the connector

    def preempted(self, request):
        """Looks a preempted request up again. It may find what it has stored itself."""
        if request in self._failed:
            self._finder.preempted(request)

    def begin_events(self):
        """REQUIRES: facts."""
        if self.options.events != "engine":
            return
        if not self._config.enable_kv_cache_events:
            logger.warning('kvkeep: "events" is "engine", and vLLM publishes none: '
                           "--kv-events-config has enable_kv_cache_events")
        elif self.facts.told is not None:
            self.events = EngineEvents(self._namespace(self.facts.told), self._completions,
                                       self._tellable, self.options.lookup_timeout_s)

    def _tellable(self, key, request):
        own = self.own.of(key, request, "store") if self.facts.may_tell(key, request) else None
        return None if own is None else get_offload_block_hash(own)

    def failed_to_load(self, keys, request):
        """Makes these keys misses for the request from now on."""
        self._stats.failed("load", vllm_stats.NOT_LOADED, len(keys))
        if request in self._failed:  # otherwise the request is over
            self._failed[request].update(keys)
        self._finder.missed([own for key in keys
                             if (own := self.own.of(key, request, "load")) is not None])

    def stored(self, chunks):
        """Notes that all ranks have stored a job's ChunksSpec."""
        groups = self._config.groups
        keys = [make_offload_key(digest, groups[at].group_id)
                for at, (_, digests) in chunks.groups.items() for digest in digests]
        self._present.add(keys)
        self._finder.stored(keys)

    def _chunks(self, keys, request, operation):
        """Returns our keys. A key that became None since it was taken names no chunk."""
        return ChunksSpec({
            self._places[group]: (self._arguments(group), hashes(
                [self.own.of(key, request, operation) or _NO_KEY for key in of_group]))
            for group, of_group in by_group(keys).items()}, only_here=self.own.private,
            epoch=self.epochs.number)


class KvkeepSpec(OffloadingSpec):
    """vLLM's name for the two halves. options: None where vLLM only asks for metrics."""

    def __init__(self, config, options=None, manager=None, shards=None):
        super().__init__(config)
        self._options, self._manager, self._shards = options, manager, shards

    def get_manager(self):
        return self._manager

    def get_worker(self, kv_caches):
        return transfers_of(self._options, self.config, kv_caches, self._shards)

    @classmethod
    def build_metric_definitions(cls, extra_config):
        del extra_config
        return vllm_stats.definitions()

    @classmethod
    def config_info_keys(cls, extra_config):
        del extra_config
        return vllm_stats.CONFIG_INFO


class KvkeepConnector(OffloadingConnector):
    """options: those of DirectOptions, in kv_connector_extra_config, beside vLLM's own
    `offload_prompt_only`."""

    def __init__(self, vllm_config, role, kv_cache_config):
        # Skips the parent's constructor, which makes halves of its own.
        KVConnectorBase_V1.__init__(self, vllm_config, role, kv_cache_config)
        options, config = _configure(vllm_config, kv_cache_config)
        self._canonical_layout = False
        self.connector_scheduler = self.connector_worker = self._manager = None
        if role == KVConnectorRole.SCHEDULER:
            self._manager = KvkeepManager(options, config, vllm_config, kv_cache_config)
            self.connector_scheduler = OffloadingConnectorScheduler(
                KvkeepSpec(config, options, self._manager), vllm_config, kv_cache_config)
            self._manager.stored_up_to = self._stored_up_to
            self._manager.facts = ChunkFacts(self.connector_scheduler, kv_cache_config,
                                             self._manager.own, options.events == "daemon")
            self._manager.begin_events()
            self._stores = {}  # job: [workers that have not released it, its chunks, request]
            self._loads = {}  # job: [workers that have not ended it, its blocks, none failed]
            self._doubts = None  # Doubts, with vLLM's pool
            self._workers = vllm_config.parallel_config.world_size
        else:
            shards = shards_of(options, config, vllm_config, kv_cache_config)
            observe_writes(vllm_config)
            self.connector_worker = KvkeepWorker(KvkeepSpec(config, options, shards=shards),
                                                 vllm_config, kv_cache_config)

    # ---- the scheduler's half

    def bind_gpu_block_pool(self, gpu_block_pool):
        self._manager.pins = Pins(self._manager.options.max_pinned_part, gpu_block_pool)
        self._doubts = Doubts(gpu_block_pool)
        self._manager.may_load = lambda: not self._doubts.are_many
        # vLLM gives up a reset while a block is held, and would keep KV of old weights.
        observe_resets(gpu_block_pool, self._manager.epochs.reset,
                       self._manager.adapters.blocks_gone,
                       lambda: (self._manager.pins.given_back(), self._doubts.given_back()))

    def on_new_request(self, request):
        if request.lora_request is not None:
            self._manager.of_request[request.request_id] = self._manager.adapters.of(
                request.lora_request)
        if self._manager.options.multimodal != "trusted":
            self._manager.own.refuse_images(request)
        super().on_new_request(request)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self._manager.own.begin(request.request_id)  # vLLM starts it at token 0
        return super().get_num_new_matched_tokens(request, num_computed_tokens)

    def build_connector_meta(self, scheduler_output):
        for request in scheduler_output.preempted_req_ids or ():
            self._manager.preempted(request)
        meta, pins = super().build_connector_meta(scheduler_output), self._manager.pins
        meta.news = StepNews(self._manager.epochs.number, dict(self._manager.epochs.known_writes))
        for job, entry in meta.store_jobs.items():
            if job not in (meta.jobs_to_flush or ()):  # otherwise this step overwrites its blocks
                pins.hold(job, entry.src_spec.block_ids.tolist())
                self._stores[job] = [self._workers, entry.dst_spec, entry.req_id]
        for request in scheduler_output.finished_req_ids or ():
            pins.let_go(request)  # keys that no job took
        for job, entry in meta.load_jobs.items():
            self._loads[job] = [self._workers, entry.dst_spec.block_ids.tolist(), True]
        if self._manager.events is not None:
            for job, entry in (*meta.store_jobs.items(), *meta.load_jobs.items()):
                self._manager.events.begin(job, self._in_order(job, entry.req_id), entry.req_id)
        return meta

    def update_connector_output(self, connector_output):
        told = connector_output.kv_connector_worker_meta
        if told is not None:
            self._manager.epochs.heard(told.writes)
            if told.progress:
                self._manager.pins.note_progress()
            for job in told.failed:
                if job in self._loads:
                    self._loads[job][2] = False
                known = self.scheduler._jobs.get(job)  # None: from before a reset, or flushed
                if job in self._stores:
                    self._stores[job][1] = None
                elif known is not None and not known.is_store:
                    self._manager.failed_to_load(known.keys, known.req_id)
            for job, workers in told.released.items():
                self._released(job, workers)
            for job, workers in told.uncertain.items():  # before vLLM frees the blocks
                self._doubts.change(job, workers, self._loads.get(job, (0, (), True))[1])
            for job, workers in told.completed_jobs.items():
                self._ended(job, workers)
        super().update_connector_output(connector_output)

    def _released(self, job, workers):
        store = self._stores.get(job)
        if store is None:
            self._tell(job, False)
            return  # the job did not begin
        store[0] -= workers
        if store[0] <= 0:
            del self._stores[job]
            self._manager.pins.let_go(job)
            if store[1] is not None:
                self._manager.stored(store[1])
            self._tell(job, store[1] is not None)

    def _in_order(self, job, request):
        """Returns a job's keys in the prompt's order, so that a router hears of a key after those
        before it."""
        keys, status = self.scheduler._jobs[job].keys, self.scheduler._req_status.get(request)
        places = {} if status is None else {
            key: at for state in status.group_states for at, key in enumerate(state.offload_keys)}
        return sorted(keys, key=lambda key: places.get(key, len(places)))

    def _tell(self, job, good):
        if self._manager.events is not None:
            self._manager.events.end(job, good)

    def _ended(self, job, workers):
        """Forgets jobs at a reset, as vLLM does, while some workers still load."""
        load = self._loads.get(job)
        if load is not None:
            load[0] -= workers
            if load[0] <= 0:
                del self._loads[job]
                self._tell(job, load[2])

    def _stored_up_to(self, request, group):
        known = of_group(self.scheduler, request, group)
        if known is None:
            return 0
        return known.state.next_stored_chunk_idx * known.config.tokens_per_chunk

    def request_finished(self, request, block_ids):
        self._pin_the_rest(request)
        return super().request_finished(request, block_ids)

    def request_finished_all_groups(self, request, block_ids):
        self._pin_the_rest(request)
        return super().request_finished_all_groups(request, block_ids)

    def _pin_the_rest(self, request):
        """Keeps the blocks of a request's last store jobs, which vLLM makes in the next step from
        blocks that are free by then. REQUIRES: the blocks are still the request's."""
        name, scheduler = request.request_id, self.scheduler
        status = scheduler._req_status.get(name)
        if status is None:
            return
        self._manager.computed[name] = request.num_computed_tokens
        tokens = scheduler._calc_num_offloadable_tokens(status, request.num_computed_tokens)
        per_chunk, wanted = scheduler.config.blocks_per_chunk, []
        for config, state in zip(scheduler.config.kv_group_configs, status.group_states):
            chunks = min(tokens // config.tokens_per_chunk, len(state.block_ids) // per_chunk)
            wanted += state.block_ids[state.next_stored_chunk_idx * per_chunk:chunks * per_chunk]
        if len(wanted) > self._manager.pins.room:
            self._manager.unstored.add(name)
        else:
            self._manager.pins.hold(name, wanted)

    def has_pending_block_frees(self):
        """Returns whether stores hold blocks of finished requests, which come free within
        store_timeout_s."""
        known = self.scheduler._req_status
        return any(request not in known or known[request].req.is_finished()
                   for _, _, request in self._stores.values())

    def has_pending_push_work(self):
        """Returns whether an idle engine must step. Workers report the release of pins in a step.
        Where no store goes on, as beside a daemon that hangs, stores are no reason to step: vLLM
        completes no pause and no sleep before the engine is idle."""
        pins = self._manager.pins
        if self._doubts.want_a_step():
            return True
        if pins and not pins.want_a_step():
            return any(not job.is_store for job in self.scheduler._jobs.values())
        return bool(pins) or super().has_pending_push_work()

    # ---- the workers' half

    def bind_connector_metadata(self, connector_metadata):
        super().bind_connector_metadata(connector_metadata)
        self.connector_worker.before_forward(connector_metadata)

    def unregister_kv_caches(self):
        self.connector_worker.give_up_what_waits()
        self.connector_worker.worker.release()

    def restore_kv_caches(self):
        self.connector_worker.worker.restore()

    def get_transfer_results(self, finished_req_ids):
        del finished_req_ids
        return self.connector_worker.transfer_results()

    # ---- methods that vLLM calls on the class

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config):
        """Returns the layout to ask vLLM for. vLLM takes another if its attention cannot have this
        one, and warns."""
        if vllm_config.attention_config.hisparse_config is not None:
            return super().get_required_kvcache_layout(vllm_config)  # refused later, with a reason
        layout = _options(vllm_config.kv_transfer_config).kv_layout
        return None if layout == "engine" else layout

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        extra.update(spec_name="KvkeepSpec", spec_module_path="kvkeep.vllm_connector")
        return super().build_prom_metrics(vllm_config, metric_types, labelnames,
                                          per_engine_labelvalues)


def _options(transfer):
    return DirectOptions.of({name: value for name, value in
                             transfer.kv_connector_extra_config.items() if name not in _OF_VLLM})


def _configure(vllm_config, kv_cache_config):
    """Returns (DirectOptions, vLLM's OffloadingConfig). Raises ValueError for impossible settings,
    with the remedy."""
    transfer = vllm_config.kv_transfer_config
    extra, options = transfer.kv_connector_extra_config, _options(transfer)
    if transfer.kv_role != "kv_both":
        raise ValueError(f'kvkeep: "kv_role" must be "kv_both", not {transfer.kv_role!r}')
    if transfer.kv_load_failure_policy != "recompute":
        logger.info('kvkeep: kv_load_failure_policy is "recompute": what cannot be loaded is '
                    "computed")
        transfer.kv_load_failure_policy = "recompute"
    if vllm_config.attention_config.hisparse_config is not None:
        raise ValueError("kvkeep: HiSparse has host memory of its own: not with this connector")
    if vllm_config.model_config.enable_sleep_mode and lacks("vllm", "sleep"):
        raise ValueError(
            f"kvkeep: workers of vLLM {engine_version('vllm')} do not tell a connector that they "
            "sleep, and a GPU's memory is another one after it: use --no-enable-sleep-mode, "
            'vLLM 0.33, or the tier ("kv_connector_module_path": "kvkeep.vllm")')
    if options.events == "engine" and lacks("vllm", "events"):
        raise ValueError(
            f'kvkeep: "events": "engine" needs vLLM 0.33, and this is {engine_version("vllm")}: '
            'use "daemon" or "none"')
    check_layout(vllm_config.cache_config.get_resolved_kv_cache_layout(), kv_cache_config)
    groups = kv_cache_config.kv_cache_groups
    blocks = 1
    if len(groups) == 1:
        tokens = groups[0].kv_cache_spec.block_size
        if options.tokens_per_chunk % tokens != 0:
            raise ValueError(f"tokens_per_chunk: {options.tokens_per_chunk} is no multiple of the "
                             f"{tokens} tokens of a block")
        blocks = options.tokens_per_chunk // tokens
    ours = copy.copy(vllm_config)
    ours.kv_transfer_config = copy.copy(transfer)
    ours.kv_transfer_config.kv_connector_extra_config = {
        **extra, "blocks_per_chunk": blocks,
        "self_describing_kv_events": options.events == "engine"}
    config = build_offloading_config(ours, kv_cache_config)
    if blocks > 1 and _has_windows(config, groups):
        ours.kv_transfer_config.kv_connector_extra_config["blocks_per_chunk"] = 1
        config = build_offloading_config(ours, kv_cache_config)
    return options, config


def _has_windows(config, groups):
    """Returns whether chunks of several blocks may have some that a window has left behind."""
    if lacks("vllm", "window sizes"):
        return not all(isinstance(group.kv_cache_spec, FullAttentionSpec) for group in groups)
    return any(group.sliding_window_size_in_chunks for group in config.groups)
