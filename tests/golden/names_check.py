#!/usr/bin/env python3
"""The names that others rely on, held to the golden files of each tag: Python, keys, metrics, JSON.

    names_check.py KVKEEPD [--write]

tests/golden/TAG/{python,engines,config,metrics,json}.txt list what a release has, as listings.py
says. Every line of each release must still be true of the build of KVKEEPD, and the files of the
version that CMakeLists.txt names must have all that this build has. `--write` makes them, unless
that version is released. A call may take more than it did, but may not ask for more.
CONTRIBUTING.md, "Compatibility", says what may change.
"""

import pathlib
import sys
import unittest

import interfaces_check
import listings
from interfaces_check import golden, path_of

HERE = pathlib.Path(__file__).resolve().parent
KVKEEPD = None
BROKEN = ("users of {tag} rely on it. Keep the old name beside the new one; a removal is announced "
          "one minor release before (CONTRIBUTING.md, Compatibility).")
NEW = ("{path} does not list this yet. If it is meant: tests/golden/names_check.py KVKEEPD "
       "--write, and commit the file. If {tag} is released, first raise the version in "
       "CMakeLists.txt.")


def required(lines):
    """Returns {call: the parameters that it cannot do without}."""
    found = {}
    for line in lines:
        if line.startswith("call "):
            call, _, names = line.removeprefix("call ").partition(" requires ")
            found[call] = set() if names == "nothing" else set(names.split(", "))
    return found


def broken(old, new):
    """Returns the lines of `old` that are no longer true in `new`."""
    there, before, after = set(new), required(old), required(new)

    def still_called(line):
        call = line.removeprefix("call ").partition(" requires ")[0]
        return line.startswith("call ") and call in after and after[call] <= before[call]
    return [line for line in old if line not in there and not still_called(line)]


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.now = listings.now(KVKEEPD)

    def test_nothing_that_a_release_has_was_changed_or_removed(self):
        tags = sorted(path.parent.name for path in HERE.glob("*/python.txt"))
        self.assertIn(interfaces_check.version(), tags, "tests/golden/names_check.py --write")
        for tag in tags:
            for name in listings.LISTINGS:
                for line in broken(golden(tag, name), self.now[name]):
                    with self.subTest(tag=tag, line=line):
                        self.fail(BROKEN.format(tag=tag))

    def test_all_that_this_version_has_is_in_its_golden_files(self):
        tag = interfaces_check.version()
        for name in listings.LISTINGS:
            for line in sorted(set(self.now[name]) - set(golden(tag, name))):
                with self.subTest(line=line):
                    self.fail(NEW.format(path=path_of(tag, name), tag=tag))

    def test_the_listings_are_whole(self):
        for name, least in (("python", 400), ("engines", 90), ("config", 150), ("metrics", 400),
                            ("json", 400)):
            self.assertGreater(len(self.now[name]), least, name)
        for name, line in (
                ("python", "field kvkeep.Found.leading_keys"),
                ("python", "call kvkeep.Client.namespace requires model, tokens_per_chunk"),
                ("python", "takes kvkeep.Namespace.lookup lease by its name"),
                ("python", "takes kvkeep.Chunk payload at 1 or by its name"),
                ("python", "call kvkeep.Counted.raise_for_error requires nothing"),
                ("python", "value kvkeep.GetStatus.HIT 1"),
                ("engines", "adapter kvkeep.vllm.KvkeepTier"),
                ("engines", "option LinkerOptions.endpoint"),
                ("python", "field kvkeep.watch.News.events"),
                ("config", "key g3.paths[].dir"), ("config", "live listen.token_file"),
                ("metrics", "metric kvkeep_request_duration_seconds histogram"),
                ("metrics", "label kvkeep_g4_requests_total outcome"),
                ("metrics", "metric kvkeep_g4_leftover_files_total counter"),
                ("json", "status g2.chunks"), ("json", "leases sessions[].leased_bytes"),
                ("json", "lookup keys[].g4")):
            self.assertIn(line, self.now[name])

    def test_the_checks_above_can_fail(self):
        for name in listings.LISTINGS:
            old = golden(interfaces_check.version(), name)
            self.assertEqual(broken(old, [*old, "what is new"]), [])
            for line in old[::7]:
                self.assertEqual(broken(old, [one for one in old if one != line]), [line])

    def test_what_a_call_takes_is_listed_and_may_only_grow(self):
        def lines(call):
            return list(listings._call("f", call, bound=False))
        old = lines(lambda a, b, *, c=0: None)
        self.assertEqual(old, ["call f requires a, b", "takes f a at 0 or by its name",
                               "takes f b at 1 or by its name", "takes f c by its name"])
        for grown in (lambda a, b, *, c=0, d=0: None, lambda a, b, e=0, *, c=1: None,
                      lambda a, b=0, *, c=0: None):
            self.assertEqual(broken(old, lines(grown)), [])
        for changed in (lambda a, b, *, c: None, lambda a, b, d, *, c=0: None,
                        lambda b, a, *, c=0: None, lambda a, b: None, lambda a, *, b, c=0: None):
            self.assertNotEqual(broken(old, lines(changed)), [])


def main():
    global KVKEEPD
    KVKEEPD = sys.argv.pop(1)
    if sys.argv[1:] == ["--write"]:
        tag = interfaces_check.unreleased()
        for name, lines in listings.now(KVKEEPD).items():
            path_of(tag, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return None
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
