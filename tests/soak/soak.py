#!/usr/bin/env python3
"""Runs the long versions of the tests that hold the promises, and writes down what they came to.

    tests/soak/soak.py                        an hour in all
    tests/soak/soak.py --budget 8h --seed 7   longer, from another seed
    tests/soak/soak.py --budget 10m kill fuzz-wire

Each row of rows.json gets its share of the budget and is run with one seed after the other until
that is used up, once at least. What a row does not judge is shown as "-", never as 0; a row that
was skipped, not built or not reached says so. Table and logs go to build/soak; the exit status is 0
when no row failed.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("wrong", "hangs", "leaks")
GRACE_SECONDS = 900  # beyond a row's share, for one run; then it hangs


def seconds_of(text):
    match = re.fullmatch(r"(\d+)(s|m|h)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text}: write 600, 10m or 8h")
    return int(match[1]) * {None: 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def numbers(pattern, text):
    """All numbers that the pattern's group finds, summed; None: it found none."""
    found = re.findall(pattern, text) if pattern else []
    return sum(int(number) for number in found) if found else None


class Row:
    def __init__(self, spec, build):
        self.spec = spec
        self.name = spec["name"]
        self.build = build
        self.result = {
            "row": self.name,
            "matrix": spec["matrix"],
            "injection": spec["injection"],
            "status": "did not run: the budget was used up before",
            "runs": 0,
            "cycles": 0,
            "seeds": [],
            "seconds": 0.0,
        }
        self.result.update({column: "-" for column in COLUMNS})

    def command(self, share, seed):
        values = {"bin": f"{self.build}/bin", "root": ROOT, "seconds": max(1, round(share)),
                  "seed": seed}
        argv = [word.format(**values) for word in self.spec["command"]]
        env = {name: word.format(**values) for name, word in self.spec.get("env", {}).items()}
        return argv, env

    def run(self, share, seed, out):
        """Runs it until its share is over."""
        began = time.monotonic()
        while self.result["runs"] == 0 or time.monotonic() - began < share:
            argv, env = self.command(share, seed)
            if not Path(argv[0]).exists():
                self.result["status"] = f"did not run: {Path(argv[0]).name} is not built"
                return
            log = out / f"{self.name}-{seed}.log"
            ended = self.run_once(argv, env, share + GRACE_SECONDS, log)
            self.result["runs"] += 1
            self.result["seeds"].append(seed)
            self.result["seconds"] = round(time.monotonic() - began, 1)
            if not self.take(ended, log):
                return
            seed += self.spec.get("seeds_each", 1)

    @staticmethod
    def run_once(argv, env, timeout, log):
        """The exit status; None: it did not end."""
        with open(log, "w", encoding="utf-8") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
                                       env={**os.environ, **env}, start_new_session=True)
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the session that we made
                process.wait()
                return None

    def take(self, ended, log):
        """What a run came to. False: no more of this row."""
        text = re.sub(r"\s+", " ", log.read_text(encoding="utf-8", errors="replace"))
        result = self.result
        cycles = numbers(self.spec.get("cycles"), text)
        result["cycles"] += self.spec.get("cycles_each", 0) if cycles is None else cycles
        for column in self.spec["judges"]:
            count = numbers(self.spec.get(column), text) or 0
            result[column] = (0 if result[column] == "-" else result[column]) + count
        if ended is None:
            result["hangs"] = (0 if result["hangs"] == "-" else result["hangs"]) + 1
            result["status"] = f"FAILED: did not end, see {log}"
            return False
        if ended != 0:
            result["status"] = f"FAILED: exit status {ended}, see {log}"
            return False
        skipped = re.search(r"skipped: ([^|]{1,80})", text)
        result["status"] = f"skipped in part: {skipped[1].strip()}" if skipped else "held"
        return True


def markdown(results, about):
    lines = [
        f"{about['date']}, seed {about['seed']}, budget {about['budget']} s, "
        f"{about['seconds']} s in all",
        "",
        "| row | matrix | injection | runs | cycles | wrong bytes | hangs | leaks | seeds "
        "| seconds | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        seeds = f"{r['seeds'][0]}..{r['seeds'][-1]}" if r["seeds"] else ""
        lines.append(
            f"| {r['row']} | {r['matrix']} | {r['injection']} | {r['runs']} | {r['cycles']} "
            f"| {r['wrong']} | {r['hangs']} | {r['leaks']} | {seeds} | {r['seconds']} "
            f"| {r['status']} |")
    return "\n".join(lines) + "\n"


def write(results, about, out):
    about["seconds"] = round(time.time() - about["began"])
    (out / "soak.json").write_text(json.dumps({"about": about, "rows": results}, indent=1) + "\n")
    (out / "soak.md").write_text(markdown(results, about))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=seconds_of, default=3600, help="of all rows together")
    parser.add_argument("--seed", type=int, default=1, help="the first one of each row")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=Path, default=ROOT / "build/soak")
    parser.add_argument("--rows", type=Path, default=Path(__file__).with_name("rows.json"))
    parser.add_argument("names", nargs="*", help="only these rows")
    arguments = parser.parse_args()
    specs = json.loads(arguments.rows.read_text())
    unknown = set(arguments.names) - {spec["name"] for spec in specs}
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}")
    rows = [Row(spec, arguments.build.resolve()) for spec in specs]
    for row in rows:
        if arguments.names and row.name not in arguments.names:
            row.result["status"] = "did not run: not asked for"
    chosen = [row for row in rows if not arguments.names or row.name in arguments.names]
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = {"date": time.strftime("%Y-%m-%d"), "seed": arguments.seed,
             "budget": arguments.budget, "began": int(time.time()), "seconds": 0}
    end = time.monotonic() + arguments.budget
    results = [row.result for row in rows]
    for i, row in enumerate(chosen):
        weights = [other.spec["weight"] for other in chosen[i:]]
        share = (end - time.monotonic()) * weights[0] / sum(weights)
        if share > 0:
            print(f"{row.name}: {share:.0f} s", flush=True)
            row.run(share, arguments.seed, arguments.out)
        print(f"  {row.result['status']}; {row.result['cycles']} cycles", flush=True)
        write(results, about, arguments.out)
    print((arguments.out / "soak.md").read_text())
    return 1 if any(r["status"].startswith("FAILED") for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
