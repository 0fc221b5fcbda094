"""A made-up comparison: figures as a test needs them, with every part of it. Also adds
tools/compare to the path."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMPARE = ROOT / "tools/compare"
sys.path += [str(COMPARE), str(COMPARE / "contestants"), str(ROOT / "tools/measure"),
             str(ROOT / "client/python")]

from contest import Discipline  # noqa: E402
from figures import MIB  # noqa: E402
from measured import Slice  # noqa: E402
from nvme import BesideFio, NvmeResult  # noqa: E402


def slices(gb_per_s):
    """Returns rounds of this many GB/s, each a second of one call of the length that fits."""
    return [Slice(1, 1, int(rate * 1e9), p50_us=1e6 / rate, p99_us=1e6 / rate)
            for rate in gb_per_s]


def discipline(operation, size, batch, gb_per_s):
    """Makes a discipline of each peer's rate in every round."""
    return Discipline(operation, size, batch,
                      {name: slices([rate] * 3) for name, rate in gb_per_s.items()})


def nvme_result(size, share, from_nvme):
    """Returns kvkeep at `share` of fio, whose better blocks had 2 GB/s, and beside a bare loop with
    1.6."""
    def figures():
        return BesideFio(slices([2 * share] * 2), {MIB: [1, 1], 4 * MIB: [2, 2]}, [1.6, 1.6])

    result = NvmeResult(size, {part: figures() for part in ("read", "first fill", "overwrite")})
    result.promoted_bytes = from_nvme * sum(one.bytes for one in result.parts["read"].kvkeep)
    return result
