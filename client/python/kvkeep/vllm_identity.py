"""vLLM: the parts of an engine's configuration that change its KV.

engine_facts.py has the versions whose configuration was read, and what each lacks. Any other
missing value is an error, not a default.
"""

import dataclasses
import os
import pathlib
import platform
import sys

from kvkeep import weights as weights_option
from kvkeep.engine import PrefillOptions
from kvkeep.engine_versions import field
from kvkeep.identity import Identity, model_config, rope_depends_on_length
from kvkeep.vllm_adapters import Adapters  # noqa: F401  # where others look for it
from kvkeep.weights import beside, check_older_than_engine, weights_of

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
                  "video_pruning_rate", "video_pruning_method", "language_model_only",
                  "mm_encoder_attn_dtype", "mm_encoder_attn_backend", "mm_encoder_tp_mode",
                  "mm_device_do_normalize")
_OF_A_DRAFTER = ("method", "num_speculative_tokens", "quantization", "kv_cache_dtype",
                 "parallel_drafting", "disable_eagle_block_drop", "attention_backend",
                 "code_revision")
# Each rank chooses the backend of each layer; the scheduler, which makes the identity, does not
# hear of it. The choice follows from the model, the page's spec and these, on a platform
# (_platform).
_OF_ATTENTION = ("backend", "backend_per_kind", "indexer_kv_dtype", "flash_attn_version",
                 "use_trtllm_attention", "use_non_causal", "minimax_m3_msa_decode_backend",
                 "minimax_m3_indexer_cp")
# ROCm's backends lay out one spec in several ways, which these of vllm.envs choose.
_OF_ROCM = ("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "VLLM_ROCM_FP8_MFMA_PAGE_ATTN",
            "VLLM_ROCM_USE_AITER", "VLLM_ROCM_AITER")  # the last two: all names with this beginning
# Options that decide how an engine reads an adapter's files.
_OF_ADAPTERS = ("lora_dtype", "target_modules", "enable_tower_connector_lora",
                "enable_mixed_moe_lora_format", "enable_moe_shared_loras")


@dataclasses.dataclass(frozen=True)
class VllmOptions(PrefillOptions):
    """weights: "auto", a fingerprint of their files; "full", a fingerprint of every byte; or
    "name:X", mandatory where no files can be read.

    on_reset: the meaning of a reset of vLLM's prefix cache. "epoch": the weights may have changed,
    so nothing from before is found, and other engines find nothing from then on. "ignore": only
    observed changes (vllm_weights.py) begin an epoch.

    risk_unseen_weight_updates: an engine that was made for updates of its weights (weight transfer,
    a worker extension) shares nothing from its start. True: it shares until an update is seen. An
    unreported update then gives wrong tokens to every engine that shares.

    multimodal: "refused": no chunk of a request with images, audio or video is found or kept.
    "trusted": they are, by the items' identity in vLLM, which a user may choose (`uuid`): all users
    are trusted not to take another user's.
    """

    weights: str = "auto"
    on_reset: str = "epoch"
    risk_unseen_weight_updates: bool = False
    multimodal: str = "refused"

    def __post_init__(self):
        super().__post_init__()
        weights_option.check_option(self.weights)
        if self.on_reset not in ("epoch", "ignore"):
            raise ValueError(f'on_reset: "epoch" or "ignore", not {self.on_reset!r}')
        if not isinstance(self.risk_unseen_weight_updates, bool):
            raise ValueError("risk_unseen_weight_updates: true or false, not "
                             f"{self.risk_unseen_weight_updates!r}")
        if self.multimodal not in ("refused", "trusted"):
            raise ValueError(f'multimodal: "refused" or "trusted", not {self.multimodal!r}')


def check_executor(vllm_config):
    """Raises ValueError if each rank has a scheduler of its own. vLLM needs these to decide alike,
    but each hears of the daemon at another time."""
    parallel = vllm_config.parallel_config
    if (getattr(parallel, "distributed_executor_backend", None) == "external_launcher"
            and parallel.world_size > 1):
        raise ValueError(
            "kvkeep: --distributed-executor-backend external_launcher with "
            f"{parallel.world_size} ranks has a scheduler for each rank, and lookups would make "
            'them differ: use "mp" or "ray", or one rank')


def check_hashes(vllm_config, logger):
    """Raises ValueError if a user can make two prompts with one block hash."""
    cache = vllm_config.cache_config
    if cache.prefix_caching_hash_algo not in _CRYPTOGRAPHIC:
        raise ValueError(
            f"kvkeep: --prefix-caching-hash-algo {cache.prefix_caching_hash_algo}: who writes a "
            "prompt could give it the key of another's; chunks outlive the engine here, so only "
            f"{' and '.join(_CRYPTOGRAPHIC)} are taken")
    if not cache.enable_prefix_caching:
        logger.warning("kvkeep: prefix caching is off: nothing will be found")


def hash_seed():
    """Returns the value as vLLM will resolve it, which happens only after connectors were made."""
    return os.environ.get("PYTHONHASHSEED", _DEFAULT_SEED)


def identity_of(vllm_config, kv_cache_config, version, options, logger, specs=None):
    """Returns (Identity, a readable name of the model). specs: replace those of the KV groups.
    Raises ValueError if nothing identifies the weights."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    config = model_config(model.hf_config)
    weights = _weights(model, vllm_config.load_config, options.weights)
    check_older_than_engine(weights, model.model)
    parallel, groups = vllm_config.parallel_config, kv_cache_config.kv_cache_groups
    identity = Identity(
        "vllm", version, weights=weights.id, name=options.name, config=config,
        max_model_len=model.max_model_len if rope_depends_on_length(config) else None,
        model={name: getattr(model, name) for name in _OF_THE_MODEL},
        multimodal=_multimodal(model, vllm_config.load_config),
        cache={name: getattr(cache, name) for name in _OF_THE_CACHE},
        load=(vllm_config.load_config.load_format,
              vllm_config.load_config.model_loader_extra_config),
        groups=[{"layers": group.layer_names, "spec": spec} for group, spec in zip(
            groups, specs or [group.kv_cache_spec for group in groups])],
        parallel={"interleave": parallel.cp_kv_cache_interleave_size,
                  "experts": parallel.enable_expert_parallel,
                  "layers": os.environ.get("VLLM_PP_LAYER_PARTITION")},
        attention={name: field("vllm", vllm_config.attention_config, "AttentionConfig", name)
                   for name in _OF_ATTENTION},
        platform=_platform(), host=_cpu_layout(),
        adapters=_adapters(vllm_config.lora_config, model.dtype),
        drafter=_drafter(vllm_config, options.weights),
        hashes=(cache.prefix_caching_hash_algo, hash_seed(),
                field("vllm", vllm_config, "VllmConfig", "num_hash_lookahead_tokens")))
    name = identity.name_of(config)
    logger.info("kvkeep: this engine's KV is %s, of the weights %s", name, weights.id)
    logger.debug("kvkeep: it is made of %s", identity)
    return identity, name


def _multimodal(model, load):
    """Returns the facts of multimodal input, with the files that define how images become input: a
    name of the weights does not cover these.
    """
    if model.multimodal_config is None:
        return None
    scales = getattr(model.multimodal_config, "mm_encoder_fp8_scale_path", None)
    return {**_picked(model.multimodal_config, _OF_MULTIMODAL),
            "scales": scales and pathlib.Path(scales).read_bytes(),
            "processor": beside(model.model, model.revision, load.download_dir)}


def _adapters(config, model_dtype):
    """Returns the values of a LoRAConfig that are not its defaults; None: all are. Engines with
    LoRA and without share the KV of requests that have no adapter."""
    if config is None:
        return None
    return {name: value for name, value in _picked(config, _OF_ADAPTERS).items()
            if value not in (None, False, "auto", model_dtype)} or None


def _platform():
    """Returns the facts that choose attention backends, besides the configuration."""
    platforms = sys.modules.get("vllm.platforms")  # a real engine has it by now
    if platforms is None:
        return None
    current = platforms.current_platform
    capability = current.get_device_capability()
    if capability is not None:
        device = capability.as_version_str()
    elif current.is_unspecified():  # parts of vLLM without an engine
        device = None
    else:
        device = current.get_device_name()
    said = {"platform": current.device_name, "device": device}
    if current.is_rocm():
        from vllm import envs

        said["environment"] = {name: getattr(envs, name)
                               for name in envs.environment_variables if name.startswith(_OF_ROCM)}
    return said


def _cpu_layout():
    """Returns the facts of the machine by which a CPU's kernels lay out K for its instructions
    (v1/attention/backends/cpu_attn.py, _get_attn_isa). None on GPUs."""
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
    """Returns the facts of a draft model with KV of its own; prompt lookup has none."""
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
