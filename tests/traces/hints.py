#!/usr/bin/env python3
"""The worth of hints on both traces, as a table for tiers/policy/README.md.

    tests/traces/hints.py build/release/bin/kvkeep            # prints it
    tests/traces/hints.py build/release/bin/kvkeep --write    # puts it into the README
    tests/traces/hints.py build/release/bin/kvkeep --check    # says whether it is there

Every figure is `kvkeep simulate --policy reuse --full-chunks --hints`'s, at shares of the distinct
chunks.
"""

import sys

import one_tier
import two_tiers

BEGIN, END = "<!-- hints.py: begin -->", "<!-- hints.py: end -->"
ACTIONS = ["retain", "demote", "both"]
RIGHT = [1, 0.7, 0.5]
SHARES = one_tier.SHARES[:3]


def table(kvkeep):
    head = [f"{trace}: {share:.0%}".replace("%", " %") for trace in two_tiers.TRACES
            for share in SHARES]
    lines = [BEGIN, "| hints | right | " + " | ".join(head) + " |", "|---" * (2 + len(head)) + "|"]

    def add(action, right, more):
        cells = [cell for trace in two_tiers.TRACES
                 for cell in one_tier.ratios(kvkeep, trace, "reuse", ["--full-chunks", *more],
                                             SHARES)]
        lines.append(f"| {action} | {right} | " + " | ".join(cells) + " |")

    add("none", "", [])
    for action in ACTIONS:
        for right in RIGHT:
            add(action if right == RIGHT[0] else "", f"{right:.0%}".replace("%", " %"),
                ["--hints", f"oracle:{right}", "--hint-actions", action])
    return "\n".join([*lines, END])


if __name__ == "__main__":
    sys.exit(two_tiers.main(__doc__, table, BEGIN, END))
