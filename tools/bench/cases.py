"""get, put, lookup, mixed, pieces and baseline: one case per size, and beside it the baselines of
the same sizes, round by round; and the paths of a GPU."""

from figures import bytes_text
from gpu_cases import measure_gpu
from invocation import GPU_PATHS
from report import Report

SMALL_CHUNK_BYTES = 64
MOST_PING_PONGS = 64  # under way


def _of_table(options):
    """Looks up the small chunks that were put first."""
    return options.verb == "lookup" and options.table_chunks > 0


def clears_daemon(options):
    """Whether all of a daemon's chunks are forgotten, as keys of another size are in the way; by
    patterns and the paths of a GPU, too."""
    return options.verb not in ("put", "baseline") and not _of_table(options)


def _run_baselines(run, size):
    options = run.options
    for threads in (1, 2):
        run.baselines.copy(size, threads, options.seconds / 2)
    verb = "get" if options.verb == "baseline" else options.verb
    run.baselines.ping_pong(verb, options.batch, min(options.depth, MOST_PING_PONGS),
                            options.seconds / 2)


def _measure(run, load, report):
    options = run.options
    verb, of_table = options.verb, _of_table(options)
    no_g3 = verb != "pieces"
    keys = options.table_chunks if of_table else options.keys
    if options.table_chunks > 0:
        run.say(f"put {options.table_chunks} small chunks")
        load.load(0, options.table_chunks, SMALL_CHUNK_BYTES)
    for size in options.sizes:
        chunk_bytes = SMALL_CHUNK_BYTES if of_table else size
        if clears_daemon(options):
            run.say(f"put {keys} chunks")
            load.clear()
            load.load(0, keys, size, no_g3)
            if verb == "pieces":
                load.await_clean()
        series = load.prepare(
            f"{verb} {bytes_text(chunk_bytes)}, batch {options.batch}, depth {options.depth}, "
            f"clients {options.clients}", verb=verb, size=chunk_bytes, batch=options.batch,
            depth=options.depth, keys=keys, verify=options.verify, no_g3=no_g3, mix=options.mix)
        for number in range(options.rounds):
            run.say_round(series.name, number)
            _run_baselines(run, size)
            load.run(series, options.seconds, options.ops)
        report.cases.append(series)


def run_cases(run):
    options, report = run.options, Report(run.options)
    if options.verb == "baseline":
        for number in range(options.rounds):
            for size in options.sizes:
                run.say_round("baselines", number)
                _run_baselines(run, size)
    else:
        with (run.asked_daemon(options.g2_bytes, options.g3_bytes) as daemon,
              run.load_on(daemon, options.clients) as load):
            report.describe(load)
            if options.path in GPU_PATHS:
                measure_gpu(run, daemon, load, report)
            else:
                _measure(run, load, report)
    run.baselines.add_to(report)
    return report
