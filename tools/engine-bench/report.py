"""Report of a run: JSON that keeps every row, a table of it, the targets, and a picture.

Absolute times of a model on a CPU mean nothing to anybody; ratios between arms of one run do.
"""

import bars
import figures

_NAMES = {"ttft_s": "TTFT", "ttft_p50_s": "TTFT p50", "ttft_p90_s": "TTFT p90",
          "ttft_p99_s": "TTFT p99", "itl_s": "ITL", "itl_p99_s": "ITL p99", "tps": "TPS",
          "host_bytes": "host bytes", "store_cpu_s": "CPU s a GB stored",
          "hit_ratio": "hit ratio"}
_ALWAYS = ("ttft_s", "itl_s", "tps", "hit_ratio")  # columns, measured or not

# scenario: [(arm, base, measure, "at most" or "at least", limit)], of medians over rounds
PROMISES = {
    "recall": [("kvkeep", "cold", "ttft_s", "at most", 1 / 15),
               ("kvkeep", "dict", "ttft_s", "at most", 1.2)],
    "moved": [("peer", "own NVMe", "ttft_s", "at most", 1.3),
              ("peer", "cold", "ttft_s", "at most", 1.0),
              ("G4", "cold", "ttft_s", "at most", 1.0),
              ("peer", "own NVMe", "hit_ratio", "at least", 1.0),
              ("G4", "own NVMe", "hit_ratio", "at least", 1.0)],
    "no-hit": [("kvkeep", "none", "ttft_s", "at most", 1.02),
               ("kvkeep", "none", "tps", "at least", 0.98)],
    "stores": [("direct", "kvkeep", "host_bytes", "at most", 0.55),
               ("direct", "kvkeep", "store_cpu_s", "at most", 0.6)],
    "serve": [("direct", "lmcache", "ttft_p50_s", "at most", 1.0),
              ("direct", "lmcache", "ttft_p99_s", "at most", 1.0),
              ("direct", "lmcache", "hit_ratio", "at least", 1.0)],
}


def document(scenario, rows, bases, about):
    """about: what was run and on what, a mapping. bases: arms that others are held to, if they
    were measured; else the first one is."""
    measured = figures.arms_of(rows)
    bases = [base for base in bases if base in measured] or measured[:1]
    return {"scenario": scenario, **about, "arms": figures.of_arms(rows),
            "ratios": {base: figures.ratios(rows, base) for base in bases}, "rows": rows}


def promises(said):
    """[(in words, whether it holds)] of a document; what was not measured does not hold. Nothing
    was promised of a toy."""
    out = []
    if said["quick"]:
        return out
    for arm, base, measure, which, limit in PROMISES.get(said["scenario"], []):
        ratio = _ratio(said, arm, base, measure)
        words = f"{_NAMES[measure]} of {arm} / {base}: {which} {limit:.3g}"
        if ratio is None:
            out.append((f"{words}, not measured", False))
            continue
        holds = ratio["median"] <= limit if which == "at most" else ratio["median"] >= limit
        out.append((f"{words}, is {ratio['median']:.3g}", holds))
    return out


def _ratio(said, arm, base, measure):
    if measure != "hit_ratio":
        return said["ratios"].get(base, {}).get(arm, {}).get(measure)
    mine, theirs = (said["arms"].get(one, {}).get(measure) for one in (arm, base))
    if mine is None or not (theirs and theirs["median"]):
        return None
    return {"median": mine["median"] / theirs["median"]}


def _cell(ratio, digits=3):
    if ratio is None:
        return "-"
    return (f"{ratio['median']:.{digits}g} ({ratio['min']:.{digits}g} to "
            f"{ratio['max']:.{digits}g})")


def table(said):
    """Markdown. A ratio is the median over rounds, with its range."""
    lines = []
    measured = {measure for of_arm in said["arms"].values() for measure in of_arm}
    columns = [measure for measure in _NAMES if measure in measured or measure in _ALWAYS]
    for base, of_base in said["ratios"].items():
        lines += [f"| as a ratio to {base} | {' | '.join(_NAMES[one] for one in columns)} |",
                  "|---" * (len(columns) + 1) + "|"]
        for arm in (base, *of_base):
            mine = of_base.get(arm, {})
            cells = [("1" if arm == base else _cell(mine.get(measure)))
                     for measure in columns[:-1]]
            cells.append(_cell(said["arms"].get(arm, {}).get("hit_ratio"), 2))
            lines.append(f"| {arm} | {' | '.join(cells)} |")
        lines.append("")
    lines += [f"{'holds' if holds else 'DOES NOT HOLD'}: {words}"
              for words, holds in promises(said)]
    return "\n".join(lines)


def picture(said):
    """A panel a base: a group a measure, a bar an arm."""
    colors, panels = bars.colors_of(said["arms"]), []
    one = {"median": 1.0, "min": 1.0, "max": 1.0}
    for base, of_base in said["ratios"].items():
        groups = []
        for measure in _NAMES:
            group = {arm: of_arm[measure] for arm, of_arm in of_base.items() if measure in of_arm}
            if group:
                groups.append((_NAMES[measure], {base: one, **group}))
        groups.append((_NAMES["hit_ratio"], {
            arm: of_arm["hit_ratio"] for arm, of_arm in said["arms"].items()
            if "hit_ratio" in of_arm}))
        panels.append((f"{said['scenario']}: as a ratio to {base}", "", groups, colors))
    return bars.picture(colors, panels)
