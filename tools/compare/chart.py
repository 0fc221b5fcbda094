#!/usr/bin/env python3
"""A picture of what kvkeep-compare measured: chart.py compare.json compare.svg

Bars are GB/s, one panel an operation, one group a size; a thin line shows the rounds' range. No
library: the picture is text, and a diff of it can be read.
"""

import json
import sys
from xml.sax.saxutils import escape

WIDTH, PANEL, LEFT, TOP, GAP = 900, 250, 56, 64, 56
COLORS = ["#9aa0a6", "#0b5fa5", "#2f86cf", "#74b3e6", "#a9d0f0", "#c9a227", "#b5482f", "#5d7f5a",
          "#8e5ea2", "#d98032"]


def nice_step(top):
    """A round distance between lines, of which three to six fit below `top`."""
    for exponent in range(-4, 6):
        for digit in (1, 2, 5):
            step = digit * 10.0**exponent
            if top / step <= 6:
                return step
    return top


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def call_text(discipline):
    size, batch = size_text(discipline["size"]), discipline["batch"]
    return size if batch == 1 else f"{batch} x {size}"


def panel(title, groups, names, colors, top_y):
    """groups: [(label, {name: {median, min, max}})]"""
    out = []
    height = PANEL - GAP
    top = max(bar["max"] for _, bars in groups for bar in bars.values()) or 1
    step = nice_step(top)
    y_of = lambda value: top_y + height - value / top * height
    out.append(f'<text x="{LEFT}" y="{top_y - 10}" class="title">{escape(title)}</text>')
    line = 0.0
    while line <= top:
        y = y_of(line)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="axis">{line:g}</text>')
        line += step
    group_width = (WIDTH - 12 - LEFT) / len(groups)
    for g, (label, bars) in enumerate(groups):
        width = (group_width - 24) / max(len(names), 1)
        for n, name in enumerate(names):
            if name not in bars:
                continue
            bar = bars[name]
            x = LEFT + g * group_width + 12 + n * width
            y = y_of(bar["median"])
            low, high = bar["min"], bar["max"]
            tip = f'{name}, {label}: {bar["median"]:.2f} GB/s ({low:.2f} to {high:.2f})'
            out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 2:.1f}" '
                       f'height="{top_y + height - y:.1f}" fill="{colors[name]}">'
                       f"<title>{escape(tip)}</title></rect>")
            middle = x + (width - 2) / 2
            out.append(f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{y_of(low):.1f}" '
                       f'y2="{y_of(high):.1f}" class="range"/>')
        x = LEFT + (g + 0.5) * group_width
        out.append(f'<text x="{x:.1f}" y="{top_y + height + 18}" class="label">{label}</text>')
    return out


def draw(data):
    names = data["names"]
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}
    panels = []
    for operation, title in (("get", "get"), ("put", "put of fresh keys"),
                             ("first put", "first put, into a store just started")):
        groups = [(call_text(d),
                   {name: r["gb_per_second"] for name, r in d["results"].items()})
                  for d in data.get("disciplines", []) if d["operation"] == operation]
        if groups:
            panels.append((title + ", GB/s", groups, names, colors))
    if data.get("nvme"):
        pair, paint = ["fio", "kvkeep"], {"fio": COLORS[0], "kvkeep": COLORS[1]}
        groups = []
        for n in data["nvme"]:
            size = size_text(n["size"])
            groups.append((f"read {size}",
                           {"fio": n["fio_read"], "kvkeep": n["read"]["gb_per_second"]}))
            for what in ("first_fill", "overwrite"):
                groups.append((f"{what.replace('_', ' ')} {size}",
                               {"fio": n[f"fio_{what}"], "kvkeep": n[what]["gb_per_second"]}))
        panels.append(("NVMe, GB/s: fio (grey), kvkeep (blue)", groups, pair, paint))
    height = TOP + len(panels) * (PANEL + 24)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           'font-family="system-ui, sans-serif" font-size="12">',
           "<style>.title{font-weight:600;font-size:14px}.axis{text-anchor:end;fill:#5f6368}"
           ".label{text-anchor:middle}.grid{stroke:#e3e5e8}.range{stroke:#202124;stroke-width:1}"
           "</style>", f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    x = LEFT
    for name in names:
        out.append(f'<rect x="{x}" y="14" width="11" height="11" fill="{colors[name]}"/>')
        out.append(f'<text x="{x + 15}" y="24">{escape(name)}</text>')
        x += 30 + 7 * len(name)
    for i, (title, groups, of, paint) in enumerate(panels):
        out += panel(title, groups, of, paint, TOP + 10 + i * (PANEL + 24))
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
