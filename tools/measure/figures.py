"""Figures that were measured once a round, and how sizes and tables are written.

Machines are noisy: what counts is the median over rounds, and of a ratio the median of the rounds'
ratios, each of two slices of one round. Pure functions.
"""

import re
import statistics

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_CHUNK_BYTES, MAX_BYTES = 256 * MIB, 1 << 53
_UNITS = {"TiB": 1 << 40, "GiB": GIB, "MiB": MIB, "KiB": KIB, "B": 1, "": 1}


def median(values):
    return statistics.median(values) if values else 0


def summary(values):
    """All zero when there are no values."""
    return {"median": median(values), "min": min(values, default=0), "max": max(values, default=0)}


def spread(values):
    """How much to believe."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0


def ratios(ours, theirs):
    """Round by round, as far as both go; a round whose divisor is 0 is left out."""
    return [one / other for one, other in zip(ours, theirs) if other]


def round_up(size, step):
    return -(-size // step) * step


def byte_size(text):
    """Bytes of "64KiB", "2GiB" or "5". ValueError: it is no number of bytes."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d+)?) ?([KMGT]iB|B|)", text)
    size = float(found[1]) * _UNITS[found[2]] if found else 0.5
    if size != int(size) or size > MAX_BYTES:
        raise ValueError(f"'{text}' is no number of bytes, or too many")
    return int(size)


def chunk_sizes(text):
    """Sizes of "64KiB,2MiB,5". ValueError: one of them is no chunk's."""
    sizes = []
    for one in text.split(","):
        sizes.append(byte_size(one))
        if not 1 <= sizes[-1] <= MAX_CHUNK_BYTES:
            raise ValueError(f"'{one}': a chunk has 1 byte to {MAX_CHUNK_BYTES >> 20} MiB")
    return sizes


def bytes_text(size):
    """ "4.0 MiB"."""
    if size < KIB:
        return f"{size} B"
    unit, factor = next((unit, factor) for unit, factor in _UNITS.items() if size >= factor)
    return f"{size / factor:.1f} {unit}"


def short_bytes_text(size):
    """ "4 MiB"."""
    return f"{size >> 20} MiB" if size >= MIB else f"{size >> 10} KiB"


def table(rows):
    """Lines of columns that stand below each other."""
    rows = [["".join(c if c.isprintable() else " " for c in cell) for cell in row] for row in rows]
    widths = {}
    for row in rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths.get(column, 0), len(cell))
    return "".join("  ".join(cell.ljust(widths[column])
                             for column, cell in enumerate(row)).rstrip() + "\n" for row in rows)
