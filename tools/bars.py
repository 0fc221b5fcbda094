"""Bar charts as SVG text: panels of groups of bars, a thin line on each bar for its range.

No library: a picture is text, and a diff of it can be read.
"""

from xml.sax.saxutils import escape

WIDTH, PANEL, LEFT, TOP, GAP = 900, 250, 56, 64, 56
COLORS = ["#9aa0a6", "#0b5fa5", "#2f86cf", "#74b3e6", "#a9d0f0", "#c9a227", "#b5482f", "#5d7f5a",
          "#8e5ea2", "#d98032"]
_STYLE = ("<style>.title{font-weight:600;font-size:14px}.axis{text-anchor:end;fill:#5f6368}"
          ".label{text-anchor:middle}.grid{stroke:#e3e5e8}.range{stroke:#202124;stroke-width:1}"
          "</style>")


def nice_step(top):
    """A round distance between lines, of which three to six fit below `top`."""
    for exponent in range(-4, 6):
        for digit in (1, 2, 5):
            step = digit * 10.0**exponent
            if top / step <= 6:
                return step
    return top


def colors_of(names):
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}


def frame(title, top, top_y, height):
    """A panel's title, and its lines at round values up to `top`."""
    out = [f'<text x="{LEFT}" y="{top_y - 10}" class="title">{escape(title)}</text>']
    line, step = 0.0, nice_step(top)
    while line <= top:
        y = top_y + height - line / top * height
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="axis">{line:g}</text>')
        line += step
    return out


def _panel(title, unit, groups, colors, top_y):
    height = PANEL - GAP
    top = max(bar["max"] for _, bars in groups for bar in bars.values()) or 1
    y_of = lambda value: top_y + height - value / top * height
    out = frame(title, top, top_y, height)
    group_width = (WIDTH - 12 - LEFT) / len(groups)
    for g, (label, bars) in enumerate(groups):
        width = (group_width - 24) / max(len(colors), 1)
        for n, name in enumerate(colors):
            if name not in bars:
                continue
            bar = bars[name]
            x = LEFT + g * group_width + 12 + n * width
            y = y_of(bar["median"])
            low, high = bar["min"], bar["max"]
            tip = f'{name}, {label}: {bar["median"]:.2f}{unit} ({low:.2f} to {high:.2f})'
            out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 2:.1f}" '
                       f'height="{top_y + height - y:.1f}" fill="{colors[name]}">'
                       f"<title>{escape(tip)}</title></rect>")
            middle = x + (width - 2) / 2
            out.append(f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{y_of(low):.1f}" '
                       f'y2="{y_of(high):.1f}" class="range"/>')
        x = LEFT + (g + 0.5) * group_width
        out.append(f'<text x="{x:.1f}" y="{top_y + height + 18}" class="label">'
                   f"{escape(label)}</text>")
    return out


def document(names, height, body):
    """A whole picture. names: {name: colour}, for the legend; body: elements below it, which may
    begin at TOP and end at `height`."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           'font-family="system-ui, sans-serif" font-size="12">',
           _STYLE, f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    x, y = LEFT, 14
    for name, color in names.items():
        width = 30 + 7 * len(name)
        if x + width > WIDTH:  # a second row; there is room for two
            x, y = LEFT, y + 18
        out.append(f'<rect x="{x}" y="{y}" width="11" height="11" fill="{color}"/>')
        out.append(f'<text x="{x + 15}" y="{y + 10}">{escape(name)}</text>')
        x += width
    return "\n".join([*out, *body, "</svg>", ""])


def picture(names, panels):
    """names: as of document. panels: [(title, unit, groups, {name: colour})], of groups [(label,
    {name: {median, min, max}})]."""
    body = []
    for i, (title, unit, groups, colors) in enumerate(panels):
        body += _panel(title, unit, groups, colors, TOP + 10 + i * (PANEL + 24))
    return document(names, TOP + len(panels) * (PANEL + 24), body)
