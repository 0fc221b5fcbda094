"""--pattern: plays it once for each rate: clears the daemon, stores what is there before, reads
some prompts alone, then lets all workers play. Before and after, fio measures the drive without the
daemon.

A daemon that is started has a G2 of a quarter of the working set and a G3 that holds it, unless the
options say otherwise.
"""

import contextlib
import time

from figures import GIB, MIB, round_up
from fio import Fio, FioAbsent, FioFailed
from load import ask_once
from measured import Measured, added_up
from pattern_report import PatternReport, PatternRun
from series import since

MIN_G2_BYTES, G3_BESIDE_CHUNKS = 32 * MIB, 256 * MIB  # the second: index and reserves
REQUESTS_ALONE = 16
SECONDS_TO_BEGIN = 0.1  # for all workers to hear of it
DRIVE_FILE_BYTES, QUICK_DRIVE_FILE_BYTES = GIB, 16 * MIB
DRIVE_SECONDS, QUICK_DRIVE_SECONDS = 2, 0.05
STEP_BYTES = 2 * MIB


def jobs_of(program, request):
    """(what a model's tokens take, what is played at each rate). ChildFailed: the request is wrong,
    and how."""
    answer = ask_once(program, "pattern jobs", request=request)
    return answer["model"], answer["jobs"]


class _Drive:
    """The drive below the daemon."""

    def __init__(self, run, directory):
        self._fio, self.why_not = None, ""
        if not directory:
            self.why_not = "say with --scratch which directory is on the daemon's drive"
            return
        run.say("write a file for fio")
        quick = run.options.quick
        try:
            self._fio = Fio(directory, QUICK_DRIVE_FILE_BYTES if quick else DRIVE_FILE_BYTES,
                            QUICK_DRIVE_SECONDS if quick else DRIVE_SECONDS)
        except (FioAbsent, FioFailed) as failure:
            self.why_not = str(failure)

    def reads(self):
        """Bytes a second, while the daemon does nothing; 0: not measured."""
        if self._fio is None:
            return 0
        try:
            return self._fio.read() * 1e9
        except FioFailed as failure:
            self.why_not = str(failure)
            return 0

    def close(self):
        if self._fio is not None:
            self._fio.close()


def _store_before(run, workers, job, g2_bytes):
    """No faster than it is written back: nothing is to be lost before it begins."""
    at_once = max(g2_bytes // 8 // job["chunk_in_tier_bytes"], 1)
    chunks = job["chunks_before"]
    for first in range(0, chunks, at_once):
        run.say(f"store what is there before: {first} of {chunks}")
        workers.ask("store before", first=first, count=min(at_once, chunks - first))
        workers.await_clean()


def _play(run, workers, played):
    pattern = played.job["job"]
    run.say(f"{pattern['kind']} at {pattern['requests_per_second']:g} requests/s for "
            f"{pattern['seconds']:g} s")
    before, cpu_before = workers.status(), workers.daemon_cpu_seconds()
    # A daemon that cannot keep up takes longer than the pattern.
    answers = workers.ask_all("play", 2 * pattern["seconds"],
                              begin_at=time.monotonic() + SECONDS_TO_BEGIN)
    played.loaded = added_up([Measured(one) for one in answers], side_by_side=True)
    played.daemon_cpu_seconds = workers.daemon_cpu_seconds() - cpu_before
    after = workers.status()
    played.served_g2_chunks = since(before, after, "read_g2_hits")
    played.served_g3_chunks = since(before, after, "read_g3_hits")
    played.promotions = since(before, after, "promotions")
    played.promotion_runs = since(before, after, "promotion_runs")


def _run_job(run, workers, drive, job, g2_bytes):
    played = PatternRun(job)
    workers.clear()
    workers.ask_all("prepare pattern", job=job["job"])
    _store_before(run, workers, job, g2_bytes)
    run.say("recall some prompts alone")
    played.alone = Measured(workers.ask("recall alone", requests=REQUESTS_ALONE))
    drive_before = drive.reads()
    _play(run, workers, played)
    workers.await_clean()
    # The worse of both: what is asked for must be below it.
    played.device_bytes_per_second = min(drive_before, drive.reads())
    return played


def run_pattern(run, request, model, jobs):
    options = run.options
    report = PatternReport(request, model)
    working_set_bytes = max(job["working_set_bytes"] for job in jobs)
    g2_bytes = options.g2_bytes or max(round_up(working_set_bytes // 4, STEP_BYTES), MIN_G2_BYTES)
    g3_bytes = options.g3_bytes or round_up(working_set_bytes // 4 * 5 + G3_BESIDE_CHUNKS,
                                            STEP_BYTES)
    with (run.asked_daemon(g2_bytes, g3_bytes) as daemon,
          contextlib.closing(
              _Drive(run, daemon.directory if daemon else options.scratch_dir)) as drive,
          run.load_on(daemon, jobs[0]["job"]["workers"]) as workers):
        report.describe(workers)
        for job in jobs:
            report.runs.append(_run_job(run, workers, drive, job, report.g2_bytes))
        report.device_why_not = drive.why_not
    report.judge()
    return report
