"""SGLang: notices that the weights of a running engine change, in the scheduler's process.

SGLang 0.5.23 tells a storage backend nothing of an update, and a linker only of a reset. So this
module wraps the methods of SGLang's classes that all updates go through, once in each process. Each
call counts as a change: one that fails may have written some weights, and one that restores the old
weights looks like any other. A change counts when the call begins, so that nothing is shared from
then on, and again when it ends, so that what was computed meanwhile is not found.

Some changes cannot be seen: writes into the weights' memory (RDMA, CUDA IPC) without a call of a
method of SGLang's, and code in the process that calls the model's own load_weights.
"""

import functools
import importlib
import threading

_UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater"
# (module, class or None, names): methods that change weights or give their memory away. The model
# runner looks its updater up by name at each update; the scheduler's was bound before an attach.
_CHANGES = (
    (_UPDATER, "WeightUpdater", (
        "update_weights_from_disk", "begin_weight_update", "end_weight_update",
        "load_weights_from_distributed", "update_weights_from_tensor", "update_weights_from_ipc")),
    # Methods that reload experts whose rank was lost.
    ("sglang.srt.elastic_ep.expert_backup_client", "ExpertBackupClient", ("update_weights",)),
    # The action "reset_tensors" of check_weights writes random weights.
    ("sglang.srt.utils.weight_checker", "WeightChecker", ("_reset_tensors",)),
    # release_memory_occupation calls this before the memory of the weights goes away.
    ("sglang.srt.managers.scheduler_components.weight_updater", None, ("_export_static_state",)),
)
# HiCache forgets everything it holds, after the threads of its storage have ended.
_RESETS = (("sglang.srt.managers.cache_controller", "HiCacheController", ("reset",)),)


class Observed:
    """Counts the changes in this process. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._installed, self.since_start = False, False
        self.changes, self.resets = 0, 0

    def begin(self, at_start):
        """Wraps SGLang's methods, the first time. at_start: the engine has not begun to serve.
        Raises ValueError if SGLang lacks such a method."""
        with self._lock:
            if self._installed:
                return
            changes, resets = ([place for wanted in of for place in _places(*wanted)]
                               for of in (_CHANGES, _RESETS))
            for owner, name in changes:
                setattr(owner, name, self._counting_changes(getattr(owner, name)))
            for owner, name in resets:
                setattr(owner, name, self._counting_resets(getattr(owner, name)))
            self._installed, self.since_start = True, at_start

    def _counting_changes(self, call):
        @functools.wraps(call)
        def observed(*given, **named):
            self._count("changes")
            try:
                return call(*given, **named)
            finally:
                self._count("changes")

        return observed

    def _counting_resets(self, call):
        @functools.wraps(call)
        def observed(*given, **named):
            try:
                return call(*given, **named)
            finally:
                self._count("resets")

        return observed

    def _count(self, what):
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)


OBSERVED = Observed()


def _places(module, kind, names):
    """Yields (owner, name) for each method. Raises ValueError if one does not exist."""
    for name in names:
        try:
            owner = importlib.import_module(module)
            owner = getattr(owner, kind) if kind else owner
            getattr(owner, name)
        except (ImportError, AttributeError) as why:
            raise ValueError(
                f"kvkeep: SGLang has no {'.'.join(filter(None, (module, kind, name)))}: changes of "
                "the weights would not be seen. Use a kvkeep for this version") from why
        yield owner, name
