"""The targets of a comparison, and whether it met them: the rules in one small table.

A rule is about the median of the rounds' ratios. A miss changes no exit code. Pure functions.
"""

from dataclasses import dataclass

from contest import GRPC, LMCACHE, LOCAL, MEMCPY, MOONCAKE, STAGING, STREAM
from figures import MIB, bytes_text, median
from nvme import BARE, PARTS

ANY = None
FIO = "fio"
# Operation, its size and batch, who beside whom, and at least how many times as fast.
RULES = (("get", 32 * MIB, 1, LOCAL, MEMCPY, 0.95),
         ("get", 4 * MIB, 8, LOCAL, MEMCPY, 0.95),
         ("get", 4 * MIB, 1, LOCAL, MEMCPY, 0.9),
         ("put", ANY, ANY, STAGING, MEMCPY, 0.8),
         ("get", 4 * MIB, 1, GRPC, STREAM, 0.9),
         ("put", 4 * MIB, 1, GRPC, STREAM, 0.9),
         ("read", ANY, 1, "kvkeep", FIO, 0.95),
         ("first fill", ANY, 1, "kvkeep", FIO, 0.9),
         ("overwrite", ANY, 1, "kvkeep", FIO, 0.9),
         ("read", ANY, 1, "kvkeep", BARE, 0.9),
         ("first fill", ANY, 1, "kvkeep", BARE, 0.9),
         ("overwrite", ANY, 1, "kvkeep", BARE, 0.9),
         ("first put", ANY, ANY, LOCAL, LMCACHE, 3),
         ("put", MIB, 1, LOCAL, LMCACHE, 1.5),
         ("lookup+get", ANY, ANY, LOCAL, LMCACHE, 1),
         ("lookup", ANY, ANY, LOCAL, LMCACHE, 100),
         ("get", ANY, ANY, LOCAL, MOONCAKE, 1),
         ("lookup+get", ANY, ANY, LOCAL, MOONCAKE, 1),
         ("lookup", ANY, ANY, LOCAL, MOONCAKE, 1),
         ("put", ANY, ANY, LOCAL, MOONCAKE, 0.7))


@dataclass
class Verdict:
    what: str  # "get 8 x 4.0 MiB"
    ours: str
    theirs: str
    target: float  # at least so many times theirs
    measured: float
    verdict: str  # "met", "missed"; "refused": what was measured is not what the rule is about


def call_text(discipline):
    size = bytes_text(discipline.size)
    return size if discipline.batch == 1 else f"{discipline.batch} x {size}"


def _verdict(what, ours, theirs, target, ratios, refused=False):
    measured = median(ratios)
    outcome = "met" if measured >= target else "missed"
    return Verdict(what, ours, theirs, target, measured, "refused" if refused else outcome)


def judged(disciplines, nvme):
    """A verdict for each rule and each of its sizes that was measured."""
    verdicts = []
    for what, size, batch, ours, theirs, target in RULES:
        for one in disciplines:
            ratios = one.times_as_fast(ours, theirs)
            if (one.operation == what and size in (ANY, one.size) and batch in (ANY, one.batch)
                    and ratios):
                verdicts.append(_verdict(f"{what} {call_text(one)}", ours, theirs, target, ratios))
        for one in nvme if what in PARTS else ():
            part = one.parts[what]
            if ratios := part.of_bare() if theirs == BARE else part.of_fio():
                verdicts.append(_verdict(f"NVMe {what} {bytes_text(one.size)}", ours, theirs,
                                         target, ratios, what == "read" and one.refused))
    return verdicts
