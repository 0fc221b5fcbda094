#!/usr/bin/env python3
"""Policies and admissions of two tiers on both traces, as tables for tiers/policy/README.md.

    tests/traces/two_tiers.py build/release/bin/kvkeep            # prints them
    tests/traces/two_tiers.py build/release/bin/kvkeep --write    # puts them into the README
    tests/traces/two_tiers.py build/release/bin/kvkeep --check    # says whether they are there

Every figure is `kvkeep simulate`'s. write_budget may write per second what second_use wrote on
average, so that the two compare at the same bytes.
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
README = HERE.parent.parent / "tiers" / "policy" / "README.md"
BEGIN, END = "<!-- two_tiers.py: begin -->", "<!-- two_tiers.py: end -->"

TRACES = {"conversation": 182_790, "synthetic": 43_924}  # distinct chunks
POLICIES = [("lru", "lru"), ("reuse", "lru"), ("reuse", "reuse")]  # those that the daemon takes
ADMISSIONS = ["all", "second_use", "write_budget"]
SIZES = [(0.01, 0.10), (0.025, 0.25), (0.05, 0.50)]  # of the distinct chunks: G2, G3
MIDDLE = SIZES[1]
SAVED_UP_SECONDS = 3600  # write_budget's
YEARS = 5


def path_of(trace):
    return HERE / f"{trace}_trace.jsonl"


def seconds_of(trace):
    with open(path_of(trace), encoding="utf-8") as file:
        times = [json.loads(line)["timestamp"] for line in file]
    return (max(times) - min(times)) / 1000


def simulate(kvkeep, trace, size, policies, admission, more=()):
    g2, g3 = (round(TRACES[trace] * share) for share in size)
    command = [kvkeep, "simulate", str(path_of(trace)), "--json", "--chunks", str(g2),
               "--g3-chunks", str(g3), "--policy", policies[0], "--g3-policy", policies[1],
               "--admission", admission, *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout)[0]


def budget_like(written_bytes, trace):
    """Returns the drive that lets write_budget write this much over the trace."""
    rate = written_bytes / (SAVED_UP_SECONDS + seconds_of(trace))
    terabytes = rate * YEARS * 365.25 * 86_400 / 1e12
    return ["--tbw", f"{terabytes:.9g}", "--years", str(YEARS)]


def admissions(kvkeep, trace, policies):
    """Returns the results of each admission, at the size in the middle."""
    results = {name: simulate(kvkeep, trace, MIDDLE, policies, name) for name in ADMISSIONS[:2]}
    drive = budget_like(results["second_use"]["g3_written_bytes"], trace)
    results["write_budget"] = simulate(kvkeep, trace, MIDDLE, policies, "write_budget", drive)
    return results


def percent(result):
    return f"{100 * result['hit_ratio']:.1f}"


def percent_and_g2(result):
    from_g2 = result["g2_hit_chunks"] / result["hit_chunks"] * result["hit_ratio"]
    return f"{percent(result)} ({100 * from_g2:.1f})"


def admission_table(kvkeep):
    lines = ["| G2, G3 | admission | conversation: hits % (from G2) | prefill saved s | written GB "
             "| synthetic: hits % (from G2) | prefill saved s | written GB |", "|---" * 8 + "|"]
    for policies in POLICIES:
        by_trace = {trace: admissions(kvkeep, trace, policies) for trace in TRACES}
        for number, name in enumerate(ADMISSIONS):
            cells = []
            for trace in TRACES:
                result = by_trace[trace][name]
                cells += [percent_and_g2(result), f"{result['prefill_seconds_saved']:.0f}",
                          f"{result['g3_written_bytes'] / 1e9:.0f}"]
            who = ", ".join(f"`{policy}`" for policy in policies) if number == 0 else ""
            lines.append(f"| {who} | `{name}` | " + " | ".join(cells) + " |")
    return lines


def size_table(kvkeep):
    head = [f"{trace}: {g2 * 100:g} %, {g3 * 100:g} %" for trace in TRACES for g2, g3 in SIZES]
    lines = ["| G2, G3 | " + " | ".join(head) + " |", "|---" * (1 + len(head)) + "|"]
    for policies in POLICIES:
        cells = [percent(simulate(kvkeep, trace, size, policies, "all"))
                 for trace in TRACES for size in SIZES]
        lines.append("| " + ", ".join(f"`{policy}`" for policy in policies) + " | "
                     + " | ".join(cells) + " |")
    return lines


def tables(kvkeep):
    return "\n".join([BEGIN,
                      "Hits in either tier in %, admission `all`, by the sizes of G2 and G3 as\n"
                      "shares of the distinct chunks:", "", *size_table(kvkeep), "",
                      "G2 of 2.5 %, G3 of 25 %; chunks of 2 MiB for 512 tokens, prefill at 10,000\n"
                      "tokens a second:", "", *admission_table(kvkeep), END])


def main(usage, make, begin, end):
    if len(sys.argv) not in (2, 3):
        print(usage, file=sys.stderr)
        return 2
    made = make(sys.argv[1])
    text = README.read_text(encoding="utf-8")
    action = sys.argv[2] if len(sys.argv) == 3 else "--print"
    if action == "--print":
        print(made)
    elif action == "--check":
        if made not in text:
            print(f"{README} has other figures than these:\n{made}", file=sys.stderr)
            return 1
    elif action == "--write":
        before, after = text.index(begin), text.index(end) + len(end)
        README.write_text(text[:before] + made + text[after:], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(__doc__, tables, BEGIN, END))
