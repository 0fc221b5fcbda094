"""Curves as SVG text: panels with a logarithmic or a linear axis, for pictures that tools/bars.py
has no form for. No library."""

import math
from xml.sax.saxutils import escape

import bars

WIDTH, PANEL, LEFT, RIGHT, TOP, FOOT = 900, 300, 64, 24, 60, 56


class Axis:
    """Where a value lies, and which values have a line."""

    def __init__(self, values, logarithmic, first=0.0):
        self._log, values = logarithmic, list(values)
        if logarithmic:
            self.low = 10 ** math.floor(math.log10(min(values)))
            self.high = 10 ** math.ceil(math.log10(max(values) * 1.0001))
            self.lines = [10 ** power for power in range(
                round(math.log10(self.low)), round(math.log10(self.high)) + 1)]
        else:
            self.low, self.high = first, max(*values, first + 1e-9)
            step = bars.nice_step(self.high)
            self.lines = [step * at for at in range(math.ceil(self.low / step),
                                                    math.floor(self.high / step) + 1)]

    def part(self, value):
        """0 to 1."""
        if self._log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def panel(title, curves, colors, *, x_name, top, logarithmic=True, doubling=False, bound=None):
    """curves: {name: [(x, y)]}, in the order of x; a name that ends in "*" is dashed, in the colour
    of the name without it. doubling: x has a place for each doubling. bound: a y with a line."""
    points = [point for curve in curves.values() for point in curve]
    xs = sorted({x for x, _ in points})
    up = Axis([y for _, y in points] + ([bound] if bound else []), logarithmic)
    along = Axis([math.log2(x) for x in xs] if doubling else xs, False,
                 math.log2(xs[0]) if doubling else float(xs[0]))
    width, height = WIDTH - LEFT - RIGHT, PANEL - FOOT

    def at(x, y):
        return (LEFT + width * along.part(math.log2(x) if doubling else x),
                top + height * (1 - up.part(y)))

    out = [f'<text x="{LEFT}" y="{top - 10}" class="title">{escape(title)}</text>']
    for line in up.lines:
        _, y = at(xs[0], line)
        out += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>',
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="axis">{line:g}</text>']
    for x in xs:
        place, _ = at(x, up.lines[-1])
        out.append(f'<text x="{place:.1f}" y="{top + height + 16}" class="label">{x:g}</text>')
    out.append(f'<text x="{LEFT + width / 2}" y="{top + height + 32}" class="label">'
               f"{escape(x_name)}</text>")
    if bound:
        _, y = at(xs[0], bound)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                   'class="bound"/>')
    for name, curve in curves.items():
        color = colors[name.rstrip("*")]
        places = [at(x, y) for x, y in curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dashed = ' stroke-dasharray="4 4"' if name.endswith("*") else ""
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" '
                   f'stroke-width="2"{dashed}/>')
        for (x, y), (value, figure) in zip(places, curve):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"><title>'
                       f"{escape(f'{name.rstrip(chr(42))}, {value:g}: {figure:.4g}')}"
                       "</title></circle>")
    return out


def picture(colors, panels):
    """colors: {name: colour}, for the legend. panels: arguments of `panel` but top and colors:
    [(title, curves, {more})]; those without a point are left out."""
    panels = [(title, {name: curve for name, curve in curves.items() if curve}, more)
              for title, curves, more in panels]
    panels = [one for one in panels if one[1]]
    height = TOP + len(panels) * PANEL
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           'font-family="system-ui, sans-serif" font-size="12">',
           "<style>.title{font-weight:600;font-size:14px}.axis{text-anchor:end;fill:#5f6368}"
           ".label{text-anchor:middle}.grid{stroke:#e3e5e8}"
           ".bound{stroke:#b5482f;stroke-dasharray:8 4}</style>",
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    x = LEFT
    for name, color in colors.items():
        out += [f'<rect x="{x}" y="12" width="11" height="11" fill="{color}"/>',
                f'<text x="{x + 15}" y="22">{escape(name)}</text>']
        x += 30 + 7 * len(name)
    for number, (title, curves, more) in enumerate(panels):
        out += panel(title, curves, colors, top=TOP + number * PANEL, **more)
    return "\n".join([*out, "</svg>", ""])
