"""vLLM: kvkeep as a secondary tier of its native KV offloading (written against vllm 0.33).

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": N,
        "secondary_tiers": [{"type": "KvkeepTier", "module_path": "kvkeep.vllm"}]}}'

What vLLM offloads to its own CPU memory goes on into the node's daemon, and is found there by
every engine of the same model and geometry, after any of them, or the daemon, was restarted. Every
failure is a miss: vLLM computes what it does not get. No call here waits for the daemon but
drain_jobs and shutdown, each of which ends by the calls' timeouts.

A HIT is held by a lease from the lookup to the end of its request. Chunks are rows of vLLM's
primary tier: all ranks of an engine side by side, so that no rank is in a key.
"""

import functools
import hashlib
import threading

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_utils import get_none_hash_seed
from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, RequestOffloadingContext,
                                     get_offload_block_hash, get_offload_group_idx)
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from kvkeep import calls
from kvkeep.client import Client
from kvkeep.completions import Completions
from kvkeep.memory import Pointer, locate

logger = init_logger(__name__)


class _Lookups(AsyncLookupManager):
    """A batch for each request and step, on vLLM's lookup thread."""

    def __init__(self, tier):
        self._tier = tier
        super().__init__(tier_type=tier.tier_type)

    def batch_lookup(self, keys, req_context):
        return self._tier.find(keys, req_context.req_id)


class KvkeepTier(SecondaryTierManager):
    """endpoint: of the daemon; the node's unless given. timeout_s: of a batch of loads or stores.
    lookup_timeout_s: after that it is a miss. name: what tells weights from others of the same
    model name. path: auto, local or grpc."""

    medium = Medium.STORAGE

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None, *,
                 endpoint=None, timeout_s=30.0, lookup_timeout_s=1.0, name=None, path="auto"):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality.LOCAL
        self._timeout_s, self._lookup_timeout_s = timeout_s, lookup_timeout_s
        self._config, self._name = offloading_spec.config, name
        self._address, self._nbytes, self._view = locate(primary_kv_view, writable=True)
        self._client = Client(endpoint, name=f"vllm {self._config.engine_id}"[:128], path=path,
                              timeout=timeout_s)
        self._completions = Completions(self._client, capacity=4096)
        self._finished = []  # JobResult
        self._lock = threading.Lock()
        self._leases = {}  # request: its leases; only requests that are not over. Under the lock
        self._namespace = functools.cache(self._open_namespace)
        for group in self._config.groups:  # now: later it would be the scheduler that waits
            self._namespace(group.group_id)
        self._lookups = _Lookups(self)
        if self._client.connected:
            logger.info("kvkeep tier: %s", self._client.path.why)
        else:
            logger.warning("kvkeep tier: the daemon is away; misses until it is there")

    # ---- lookups

    def on_new_request(self, req_context):
        with self._lock:
            self._leases.setdefault(req_context.req_id, [])
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        found = self._lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def on_schedule_end(self, context):
        self._lookups.flush()

    def on_request_finished(self, req_context):
        self._lookups.cleanup(req_context.req_id)
        with self._lock:
            leases = self._leases.pop(req_context.req_id, [])
        for lease in leases:
            lease.release()

    def find(self, keys, request):
        """Whether each key is there; what is there is leased for the request. On vLLM's thread."""
        present = {}
        for group, of_group in self._by_group(keys).items():
            found = self._namespace(group).lookup(self._hashes(of_group), lease="all",
                                                  timeout=self._lookup_timeout_s)
            present.update((key, there != 0) for key, there in zip(of_group, found.presence))
            if found.lease is None:
                continue
            with self._lock:
                leases = self._leases.get(request)
                if leases is not None:
                    leases.append(found.lease)
            if leases is None:  # the request is over
                found.lease.release()
        return [present[key] for key in keys]

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
        self._completions.wait(2 * self._timeout_s)  # calls end by their own timeouts

    def shutdown(self):
        self._lookups.shutdown()
        if self._completions.wait(2 * self._timeout_s):
            self._completions.close()
            self._view = None  # vLLM's memory is vLLM's again
        with self._lock:
            self._leases.clear()
        self._client.close()

    def _submit(self, job, make_call):
        """One call for each group of the job; a result when the last of them has ended."""
        rows = {key: self._row(slot) for key, slot in zip(job.keys, job.chunk_ids)}
        groups = self._by_group(rows)
        good, left = set(), [len(groups)]

        def ended(keys, which, result, mistake):
            if mistake is not None:
                logger.warning("kvkeep tier: job %s: %s", job.job_id, mistake)
            else:
                good.update(key for key, one in zip(keys, which(result)) if one)
            left[0] -= 1
            if left[0] == 0:
                self._finish(job, good)

        for group, keys in groups.items():
            call, which = make_call(self._namespace(group), self._hashes(keys),
                                    [rows[key] for key in keys])
            self._completions.start(call, functools.partial(ended, keys, which))

    def _load(self, ns, hashes, rows):
        call = calls.get(ns, hashes, rows, timeout=self._timeout_s)
        return call, lambda got: [status == calls.GetStatus.HIT for status in got.statuses]

    def _store(self, ns, hashes, rows):
        call = calls.put(ns, zip(hashes, rows), timeout=self._timeout_s)
        as_good = (calls.PutStatus.STORED, calls.PutStatus.PRESENT)
        return call, lambda stored: [status in as_good for status in stored.statuses]

    def _finish(self, job, good):
        failed = [key for key in job.keys if key not in good]
        partly = job.is_promotion and bool(failed)
        if partly:
            self._lookups.mark_miss(failed)
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
            self._name or config.model.name, dtype=config.model.dtype,
            tokens_per_chunk=of_group.tokens_per_block * config.cache.blocks_per_chunk,
            layout=(f"vllm row 1: bytes={self.block_size_bytes} group={group} layers={layers} "
                    f"blocks={config.cache.blocks_per_chunk} tp={parallel.tp_size} "
                    f"pp={parallel.pp_size} pcp={parallel.pcp_size} dcp={parallel.dcp_size} "
                    f"kv={config.kv_cache_layout} canonical={config.canonical_layout} "
                    f"replicated={config.replicated_layout}"),
            hash_algorithm=f"vllm {config.cache.tokens_per_hash} tokens a hash",
            hash_seed=get_none_hash_seed(), bytes_per_part=self.block_size_bytes,
            timeout=self._lookup_timeout_s)
