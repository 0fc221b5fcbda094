"""Made-up figures, as a test needs them. Also adds tools/bench to the path."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "tools/bench"), str(ROOT / "tools/measure")]

from measured import Measured  # noqa: E402
from series import Series, Usage  # noqa: E402

COUNTS = ("chunks", "bytes", "copied_bytes", "failed_ops", "verified_bytes", "wrong_bytes")


def histogram(*ns):
    """Returns it as a client answers it; below 128 ns each value has a bucket of its own."""
    return {"min": min(ns, default=0), "max": max(ns, default=0), "sum": sum(ns),
            "buckets": [[one, ns.count(one)] for one in sorted(set(ns))]}


def measured(ops, seconds=0.5, **others):
    wire = {"seconds": seconds, "ops": ops, **dict.fromkeys(COUNTS, 0), "first_failure": "",
            "client_cpu_seconds": 0.25, "latency": histogram(*range(1, ops + 1)),
            "first_piece": histogram()}
    return Measured({**wire, "chunks": 2 * ops, "bytes": 1000 * ops, **others})


def series(name, *rounds, daemon=False, **about):
    return Series(name, about, list(rounds), Usage() if daemon else None)
