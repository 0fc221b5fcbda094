#!/usr/bin/env python3
"""A picture of what kvkeep-scale-bench --json said: scale_chart.py scale.json scale.svg

One small panel a figure; both axes are logarithmic, so a straight line that rises by as much as it
goes to the right is a cost for every chunk, and a level one a cost that does not grow.
"""

import json
import math
import sys
from xml.sax.saxutils import escape

PANELS = [
    ("ready_seconds", "start until ready, s, cold page cache"),
    ("bytes_per_entry", "memory an entry, bytes"),
    ("lookup_p50_us", "lookup of 512 keys, p50, us of CPU"),
    ("lookup_p99_us", "lookup of 512 keys, p99, us of CPU"),
    ("put_p50_us", "put of a small chunk, p50, us of CPU"),
    ("lock_us_max", "longest hold of the lock, us of CPU"),
]
COLUMNS, WIDTH, HEIGHT, MARGIN = 3, 320, 210, 48


def decades(values):
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def panel(rows, name, title, left, top):
    points = [(row["chunks"], row[name]) for row in rows if row[name] > 0]
    x_low, x_high = decades([x for x, _ in points])
    y_low, y_high = decades([y for _, y in points])
    width, height = WIDTH - MARGIN - 28, HEIGHT - 2 * MARGIN

    def place(x, y):
        return (left + MARGIN + (math.log10(x) - x_low) / (x_high - x_low) * width,
                top + MARGIN + height - (math.log10(y) - y_low) / (y_high - y_low) * height)

    out = [f'<text x="{left + MARGIN}" y="{top + MARGIN - 24}" class="title">'
           f"{escape(title)}</text>"]
    for decade in range(y_low, y_high + 1):
        x, y = place(10**x_low, 10**decade)
        out.append(f'<line x1="{x:.1f}" x2="{x + width:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                   f'class="grid"/><text x="{x - 5:.1f}" y="{y + 4:.1f}" class="y">'
                   f'{10.0**decade:g}</text>')
    for decade in range(x_low, x_high + 1):
        x, y = place(10**decade, 10**y_low)
        out.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" class="x">1e{decade}</text>')
    path = " ".join("%.1f,%.1f" % place(x, y) for x, y in points)
    out.append(f'<polyline points="{path}" class="line"/>')
    before = 0
    for x, y in points:
        at = place(x, y)
        # Close to the one before, as a count right after a growth is: its figure goes below.
        beside, before = x < 1.5 * before, x
        out.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="3" class="dot"><title>'
                   f"{x:,} chunks: {y:g}</title></circle>")
        value = f"{y:,.0f}" if y >= 100 else f"{y:.3g}"
        out.append(f'<text x="{at[0]:.1f}" y="{at[1] + (16 if beside else -7):.1f}" '
                   f'class="value">{value}</text>')
    return out


def draw(rows):
    lines = math.ceil(len(PANELS) / COLUMNS)
    width, height = COLUMNS * WIDTH, lines * HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="system-ui, sans-serif" font-size="11">',
           "<style>.title{font-weight:600;font-size:12px}.y{text-anchor:end;fill:#5f6368}"
           ".x{text-anchor:middle;fill:#5f6368}.value{text-anchor:middle}.grid{stroke:#e3e5e8}"
           ".line{fill:none;stroke:#0b5fa5;stroke-width:2}.dot{fill:#0b5fa5}</style>",
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for i, (name, title) in enumerate(PANELS):
        out += panel(rows, name, title, i % COLUMNS * WIDTH, i // COLUMNS * HEIGHT)
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = json.load(file)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
