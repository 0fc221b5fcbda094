"""vLLM: what of an engine's configuration changes its KV, and which adapter a request has.

Read in vllm 0.33: kvkeep.identity.check_engine is asked first. What is missing in a configuration
is an error, and not a default.
"""

import concurrent.futures
import dataclasses
import os
import platform
import sys
import threading

from kvkeep import weights as weights_option
from kvkeep.engine import PrefillOptions
from kvkeep.identity import Identity, model_config, rope_depends_on_length
from kvkeep.weights import (check_older_than_engine, fingerprint, locate, signature,
                            weights_of)

# Loaders that read the weights from the model's own files.
_READABLE_LOADERS = frozenset(("auto", "hf", "safetensors", "pt", "npcache", "mistral",
                               "bitsandbytes", "fastsafetensors", "gguf"))
_CRYPTOGRAPHIC = ("sha256", "sha256_cbor")
_DEFAULT_SEED = "vllm-none-hash"  # v1/core/kv_cache_utils.py, where no PYTHONHASHSEED is set
_OF_THE_CACHE = ("cache_dtype", "kv_cache_dtype_skip_layers", "mamba_cache_dtype",
                 "mamba_ssm_cache_dtype", "mamba_cache_mode", "mamba_block_size", "sliding_window",
                 "kv_sharing_fast_prefill", "swa_bounded_replay", "kv_cache_layout")
_OF_THE_MODEL = ("dtype", "quantization", "quantization_config", "disable_sliding_window",
                 "model_impl", "model_class_overrides", "code_revision", "config_format",
                 "enable_prompt_embeds")
_OF_MULTIMODAL = ("mm_processor_kwargs", "media_io_kwargs", "interleave_mm_strings",
                  "video_pruning_rate", "video_pruning_method", "language_model_only")
_OF_A_DRAFTER = ("method", "num_speculative_tokens", "quantization", "kv_cache_dtype",
                 "parallel_drafting", "disable_eagle_block_drop")


@dataclasses.dataclass(frozen=True)
class VllmOptions(PrefillOptions):
    """weights: "auto", a fingerprint of their files; "full", of every byte of them; or "name:X",
    mandatory where no files can be read. on_reset: what a reset of vLLM's caches with the
    connector's means. "epoch": the weights may have changed, nothing from before is found, and
    nothing from then on is by others; "ignore": they never change in a running engine.
    """

    weights: str = "auto"
    on_reset: str = "epoch"

    def __post_init__(self):
        super().__post_init__()
        weights_option.check_option(self.weights)
        if self.on_reset not in ("epoch", "ignore"):
            raise ValueError(f'on_reset: "epoch" or "ignore", not {self.on_reset!r}')


def check_hashes(vllm_config, logger):
    """ValueError: block hashes are such that a user can make two prompts of one key."""
    cache = vllm_config.cache_config
    if cache.prefix_caching_hash_algo not in _CRYPTOGRAPHIC:
        raise ValueError(
            f"kvkeep: --prefix-caching-hash-algo {cache.prefix_caching_hash_algo}: who writes a "
            "prompt could give it the key of another's; chunks outlive the engine here, so only "
            f"{' and '.join(_CRYPTOGRAPHIC)} are taken")
    if not cache.enable_prefix_caching:
        logger.warning("kvkeep: prefix caching is off: nothing will be found")


def hash_seed():
    """As vLLM will resolve it; it does so only after connectors were made."""
    return os.environ.get("PYTHONHASHSEED", _DEFAULT_SEED)


def identity_of(vllm_config, kv_cache_config, version, options, logger, specs=None):
    """(Identity, what to call the model). specs: of the KV groups, in place of their own.
    ValueError: the weights can be told by nothing."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    config = model_config(model.hf_config)
    weights = _weights(model, vllm_config.load_config, options.weights)
    check_older_than_engine(weights, model.model)
    parallel, groups = vllm_config.parallel_config, kv_cache_config.kv_cache_groups
    identity = Identity(
        "vllm", version, weights=weights.id, name=options.name, config=config,
        max_model_len=model.max_model_len if rope_depends_on_length(config) else None,
        model={name: getattr(model, name) for name in _OF_THE_MODEL},
        multimodal=_picked(model.multimodal_config, _OF_MULTIMODAL),
        cache={name: getattr(cache, name) for name in _OF_THE_CACHE},
        load=(vllm_config.load_config.load_format,
              vllm_config.load_config.model_loader_extra_config),
        groups=[{"layers": group.layer_names, "spec": spec} for group, spec in zip(
            groups, specs or [group.kv_cache_spec for group in groups])],
        parallel={"interleave": parallel.cp_kv_cache_interleave_size,
                  "experts": parallel.enable_expert_parallel,
                  "layers": os.environ.get("VLLM_PP_LAYER_PARTITION")},
        attention={"indexer": vllm_config.attention_config.indexer_kv_dtype},
        host=_cpu_layout(),
        drafter=_drafter(vllm_config, options.weights),
        hashes=(cache.prefix_caching_hash_algo, hash_seed(),
                vllm_config.num_hash_lookahead_tokens))
    name = identity.name_of(config)
    logger.info("kvkeep: this engine's KV is %s, of the weights %s", name, weights.id)
    logger.debug("kvkeep: it is made of %s", identity)
    return identity, name


def _cpu_layout():
    """Of an engine on a CPU, whose kernels lay K out as its instructions like it
    (v1/attention/backends/cpu_attn.py, _get_attn_isa): what of the machine they look at. None on
    GPUs."""
    platforms = sys.modules.get("vllm.platforms")  # a real engine has it by now
    if platforms is None or not platforms.current_platform.is_cpu():
        return None
    import torch

    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        flags = next((line.partition(":")[2].split() for line in lines
                      if line.startswith(("flags", "Features", "isa"))), [])
    return {"machine": platform.machine(), "capability": torch.backends.cpu.get_cpu_capability(),
            "flags": sorted(flag for flag in flags
                            if flag.startswith(("amx", "avx512", "bf16", "i8mm", "sve", "rv")))}


def _weights(model, load, option):
    unreadable = None
    if load.load_format not in _READABLE_LOADERS:
        unreadable = f"--load-format {load.load_format} does not read them from its files"
    return weights_of(model.model, option, revision=model.revision, cache_dir=load.download_dir,
                      unreadable=unreadable)


def _drafter(vllm_config, option):
    """Of a draft model that has KV of its own; prompts looked up in prompts have none."""
    speculative = vllm_config.speculative_config
    if speculative is None:
        return None
    said = {name: getattr(speculative, name) for name in _OF_A_DRAFTER}
    draft = speculative.draft_model_config
    if draft is not None and draft.model != vllm_config.model_config.model:
        said["config"] = model_config(draft.hf_config)
        said["weights"] = _weights(draft, speculative.draft_load_config or vllm_config.load_config,
                                   option).id
    return said


def _picked(config, names):
    return None if config is None else {name: getattr(config, name, None) for name in names}


class Adapters:
    """Which content a request's LoRA adapter has. Files are read once, on a thread that is there
    for as long; what they are is asked of the file system for every request. Not thread-safe."""

    UNKNOWN = ""  # for good: no chunk of such a request is found or kept

    def __init__(self, logger):
        self._logger = logger
        self._known = {}  # adapter, as the engine names it: (signature, Future of an id)
        self._pool = None
        self._lock = threading.Lock()
        self.unknown = 0  # requests whose adapter could not be told

    def of(self, lora_request):
        """A Future: the id of its content, or UNKNOWN."""
        named = (lora_request.lora_int_id, lora_request.lora_name, lora_request.lora_path)
        try:
            path = locate(lora_request.lora_path)
            seen = signature(path)
        except (OSError, ValueError) as why:
            return self._refused(named, str(why))
        first, known = self._known.get(named, (None, None))
        if known is None:
            known = self._known[named] = (seen, self._read(named, path))
            return known[1]
        if first != seen:  # the engine may have the one or the other
            return self._refused(named, "its files changed after it was first used; load it under "
                                        "another path")
        return known

    def _read(self, named, path):
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(1, "kvkeep-adapters")

        def read():
            try:
                return fingerprint(path).id
            except (OSError, ValueError) as why:
                return self._refused(named, str(why)).result()

        return self._pool.submit(read)

    def _refused(self, named, why):
        with self._lock:
            self.unknown += 1
            first = self.unknown == 1
        if first:
            self._logger.warning("kvkeep: nothing is kept for the adapter %r: %s", named[1], why)
        refused = concurrent.futures.Future()
        refused.set_result(self.UNKNOWN)
        return refused

    def close(self):
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
