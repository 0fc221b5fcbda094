#!/usr/bin/env python3
"""Finds error returns of tiers/ that no test takes.

Builds the preset `coverage`, runs the test programs of tiers/, some hundred seeds of the simulator
and the seeds of the fuzz targets, and compares what ran with the places of the sources
(cpp_errors.py). Prints each place that never ran. Fails for a place that is not in unreachable.txt,
and for an entry there whose place ran or no longer exists.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import cpp_errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
TESTS = ["alloc_test", "base_test", "crypt_test", "fsck_test", "host_test", "index_test", "io_test",
         "nvme_test", "objects_test", "policy_test", "trace_test", "store_test",
         "store_threads_test", "failing_calls_test", "fuzz_seeds_test"]
WITHOUT = {"policy_test": "~[figures]", "trace_test": "~[figures]"}  # whole traces
PLACES = re.compile(r" \((\d+) places\)$")
CODE, EXPANSION = 0, 1


def run(command, **more):
    result = subprocess.run(command, cwd=ROOT, **more)
    if result.returncode != 0:
        sys.exit(f"error_returns: {' '.join(map(str, command))}: exit code {result.returncode}")
    return result


def tool(name):
    """Returns the name of llvm's tool, which on Debian includes the compiler's version."""
    for candidate in (name, f"{name}-14"):
        if subprocess.run(["which", candidate], stdout=subprocess.DEVNULL).returncode == 0:
            return candidate
    sys.exit(f"error_returns: {name} is missing; install llvm")


def measure(build, seeds, steps, jobs):
    binaries = [build / "bin" / "kvkeep-sim"]
    found = {path.name: path for path in build.rglob("*_test") if path.is_file()}
    binaries += [found[name] for name in TESTS]
    profiles = build / "profiles"
    profiles.mkdir(exist_ok=True)
    for old in profiles.glob("*.profraw"):
        old.unlink()
    for binary in binaries:
        arguments = [WITHOUT[binary.name]] if binary.name in WITHOUT else []
        if binary.name == "kvkeep-sim":
            arguments = ["--seeds", str(seeds), "--steps", str(steps), "--jobs", str(jobs)]
        print(f"running {binary.name} {' '.join(arguments)}", flush=True)
        # The program itself merges profiles, children included. One of index_test's children may
        # not write files and leaves half a profile, so it gets a name of its own, which the parent
        # overwrites.
        kind = "%p" if binary.name == "index_test" else "%2m"
        name = profiles / f"{binary.name}-{kind}.profraw"
        run([binary, *arguments], env={**os.environ, "LLVM_PROFILE_FILE": str(name)},
            stdout=subprocess.DEVNULL)
    return binaries


def export(build, binaries):
    merged = build / "profiles" / "merged.profdata"
    run([tool("llvm-profdata"), "merge", "-sparse", "-failure-mode=all", "-o", merged,
         *sorted((build / "profiles").glob("*.profraw"))])
    objects = [binaries[0]]
    for binary in binaries[1:]:
        objects += ["-object", binary]
    told = run([tool("llvm-cov"), "export", "-format=text", f"-instr-profile={merged}", *objects],
               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(told.stdout)["data"][0]["functions"]


class Counts:
    """Returns how often the code at a place ran, over all functions made of it."""

    def __init__(self, functions, build):
        self.build = build
        self.regions, self.expansions = {}, {}
        self.texts = {}
        for function in functions:
            names = function["filenames"] = [self.path(name) for name in function["filenames"]]
            for region in function["regions"]:
                file = names[region[5]]
                if region[7] == CODE:
                    self.regions.setdefault(file, []).append(region)
                elif region[7] == EXPANSION and region[5] == 0:
                    key = (file, region[0], region[1])
                    self.expansions.setdefault(key, []).append((function, region[6]))

    def path(self, name):
        """Returns a full path: ccache makes some names relative to where the compiler ran."""
        return os.path.normpath(os.path.join(self.build, name))

    def at(self, file, site):
        """Returns None if nothing was compiled there."""
        if site.macro:
            return self.of_macro(file, site)
        best, count = None, None
        place = (site.line, site.column)
        for region in self.regions.get(file, []):
            begin, end = (region[0], region[1]), (region[2], region[3])
            if not begin <= place < end:
                continue
            size = (begin, (-end[0], -end[1]))
            if best is None or size > best:
                best, count = size, region[4]
            elif size == best:
                count = max(count, region[4])
        return count

    def of_macro(self, file, site):
        counts = []
        for function, expanded in self.expansions.get((file, site.line, site.column), []):
            inside = {expanded}
            for region in function["regions"]:
                if region[7] == EXPANSION and region[5] in inside:
                    inside.add(region[6])
            for region in function["regions"]:
                if region[7] == CODE and region[5] in inside:
                    line = self.line(function["filenames"][region[5]], region[0])
                    if line[region[1] - 1:].startswith("return"):
                        counts.append(region[4])
        return max(counts) if counts else None

    def line(self, file, number):
        if file not in self.texts:
            self.texts[file] = pathlib.Path(file).read_text().split("\n")
        return self.texts[file][number - 1]


def read_unreachable(path):
    """Returns {(file, text): number of places}, from lines `file: text`, each with an indented
    reason.

    All places of that text are out of reach: one, or as many as the line's `(N places)` says.
    """
    entries, reasons, key = {}, {}, None
    for line in path.read_text().split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            reasons[key] = f"{reasons[key]} {line.strip()}".strip()
        else:
            file, text = line.split(": ", 1)
            places = PLACES.search(text)
            key = (file, PLACES.sub("", text).strip())
            entries[key] = int(places.group(1)) if places else 1
            reasons[key] = ""
    return entries


def judge(counts, unreachable, root=ROOT):
    total, hit, listed, unlisted, wrong = 0, 0, 0, [], []
    missed = dict.fromkeys(unreachable, 0)
    for path in sorted((root / "tiers").rglob("*")):
        if path.suffix not in (".cc", ".h") or path.name == "status_macros.h":
            continue
        name = str(path.relative_to(root))
        for site in cpp_errors.sites(path.read_text()):
            total += 1
            key = (name, site.text)
            if counts.at(str(path), site):
                hit += 1
                if key in unreachable:
                    wrong.append(f"{name}:{site.line}: ran, but is listed as out of reach")
            elif key in unreachable:
                listed += 1
                missed[key] += 1
            else:
                unlisted.append(f"{name}:{site.line}: {site.text}")
    for (file, text), places in unreachable.items():
        if missed[file, text] != places:
            wrong.append(f"{file}: {places} listed, {missed[file, text]} found that did not run: "
                         f"{text}")
    return total, hit, listed, unlisted, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "coverage")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--measured", action="store_true", help="judge what the last run left")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.measured:
        found = {path.name: path for path in build.rglob("*_test") if path.is_file()}
        binaries = [build / "bin" / "kvkeep-sim"] + [found[name] for name in TESTS]
    else:
        run(["cmake", "--preset", "coverage"], stdout=subprocess.DEVNULL)
        run(["cmake", "--build", build, "--target", "kvkeep-sim", *TESTS, "--",
             f"-j{options.jobs}"], stdout=subprocess.DEVNULL)
        binaries = measure(build, options.seeds, options.steps, options.jobs)
    unreachable = read_unreachable(HERE / "unreachable.txt")
    total, hit, listed, unlisted, wrong = judge(Counts(export(build, binaries), build), unreachable)
    for line in unlisted + wrong:
        print(line)
    print(f"error returns in tiers/: {total}, {hit} hit, {listed} listed as out of reach, "
          f"{len(unlisted)} neither")
    return 1 if unlisted or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
