"""vLLM: its KV memory and kvkeep, with no CPU memory of vLLM's between (written against vllm 0.33).

    --kv-transfer-config '{"kv_connector": "KvkeepConnector",
      "kv_connector_module_path": "kvkeep.vllm_direct", "kv_role": "kv_both",
      "kv_connector_extra_config": {}}'

What to load and store is decided by the scheduler of vLLM's own offloading, which knows hybrid
models, windows and drafters; ours are its OffloadingManager, and the workers (vllm_transfers.py).
A prompt of any length is found, as far as the daemon has it; host memory holds each byte once.
Engines whose KV is in host memory; of GPUs not yet.

Every failure is a miss: a request whose load failed is computed, once, and what failed is not asked
for again. No hook waits for the daemon. A store keeps its blocks by references of its own (Pins)
until the daemon has read them, so that preemption and reuse have nothing to wait for.
"""

import copy
import dataclasses
import functools
import hashlib
import secrets

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (LookupResult, OffloadingManager, OffloadingSpec,
                                     PrepareStoreOutput, RequestOffloadingContext)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvkeep import client, vllm_stats, weights
from kvkeep.completions import Completions
from kvkeep.engine import PrefillOptions, connect
from kvkeep.identity import check_engine
from kvkeep.vllm_identity import Adapters, check_hashes, hash_seed, identity_of
from kvkeep.vllm_keys import Finder, OwnKeys, by_group, hashes
from kvkeep.vllm_transfers import ChunksSpec, HostTransfers, KvkeepWorker

logger = init_logger(__name__)

# Of kv_connector_extra_config: vLLM's own keys, and what its metrics ask for by them.
_OF_VLLM = frozenset(("offload_prompt_only", "spec_name", "spec_module_path"))
_NULL_BLOCK = 0


@dataclasses.dataclass(frozen=True)
class DirectOptions(PrefillOptions):
    """timeout_s: of a load, after which its request is computed. store_timeout_s: of a store, after
    which it is given up, and its blocks are vLLM's again.
    tokens_per_chunk: in whole blocks; with several KV groups or windows a chunk is one block.
    max_pinned_part: of vLLM's blocks, how many stores may hold; above that none is begun.
    weights, on_reset: as of kvkeep.vllm.TierOptions.
    """

    store_timeout_s: float = 5.0
    tokens_per_chunk: int = 256
    max_pinned_part: float = 0.1
    weights: str = "auto"
    on_reset: str = "epoch"

    def __post_init__(self):
        super().__post_init__()
        weights.check_option(self.weights)
        if self.on_reset not in ("epoch", "ignore"):
            raise ValueError(f'on_reset: "epoch" or "ignore", not {self.on_reset!r}')
        if not isinstance(self.tokens_per_chunk, int) or self.tokens_per_chunk < 1:
            raise ValueError(f"tokens_per_chunk: above 0, not {self.tokens_per_chunk!r}")
        if not 0 < self.max_pinned_part <= 0.5:
            raise ValueError(
                f"max_pinned_part: above 0 and up to 0.5, not {self.max_pinned_part!r}")


class Pins:
    """References to vLLM's blocks, by what holds them: blocks that stores read are given to nobody
    else. pool: vLLM's BlockPool; None: there is none, and nothing is to be stored."""

    def __init__(self, max_part, pool=None):
        self._max_part, self._pool = max_part, pool
        self._held = {}  # holder: its blocks
        self.blocks = 0

    @property
    def full(self):
        return self._pool is None or (
            self.blocks >= self._max_part * self._pool.num_gpu_blocks)

    def hold(self, holder, numbers):
        blocks = [self._pool.blocks[number] for number in numbers if number != _NULL_BLOCK]
        self._pool.touch(blocks)
        self._held.setdefault(holder, []).extend(blocks)
        self.blocks += len(blocks)

    def let_go(self, holder):
        blocks = self._held.pop(holder, [])
        self.blocks -= len(blocks)
        if blocks:
            self._pool.free_blocks(reversed(blocks))

    def __bool__(self):
        return bool(self._held)


class KvkeepManager(OffloadingManager):
    """Of the scheduler's thread alone."""

    def __init__(self, options, config, vllm_config, kv_cache_config):
        self.options, self._config = options, config
        version = check_engine("vllm", logger)
        check_hashes(vllm_config, logger)
        self.adapters, self.of_request = Adapters(logger), {}
        self.identity, self._model = identity_of(vllm_config, kv_cache_config, version, options,
                                                 logger)
        self.pins = Pins(options.max_pinned_part)
        self._epoch, self._stats = "", vllm_stats.Stats()
        self._client = connect(options, f"vllm {config.engine_id}", logger)
        self._completions = Completions(self._client, capacity=4096)
        self._storing = set()  # keys
        self._failed = {}  # request: keys that could not be loaded for it
        self._own = OwnKeys(self.of_request, self._stats)
        self._finder = Finder(options, self._own, self._completions, self._stats, logger,
                              namespace=lambda group: self._namespace(group),
                              tokens_per_key=self._tokens_per_key)
        self._open_namespaces()

    def _open_namespaces(self):
        """Now: later it would be the scheduler that waits."""
        self._namespace = functools.cache(
            lambda group: self._client.namespace(**dict(self._arguments(group)),
                                                 timeout=self.options.lookup_timeout_s))
        for group in self._config.groups:
            self._namespace(group.group_id)
        self._finder.reset()

    def _arguments(self, group):
        """Of Client.namespace: all that tells a group's chunks apart. The ranks are the parts."""
        config, parallel = self._config, self._config.parallel
        of_group = self._group(group)
        layers = hashlib.sha256("\0".join(of_group.layer_names).encode()).hexdigest()[:16]
        return (
            ("model", self._model), ("dtype", config.model.dtype),
            ("tokens_per_chunk", self._tokens_per_key(group)), ("parts", parallel.world_size),
            ("layout", f"{self.identity.layout} vllm direct 1: group={group} layers={layers} "
                       f"blocks={config.cache.blocks_per_chunk} tp={parallel.tp_size} "
                       f"pp={parallel.pp_size} pcp={parallel.pcp_size} dcp={parallel.dcp_size} "
                       f"kv={config.kv_cache_layout} epoch={self._epoch}"),
            ("hash_algorithm", f"vllm {config.cache.tokens_per_hash} tokens a hash"),
            ("hash_seed", hash_seed()))

    def _group(self, group):
        return next(one for one in self._config.groups if one.group_id == group)

    def _tokens_per_key(self, group):
        return self._group(group).tokens_per_block * self._config.cache.blocks_per_chunk

    # ---- vLLM's OffloadingManager

    def on_new_request(self, req_context):
        self._finder.begin(req_context.req_id)
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        if key in self._failed.get(req_context.req_id, ()):
            return LookupResult.MISS
        return self._finder.lookup(key, req_context.req_id)

    def get_load_source(self, key, req_context):
        return CacheHitSource.HOST

    def prepare_load(self, keys, req_context):
        return self._chunks(keys, req_context.req_id, "load")

    def prepare_store(self, keys, req_context):
        """An empty list where it cannot be now: None would be asked again in every step."""
        wanted = [] if self.pins.full else [
            key for key in keys if key not in self._storing
            and self._own.of(key, req_context.req_id, "store") is not None]
        if len(wanted) < len(keys):
            self._stats.failed("store", vllm_stats.NOT_BEGUN, len(keys) - len(wanted))
        self._storing.update(wanted)
        return PrepareStoreOutput(wanted, self._chunks(wanted, req_context.req_id, "store"), [])

    def complete_store(self, keys, req_context, success=True):
        self._storing.difference_update(keys)

    def on_schedule_end(self, context):
        self._finder.flush()

    def on_request_finished(self, req_context):
        self._finder.over(req_context.req_id)
        self._failed.pop(req_context.req_id, None)
        self.of_request.pop(req_context.req_id, None)

    def has_pending_work(self):
        return self._completions.pending > 0

    def reset_cache(self):
        """What is kept stays, for others: what this engine has from now on is of other weights, as
        far as anybody can tell."""
        self._storing.clear()
        if self.options.on_reset == "ignore":
            return
        self._epoch = secrets.token_hex(16)
        self._open_namespaces()

    def get_stats(self):
        return self._stats.take()

    def config_info(self):
        endpoint = self.options.endpoint or client.default_endpoint()
        return [dict(zip(vllm_stats.CONFIG_INFO,
                         (endpoint, self.options.path, self.identity.digest)))]

    def shutdown(self):
        self._completions.wait(self.options.lookup_timeout_s)
        self._finder.clear()
        self._client.close()
        self.adapters.close()

    # ---- of the connector

    def failed_to_load(self, keys, request):
        """They are misses for the request from now on."""
        self._stats.failed("load", vllm_stats.NOT_LOADED, len(keys))
        self._failed.setdefault(request, set()).update(keys)
        self._finder.missed([own for key in keys
                             if (own := self._own.of(key, request, "load")) is not None])

    def _chunks(self, keys, request, operation):
        """In the groups' order, which is the workers'."""
        places = {group.group_id: at for at, group in enumerate(self._config.groups)}
        return ChunksSpec({
            places[group]: (self._arguments(group),
                            hashes([self._own.of(key, request, operation) for key in of_group]))
            for group, of_group in by_group(keys).items()})


class KvkeepSpec(OffloadingSpec):
    """vLLM's name for the two halves. options: None where vLLM only asks for metrics."""

    def __init__(self, config, options=None, manager=None):
        super().__init__(config)
        self._options, self._manager = options, manager

    def get_manager(self):
        return self._manager

    def get_worker(self, kv_caches):
        return HostTransfers(self._options, self.config, kv_caches)

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
        # Not the parent's, which makes its own halves.
        KVConnectorBase_V1.__init__(self, vllm_config, role, kv_cache_config)
        options, config = _configure(vllm_config, kv_cache_config)
        self._canonical_layout = False
        self.connector_scheduler = self.connector_worker = self._manager = None
        if role == KVConnectorRole.SCHEDULER:
            self._manager = KvkeepManager(options, config, vllm_config, kv_cache_config)
            self.connector_scheduler = OffloadingConnectorScheduler(
                KvkeepSpec(config, options, self._manager), vllm_config, kv_cache_config)
            self._waiting_reports = {}  # job: workers that have not released it
            self._workers = vllm_config.parallel_config.world_size
        else:
            self.connector_worker = KvkeepWorker(KvkeepSpec(config, options), vllm_config,
                                                 kv_cache_config)

    # ---- the scheduler's half

    def bind_gpu_block_pool(self, gpu_block_pool):
        self._manager.pins = Pins(self._manager.options.max_pinned_part, gpu_block_pool)

    def on_new_request(self, request):
        if request.lora_request is not None:
            self._manager.of_request[request.request_id] = self._manager.adapters.of(
                request.lora_request)
        super().on_new_request(request)

    def build_connector_meta(self, scheduler_output):
        meta, pins = super().build_connector_meta(scheduler_output), self._manager.pins
        for job, entry in meta.store_jobs.items():
            if job not in (meta.jobs_to_flush or ()):  # else this step overwrites its blocks
                pins.hold(job, entry.src_spec.block_ids.tolist())
                self._waiting_reports[job] = self._workers
        for request in scheduler_output.finished_req_ids or ():
            pins.let_go(request)  # what no job took
        return meta

    def update_connector_output(self, connector_output):
        told = connector_output.kv_connector_worker_meta
        if told is not None:
            for job in told.failed:
                known = self.scheduler._jobs.get(job)  # None: from before a reset
                if known is not None:
                    self._manager.failed_to_load(known.keys, known.req_id)
            for job, workers in told.released.items():
                left = self._waiting_reports.get(job, 0) - workers
                self._waiting_reports[job] = left
                if left <= 0:
                    del self._waiting_reports[job]
                    self._manager.pins.let_go(job)
        super().update_connector_output(connector_output)

    def request_finished(self, request, block_ids):
        self._pin_the_rest(request)
        return super().request_finished(request, block_ids)

    def request_finished_all_groups(self, request, block_ids):
        self._pin_the_rest(request)
        return super().request_finished_all_groups(request, block_ids)

    def _pin_the_rest(self, request):
        """vLLM makes the last store jobs of a request in the next step, from blocks that are free
        by then: they are kept until that."""
        status, pins = self.scheduler._req_status.get(request.request_id), self._manager.pins
        if status is None or pins.full:
            return
        for group in status.group_states:
            first = group.next_stored_chunk_idx * self.scheduler.config.blocks_per_chunk
            pins.hold(request.request_id, group.block_ids[first:])

    def has_pending_push_work(self):
        """Pins too: their release is told by workers, in a step."""
        return bool(self._manager.pins) or super().has_pending_push_work()

    # ---- the workers' half

    def get_transfer_results(self, finished_req_ids):
        del finished_req_ids
        return self.connector_worker.transfer_results()

    # ---- vLLM's front end

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        extra.update(spec_name="KvkeepSpec", spec_module_path="kvkeep.vllm_direct")
        return super().build_prom_metrics(vllm_config, metric_types, labelnames,
                                          per_engine_labelvalues)


def _configure(vllm_config, kv_cache_config):
    """(DirectOptions, vLLM's OffloadingConfig). ValueError: what cannot be, and the way out."""
    transfer = vllm_config.kv_transfer_config
    extra = transfer.kv_connector_extra_config
    options = DirectOptions.of({name: value for name, value in extra.items()
                                if name not in _OF_VLLM})
    if transfer.kv_role != "kv_both":
        raise ValueError(f'kvkeep: "kv_role" must be "kv_both", not {transfer.kv_role!r}')
    if transfer.kv_load_failure_policy != "recompute":
        logger.info('kvkeep: kv_load_failure_policy is "recompute": what cannot be loaded is '
                    "computed")
        transfer.kv_load_failure_policy = "recompute"
    if vllm_config.attention_config.hisparse_config is not None:
        raise ValueError("kvkeep: HiSparse has host memory of its own: not with this connector")
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
    ours.kv_transfer_config.kv_connector_extra_config = {**extra, "blocks_per_chunk": blocks}
    config = build_offloading_config(ours, kv_cache_config)
    if blocks > 1 and any(group.sliding_window_size_in_chunks for group in config.groups):
        ours.kv_transfer_config.kv_connector_extra_config["blocks_per_chunk"] = 1
        config = build_offloading_config(ours, kv_cache_config)
    return options, config
