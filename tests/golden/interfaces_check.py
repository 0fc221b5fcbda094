#!/usr/bin/env python3
"""What others rely on, held to the golden files of each tag: gRPC, the C ABI, the local protocol.

    interfaces_check.py [--root SOURCES] [--write]

tests/golden/TAG/{grpc,abi,local}.txt list the interfaces that a release has. Every line of every
release must still be true. The directory of the version that CMakeLists.txt names must be equal to
what the sources say now: it becomes that release's. `--write` makes it, and refuses when git has
the version's tag. CONTRIBUTING.md, "Compatibility", says what may change.
"""

import argparse
import functools
import pathlib
import re
import subprocess
import sys
import unittest

import layouts

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What to do about a difference, as failures say it.
BROKEN = ("programs built for {tag} break. Keep the old one beside the new one (a new field at the "
          "end, a new message, call or version). Never change a released line of {path}.")
NEW = ("{path} does not list this yet. If it is meant: tests/golden/interfaces_check.py --write, "
       "and commit the file. If {tag} is released, first raise the version in CMakeLists.txt.")


def version():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"project\(kvkeep VERSION (\S+)", text).group(1)


@functools.lru_cache(maxsize=None)
def now(name):
    return tuple(layouts.INTERFACES[name](ROOT))


def path_of(tag, name):
    return ROOT / "tests" / "golden" / tag / f"{name}.txt"


def tags():
    return sorted(path.parent.name for path in (ROOT / "tests/golden").glob("*/grpc.txt"))


def golden(tag, name):
    return path_of(tag, name).read_text(encoding="utf-8").splitlines()


def _number(line):
    """Returns the number of a constant's or struct's line."""
    return int(line.split()[2])


def allowed(old, new, others):
    """Returns whether clients that know `old` do well with `new`. `others`: {subject: line} now."""
    kind, name = old.split()[:2]
    if kind == "struct":  # of the C ABI, and begins with its size: it may grow at the end
        return _number(new) >= _number(old) and " at 0," in others.get(f"field {name}.size", "")
    # A daemon takes the highest version that both know, so the range may grow at its end. Giving up
    # old versions is a matter of more than one release (CONTRIBUTING.md).
    return old.startswith("constant kVersion ") and _number(new) >= _number(old)


def used_now(old, new):
    """Returns whether `old` was a reserved field, whose place another field has now."""
    match = re.fullmatch(r"(field \w+\.)reserved( at \d+, ).*", old)
    return match is not None and any(
        line.startswith(match.group(1)) and match.group(2) in line for line in new)


def broken(old, new):
    """Returns the lines of `old` that are no longer true in `new`."""
    def subject(line):
        return " ".join(line.split()[:2])
    there, subjects = set(new), {subject(line): line for line in new}
    return [line for line in old if line not in there and not used_now(line, new) and not (
        subject(line) in subjects and allowed(line, subjects[subject(line)], subjects))]


class Interfaces(unittest.TestCase):
    def test_nothing_that_a_release_has_was_changed_or_removed(self):
        self.assertIn(version(), tags(), NEW.format(path="tests/golden", tag=version()))
        for tag in tags():
            for name in layouts.INTERFACES:
                path = path_of(tag, name).relative_to(ROOT)
                for line in broken(golden(tag, name), now(name)):
                    with self.subTest(tag=tag, line=line):
                        self.fail(BROKEN.format(tag=tag, path=path))

    def test_all_that_this_version_has_is_in_its_golden_files(self):
        for name in layouts.INTERFACES:
            path = path_of(version(), name).relative_to(ROOT)
            old = set(golden(version(), name))
            for line in now(name):
                with self.subTest(line=line):
                    if line not in old:
                        self.fail(NEW.format(path=path, tag=version()))

    def test_the_listings_are_whole(self):
        for name, least in (("abi", 400), ("local", 220), ("grpc", 300)):
            self.assertGreater(len(now(name)), least, name)
            self.assertEqual(len(now(name)), len(set(now(name))), name)
        self.assertIn("constant KVKEEP_ABI_VERSION 1", now("abi"))
        self.assertIn("field KeysRequest.keys at 24, 4 bytes, uint32_t", now("local"))

    def test_the_checks_above_can_fail(self):
        old = ["constant kVersion 9", "constant kMagic 7", "struct a 8 bytes", "struct b 8 bytes",
               "field a.size at 0, 4 bytes, uint32_t", "field b.x at 0, 4 bytes, uint32_t",
               "field b.reserved at 4, 4 bytes, uint32_t", "function int kvkeep_f(int)",
               "rpc kvkeep.v1.K.Get (A) returns (B)"]
        self.assertEqual(broken(old, old), [])
        grown = [line.replace("Version 9", "Version 10").replace("struct a 8", "struct a 16")
                 .replace("b.reserved", "b.y") for line in old]
        self.assertEqual(broken(old, [*grown, "function int kvkeep_g(void)"]), [])
        for before, after in (("Version 9", "Version 8"), ("kMagic 7", "kMagic 8"),
                              ("struct a 8", "struct a 4"), ("struct b 8", "struct b 16"),
                              ("b.x at 0, 4 bytes, uint32_t", "b.x at 0, 4 bytes, float"),
                              ("kvkeep_f(int)", "kvkeep_f(long)"), ("returns (B)", "returns (C)")):
            changed = [line.replace(before, after) for line in old]
            self.assertEqual(len(broken(old, changed)), 1, after)
        for line in old:
            self.assertIn(line, broken(old, [one for one in old if one != line]))


def unreleased():
    """Returns the version, whose golden files may be written: git has no tag of it."""
    tag = version()
    tagged = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"refs/tags/v{tag}"],
                            cwd=ROOT, capture_output=True, check=False)
    if tagged.returncode == 0:
        sys.exit(f"--write: v{tag} is released: its golden files stay as they are")
    return tag


def write():
    tag = unreleased()
    for name in layouts.INTERFACES:
        path_of(tag, name).parent.mkdir(exist_ok=True)
        path_of(tag, name).write_text("".join(f"{line}\n" for line in now(name)), encoding="utf-8")


def main():
    global ROOT
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    ROOT = arguments.root.resolve()
    if arguments.write:
        return write()
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
