"""vLLM: how kvkeep notices that the weights of a running engine may have changed.

There are two observers. EngineCalls, in the scheduler's process, sees every call that the engine
makes to its workers: updates, sleep, and code that a user sends. A call that is not known to leave
the weights alone may have changed them. Writes, in a worker's process, counts how often one of
vLLM's own functions wrote weights, whoever called it.

Neither sees a tensor that other code writes in place without such a call: a thread of a worker
extension, memory shared by CUDA IPC, a program that has the engine in its own process.
"""

import contextvars
import functools
import itertools
import sys

# Calls to workers that leave the weights as they are.
_KEEP_WEIGHTS = frozenset((
    "execute_model", "sample_tokens", "execute_dummy_batch", "take_draft_token_ids",
    "add_lora", "remove_lora", "pin_lora", "list_loras",  # an adapter is part of a request's keys
    "check_health", "handle_ft_command", "checkpoint_prepare", "profile", "annotate_profile",
    "synchronize_device", "reset_mm_cache", "reset_encoder_cache",
    "release_late_interaction_query_cache", "save_sharded_state", "save_tensorized_model",
    "compute_weight_checksums", "get_cache_block_size_bytes",
    "get_compilation_match_table", "get_encoder_timing_stats", "get_kv_cache_spec",
    "get_kv_connector_handshake_metadata", "get_model_inspection",
    "get_simple_cpu_offload_num_cpu_blocks", "get_supported_kv_cache_layouts",
    "get_supported_tasks", "supports_draft_weight_updates", "set_kv_cache_layout",
    "determine_available_memory", "compile_or_warm_up_model", "initialize_from_config",
    "update_max_model_len", "init_weight_transfer_engine", "shutdown_weight_transfer_engine",
    "shutdown"))
# Methods of a worker and of a model's runner that write weights, or call code that may.
_WRITERS = ("load_model", "reload_weights", "start_weight_update", "start_draft_weight_update",
            "update_weights", "finish_weight_update", "reset_weights", "apply_model",
            "checkpoint_restore")
_RUNNERS = (("vllm.v1.worker.gpu_model_runner", "GPUModelRunner"),
            ("vllm.v1.worker.gpu.model_runner", "GPUModelRunner"))

_numbers = itertools.count(1)
# By instance_id of a VllmConfig: the latest write by that engine's worker, and the number of
# writes() when its worker was made.
_latest, _at_start = {}, {}
_latest_of_any = 0  # by a model whose engine is unknown
_writer = contextvars.ContextVar("kvkeep: instance_id of the engine that writes", default=None)
_calls = {}  # instance_id: the EngineCalls of that engine


def writes(vllm_config):
    """Returns a number that changes whenever this engine's weights are written in this process; 0
    when its worker was made. None: its worker is not in this process."""
    at_start = _at_start.get(vllm_config.instance_id)
    return None if at_start is None else _count(vllm_config.instance_id) - at_start


class WritesToTell:
    """A rank's worker's news for the scheduler's half: the writes of its weights."""

    def __init__(self, vllm_config, rank):
        self._vllm_config, self._rank = vllm_config, rank
        self.latest = 0  # writes(), as last reported

    def take(self):
        """Returns {rank: writes()} if the number is new, else nothing."""
        count = writes(self._vllm_config)
        if count in (None, self.latest):
            return {}
        self.latest = count
        return {self._rank: count}


def _count(engine):
    return max(_latest.get(engine, 0), _latest_of_any)


def observe_writes(vllm_config):
    """Begins to count for writes(). Called for the worker of this engine when it is made."""
    from vllm.model_executor.model_loader.utils import get_model_cls
    from vllm.model_executor.models.utils import AutoWeightsLoader
    from vllm.utils.import_utils import resolve_obj_by_qualname

    holders = [resolve_obj_by_qualname(vllm_config.parallel_config.worker_cls)]
    holders += [getattr(sys.modules[module], name) for module, name in _RUNNERS
                if module in sys.modules]
    for holder in holders:
        for name in _WRITERS:
            _wrap(holder, name, _counted)
    models = [vllm_config.model_config]
    if vllm_config.speculative_config is not None:
        models.append(vllm_config.speculative_config.draft_model_config)
    for model in filter(None, models):
        _wrap(get_model_cls(model), "load_weights", _counted)
    _wrap(AutoWeightsLoader, "load_weights", _counted)
    _at_start[vllm_config.instance_id] = _count(vllm_config.instance_id)


def _counted(method):
    """Wraps the method so that it counts as a write before it begins and once it is over."""
    @functools.wraps(method)
    def counted(self, *arguments, **named):
        config = getattr(self, "vllm_config", None)  # workers and runners have it, models do not
        token = _writer.set(getattr(config, "instance_id", _writer.get()))
        try:
            _note_write()
            return method(self, *arguments, **named)
        finally:
            _note_write()
            _writer.reset(token)

    return counted


def _note_write():
    global _latest_of_any  # pylint: disable=global-statement
    if _writer.get() is None:
        _latest_of_any = next(_numbers)
    else:
        _latest[_writer.get()] = next(_numbers)


def _wrap(holder, name, around):
    """Puts around(method) in the place of a class's method, where it is defined. Does nothing if
    there is none, or if it was done before."""
    owner = next((one for one in holder.__mro__ if name in vars(one)), None)
    if owner is None or getattr(vars(owner)[name], "kvkeep_wrapped", False):
        return
    wrapped = around(vars(owner)[name])
    wrapped.kvkeep_wrapped = True
    setattr(owner, name, wrapped)


class EngineCalls:
    """Reports an engine's calls to its workers, before each is made. Methods run on the calling
    thread, which is the scheduler's.

    changed(why): the weights may have changed. slept(): the engine sleeps and keeps its weights;
    woke(): all its memory is back. other(): a call that vLLM does not make between a reset and a
    sleep. loading(lora_request), removing(lora_id): an adapter.
    """

    _OF_A_RESET = frozenset(("synchronize_device", "reset_mm_cache", "reset_encoder_cache"))

    def __init__(self, vllm_config, changed, slept, woke, other, loading, removing):
        from vllm.v1.executor.abstract import Executor

        self._changed, self._slept, self._woke, self._other = changed, slept, woke, other
        self._loading, self._removing = loading, removing
        self._asleep = set()
        self._id = vllm_config.instance_id
        _wrap(Executor.get_class(vllm_config), "collective_rpc", _observed)
        _calls.setdefault(self._id, []).append(self)

    def close(self):
        """Reports nothing more. Idempotent."""
        left = [calls for calls in _calls.pop(self._id, ()) if calls is not self]
        if left:
            _calls[self._id] = left

    def begins(self, method, args, named):
        """Judges a call to the workers."""
        if method == "sleep":
            self._sleep(_argument(args, named, 0, "level", 1))
        elif method == "wake_up":
            self._wake(_argument(args, named, 0, "tags", None))
        elif method == "discard":
            self._discard(_argument(args, named, 0, "tags", ("weights",)))
        elif not isinstance(method, str) or method not in _KEEP_WEIGHTS:
            self._changed(method if isinstance(method, str) else repr(method))
        elif method == "add_lora":
            self._loading(_argument(args, named, 0, "lora_request", None))
        elif method == "remove_lora":
            self._removing(_argument(args, named, 0, "lora_id", None))
        if not isinstance(method, str) or method not in self._OF_A_RESET:
            self._other()

    def _sleep(self, level):
        if level != 1:
            self._changed(f"sleep of level {level}")
            return
        self._asleep = {"weights", "kv_cache"}
        self._slept()

    def _discard(self, tags):
        """Judges a sleep of this memory alone."""
        if set(tags) != {"kv_cache"}:
            self._changed("discard")
            return
        self._asleep.add("kv_cache")
        self._slept()

    def _wake(self, tags):
        was_asleep = bool(self._asleep)
        self._asleep -= self._asleep.copy() if tags is None else set(tags)
        if was_asleep and not self._asleep:
            self._woke()


def _observed(collective_rpc):
    @functools.wraps(collective_rpc)
    def observed(self, method, timeout=None, args=(), kwargs=None, *more, **other):
        known = _calls.get(self.vllm_config.instance_id)
        if known is None:  # an engine without kvkeep, or one with a new configuration
            known = [calls for of_engine in _calls.values() for calls in of_engine]
        for calls in known:
            calls.begins(method, args, kwargs or {})
        return collective_rpc(self, method, timeout, args, kwargs, *more, **other)

    return observed


def _argument(args, named, place, name, default):
    return args[place] if len(args) > place else named.get(name, default)


def takes_updates(vllm_config):
    """Returns why this engine was made to change its weights while it runs, or None if it was
    not."""
    if getattr(vllm_config, "weight_transfer_config", None) is not None:
        return "it has a weight_transfer_config"
    if getattr(vllm_config.parallel_config, "worker_extension_cls", None):
        return f"it has the worker extension {vllm_config.parallel_config.worker_extension_cls}"
    return None
