"""Report of a comparison: tables for people, JSON for the chart and for scripts.

Figures are medians over rounds; a ratio is the median of the rounds' ratios. Pure functions.
"""

from dataclasses import asdict, dataclass, field

from contest import GRPC, LOCAL, PEERS, STAGING, STREAM
from figures import bytes_text, median, ratios, spread, summary, table
from nvme import BARE, FIO_BLOCKS
from targets import call_text, judged

ABSENT = "-"


@dataclass
class Comparison:
    """All that a run measured."""

    about: dict = field(default_factory=dict)  # the machine, the versions, the options
    names: list = field(default_factory=list)  # who took part in anything
    disciplines: list = field(default_factory=list)
    nvme: list = field(default_factory=list)

    @property
    def wrong_bytes(self):
        """How many bytes differed from those put, over all contestants."""
        slices = [one for discipline in self.disciplines
                  for results in discipline.results.values() for one in results]
        slices += [one for result in self.nvme for one in result.parts["read"].kvkeep]
        return sum(one.wrong_bytes for one in slices)

    @property
    def refused(self):
        return any(result.refused for result in self.nvme)


def _percent(values):
    return f"{spread(values) * 100:.0f}%"


def _bandwidths(comparison, operation):
    """Contestants down, sizes across: GB/s, and beside it the share of the first contestant's. An
    absent contestant has a line, too."""
    columns = [one for one in comparison.disciplines if one.operation == operation]
    base = comparison.names[0] if comparison.names else ""
    rows = [[operation] + [text for one in columns
                           for text in (call_text(one), f"x {base}", "spread", "p99 us")]]
    for name in comparison.names:
        rows.append([name])
        for one in columns:
            rates = one.each(name, "gb_per_s")
            if not rates:
                rows[-1] += 4 * [ABSENT]
                continue
            shares = ratios(rates, one.each(base, "gb_per_s"))
            rows[-1] += [f"{median(rates):.2f}", f"{median(shares):.2f}", _percent(rates),
                         f"{median(one.each(name, 'p99_us')):.0f}"]
    return rows if columns else []


def _lookups(comparison, discipline):
    rows = [[f"lookup of {discipline.batch} keys", "p50 us", "spread", "p99 us"]]
    for name in comparison.names:
        p50 = discipline.each(name, "p50_us")
        if not p50:
            rows.append([name] + 3 * [ABSENT])
            continue
        rows.append([name, f"{median(p50):.1f}", _percent(p50),
                     f"{median(discipline.each(name, 'p99_us')):.1f}"])
    return rows


def _stream(comparison):
    """The cost of kvkeep's messages over gRPC, beside a stream that keeps nothing."""
    rows = [[f"{GRPC} / {STREAM}", "x stream", "least", "most"]]
    for one in comparison.disciplines:
        if times := one.times_as_fast(GRPC, STREAM):
            rows.append([f"{one.operation} {call_text(one)}", f"{median(times):.2f}",
                         f"{min(times):.2f}", f"{max(times):.2f}"])
    return rows if len(rows) > 1 else []


def _pairs(comparison):
    """kvkeep's local path and each peer that is there."""
    return [(ours, peer) for peer in PEERS for ours in (LOCAL, STAGING)
            if {ours, peer} <= set(comparison.names)]


def _peers(comparison):
    pairs = _pairs(comparison)
    rows = [["times as fast as a peer"] + [f"{ours} / {peer}" for ours, peer in pairs]]
    for one in comparison.disciplines:
        times = [summary(one.times_as_fast(*pair)) for pair in pairs]
        rows.append([f"{one.operation} {call_text(one)}"]
                    + [f"{t['median']:.2f} ({t['min']:.2f} to {t['max']:.2f})" for t in times])
    return rows if pairs else []


def _per_gb(results, figure):
    total = sum(one.bytes for one in results)
    return sum(getattr(one, figure) for one in results) * 1e9 / total if total else 0


def _cpu(comparison):
    """CPU seconds per GB: the contestant's own process while its calls run, and its servers'."""
    columns = [one for one in comparison.disciplines if one.operation in ("get", "put")]
    rows = [["CPU s/GB, client + server"]
            + [f"{one.operation} {call_text(one)}" for one in columns]]
    for name in comparison.names:
        each = [one.results.get(name, []) for one in columns]
        rows.append([name] + [f"{_per_gb(results, 'cpu_s'):.3f} + "
                              f"{_per_gb(results, 'server_cpu_s'):.3f}" if results else ABSENT
                              for results in each])
    return rows if columns else []


def _nvme(comparison):
    rows = [["NVMe", "GB/s", "fio 1 MiB", "fio 4 MiB", "x better", BARE, "x bare", "spread",
             ""]]
    for result in comparison.nvme:
        came = ("REFUSED: only " if result.refused else "") + f"{result.from_nvme:.1%} from NVMe"
        for part, figures in result.parts.items():
            rates = figures.rates()
            if not rates:
                continue
            rows.append([f"{part} {bytes_text(result.size)}", f"{median(rates):.2f}",
                         *(f"{median(fio):.2f}" for fio in figures.fio.values()),
                         f"{median(figures.of_fio()):.2f}", f"{median(figures.bare):.2f}",
                         f"{median(figures.of_bare()):.2f}", _percent(rates),
                         came if part == "read" else ""])
    return rows if comparison.nvme else []


def _verdicts(comparison):
    rows = [["what", "beside", "target", "measured", "verdict"]]
    rows += [[f"{one.ours}: {one.what}", one.theirs, f"{one.target:.2f}", f"{one.measured:.2f}",
              one.verdict] for one in judged(comparison.disciplines, comparison.nvme)]
    return rows if len(rows) > 1 else []


def text(comparison):
    tables = [_bandwidths(comparison, operation)
              for operation in ("get", "lookup+get", "put", "first put")]
    tables += [_lookups(comparison, one) for one in comparison.disciplines
               if one.operation == "lookup"]
    tables += [_stream(comparison), _peers(comparison), _cpu(comparison), _nvme(comparison),
               _verdicts(comparison)]
    return ("".join(table(rows) + "\n" for rows in tables if rows)
            + f"wrong bytes: {comparison.wrong_bytes}\n")


def _series(results, baseline):
    """Summary of the rounds of one contestant, or of kvkeep beside fio."""
    rates = [one.gb_per_s for one in results]
    return {"gb_per_second": summary(rates), "ratio": summary(ratios(rates, baseline)),
            "p50_us": summary([one.p50_us for one in results]),
            "p99_us": summary([one.p99_us for one in results]),
            "rounds": len(results), "calls": sum(one.calls for one in results),
            "client_cpu_seconds_per_gb": _per_gb(results, "cpu_s"),
            "server_cpu_seconds_per_gb": _per_gb(results, "server_cpu_s"),
            "verified_bytes": sum(one.verified_bytes for one in results),
            "wrong_bytes": sum(one.wrong_bytes for one in results)}


def _discipline(comparison, one):
    base = one.each(comparison.names[0], "gb_per_s")
    of_stream = one.times_as_fast(GRPC, STREAM)
    return {"operation": one.operation,
            "times_as_fast": {f"{ours} / {peer}": summary(one.times_as_fast(ours, peer))
                              for ours, peer in _pairs(comparison)},
            "of_stream": {GRPC: summary(of_stream)} if of_stream else {},
            "size": one.size, "batch": one.batch,
            "results": {name: _series(results, base) for name, results in one.results.items()}}


def _nvme_result(result):
    rows = {"size": result.size, "from_nvme": result.from_nvme, "refused": result.refused}
    for part, figures in result.parts.items():
        name = part.replace(" ", "_")
        rows[name] = _series(figures.kvkeep, figures.better)
        rows[f"fio_{name}"] = summary(figures.better)
        rows[f"fio_{name}_by_block"] = [
            {"block_bytes": block, "gb_per_second": summary(figures.fio[block])}
            for block in FIO_BLOCKS]
    return rows


def document(comparison):
    """The JSON. Lists of what was not measured are not there."""
    lists = {"disciplines": [_discipline(comparison, one) for one in comparison.disciplines],
             "nvme": [_nvme_result(one) for one in comparison.nvme],
             "verdicts": [asdict(one) for one in judged(comparison.disciplines, comparison.nvme)]}
    return {"about": comparison.about, "names": comparison.names,
            **{name: rows for name, rows in lists.items() if rows}}
