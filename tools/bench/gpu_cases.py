"""--path cuda-ipc and --path pinned: chunks to the GPU and from it, by the size of runs, each round
beside plain copies of as many bytes in one piece, between host memory that the driver knows and the
GPU. With --tier g3: chunks that are on NVMe only to the GPU, each round beside fio on the same
drive. A line a case, with what is promised of it."""

from figures import KIB, MIB, bytes_text
from fio import Fio
from line import ratio_line
from measured import Measured
from series import Series, since

ARENA_PIN_PATIENCE_S, ARENA_PIN_PAUSE_S = 300, 0.01
PROMISED_G3_CHUNK_BYTES = 32 * MIB
ALL_FROM_G3 = 0.99


def _promise(size, run_bytes, adjacent, from_g3):
    """The target on a real GPU, for runs that lie so far in one piece."""
    long_runs = run_bytes * adjacent >= MIB
    if from_g3 and (not long_runs or size < PROMISED_G3_CHUNK_BYTES):
        return None
    if long_runs:
        return ("at least", 0.9)
    return ("at least", 0.8) if run_bytes >= 32 * KIB and adjacent >= 16 else None


def _arena_is_pinned(status):
    counters = status["counters"]
    return (counters.get("gpu_arena_registered_bytes", 0)
            + counters.get("gpu_arena_refused_bytes", 0)) >= status["g2_capacity_bytes"]


class _GpuCases:
    def __init__(self, run, daemon, load, report):
        self._run, self._daemon, self._load, self._report = run, daemon, load, report
        self._options = run.options
        self._from_g3 = self._options.tier == "g3"
        self._fio = None  # of the size that is measured now
        self._plain = {}

    def measure(self):
        options = self._options
        self._run.say("open the GPU")
        gpu = self._load.ask("open gpu", path=options.path, mount_dir=options.arena_dir,
                             call_bytes=max(options.sizes) * options.batch)
        self._report.path = f"{options.path}: {gpu['device']}"
        if options.path == "cuda-ipc":
            self._report.daemon_gpu_bytes = gpu["daemon_bytes"]
            self._run.say("the daemon registers its arena with the driver")
            self._load.await_status(_arena_is_pinned, "register its arena with the GPU's driver",
                                    ARENA_PIN_PATIENCE_S, ARENA_PIN_PAUSE_S)
        for size in options.sizes:
            self._measure_size(size)
        self._report.baselines += [series for _, series in sorted(self._plain.items())]

    def _measure_size(self, size):
        """First the gets: puts may evict what is got. From NVMe there are gets only."""
        options = self._options
        self._load.clear()
        self._run.say(f"put {options.keys} chunks")
        if self._from_g3:
            self._load_g3(size)
        else:
            self._load.load(0, options.keys, size)
        for verb in ("get",) if self._from_g3 else ("get", "put"):
            for run_bytes in options.run_sizes:
                for adjacent in options.adjacent:
                    if run_bytes * adjacent <= size:
                        self._measure_case(verb, size, run_bytes, adjacent)

    def _load_g3(self, size):
        """As much at once as G2 takes while nothing of it is written yet; and what fio reads."""
        options = self._options
        at_once = max(options.g2_bytes // 2 // size, 1)
        for first in range(0, options.keys, at_once):
            self._load.load(first, min(at_once, options.keys - first), size, no_g3=False)
            self._load.await_clean()
        self._run.say("fio writes its file")
        if self._fio is not None:
            self._fio.close()
        self._fio = Fio(self._daemon.directory, options.keys * size, options.seconds)

    def _measure_case(self, verb, size, run_bytes, adjacent):
        options, direction = self._options, "h2d" if verb == "get" else "d2h"
        name = "get to the GPU, " if verb == "get" else "put from the GPU, "
        name += (f"{'from NVMe, ' if self._from_g3 else ''}{bytes_text(size)}, "
                 f"runs of {bytes_text(run_bytes)}")
        name += f", {adjacent} adjacent" if adjacent > 1 else ""
        name += f", batch {options.batch}" if options.batch > 1 else ""
        series = self._load.prepare(
            name, verb=verb, size=size, batch=options.batch, keys=options.keys,
            verify=options.verify, verify_all=self._from_g3, no_g3=not self._from_g3,
            run_bytes=run_bytes, adjacent=adjacent)
        series.about |= {"path": options.path, "tier": options.tier}
        before, beside = self._load.status(), []
        for number in range(options.rounds):
            self._run.say_round(name, number)
            beside.append(self._fio.read() if self._from_g3
                          else self._copy_plain(direction, size * options.batch))
            self._load.run(series, options.seconds, options.ops)
        line = ratio_line(name, "GB/s", series.gb_per_second(), beside,
                          _promise(size, run_bytes, adjacent, self._from_g3))
        line.numbers |= {"direction": direction, "size": size, "run_bytes": run_bytes,
                         "adjacent": adjacent}
        if self._from_g3:
            line.numbers["from_g3"] = self._from_g3_since(before, series)
        self._report.lines.append(line)
        self._report.cases.append(series)

    def _copy_plain(self, direction, size):
        """One more round of what cases of so many bytes are compared with: GB/s."""
        to_gpu = direction == "h2d"
        copied = Measured(self._load.ask("copy plain", self._options.seconds, to_gpu=to_gpu,
                                         bytes=size, seconds=self._options.seconds / 2))
        if copied.failed_ops > 0:
            raise OSError(copied.first_failure)
        name = f"plain copy {'to' if to_gpu else 'from'} the GPU, {bytes_text(size)}"
        series = self._plain.setdefault(name, Series(name, {"direction": direction, "size": size}))
        series.rounds.append(copied)
        return copied.gb_per_second

    def _from_g3_since(self, before, series):
        """The part of what was handed out since that had to be read from NVMe. OSError: what was
        measured is not that."""
        if failed := [one.first_failure for one in series.rounds if one.failed_ops > 0]:
            raise OSError(failed[0])
        after = self._load.status()
        from_g3 = since(before, after, "served_g3_bytes")
        handed_out = from_g3 + since(before, after, "served_g2_bytes")
        if handed_out == 0 or from_g3 / handed_out < ALL_FROM_G3:
            raise OSError(f"only {from_g3} of {handed_out} bytes were read from NVMe: more --keys, "
                          "or less --g2")
        return from_g3 / handed_out


def measure_gpu(run, daemon, load, report):
    """Fills the report's path, cases, baselines and lines. `daemon`: ours, or None; it is ours
    where chunks come from G3."""
    _GpuCases(run, daemon, load, report).measure()
