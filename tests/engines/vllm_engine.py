"""A vLLM engine on a CPU, for tests and for tools/engine-bench: how it is made, and of what.

It is made in a process of its own (engine_process.py) with ENVIRONMENT. The asker's process imports
this module too, so only functions import vLLM. KVKEEP_TEST_GPU=1: on a GPU, with vLLM's own kernels
(tools/gpu-check-engines).
"""

import json
import os

ON_A_GPU = os.environ.get("KVKEEP_TEST_GPU") == "1"
# One thread a rank, on any core: threads that wait for each other spin, and a test has neighbours.
# vllm_on_cpu reaches every process of vLLM as its plugin, by the folder of its metadata.
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR",
               "VLLM_NO_USAGE_STATS": "1"}
if not ON_A_GPU:
    ENVIRONMENT.update({"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_CI_ENV": "1", "OMP_NUM_THREADS": "1",
                        "VLLM_CPU_OMP_THREADS_BIND": "nobind"})
KVKEEP = {"type": "KvkeepTier", "module_path": "kvkeep.vllm"}
BLOCK_TOKENS, BLOCKS_PER_CHUNK = 32, 4
CHUNK_TOKENS = BLOCK_TOKENS * BLOCKS_PER_CHUNK
ARGUMENTS = {"dtype": "bfloat16" if ON_A_GPU else "float32", "enforce_eager": True, "seed": 0,
             "block_size": BLOCK_TOKENS, "max_model_len": 2048,
             "kv_cache_memory_bytes": 64 << 20, "max_num_seqs": 4,
             "compilation_config": {} if ON_A_GPU else {"custom_ops": ["none"]}}


def offloading(tiers, cpu_bytes=64 << 20):
    """Returns a KV connector: vLLM's own offloading, with those tiers below `cpu_bytes` of
    memory."""
    ours = {"kv_connector": "KvkeepOffloadingConnector", "kv_connector_module_path": "kvkeep.vllm"}
    kvkeep = any(tier["type"] == KVKEEP["type"] for tier in tiers)
    return {**(ours if kvkeep else {"kv_connector": "OffloadingConnector"}), "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "spec_name": "HostSpec", "spec_module_path": "vllm_on_cpu",
                "cpu_bytes_to_use": cpu_bytes, "blocks_per_chunk": BLOCKS_PER_CHUNK,
                "secondary_tiers": tiers}}


def direct(**options):
    """Returns a KV connector: between vLLM's KV memory and the daemon."""
    return {"kv_connector": "KvkeepConnector", "kv_connector_module_path": "kvkeep.vllm_direct",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"tokens_per_chunk": CHUNK_TOKENS, **options}}


def connector_of(kind, **options):
    """Returns a KV connector: "direct", "tier", or None for none. options: kvkeep's."""
    if kind is None:
        return None
    return direct(**options) if kind == "direct" else offloading([{**KVKEEP, **options}])


def make(model, connector=None, events=None, **other):
    """connector: as offloading() returns it, or None. events: where the engine publishes those of
    its KV, or None. other: arguments of vllm.LLM."""
    if not ON_A_GPU:
        import vllm_on_cpu  # noqa: F401  # pylint: disable=unused-import
    from vllm import LLM
    from vllm.config import KVEventsConfig, KVTransferConfig

    if events is not None:
        other["kv_events_config"] = KVEventsConfig(enable_kv_cache_events=True, publisher="zmq",
                                                   endpoint=events)
    return LLM(**{
        "model": model, "skip_tokenizer_init": True, **ARGUMENTS,
        "kv_transfer_config": connector and KVTransferConfig(**connector), **other})


def serve_arguments(model, port, connector=None, **other):
    """Returns the same for the command line of vLLM's OpenAI server. The model has a tokenizer."""
    flags = {"model": model, "served_model_name": "m", "host": "127.0.0.1", "port": port,
             **ARGUMENTS, "enable_prompt_tokens_details": True, "disable_uvicorn_access_log": True,
             **other}
    if connector is not None:
        flags["kv_transfer_config"] = connector
    return as_flags(flags)


def as_flags(arguments):
    """Returns arguments of vllm.LLM as words of vLLM's command line."""
    line = []
    for name, value in arguments.items():
        line.append("--" + name.replace("_", "-"))
        if value is not True:
            line.append(json.dumps(value) if isinstance(value, dict) else str(value))
    return line


def sampling(tokens):
    """Returns greedy sampling of this many tokens."""
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=tokens, detokenize=False, ignore_eos=True)
