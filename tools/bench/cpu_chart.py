#!/usr/bin/env python3
"""Keeps and draws what kvkeep-bench cpu --json measured.

    kvkeep-bench cpu --daemon build/release/bin/kvkeepd --json > cpu.json
    tools/bench/cpu_chart.py keep cpu.json "WHERE AND WHEN" tools/kvkeep/cpu_costs.json
    tools/bench/cpu_chart.py draw tools/kvkeep/cpu_costs.json tools/bench/cpu_costs.svg

What is kept is what `kvkeep plan` counts cores by. A bar a path: the daemon's part, then the
client's.
"""

import json
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, ROW, TOP, RIGHT = 760, 110, 30, 64, 70
COLORS = {"daemon": "#0b5fa5", "client": "#a9d0f0"}


def keep(report, origin):
    if not report["sound"]:
        raise SystemExit("not kept: calls failed, or bytes were wrong")
    origin = (f'kvkeep-bench cpu, kvkeep {report["daemon"]}, {report["machine"]["cpus"]} cores, '
              f"{origin}")
    costs = [{"path": cost["path"], "gigabytes": round(cost["gigabytes"], 1),
              "client_seconds_per_gb": round(cost["client_seconds_per_gb"], 4),
              "daemon_seconds_per_gb": round(cost["daemon_seconds_per_gb"], 4)}
             for cost in report["cpu_costs"]]
    lines = ",\n".join("    " + json.dumps(cost) for cost in costs)
    return f'{{\n  "origin": {json.dumps(origin)},\n  "cpu_costs": [\n{lines}\n  ]\n}}\n'


def draw(kept):
    costs = kept["cpu_costs"]
    most = max(cost["client_seconds_per_gb"] + cost["daemon_seconds_per_gb"] for cost in costs)
    per_second = (WIDTH - LEFT - RIGHT) / (most or 1)
    height = TOP + ROW * len(costs) + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           'font-family="system-ui, sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="22" font-weight="600">CPU seconds a GB</text>']
    for number, (who, color) in enumerate(COLORS.items()):
        x = LEFT + 150 + number * 90
        out.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{color}"/>'
                   f'<text x="{x + 17}" y="22">{who}</text>')
    out.append(f'<text x="{LEFT}" y="44" font-size="10" fill="#5f6368">'
               f'{escape(kept["origin"])}</text>')
    for number, cost in enumerate(costs):
        y, x = TOP + number * ROW, float(LEFT)
        out.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">'
                   f'{escape(cost["path"])}</text>')
        for who, color in COLORS.items():
            seconds = cost[f"{who}_seconds_per_gb"]
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{seconds * per_second:.1f}" height="20" '
                       f'fill="{color}"><title>{who}: {seconds:g} s</title></rect>')
            x += seconds * per_second
        both = cost["client_seconds_per_gb"] + cost["daemon_seconds_per_gb"]
        out.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{both:.3g}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "keep":
        source, text = sys.argv[2], lambda data: keep(data, sys.argv[3])
    elif len(sys.argv) == 4 and sys.argv[1] == "draw":
        source, text = sys.argv[2], draw
    else:
        print(__doc__, file=sys.stderr)
        return 2
    with open(source, encoding="utf-8") as file:
        made = text(json.load(file))
    with open(sys.argv[-1], "w", encoding="utf-8") as file:
        file.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
