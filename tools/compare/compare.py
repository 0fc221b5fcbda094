"""kvkeep beside what else keeps bytes, on this machine, in the same minutes: the command line.

tools/compare/run builds what this needs, and calls it. Tables go to standard output, progress to
standard error. Exit codes: 0 done; 1 failed, or wrong bytes came from anybody, or what was read
beside fio did not come from NVMe; 2 wrong usage, or something is not built. A figure below its
target changes nothing.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "measure"))

from about import about, available_memory_bytes  # noqa: E402
from arguments import several, within  # noqa: E402
import chart  # noqa: E402
from contest import CONTESTANTS, PROGRAMS, ROOT, Contest  # noqa: E402
from figures import KIB, bytes_text, chunk_sizes  # noqa: E402
from fio import FioAbsent  # noqa: E402
from nvme import compare_with_fio  # noqa: E402
from plan import NvmePlan, QuickBudget, plan_of  # noqa: E402
from processes import MAX_SOCKET_PATH_BYTES, ChildFailed  # noqa: E402
from report import Comparison, document, text  # noqa: E402

FAILED, WRONG_USAGE = 1, 2
BUILT = ("bin/kvkeepd", "bin/kvkeep", "bin/kvkeep-bare-drive", "lib/libkvkeep-client.so.1",
         "lib/libkvkeep-bare-stream.so")
LOOKUP_CHUNK_BYTES, LOOKUP_BATCH = 4 * KIB, 512
LOOKUP_KEYS = 16384  # at most, and
LOOKUP_KEY_BYTES = 64 * KIB  # that a key may take at most, by anybody
CONTESTANTS_RECKONED = 8  # before they are known: all but peers
# Below --scratch, with what tempfile and the contest make of names.
DEEPEST_SOCKET = "/kvkeep-compare-12345678/12345678/1/kvkeepd-12345678/kvkeep.sock"


def _say(words):
    print(words, file=sys.stderr, flush=True)


def _directory(words):
    if not os.path.isdir(words):
        raise argparse.ArgumentTypeError(f"there is no directory {words}")
    return pathlib.Path(words).absolute()


def _scratch(words):
    directory, limit = _directory(words), MAX_SOCKET_PATH_BYTES - len(DEEPEST_SOCKET)
    if len(os.fsencode(directory)) > limit:
        raise argparse.ArgumentTypeError(f"{directory} has more than {limit} bytes, and a socket's "
                                         f"path below it more than {MAX_SOCKET_PATH_BYTES}")
    return directory


def _names(words):
    if unknown := set(words.split(",")) - PROGRAMS.keys():
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not of "
                                         f"{', '.join(PROGRAMS)}")
    return words.split(",")


def parse(arguments):
    """The options and the plan."""
    parser = argparse.ArgumentParser(prog="compare", description=__doc__.splitlines()[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--build", type=_directory, default=ROOT / "build/release", help="what is compared")
    add("--scratch", type=_scratch, default="/var/tmp",
        help="directory on the drive to compare; left as it was")
    add("--sizes", type=chunk_sizes, default="1MiB,4MiB,32MiB", help="of chunks")
    add("--only", type=_names,
        help="these contestants; the first is what others are shares of")
    add("--lmcache", type=_directory, help="a Python environment that has LMCache")
    add("--mooncake", type=_directory, help="a Python environment that has Mooncake")
    add("--peers", type=_directory, default=CONTESTANTS,
        help="where the programs are that drive those two")
    add("--batches", type=several(within(1, 64)),
        help="chunks of a call that gets or puts, where they fit a region; by default 1, and 8 of "
             "4 MiB too")
    for name, default, least, most, words in (
            ("--capacity-mib", 1024, 64, 1 << 20, "that each contestant may keep"),
            ("--region-mib", 256, 32, 1 << 20, "memory that is got to, and put from"),
            ("--seconds", 0.2, 0.01, 60.0, "of a slice"),
            ("--rounds", 9, 1, 1000, "that everybody takes"),
            ("--nvme-round-mib", 1536, 64, 1 << 16,
             "of a round of writes; less where drive or memory have no room")):
        add(name, type=within(least, most), default=default, help=words)
    add("--json", type=pathlib.Path, help="file to write all figures to, and beside it a picture")
    add("--revision", help="of the sources, to be noted with the figures")
    add("--quick", action="store_true",
        help="3 rounds of 0.08 s: under two minutes, figures are rough; where the machine is too "
             "slow for that, the last sizes and NVMe are left out")
    add("--no-nvme", action="store_true", help="leave out NVMe and fio")
    options = parser.parse_args(arguments)
    if max(options.sizes) > min(options.region_mib, options.capacity_mib // 2) << 20:
        parser.error("--sizes: more than --region-mib or half of --capacity-mib")
    plan = plan_of(options, options.sizes)
    if not plan.calls:
        parser.error("--batches: none fits --region-mib and half of --capacity-mib")
    return options, plan


def _compare_one(options, plan, call, directory, comparison):
    """Everybody is started afresh for one size and batch: nobody's memory was touched before."""
    size, batch = call
    with Contest(options, plan, directory, _say) as contest:
        took_part = {*comparison.names, *contest.names}
        comparison.names = [name for name in PROGRAMS if name in took_part]
        comparison.about.update(contest.versions)
        _say(f"{batch} x {bytes_text(size)}")
        # Half of what may be kept: nobody has evicted any of it.
        comparison.disciplines += contest.run(["get", "lookup+get", "put"], size,
                                              plan.capacity_bytes // 2 // size, batch)
        if call == plan.calls[-1]:
            _say("lookups")
            keys = min(LOOKUP_KEYS, plan.capacity_bytes // LOOKUP_KEY_BYTES)
            comparison.disciplines += contest.run(["lookup"], LOOKUP_CHUNK_BYTES, keys,
                                                  LOOKUP_BATCH)


def _compare_nvme(options, plan, directory, comparison):
    """Runs the part of the plan that there is room for, and leaves only that part in the plan."""
    _say("NVMe")
    wanted, plan.nvme = plan.nvme, NvmePlan()
    fitted = wanted.fitted(shutil.disk_usage(directory).free, available_memory_bytes())
    if fitted is None:
        _say("NVMe is left out: " + ("no room on the drive or in memory" if wanted.sizes else
                                     "rounds of writes are too small for such chunks"))
        return
    if fitted != wanted:
        _say(f"room for rounds of {bytes_text(fitted.round_bytes)} only")
    for size in fitted.too_large:
        _say(f"NVMe: chunks of {bytes_text(size)} are left out: too large for rounds of "
             f"{bytes_text(fitted.round_bytes)}")
    plan.nvme = fitted
    try:
        compare_with_fio(options, fitted, directory, comparison.nvme)
    except FioAbsent as absent:
        _say(f"NVMe is left out: {absent}")
        plan.nvme = NvmePlan()


def compare(options, plan, directory, comparison):
    """Runs the comparison, which also holds the results from before a failure."""
    began = time.monotonic()
    try:
        _compare_all(options, plan, directory, comparison, began)
    finally:
        took = time.monotonic() - began
        comparison.about.update(about(options, plan, took))
        _say(f"took {took:.0f} s")


def _compare_all(options, plan, directory, comparison, began):
    budget = QuickBudget()

    def has_room(what, most_s):
        if not options.quick or budget.has_room_for(most_s, time.monotonic() - began):
            return True
        _say(f"no time left for {what}")
        return False

    for call in plan.calls:
        contestants = len(comparison.names) or CONTESTANTS_RECKONED
        if not has_room("more sizes", plan.most_call_seconds(contestants)):
            break
        with tempfile.TemporaryDirectory(prefix="", dir=directory) as own:
            _compare_one(options, plan, call, own, comparison)
    if plan.nvme.wanted and has_room("NVMe", plan.nvme.most_seconds()):
        _compare_nvme(options, plan, directory, comparison)
    else:
        plan.nvme = NvmePlan()


def main(arguments):
    options, plan = parse(arguments)
    if missing := [name for name in BUILT if not (options.build / name).is_file()]:
        _say(f"compare: --build: there is no {', '.join(missing)} in {options.build}; "
             "tools/compare/run builds all of it")
        return WRONG_USAGE
    os.environ["KVKEEP_BUILD"] = str(options.build)
    comparison, code = Comparison(), 0
    try:
        with tempfile.TemporaryDirectory(prefix="kvkeep-compare-", dir=options.scratch) as own:
            compare(options, plan, own, comparison)
    except (ChildFailed, OSError) as failure:
        _say(f"compare: {failure}")
        comparison.about["failure"] = str(failure)
        code = FAILED
    if comparison.disciplines or comparison.nvme:
        try:
            _report(options, comparison)
        except OSError as failure:
            _say(f"compare: {failure}")
            code = FAILED
    if comparison.refused:
        _say("compare: not all that was read came from NVMe")
    return FAILED if comparison.wrong_bytes or comparison.refused else code


def _report(options, comparison):
    print(text(comparison), end="")
    if options.json is not None:
        found = document(comparison)
        options.json.write_text(json.dumps(found, indent=1) + "\n")
        options.json.with_suffix(".svg").write_text(chart.draw(found))
        _say(f"figures: {options.json}, picture beside them")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
