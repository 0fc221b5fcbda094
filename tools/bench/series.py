"""Series: what one case or baseline measured, round by round, and its forms in a report."""

from dataclasses import dataclass, field

from figures import median, spread, summary, table
from measured import added_up


@dataclass
class Usage:
    """The daemon's costs meanwhile. The longest holds are since its start, `worked` without the
    time that the holder was not on a CPU (0: the daemon does not count it)."""

    cpu_seconds: float = 0
    lock_acquisitions: int = 0
    lock_held_ns: int = 0
    lock_held_ns_max_since_start: int = 0
    lock_worked_ns_max_since_start: int = 0

    def add(self, cpu_seconds, before, after):
        """`before`, `after`: the daemon's status."""
        self.cpu_seconds += cpu_seconds
        self.lock_acquisitions += since(before, after, "lock_acquisitions")
        self.lock_held_ns += since(before, after, "lock_held_ns")
        for name in ("lock_held_ns_max", "lock_worked_ns_max"):
            own = f"{name}_since_start"
            setattr(self, own, max(getattr(self, own), after["counters"].get(name, 0)))


def since(before, after, counter):
    """How much it rose between two status; 0 after a restart."""
    then, now = before["counters"].get(counter, 0), after["counters"].get(counter, 0)
    return max(now - then, 0)


@dataclass
class Series:
    name: str
    about: dict = field(default_factory=dict)
    rounds: list = field(default_factory=list)
    daemon: Usage = None  # None: a baseline

    def each(self, figure):
        return [figure(one) for one in self.rounds]

    def ops_per_second(self):
        return self.each(lambda one: one.per_second("ops"))

    def chunks_per_second(self):
        return self.each(lambda one: one.per_second("chunks"))

    def gb_per_second(self):
        return self.each(lambda one: one.gb_per_second)

    def latency_us(self, quantile):
        return self.each(lambda one: one.latency.quantile_us(quantile))

    def total(self):
        return added_up(self.rounds, side_by_side=False)

    def report(self):
        """All numbers: totals, and median, min and max over rounds."""
        over_rounds = {"ops_per_second": self.ops_per_second(),
                       "chunks_per_second": self.chunks_per_second(),
                       "gb_per_second": self.gb_per_second(), "p50_us": self.latency_us(0.5),
                       "p99_us": self.latency_us(0.99), "p999_us": self.latency_us(0.999)}
        all_rounds = self.total()
        total = all_rounds.report()
        if not all_rounds.first_piece.count:
            del total["first_piece_us"]
        for what in ("ops", "chunks"):
            total[f"{what}_per_second"] = all_rounds.per_second(what)
        total["gb_per_second"] = all_rounds.gb_per_second
        return {"name": self.name, **({"about": self.about} if self.about else {}),
                "rounds": len(self.rounds),
                "over_rounds": {name: {**summary(values), "spread": spread(values)}
                                for name, values in over_rounds.items()},
                "total": total, **({"daemon": vars(self.daemon)} if self.daemon else {})}


def _number(value):
    if value == 0 or value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def text(all_series):
    """For people: a row each, with a head."""
    rows = [["CASE", "GB/s", "OPS/s", "CHUNKS/s", "p50 us", "p99 us", "p99.9 us", "SPREAD",
             "COPIED", "CPU s CLIENT", "DAEMON", "LOCK us MEAN", "MAX"]]
    for one in all_series:
        total, used = one.total(), one.daemon
        figures = [one.gb_per_second(), one.ops_per_second(), one.chunks_per_second(),
                   *(one.latency_us(quantile) for quantile in (0.5, 0.99, 0.999))]
        of_daemon = ["-"] * 3
        if used is not None:
            mean_us = used.lock_held_ns / 1e3 / max(used.lock_acquisitions, 1)
            of_daemon = [f"{used.cpu_seconds:.2f}", f"{mean_us:.2f}",
                         _number(used.lock_held_ns_max_since_start / 1e3)]
        rows.append([one.name, *(_number(median(values)) for values in figures),
                     f"{100 * spread(one.ops_per_second()):.0f} %",
                     f"{total.copied_bytes / 1e9:.2f} GB", f"{total.client_cpu_seconds:.2f}",
                     *of_daemon])
    return table(rows)
