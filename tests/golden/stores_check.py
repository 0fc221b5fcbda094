#!/usr/bin/env python3
"""What each tag's daemon left on disk and in G4, read by today's daemon.

    stores_check.py KVKEEPD [--write]

tests/golden/TAG/STORE.tar.xz is all that a daemon of that tag kept: `plain` has state.dir and a
path of G3, `encrypted` also the keys, and the directory of a fleet as G4. Today's daemon must serve
every chunk, with its bytes, from G3 and from G4. `--write` makes the files of the version that
CMakeLists.txt names, by the daemon given, unless it is released. The unit tests of each format
(tests/fakes/stored_page.h) hold single structures to their bytes.
"""

import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "client" / "c"))

import interfaces_check  # noqa: E402
from daemon import Daemon  # noqa: E402

KVKEEPD = None
PLACE = "/PLACE"  # in state/devices, for the folder that the store lies in
CHUNKS = {"one-byte": 1, "a-block-and-more": 5000, "two-pieces": (1 << 20) + 5}
# What a store has. Ciphertext does not compress, so only the plain one has a chunk of two pieces.
STORES = {"plain": list(CHUNKS), "encrypted": ["one-byte", "a-block-and-more"]}
BROKEN = ("today's daemon does not read what {tag} wrote: {what}. Read the old format too: a new "
          "one gets a new version number (CONTRIBUTING.md, Compatibility).")


def payload(name):
    return (f"{name} of kvkeep ".encode() * (CHUNKS[name] // 8 + 1))[:CHUNKS[name]]


def settings(store, place):
    paths = f"[{{dir: {place}/nvme, capacity: 64MiB, required: true}}]"
    chosen = {"KVKEEP_G2_CAPACITY": "32MiB", "KVKEEP_G2_SEGMENT_BYTES": "16MiB",
              "KVKEEP_G3_PATHS": paths}
    if store == "encrypted":
        chosen |= {"KVKEEP_ENCRYPTION_MASTER_KEY_FILE": f"{place}/master.key",
                   "KVKEEP_G4_URL": f"file://{place}/objects", "KVKEEP_G4_ADMISSION": "all",
                   "KVKEEP_G4_WRITE_BYTES_PER_SECOND": "1GiB", "KVKEEP_FLEET_NAME": "golden",
                   "KVKEEP_FLEET_KEY_FILE": f"{place}/fleet.key"}
    return chosen


def node(store):
    """Returns a daemon that is not started, with its directory empty."""
    daemon = Daemon(KVKEEPD)
    daemon.settings = settings(store, daemon.dir)
    return daemon


def tool(daemon, *words):
    program = pathlib.Path(daemon.binary).parent / "kvkeep"
    return subprocess.run([program, "--endpoint", daemon.endpoint, "--timeout", "20s", *words],
                          capture_output=True, check=False)


def stop(daemon):
    daemon.process.terminate()
    assert daemon.process.wait(60) == 0, daemon.log()
    daemon.process = None


def write(store, archive):
    daemon = node(store)
    place = pathlib.Path(daemon.dir)
    if store == "encrypted":
        for name, digits in (("master.key", "4b6d" * 16), ("fleet.key", "6b66" * 16)):
            (place / name).write_text(digits, encoding="ascii")
            (place / name).chmod(0o600)
        (place / "objects").mkdir()
        (place / "objects" / ".kvkeep").write_text("golden\n", encoding="ascii")
    with daemon:
        daemon.wait_joined()
        for name in STORES[store]:
            (place / "chunk").write_bytes(payload(name))
            done = tool(daemon, "put", "--durable", name, str(place / "chunk"))
            assert done.returncode == 0, done.stderr
        if store == "encrypted":
            daemon.wait_beyond(len(STORES[store]))
        stop(daemon)
        devices = place / "state" / "devices"
        devices.write_text(devices.read_text().replace(daemon.dir, PLACE))
        names = ["state", "nvme", "master.key", "fleet.key", "objects"]
        archive.parent.mkdir(exist_ok=True)
        with lzma.open(archive, "wb", preset=9) as packed, \
                tarfile.open(fileobj=packed, mode="w") as tar:
            for name in names:
                if (place / name).exists():
                    tar.add(place / name, name)


def unpacked(store, archive):
    """Returns a daemon over what the archive has."""
    daemon = node(store)
    with tarfile.open(archive) as tar:
        for member in tar:
            member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
            tar.extract(member, daemon.dir)
    devices = pathlib.Path(daemon.dir, "state", "devices")
    devices.write_text(devices.read_text().replace(PLACE, daemon.dir))
    return daemon


class Stores(unittest.TestCase):
    def served(self, daemon):
        """Returns the names of the chunks that come back whole."""
        found = []
        for name in CHUNKS:
            done = tool(daemon, "get", name, "--output", "-")
            if done.returncode == 0:
                self.assertTrue(done.stdout == payload(name), f"{name}: other bytes")
                found.append(name)
        return found

    def check(self, daemon, store, tag, tier):
        what = f"{store} chunks in {tier}"
        with self.subTest(tag=tag, what=what), daemon:
            daemon.wait_joined()
            self.assertEqual(self.served(daemon), STORES[store],
                             BROKEN.format(tag=tag, what=what) + "\n" + daemon.log())

    def test_todays_daemon_serves_what_each_tag_wrote(self):
        self.assertIn(interfaces_check.version(), interfaces_check.tags())
        for tag in interfaces_check.tags():
            for store in STORES:
                daemon = unpacked(store, HERE / tag / f"{store}.tar.xz")
                shutil.rmtree(pathlib.Path(daemon.dir, "objects"), ignore_errors=True)
                self.check(daemon, store, tag, "G3")
            daemon = unpacked("encrypted", HERE / tag / "encrypted.tar.xz")
            for name in ("nvme", "state"):
                shutil.rmtree(pathlib.Path(daemon.dir, name))
            self.check(daemon, "encrypted", tag, "G4")

    def test_the_check_above_can_fail(self):
        daemon = unpacked("plain", HERE / interfaces_check.version() / "plain.tar.xz")
        data = pathlib.Path(daemon.dir, "nvme", "data.000").read_bytes()
        at = data.index(payload("a-block-and-more")[:4000])
        with open(pathlib.Path(daemon.dir, "nvme", "data.000"), "r+b") as file:
            file.seek(at)
            file.write(b"?")
        with daemon:
            daemon.wait_joined()
            self.assertEqual(self.served(daemon), ["one-byte", "two-pieces"])


def main():
    global KVKEEPD
    KVKEEPD = sys.argv.pop(1)
    if sys.argv[1:] == ["--write"]:
        tag = interfaces_check.unreleased()
        for store in STORES:
            write(store, HERE / tag / f"{store}.tar.xz")
        return None
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
