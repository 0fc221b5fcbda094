#!/usr/bin/env python3
"""deploy/ against itself, systemd and a real daemon.

    deploy_check.py --root SOURCES --bin FOLDER_OF_BINARIES      exit 1 when anything is wrong

Checks that cannot run here (no systemd-analyze, no PyYAML, no mount namespaces) are skipped with a
message.
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
SANITIZED = False
SERVICE = "kvkeepd.service"
UNITS = ("var-lib-kvkeep-arena-rw.mount", "var-lib-kvkeep-arena-ro.mount")
IN_NAMESPACE = "--in-namespace"
NOT_THERE = 3  # exit status of kvkeep


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
        self.assertEqual(len(drop_ins), 5)
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
        service = (systemd() / SERVICE).read_text()
        (folder / "bin").symlink_to(BIN)  # whose own path may have spaces
        (folder / SERVICE).write_text(service.replace("/usr/bin/kvkeep", f"{folder}/bin/kvkeep"))
        if drop_in is not None:
            target = folder / drop_in.parent.name
            target.mkdir()
            shutil.copy(drop_in, target / drop_in.name.replace(".example", ""))
        names = [folder / name for name in UNITS + (SERVICE,)]
        done = run("systemd-analyze", "verify", "--man=no", *names)
        # Other units of this machine are not judged here.
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


class Service(unittest.TestCase):
    def setUp(self):
        self.text = (systemd() / SERVICE).read_text()

    def values(self, name):
        return re.findall(rf"^{name}=(.*)$", self.text, re.MULTILINE)

    def test_it_is_exposed_to_no_more_than_it_must_be(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze here")
        done = run("systemd-analyze", "security", "--offline=true", "--threshold=20",
                   systemd() / SERVICE)
        self.assertEqual(done.returncode, 0, done.stdout[-400:] + done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            open_one = pathlib.Path(folder) / SERVICE
            open_one.write_text(self.text.replace("NoNewPrivileges=yes", "").replace(
                "CapabilityBoundingSet=\n", ""))
            done = run("systemd-analyze", "security", "--offline=true", "--threshold=20", open_one)
            self.assertNotEqual(done.returncode, 0, "the check above cannot fail")

    def test_what_containers_have_mounted_outlives_a_restart(self):
        """As booted_root.py tries."""
        self.assertEqual(self.values("RuntimeDirectoryPreserve"), ["yes"])

    def test_it_is_spared_for_others_only_beside_a_memory_limit_that_is_enough(self):
        try:
            import memory_rule
        except ImportError:
            self.skipTest("no PyYAML here")
        for path in [systemd() / SERVICE, *sorted(systemd().glob(f"{SERVICE}.d/*"))]:
            values = dict(re.findall(r"^(OOMScoreAdjust|MemoryMax)=(.*)$", path.read_text(),
                                     re.MULTILINE))
            with self.subTest(file=path.name):
                self.assertEqual("OOMScoreAdjust" in values, "MemoryMax" in values)
        limit = unit(systemd() / f"{SERVICE}.d" / "memory.conf.example")["Service"]["MemoryMax"]
        config = (ROOT / "deploy" / "config" / "arena.yaml").read_text()
        wanted = memory_rule.needed(BIN, config)
        self.assertGreaterEqual(gib(limit), wanted)
        self.assertLess(gib(limit), wanted + (2 << 30))

    def test_its_command_lines_are_the_daemons(self):
        (check,), (start,) = self.values("ExecStartPre"), self.values("ExecStart")
        config = "/etc/kvkeep/kvkeep.yaml"
        self.assertEqual(check.split(), ["/usr/bin/kvkeepd", "--check-config", config])
        self.assertEqual(start.split(), ["/usr/bin/kvkeepd", "--config", config])
        default = run(BIN / "kvkeepd", "--print-default-config").stdout
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(default)
            file.flush()
            done = run(BIN / "kvkeepd", "--check-config", file.name)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.values("RestartPreventExitStatus"), ["78"])
        # The unit makes the folders that the default configuration names.
        for key, value in (("RuntimeDirectory", "/run/"), ("StateDirectory", "/var/lib/")):
            for name in self.values(key)[0].split():
                self.assertIn(f"{value}{name}/" if key == "RuntimeDirectory" else value + name,
                              default)
        # The admin socket's directory is closed, and no other socket is in it: booted_root.py
        # checks that too.
        admin = pathlib.PurePath(re.search(r"^  admin: (\S+)$", default, re.MULTILINE).group(1))
        self.assertEqual(self.values("ReadWritePaths"), [f"-{admin.parent}"])
        self.assertIn(f"d {admin.parent} 0700 kvkeep kvkeep -\n",
                      (ROOT / "deploy" / "tmpfiles.d" / "kvkeep.conf").read_text())
        sockets = re.findall(r"^ .*(?:unix|local): (\S+\.sock)", default, re.MULTILINE)
        self.assertGreaterEqual(len(sockets), 2)
        for socket in sockets:
            self.assertFalse(admin.is_relative_to(pathlib.PurePath(socket).parent), socket)

    def test_the_filter_lets_through_what_the_daemon_asks_the_kernel_for(self):
        if SANITIZED:
            self.skipTest("sanitizers make system calls of their own, and do not run under strace")
        for tool in ("strace", "systemd-analyze"):
            if shutil.which(tool) is None:
                self.skipTest(f"no {tool} here")
        allowed = set()
        for words in self.values("SystemCallFilter"):
            calls = system_calls(words.lstrip("~"))
            allowed = allowed - calls if words.startswith("~") else allowed | calls
        self.assertIn("io_uring_enter", allowed)
        self.assertNotIn("mount", allowed)
        with tempfile.TemporaryDirectory() as folder:
            asked = traced(pathlib.Path(folder))
        self.assertIn("accept4", asked)
        self.assertEqual(asked - allowed, set())

    def test_user_group_and_directories_are_made_in_a_fresh_root(self):
        for tool in ("systemd-sysusers", "systemd-tmpfiles"):
            if shutil.which(tool) is None:
                self.skipTest(f"no {tool} here")
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for part in ("sysusers", "tmpfiles"):
                target = root / "usr" / "lib" / f"{part}.d"
                target.mkdir(parents=True)
                shutil.copy(ROOT / "deploy" / f"{part}.d" / "kvkeep.conf", target)
            (root / "etc").mkdir()
            done = run("systemd-sysusers", f"--root={root}", "kvkeep.conf")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex((root / "etc/passwd").read_text(), r"(?m)^kvkeep:.*:/var/lib/kvkeep:")
            self.assertRegex((root / "etc/group").read_text(), r"(?m)^kvkeep-clients:x:\d+:kvkeep$")
            done = run("systemd-tmpfiles", "--create", f"--root={root}", "kvkeep.conf")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((root / "var/lib/kvkeep").stat().st_mode & 0o777, 0o700)
            self.assertEqual((root / "etc/kvkeep").stat().st_mode & 0o777, 0o750)


def system_calls(words):
    """Returns the calls of a SystemCallFilter=, which has names, and sets nested in sets."""
    names = set()
    for word in words.split():
        if not word.startswith("@"):
            names.add(word)
            continue
        for line in run("systemd-analyze", "syscall-filter", word).stdout.splitlines()[1:]:
            if line.strip() and not line.strip().startswith("#"):
                names |= system_calls(line.strip())
    return names


def traced(folder):
    """Returns the system calls of a daemon that starts, serves both listeners and stops."""
    config, calls = folder / "kv.yaml", folder / "calls"
    config.write_text(TRACED_CONFIG.format(folder))
    with open(folder / "log", "w", encoding="utf-8") as log:
        daemon = subprocess.Popen(["strace", "-f", "-qq", "-o", calls, BIN / "kvkeepd", "--config",
                                   config], stderr=log)
    endpoint = f"unix://{folder}/kv.sock"
    deadline = time.monotonic() + 120
    # The gRPC socket is the last to be opened.
    ping = [BIN / "kvkeep", "--endpoint", endpoint, "--path", "grpc", "ping"]
    while run(*ping).returncode != 0:
        assert daemon.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)  # for the daemon's start
    payload = folder / "payload"
    payload.write_bytes(os.urandom(300_000))
    for path in ("grpc", "local"):
        for words in (["put", "--durable", path, payload],
                      ["get", path, "--output", folder / "back"]):
            done = run(BIN / "kvkeep", "--endpoint", endpoint, "--path", path, "--timeout", "60s",
                       *words)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert (folder / "back").read_bytes() == payload.read_bytes()
    pid = int(run("pgrep", "-P", str(daemon.pid), "kvkeepd").stdout.split()[0])
    os.kill(pid, signal.SIGTERM)
    assert daemon.wait(60) == 0, (folder / "log").read_text()
    # "123 name(...", "123 <... name resumed>": an unfinished call is named where it began.
    return set(re.findall(r"^\d+ +([a-z_0-9]+)\(", calls.read_text(), re.MULTILINE))


class Daemon(unittest.TestCase):
    def test_the_master_key_may_be_a_credential_of_systemds(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            # LoadCredential=master.key:... leaves a file that the service's user may only read.
            credentials = folder / "run" / "credentials" / SERVICE
            credentials.mkdir(parents=True)
            key = credentials / "master.key"
            key.write_bytes(os.urandom(32))
            key.chmod(0o400)
            credentials.chmod(0o500)
            environment = dict(os.environ, CREDENTIALS_DIRECTORY=str(credentials))
            (folder / "kv.yaml").write_text(TRACED_CONFIG.format(folder) +
                                            f"encryption: {{master_key_file: {key}}}\n")
            payload = folder / "payload"
            payload.write_bytes(b"what nobody is to read on the device, " * 10_000)
            for verb in (["put", "--durable", "k", payload],
                         ["get", "k", "--output", folder / "b"]):
                daemon = start(folder, env=environment)
                try:
                    command = [BIN / "kvkeep", "--endpoint", f"unix://{folder}/kv.sock",
                               "--timeout", "60s", *verb]
                    done = run(*command)
                    deadline = time.monotonic() + 120
                    while done.returncode == NOT_THERE and time.monotonic() < deadline:
                        time.sleep(0.1)  # for the device to join
                        done = run(*command)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                finally:
                    daemon.send_signal(signal.SIGTERM)
                    self.assertEqual(daemon.wait(60), 0, (folder / "log").read_text())
            self.assertEqual((folder / "b").read_bytes(), payload.read_bytes())
            self.assertNotIn(payload.read_bytes()[:64],
                             (folder / "nvme0" / "data.000").read_bytes())
            # A file that others may read is refused, credential or not; so is another one.
            for wrong in ("key for all", "another key"):
                credentials.chmod(0o700)
                key.chmod(0o644 if wrong == "key for all" else 0o600)
                if wrong == "another key":
                    key.write_bytes(os.urandom(32))
                done = run(BIN / "kvkeepd", "--config", folder / "kv.yaml", env=environment)
                self.assertEqual(done.returncode, 78, done.stderr)
                self.assertIn("encryption.master_key_file: ", done.stderr)

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

TRACED_CONFIG = """
listen: {{unix: {0}/kv.sock, local: {0}/local.sock, admin: {0}/admin.sock, socket_group: "0"}}
g2: {{capacity: 64MiB, segment_bytes: 16MiB}}
g3: {{paths: [{{dir: {0}/nvme0, capacity: 256MiB}}]}}
metrics: {{listen: ""}}
state: {{dir: {0}/state}}
"""

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


def start(folder, **options):
    with open(folder / "log", "w", encoding="utf-8") as log:
        daemon = subprocess.Popen([BIN / "kvkeepd", "--config", folder / "kv.yaml"], stderr=log,
                                  **options)
    deadline = time.monotonic() + 120
    # The gRPC socket is the last to be opened.
    ping = [BIN / "kvkeep", "--endpoint", f"unix://{folder}/kv.sock", "--path", "grpc", "ping"]
    while run(*ping).returncode != 0:
        assert daemon.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)  # for the daemon's start
    return daemon


def wait_for_line(folder, words, about):
    """Waits for a line of the log: the daemon answers a ping a moment before it logs what it
    serves."""
    deadline = time.monotonic() + 120
    while words not in (log := (folder / "log").read_text()):
        assert time.monotonic() < deadline, (about, log)
        time.sleep(0.05)  # for the daemon's next line


def kvkeep(*words, code=0):
    done = run(BIN / "kvkeep", "--json", "--timeout", "60s", *words)
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
    a_broken_page_is_a_miss_after_the_restart(folder)
    status = kvkeep("arena", "status", "--config", config)
    free = os.statvfs(folder / "rw").f_bfree
    dropped = kvkeep("arena", "drop", "--yes", "--config", config)
    assert dropped["still_held_bytes"] == 0, dropped
    assert dropped["given_back_bytes"] == status["held_bytes"], (dropped, status)
    gained = (os.statvfs(folder / "rw").f_bfree - free) * os.statvfs(folder / "rw").f_frsize
    assert gained == dropped["given_back_bytes"], (gained, dropped)
    assert os.listdir(folder / "rw") == ["arena.lock"], os.listdir(folder / "rw")


def a_broken_page_is_a_miss_after_the_restart(folder):
    """A daemon that died of a page of G2 leaves a note (tiers/base/memory_errors.h)."""
    tool = [BIN / "kvkeep", "--endpoint", f"unix://{folder}/kv.sock"]
    payloads = {name: os.urandom(300_000) for name in ("good", "broken")}
    daemon = start(folder)
    for name, payload in payloads.items():
        (folder / name).write_bytes(payload)
        done = run(*tool, "put", name, folder / name)
        assert done.returncode == 0, done.stderr
    daemon.send_signal(signal.SIGKILL)
    daemon.wait(30)
    places = []
    for segment in sorted((folder / "rw").glob("segment.*")):
        at = segment.read_bytes().find(payloads["broken"][:4096])
        if at >= 0:
            places.append(f"{int(segment.suffix[1:]):x}-{at + 8192:x}")
    assert len(places) == 1, places
    os.symlink("-", folder / "rw" / f"arena.error-{places[0]}")
    daemon = start(folder)
    try:
        wait_for_line(folder, ", 1 of their pages taken anew after memory errors", places)
        for name, code in (("good", 0), ("broken", 3)):
            done = run(*tool, "get", name, "--output", folder / "back")
            # The chunk is found damaged once, and is gone then.
            if name == "broken" and done.returncode == 1:
                done = run(*tool, "get", name, "--output", folder / "back")
            assert done.returncode == code, (name, done.returncode, done.stdout, done.stderr)
        assert (folder / "back").read_bytes() == payloads["good"]
        assert not list((folder / "rw").glob("arena.error-*"))
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)


def main():
    global ROOT, BIN, SANITIZED
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument(IN_NAMESPACE, type=pathlib.Path, help="for this script's own use")
    parser.add_argument("--sanitized", action="store_true", help="the binaries are")
    arguments = parser.parse_args()
    SANITIZED = arguments.sanitized
    ROOT, BIN = arguments.root.resolve(), arguments.bin.resolve()
    if arguments.in_namespace is not None:
        return in_namespace(arguments.in_namespace)
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
