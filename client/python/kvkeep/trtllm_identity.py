"""TensorRT-LLM: the connector's options, what it refuses, and what an engine's KV depends on.

Every argument of the engine counts, except those listed here, which change no byte of KV: an
argument that a later release adds separates engines and never mixes them.
"""

import array
import dataclasses
import hashlib
import json
import os
import pathlib

from kvkeep import weights as weights_option
from kvkeep.engine import Options
from kvkeep.identity import Identity, canonical
from kvkeep.weights import check_older_than_engine, locate, weights_of

ENVIRONMENT = "KVKEEP_TRTLLM"

_WAY_OUT = "or start without kv_connector_config"
_NOT_OF_KV = frozenset((
    "batch_wait_max_tokens_ratio", "batch_wait_timeout_iters", "batch_wait_timeout_ms",
    "batched_logits_processor", "build_config", "cache_transceiver_config", "cuda_graph_config",
    "disable_overlap_scheduler", "enable_chunked_prefill", "enable_iter_perf_stats",
    "enable_iter_req_stats", "garbage_collection_gen0_threshold", "gather_generation_logits",
    "gpus_per_node", "guided_decoding_backend", "iter_stats_max_iterations", "kv_cache_config",
    "kv_connector_config", "load_format", "lora_config", "max_batch_size", "max_beam_width",
    "max_input_len", "max_num_tokens", "model", "mpi_session", "num_postprocess_workers",
    "otlp_traces_endpoint", "peft_cache_config", "perf_metrics_max_requests",
    "postprocess_tokenizer_dir", "print_iter_log", "reasoning_parser",
    "request_stats_max_iterations", "return_perf_metrics", "revision", "sampler_type",
    "scheduler_config", "skip_tokenizer_init", "stream_interval", "tokenizer", "tokenizer_mode",
    "tokenizer_revision", "tool_parser", "trust_remote_code"))
_NOT_OF_KV_OF_THE_CACHE = frozenset((
    "copy_on_partial_reuse", "cross_kv_cache_fraction", "disk_cache_size", "enable_block_reuse",
    "enable_partial_reuse", "event_buffer_max_size", "free_gpu_memory_fraction", "host_cache_size",
    "max_gpu_total_bytes", "max_tokens", "max_util_for_resume", "secondary_offload_min_priority"))
# What a request's KV depends on besides its tokens and its salt. A request with any of these is
# left alone.
_NOT_IN_KEYS = (
    "encoder_input_features", "encoder_tokens", "lora_task_id", "mrope_position_deltas",
    "mrope_rotary_cos_sin", "multimodal_embedding", "multimodal_hashes", "multimodal_lengths",
    "multimodal_positions", "multimodal_uuids", "position_ids", "prompt_embedding_table",
    "py_encoder_input_features", "py_lora_path",
    "py_multimodal_data")  # images: the fields above are None if TensorRT-LLM could not hash them


@dataclasses.dataclass(frozen=True)
class TrtllmOptions(Options):
    """lookup_timeout_s: how long the scheduler waits for a lookup. load_timeout_s: how long it
    waits for the bytes of what was found. store_timeout_s: of a put.
    load_bytes: host memory for found chunks, per engine; one prompt finds no more than that.
    store_bytes: host memory for chunks on their way to the daemon, per rank.
    weights: "auto", a fingerprint of their files; "full", a fingerprint of every byte; or "name:X",
    mandatory where no files can be read.
    attention_dp: takes enable_attention_dp, where every rank has a scheduler of its own.
    """

    lookup_timeout_s: float = 0.005
    remote_wait_s: float = 0
    load_timeout_s: float = 0.5
    store_timeout_s: float = 5.0
    load_bytes: int = 1 << 30
    store_bytes: int = 256 << 20
    weights: str = "auto"
    attention_dp: bool = False

    def __post_init__(self):
        super().__post_init__()
        weights_option.check_option(self.weights)
        if self.remote_wait_s:
            raise ValueError("remote_wait_s: 0: this connector does not wait for what lies beyond "
                             f"the node, not {self.remote_wait_s!r}")
        for name in ("load_bytes", "store_bytes"):
            value = getattr(self, name)
            if type(value) is not int or not 1 << 20 <= value <= 1 << 40:
                raise ValueError(f"{name}: 1 MiB to 1 TiB, not {value!r}")
        if not isinstance(self.attention_dp, bool):
            raise ValueError(f"attention_dp: true or false, not {self.attention_dp!r}")


def options_of_environment():
    """Returns the TrtllmOptions. Raises ValueError if they are wrong."""
    try:
        given = json.loads(os.environ.get(ENVIRONMENT) or "{}")
        if not isinstance(given, dict):
            raise ValueError("no object")
        return TrtllmOptions.of(given)
    except (TypeError, ValueError) as why:
        raise ValueError(f"kvkeep: {ENVIRONMENT} has the options as a JSON object: {why}") from why


def check_args(llm_args, options):
    """Raises ValueError for an engine whose KV this connector cannot keep rightly."""
    cache = _of(llm_args, "kv_cache_config")
    for refused, what, way_out in (
            ((_of(llm_args, "max_beam_width") or 1) > 1, "max_beam_width", "set it to 1"),
            ((_of(llm_args, "pipeline_parallel_size") or 1) > 1, "pipeline_parallel_size",
             "set it to 1, with tensor_parallel_size in its place"),
            ((_of(llm_args, "context_parallel_size") or 1) > 1, "context_parallel_size",
             "set it to 1, with tensor_parallel_size in its place"),
            # None: one of a size that it chooses. Requests may come back from it on other pages.
            (_of(cache, "host_cache_size") != 0, "kv_cache_config.host_cache_size",
             "set it to 0: the daemon's memory takes its place"),
            (getattr(cache, "disk_cache_size", None), "kv_cache_config.disk_cache_size",
             "unset it: the daemon's NVMe takes its place"),
            (_of(llm_args, "speculative_config") is not None, "speculative_config", "unset it"),
            (getattr(llm_args, "sparse_attention_config", None) is not None,
             "sparse_attention_config", "unset it"),
            (getattr(llm_args, "enable_sleep", False), "enable_sleep",
             "unset it: new weights would not be seen"),
            (getattr(llm_args, "ray_worker_extension_cls", None), "ray_worker_extension_cls",
             "unset it: new weights would not be seen"),
            (_of(llm_args, "enable_attention_dp") and not options.attention_dp,
             "enable_attention_dp", f'give {ENVIRONMENT} "attention_dp": true')):
        if refused:
            raise ValueError(f"kvkeep: the connector does not take this {what}: {way_out}, "
                             f"{_WAY_OUT}")


def _of(owner, name):
    try:
        return getattr(owner, name)
    except AttributeError:
        raise ValueError(f"kvkeep: the engine's arguments have no {name}, which decides whether "
                         f"its KV can be kept: use a kvkeep for this version, {_WAY_OUT}") from None


def ranks_of(llm_args):
    """Returns how many ranks have parts of one request's KV."""
    return 1 if llm_args.enable_attention_dp else llm_args.tensor_parallel_size or 1


def identity_of(llm_args, version, options, logger):
    """Returns (Identity, a readable name of the model). Raises ValueError if nothing identifies the
    weights."""
    model = str(llm_args.model)
    load = str(getattr(llm_args.load_format, "name", llm_args.load_format)).lower()
    unreadable = None if load == "auto" else f"load_format {load} does not read them from its files"
    found = weights_of(model, options.weights, revision=getattr(llm_args, "revision", None),
                       unreadable=unreadable)
    check_older_than_engine(found, model)
    try:
        identity = Identity(
            "tensorrt_llm", version, weights=found.id, name=options.name, load=load,
            args=_facts(llm_args, _NOT_OF_KV),
            cache=_facts(llm_args.kv_cache_config, _NOT_OF_KV_OF_THE_CACHE))
    except TypeError as why:
        raise ValueError(f"kvkeep: an argument of this engine has no stable form: {why}: unset it, "
                         f"{_WAY_OUT}") from why
    name = identity.name_of(_config(model, getattr(llm_args, "revision", None)))
    logger.info("kvkeep: this engine's KV is %s, of the weights %s", name, found.id)
    logger.debug("kvkeep: it is made of %s", identity)
    return identity, name


def _facts(owner, without):
    return {name: canonical(value, name) for name, value in vars(owner).items()
            if not name.startswith("_") and name not in without}


def _config(model, revision):
    """Returns the model's configuration, or an empty one: it only makes a name readable."""
    try:
        said = json.loads(pathlib.Path(locate(model, revision), "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


# ---- keys


def seed_of(request):
    """Returns the bytes before a request's first block, or None for a request whose tokens and salt
    do not say all that its KV depends on."""
    for name in _NOT_IN_KEYS:
        value = getattr(request, name, None)
        if value is not None and not (hasattr(value, "__len__") and len(value) == 0):
            return None
    salt = request.cache_salt
    if salt is not None and not isinstance(salt, str):
        return None
    return hashlib.sha256(b"kvkeep trtllm 1 " + json.dumps(salt).encode()).digest()


def next_key(parent, tokens):
    """Returns the key of the block of these tokens, after the one with the key `parent`."""
    return hashlib.sha256(parent + array.array("q", tokens).tobytes()).digest()
