#!/usr/bin/env python3
"""Keeps what kvkeep-bench cpu --json measured, for `kvkeep plan` to count cores by.

    kvkeep-bench cpu --daemon build/release/bin/kvkeepd --json > cpu.json
    tools/bench/keep_cpu_costs.py cpu.json "WHERE AND WHEN" tools/kvkeep/cpu_costs.json
"""

import json
import sys


def keep(report, origin):
    if not report["sound"]:
        raise SystemExit("not kept: calls failed, or bytes were wrong")
    origin = (f'kvkeep-bench cpu, kvkeep {report["daemon"]}, {report["machine"]["cpus"]} cores, '
              f"{origin}")
    costs = [{"path": cost["path"], "gigabytes": round(cost["gigabytes"], 1),
              "client_seconds_per_gb": round(cost["client_seconds_per_gb"], 4),
              "daemon_seconds_per_gb": round(cost["daemon_seconds_per_gb"], 4)}
             for cost in report["cpu_costs"]]
    lines = ",\n".join("    " + json.dumps(cost) for cost in costs)
    return f'{{\n  "origin": {json.dumps(origin)},\n  "cpu_costs": [\n{lines}\n  ]\n}}\n'


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        text = keep(json.load(file), sys.argv[2])
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
