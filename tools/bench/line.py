"""Line: a figure that must hold, what came out, and the verdict. Made of values that were measured
round by round: what counts is the median over rounds. Pure functions."""

import operator
from dataclasses import asdict, dataclass, field

from figures import median, ratios, table

_HOLDS = {"at least": operator.ge, "at most": operator.le, "more than": operator.gt,
          "less than": operator.lt}


@dataclass
class Line:
    what: str
    measured: str = ""
    baseline: str = ""
    figure: str = ""  # what is compared with the target
    target: str = ""
    verdict: str = "not measured"  # or "ok", "MISSED", "told": nothing is promised of it
    numbers: dict = field(default_factory=dict)  # the same for machines


def _short(value):
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} million"
    return f"{value:.0f}" if value == 0 or abs(value) >= 100 else f"{value:.3g}"


def _with_unit(value, unit):
    return f"{_short(value)} {unit}".rstrip()


def _judged(what, found, unit, made_of_unit, measured, baseline, target):
    """`found` is what is judged, in `unit`; `made_of_unit` is that of the other two."""
    line = Line(what, _with_unit(median(measured), made_of_unit))
    least, most = min(found, default=0), max(found, default=0)
    line.figure = f"{_with_unit(median(found), unit)} ({_short(least)} to {_short(most)})"
    line.numbers = {"figure": median(found), "figure_min": least, "figure_max": most,
                    "figures": list(found), "measured": list(measured)}
    if target is not None:
        bound, limit = target
        line.target = f"{bound} {_with_unit(limit, unit)}"
        line.numbers["limit"] = limit
        line.verdict = "ok" if _HOLDS[bound](median(found), limit) else "MISSED"
    else:
        line.verdict = "told"
    if not found:
        line.verdict = "not measured"
    if baseline:
        line.baseline = _with_unit(median(baseline), made_of_unit)
        line.numbers["baseline"] = list(baseline)
    return line


def ratio_line(what, unit, measured, baseline, target=None):
    """A line for measured / baseline. A target is ("at least", 0.6), say."""
    return _judged(what, ratios(measured, baseline), "", unit, measured, baseline, target)


def difference_line(what, unit, measured, baseline, target=None):
    found = [one - other for one, other in zip(measured, baseline)]
    return _judged(what, found, unit, unit, measured, baseline, target)


def plain_line(what, unit, measured, target=None):
    return _judged(what, measured, unit, unit, measured, [], target)


def missing_line(what, why):
    """A line for a figure that could not be measured here."""
    return Line(what, figure=why)


def none_missed(lines):
    return all(line.verdict != "MISSED" for line in lines)


def document(lines):
    """For machines."""
    return [asdict(line) for line in lines]


def text(lines):
    return table([["WHAT", "MEASURED", "BASELINE", "FIGURE", "WANTED", ""],
                  *([line.what, line.measured, line.baseline, line.figure, line.target,
                     line.verdict] for line in lines)])


def troubles(where, measured, failed_calls):
    """The failures, in words for people; empty: none. `where`: "", or "CASE: "."""
    words = ""
    if measured.wrong_bytes > 0:
        words += (f"WRONG BYTES: {where}{measured.wrong_bytes} of {measured.verified_bytes}\n")
    if failed_calls > 0:
        words += f"failed calls: {where}{failed_calls}, the first: {measured.first_failure}\n"
    return words
