"""A report's facts about the machine and the run: the keys of "about". Reads /proc and /sys."""

import os
import pathlib
import re

from memory import Pages

TRIED_BYTES = 8 << 20


def _first(path, pattern):
    """The first match of the pattern's group; "": none."""
    file = pathlib.Path(path)
    found = re.search(pattern, file.read_text() if file.exists() else "", re.MULTILINE)
    return found[1] if found else ""


def available_memory_bytes():
    """Bytes that could be had now, droppable caches included; 0: not known."""
    return int(_first("/proc/meminfo", r"^MemAvailable: +(\d+)") or 0) << 10


def about(options, plan, took_s):
    nvme = plan.nvme
    # The page size of the arena and the regions, from memory made as they are; then that of memory
    # without a request for huge pages, as fio's buffers.
    shared = "2 MiB" if Pages(TRIED_BYTES).are_huge() else "4 KiB"
    always = _first("/sys/kernel/mm/transparent_hugepage/enabled", r"(\[always\])")
    ordinary = "2 MiB where they fit" if always else "4 KiB"
    return {"cpu": _first("/proc/cpuinfo", r"^model name\s*: (.*)"), "cores": os.cpu_count(),
            "kernel": os.uname().release, "revision": options.revision or "unknown",
            "quick": options.quick, "rounds": plan.rounds, "slice_seconds": plan.seconds,
            "capacity_bytes": plan.capacity_bytes, "region_bytes": plan.region_bytes,
            "took_seconds": took_s,
            "pages": {"kvkeep": shared, "fio": ordinary},
            "nvme": {"round_bytes": nvme.round_bytes, "read_bytes": nvme.read_bytes,
                     "g2_bytes": nvme.g2_bytes, "slice_seconds": nvme.seconds,
                     "fio": "io_uring, O_DIRECT, registered buffers, depth 16, blocks of 1 and "
                            "4 MiB",
                     "file_state": "reads: written once, whole; first fills: set apart, never "
                                   "written; overwrites: written before"}}
