"""vLLM: kvkeep as a secondary tier of its native KV offloading. kvkeep.vllm has the flag,
engine_facts.py the versions.

KV that vLLM offloads to its own CPU memory goes on into the node's daemon. Every engine of the same
identity finds it there (vllm_identity.py: weights, configuration, geometry, version), also after a
restart of any engine or the daemon. Every failure is a miss: vLLM computes what it does not get.
Only drain_jobs, shutdown and reset_cache wait for the daemon, up to the calls' timeouts. vLLM
promises never to call concurrently (SecondaryTierManager), so there is no lock here, and only one
thread, which reads the files of LoRA adapters.

vLLM's own connector tells a tier too little of the engine. Ours hands on which engine it is, which
adapter and images a request has, and that weights may have changed (vllm_epochs.py). After such a
change it also makes vLLM forget what its CPU memory keeps, once no tier reads or writes that
memory; until then nothing is found and nothing is stored.

A lease holds a HIT from the lookup to the end of its request. Chunks are rows of vLLM's primary
tier, with all ranks of an engine side by side, so keys name no rank.

vLLM's rows are in shared memory, which the daemon reads in place: a store is one copy. vLLM writes
a row again once its job is finished, so a store without an answer is finished only at its deadline,
after which the daemon stores nothing more of it (protocol 8; older daemons are sent copies).
"""

import contextlib
import contextvars
import functools
import time

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping import (
    canonical_format_id)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import Locality, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from kvkeep import calls, client, errors, registered, vllm_stats
from kvkeep.completions import Completions
from kvkeep.engine import check_chunk_bytes, connect
from kvkeep.engine_versions import check_engine, imported
from kvkeep.memory import Pointer, locate
from kvkeep.vllm_epochs import EngineWorkerMetadata, Epochs, observe_resets
from kvkeep.vllm_identity import (Adapters, VllmOptions, check_executor, check_hashes,
                                  hash_seed, identity_of)
from kvkeep.vllm_keys import Finder, Groups, OwnKeys, by_group, hashes
from kvkeep.vllm_weights import WritesToTell, observe_writes

logger = init_logger(__name__)


class _Engine:
    """The engine that tiers belong to."""

    def __init__(self, vllm_config, kv_cache_config):
        self.vllm_config, self.kv_cache_config = vllm_config, kv_cache_config
        self.adapters = Adapters(logger)
        self.of_request = {}  # Future of its adapter's content, for requests with an adapter
        self.tiers = []
        self.is_stale = False  # vLLM's CPU memory has KV from before the epoch


_ENGINE = contextvars.ContextVar("kvkeep: whose tier is made", default=None)


@contextlib.contextmanager
def tiers_of(vllm_config, kv_cache_config):
    """Makes tiers created within it belong to this engine, an _Engine."""
    engine = _Engine(vllm_config, kv_cache_config)
    token = _ENGINE.set(engine)
    try:
        yield engine
    finally:
        _ENGINE.reset(token)


class KvkeepOffloadingConnector(OffloadingConnector):
    """vLLM's connector, which also hands on what KvkeepTier has to know of the engine."""

    def __init__(self, vllm_config, role, kv_cache_config):
        with tiers_of(vllm_config, kv_cache_config) as self._engine:
            super().__init__(vllm_config, role, kv_cache_config)
        self._writes = WritesToTell(vllm_config, vllm_config.parallel_config.rank)
        self._is_reset = False  # and vLLM has taken no step since
        if self.connector_worker is not None:
            observe_writes(vllm_config)

    # ---- the scheduler's half

    def bind_gpu_block_pool(self, gpu_block_pool):
        observe_resets(gpu_block_pool, self._prefix_cache_reset, self._engine.adapters.blocks_gone)

    def on_new_request(self, request):
        self._look_for_writes()
        self._forget_what_is_stale()
        if request.lora_request is not None and self._engine.tiers:
            self._engine.of_request[request.request_id] = self._engine.adapters.of(
                request.lora_request)
        for tier in self._engine.tiers:
            tier.refuse_images(request)
        super().on_new_request(request)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        for tier in self._engine.tiers:
            tier.restarts(request.request_id)
        return super().get_num_new_matched_tokens(request, num_computed_tokens)

    def update_connector_output(self, connector_output):
        told = connector_output.kv_connector_worker_meta
        if told is not None:
            for tier in self._engine.tiers:
                tier.epochs.heard(told.writes)
        super().update_connector_output(connector_output)
        self._forget_what_is_stale()

    def build_connector_meta(self, scheduler_output):
        self._is_reset = False
        return super().build_connector_meta(scheduler_output)

    def reset_cache(self):
        """vLLM's own method may be called once between two steps."""
        done = self._is_reset or super().reset_cache()
        if self._engine.is_stale:
            # Otherwise vLLM would store anew what requests have computed, maybe with other weights.
            for status in self.scheduler._req_status.values():
                if status.req.num_computed_tokens > 0:
                    status.max_offload_tokens = 1
        self._is_reset, self._engine.is_stale = True, False
        return done

    def shutdown(self):
        super().shutdown()
        for tier in self._engine.tiers:
            tier.epochs.close()
        self._engine.adapters.close()

    def _max_loadable_tokens(self, request, num_computed_tokens):
        self._look_for_writes()
        if self._engine.is_stale:
            return 0
        return super()._max_loadable_tokens(request, num_computed_tokens)

    def _look_for_writes(self):
        for tier in self._engine.tiers:
            tier.epochs.check()

    def _prefix_cache_reset(self):
        for tier in self._engine.tiers:
            tier.epochs.reset()
        self._forget_what_is_stale()

    def _forget_what_is_stale(self):
        """Makes vLLM forget what its CPU memory keeps. REQUIRES: vLLM is between two steps."""
        if not self._engine.is_stale:
            return
        ours = self._engine.tiers
        others = [tier for tier in self.scheduler.manager.secondary_tiers if tier not in ours]
        if not any(tier.is_busy for tier in ours) and not any(
                tier.has_pending_work() for tier in others):
            self.reset_cache()

    # ---- the workers' half

    def build_connector_worker_meta(self):
        meta, changed = super().build_connector_worker_meta(), self._writes.take()
        if meta is None and not changed:
            return None
        return EngineWorkerMetadata.of(meta, changed)


class KvkeepTier(SecondaryTierManager):
    """options: those of VllmOptions, beside "type" in the flag."""

    medium = Medium.STORAGE
    # vLLM wants one source for all hits of a tier, and most are of host memory. Older versions ask
    # for none.
    cache_hit_source = getattr(imported("vllm", "CacheHitSource"), "HOST", None)

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None,
                 **options):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality.LOCAL
        self._options, self._config = VllmOptions.of(options), offloading_spec.config
        version, self._engine = check_engine("vllm", logger), _ENGINE.get()
        if self._engine is None:
            raise ValueError(
                'kvkeep: the OffloadingConnector of vLLM does not tell a tier which weights it '
                'has: use "kv_connector": "KvkeepOffloadingConnector", "kv_connector_module_path": '
                '"kvkeep.vllm", and the same kv_connector_extra_config')
        check_hashes(self._engine.vllm_config, logger)
        check_executor(self._engine.vllm_config)
        self.identity, self._model = identity_of(
            self._engine.vllm_config, self._engine.kv_cache_config, version, self._options, logger)
        self._stats = vllm_stats.Stats()
        self._address, self._nbytes, self._view = locate(primary_kv_view, writable=True)
        self._client = connect(self._options, f"vllm {self._config.engine_id}", logger)
        check_chunk_bytes(self._client, self.block_size_bytes,
                          "a chunk (a row of vLLM's CPU memory, blocks_per_chunk)",
                          self._options.lookup_timeout_s)
        self._completions = Completions(self._client, capacity=4096)
        self._registered = self._register_rows()
        self._finished = []  # JobResult
        self._read_still = []  # likewise, of stores whose rows the daemon may still read
        self._groups = Groups(self._config)
        self.epochs = Epochs(self._engine.vllm_config, self._options, self._engine.adapters,
                             self._epoch_began)
        self._own = OwnKeys(self._engine.of_request, self._stats, self.epochs)
        self._finder = Finder(self._options, self._own, self._completions, self._stats, logger,
                              namespace=lambda group: self._namespace(group),
                              tokens_per_key=self._groups.tokens_per_key)
        self._namespace = functools.cache(self._open_namespace)
        for group in self._groups:  # now, as the scheduler would wait later
            self._namespace(group)
        self._engine.tiers.append(self)

    def _register_rows(self):
        try:
            return registered.of_mapping(self._client, self._address, self._nbytes, reused=True)
        except (ValueError, OSError, errors.KvkeepError) as why:
            logger.info("kvkeep tier: stores are two copies each: %s", why)
            return []

    def restarts(self, request):
        """Notes a request, which vLLM starts at token 0."""
        self._own.begin(request)

    def refuse_images(self, request):
        """Finds and keeps nothing of vLLM's request while it has images, unless the option trusts
        all users."""
        if self._options.multimodal != "trusted":
            self._own.refuse_images(request)

    def _epoch_began(self):
        self._engine.is_stale = True
        self._finder.reset()

    # ---- lookups

    def on_new_request(self, req_context):
        self._finder.begin(req_context.req_id)
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        return self._finder.lookup(key, req_context.req_id)

    def on_schedule_end(self, context):
        for request in context.preempted_req_ids:
            self._finder.preempted(request)
        self._finder.flush()

    def on_request_finished(self, req_context):
        self._finder.over(req_context.req_id)
        self._engine.of_request.pop(req_context.req_id, None)

    # ---- loads and stores

    def submit_load(self, job_metadata):
        self._submit(job_metadata, self._load)

    def submit_store(self, job_metadata):
        self._submit(job_metadata, self._store)

    def get_finished_jobs(self):
        self._completions.poll()
        finished, self._finished = self._finished, []
        if self._read_still and not self._rows_in_use():
            finished += self._read_still
            self._read_still = []
        return finished

    @property
    def is_busy(self):
        """Returns whether drain_jobs would wait."""
        return self._completions.pending > 0 or bool(self._read_still)

    def has_pending_work(self):
        return self._completions.pending > 0 or bool(self._finished) or bool(self._read_still)

    def drain_jobs(self):
        self._completions.wait(2 * self._options.timeout_s)  # calls end by their own timeouts
        deadline = time.monotonic() + 2 * self._options.timeout_s
        while self._read_still and self._rows_in_use() and time.monotonic() < deadline:
            time.sleep(0.001)

    def _rows_in_use(self):
        return any(memory.in_use for memory in self._registered)

    def shutdown(self):
        if self._completions.wait(2 * self._options.timeout_s):
            self._completions.close()
            self._registered = []
            self._view = None  # vLLM may use its memory again
        self._finder.clear()
        self._client.close()

    def _submit(self, job, make_call):
        """Makes one call for each group of the job, and a result when the last of them has
        ended."""
        operation = "load" if job.is_promotion else "store"
        # Stores nothing while vLLM is to forget what it keeps, which happens only at rest.
        stops = self._engine.is_stale and not job.is_promotion
        own = {key: None if stops else self._own.of(key, job.req_context.req_id, operation)
               for key in job.keys}
        rows = {own[key]: self._row(slot) for key, slot in zip(job.keys, job.chunk_ids)
                if own[key] is not None}
        groups = by_group(rows)

        def ended(outcomes):
            good = set()
            for keys, (result, mistake) in zip(groups.values(), outcomes):
                self._stats.ended(operation, len(keys), result, mistake)
                if mistake is not None:
                    logger.warning("kvkeep tier: job %s: %s", job.job_id, mistake)
                    continue
                good.update(key for key, one in zip(keys, result.good) if one)
                if job.is_promotion and result.error is None:  # otherwise all of them are counted
                    self._stats.failed(operation, vllm_stats.NOT_LOADED,
                                       sum(not one for one in result.good))
            self._finish(job, own, good)

        self._completions.start_all(
            [make_call(self._namespace(group), hashes(keys), [rows[key] for key in keys])
             for group, keys in groups.items()], ended)

    def _load(self, ns, keys, rows):
        return calls.get(ns, keys, rows, remote_wait=0, timeout=self._options.timeout_s)

    def _store(self, ns, keys, rows):
        return calls.put(ns, zip(keys, rows), no_g3=self._own.private,
                         timeout=self._options.timeout_s)

    def _finish(self, job, own, good):
        failed = [key for key in job.keys if own[key] not in good]
        partly = job.is_promotion and bool(failed)
        if partly:
            self._finder.missed([own[key] for key in failed])
        elif not job.is_promotion:
            self._finder.stored(good)
        result = JobResult(
            job.job_id, not failed,
            successful_keys=tuple(key for key in job.keys if own[key] in good) if partly else None,
            transfer_time=time.monotonic() - job.submit_time,
            transfer_bytes=len(good) * self.block_size_bytes)
        in_use = failed and not job.is_promotion and self._rows_in_use()
        (self._read_still if in_use else self._finished).append(result)

    def _row(self, slot):
        at = int(slot) * self.block_size_bytes
        assert at + self.block_size_bytes <= self._nbytes
        return Pointer(self._address + at, self.block_size_bytes)

    # ---- facts and metrics

    @classmethod
    def build_metric_definitions(cls, extra_config):
        del extra_config
        return vllm_stats.definitions()

    def get_stats(self):
        return self._stats.take()

    @classmethod
    def config_info_keys(cls, tier_config):
        del tier_config
        return vllm_stats.CONFIG_INFO

    def config_info(self):
        endpoint = self._options.endpoint or client.default_endpoint()
        values = endpoint, self._options.path, self.identity.digest
        return dict(zip(vllm_stats.CONFIG_INFO, values))

    def _open_namespace(self, group):
        """Returns a namespace's arguments: everything that changes a row's bytes, which are the
        engine's identity and its layout of rows."""
        config = self._config
        return self._client.namespace(
            self._model, dtype=config.model.dtype,
            tokens_per_chunk=self._groups.tokens_per_key(group),
            layout=(f"{self.identity.layout} vllm row 2: bytes={self.block_size_bytes} "
                    f"{self._groups.layout(group)} canonical={self._canonical_format()} "
                    f"replicated={config.replicated_layout} epoch="),
            hash_algorithm=f"vllm {config.cache.tokens_per_hash} tokens a hash",
            hash_seed=hash_seed(), bytes_per_part=self.block_size_bytes,
            timeout=self._options.lookup_timeout_s)

    def _canonical_format(self):
        """Returns vLLM's name, with version, of the bytes of a canonical page, or None if it has
        none."""
        if not self._config.canonical_layout:
            return None
        return canonical_format_id(self._config.kv_cache_layout)
