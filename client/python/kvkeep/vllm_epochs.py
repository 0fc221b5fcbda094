"""vLLM: whether other engines may find an engine's KV, and how long the engine itself may.

An epoch is a time in which the engine's weights were the same. The shared epoch has the weights of
the identity. When the weights may have changed, and at a reset of the prefix cache, a private epoch
begins. Its keys contain a random name, so the engine finds nothing from before, and no other engine
finds what it stores from then on. After a sleep and a wake-up in which nothing else touched the
weights, the epoch from before the sleep goes on.

Everything here runs on the scheduler's thread.
"""

import contextlib
import dataclasses
import multiprocessing
import secrets

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.logger import init_logger

from kvkeep.vllm_weights import EngineCalls, takes_updates, writes

logger = init_logger(__name__)

SHARED = ""


@dataclasses.dataclass
class EngineWorkerMetadata(OffloadingWorkerMetadata):
    """vLLM's worker metadata, with workers' news for Epochs. writes: for each rank whose weights
    were written since last time, the number of the latest write (vllm_weights.writes)."""

    writes: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, meta, changed):
        """meta: vLLM's own, or None."""
        if meta is None:
            return cls(writes=changed)
        return cls(meta.completed_jobs, meta.transfer_stats, changed)

    def aggregate(self, other):
        both = super().aggregate(other)
        return EngineWorkerMetadata(both.completed_jobs, both.transfer_stats,
                                    {**self.writes, **other.writes})


class Epochs:
    """began() is called when each epoch but the first one begins. REQUIRES: adapters is a
    kvkeep.vllm_adapters.Adapters."""

    def __init__(self, vllm_config, options, adapters, began):
        self.name, self.number = SHARED, 0
        self.known_writes = {}  # rank: the number of its latest write that is known here
        self._began, self._follows = began, options.on_reset != "ignore"
        self._own_process = _is_own_process()
        self._touched = False  # something other than a sleep may have changed the weights
        self._before_reset = None  # the epoch before a reset, if vLLM has called no worker since
        self._before_sleep = None  # the epoch before the reset of a sleep that still lasts
        self._vllm_config = vllm_config
        self._calls = EngineCalls(vllm_config, changed=self._changed, slept=self._slept,
                                  woke=self._woke, other=self._other,
                                  loading=adapters.loaded, removing=adapters.removed)
        reason = takes_updates(vllm_config)
        if reason is not None and not options.risk_unseen_weight_updates:
            logger.warning(
                "kvkeep: this engine shares no KV with others: %s, so its weights may change in "
                'ways that nothing reports. "risk_unseen_weight_updates": true lets it share '
                "until a change is seen", reason)
            self.name, self._touched = secrets.token_hex(16), True

    @property
    def private(self):
        """Returns whether no other engine finds what is stored now."""
        return self.name != SHARED

    def check(self):
        """Checks whether weights were written in this process, if the engine's worker is here."""
        count = writes(self._vllm_config)
        if count is not None:
            self.heard({self._vllm_config.parallel_config.rank: count})

    def heard(self, latest):
        """Takes the workers' news: {rank: the number of its latest write}."""
        new = {rank: count for rank, count in latest.items()
               if self.known_writes.get(rank, 0) != count}
        self.known_writes.update(new)
        if new:
            self._changed(f"written by the ranks {sorted(new)}")

    def reset(self):
        """Notes that vLLM's prefix cache is reset now, which always ends a private epoch: between a
        change and the reset, blocks of the old weights may have been stored."""
        if not self._follows and not self._touched:
            return
        self._before_reset = self.name
        self._begin(secrets.token_hex(16))
        logger.info("kvkeep: a reset of the prefix cache: from now on this engine finds nothing "
                    "from before, and shares nothing")

    def close(self):
        self._calls.close()

    def _changed(self, why):
        log = logger.debug if self._touched else logger.warning
        self._touched, self._before_sleep = True, None
        self._begin(secrets.token_hex(16))
        log("kvkeep: the weights of this engine may have changed (%s): it finds nothing from "
            "before, and shares nothing", why)

    def _slept(self):
        """Notes that the engine sleeps; the reset of the prefix cache came first. In a process of
        its own, and without what takes_updates() names, nothing writes weights without a call that
        is seen."""
        if self._own_process and not self._touched:
            self._before_sleep = self._before_reset

    def _woke(self):
        before, self._before_sleep = self._before_sleep, None
        if before is not None:
            self._begin(before)
            logger.info("kvkeep: awake with the weights from before")

    def _other(self):
        """Notes another call: a reset before it does not belong to a sleep."""
        self._before_reset = None

    def _begin(self, name):
        self.name, self.number = name, self.number + 1
        self._began()


def _is_own_process():
    """Returns whether no code of the engine's user runs in this process (vLLM's EngineCore)."""
    return (multiprocessing.parent_process() is not None and
            multiprocessing.current_process().name.startswith("EngineCore"))


def observe_resets(pool, begins, gone, without=lambda: ()):
    """Wraps vLLM's BlockPool resets from now on. `begins()` is called before a reset, which runs
    within the context managers of `without()`; `gone()` is called after it if no block is left."""
    reset_pool = pool.reset_prefix_cache

    def observed():
        begins()
        with contextlib.ExitStack() as given_back:
            for one in without():
                given_back.enter_context(one)
            done = reset_pool()
        if done:
            gone()
        return done

    pool.reset_prefix_cache = observed
