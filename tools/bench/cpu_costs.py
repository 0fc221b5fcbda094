"""cpu: what a gigabyte costs in CPU time on each way through the daemon, on both sides: get and put
by each path, then promotion and write-back, whose cost is the daemon's alone. A local get is a
lease and where the bytes lie: nothing is copied.

CPU time holds better than wall time where others run, but not quite: caches and clocks are shared.
"""

from figures import GIB, MIB
from report import CpuCost, Report
from series import since

CHUNK_BYTES, BATCH, G2_BYTES, GET_KEYS = 4 * MIB, 4, 512 * MIB, 64
# G3's side: twice G2, so that what is taken in turn was evicted before.
SMALL_G2_BYTES, PROMOTED_KEYS, G3_BYTES = 160 * MIB, 80, 2 * GIB
LOADED_AT_ONCE, WRITTEN_CHUNKS_OF_ROUND = 8, 32
LOOK_PAUSE_S = 0.02  # looks cost CPU time too


def _per_gb(seconds, moved_bytes):
    return seconds / moved_bytes * 1e9 if moved_bytes > 0 else 0


def cost_of(path, series):
    """The CPU time that it spent, per gigabyte of its payload."""
    total = series.total()
    return CpuCost(path, total.bytes / 1e9, _per_gb(total.client_cpu_seconds, total.bytes),
                   _per_gb(series.daemon.cpu_seconds, total.bytes))


def write_back_cost(put, put_bytes, cpu_seconds, written_bytes):
    """The rest of `cpu_seconds`, for `written_bytes`, after `put_bytes` at the cost of `put`."""
    puts = put.daemon_seconds_per_gb * put_bytes / 1e9
    return CpuCost("write-back", written_bytes / 1e9, 0,
                   _per_gb(max(cpu_seconds - puts, 0), written_bytes))


def _run_cost(run, load, report, name, **case):
    run.say(name)
    series = load.prepare(name, size=CHUNK_BYTES, **case)
    for _ in range(run.options.rounds):
        load.run(series, run.options.seconds)
    report.cpu_costs.append(cost_of(name, series))
    report.cases.append(series)


def _measure_paths(run, report):
    with run.start_daemon(G2_BYTES, tcp=True) as daemon:
        for path, target in (("local", {"path": "local"}), ("unix", {"path": "grpc"}),
                             ("tcp", {"path": "grpc", "endpoint": daemon.tcp_endpoint})):
            with run.load_on(daemon, **target) as load:
                report.describe(load)
                load.clear()
                load.load(0, GET_KEYS, CHUNK_BYTES)
                for verb in ("get", "put"):  # to read back what was put is a get
                    _run_cost(run, load, report, f"{path} {verb}", verb=verb, batch=BATCH,
                              keys=GET_KEYS, verify=verb == "get")
    report.path = ""  # they are several


def _load_and_write(load, first, chunks):
    """A part at a time: what waits for its write leaves no room for more."""
    for at in range(first, first + chunks, LOADED_AT_ONCE):
        load.load(at, LOADED_AT_ONCE, CHUNK_BYTES, no_g3=False)
        load.await_clean(LOOK_PAUSE_S)


def _measure_g3(run, report):
    with (run.start_daemon(SMALL_G2_BYTES, G3_BYTES) as daemon,
          run.load_on(daemon, path="local", pool_bytes=SMALL_G2_BYTES // 4) as load):
        _load_and_write(load, 0, PROMOTED_KEYS)
        _run_cost(run, load, report, "promotion", verb="pieces", keys=PROMOTED_KEYS, no_g3=False)
        run.say("write-back")
        before, cpu_before = load.status(), load.daemon_cpu_seconds()
        _load_and_write(load, PROMOTED_KEYS, run.options.rounds * WRITTEN_CHUNKS_OF_ROUND)
        cpu_after, after = load.daemon_cpu_seconds(), load.status()
        put = next(cost for cost in report.cpu_costs if cost.path == "local put")
        report.cpu_costs.append(write_back_cost(
            put, since(before, after, "put_bytes"), cpu_after - cpu_before,
            since(before, after, "written_back_bytes")))


def run_cpu_costs(run):
    report = Report(run.options, run.baselines.machine)
    _measure_paths(run, report)
    _measure_g3(run, report)
    return report
