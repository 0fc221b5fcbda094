"""Records of engines: the classes that adapters extend, get or return.

A record is a stub of a module: classes, fields, functions and defaults, without bodies, and members
of enums. It is read from the engine's source, which is never imported. digest_of() tells whether an
installed engine looks like a recorded one (engine_facts.py). Tests run records in place of an
engine that is not installed.
"""

import ast
import hashlib

# Module: its classes that our adapters extend, get or return. If they call only a few methods of a
# class, those methods.
WANTED = {
    "lmcache.v1.distributed.api": ("ObjectKey", "MemoryLayoutDesc"),
    "lmcache.v1.distributed.internal_api": ("L2StoreResult", "L1MemoryDesc"),
    "lmcache.v1.distributed.l2_adapters.base": ("L2AdapterInterface",),
    "lmcache.v1.kv_layer_groups": (
        "KernelGroupInfo", "ObjectGroupInfo", "KVLayerGroupsManager.__init__",
        "KVLayerGroupsManager._detect_object_groups"),
    "lmcache.v1.platform.event_notifier": ("EventNotifier", "create_event_notifier"),
    "sglang.srt.configs.model_config": (
        "ModelConfig.from_server_args", "ModelConfig.get_num_kv_heads",
        "ModelConfig.get_swa_num_kv_heads"),
    # Functions that sglang_changes.py watches. It must know every method of WeightUpdater that
    # writes weights.
    "sglang.srt.elastic_ep.expert_backup_client": ("ExpertBackupClient.update_weights",),
    "sglang.srt.managers.cache_controller": ("HiCacheController.reset",),
    "sglang.srt.managers.scheduler_components.weight_updater": ("_export_static_state",),
    "sglang.srt.model_executor.model_runner_components.weight_updater": ("WeightUpdater",),
    "sglang.srt.utils.weight_checker": ("WeightChecker._reset_tensors",),
    "sglang.srt.mem_cache.cache_init_params": ("CacheInitParams",),
    "sglang.srt.mem_cache.hicache_storage": (
        "HiCacheStorageConfig", "HiCacheStorageExtraInfo", "PoolName", "PoolHitPolicy",
        "PoolTransfer", "PoolTransferResult", "HiCacheStorage"),
    "sglang.srt.mem_cache.memory_pool": ("KVCache", "MHATokenToKVPool"),
    "sglang.srt.mem_cache.pool_host.mha": (
        "MHATokenToKVPoolHost.get_page_buffer_meta",
        "MHATokenToKVPoolHost.get_split_heads_page_buffer_meta"),
    "sglang.srt.mem_cache.unified_cache.linker_config": ("UnifiedCacheLinkerConfig",),
    "sglang.srt.mem_cache.unified_cache.unified_cache_linker": (
        "LayerWiseLoadCounter", "UnifiedCacheLinker", "UnifiedCacheLinkerWrapper"),
    "sglang.srt.observability.metrics_collector": ("StorageMetrics",),
    "tensorrt_llm._torch.pyexecutor.connectors.kv_cache_connector": (
        "RequestData", "SchedulerOutput", "KvCacheConnectorWorker", "KvCacheConnectorScheduler"),
    "tensorrt_llm._torch.pyexecutor.connectors.kv_cache_layout": (
        "KvCacheBufferRef", "KvCacheRegion", "KvCacheLayerGroupLayout", "KvCacheLayout"),
    "transformers.cache_utils": (
        "DynamicLayer", "DynamicCache", "Cache.get_seq_length", "Cache.update"),
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector": ("OffloadingConnector",),
    "vllm.distributed.kv_transfer.kv_connector.v1.base": (
        "KVConnectorTransferResults", "SupportsHMA", "KVConnectorRole", "KVConnectorBase_V1"),
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.common": (
        "TransferJob", "OffloadingConnectorMetadata", "OffloadingWorkerMetadata"),
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.config": ("build_offloading_config",),
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler": (
        "TransferJobStatus", "GroupOffloadConfig", "SchedulerOffloadConfig", "RequestGroupState",
        "RequestOffloadState", "OffloadingConnectorScheduler"),
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker": (
        "OffloadingConnectorWorker",),
    "vllm.v1.core.block_pool": ("BlockPool",),
    "vllm.v1.executor.abstract": ("Executor",),
    "vllm.v1.kv_cache_layout": ("KVCacheLayout",),
    "vllm.v1.kv_offload.base": (
        "ScheduleEndContext", "LoadStoreSpec",
        "PrepareStoreOutput", "OffloadingManager", "BlockIDsLoadStoreSpec",
        "GPULoadStoreSpec", "CanonicalKVCacheTensor", "CanonicalKVCacheRef", "CanonicalKVCaches",
        "OffloadingWorker", "OffloadingSpec", "make_offload_key", "get_offload_group_idx"),
    # Calls of workers, and functions that write weights: vllm_weights.py has to know all of them.
    "vllm.v1.worker.gpu_worker": ("Worker",),
    "vllm.v1.worker.worker_base": ("WorkerBase",),
    "vllm.v1.kv_offload.tiering.base": ("TransferJob", "JobResult", "SecondaryTierManager"),
}
# Module: classes of which adapters read fields. The names of all their fields count: a new one may
# change KV, and an identity would not have it.
FIELDS = {
    "sglang.srt.arg_groups.fields.lora": ("Lora",),
    "sglang.srt.arg_groups.fields.memory": ("Memory",),
    "sglang.srt.arg_groups.fields.model": ("Model",),
    "sglang.srt.arg_groups.fields.spec": ("Spec",),
    "vllm.config.attention": ("AttentionConfig",),
    "vllm.config.cache": ("CacheConfig",),
    "vllm.config.lora": ("LoRAConfig",),
    "vllm.config.model": ("ModelConfig",),
    "vllm.config.multimodal": ("MultiModalConfig",),
    "vllm.config.parallel": ("ParallelConfig",),
    "vllm.config.speculative": ("SpeculativeConfig",),
    "vllm.config.vllm": ("VllmConfig",),
    "vllm.v1.kv_cache_interface": (
        "KVCacheSpec", "AttentionSpec", "FullAttentionSpec", "MLAAttentionSpec",
        "SlidingWindowSpec", "KVCacheGroupSpec", "KVCacheConfig"),
    "vllm.v1.kv_offload.base": ("OffloadingEvent", "OffloadingCounterMetadata", "ReqContext"),
    "vllm.v1.kv_offload.config": (
        "OffloadingCacheConfig", "OffloadingConfig", "OffloadingGroupConfig",
        "OffloadingModelConfig", "OffloadingParallelConfig"),
}
# Attributes that we read and that only the class's __init__ defines.
ATTRIBUTES = {
    "BlockPool": ("blocks", "num_gpu_blocks"),
    "KVCache": ("layer_num", "page_size", "size", "store_dtype"),
    "KVLayerGroupsManager": ("_kernel_groups", "_lmcache_tokens_per_chunk"),
    "LayerWiseLoadCounter": ("num_layers",),
    "MHATokenToKVPool": ("k_buffer", "k_scale_buffer", "kv_cache_layout", "v_buffer"),
    "OffloadingConnectorScheduler": ("_jobs", "_req_status", "config"),
    "OffloadingConnectorWorker": ("_connector_worker_meta", "_load_jobs", "worker"),
}
HEAD = '''"""Recorded by tests/client/python/signatures.py; not to be changed by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
'''
_BASES = ("ABC", "int", "str", "Enum")
_KEPT = ("abstractmethod", "property", "staticmethod", "classmethod", "dataclass")


def _name(decorator):
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rsplit(".", maxsplit=1)[-1]


def _bare(node, indent=""):
    """Yields the lines of a function without its body."""
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base).removeprefix("enum.") for base in node.bases]
        yield from _decorators(node, indent)
        known = [base for base in bases if base in _BASES]
        yield f"class {node.name}({', '.join(known)}):" if known else f"class {node.name}:"
        for item in node.body:
            if "Enum" in known and isinstance(item, ast.Assign):
                yield "    " + ast.unparse(item)
            yield from _bare(item, "    ")
        yield from _attributes(node)
        yield "    ..."
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from _decorators(node, indent)
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield f"{indent}def {node.name}({ast.unparse(node.args)}){returns}: ..."
    elif isinstance(node, ast.AnnAssign) and "lambda" not in ast.unparse(node):
        yield indent + ast.unparse(node)


def _attributes(node):
    """Yields the class's ATTRIBUTES, as comments."""
    wanted = ATTRIBUTES.get(node.name, ())
    inits = [item for item in node.body if getattr(item, "name", None) == "__init__"]
    for inner in (inner for init in inits if wanted for inner in ast.walk(init)):
        targets = getattr(inner, "targets", [getattr(inner, "target", None)])
        for target in targets if isinstance(inner, (ast.Assign, ast.AnnAssign)) else ():
            name = ast.unparse(target)
            if name.startswith("self.") and name.removeprefix("self.") in wanted:
                kind = getattr(inner, "annotation", None)
                yield f"    # {name}{': ' + ast.unparse(kind) if kind else ''}"


def _decorators(node, indent):
    for decorator in node.decorator_list:
        if _name(decorator) in _KEPT:
            yield f"{indent}@{ast.unparse(decorator).rsplit('.', maxsplit=1)[-1]}"


def stub(source, names):
    """Returns the record of these classes and functions of a module's source."""
    lines = HEAD.splitlines()
    for node in ast.parse(source).body:
        for inner in [node] + (node.body if isinstance(node, ast.If) else []):
            wanted = [name.partition(".") for name in names]
            members = [member for owner, _, member in wanted
                       if owner == getattr(inner, "name", None)]
            if members and "" not in members:  # some methods of a class
                inner.body = [item for item in inner.body if getattr(item, "name", "") in members]
            if members:
                lines += ["", "", *_bare(inner)]
    return "\n".join(lines) + "\n"


def sources(package, folder):
    """Yields (module, its source) for each recorded module of a package; the source is None if the
    package has no such module.
    folder: a pathlib.Path, the package's own."""
    return _sources(WANTED, package, folder)


def _sources(modules, package, folder):
    for module in modules:
        name, *inside = module.split(".")
        if name != package:
            continue
        path = folder.joinpath(*inside)
        path = path.with_suffix(".py") if not path.is_dir() else path / "__init__.py"
        yield module, path.read_text(encoding="utf-8") if path.exists() else None


def digest_of(package, folder):
    """Returns the digest of all that is recorded of the package in that folder."""
    found = hashlib.sha256()
    for module, source in sources(package, folder):
        text = "absent" if source is None else stub(source, WANTED[module])
        found.update(f"{module}\0{text}\0".encode())
    for module, source in _sources(FIELDS, package, folder):
        fields = "absent" if source is None else "\n".join(_fields(source, FIELDS[module]))
        found.update(f"{module}\0{fields}\0".encode())
    return found.hexdigest()


def _fields(source, classes):
    """Yields "Class.field" of each field of these classes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name in classes:
            for item in node.body:
                if isinstance(item, ast.AnnAssign):
                    yield f"{node.name}.{ast.unparse(item.target)}"
