"""Report: all that one invocation found out, for people and for machines."""

from dataclasses import asdict, dataclass, field

from figures import bytes_text, table
import line as lines_of
import series

# Names of the options that a report shows.
OPTIONS = ("verb", "endpoint", "path", "daemon", "arena_dir", "g2_bytes", "g3_bytes",
           "copy_threads", "sizes", "tier", "run_sizes", "adjacent", "batch", "depth", "clients",
           "seconds", "ops", "rounds", "keys", "table_chunks", "mix", "verify", "region_bytes",
           "seed", "quick", "sections", "lookup_table_chunks")


@dataclass
class CpuCost:
    """The CPU cost of a gigabyte (1e9 bytes of payload)."""

    path: str  # "local get", "tcp put", "promotion", "write-back"
    gigabytes: float  # that were moved to tell
    client_seconds_per_gb: float
    daemon_seconds_per_gb: float


@dataclass
class Report:
    options: object
    machine: dict = field(default_factory=dict)
    arena: str = ""  # the daemon's own words
    daemon: str = ""  # its version
    path: str = ""  # "grpc" or "local", and why when it was chosen
    baseline_huge_page_bytes: int = 0
    daemon_gpu_bytes: int = None  # of the GPU's memory, taken to serve a GPU's path
    cases: list = field(default_factory=list)
    baselines: list = field(default_factory=list)
    lines: list = field(default_factory=list)
    cpu_costs: list = field(default_factory=list)
    failure: str = ""  # why a section of the table could not be measured

    def describe(self, load):
        """Adds what its clients met, and which daemon."""
        status = load.status()
        self.arena, self.daemon = status.get("arena", ""), status.get("version", "")
        self.path = load.path

    def sound(self):
        """No wrong byte, no call failed, no section either."""
        totals = [one.total() for one in self.cases]
        return not self.failure and all(
            total.wrong_bytes == 0 and total.failed_ops == 0 and total.ops > 0
            for total in totals)

    def all_ok(self):
        return lines_of.none_missed(self.lines)

    def document(self):
        found = {"options": {name: getattr(self.options, name) for name in OPTIONS},
                 "machine": self.machine, "daemon": self.daemon, "arena": self.arena,
                 "path": self.path, "baseline_huge_page_bytes": self.baseline_huge_page_bytes,
                 "cases": [one.report() for one in self.cases],
                 "baselines": [one.report() for one in self.baselines]}
        if self.daemon_gpu_bytes is not None:
            found["daemon_gpu_bytes"] = self.daemon_gpu_bytes
        if self.lines:
            found["table"] = lines_of.document(self.lines)
        if self.cpu_costs:
            found["cpu_costs"] = [asdict(cost) for cost in self.cpu_costs]
        if self.failure:
            found["failure"] = self.failure
        found["sound"] = self.sound()
        return found

    def text(self):
        words = f"path: {self.path}\n" if self.path else ""
        if self.arena:
            words += f"arena: {self.arena}\n"
        if self.daemon_gpu_bytes is not None:
            words += f"the daemon took {bytes_text(self.daemon_gpu_bytes)} of the GPU's memory\n"
        if self.baseline_huge_page_bytes:
            words += f"baseline memory in huge pages: {self.baseline_huge_page_bytes} bytes\n"
        words += "\n" + series.text([*self.baselines, *self.cases]) + self._troubles()
        if self.lines:
            words += "\n" + lines_of.text(self.lines)
        if self.cpu_costs:
            words += "\n" + self._costs()
        return words

    def _troubles(self):
        words = ""
        for one in self.cases:
            total = one.total()
            words += lines_of.troubles(f"{one.name}: ", total, total.failed_ops)
        return words + (f"failed: {self.failure}\n" if self.failure else "")

    def _costs(self):
        return table([["CPU SECONDS A GB", "CLIENT", "DAEMON", "BOTH", "OF GB"],
                      *([cost.path, *(f"{figure:.3f}" for figure in (
                          cost.client_seconds_per_gb, cost.daemon_seconds_per_gb,
                          cost.client_seconds_per_gb + cost.daemon_seconds_per_gb)),
                         f"{cost.gigabytes:.1f}"] for cost in self.cpu_costs)])
