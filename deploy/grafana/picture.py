#!/usr/bin/env python3
"""The dashboard as a picture: what Grafana would draw, panel by panel, from recorded data.

    picture.py record kvkeep.json http://127.0.0.1:9090 600 recorded.json   the last 600 seconds
    picture.py draw recorded.json kvkeep.svg

Panels stand where the dashboard's gridPos puts them, with its titles, units and legends; Grafana's
style is not imitated. No library: the picture is text, and a diff of it can be read.
"""

import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

POINTS = 60  # of a series
COLUMN, ROW, GAP, HEAD = 60, 20, 8, 34  # pixels: of the grid's units, between panels, above plots
MARGIN_LEFT, MARGIN_BOTTOM = 62, 30
MAX_LEGENDS = 4
COLORS = ["#2f86cf", "#c9a227", "#5d7f5a", "#b5482f", "#7d5ba6", "#0b5fa5", "#9aa0a6", "#d48265"]
STYLE = """<style>
text { font: 11px sans-serif; fill: #444 } .title { font-weight: bold; fill: #222 }
.row { font-size: 14px; font-weight: bold } .number { font-size: 26px; font-weight: bold }
.head { font-size: 17px; font-weight: bold; fill: #222 }
.box { fill: #fff; stroke: #ddd } .line { fill: none; stroke-width: 1.4 } .grid { stroke: #eee }
</style>"""


def expand(expression, rate_interval_seconds):
    """Grafana's variables as Prometheus has them: all jobs, all instances."""
    text = expression.replace("$__rate_interval", f"{rate_interval_seconds}s")
    return re.sub(r'"\$\w+"', '".*"', text)


def ask_range(url, query, start, end, step):
    words = urllib.parse.urlencode({"query": query, "start": start, "end": end, "step": step})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{words}", timeout=30) as reply:
        answer = json.load(reply)
    assert answer["status"] == "success", answer
    return answer["data"]["result"]


def legend(form, labels):
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found.group(1), ""), form).strip()


def series_of(form, found, start, step):
    values = [None] * (POINTS + 1)
    for at, text in found["values"]:
        value = float(text)
        values[round((at - start) / step)] = float(f"{value:.4g}") if math.isfinite(value) else None
    return {"name": legend(form, found["metric"]), "values": values}


def record(dashboard, url, seconds, rate_interval_seconds, now=None):
    """All series of all panels over the last `seconds`, of a Prometheus at `url`."""
    end = now or time.time()
    step = seconds / POINTS
    start = end - seconds
    panels = []
    for panel in dashboard["panels"]:
        series = []
        for target in panel.get("targets", []):
            query = expand(target["expr"], rate_interval_seconds)
            series += [series_of(target["legendFormat"], one, start, step)
                       for one in ask_range(url, query, start, end, step)]
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        panels.append({"title": panel["title"], "type": panel["type"], "grid": panel["gridPos"],
                       "unit": defaults.get("unit", "none"), "series": series})
    return {"title": dashboard["title"], "seconds": seconds, "panels": panels}


def three_digits(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def scaled(value, base, names):
    for name in names[:-1]:
        if abs(value) < base:
            return f"{three_digits(value)} {name}".strip()
        value /= base
    return f"{value:.3g} {names[-1]}"


def in_unit(value, unit):
    """As Grafana's unit of that name shows it, near enough."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit in ("bytes", "Bps"):
        text = scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
        return text + ("/s" if unit == "Bps" else "")
    if unit == "s":
        if 0 < abs(value) < 1:
            return scaled(value * 1e6, 1000, ["us", "ms", "s"])
        return f"{value:.3g} s"
    text = scaled(value, 1000, ["", "k", "M", "G", "T"])
    return text + {"cps": "/s", "ops": "/s", "reqps": "/s"}.get(unit, "")


def known(values):
    return [value for value in values if value is not None]


def nice_top(top, unit):
    """The next round number, so that the lines below it are round too."""
    if top <= 0:
        return 1
    if unit in ("bytes", "Bps") and top >= 1024:
        return 1024 * nice_top(top / 1024, unit)
    exponent = math.floor(math.log10(top))
    return next(digit * 10.0**exponent for digit in (1, 2, 4, 6, 8, 10)
                if digit * 10.0**exponent >= top * 0.999)


def stat(panel, x, y, width, height):
    numbers = [(one["name"], known(one["values"])) for one in panel["series"]]
    numbers = [(name, values[-1]) for name, values in numbers if values]
    out = []
    for i, (name, value) in enumerate(numbers):
        at = y + HEAD + (i + 0.6) * (height - HEAD) / max(len(numbers), 1)
        label = f'<tspan font-size="11" font-weight="normal">&#160;{escape(name)}</tspan>'
        out.append(f'<text x="{x + width / 2:.0f}" y="{at:.0f}" class="number" '
                   f'text-anchor="middle">{escape(in_unit(value, panel["unit"]))}'
                   f'{label if len(numbers) > 1 else ""}</text>')
    return out


def corners(points):
    """Without those on a level line between their neighbours."""
    return [point for i, point in enumerate(points)
            if not (0 < i < len(points) - 1 and points[i - 1][1] == point[1] == points[i + 1][1])]


def lines(values, x_of, y_of):
    """A polyline, in whole pixels, for each stretch without a hole."""
    out, points = [], []
    for i, value in enumerate(values + [None]):
        if value is not None:
            points.append((round(x_of(i)), round(y_of(value))))
        elif points:
            points = corners(points) if len(points) > 1 else points * 2
            out.append(" ".join(f"{x},{y}" for x, y in points))
            points = []
    return out


def time_series(panel, x, y, width, height):
    left, right = x + MARGIN_LEFT, x + width - 10
    top, bottom = y + HEAD, y + height - MARGIN_BOTTOM
    most = nice_top(max([v for one in panel["series"] for v in known(one["values"])] or [0]),
                    panel["unit"])
    y_of = lambda value: bottom - max(value, 0) / most * (bottom - top)
    x_of = lambda i: left + i / POINTS * (right - left)
    out = []
    for part in (0, 0.5, 1):
        at = y_of(most * part)
        out.append(f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>'
                   f'<text x="{left - 5}" y="{at + 4:.1f}" text-anchor="end">'
                   f'{escape(in_unit(most * part, panel["unit"]))}</text>')
    # Series that moved most are drawn and named first, as many stay at zero.
    series = sorted(panel["series"], key=lambda one: -max(known(one["values"]) or [0]))
    for i, one in enumerate(series):
        color = COLORS[i % len(COLORS)]
        out += [f'<polyline points="{points}" class="line" stroke="{color}"/>'
                for points in lines(one["values"], x_of, y_of)]
    at = left - MARGIN_LEFT + 10
    for i, one in enumerate(series[:MAX_LEGENDS]):
        name = one["name"][:30]
        out.append(f'<text x="{at:.0f}" y="{y + height - 10}"><tspan fill="{COLORS[i]}">&#9644;'
                   f'</tspan> {escape(name)}</text>')
        at += 22 + 5.8 * len(name)
    if len(series) > MAX_LEGENDS:
        out.append(f'<text x="{at:.0f}" y="{y + height - 10}">+ {len(series) - MAX_LEGENDS}</text>')
    return out


def draw(recorded):
    ends = [panel["grid"]["y"] + panel["grid"]["h"] for panel in recorded["panels"]]
    width, height, top = 24 * COLUMN + GAP, max(ends) * ROW + 44 + GAP, 44
    head = f'{recorded["title"]}, {recorded["seconds"] / 60:.3g} minutes'
    if recorded.get("load"):
        head += f': {recorded["load"]}'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}">', STYLE,
           f'<rect width="{width}" height="{height}" fill="#f7f8fa"/>',
           f'<text x="12" y="28" class="head">{escape(head)}</text>']
    for panel in recorded["panels"]:
        grid = panel["grid"]
        x, y = grid["x"] * COLUMN + GAP, grid["y"] * ROW + top
        w, h = grid["w"] * COLUMN - GAP, grid["h"] * ROW - GAP
        if panel["type"] == "row":
            out.append(f'<text x="{x}" y="{y + 15}" class="row">{escape(panel["title"])}</text>')
            continue
        clip = f'clip{grid["x"]}x{grid["y"]}'
        out.append(f'<clipPath id="{clip}"><rect x="{x}" y="{y}" width="{w}" height="{h}"/>'
                   f'</clipPath><rect x="{x}" y="{y}" width="{w}" height="{h}" class="box"/>'
                   f'<text x="{x + 10}" y="{y + 19}" class="title">{escape(panel["title"])}</text>'
                   f'<g clip-path="url(#{clip})">')
        kind = stat if panel["type"] == "stat" else time_series
        out += kind(panel, x, y, w, h)
        out.append("</g>")
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    words = sys.argv[1:]
    if len(words) == 5 and words[0] == "record":
        with open(words[1], encoding="utf-8") as file:
            dashboard = json.load(file)
        recorded = record(dashboard, words[2], float(words[3]), rate_interval_seconds=60)
        with open(words[4], "w", encoding="utf-8") as file:
            json.dump(recorded, file)
    elif len(words) == 3 and words[0] == "draw":
        with open(words[1], encoding="utf-8") as file:
            recorded = json.load(file)
        with open(words[2], "w", encoding="utf-8") as file:
            file.write(draw(recorded))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
