"""table: what a daemon must hold, line by line: measured, baseline of the same minutes, target.

Starts the daemons that it needs, one after the other. Measurements beside peers, a bare stream or
fio belong to tools/compare.
"""

import contextlib
from dataclasses import dataclass

from figures import GIB, MIB
from line import missing_line, plain_line
from processes import ChildFailed
from report import Report
import table_chunks
import table_process

SECTIONS = {"get": table_chunks.measure_gets, "lookup": table_chunks.measure_lookups,
            "put": table_chunks.measure_puts, "pieces": table_chunks.measure_pieces,
            "prefault": table_process.measure_prefault, "hits": table_chunks.measure_hits,
            "devices": table_process.measure_devices, "rest": table_process.measure_rest}


@dataclass
class Scale:
    """How much of everything."""

    seconds: float  # of a case in one round
    rounds: int
    put_rounds: int  # of which each starts a daemon
    large_table: int  # chunks
    get_keys: int = 320
    small_table: int = 10_000
    # More than a session's staging memory, which a client may ask for a second time.
    put_g2_bytes: int = 1280 * MIB
    pieces_g2_bytes: int = 512 * MIB
    pieces_keys: int = 32
    rest_bytes: int = 10_000_000_000  # moved before it
    rest_seconds: float = 30
    hits_keys: int = 64
    hits_dirty_chunks: int = 320
    device_bytes: int = 384 * MIB  # that are read from simulated devices in turn


def _scale_of(options):
    if not options.quick:
        return Scale(options.seconds, options.rounds, options.rounds, options.lookup_table_chunks)
    return Scale(seconds=0.03, rounds=2, put_rounds=1, large_table=4_000, get_keys=96,
                 small_table=1_000, put_g2_bytes=192 * MIB, pieces_g2_bytes=160 * MIB,
                 pieces_keys=10, rest_bytes=GIB // 2, rest_seconds=1.5, hits_keys=16,
                 hits_dirty_chunks=40, device_bytes=48 * MIB)


class Table:
    """Base of the sections."""

    def __init__(self, run):
        self.run, self.options, self.baselines = run, run.options, run.baselines
        self.scale, self.report = _scale_of(run.options), Report(run.options)

    def say_round(self, what, number):
        self.run.say_round(what, number, self.scale.rounds)

    def keep(self, *all_series):
        self.report.cases += all_series

    def add(self, line):
        self.report.lines.append(line)

    @contextlib.contextmanager
    def daemon(self, *arguments, **named):
        """As Invocation.start_daemon, with a client: (daemon, load)."""
        with (self.run.start_daemon(*arguments, **named) as daemon,
              self.run.load_on(daemon) as load):
            self.report.describe(load)
            yield daemon, load

    def tell_longest_lock(self):
        """Since the start of any daemon, loading included. Nothing is promised of it here, as the
        host below interrupts a holder for milliseconds: lock_hold_test judges holds."""
        if used := [one.daemon for one in self.report.cases]:
            on_a_cpu = max(one.lock_worked_ns_max_since_start for one in used)
            held = max(one.lock_held_ns_max_since_start for one in used)
            self.add(plain_line("any lock held, time on a CPU", "us", [(on_a_cpu or held) / 1e3]))


def run_table(run):
    table = Table(run)
    for name, measure in SECTIONS.items():
        if run.options.sections and name not in run.options.sections:
            continue
        try:
            measure(table)
        except (ChildFailed, OSError, LookupError, ValueError) as failure:
            # The other sections' figures are still good.
            table.add(missing_line(name, str(failure)))
            table.report.failure = f"{name}: {failure}"
    table.tell_longest_lock()
    run.baselines.add_to(table.report)
    return table.report
