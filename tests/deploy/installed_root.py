"""A life of the packages in a clean root, in namespaces of its own. packages_check.py starts this.

The packages are installed by apt, started by the unit's own command line as its user, scraped by a
real Prometheus with the alert rules, and replayed against. They are upgraded and downgraded with G2
and G3 kept, and purged without a trace. There is no systemd: class Service does what it does for
the service, and a systemctl records what the packages ask of it.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import scraper

# The operator's configuration of this node: small tiers, G2 on its mount.
CONFIG = """
listen: {socket_group: kvkeep-clients}
g2: {capacity: 96MiB, segment_bytes: 16MiB, arena: mount,
     arena_dir: /var/lib/kvkeep/arena/rw, arena_readonly_dir: /var/lib/kvkeep/arena/ro}
g3: {paths: [{dir: /var/cache/kvkeep/g3, capacity: 256MiB}]}
"""
# The real systemctl makes links in /etc/systemd, which works without a running systemd.
SYSTEMCTL = """#!/bin/sh
case "$*" in
  *--root=*) exec systemctl.real "$@" ;;
  *is-enabled*) echo enabled ;;
esac
echo "$*" >>/run/systemctl.log
"""
CLIENT = 23456  # a user of the node, in the group kvkeep-clients
MS_BIND, MS_REC, MS_PRIVATE, MS_RDONLY, MS_REMOUNT = 4096, 16384, 1 << 18, 1, 32
LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def mount(source, target, kind=None, flags=0, data=""):
    target.mkdir(parents=True, exist_ok=True)
    words = [None if word is None else str(word).encode() for word in (source, target, kind)]
    if LIBC.mount(*words, flags, data.encode()) != 0:
        error = os.strerror(ctypes.get_errno())
        print(f"this kernel does not mount {kind or source} on {target}: {error}", file=sys.stderr)
        sys.exit(77)


def overlay(lower, upper, work, target):
    """Mounts an overlay over folders of any names; in its options a colon ends a layer, a comma an
    option."""
    layer = re.sub(r"([\\:,])", r"\\\1", str(lower))
    mount("overlay", target, "overlay", data=f"lowerdir={layer},upperdir={upper},workdir={work}")


def mounts_below(root):
    """Returns where in the root something is mounted, as the root names it."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code.group(1), 8)), line.split()[4])
        if path.startswith(f"{root}/"):
            found.append(path.removeprefix(str(root)))
    return found


def eventually(what, condition, patience=60):
    deadline = time.monotonic() + patience
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)  # for another process


def raise_loopback():
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def lay_out(folder, lower):
    """The root: an overlay over `lower`, with the parts of the kernel that a container has."""
    mount(None, pathlib.Path("/"), flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", folder, "tmpfs", data="size=3G,mode=0755")
    for name in ("upper", "work"):
        (folder / name).mkdir()
    root = folder / "root"
    overlay(lower, folder / "upper", folder / "work", root)
    mount("proc", root / "proc", "proc")
    mount("proc", pathlib.Path("/proc"), "proc")
    mount("/sys", root / "sys", flags=MS_BIND | MS_REC)
    mount("tmpfs", root / "run", "tmpfs", data="mode=0755")
    mount("tmpfs", root / "tmp", "tmpfs", data="mode=1777")
    mount("tmpfs", root / "dev", "tmpfs", data="mode=0755")
    for name in ("null", "zero", "full", "random", "urandom"):
        there = os.stat(f"/dev/{name}")
        os.mknod(root / "dev" / name, there.st_mode, there.st_rdev)
        os.chmod(root / "dev" / name, 0o666)
    return root


# Files that apt, dpkg, the tools for accounts and mounts, and other packages' triggers keep for
# themselves, whatever is installed.
KEPT_BY_OTHERS = re.compile(
    r"/(var/(lib/(dpkg|apt|systemd/catalog|shells\.state)|cache/(apt|ldconfig|debconf)|log)(/|$)"
    r"|var/lib/systemd/deb-systemd-helper-(enabled|masked)$|run/mount(/|$)"
    r"|etc/(ld\.so\.cache|shells|(passwd|group|shadow|gshadow|subuid|subgid)-|\.pwd\.lock)$)")


def contents(root):
    """Returns {path: what it is} for everything that a package may leave behind."""
    found = {}
    for folder, folders, files in os.walk(root):
        below = "/" + os.path.relpath(folder, root)
        if below in ("/proc", "/sys", "/dev", "/tmp"):
            folders.clear()
            continue
        for name in folders + files:
            path = os.path.normpath(f"{below}/{name}")
            if not KEPT_BY_OTHERS.match(path):
                status = os.lstat(root / path[1:])
                found[path] = (status.st_mode, status.st_uid, status.st_gid)
    for name in ("passwd", "group", "shadow", "gshadow"):
        found[f"/etc/{name}: its lines"] = sorted((root / "etc" / name).read_text().splitlines())
    return found


class Root:
    def __init__(self, path):
        self.path = path
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                            "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}

    def file(self, path):
        return self.path / path.lstrip("/")

    def ids(self, kind, name):
        lines = self.file(f"/etc/{kind}").read_text()
        line = re.search(rf"^{name}:[^:]*:(\d+)", lines, re.MULTILINE)
        return int(line.group(1))

    def enter(self, uid=0, gid=0, groups=()):
        """Enters the root as that user, for preexec_fn."""
        def entered():
            os.chroot(self.path)
            os.chdir("/")
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
        return entered

    def run(self, *command, **user):
        return run(*command, env=self.environment, preexec_fn=self.enter(**user))

    def apt(self, *words):
        """Runs apt, which can fetch nothing: the root has what the packages need, or apt says
        so."""
        return self.run("apt-get", "--yes", "--quiet", "--allow-downgrades", "-o",
                        "APT::Sandbox::User=root", *words)

    def as_client(self, *command):
        group = self.ids("group", "kvkeep-clients")
        return self.run(*command, uid=CLIENT, gid=CLIENT, groups=[group])

    def kvkeep(self, *words):
        return json.loads(self.as_client("kvkeep", "--json", *words))

    def asked_of_systemd(self):
        """Returns the actions requested since the last call, without mere queries."""
        log = self.file("/run/systemctl.log")
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        lines = [re.sub(r"--\S+ ?", "", line).strip() for line in lines]
        return [line for line in lines if re.match("daemon-reload|start|stop|restart|reload", line)]


class Service:
    """kvkeepd.service, as systemd would run it."""

    def __init__(self, root):
        self.root = root
        self.daemon = None
        self.unit = root.file("/usr/lib/systemd/system/kvkeepd.service").read_text()
        self.uid = root.ids("passwd", self.value("User"))
        self.gid = root.ids("group", self.value("Group"))
        self.log = root.path.parent / "kvkeepd.log"

    def values(self, name):
        return re.findall(rf"^{name}=(.*)$", self.unit, re.MULTILINE)

    def value(self, name):
        return self.values(name)[0]

    def make_folders(self):
        for kind, parent in (("State", "/var/lib"), ("Cache", "/var/cache"), ("Runtime", "/run")):
            for name in self.value(f"{kind}Directory").split():
                folder = self.root.file(f"{parent}/{name}")
                folder.mkdir(exist_ok=True)
                os.chown(folder, self.uid, self.gid)
                folder.chmod(int(self.value(f"{kind}DirectoryMode"), 8))

    def entered(self):
        enter = self.root.enter(self.uid, self.gid,
                                [self.gid, self.root.ids("group", "kvkeep-clients")])
        mask = int(self.value("UMask"), 8)

        def entered():
            # Raises limits as far as root may here: some containers' root may not. Without it I/O
            # is slower.
            with contextlib.suppress(ValueError):
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
            os.umask(mask)
            enter()
        return entered

    def start(self):
        """Returns the status that it gave with READY=1."""
        self.make_folders()
        for command in self.values("ExecStartPre"):
            run(*command.split(), env=self.root.environment, preexec_fn=self.entered())
        notify = self.root.file("/run/notify")
        notify.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(notify))
            os.chmod(notify, 0o777)
            environment = {**self.root.environment, "NOTIFY_SOCKET": "/run/notify"}
            with open(self.log, "a", encoding="utf-8") as log:
                self.daemon = subprocess.Popen(self.value("ExecStart").split(), stderr=log,
                                               env=environment, preexec_fn=self.entered())
            manager.settimeout(60)
            while True:
                try:
                    told = manager.recv(4096).decode()
                except TimeoutError:
                    raise AssertionError(self.log.read_text()) from None
                if "READY=1" in told:
                    return re.search(r"^STATUS=(.*)$", told, re.MULTILINE).group(1)

    def stop(self):
        self.daemon.send_signal(signal.SIGTERM)
        assert self.daemon.wait(60) == 0, self.log.read_text()


class Life:
    def __init__(self, root, packages, sources):
        self.root, self.packages, self.sources = root, packages, sources
        self.began = time.monotonic()
        self.chunk = os.urandom(300_000)

    def step(self, name):
        print(f"    {time.monotonic() - self.began:5.1f} s  {name}", file=sys.stderr, flush=True)

    def install(self, packages):
        there = self.root.file("/packages")
        there.mkdir()
        names = [shutil.copy(path, there) for path in packages]
        self.root.apt("install", *(f"/packages/{pathlib.Path(name).name}" for name in names))
        shutil.rmtree(there)

    def another_version(self, version):
        """Makes a package of the same daemon that dpkg takes for another version."""
        (old,) = self.packages.glob("kvkeep_*.deb")
        folder = self.root.path.parent / "repacked"
        run("dpkg-deb", "--raw-extract", old, folder)
        control = folder / "DEBIAN" / "control"
        control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
        new = self.root.path.parent / f"kvkeep_{version}.deb"
        run("dpkg-deb", "-Znone", "--build", folder, new)
        shutil.rmtree(folder)
        return new

    def check_installed(self):
        root = self.root
        asked = root.asked_of_systemd()
        assert asked == ["daemon-reload", "start kvkeepd.service"], asked
        wants = root.file("/etc/systemd/system/multi-user.target.wants")
        ours = [name for name in os.listdir(wants) if "kvkeep" in name]
        assert ours == ["kvkeepd.service"], "the mounts are a choice"
        uid, gid = root.ids("passwd", "kvkeep"), root.ids("group", "kvkeep")
        for path, mode, owner in (("/etc/kvkeep", 0o750, 0), ("/var/lib/kvkeep", 0o700, uid),
                                  ("/var/cache/kvkeep", 0o700, uid)):
            there = os.stat(root.file(path))
            found = (there.st_mode & 0o7777, there.st_uid, there.st_gid)
            assert found == (mode, owner, gid), (path, found)
        assert root.run("dpkg", "--verify", "kvkeep", "libkvkeep-client1") == ""
        # The shipped configuration, with which the daemon of any node would start.
        root.run("kvkeepd", "--check-config", "/etc/kvkeep/kvkeep.yaml")
        assert "libkvkeep-client.so.1 " in root.run("ldconfig", "--print-cache")
        page = root.run("zcat", "/usr/share/man/man1/kvkeep.1.gz")
        assert ".SH" in page and "replay" in page, page[:200]
        for shell in ("bash-completion/completions/kvkeep", "zsh/vendor-completions/_kvkeep",
                      "fish/vendor_completions.d/kvkeep.fish"):
            assert "replay" in root.file(f"/usr/share/{shell}").read_text(), shell

    def mount_arena(self):
        """Mounts as the mount units do, with their options except the size."""
        for name in ("rw", "ro"):
            unit = self.root.file(
                f"/usr/lib/systemd/system/var-lib-kvkeep-arena-{name}.mount").read_text()
            value = dict(re.findall(r"^(What|Where|Type|Options)=(.*)$", unit, re.MULTILINE))
            options = re.sub(r"size=\w+", "size=160M", value["Options"])
            self.root.run("mkdir", "-p", "-m", "0700", value["Where"])
            self.root.run("mount", "-t", value["Type"], "-o", options, value["What"],
                          value["Where"])

    def check_example(self):
        """Builds a C program against -dev as it is installed, and runs it against the library."""
        program = self.root.file("/tmp/example")
        library = next(self.root.file("/usr/lib").glob("*/libkvkeep-client.so"))
        run("gcc", "-I", self.root.file("/usr/include"), "-o", program,
            self.sources / "client/c/example.c", library, "-Wl,--allow-shlib-undefined")
        program.chmod(0o755)
        said = self.root.as_client("/tmp/example", "unix:///run/kvkeep/kvkeep.sock")
        assert said == "the same bytes\n", said

    def use(self, prometheus):
        root = self.root
        trace = self.sources / "tests/traces/conversation_trace.jsonl"
        shutil.copy(trace, root.file("/tmp/trace.jsonl"))
        report = root.kvkeep("replay", "/tmp/trace.jsonl", "--chunk-bytes", "32KiB", "--requests",
                             "150")
        assert report["wrong_bytes"] == 0 and report["put_chunks"] > 1000, report
        root.file("/tmp/chunk").write_bytes(self.chunk)
        root.kvkeep("put", "--durable", "kept", "/tmp/chunk")
        eventually("Prometheus has scraped what was put", lambda: (prometheus.value(
            'kvkeep_put_chunks_total{result="stored"}') or 0) >= report["put_chunks"])
        rules = eventually("all rules are well", lambda: (
            lambda found: found if found and all(rule["health"] == "ok" for rule in found) else None
        )(prometheus.rules()))
        assert len(rules) > 10, rules
        firing = [rule["name"] for rule in rules if rule.get("state") == "firing"]
        assert firing == [], firing

    def check_kept(self, status):
        recovered = re.fullmatch(r"serving; recovered (\d+) chunks of G2", status)
        assert recovered and int(recovered.group(1)) > 100, status
        place = self.root.kvkeep("lookup", "kept")
        assert "g2" in json.dumps(place).lower(), place
        self.root.as_client("kvkeep", "get", "kept", "--output", "/tmp/back")
        assert self.root.file("/tmp/back").read_bytes() == self.chunk

    def change_version(self, service, package):
        """Runs apt while the daemon runs, and then what systemd would do for `restart`."""
        self.install([package])
        asked = self.root.asked_of_systemd()
        assert asked == ["daemon-reload", "restart kvkeepd.service"], asked
        assert service.daemon.poll() is None, "it serves until it is restarted"
        assert self.root.file("/etc/kvkeep/kvkeep.yaml").read_text() == CONFIG
        service.stop()
        self.check_kept(service.start())

    def purge(self, service):
        service.stop()
        for name in service.value("RuntimeDirectory").split():  # as systemd does
            shutil.rmtree(self.root.file(f"/run/{name}"))
        self.root.apt("purge", "kvkeep", "libkvkeep-client1", "libkvkeep-client-dev")
        asked = self.root.asked_of_systemd()
        assert asked[0] == "stop kvkeepd.service", asked
        mounts = mounts_below(self.root.path)
        assert "/proc" in mounts, mounts
        assert not [path for path in mounts if "kvkeep" in path], mounts

    def live(self):
        root = self.root
        systemctl = root.file("/usr/bin/systemctl")  # /usr/local is not in apt's path for dpkg
        if systemctl.exists():
            systemctl.rename(root.file("/usr/bin/systemctl.real"))
        systemctl.write_text(SYSTEMCTL)
        systemctl.chmod(0o755)
        root.file("/run/systemd/system").mkdir(parents=True)
        before = contents(root.path)
        first = sorted(self.packages.glob("*.deb"))
        self.step("a clean root")
        self.install(first)
        self.check_installed()
        self.step("installed")
        root.file("/etc/kvkeep/kvkeep.yaml").write_text(CONFIG)
        self.mount_arena()
        service = Service(root)
        status = service.start()
        assert status == "serving; recovered 0 chunks of G2", status
        prometheus = scraper.Prometheus(root.path.parent, root.file(
            "/usr/share/kvkeep/prometheus/kvkeep-alerts.yaml"))
        self.check_example()
        self.use(prometheus)
        self.step("used, and scraped by Prometheus")
        self.change_version(service, self.another_version("0.2.0-1"))
        self.step("upgraded: G2 and G3 kept")
        self.change_version(service, next(path for path in first if path.name[:7] == "kvkeep_"))
        self.step("back at the version before: G2 and G3 kept")
        prometheus.stop()
        self.purge(service)
        root.file("/run/notify").unlink()
        after = contents(root.path)
        left = {path: after.get(path) for path in before.keys() | after.keys()
                if before.get(path) != after.get(path)}
        assert left == {}, left
        self.step("purged without a trace")


def live(folder, lower, packages, sources):
    raise_loopback()
    root = Root(lay_out(folder, lower))
    Life(root, packages, sources).live()
    return 0
