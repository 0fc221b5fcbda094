"""vLLM: kvkeep as a secondary tier of its native KV offloading (written against vllm 0.33).

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": N,
        "secondary_tiers": [{"type": "KvkeepTier", "module_path": "kvkeep.vllm"}]}}'

What vLLM offloads to its own CPU memory goes on into the node's daemon, and is found there by
every engine of the same model and geometry, after any of them, or the daemon, was restarted. Every
failure is a miss: vLLM computes what it does not get. No call here waits for the daemon but
drain_jobs and shutdown, each of which ends by the calls' timeouts. Never entered concurrently, as
vLLM promises (SecondaryTierManager); so there is no lock here, and no thread.

A HIT is held by a lease from the lookup to the end of its request. Chunks are rows of vLLM's
primary tier: all ranks of an engine side by side, so that no rank is in a key.
"""

import functools
import hashlib

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_utils import get_none_hash_seed
from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, RequestOffloadingContext,
                                     get_offload_block_hash, get_offload_group_idx)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from kvkeep import calls
from kvkeep.completions import Completions
from kvkeep.engine import Breaker, PrefillOptions, connect, keys_worth_loading
from kvkeep.lookups import Lookups
from kvkeep.memory import Pointer, locate

logger = init_logger(__name__)


class KvkeepTier(SecondaryTierManager):
    """options: those of kvkeep.engine.PrefillOptions, beside "type" in the flag."""

    medium = Medium.STORAGE

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None,
                 **options):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality.LOCAL
        self._options, self._config = PrefillOptions.of(options), offloading_spec.config
        self._address, self._nbytes, self._view = locate(primary_kv_view, writable=True)
        self._client = connect(self._options, f"vllm {self._config.engine_id}", logger)
        self._breaker = Breaker()
        self._completions = Completions(self._client, capacity=4096)
        self._finished = []  # JobResult
        self._leases = {}  # request: its leases; only requests that are not over
        self._namespace = functools.cache(self._open_namespace)
        for group in self._config.groups:  # now: later it would be the scheduler that waits
            self._namespace(group.group_id)
        self._lookups = Lookups(self._find)

    # ---- lookups

    def on_new_request(self, req_context):
        self._leases.setdefault(req_context.req_id, [])
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        found = self._lookups.want(key, req_context.req_id)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def on_schedule_end(self, context):
        self._completions.poll()
        self._lookups.flush()

    def on_request_finished(self, req_context):
        self._lookups.forget(req_context.req_id)
        for lease in self._leases.pop(req_context.req_id, []):
            lease.release()

    def _find(self, keys, request, ended):
        """Of Lookups: a call for each group, which leases what is there for the request."""
        def leased(worth):
            self._look_up(worth, "all", hold, ended)

        def hold(found, keys):
            if found.lease is not None and request in self._leases:
                self._leases[request].append(found.lease)
            elif found.lease is not None:
                found.lease.release()
            return (key for key, one in zip(keys, found.leased) if one)

        if self._options.prefill_tokens_per_s is None:
            leased(keys)
        else:  # without a lease first: that would bring from NVMe what is not worth it
            self._look_up(keys, None, self._worth_loading, leased)

    def _look_up(self, keys, lease, judge, ended):
        """ended(those of the keys that `judge` took, in order)."""
        groups = self._by_group(keys) if self._breaker.allows() else {}

        def heard(outcomes):
            taken = set()
            for of_group, (found, mistake) in zip(groups.values(), outcomes):
                if mistake is not None:
                    logger.warning("kvkeep tier: lookup: %s", mistake)
                    continue
                self._breaker.heard(found.error)
                taken.update(judge(found, of_group))
            ended([key for key in keys if key in taken])

        self._completions.start_all(
            [calls.lookup(self._namespace(group), self._hashes(of_group), lease=lease,
                          timeout=self._options.lookup_timeout_s)
             for group, of_group in groups.items()], heard)

    def _worth_loading(self, found, keys):
        tokens = self._tokens_per_key(get_offload_group_idx(keys[0]))
        return keys[:keys_worth_loading(self._options, found, tokens)]

    def _tokens_per_key(self, group):
        of_group = next(one for one in self._config.groups if one.group_id == group)
        return of_group.tokens_per_block * self._config.cache.blocks_per_chunk

    # ---- loads and stores

    def submit_load(self, job_metadata):
        self._submit(job_metadata, self._load)

    def submit_store(self, job_metadata):
        self._submit(job_metadata, self._store)

    def get_finished_jobs(self):
        self._completions.poll()
        finished, self._finished = self._finished, []
        return finished

    def has_pending_work(self):
        return self._completions.pending > 0 or bool(self._finished)

    def drain_jobs(self):
        self._completions.wait(2 * self._options.timeout_s)  # calls end by their own timeouts

    def shutdown(self):
        if self._completions.wait(2 * self._options.timeout_s):
            self._completions.close()
            self._view = None  # vLLM's memory is vLLM's again
        self._leases.clear()
        self._client.close()

    def _submit(self, job, make_call):
        """One call for each group of the job; a result when the last of them has ended."""
        rows = {key: self._row(slot) for key, slot in zip(job.keys, job.chunk_ids)}
        groups = self._by_group(rows)

        def ended(outcomes):
            good = set()
            for keys, (result, mistake) in zip(groups.values(), outcomes):
                if mistake is not None:
                    logger.warning("kvkeep tier: job %s: %s", job.job_id, mistake)
                else:
                    good.update(key for key, one in zip(keys, result.good) if one)
            self._finish(job, good)

        self._completions.start_all(
            [make_call(self._namespace(group), self._hashes(keys), [rows[key] for key in keys])
             for group, keys in groups.items()], ended)

    def _load(self, ns, hashes, rows):
        return calls.get(ns, hashes, rows, timeout=self._options.timeout_s)

    def _store(self, ns, hashes, rows):
        return calls.put(ns, zip(hashes, rows), timeout=self._options.timeout_s)

    def _finish(self, job, good):
        failed = [key for key in job.keys if key not in good]
        partly = job.is_promotion and bool(failed)
        if partly:
            self._lookups.missed(failed)
        self._finished.append(JobResult(
            job.job_id, not failed, successful_keys=tuple(good) if partly else None,
            transfer_bytes=len(good) * self.block_size_bytes))

    def _row(self, slot):
        at = int(slot) * self.block_size_bytes
        assert at + self.block_size_bytes <= self._nbytes
        return Pointer(self._address + at, self.block_size_bytes)

    # ---- keys and namespaces

    @staticmethod
    def _hashes(keys):
        return [get_offload_block_hash(key) for key in keys]

    @staticmethod
    def _by_group(keys):
        groups = {}
        for key in keys:
            groups.setdefault(get_offload_group_idx(key), []).append(key)
        return groups

    def _open_namespace(self, group):
        """All that changes a row's bytes tells namespaces apart. The group is of the layout too:
        a digest says nothing of it."""
        config = self._config
        of_group = next(one for one in config.groups if one.group_id == group)
        parallel = config.parallel
        layers = hashlib.sha256("\0".join(of_group.layer_names).encode()).hexdigest()[:16]
        return self._client.namespace(
            config.model.name, dtype=config.model.dtype,
            tokens_per_chunk=self._tokens_per_key(group),
            layout=(f"vllm row 1: bytes={self.block_size_bytes} group={group} layers={layers} "
                    f"blocks={config.cache.blocks_per_chunk} tp={parallel.tp_size} "
                    f"pp={parallel.pp_size} pcp={parallel.pcp_size} dcp={parallel.dcp_size} "
                    f"kv={config.kv_cache_layout} canonical={config.canonical_layout} "
                    f"replicated={config.replicated_layout} name={self._options.name!r}"),
            hash_algorithm=f"vllm {config.cache.tokens_per_hash} tokens a hash",
            hash_seed=get_none_hash_seed(), bytes_per_part=self.block_size_bytes,
            timeout=self._options.lookup_timeout_s)
