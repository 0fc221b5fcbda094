"""What a report says of the machine and of the run: the keys of "about". Reads /proc and /sys."""

import os
import re

from memory import Pages

TRIED_BYTES = 8 << 20


def _first(path, pattern):
    """What the pattern's group finds first; "": nothing."""
    try:
        with open(path, encoding="utf-8") as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""


def available_memory_bytes():
    """That could be had now, what can be dropped included; 0: not known."""
    return int(_first("/proc/meminfo", r"^MemAvailable: +(\d+)") or 0) << 10


def _shared_page_kind():
    """What the arena is of, and the regions: memory that is made as they are."""
    return "2 MiB" if Pages(TRIED_BYTES).are_huge() else "4 KiB"


def _ordinary_page_kind():
    """Of memory that nobody asked for huge pages for, as fio's buffers."""
    always = _first("/sys/kernel/mm/transparent_hugepage/enabled", r"(\[always\])")
    return "2 MiB where they fit" if always else "4 KiB"


def about(options, plan, took_s):
    nvme = plan.nvme
    return {"cpu": _first("/proc/cpuinfo", r"^model name\s*: (.*)"), "cores": os.cpu_count(),
            "kernel": os.uname().release, "revision": options.revision or "unknown",
            "quick": options.quick, "rounds": plan.rounds, "slice_seconds": plan.seconds,
            "capacity_bytes": plan.capacity_bytes, "region_bytes": plan.region_bytes,
            "took_seconds": took_s,
            "pages": {"kvkeep": _shared_page_kind(), "fio": _ordinary_page_kind()},
            "nvme": {"round_bytes": nvme.round_bytes, "read_bytes": nvme.read_bytes,
                     "g2_bytes": nvme.g2_bytes, "slice_seconds": nvme.seconds,
                     "fio": "io_uring, O_DIRECT, registered buffers, depth 16, blocks of 1 and "
                            "4 MiB",
                     "file_state": "reads: written once, whole; first fills: set apart, never "
                                   "written; overwrites: written before"}}
