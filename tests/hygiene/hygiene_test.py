#!/usr/bin/env python3
"""Shipped binaries are hardened, carry no path of the machine that built them, and can be listed.

    hygiene_test.py --root SOURCES --build TREE --release yes|no BINARY...

Exit status 1 when anything is wrong. The build flags are checked in the binaries; flags that no
binary shows, in the commands that compile every source of the tree. Without --release yes only the
flags that every build must have are checked.
"""

import argparse
import functools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = None
BUILD = None
BINARIES = []
RELEASE = False
ENDBR64 = b"\xf3\x0f\x1e\xfa"
# No binary shows these: how a stack grows, the level of fortification, zeroed locals.
UNSEEN = ("-fstack-clash-protection", "-D_FORTIFY_SOURCE=3", "-ftrivial-auto-var-init=zero")


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True,
                          env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}).stdout


@functools.lru_cache(maxsize=None)
def loaders_cache():
    """Returns {soname: path} for this machine's architecture, whose libraries come first."""
    found = {}
    for soname, path in re.findall(r"^\s+(\S+) \(.*\) => (\S+)$", run("ldconfig", "-p"),
                                   re.MULTILINE):
        found.setdefault(soname, path)
    return found


def package_of(soname):
    """Returns the path that dpkg knows: Debian merged /lib into /usr/lib, and dpkg has one of the
    two names."""
    path = loaders_cache()[soname].removeprefix("/usr")
    told = subprocess.run(["dpkg", "-S", path, f"/usr{path}"], capture_output=True, text=True,
                          check=False).stdout
    return told.split(":")[0]


class Elf:
    """A binary as readelf describes it."""

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

    def test_none_has_a_path_of_the_machine_that_built_it(self):
        if not RELEASE:
            return  # the others are for people who build them
        for binary in BINARIES:
            with self.subTest(binary=binary.name):
                data = binary.read_bytes()
                for path in (ROOT, BUILD):
                    # Not the end of another path: a checkout may be /kvkeep.
                    found = re.search(rb"(?<![\w./-])" + re.escape(f"{path}/".encode()), data)
                    self.assertIsNone(found, found and data[found.start():found.start() + 200])

    def test_each_source_is_compiled_with_what_binaries_do_not_show(self):
        if not RELEASE:
            return
        commands = json.loads((BUILD / "compile_commands.json").read_text())
        self.assertGreater(len(commands), 20)
        for entry in commands:
            words = entry["command"].split()
            missing = [flag for flag in UNSEEN if flag not in words]
            undone = [word for word in words if word.startswith("-D_FORTIFY_SOURCE")
                      and word != "-D_FORTIFY_SOURCE=3" or word == "-fno-stack-clash-protection"]
            self.assertEqual((missing, undone), ([], []), entry["file"])

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
        # Uses another way than the script, which asks ldd: each name that a binary needs, by the
        # loader's cache, and dpkg.
        versions = {entry["name"]: entry["version"] for entry in self.bom["components"]}
        needed = {soname for binary in BINARIES
                  for soname in re.findall(r"\(NEEDED\).*\[(\S+)\]", Elf(binary).dynamic)}
        needed -= {binary.name for binary in BINARIES}
        self.assertGreater(len(needed), 20)
        packages = {soname: package_of(soname) for soname in needed}
        self.assertLessEqual({"libc6", "libgrpc++1.51", "librocksdb7.8"}, set(packages.values()))
        for soname, package in sorted(packages.items()):
            with self.subTest(soname=soname, package=package):
                installed = run("dpkg-query", "--show", "--showformat", "${Version}\n", package)
                self.assertEqual(versions.get(package), installed.splitlines()[0])

    def test_what_is_only_compiled_in_is_there_too_and_no_path_of_this_machine(self):
        names = {entry["name"] for entry in self.bom["components"]}
        self.assertLessEqual({"libcli11-dev", "nlohmann-json3-dev", "libxxhash-dev",
                              "librocksdb-dev", "libgrpc++-dev", "libssl-dev"}, names)
        self.assertNotRegex(self.text, r"(?<![\w./-])" + re.escape(f"{ROOT}/"))


def main():
    global ROOT, BUILD, BINARIES, RELEASE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--release", choices=("yes", "no"), required=True)
    parser.add_argument("binaries", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    ROOT = arguments.root.resolve()
    BUILD = arguments.build.resolve()
    BINARIES = arguments.binaries
    RELEASE = arguments.release == "yes"
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
