#!/usr/bin/env python3
"""The Debian packages: how they are made, and a life of them in a clean root.

    packages_check.py --root SOURCES --build BUILD [--clean-root machine|mirror]

The root (clean_root.py) consists of this machine's own packages, so nothing is fetched; with
`mirror` it is mmdebstrap's, from the mirror that apt has configured. Everything in it happens in
namespaces of its own (mounts, processes, network), as root. Where these are not permitted, or
systemd does not boot in them, the test is skipped with a message.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import booted_root
import clean_root
import installed_root

ROOT = BUILD = None
KIND = "machine"
PACKAGES = AGAIN = None  # folders with the packages, made twice
NAMES = ("kvkeep", "libkvkeep-client1", "libkvkeep-client-dev")
IN_NAMESPACE = "--in-namespace"


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)


def need(*tools):
    for tool in tools:
        if shutil.which(tool) is None:
            raise unittest.SkipTest(f"no {tool} here")


def start(*command, **options):
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **options)


def packing(folder, **environment):
    return start(ROOT / "tools" / "packages", BUILD, folder, env={**os.environ, **environment})


def finish(process):
    said, complained = process.communicate(timeout=800)
    assert process.returncode == 0, said + complained


def package(name):
    (path,) = PACKAGES.glob(f"{name}_*.deb")
    return path


def field(name, what):
    return run("dpkg-deb", "--field", package(name), what).stdout.strip()


def setUpModule():
    global PACKAGES, AGAIN
    need("cpack", "dpkg-deb", "dpkg-shlibdeps")
    holder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(holder.cleanup)
    PACKAGES, AGAIN = (pathlib.Path(holder.name) / name for name in ("once", "again"))
    both = [packing(PACKAGES), packing(AGAIN, TZ="Asia/Tokyo", LC_ALL="C.UTF-8", COLUMNS="40")]
    for process in both:
        finish(process)


class Packages(unittest.TestCase):
    def test_the_same_binaries_make_the_same_packages(self):
        def digests(folder):
            return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                    for path in folder.glob("*.deb")}
        self.assertEqual(digests(AGAIN), digests(PACKAGES))
        self.assertEqual(len(digests(PACKAGES)), len(NAMES))

    def test_lintian_finds_no_error_and_every_override_has_a_reason(self):
        need("lintian")
        done = run("lintian", "--allow-root", "--fail-on", "error", "--show-overrides",
                   *map(package, NAMES))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for overrides in (ROOT / "deploy" / "debian").glob("*.lintian-overrides"):
            self.assertRegex(overrides.read_text(), r"\A(#.+\n)+[^#].*\n\Z", overrides)

    def test_what_they_need_is_what_their_binaries_load(self):
        for name in ("kvkeep", "libkvkeep-client1"):
            self.assertRegex(field(name, "Depends"), r"libgrpc\+\+1\.51 \(>= ")
        self.assertIn("librocksdb", field("kvkeep", "Depends"))
        self.assertNotIn("librocksdb", field("libkvkeep-client1", "Depends"))
        version = field("libkvkeep-client1", "Version")
        self.assertEqual(field("libkvkeep-client-dev", "Depends"),
                         f"libkvkeep-client1 (= {version})")
        changelog = (ROOT / "deploy" / "debian" / "changelog").read_text()
        self.assertIn(f"({version})", changelog.splitlines()[0])
        with tempfile.TemporaryDirectory() as folder:
            run("dpkg-deb", "--control", package("libkvkeep-client1"), folder)
            shlibs = (pathlib.Path(folder) / "shlibs").read_text()
        self.assertEqual(shlibs, f"libkvkeep-client 1 libkvkeep-client1 (>= {version})\n")

    def test_nothing_of_debugging_is_in_them_and_no_path_of_this_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in NAMES:
                run("dpkg-deb", "--extract", package(name), folder)
            files = [path for path in pathlib.Path(folder).rglob("*")
                     if path.is_file() and not path.is_symlink()]
            self.assertGreater(len(files), 20)
            ours = re.compile(rb"(?<![\w./-])" + re.escape(f"{ROOT}/".encode()))
            for path in files:
                self.assertIsNone(ours.search(path.read_bytes()), path)
            sections = run("readelf", "-SW", pathlib.Path(folder) / "usr/bin/kvkeepd").stdout
            self.assertNotIn(".symtab", sections)
            self.assertNotIn(".debug_", sections)


class Life(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Begins both lives here, as each waits most of the time."""
        need("unshare", "prometheus", "gcc")
        unshare = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child"]
        if os.geteuid() != 0 or run(*unshare, "true").returncode != 0:
            raise unittest.SkipTest("namespaces of root are not permitted here")
        depends = ", ".join(field(name, "Depends") for name in NAMES[:2])
        make = {"machine": clean_root.from_machine, "mirror": clean_root.from_mirror}[KIND]
        try:
            lower = make(BUILD / "clean-root", depends)
        except LookupError as missing:
            raise unittest.SkipTest(str(missing)) from None
        cls.lives = {}
        for how in ("installed", "booted"):
            holder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(holder.cleanup)
            cls.lives[how] = start(
                *unshare, sys.executable, "-B", __file__, IN_NAMESPACE, holder.name, "--how", how,
                "--lower", lower, "--packages", PACKAGES, "--root", ROOT, "--build", BUILD)

    def check(self, how):
        life = self.lives[how]
        said, complained = life.communicate(timeout=800)
        if life.returncode == 77:
            self.skipTest(complained.strip())
        print(complained, file=sys.stderr, end="")
        self.assertEqual(life.returncode, 0, said[-4000:] + complained[-8000:])

    def test_installed_used_upgraded_and_purged_in_a_clean_root(self):
        self.check("installed")

    def test_under_a_real_systemd_the_units_do_what_they_say(self):
        need("systemd-nspawn")
        self.check("booted")


def main():
    global ROOT, BUILD, KIND
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--clean-root", choices=["machine", "mirror"], default="machine")
    parser.add_argument(IN_NAMESPACE, type=pathlib.Path, help="for this script's own use")
    parser.add_argument("--lower", type=pathlib.Path, help="likewise")
    parser.add_argument("--how", choices=["installed", "booted"], help="likewise")
    parser.add_argument("--packages", type=pathlib.Path, help="likewise")
    arguments = parser.parse_args()
    ROOT, BUILD, KIND = arguments.root.resolve(), arguments.build.resolve(), arguments.clean_root
    if arguments.in_namespace is not None:
        where = (arguments.in_namespace, arguments.lower, arguments.packages)
        if arguments.how == "booted":
            return booted_root.boot(*where)
        return installed_root.live(*where, ROOT)
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    sys.exit(main())
