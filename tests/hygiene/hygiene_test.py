#!/usr/bin/env python3
"""What ships is hardened, carries no path of the machine that built it, and can be listed.

    hygiene_test.py --root SOURCES --release yes|no BINARY...      exit 1 when anything is wrong

The build flags are looked for in the binaries, not in the build files. Without --release yes only
what every build must have is checked.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = None
BINARIES = []
RELEASE = False
ENDBR64 = b"\xf3\x0f\x1e\xfa"


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True,
                          env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}).stdout


class Elf:
    """What readelf tells of a binary."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.header = run("readelf", "-hW", path)
        self.segments = run("readelf", "-lW", path)
        self.dynamic = run("readelf", "-dW", path)
        self.symbols = run("readelf", "--dyn-syms", "-W", path)

    def problems(self):
        found = self.problems_of_any_build()
        return found + (self.problems_of_release() if RELEASE else [])

    def problems_of_any_build(self):
        found = []
        if "DYN (" not in self.header:
            found.append("not position-independent")
        stack = re.search(r"GNU_STACK.*", self.segments)
        if stack is None or re.search(r"\bRWE\b", stack.group()):
            found.append("executable stack")
        if re.search(r"LOAD.*\bRWE\b", self.segments):
            found.append("a segment to write and to execute")
        if re.search(r"\((RPATH|RUNPATH)\)", self.dynamic):
            found.append("RPATH or RUNPATH")
        if "(TEXTREL)" in self.dynamic:
            found.append("relocations in the text")
        return found

    def problems_of_release(self):
        found = []
        if "GNU_RELRO" not in self.segments:
            found.append("no RELRO")
        if not re.search(r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*\bNOW\b", self.dynamic):
            found.append("not bound at start (BIND_NOW)")
        if "__stack_chk_fail" not in self.symbols:
            found.append("no stack protector")
        if not re.search(r"__(memcpy|memset|snprintf|read|vsnprintf|fprintf|memmove)_chk",
                         self.symbols):
            found.append("no _FORTIFY_SOURCE")
        # Debian's start files are not marked, hence no property note: count landing pads.
        if "X86-64" in self.header and self.path.read_bytes().count(ENDBR64) < 100:
            found.append("no -fcf-protection")
        return found


class Binaries(unittest.TestCase):
    def test_each_is_hardened(self):
        self.assertGreaterEqual(len(BINARIES), 2)
        for binary in BINARIES:
            with self.subTest(binary=binary.name):
                self.assertEqual(Elf(binary).problems(), [])

    def test_the_checks_above_can_fail(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("no C compiler here")
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "a.c"
            source.write_text("int main(void) { return 0; }\n")
            bad = pathlib.Path(folder) / "bad"
            subprocess.run([compiler, source, "-o", bad, "-no-pie", "-fcf-protection=none",
                            "-Wl,-z,norelro,-z,lazy,-z,execstack,-rpath,/somewhere"],
                           check=True, capture_output=True)
            elf = Elf(bad)
            self.assertEqual(elf.problems_of_any_build(), [
                "not position-independent", "executable stack", "RPATH or RUNPATH"])
            self.assertEqual(elf.problems_of_release(), [
                "no RELRO", "not bound at start (BIND_NOW)", "no stack protector",
                "no _FORTIFY_SOURCE", "no -fcf-protection"])


class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("dpkg-query") is None:
            raise unittest.SkipTest("no dpkg here")
        cls.text = run(sys.executable, "-B", ROOT / "tools" / "sbom", *BINARIES)
        cls.bom = json.loads(cls.text)

    def test_it_has_what_cyclonedx_asks_for(self):
        self.assertEqual((self.bom["bomFormat"], self.bom["specVersion"]), ("CycloneDX", "1.5"))
        self.assertGreaterEqual(self.bom["version"], 1)
        self.assertRegex(self.bom["metadata"]["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        top = self.bom["metadata"]["component"]
        self.assertEqual(top["name"], "kvkeep")
        refs = [entry["bom-ref"] for entry in self.bom["components"]]
        self.assertEqual(len(refs), len(set(refs)))
        for entry in self.bom["components"]:
            self.assertEqual(entry["type"], "library")
            self.assertTrue(entry["name"] and entry["version"])
            self.assertRegex(entry["purl"], r"^pkg:deb/debian/[a-z0-9.+-]+@[^?+: ]+\?arch=\w+$")
        known = set(refs) | {top["bom-ref"]} | {part["bom-ref"] for part in top["components"]}
        for entry in self.bom["dependencies"]:
            self.assertLessEqual({entry["ref"], *entry["dependsOn"]}, known)

    def test_every_library_that_is_linked_is_in_it_with_its_version(self):
        # By another way than the script's: the C++ runtime's and gRPC's own packages.
        versions = {entry["name"]: entry["version"] for entry in self.bom["components"]}
        for package in ("libc6", "libstdc++6", "libgrpc++1.51", "libssl3", "librocksdb7.8"):
            with self.subTest(package=package):
                installed = run("dpkg-query", "--show", "--showformat", "${Version}\n", package)
                self.assertEqual(versions[package], installed.splitlines()[0])
        needed = {soname for binary in BINARIES
                  for soname in re.findall(r"\(NEEDED\).*\[(\S+)\]", Elf(binary).dynamic)}
        self.assertGreater(len(self.bom["components"]), len(needed) / 2)

    def test_what_is_only_compiled_in_is_there_too_and_no_path_of_this_machine(self):
        names = {entry["name"] for entry in self.bom["components"]}
        self.assertLessEqual({"libcli11-dev", "nlohmann-json3-dev", "libxxhash-dev",
                              "librocksdb-dev", "libgrpc++-dev", "libssl-dev"}, names)
        self.assertNotIn(str(ROOT), self.text)


def main():
    global ROOT, BINARIES, RELEASE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--release", choices=("yes", "no"), required=True)
    parser.add_argument("binaries", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    ROOT = arguments.root.resolve()
    BINARIES = arguments.binaries
    RELEASE = arguments.release == "yes"
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
