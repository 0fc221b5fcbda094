"""SGLang: the parts of an engine's configuration that change its KV.

engine_facts.py has the versions whose configuration was read, and what each lacks. Any other
missing value is an error, not a default.
"""

from sglang.srt.arg_groups.model_override_base import resolved_view
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.runtime_context import get_memory, get_server_args, get_serving

from kvkeep.engine_versions import field
from kvkeep.identity import Identity, model_config, rope_depends_on_length
from kvkeep.sglang_multimodal import check_text_only
from kvkeep.weights import check_older_than_engine, fingerprint, locate, weights_of

# Loaders that read the weights from the model's own files.
_READABLE_LOADERS = frozenset(("auto", "safetensors", "pt", "npcache", "mistral", "bitsandbytes",
                               "layered", "gguf"))
_OF_THE_SERVER = ("kv_cache_dtype", "quantization", "quantization_param_path", "modelopt_quant",
                  "quantize_and_serve", "rl_quant_profile", "model_impl",
                  "json_model_override_args", "qsa_indexer_dtype", "page_size",
                  "enable_page_major_kv_layout", "enable_unified_memory", "language_only",
                  "speculative_algorithm", "speculative_draft_kv_cache_dtype",
                  "speculative_draft_model_quantization")


def identity_of(version, options, logger):
    """Returns (Identity, a readable name of the model). Raises ValueError if nothing identifies the
    weights, or if users can choose keys."""
    server = resolved_view(get_server_args())
    model = ModelConfig.from_server_args(get_server_args())
    check_text_only(model, options.multimodal)
    config = model_config(model.hf_config)
    weights = _weights(server.model_path, server.revision, server, options.weights)
    check_older_than_engine(weights, server.model_path)
    draft = server.speculative_draft_model_path
    identity = Identity(
        "sglang", version, weights=weights.id, name=options.name, config=config, dtype=model.dtype,
        context_length=model.context_len if rope_depends_on_length(config) else None,
        load=(server.load_format, server.model_loader_extra_config, server.custom_weight_loader),
        server={name: field("sglang", server, "ServerArgs", name) for name in _OF_THE_SERVER},
        drafter=draft and _weights(draft, server.speculative_draft_model_revision, server,
                                   options.weights).id,
        adapters=_adapters(server.lora_paths))
    name = identity.name_of(config)
    logger.info("kvkeep: this engine's KV is %s, of the weights %s", name, weights.id)
    logger.debug("kvkeep: it is made of %s", identity)
    return identity, name


def generates():
    """Returns whether the engine's forwards are those of a generating model."""
    return ModelConfig.from_server_args(get_server_args()).is_generation


def kv_heads(pool):
    """Returns how many heads of K and V the whole model has in the pool of this name. None: that
    pool has no heads, or SGLang does not say how many."""
    model = ModelConfig.from_server_args(get_server_args())
    counts = {"kv": model.get_num_kv_heads, "swa": model.get_swa_num_kv_heads}
    return counts[pool](1) if pool in counts else None


def weight_version():
    """Returns SGLang's version of the weights, which changes with them in a running engine, if the
    updater reports it."""
    return get_serving().weight_version


def has_storage_from_start():
    """Returns whether HiCache's storage was requested when the engine was started. For a storage
    that is attached later, SGLang says so only after the attach."""
    return get_memory().hicache_storage_backend is not None


def _weights(path, revision, server, option):
    unreadable = None
    if server.load_format not in _READABLE_LOADERS or server.custom_weight_loader:
        unreadable = f"--load-format {server.load_format} does not read them from its files"
    if server.weight_cache_mode != "off":  # that daemon may have read the files long ago
        unreadable = f"--weight-cache-mode {server.weight_cache_mode} takes them from a daemon"
    return weights_of(path, option, revision=revision, cache_dir=server.download_dir,
                      unreadable=unreadable)


def _adapters(paths):
    """Returns the initial adapters by name and content; SGLang's page keys have them by name and
    path. Keys of adapters that are loaded later are this process's alone."""
    found = {}
    for adapter in paths or ():
        try:
            content = fingerprint(locate(adapter.lora_path)).id
        except (OSError, ValueError) as why:
            raise ValueError(f"kvkeep: what is in the adapter {adapter.lora_name!r} cannot be "
                             f"told: {why}; load it when the engine runs") from why
        found[adapter.lora_name] = content
    return found
