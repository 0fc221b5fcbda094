#!/usr/bin/env python3
"""Policies of one tier on both traces, as a table for tiers/policy/README.md.

    tests/traces/one_tier.py build/release/bin/kvkeep            # prints it
    tests/traces/one_tier.py build/release/bin/kvkeep --write    # puts it into the README
    tests/traces/one_tier.py build/release/bin/kvkeep --check    # says whether it is there

Every figure is `kvkeep simulate`'s: with each prompt's last chunk, as in the traces, and (`full`)
with `--full-chunks`, which never stores a chunk that the prompt does not fill.
"""

import json
import subprocess
import sys

import two_tiers

BEGIN, END = "<!-- one_tier.py: begin -->", "<!-- one_tier.py: end -->"
POLICIES = ["lru", "arc", "lfu", "reuse", "min"]
SHARES = [0.01, 0.05, 0.10, 0.25, 0.50]  # of the distinct chunks


def ratios(kvkeep, trace, policy, more, shares=tuple(SHARES)):
    chunks = ",".join(str(round(two_tiers.TRACES[trace] * share)) for share in shares)
    command = [kvkeep, "simulate", str(two_tiers.path_of(trace)), "--json", "--chunks", chunks,
               "--policy", policy, *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return [two_tiers.percent(result) for result in json.loads(done.stdout)]


def table(kvkeep):
    head = [f"{share:.0%}".replace("%", " %") for share in SHARES]
    lines = [BEGIN, "| trace | policy | " + " | ".join(head) + " | full: "
             + " | ".join(head) + " |", "|---" * (2 + 2 * len(head)) + "|"]
    for trace in two_tiers.TRACES:
        for policy in POLICIES:
            cells = ratios(kvkeep, trace, policy, []) + ratios(kvkeep, trace, policy,
                                                               ["--full-chunks"])
            shown = trace if policy == POLICIES[0] else ""
            lines.append(f"| {shown} | `{policy}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, END])


if __name__ == "__main__":
    sys.exit(two_tiers.main(__doc__, table, BEGIN, END))
