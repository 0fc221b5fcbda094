"""Report of a contest's samples: medians over rounds, ratios by round, and targets."""

from figures import median, short_bytes_text, summary, table

OURS = "kvkeep"
MB, GB = 1e6, 1e9
# Targets of kvkeep beside another arm (shared/design, section 10 of beyond-the-node.md):
# operation, the other arm's name, at least how many times as good.
WANTED = (("put", "bare", 0.5), ("recall", "lmcache", 1.5), ("recall", "nixl", 1.5),
          ("lookup", "lmcache", 5), ("lookup", "nixl", 5))


def _rows_of(samples):
    rows = {}
    for sample in samples:
        rows.setdefault((sample.what, sample.size, sample.arm), {})[sample.round] = sample
    return rows


def figures(samples):
    """A row for each operation, size and arm: seconds, MB/s, CPU seconds a GB, requests."""
    rows = []
    for (what, size, arm), by_round in _rows_of(samples).items():
        some = list(by_round.values())
        row = {"what": what, "size": size, "arm": arm, "rounds": len(some),
               "seconds": summary([one.seconds for one in some])}
        if some[0].bytes:
            row["mb_per_s"] = summary([one.bytes / MB / one.seconds for one in some])
            row["cpu_s_per_gb"] = median([one.cpu_s * GB / one.bytes for one in some])
        if some[0].requests is not None:
            row["requests"] = median([one.requests for one in some])
        rows.append(row)
    return rows


def ratios(samples):
    """How many times as fast each of kvkeep's arms is as each other arm, in time."""
    rows = _rows_of(samples)
    found = []
    for (what, size, ours), mine in rows.items():
        if not ours.startswith(OURS):
            continue
        for (other_what, other_size, other), theirs in rows.items():
            both = mine.keys() & theirs.keys()
            if (what, size) == (other_what, other_size) and other != ours and both:
                found.append({"what": what, "size": size, "ours": ours, "beside": other,
                              "ratio": summary([theirs[turn].seconds / mine[turn].seconds
                                                for turn in both])})
    return found


def judged(found):
    """For each ratio with a target: (ratio, target, whether it is met)."""
    return [(one, wanted, one["ratio"]["median"] >= wanted)
            for what, other, wanted in WANTED for one in found
            if (one["what"], one["ours"], one["beside"]) == (what, OURS, other)]


def _subject(row):
    return f"{row['what']} {short_bytes_text(row['size'])}"


def text(samples):
    rows = [["", "", "ms", "MB/s", "min", "max", "CPU s/GB", "requests"]]
    for row in figures(samples):
        speed = row.get("mb_per_s", {})
        rows.append([_subject(row), row["arm"], f"{row['seconds']['median'] * 1e3:.1f}",
                     *(f"{speed[name]:.0f}" if speed else "" for name in ("median", "min", "max")),
                     f"{row['cpu_s_per_gb']:.2f}" if speed else "",
                     f"{row['requests']:.0f}" if "requests" in row else ""])
    found = ratios(samples)
    lines = ["how many times as fast, median of the rounds' ratios (min to max)"]
    for one in found:
        ratio = one["ratio"]
        lines.append(f"{_subject(one)}: {one['ours']} beside {one['beside']}: "
                     f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})")
    lines.append("")
    for one, wanted, met in judged(found):
        lines.append(f"{'met' if met else 'MISSED'}: {_subject(one)}, {one['ours']} beside "
                     f"{one['beside']}: wanted {wanted}, was {one['ratio']['median']:.2f}")
    return table(rows) + "\n" + "\n".join(lines)
