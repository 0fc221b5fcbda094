"""SGLang: its KV pool and kvkeep, without a host pool of SGLang's in between.

    --enable-unified-cache-external-linker --unified-cache-external-linker-backend dynamic
    --unified-cache-external-linker-config '{"linker": "KvkeepLinker",
      "linker_module_path": "kvkeep.sglang_direct", "linker_extra_config": {}}'

sglang_linker.py has it. With an unknown version SGLang runs as without kvkeep
(sglang_idle_linker.py).
"""

from kvkeep.engine_versions import engine_version, is_taken, lacks

if not is_taken("sglang"):
    from kvkeep.sglang_idle_linker import IdleLinker as KvkeepLinker
elif lacks("sglang", "linker"):
    raise ValueError(f"kvkeep: SGLang {engine_version('sglang')} takes no linker from elsewhere: "
                     "use HiCache with the backend kvkeep.sglang (--enable-hierarchical-cache)")
else:
    from kvkeep.sglang_linker import KvkeepLinker

__all__ = ["KvkeepLinker"]
