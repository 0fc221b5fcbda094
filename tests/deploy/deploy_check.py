#!/usr/bin/env python3
"""deploy/ held to itself, to systemd and to a real daemon.

    deploy_check.py --root SOURCES --bin FOLDER_OF_BINARIES      exit 1 when anything is wrong

What cannot be checked here (no systemd-analyze, no PyYAML, no mount namespaces) is skipped aloud.
"""

import argparse
import configparser
import json
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

ROOT = BIN = None
UNITS = ("var-lib-kvkeep-arena-rw.mount", "var-lib-kvkeep-arena-ro.mount")
IN_NAMESPACE = "--in-namespace"


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)


def systemd():
    return ROOT / "deploy" / "systemd"


def unit(path):
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read_string(path.read_text())
    return parser


def gib(text):
    return int(re.fullmatch(r"(\d+)(?:G|GiB)", text).group(1)) << 30


def option(options, name):
    return dict(item.partition("=")[::2] for item in options.split(","))[name]


class Units(unittest.TestCase):
    def test_a_units_name_is_its_escaped_path(self):
        if shutil.which("systemd-escape") is None:
            self.skipTest("no systemd-escape here")
        for name in UNITS:
            where = unit(systemd() / name)["Mount"]["Where"]
            escaped = run("systemd-escape", "-p", "--suffix=mount", where).stdout.strip()
            self.assertEqual(escaped, name)

    def test_systemd_finds_nothing_wrong_with_the_units_nor_with_any_drop_in(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze here")
        drop_ins = sorted(systemd().glob("*.d/*"))
        self.assertEqual(len(drop_ins), 3)
        for drop_in in [None] + drop_ins:
            with tempfile.TemporaryDirectory() as folder, self.subTest(drop_in=drop_in):
                self.assertEqual(self.verify(pathlib.Path(folder), drop_in), "")

    def test_the_check_above_can_fail(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze here")
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / f"{UNITS[0]}.d" / "bad.conf"
            bad.parent.mkdir()
            bad.write_text("[Mount]\nWhere=/somewhere/else\nOptoins=x\n")
            self.assertIn("Optoins", self.verify(pathlib.Path(folder) / "units", bad))

    @staticmethod
    def verify(folder, drop_in):
        folder.mkdir(exist_ok=True)
        for name in UNITS:
            shutil.copy(systemd() / name, folder)
        (folder / "kvkeep.service").write_text("[Service]\nExecStart=/bin/true\n")
        if drop_in is not None:
            target = folder / drop_in.parent.name
            target.mkdir()
            shutil.copy(drop_in, target / drop_in.name.replace(".example", ""))
        names = [folder / name for name in UNITS + ("kvkeep.service",)]
        done = run("systemd-analyze", "verify", "--man=no", *names)
        # Other units of this machine are not ours to judge.
        ours = [line for line in done.stderr.splitlines() if "kvkeep" in line or "arena" in line]
        return "\n".join(ours)

    def test_the_config_goes_with_the_units(self):
        config = ROOT / "deploy" / "config" / "arena.yaml"
        done = run(BIN / "kvkeepd", "--check-config", config)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = config.read_text()
        writable, readonly = (unit(systemd() / name)["Mount"] for name in UNITS)
        self.assertIn(f"arena_dir: {writable['Where']}\n", text)
        self.assertIn(f"arena_readonly_dir: {readonly['Where']}\n", text)
        self.assertEqual(readonly["What"], writable["Where"])
        capacity = gib(re.search(r"capacity: (\S+)", text).group(1))
        self.assertGreater(gib(option(writable["Options"], "size")), capacity * 1.002)
        self.assertIn("huge=always", writable["Options"])
        self.assertIn("mode=0700", writable["Options"])
        for word in ("bind", "ro"):
            self.assertIn(word, readonly["Options"].split(","))


class Kubernetes(unittest.TestCase):
    def setUp(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no PyYAML here")
        text = (ROOT / "deploy" / "kubernetes" / "kvkeep-arena.yaml").read_text()
        self.config, self.daemon_set = list(yaml.safe_load_all(text))
        self.kvkeep = yaml.safe_load(self.config["data"]["kvkeep.yaml"])
        self.pod = self.daemon_set["spec"]["template"]["spec"]

    def test_the_daemons_file_is_a_good_one(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(self.config["data"]["kvkeep.yaml"])
            file.flush()
            done = run(BIN / "kvkeepd", "--check-config", file.name)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_arena_is_mounted_twice_once_read_only(self):
        mounts = {mount["mountPath"]: mount for mount in self.pod["containers"][0]["volumeMounts"]}
        writable = mounts[self.kvkeep["g2"]["arena_dir"]]
        readonly = mounts[self.kvkeep["g2"]["arena_readonly_dir"]]
        self.assertEqual(writable["name"], readonly["name"])
        self.assertTrue(readonly.get("readOnly"))
        self.assertFalse(writable.get("readOnly", False))
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        used = {mount["name"] for container in self.pod["containers"] + self.pod["initContainers"]
                for mount in container["volumeMounts"]}
        self.assertEqual(used, set(volumes))
        self.assertEqual(volumes[writable["name"]]["hostPath"]["path"],
                         unit(systemd() / UNITS[0])["Mount"]["Where"])
        script = self.pod["initContainers"][0]["command"][-1]
        size = re.search(r"size=(\d+G)", script).group(1)
        self.assertGreater(gib(size), gib(self.kvkeep["g2"]["capacity"]) * 1.002)


class Daemon(unittest.TestCase):
    def test_a_daemon_on_such_mounts_keeps_g2_until_it_is_dropped(self):
        if run("unshare", "--mount", "true").returncode != 0:
            self.skipTest("mount namespaces are not permitted here")
        with tempfile.TemporaryDirectory() as folder:
            done = run("unshare", "--mount", sys.executable, "-B", __file__, IN_NAMESPACE, folder,
                       "--root", ROOT, "--bin", BIN)
        if done.returncode == 77:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


# ---- within a mount namespace of its own ---------------------------------------------------------

CONFIG = """
listen: {{unix: {0}/kv.sock, local: {0}/local.sock, admin: {0}/admin.sock}}
g2: {{capacity: 64MiB, segment_bytes: 16MiB, arena: mount, arena_dir: {0}/rw,
      arena_readonly_dir: {0}/ro}}
g3: {{paths: []}}
metrics: {{listen: ""}}
state: {{dir: {0}/state}}
"""


def mount_as_the_units_do(folder):
    writable, readonly = (unit(systemd() / name)["Mount"] for name in UNITS)
    options = re.sub(r"\b(uid|gid)=kvkeep", rf"\1=root", writable["Options"])
    options = re.sub(r"size=\w+", "size=128M", options)
    for name in ("rw", "ro"):
        (folder / name).mkdir()
    done = run("mount", "-t", writable["Type"], "-o", options, writable["What"], folder / "rw")
    if done.returncode != 0:
        print(f"this kernel does not mount that: {done.stderr}", file=sys.stderr)
        sys.exit(77)
    done = run("mount", "-o", readonly["Options"], folder / "rw", folder / "ro")
    assert done.returncode == 0, done.stderr


def start(folder):
    log = open(folder / "log", "w", encoding="utf-8")
    daemon = subprocess.Popen([BIN / "kvkeepd", "--config", folder / "kv.yaml"], stderr=log)
    deadline = time.monotonic() + 30
    while run(BIN / "kvkeep", "--endpoint", f"unix://{folder}/kv.sock", "ping").returncode != 0:
        assert daemon.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)  # for the daemon's start
    return daemon


def kvkeep(*words, code=0):
    done = run(BIN / "kvkeep", "--json", "--timeout", "2s", *words)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout) if code == 0 else done.stderr


def in_namespace(folder):
    assert run("mount", "--make-rprivate", "/").returncode == 0
    mount_as_the_units_do(folder)
    config = folder / "kv.yaml"
    config.write_text(CONFIG.format(folder))
    for how in (signal.SIGTERM, signal.SIGKILL):
        daemon = start(folder)
        status = kvkeep("arena", "status", "--config", config)
        assert status["source"] == "daemon" and "outlives the daemon" in status["arena"], status
        refused = kvkeep("arena", "drop", "--yes", "--config", config, code=1)
        assert "stop it first" in refused, refused
        daemon.send_signal(how)
        daemon.wait(30)
        if how == signal.SIGTERM:
            last = (folder / "log").read_text().splitlines()[-1]
            assert "kvkeep arena drop" in last and f"held_bytes={64 << 20}" in last, last
        status = kvkeep("arena", "status", "--config", config)
        assert status["source"] == "mount" and not status["in_use"], status
        assert status["held_bytes"] >= 64 << 20 and status["segments"] == 4, status
    free = os.statvfs(folder / "rw").f_bfree
    dropped = kvkeep("arena", "drop", "--yes", "--config", config)
    assert dropped["still_held_bytes"] == 0, dropped
    assert dropped["given_back_bytes"] == status["held_bytes"], (dropped, status)
    gained = (os.statvfs(folder / "rw").f_bfree - free) * os.statvfs(folder / "rw").f_frsize
    assert gained == dropped["given_back_bytes"], (gained, dropped)
    assert os.listdir(folder / "rw") == ["arena.lock"], os.listdir(folder / "rw")


def main():
    global ROOT, BIN
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument(IN_NAMESPACE, type=pathlib.Path, help="for this script's own use")
    arguments = parser.parse_args()
    ROOT, BIN = arguments.root.resolve(), arguments.bin.resolve()
    if arguments.in_namespace is not None:
        return in_namespace(arguments.in_namespace)
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
