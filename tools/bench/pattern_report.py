"""Report of a pattern of load, for people and for machines, and its targets.

Promised is of pm1753, as long as what it asks of the drive is below what the drive reads, bursts
included: no wait above 100 ms, and of a chunk's latency a p99 of at most four times that of prompts
read alone. For other rates, and for sessions, the same figures are told.
"""

from dataclasses import dataclass, field

from figures import bytes_text, table
import line as lines_of
from measured import Measured

MOST_OF_ALONE_P99 = 4
LATENCIES = {"prefix": "prefix", "chunk": "chunk, since its request was due",
             "chunk_wait": "wait for a next chunk", "store": "store"}


def _share(part, whole):
    return part / whole if whole > 0 else 0


@dataclass
class PatternRun:
    job: dict  # client/pattern_request.h
    alone: Measured = None  # some prompts, one at a time, before the others came
    loaded: Measured = None  # all
    daemon_cpu_seconds: float = 0  # of the load
    served_g2_chunks: int = 0
    served_g3_chunks: int = 0
    promotions: int = 0
    promotion_runs: int = 0
    device_bytes_per_second: float = 0  # that its drive reads without it; 0: not measured

    @property
    def rate(self):
        return self.job["job"]["requests_per_second"]

    @property
    def offered_bytes_per_second(self):
        """Asked for, if all were there."""
        job = self.job["job"]
        return self.job["asked_chunks"] * job["chunk_bytes"] / job["seconds"]

    @property
    def from_nvme_share(self):
        """The share of NVMe in the chunks that were there."""
        return _share(self.served_g3_chunks, self.served_g3_chunks + self.served_g2_chunks)

    @property
    def offered_share_of_device(self):
        """The offered rate as a share of the drive's own. 0: that was not measured."""
        return _share(self.offered_bytes_per_second, self.device_bytes_per_second)

    @property
    def peak_share_of_device(self):
        """The rate that the drive had to read, as a share of its own; of a burst, if there are."""
        bursts = 1 if self.job["closed_loop"] else max(1, self.job["job"]["burst_rate"])
        return self.offered_share_of_device * self.from_nvme_share * bursts

    @property
    def below_device_rate(self):
        return self.device_bytes_per_second > 0 and self.peak_share_of_device <= 1

    @property
    def device_runs_per_prefix(self):
        """Ways that a device's head would have gone, for each prefix that was not all in memory."""
        return _share(self.promotion_runs, self.loaded.prefixes_from_nvme)

    @property
    def faster_share(self):
        return _share(self.loaded.faster_prefixes, self.loaded.prefixes)

    def sound(self):
        return (not any(one.wrong_bytes or one.failed_calls for one in (self.alone, self.loaded))
                and self.loaded.requests > 0)

    def document(self):
        job, loaded = self.job["job"], self.loaded
        return {"pattern": self.job["pattern"], "chunk_bytes": job["chunk_bytes"],
                "get_chunks": job["get_chunks"], "depth": job["depth"],
                "recompute_us_per_chunk": job["recompute_seconds_per_chunk"] * 1e6,
                "distinct_chunks": self.job["distinct_chunks"],
                "working_set_bytes": self.job["working_set_bytes"],
                "offered_bytes_per_second": self.offered_bytes_per_second,
                "recalled_bytes_per_second": loaded.per_second("recalled_bytes"),
                "stored_bytes_per_second": loaded.per_second("stored_bytes"),
                "found_share": _share(loaded.found_chunks, loaded.asked_chunks),
                "stored_share": _share(loaded.stored_chunks,
                                       loaded.stored_chunks + loaded.found_chunks),
                "from_nvme_share": self.from_nvme_share,
                "device_bytes_per_second": self.device_bytes_per_second,
                "offered_share_of_device": self.offered_share_of_device,
                "nvme_share_of_device": self.offered_share_of_device * self.from_nvme_share,
                "peak_share_of_device": self.peak_share_of_device,
                "below_device_rate": self.below_device_rate,
                "stalls_over_100_ms": loaded.stalls,
                "fetch_faster_than_recompute_share": self.faster_share,
                "promotions": self.promotions, "device_runs": self.promotion_runs,
                "device_runs_per_prefix": self.device_runs_per_prefix,
                "daemon_cpu_seconds": self.daemon_cpu_seconds, "alone": self.alone.report(),
                "loaded": loaded.report()}


def _gb(size):
    return f"{size / 1e9:.2f}"


def _percent(share):
    return f"{100 * share:.1f}%"


# Rows of the table: a name and, of each rate, a cell.
ROWS_BEFORE = {
    "offered, GB/s": lambda run: _gb(run.offered_bytes_per_second),
    "the drive alone, GB/s": lambda run: _gb(run.device_bytes_per_second),
    "share of the drive, in bursts": lambda run: _percent(run.peak_share_of_device),
    "recalled, GB/s": lambda run: _gb(run.loaded.per_second("recalled_bytes")),
    "stored, GB/s": lambda run: _gb(run.loaded.per_second("stored_bytes")),
    "chunks asked for that were there":
        lambda run: _percent(_share(run.loaded.found_chunks, run.loaded.asked_chunks)),
    "of these, on NVMe only": lambda run: _percent(run.from_nvme_share)}
ROWS_BEHIND = {
    "stalls over 100 ms": lambda run: str(run.loaded.stalls),
    "device runs a prefix": lambda run: f"{run.device_runs_per_prefix:.2f}",
    "prefixes got faster than recomputed": lambda run: _percent(run.faster_share),
    "CPU s, clients": lambda run: f"{run.loaded.client_cpu_seconds:.2f}",
    "CPU s, daemon": lambda run: f"{run.daemon_cpu_seconds:.2f}"}


@dataclass
class PatternReport:
    request: dict
    model: dict
    arena: str = ""  # these three: as Report's
    daemon: str = ""
    path: str = ""
    g2_bytes: int = 0
    g3_bytes: int = 0
    runs: list = field(default_factory=list)
    device_why_not: str = ""  # why the drive was not measured; empty: it was
    lines: list = field(default_factory=list)

    def describe(self, workers):
        status = workers.status()
        self.g2_bytes = status.get("g2_capacity_bytes", 0)
        self.g3_bytes = status.get("g3_capacity_bytes", 0)
        self.arena, self.daemon = status.get("arena", ""), status.get("version", "")
        self.path = workers.path

    def judge(self):
        """Two lines for each rate."""
        self.lines = []
        for run in self.runs:
            promised = not run.job["closed_loop"] and run.below_device_rate
            where = self._where(run)

            def at_most(limit, promised=promised):
                return ("at most", limit) if promised else None

            p99_ms = [[one.chunk.quantile_us(0.99) / 1e3] for one in (run.loaded, run.alone)]
            both = [lines_of.plain_line(f"{where}: waits above 100 ms", "", [run.loaded.stalls],
                                        at_most(0)),
                    lines_of.ratio_line(f"{where}: p99 of a chunk against alone", "ms", *p99_ms,
                                        at_most(MOST_OF_ALONE_P99))]
            for one in both:
                one.numbers["requests_per_second"] = run.rate
            self.lines += both

    def _where(self, run):
        """The rate, and how much that is of the drive's: in bursts, where there are some."""
        rate = f"{self.request['name']} at {run.rate:g} requests/s"
        if run.device_bytes_per_second <= 0:
            return f"{rate} (the drive's rate is not known)"
        return f"{rate} (at most {100 * run.peak_share_of_device:.0f} % of the drive's rate)"

    def sound(self):
        """No wrong byte, no failed call, no request that was not played."""
        return bool(self.runs) and all(run.sound() for run in self.runs)

    def all_ok(self):
        return lines_of.none_missed(self.lines)

    def wants(self):
        """The daemon's missing part without which the report says nothing; empty: none."""
        most = max((run.job["working_set_bytes"] for run in self.runs), default=0)
        of = f"the working set is {bytes_text(most)}: "
        if self.g3_bytes == 0:
            return of + "without a G3 what does not fit G2 is lost"
        if self.g2_bytes > most / 2:
            return (of + "G2 holds more than half of it; give the daemon less, so that NVMe is "
                    "read")
        return of + "G3 does not hold it; give the daemon more" if self.g3_bytes < most else ""

    def document(self):
        return {"request": self.request, "model": self.model, "daemon": self.daemon,
                "arena": self.arena, "path": self.path, "g2_bytes": self.g2_bytes,
                "g3_bytes": self.g3_bytes, "wants": self.wants(),
                "device_why_not": self.device_why_not,
                "runs": [run.document() for run in self.runs],
                "table": lines_of.document(self.lines), "sound": self.sound()}

    def text(self):
        return (f"path: {self.path}\narena: {self.arena}\n\n{self._runs()}{self._troubles()}\n"
                f"{lines_of.text(self.lines)}")

    def _runs(self):
        rows = [[f"{self.request['name']}, requests/s", "alone",
                 *(f"{run.rate:g}" for run in self.runs)]]

        def add_latency(name, latency, *quantiles):
            for quantile in quantiles:
                of = [getattr(one, latency).quantile_us(quantile) / 1e3
                      for one in (self.runs[0].alone, *(run.loaded for run in self.runs))]
                rows.append([f"{name}, p{100 * quantile:g}, ms", *(f"{ms:.2f}" for ms in of)])

        def add(some):
            for name, cell in some.items():
                rows.append([name, "", *(cell(run) for run in self.runs)])

        add(ROWS_BEFORE)
        for latency, name in LATENCIES.items():
            add_latency(name, latency, 0.5, 0.99, 0.999)
        add_latency("begun late by us", "began_late", 0.99)
        add(ROWS_BEHIND)
        return table(rows)

    def _troubles(self):
        words = "".join(lines_of.troubles("", one, one.failed_calls)
                        for run in self.runs for one in (run.alone, run.loaded))
        if wants := self.wants():
            words += f"note: {wants}\n"
        if self.device_why_not:
            words += f"note: the drive was not measured: {self.device_why_not}\n"
        return words
