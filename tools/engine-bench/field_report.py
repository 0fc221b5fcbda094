"""Report of `field`: measures of each arm by tool and rate, a table, and a picture.

A row is one run of one tool against one arm: {"arm", "round", "tool", "users", "qps", measures}.
"""

import bars
import figures

_PANELS = {"ttft_p50_s": "TTFT p50, s", "ttft_p90_s": "TTFT p90, s", "ttft_p99_s": "TTFT p99, s",
           "itl_s": "ITL, s", "tps": "TPS: tokens a second", "rps": "RPS: answers a second",
           "latency_p50_s": "request latency p50, s", "latency_p99_s": "request latency p99, s",
           "hit_ratio": "hit ratio"}


def _at(rows, arm, tool, users):
    """Returns {measure: summary over rounds}."""
    mine = [row for row in rows if (row["arm"], row["tool"], row["users"]) == (arm, tool, users)]
    return {measure: said for measure in _PANELS
            if (said := figures.summary(row[measure] for row in mine if measure in row))}


def document(rows, bound_s, about):
    """about: what was run and on what, a mapping. bound_s: see users_below."""
    arms = figures.arms_of(rows)
    loads = list(dict.fromkeys((row["tool"], row["users"], row["qps"]) for row in rows))
    at = [{"arm": arm, "tool": tool, "users": users, "qps": qps, **said}
          for tool, users, qps in loads for arm in arms if (said := _at(rows, arm, tool, users))]
    return {"scenario": "field", **about, "ttft_bound_s": bound_s, "at": at,
            "users_below_bound": {
                tool: {arm: users_below(at, arm, tool, bound_s) for arm in arms}
                for tool in dict.fromkeys(tool for tool, _, _ in loads)}, "rows": rows}


def users_below(at, arm, tool, bound_s):
    """Returns the most users up to whom the median TTFT p90 was at most bound_s; 0: none."""
    most = 0
    for one in sorted(at, key=lambda one: one["users"]):
        if (one["arm"], one["tool"]) == (arm, tool):
            if one["ttft_p90_s"]["median"] > bound_s:
                break
            most = one["users"]
    return most


def table(said):
    """Returns Markdown: medians over rounds."""
    lines = []
    for tool, below in said["users_below_bound"].items():
        lines += [f"| {tool} | users | QPS | {' | '.join(_PANELS.values())} |",
                  "|---" * (len(_PANELS) + 3) + "|"]
        for one in said["at"]:
            if one["tool"] == tool:
                cells = (f"{one[measure]['median']:.3g}" if measure in one else "-"
                         for measure in _PANELS)
                lines.append(f"| {one['arm']} | {one['users']} | {one['qps']:.3g} | "
                             f"{' | '.join(cells)} |")
        lines += ["", f"users with a TTFT p90 of at most {said['ttft_bound_s']:g} s: "
                  + ", ".join(f"{arm} {users}" for arm, users in below.items()), ""]
    return "\n".join(lines)


def picture(said):
    """Returns SVG: a panel a tool and measure, a group a rate, a bar an arm."""
    colors = bars.colors_of(dict.fromkeys(one["arm"] for one in said["at"]))
    panels = []
    for tool, below in said["users_below_bound"].items():
        for measure, title in _PANELS.items():
            groups = {}
            for one in said["at"]:
                if one["tool"] == tool and measure in one:
                    label = f"{one['users']} users, {one['qps']:.3g} QPS"
                    groups.setdefault(label, {})[one["arm"]] = one[measure]
            if groups:
                panels.append((f"{tool}: {title}", "", list(groups.items()), colors))
        title = f"{tool}: users with a TTFT p90 of at most {said['ttft_bound_s']:g} s"
        panels.append((title, "", [("users", {
            arm: {"median": users, "min": users, "max": users}
            for arm, users in below.items()})], colors))
    return bars.picture(colors, panels)
