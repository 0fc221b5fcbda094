"""The command line of kvkeep-bench. Exit codes: 0 done; 1 failed, or bytes were wrong; 2 wrong
usage; 3 a line was missed and --fail-on-missed said that it matters."""

import argparse
import json
import os
import pathlib
import sys

from arguments import several, within
from baselines import Baselines
from cases import clears_daemon, run_cases
from cpu_costs import run_cpu_costs
from figures import byte_size, chunk_sizes
from fio import FioAbsent
from invocation import GPU_PATHS, Invocation
from load import ask_once
from pattern_run import jobs_of, run_pattern
from processes import ChildFailed
from table import SECTIONS, run_table

FAILED, WRONG_USAGE, MISSED, INTERRUPTED = 1, 2, 3, 130
ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICK_REGION_BYTES = 64 << 20
CALLS_IN_G2, DATA_OF_G2, G3_OF_DATA, LEAST_TIER_BYTES = 4, 3, 2, 64 << 20
VERBS = {"get": "chunks that are in memory",
         "put": "chunks under fresh keys; what was there is evicted",
         "lookup": "whether keys are there, without a lease",
         "mixed": "gets, puts and lookups",
         "pieces": "one chunk at a time until its last piece is readable: for chunks on NVMe",
         "baseline": "only what the machine can do without kvkeep",
         "cpu": "CPU seconds a GB on each path, on both sides; wants --daemon",
         "table": "every figure that a daemon must hold, with its baseline; wants --daemon"}


def _section(words):
    if words not in SECTIONS:
        raise argparse.ArgumentTypeError(f"{words} is none of {', '.join(SECTIONS)}")
    return words


def _existing(is_there):
    def path(words):
        if words and not is_there(words):  # "": by default
            raise argparse.ArgumentTypeError(f"there is no {words}")
        return words
    return path


def _weights(words):
    weights = [int(word) for word in words.split(",")]
    if len(weights) != 3 or min(weights) < 0 or not sum(weights):
        raise argparse.ArgumentTypeError(f"{words} is no three weights")
    return weights


def _add_daemon_options(parser):
    add = parser.add_argument_group("the daemon").add_argument
    add("--endpoint", default="", help="the daemon's gRPC socket (env KVKEEP_ENDPOINT)")
    add("--admin", dest="admin_endpoint", default="", help="its admin socket (env KVKEEP_ADMIN)")
    add("--local-socket", default="", help="its socket of the local path")
    add("--path", default="auto", choices=("auto", "grpc", "local", *GPU_PATHS),
        help="auto: local when it is to be had; cuda-ipc, pinned: without a verb, puts from a GPU "
             "and gets to it, by the daemon or by the client itself")
    add("--clear", action="store_true",
        help="a daemon that runs may be cleared: all its chunks are lost")
    add("--daemon-pid", type=within(0, 1 << 30), default=0,
        help="whose CPU time counts; 0: as its status says")
    add("--daemon", type=_existing(os.path.isfile), default="",
        help="start this kvkeepd instead of using one that runs")
    add("--client", type=_existing(os.path.isfile),
        help="kvkeep-bench-client; default: beside --daemon, or that of build/release")
    add("--scratch", dest="scratch_dir", type=_existing(os.path.isdir), default="",
        help="where its files lie; G3's device is there too")
    add("--arena-dir", default="", help="mount of its arena; without: memfd")
    add("--arena-readonly-dir", default="", help="read-only bind mount of that")
    add("--g2", dest="g2_bytes", type=byte_size, help="memory of the started daemon; default: 2GiB")
    add("--g3", dest="g3_bytes", type=byte_size,
        help="disk of the started daemon; without: none")
    add("--copy-threads", type=within(0, 1024), default=0,
        help="of the started daemon; 0: its default")


def _add_load_options(parser):
    add = parser.add_argument_group("the load").add_argument
    add("--size", dest="sizes", type=chunk_sizes, default="4MiB",
        help="payload of a chunk; several with commas: 4MiB,32MiB")
    add("--batch", type=within(1, 65536), default=1, help="keys of a call")
    add("--depth", type=within(1, 256), help="calls in flight per client; default: 1")
    add("--clients", type=within(1, 256), help="processes; default: 1")
    add("--seconds", type=within(0.001, 3600.0), help="of measured time in a round; default: 1")
    add("--ops", type=within(0, 1 << 62), default=0,
        help="calls of each client in a round; 0: no limit")
    add("--rounds", type=within(1, 1000), default=9, help="of each case and its baselines")
    add("--keys", type=within(1, 1 << 40), help="chunks that are there to be got; default: 64")
    add("--table-chunks", type=within(0, 1 << 40), default=0,
        help="small chunks put first; lookups are of these")
    add("--mix", type=_weights, default="8,1,1", help="weights of get, put and lookup in mixed")
    add("--verify", action=argparse.BooleanOptionalAction, default=True,
        help="compare what was got or put with what it must be, outside of the measured time")
    add("--region", dest="region_bytes", type=byte_size,
        help="memory that copies go between and puts are made of; default: four times the "
             "last-level cache, at least 256 MiB, so that it is cold")
    add("--seed", type=within(0, (1 << 64) - 1), default=1,
        help="other seed: other keys and bytes")
    add("--run-size", dest="run_sizes", type=chunk_sizes, default="4KiB,32KiB,256KiB,1MiB,4MiB",
        help="paths of a GPU: how long the runs of a chunk are there; several with commas")
    add("--adjacent", type=several(within(1, 65536)), default="1,16",
        help="paths of a GPU: runs without a gap between them; several with commas")
    add("--tier", default="g2", choices=("g2", "g3"),
        help="path cuda-ipc: where the chunks are that are got: g2, DRAM; g3, NVMe alone, beside "
             "fio on the drive of --scratch, every byte compared; wants --daemon")


def _add_pattern_options(parser):
    add = parser.add_argument_group("patterns of load").add_argument
    add("--pattern", dest="name", choices=("pm1753", "sessions"), default="",
        help="instead of a verb: pm1753 (280 users, 92 %% reads, open loop, bursts) or sessions "
             "(multi-round questions, closed loop)")
    add("--rate", dest="rates", type=several(within(1e-3, 1e6)), default=[],
        help="requests a second of all users together (QPS); several with commas")
    add("--users", type=within(0, 100_000), default=0, help="0: 280 or 80")
    add("--model", default="llama-3.1-8b",
        help="whose KV chunks are; one that tools/kvkeep/models.json knows")
    add("--gpu", default="h100", help="that would recompute them; one that models.json knows")
    add("--kv-bytes-per-token", type=within(0.0, 1e9), default=0.0,
        help="instead of the model's")
    add("--prefill-rate", dest="prefill_tokens_per_second", type=within(0.0, 1e9), default=0.0,
        help="tokens a second, as measured, instead of the model's on that GPU")
    add("--tokens-per-chunk", type=within(0, 1_000_000), default=0,
        help="0: 16 (pm1753) or 256 (sessions)")
    add("--get-chunks", type=within(1, 4096), default=8, help="of a call over gRPC")
    add("--session-rounds", type=within(1, 1000), default=10, help="sessions: of a user")
    add("--system-prompt", dest="system_prompt_tokens", type=within(0, 1_000_000), default=0,
        help="sessions: tokens that all share; 0: 1,000")
    add("--history", dest="history_tokens", type=within(0, 10_000_000), default=0,
        help="sessions: tokens of a user, up to half as many more; 0: 4,000")


def _parser():
    parser = argparse.ArgumentParser(
        prog="kvkeep-bench", usage="kvkeep-bench VERB [options], or --pattern NAME [options]",
        allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Load on a kvkeep daemon and, beside it, what the machine can do without one.",
        epilog="verbs:\n" + "".join(f"  {name:10}{what}\n" for name, what in VERBS.items()))
    parser.add_argument("verb", nargs="?", choices=VERBS)
    _add_daemon_options(parser)
    _add_load_options(parser)
    _add_pattern_options(parser)
    add = parser.add_argument_group("table and report").add_argument
    add("--section", dest="sections", type=several(_section), default=[],
        help="table: only these; several with commas")
    add("--lookup-chunks", dest="lookup_table_chunks", type=within(1, 1 << 40), default=1_000_000,
        help="table: of the large one")
    add("--quick", action="store_true",
        help="table, patterns: small and short: that it works, not what it can do")
    add("--fail-on-missed", action="store_true",
        help="table, patterns, paths of a GPU: exit code 3 when a line is missed")
    add("--json", nargs="?", const="-", metavar="FILE",
        help="all numbers and the options as JSON, instead of text; with a path: there, and the "
             "text as ever")
    return parser


def _finish_gpu(options, given):
    """Completes the options of a GPU's path, which stands for a verb: it measures both ways.
    Returns what is wrong, or ""."""
    if options.tier == "g3":
        if options.path != "cuda-ipc" or not options.daemon:
            return "--tier g3 goes with --path cuda-ipc and --daemon PATH"
        if not options.verify:
            return "--tier g3 compares every byte: it does not go with --no-verify"
    if options.path not in GPU_PATHS:
        return ""
    if options.verb or options.name:
        return f"--path {options.path} goes without a verb: it measures puts and gets"
    if options.clients != 1 or options.depth != 1:
        return f"--path {options.path}: --clients and --depth must be 1"
    options.verb = "gpu"
    if options.tier == "g3":
        # Defaults: a G2 with room for four calls (all gets to GPUs hold at most a quarter of it),
        # three times as much data, taken in turn, a G3 that is never near full.
        smallest, largest = min(options.sizes), max(options.sizes)
        if given["g2_bytes"] is None:
            options.g2_bytes = max(CALLS_IN_G2 * options.batch * largest, LEAST_TIER_BYTES)
        if given["keys"] is None:
            options.keys = -(-DATA_OF_G2 * options.g2_bytes // smallest)
        if given["g3_bytes"] is None:
            options.g3_bytes = max(G3_OF_DATA * options.keys * largest, LEAST_TIER_BYTES)
    return ""


def _finish(options):
    """Makes the checks that argparse cannot make. Returns what is wrong with the options, or ""."""
    options.verb = options.verb or ""
    given = dict(vars(options))
    for name, usual in (("depth", 1), ("clients", 1), ("seconds", 1.0), ("keys", 64),
                        ("g2_bytes", 2 << 30), ("g3_bytes", 0),
                        ("region_bytes", QUICK_REGION_BYTES if options.quick else 0)):
        if given[name] is None:
            setattr(options, name, usual)
    if wrong := _finish_gpu(options, given):
        return wrong
    if options.json in ("", *VERBS):
        return f"--json '{options.json}': say a file, or put --json last"
    if bool(options.verb) == bool(options.name):
        return "say one of a verb and --pattern"
    if options.verb in ("table", "cpu") and not options.daemon:
        return f"{options.verb}: say which kvkeepd to start: --daemon PATH"
    if bool(options.arena_dir) != bool(options.arena_readonly_dir):
        return "--arena-dir and --arena-readonly-dir: both or none"
    if options.verb == "pieces" and (options.batch != 1 or options.depth != 1):
        return "pieces: --batch and --depth must be 1"
    if not options.daemon and not options.clear and clears_daemon(options):
        return "the daemon is cleared, all its chunks are lost: say --clear, or --daemon PATH"
    if options.client is None:
        beside = pathlib.Path(options.daemon or ".").absolute().with_name("kvkeep-bench-client")
        usual = ROOT / "build/release/bin/kvkeep-bench-client"
        options.client = str(beside if options.daemon and beside.exists() else usual)
        if not pathlib.Path(options.client).exists():
            return f"there is no {options.client}: build it, or say --client PATH"
    if options.name:
        options.request = {
            "seconds": given["seconds"] or 0, "workers": given["clients"] or 0,
            "depth": given["depth"] or 0, "rounds": options.session_rounds,
            **{name: getattr(options, name) for name in (
                "name", "rates", "users", "get_chunks", "seed", "quick", "model", "gpu",
                "kv_bytes_per_token", "prefill_tokens_per_second", "tokens_per_chunk",
                "system_prompt_tokens", "history_tokens")}}
        options.g2_bytes = given["g2_bytes"] or 0
        try:
            options.model_and_jobs = jobs_of(options.client, options.request)
        except ChildFailed as wrong:
            return str(wrong)
    if not options.daemon:
        _find_daemon(options)
    return ""


def _find_daemon(options):
    usual = ask_once(options.client, "default sockets")
    options.endpoint = options.endpoint or usual["endpoint"]
    options.admin_endpoint = options.admin_endpoint or usual["admin"]


def _measure(options):
    with Baselines(options.client, options.arena_dir, options.region_bytes) as baselines:
        run = Invocation(options, baselines)
        try:
            if options.name:
                return run_pattern(run, options.request, *options.model_and_jobs)
            return {"table": run_table, "cpu": run_cpu_costs}.get(options.verb, run_cases)(run)
        finally:
            run.say("")


def _deliver(options, report):
    """OSError: the file could not be written."""
    if options.json != "-":
        print(report.text(), end="")
    if options.json is None:
        return
    found = json.dumps(report.document(), indent=2) + "\n"
    if options.json == "-":
        print(found, end="")
        return
    try:
        pathlib.Path(options.json).write_text(found)
    except OSError as failure:
        raise OSError(f"cannot write {options.json}: {failure.strerror}") from failure


def main(arguments):
    options = _parser().parse_intermixed_args(arguments)
    options.progress = os.isatty(sys.stderr.fileno())
    try:
        if wrong := _finish(options):
            print(f"kvkeep-bench: {wrong}", file=sys.stderr)
            return WRONG_USAGE
        report = _measure(options)
        _deliver(options, report)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ChildFailed, FioAbsent, OSError) as failure:
        print(f"kvkeep-bench: {failure}", file=sys.stderr)
        return FAILED
    if not report.sound():
        return FAILED
    return MISSED if options.fail_on_missed and not report.all_ok() else 0
