#!/usr/bin/env python3
"""The Python wheel: its contents, and its life in a clean root with nothing but pip.

    wheel_check.py --wheel FILE [--clean-root machine|mirror]

tools/wheel runs it on its result; `cmake -DKVKEEP_WHEEL=FILE` makes a test of it. The root is that
of packages_check.py: of this machine's own packages, or of apt's mirror, in namespaces of its own.
Where those are not permitted, that part is skipped, and the output says so.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

import clean_root
import installed_root

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHEEL = CONTENT = None
KIND = "machine"
IN_NAMESPACE = "--in-namespace"
# The versions of RHEL 9, the oldest system that the wheel supports.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}
MOST_BYTES = 22_000_000
# Libraries that the system brings, as in manylinux_2_34.
SYSTEM = re.compile(r"(libc|libm|libstdc\+\+|libgcc_s|libz|libpthread|libdl|librt|ld-linux.*)"
                    r"\.so\.\d+")
PATIENCE = 60  # seconds from an empty root to a chunk that is read back
SMALL = ("--g2.capacity", "96MiB", "--g2.segment_bytes", "16MiB", "--g3.paths",
         "[{dir: /srv/user/g3, capacity: 256MiB}]")
NAMES = """
import kvkeep
with kvkeep.connect() as cache:
    assert cache.put("name", b"value") and cache.get("name") == b"value"
"""
PUT_AND_GET = """
import sys, kvkeep
client = kvkeep.Client()
space = client.namespace("m", tokens_per_chunk=16)
key, payload = bytes(range(32)), bytes(range(256)) * 4000
if "put" in sys.argv:
    stored = space.put([(key, payload)])
    assert stored.stored == 1, (stored.error, stored.statuses, stored.why)
into = bytearray(len(payload))
got = space.get([key], [into])
assert got.hits == 1, (got.error, got.statuses)
assert into == payload, "other bytes"
"""


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)


def elf_files():
    for path in sorted(CONTENT.rglob("*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            yield path


def number(version):
    return tuple(int(part) for part in version.split("."))


class Wheel(unittest.TestCase):
    def test_no_file_asks_for_a_newer_system_than_rhel_9(self):
        files = list(elf_files())
        self.assertGreater(len(files), 3)
        for path in files:
            for kind, version in set(re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)\b",
                                                run("objdump", "-p", path).stdout)):
                self.assertLessEqual(number(version), NEWEST[kind], (path.name, kind, version))
        self.assertRegex(WHEEL.name, r"-py3-none-manylinux_2_34_\w+\.whl$")

    def test_it_has_all_that_its_files_load_but_c_and_cpp(self):
        files = {path.name: path for path in elf_files()}
        for path in files.values():
            dynamic = run("readelf", "--dynamic", "--wide", path).stdout
            for name in re.findall(r"\(NEEDED\) .*\[(.+)\]", dynamic):
                self.assertTrue(name in files or SYSTEM.fullmatch(name), (path.name, name))
            for paths in re.findall(r"\(R(?:UN)?PATH\) .*\[(.+)\]", dynamic):
                self.assertRegex(paths, r"^\$ORIGIN(/\.\.)*(/kvkeep\.libs)?$", path.name)
        for name in files:
            self.assertIsNone(re.match(r"(libstdc\+\+|libgcc_s|libc|libm)[-.]", name), name)

    def test_no_name_is_unique_in_a_process(self):
        # Else a second gRPC in an engine's process shares objects with ours, and crashes.
        for path in elf_files():
            symbols = run("readelf", "--dyn-syms", "--wide", path).stdout
            self.assertRegex(symbols, r"\b(FUNC|OBJECT)\b", path.name)
            self.assertNotRegex(symbols, r"\bUNIQUE\b", path.name)

    def test_it_was_made_by_the_version_that_tools_wheel_names(self):
        (metadata,) = CONTENT.glob("*.dist-info/WHEEL")
        version = re.search(r'"setuptools==([\d.]+)"', (ROOT / "tools" / "wheel").read_text())
        self.assertIsNotNone(version, "tools/wheel takes whatever setuptools is the newest")
        self.assertIn(f"Generator: setuptools ({version.group(1)})\n", metadata.read_text())

    def test_it_is_small(self):
        self.assertLessEqual(WHEEL.stat().st_size, MOST_BYTES)

    def test_each_licence_is_there_with_the_texts_that_it_names(self):
        (folder,) = CONTENT.glob("*.dist-info/licenses")
        there = {path.name for path in folder.iterdir()}
        for name in ("LICENSE", "LICENSE.curl", "LICENSE.grpc", "LICENSE.openssl",
                     "LICENSE.rocksdb", "LICENSE.zeromq3"):
            self.assertIn(name, there)
        for path in folder.iterdir():
            named = re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", path.read_text())
            self.assertLessEqual({f"LICENSE.common.{name}" for name in named}, there, path.name)

    def test_nothing_of_debugging_is_in_it_and_no_path_of_this_machine(self):
        ours = re.compile(rb"(?<![\w./-])" + re.escape(f"{ROOT}/".encode()))
        for path in CONTENT.rglob("*"):
            if path.is_file():
                self.assertIsNone(ours.search(path.read_bytes()), path)
        for path in elf_files():
            self.assertNotIn(".debug_", run("readelf", "-SW", path).stdout, path.name)


class Life(unittest.TestCase):
    def test_installed_started_used_and_stopped_within_a_minute(self):
        unshare = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child"]
        if os.geteuid() != 0 or shutil.which("unshare") is None or run(*unshare, "true").returncode:
            raise unittest.SkipTest("namespaces of root are not permitted here")
        make = {"machine": clean_root.from_machine, "mirror": clean_root.from_mirror}[KIND]
        try:
            lower = make(ROOT / "build" / "wheel-root", "python3, python3-venv, libstdc++6")
        except LookupError as missing:
            raise unittest.SkipTest(str(missing)) from None
        with tempfile.TemporaryDirectory() as holder:
            done = run(*unshare, sys.executable, "-B", __file__, IN_NAMESPACE, holder, "--lower",
                       lower, "--wheel", WHEEL)
        if done.returncode == 77:
            self.skipTest(done.stderr.strip())
        print(done.stderr, file=sys.stderr, end="")
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-8000:])


class InRoot:
    """Runs the life, as a user without rights in the clean root."""

    USER = 23456

    def __init__(self, path):
        self.root = installed_root.Root(path)
        self.root.environment |= {"HOME": "/srv/user", "PATH": "/srv/user/kv/bin:/usr/bin:/bin"}
        self.log = path.parent / "kvkeepd.log"
        home = self.root.file("/srv/user")
        home.mkdir(parents=True)
        os.chown(home, self.USER, self.USER)
        self.began = time.monotonic()

    def step(self, name):
        print(f"    {time.monotonic() - self.began:5.1f} s  {name}", file=sys.stderr, flush=True)

    def run(self, *words):
        return self.root.run(*words, uid=self.USER, gid=self.USER)

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            return subprocess.Popen(["kvkeepd", *SMALL], stderr=log, env=self.root.environment,
                                    preexec_fn=self.root.enter(self.USER, self.USER))

    def serves(self):
        done = subprocess.run(["kvkeep", "ping"], capture_output=True, check=False,
                              env=self.root.environment,
                              preexec_fn=self.root.enter(self.USER, self.USER))
        return done.returncode == 0

    def use(self, *words):
        """Starts the daemon, runs the client, stops the daemon by SIGTERM."""
        daemon = self.start()
        installed_root.eventually("kvkeepd serves", self.serves)
        self.step("the daemon serves")
        self.run("/srv/user/kv/bin/python3", "-c", PUT_AND_GET, *words)
        self.step(f"a chunk came back: {' and '.join([*words, 'get'])}")
        program = os.readlink(f"/proc/{daemon.pid}/exe")
        assert program.endswith("/kvkeep/bin/kvkeepd"), program
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(60) == 0, self.log.read_text()
        self.step("the daemon ended by SIGTERM")


def live(folder, lower, wheel):
    installed_root.raise_loopback()
    life = InRoot(installed_root.lay_out(folder, lower))
    for tool in ("cc", "gcc", "c++", "clang"):
        assert not life.root.file(f"/usr/bin/{tool}").exists(), f"the root has {tool}"
    shutil.copy(wheel, life.root.file("/tmp"))
    life.began = time.monotonic()
    life.run("/usr/bin/python3", "-m", "venv", "/srv/user/kv")
    life.step("an environment of Python's")
    life.run("pip", "install", "--no-index", f"/tmp/{wheel.name}")
    life.step("pip install")
    life.run("kvkeep", "up", "--log", "/srv/user/log")
    life.step("kvkeep up")
    life.run("/srv/user/kv/bin/python3", "-c", NAMES)
    life.step("a value came back")
    took = time.monotonic() - life.began
    assert took < PATIENCE, f"{took:.1f} s from nothing to a chunk, of {PATIENCE}"
    life.run("kvkeep", "down")
    life.use("put")
    life.use()  # from NVMe
    assert "kvkeepd 0" in life.run("kvkeepd", "--version")


def main():
    global WHEEL, CONTENT, KIND
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=pathlib.Path, required=True)
    parser.add_argument("--clean-root", choices=["machine", "mirror"], default="machine")
    parser.add_argument(IN_NAMESPACE, type=pathlib.Path, help="for this script's own use")
    parser.add_argument("--lower", type=pathlib.Path, help="likewise")
    arguments = parser.parse_args()
    WHEEL, KIND = arguments.wheel.resolve(), arguments.clean_root
    if arguments.in_namespace is not None:
        return live(arguments.in_namespace, arguments.lower, WHEEL)
    with tempfile.TemporaryDirectory() as folder:
        CONTENT = pathlib.Path(folder)
        zipfile.ZipFile(WHEEL).extractall(CONTENT)
        return not unittest.main(argv=[sys.argv[0], "-v"], exit=False).result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
