"""The picture of a report: chunks by source in each bin of the run, a panel a node, then bytes a
second between nodes and of G4. Faults are lines through all panels."""

import pathlib
import sys
from xml.sax.saxutils import escape

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import bars  # noqa: E402
from report import SOURCES  # noqa: E402

COLORS = {"g2": "#0b5fa5", "g3": "#74b3e6", "peer": "#5d7f5a", "g4": "#c9a227",
          "recomputed": "#d5d8dc"}
MOVED = {"read from peers": ("peer_read_bytes_total", COLORS["peer"]),
         "read from G4": ("g4_source_read_bytes_total", COLORS["g4"]),
         "written to G4": ("g4_source_written_bytes_total", "#b5482f")}
PANEL, GAP, LABELS = 150, 44, 70
RIGHT = bars.WIDTH - 12


def _x_of(at_s, seconds):
    return bars.LEFT + at_s / seconds * (RIGHT - bars.LEFT)


def _stacks(title, over_time, top_y, seconds):
    """A panel of one bar a bin."""
    top = max(sum(one.values()) for one in over_time) or 1
    out = bars.frame(title, top, top_y, PANEL)
    width = (RIGHT - bars.LEFT) / len(over_time)
    for number, one in enumerate(over_time):
        x, y = bars.LEFT + number * width, top_y + PANEL
        when = f"{number * seconds / len(over_time):.0f} s"
        for name, text in SOURCES.items():
            height = one[name] / top * PANEL
            if not height:
                continue
            y -= height
            out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 0.8:.1f}" '
                       f'height="{height:.1f}" fill="{COLORS[name]}">'
                       f"<title>{when}, {escape(text)}: {one[name]} chunks</title></rect>")
    return out


def _lines(title, series, top_y):
    """A panel of one line each. series: [(values, colour)]."""
    top = max(max(values) for values, _ in series) or 1
    out = bars.frame(title, top, top_y, PANEL)
    for values, color in series:
        width = (RIGHT - bars.LEFT) / len(values)
        points = " ".join(f"{bars.LEFT + (n + 0.5) * width:.1f},"
                          f"{top_y + PANEL - value / top * PANEL:.1f}"
                          for n, value in enumerate(values))
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
    return out


def _faults(faults, top_y, bottom_y, seconds):
    out = []
    for fault in faults:
        x = _x_of(min(fault["at_s"], seconds), seconds)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top_y}" y2="{bottom_y}" '
                   'stroke="#b5482f" stroke-dasharray="3 3" stroke-width="1"/>')
        label = " ".join(word for word in fault["what"].split() if "=" not in word)
        out.append(f'<text transform="translate({x + 4:.1f},{top_y - 4}) rotate(-60)" '
                   f'fill="#b5482f" font-size="11">{escape(label)}'
                   f'<title>{fault["at_s"]:.1f} s: {escape(fault["what"])}</title></text>')
    return out


def _axis(y, seconds):
    step = bars.nice_step(seconds)
    return [f'<text x="{_x_of(n * step, seconds):.1f}" y="{y}" class="label">{n * step:g} s</text>'
            for n in range(int(seconds / step) + 1)]


def draw(said):
    seconds = said["seconds"]
    top_y = first_y = bars.TOP + (LABELS if said["faults"] else 0)
    body = []
    for node, one in said["nodes"].items():
        bin_s = seconds / len(one["sources_over_time"])
        body += _stacks(f"node {node}: chunks in {bin_s:.1f} s", one["sources_over_time"], top_y,
                        seconds)
        top_y += PANEL + GAP
    bins = [one["counts_over_time"] for one in said["nodes"].values()]
    body += _lines("bytes moved, MB/s", [
        ([sum(one[name] for one in at) / bin_s / 1e6 for at in zip(*bins)], color)
        for name, color in MOVED.values()], top_y)
    bottom_y = top_y + PANEL
    body += _axis(bottom_y + 18, seconds) + _faults(said["faults"], first_y - 24, bottom_y, seconds)
    names = {text: COLORS[name] for name, text in SOURCES.items()}
    names.update({name: color for name, (_, color) in MOVED.items() if name == "written to G4"})
    return bars.document(names, bottom_y + 30, body)
