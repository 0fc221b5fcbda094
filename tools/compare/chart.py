#!/usr/bin/env python3
"""A picture of what a comparison measured: chart.py compare.json compare.svg

Bars are GB/s, one panel an operation, one group a size; a thin line shows the rounds' range.
"""

import json
import pathlib
import sys

TOOLS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TOOLS), str(TOOLS / "measure")]

import bars  # noqa: E402
from figures import short_bytes_text  # noqa: E402


def call_text(discipline):
    size, batch = short_bytes_text(discipline["size"]), discipline["batch"]
    return size if batch == 1 else f"{batch} x {size}"


def draw(data):
    colors = bars.colors_of(data["names"])
    panels = []
    for operation, title in (("get", "get"), ("put", "put of fresh keys"),
                             ("first put", "first put, into a store just started")):
        groups = [(call_text(d),
                   {name: r["gb_per_second"] for name, r in d["results"].items()})
                  for d in data.get("disciplines", []) if d["operation"] == operation]
        if groups:
            panels.append((title + ", GB/s", " GB/s", groups, colors))
    if data.get("nvme"):
        groups = []
        for n in data["nvme"]:
            size = short_bytes_text(n["size"])
            groups.append((f"read {size}",
                           {"fio": n["fio_read"], "kvkeep": n["read"]["gb_per_second"]}))
            for what in ("first_fill", "overwrite"):
                groups.append((f"{what.replace('_', ' ')} {size}",
                               {"fio": n[f"fio_{what}"], "kvkeep": n[what]["gb_per_second"]}))
        panels.append(("NVMe, GB/s: fio (grey), kvkeep (blue)", " GB/s", groups,
                       bars.colors_of(["fio", "kvkeep"])))
    return bars.picture(colors, panels)


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
