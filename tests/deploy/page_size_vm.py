#!/usr/bin/env python3
"""The daemon on a kernel whose pages have 16 KiB: Debian's arm64 one, in a virtual machine.

    tools/cross-aarch64 --build
    python3 tests/deploy/page_size_vm.py [--kernel PACKAGE] [TEST ...]

Boots qemu-system-aarch64 with the kernel of PACKAGE and an initramfs of what cross-aarch64 built.
In it a daemon has G2 on a tmpfs and G3 on another one: put, get, SIGKILL, start, get, by shared
memory and by gRPC. Then each TEST runs there, a program that was cross-built, such as host_test.
Fails unless each answer is right, and unless a page there has 16 KiB. Kernel and busybox come
from the mirror that apt has configured, and stay below build/aarch64-vm. The machine is emulated,
so that this takes a minute, and tests a few more.
"""

import argparse
import gzip
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / "build/aarch64-root"
BINARIES = ROOT / "build/aarch64/bin"
WORK = ROOT / "build/aarch64-vm"
CONFIG = """g2: {capacity: 64MiB, segment_bytes: 32MiB, arena: mount, arena_dir: /arena/rw,
     arena_readonly_dir: /arena/ro}
g3: {paths: [{dir: /g3/d, capacity: 128MiB}]}
metrics: {listen: ""}
"""
INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
export KVKEEP_ENDPOINT=unix:///run/kvkeep/kvkeep.sock KVKEEP_ADMIN=unix:///run/kvkeep-admin/admin.sock
mkdir -p /proc /sys /dev /tmp /run/kvkeep /run/kvkeep-admin /var/lib/kvkeep /arena/rw /arena/ro /g3
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs -o size=96m,mode=0700,huge=always kvkeep /arena/rw ||
  mount -t tmpfs -o size=96m,mode=0700 kvkeep /arena/rw
mount --bind /arena/rw /arena/ro
mount -o remount,bind,ro /arena/ro
mount -t tmpfs -o size=256m none /g3
mount -t cgroup2 none /sys/fs/cgroup
mount -t ramfs none /tmp
say() { echo "answer $1: $(eval "$2" 2>&1 | tr '\n' ' ')"; }
start() {
  kvkeepd --config /kvkeep.yaml >>/tmp/log 2>&1 &
  daemon=$!
  for _ in $(seq 120); do
    kvkeep --timeout 5s ping >/dev/null 2>&1 && return
    sleep 1 # for another process
  done
  tail -n 20 /tmp/log
}
put() { kvkeep --timeout 60s --path $1 put --durable $1 /tmp/sent >/tmp/put && echo done; }
get() {
  kvkeep --timeout 60s --path $1 get $1 --output /tmp/got >/tmp/get &&
    cmp /tmp/sent /tmp/got && echo same
}
say pages 'kvkeep doctor --config /kvkeep.yaml | grep pages | head -n 1'
start
head -c 5000000 /dev/urandom >/tmp/sent
for path in local grpc; do
  say put_$path "put $path"
  say get_$path "get $path"
done
kill -9 $daemon
wait $daemon
start
for path in local grpc; do say again_$path "get $path"; done
for _ in $(seq 60); do # the arena is told of once its pages are there
  [ $(grep -c "arena ready" /tmp/log) = 2 ] && break
  sleep 1
done
kill -TERM $daemon
wait $daemon
say ended 'echo '$?
say arena 'grep -o "files of an earlier start reused" /tmp/log | tail -n 1'
grep -iE "error|fatal|check failed" /tmp/log | head -n 20
umount /g3 /arena/ro /arena/rw
cd /tmp
for test in /tests/*; do
  [ -x $test ] || continue
  $test >/tmp/test 2>&1
  say ${test##*/} "echo $?"
  grep -A 12 "FAILED:" /tmp/test
  tail -n 3 /tmp/test
done
poweroff -f
"""
EXPECTED = {
    "put_local": "done", "get_local": "same", "put_grpc": "done", "get_grpc": "same",
    "again_local": "same", "again_grpc": "same", "arena": "files of an earlier start reused",
    "ended": "0",
}


def apt():
    """Returns apt-get's words for packages of arm64, with lists and a cache of our own."""
    release = next(line.split("=")[1].strip() for line in open("/etc/os-release", encoding="utf-8")
                   if line.startswith("VERSION_CODENAME="))
    told = subprocess.run(["apt-get", "indextargets", "--format",
                           "deb $(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
                          capture_output=True, text=True, check=True).stdout
    lines = sorted(line for line in set(told.splitlines())
                   if re.search(rf" {release}(-[a-z]+)* [a-z]+$", line))
    for name in ("state/lists/partial", "cache/archives/partial", "sources.d"):
        (WORK / name).mkdir(parents=True, exist_ok=True)
    (WORK / "state/status").touch()
    (WORK / "sources.d/debian.list").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["apt-get", "--quiet", "--quiet", "-o", "APT::Architecture=arm64",
            "-o", "APT::Architectures=arm64", "-o", "Dir::Etc::sourcelist=/dev/null",
            "-o", f"Dir::Etc::sourceparts={WORK}/sources.d", "-o", f"Dir::State={WORK}/state",
            "-o", f"Dir::State::status={WORK}/state/status", "-o", f"Dir::Cache={WORK}/cache",
            "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3"]


def newest_kernel(words):
    """Returns the name of the newest kernel package with pages of 16 KiB."""
    listed = subprocess.run(["apt-cache", *words[3:], "search", "--names-only",
                             r"^linux-image-[0-9].*-arm64-16k$"],
                            capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in listed.splitlines()]
    if not names:
        sys.exit("page_size_vm: the mirror has no kernel of pages of 16 KiB for arm64")
    return max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])


def unpacked(words, package):
    """Returns the folder with a package's files."""
    folder = WORK / package
    if not folder.exists():
        subprocess.run([*words, "download", package], cwd=WORK, check=True)
        (archive,) = WORK.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)
        archive.unlink()
    return folder


def libraries_of(binaries):
    """Yields (name in the root, file) of all libraries that these need in turn."""
    places = [LIBRARIES / place for place in
              ("usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu")]
    seen, open_ones = set(), list(binaries)
    while open_ones:
        told = subprocess.run(["aarch64-linux-gnu-readelf", "-d", open_ones.pop()],
                              capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", told):
            if name in seen or name.startswith("ld-linux"):
                continue
            seen.add(name)
            file = next(place / name for place in places if (place / name).exists()).resolve()
            open_ones.append(file)
            yield f"lib/aarch64-linux-gnu/{name}", file


class Archive:
    """An initramfs: a cpio archive of the kind newc."""

    def __init__(self):
        self._data, self._number = bytearray(), 0
        self._folders = set()

    def add(self, name, mode, content=b""):
        parent = os.path.dirname(name)
        if parent and parent not in self._folders:
            self._folders.add(parent)
            self.add(parent, stat.S_IFDIR | 0o755)
        self._number += 1
        fields = (self._number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        self._data += b"070701" + b"".join(b"%08x" % field for field in fields)
        self._data += name.encode() + b"\0"
        self._data += bytes(-len(self._data) % 4) + content
        self._data += bytes(-len(self._data) % 4)

    def add_file(self, name, path):
        self.add(name, stat.S_IFREG | 0o755, pathlib.Path(path).read_bytes())

    def bytes(self):
        self.add("TRAILER!!!", 0)
        return bytes(self._data)


def make_initramfs(busybox, tests):
    archive = Archive()
    own = [WORK / name for name in ("kvkeepd", "kvkeep", *tests)]
    for file in own:
        subprocess.run(["aarch64-linux-gnu-strip", "-o", file, BINARIES / file.name], check=True)
        archive.add_file(f"{'tests' if file.name in tests else 'bin'}/{file.name}", file)
    loader = "ld-linux-aarch64.so.1"
    archive.add_file(f"lib/{loader}", (LIBRARIES / "lib" / loader).resolve())
    for name, file in libraries_of(own):
        archive.add_file(name, file)
    archive.add_file("bin/busybox", busybox)
    archive.add("init", stat.S_IFREG | 0o755, INIT.encode())
    archive.add("kvkeep.yaml", stat.S_IFREG | 0o600, CONFIG.encode())
    path = WORK / "initramfs.gz"
    path.write_bytes(gzip.compress(archive.bytes(), 1))
    return path


def boot(kernel, initramfs):
    """Returns what the machine printed until it went down."""
    command = ["qemu-system-aarch64", "-machine", "virt", "-cpu", "max", "-smp", "2", "-m", "2048",
               "-nographic", "-no-reboot", "-nic", "none", "-kernel", kernel, "-initrd", initramfs,
               "-append", "console=ttyAMA0 panic=-1 quiet"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          errors="replace") as machine:
        lines = []
        for line in machine.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", help="package; default: the newest with pages of 16 KiB")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    options = parser.parse_args()
    if not (BINARIES / "kvkeepd").exists():
        sys.exit("page_size_vm: first run tools/cross-aarch64 --build")
    if shutil.which("qemu-system-aarch64") is None:
        sys.exit("page_size_vm: no qemu-system-aarch64; apt-get install qemu-system-arm")
    words = apt()
    subprocess.run([*words, "update"], check=True)
    (kernel,) = (unpacked(words, options.kernel or newest_kernel(words)) / "boot").glob("vmlinuz-*")
    busybox = next(file for file in unpacked(words, "busybox-static").glob("**/bin/busybox"))
    answers = {}
    for line in boot(kernel, make_initramfs(busybox, options.tests)):
        if match := re.match(r"answer (\w+): (.*?)\s*$", line):
            answers[match[1]] = match[2]
    expected = EXPECTED | dict.fromkeys(options.tests, "0")
    wrong = [f"{name}: {answers.get(name)!r}, expected {text!r}"
             for name, text in expected.items() if answers.get(name) != text]
    if "16.0 KiB" not in answers.get("pages", ""):
        wrong.append(f"pages: {answers.get('pages')!r}, expected 16.0 KiB")
    print("\n".join(wrong) or f"page_size_vm: {len(expected) + 1} answers are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
