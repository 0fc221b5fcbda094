"""SGLang: kvkeep as a storage backend of HiCache.

    --enable-hierarchical-cache --hicache-mem-layout page_first
    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
      "backend_name": "kvkeep", "module_path": "kvkeep.sglang", "class_name": "KvkeepStorage",
      "interface_v1": 1}'

sglang_storage.py has it. With an unknown version SGLang runs as without kvkeep (sglang_idle.py).
"""

from kvkeep.engine_versions import is_taken

if is_taken("sglang"):
    from kvkeep.sglang_storage import KvkeepStorage
else:
    from kvkeep.sglang_idle import IdleStorage as KvkeepStorage

__all__ = ["KvkeepStorage"]
