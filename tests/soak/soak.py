#!/usr/bin/env python3
"""Runs the long versions of the tests that hold the promises, and records their results.

    tests/soak/soak.py --minutes 25           all rows, once each; then more seeds
    tests/soak/soak.py --minutes 480 --seed 7 longer, from another seed
    tests/soak/soak.py kill fuzz-wire         only these rows
    tests/soak/soak.py --minutes 25 --keep    and keeps their results in soak.json
    tests/soak/soak.py --write tests/README.md    runs nothing: writes the table of soak.json there

Each row of rows.json runs once, whatever the time, and with one seed after the other until its
share of it is over. Its figures are read from its output (README.md): what was not counted is never
a 0. Table and logs go to build/soak. Exit status: 0 when each requested row ran and held, 1 when
one failed, 3 when one did not run or skipped all of its cases.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MAX_CELL = 200  # characters of a row's output in the wide table; soak.json has all
COLUMNS = ("wrong", "hangs", "leaks")
ASSERTED = "asserted"  # in rows.json: the test fails at the first, and prints no count
NONE = "none"  # the result of such a column when the test held
GRACE_SECONDS = 1800  # beyond a row's share, for one run; then it hangs
BEGIN, END = "<!-- soak.py --write: begin -->", "<!-- soak.py --write: end -->"


def numbers(pattern, text):
    """Returns the sum of all numbers that the pattern's group finds, or None if it found none."""
    found = re.findall(pattern, text)
    return sum(int(number.replace(",", "")) for number in found) if found else None


def added(one, other):
    """Adds the counts of two runs. Errors stay; a count unknown to one run is unknown."""
    counts = [value for value in (one, other) if isinstance(value, int)]
    if any(counts) or len(counts) == 2:
        return sum(counts)
    return "-" if "-" in (one, other) else NONE


def how(spec):
    """Returns the command as a person would write it, without the places of this machine and the
    seed."""
    words = [f"{name}={value}" for name, value in spec.get("env", {}).items()
             if "{" not in value] + spec["command"]
    line = " ".join(f"'{word}'" if re.search(r"[ \[*]", word) else word for word in words)
    for place, told in (("{bin}/", ""), ("{root}/", ""), ("{seed}", "SEED"),
                        ("{seconds}", "SECONDS")):
        line = line.replace(place, told)
    return line


class Row:
    """One row's runs. `result` is what is kept of them."""

    def __init__(self, spec, build):
        self.spec = spec
        self.id = spec["id"]
        self.build = build
        self.seeded = "{seed}" in json.dumps(spec)
        self.result = {"status": "did not run", "how": how(spec), "runs": 0, "cycles": "-",
                       **{column: "-" for column in COLUMNS}, "told": [], "seeds": [],
                       "seconds": 0.0}

    def run(self, share, seed, out):
        """Runs the row once, and until its share is over."""
        began = time.monotonic()
        while self.result["runs"] == 0 or time.monotonic() - began < share:
            values = {"bin": f"{self.build}/bin", "build": self.build, "root": ROOT, "seed": seed,
                      "seconds": max(20, round(share))}
            argv = [word.format(**values) for word in self.spec["command"]]
            env = {name: word.format(**values) for name, word in self.spec.get("env", {}).items()}
            if not Path(argv[0]).exists():
                self.result["status"] = f"did not run: {Path(argv[0]).name} is not built"
                return
            log = out / (f"{self.id}-{seed}.log" if self.seeded else f"{self.id}.log")
            ended = run_once(argv, env, share + GRACE_SECONDS, log)
            if self.seeded:
                self.result["seeds"].append(seed)
                seed += self.spec.get("seeds_each", 1)
            text = log.read_text(encoding="utf-8", errors="replace")
            goes_on = self.take(ended, text, log.name)
            self.result["seconds"] = round(time.monotonic() - began, 1)
            if not goes_on:
                return

    def take(self, ended, output, log="its log"):
        """Takes the result of a run with this exit status (None: it did not end) and output.
        Returns False if the row must not run again."""
        result = self.result
        skipped = re.search(r"^\s*skipped: (.+)$", output, re.MULTILINE)
        text = re.sub(r"\s+", " ", output)  # Catch breaks lines anywhere
        whole = skipped and "assertions: - none -" in text
        empty = re.search(r"No test(s ran| cases matched)", text)
        good = ended == 0 and not skipped and not empty
        missing = []
        found = {column: self.read(column, text, good, missing) for column in COLUMNS}
        if ended is None:
            found["hangs"] = added(1, found["hangs"])
        if "cycles" in self.spec:
            found["cycles"] = numbers(self.spec["cycles"], text)
            if found["cycles"] is None:
                found["cycles"] = "-"
                missing.append("cycles")
        else:
            found["cycles"] = 1 if not whole else "-"  # a run
        for name, value in found.items():
            result[name] = value if result["runs"] == 0 else added(result[name], value)
        result["runs"] += 1
        told = [said(pattern, text) for pattern in self.spec.get("told", [])]
        result["told"] = [words for words in told if words is not None]
        result["status"] = self.judge(ended, empty, skipped, whole, good and missing, log)
        return not result["status"].startswith(("FAILED", "skipped"))

    def read(self, column, text, good, missing):
        """Returns one column of one run. A run that is not good counts what it found wrong, but no
        0."""
        pattern = self.spec.get(column)
        if pattern is None:
            return "-"
        if pattern == ASSERTED:
            return NONE if good else "-"
        count = numbers(pattern, text)
        if count is None:
            missing.append(column)
        return count if count or (good and count is not None) else "-"

    def judge(self, ended, empty, skipped, whole, missing, log):
        if ended is None:
            return f"FAILED: did not end, see {log}"
        if ended != 0:
            return f"FAILED: exit status {ended}, see {log}"
        if missing:
            return f"FAILED: its output tells no {', '.join(missing)}, see {log}"
        if empty:
            return f"FAILED: ran no test, see {log}"
        if skipped:
            return f"{'skipped' if whole else 'held, skipped in part'}: {skipped[1].strip(' |')}"
        return "held"


def run_once(argv, env, timeout, log):
    """Returns the exit status, or None if it did not end."""
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
                                   env={**os.environ, **env}, start_new_session=True)
        try:
            return process.wait(timeout)
        except BaseException as stopped:  # its time is over, or ours
            os.killpg(process.pid, signal.SIGKILL)  # the session that run_once made
            process.wait()
            if isinstance(stopped, subprocess.TimeoutExpired):
                return None
            raise


def said(pattern, text):
    """Returns the words that the pattern finds first; a group in it is the sum of everything it
    finds."""
    match = re.search(pattern, text)
    if match is None:
        return None
    words = match[0] if not match.re.groups else match[0].replace(
        match[1], str(numbers(pattern, text)))
    # Catch breaks its lines within numbers, too: "1. 5".
    return re.sub(r"(\d)\. (\d)", r"\1.\2", words).strip(" |").replace("|", ",")


def kept_of(spec, kept):
    """Returns the kept result of a row, if the row is still run in that way."""
    result = kept.get(spec["id"])
    return result if result is not None and result["how"] == how(spec) else None


def cells(spec, result):
    if result is None or result["runs"] == 0:
        return ["-"] * 6
    cycles = result["cycles"]
    if isinstance(cycles, int):
        unit = spec["unit"] if "cycles" in spec else "run" if cycles == 1 else "runs"
        cycles = f"{cycles:,} {unit}"
    told = [] if result["status"] == "held" else [result["status"]]
    seeds = result["seeds"]
    last = seeds[-1] + spec.get("seeds_each", 1) - 1 if seeds else 0
    if seeds:
        told_seeds = f", seed {last}" if last == seeds[0] else f", seeds {seeds[0]} to {last}"
    else:
        told_seeds = ""
    return [cycles, *(f"{result[column]}" for column in COLUMNS),
            textwrap.shorten(", ".join(told + result["told"]), MAX_CELL, placeholder=" …") or "-",
            f"{result['date']} at {result['commit']}{told_seeds}"]


def table(specs, kept):
    lines = ["| row | id | fault | run by | cycles | wrong bytes | hangs | leaks | it said "
             "| when |", "|---|---|---|---|---|---|---|---|---|---|"]
    for spec in specs:
        lines.append("| " + " | ".join([spec["matrix"], f"`{spec['id']}`", spec["fault"],
                                        f"`{how(spec)}`", *cells(spec, kept_of(spec, kept))])
                     + " |")
    return "\n".join(lines) + "\n"


def summary(specs, kept):
    """Returns the table of a page: counts alone. The kept results have commands and output."""
    lines = ["| row | id | fault | cycles | wrong bytes, hangs, leaks |", "|---|---|---|---|---|"]
    when = set()
    for spec in specs:
        result = kept_of(spec, kept)
        cycles, *counts = cells(spec, result)[:1 + len(COLUMNS)]
        if result is not None and result["runs"] > 0:
            when.add(f"{result['date']} at {result['commit']}")
            if result["status"] != "held":
                cycles += f" ({result['status']})"
        lines.append("| " + " | ".join([spec["matrix"], f"`{spec['id']}`", spec["fault"], cycles,
                                        ", ".join(counts)]) + " |")
    return "\n".join(lines) + f"\n\nRun {'; '.join(sorted(when)) or 'never'}.\n"


def with_table(text, block):
    """Returns the page with this table between its two markers."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"soak.py: no place for the table: wants one '{BEGIN}' and one '{END}'")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{block}{END}{rest.split(END)[1]}"


def commit():
    """Returns the commit of the sources that run, with a + when they were changed since."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True,
                              check=False).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".",
                  ":!tests/soak/soak.json", ":!*.md")
    return (git("rev-parse", "--short=10", "HEAD") or "?") + ("+" if changed else "")


def load(path):
    return json.loads(path.read_text()) if path.exists() else {}


def save(path, kept):
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def soak(arguments, specs, chosen):
    """Runs the rows; returns the exit status."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = {"date": time.strftime("%Y-%m-%d"), "commit": commit()}
    rows = [Row(spec, arguments.build.resolve()) for spec in chosen]
    began = time.monotonic()
    end = began + arguments.minutes * 60
    ran = {}
    for i, row in enumerate(rows):
        weights = [other.spec["weight"] for other in rows[i:]]
        share = max(0, (end - time.monotonic()) * weights[0] / sum(weights))
        print(f"{row.id}: {share:.0f} s", flush=True)
        row.run(share, arguments.seed, arguments.out)
        print(f"  {row.result['status']}; {row.result['seconds']} s", flush=True)
        if row.result["runs"] > 0:
            ran[row.id] = {**row.result, **about}
        save(arguments.out / "soak.json", ran)
        (arguments.out / "soak.md").write_text(table(chosen, ran))
        if arguments.keep and row.id in ran:
            save(arguments.kept, {**load(arguments.kept), row.id: ran[row.id]})
    print(f"{table(chosen, ran)}\n{len(rows)} rows in {(time.monotonic() - began) / 60:.1f} min")
    by_name = [spec["id"] for spec in specs if spec not in chosen]
    if by_name:
        print(f"not asked for: {', '.join(by_name)}")
    states = [row.result["status"] for row in rows]
    if any(state.startswith("FAILED") for state in states):
        return 1
    return 0 if all(state.startswith("held") for state in states) else 3


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="of all rows together")
    parser.add_argument("--seed", type=int, default=1, help="the first one of each row")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=Path, default=ROOT / "build/soak")
    parser.add_argument("--rows", type=Path, default=HERE / "rows.json")
    parser.add_argument("--kept", type=Path, default=HERE / "soak.json")
    parser.add_argument("--keep", action="store_true", help="in --kept, what rows came to")
    parser.add_argument("--write", type=Path, metavar="PAGE",
                        help="only write the table of --kept between the markers of this page")
    parser.add_argument("names", nargs="*", help="only these rows")
    arguments = parser.parse_args()
    specs = json.loads(arguments.rows.read_text())
    if arguments.write is not None:
        page = arguments.write.read_text()
        arguments.write.write_text(with_table(page, summary(specs, load(arguments.kept))))
        return 0
    unknown = set(arguments.names) - {spec["id"] for spec in specs}
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}")
    chosen = [spec for spec in specs
              if spec["id"] in arguments.names
              or not arguments.names and not spec.get("only_by_name")]
    return soak(arguments, specs, chosen)


if __name__ == "__main__":
    sys.exit(main())
