"""Roots of a Debian with as little in it as a package needs, to install into and to throw away.

    from_machine(folder, depends)   of this machine's own installed packages, without a network
    from_mirror(folder, depends)    by mmdebstrap, from the mirror that apt has configured

Both have Debian's essential packages, apt, and what `depends` (names) needs in turn, and nothing
else: no file of kvkeep, no user but Debian's own. They are kept in `folder` and only read from then
on (packages_check.py lays an overlay over them).
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

STATUS = pathlib.Path("/var/lib/dpkg/status")
INFO = pathlib.Path("/var/lib/dpkg/info")
# Debian merged these into /usr; dpkg still names files by them.
MERGED = ("bin", "sbin", "lib", "lib64")
ALWAYS = ("apt", "passwd", "mount", "init-system-helpers")


def names_of(depends):
    """Yields for each word of a Depends field the names of its alternatives."""
    for word in filter(None, (part.strip() for part in depends.split(","))):
        yield [re.match(r"[a-z0-9][a-z0-9.+-]*", one.strip()).group(0) for one in word.split("|")]


def installed():
    """Returns {name: (its stanza, {field: value})} of what dpkg has unpacked and configured
    here."""
    packages = {}
    for stanza in STATUS.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" ok installed"):
            packages.setdefault(fields["Package"], (stanza, fields))
    return packages


def closure(wanted, packages):
    """Returns the installed packages that `wanted`, lists of alternatives, need in turn."""
    provides = {}
    for name, (_, fields) in packages.items():
        for (virtual,) in names_of(fields.get("Provides", "")):
            provides.setdefault(virtual, name)

    def choose(alternatives, asker):
        for name in alternatives:
            if name in packages or provides.get(name) in packages:
                return name if name in packages else provides[name]
        raise LookupError(f"{asker} needs {alternatives}, which is not installed here")

    found, open_ones = set(), [choose(one, "a clean root") for one in wanted]
    while open_ones:
        name = open_ones.pop()
        if name in found:
            continue
        found.add(name)
        fields = packages[name][1]
        for field in ("Depends", "Pre-Depends"):
            for alternatives in names_of(fields.get(field, "")):
                open_ones.append(choose(alternatives, name))
    return sorted(found)


def info_files(name):
    return [path for pattern in (f"{name}.*", f"{name}:*.*") for path in INFO.glob(pattern)]


def from_machine(folder, depends):
    """Returns the root, made anew only if the packages of this machine have changed."""
    packages = installed()
    essential = [name for name, (_, fields) in packages.items() if fields.get("Essential") == "yes"]
    names = closure([*names_of(depends), *([name] for name in (*essential, *ALWAYS))], packages)
    stanzas = "\n\n".join(packages[name][0].strip("\n") for name in names) + "\n"
    stamp = hashlib.sha256(stanzas.encode() + pathlib.Path(__file__).read_bytes()).hexdigest()
    root = folder / f"machine-{stamp[:16]}"
    if root.exists():
        return root
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("machine-*"):
        shutil.rmtree(old)
    making = folder / "machine-making"
    copy_packages(making, names)
    (making / "var/lib/dpkg/status").write_text(stanzas, encoding="utf-8")
    make_accounts(making)
    subprocess.run(["ldconfig", "-r", making], check=True)
    making.rename(root)
    return root


def copy_packages(root, names):
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for path in ("dev", "proc", "sys", "run", "tmp", "root", "etc/apt/sources.list.d",
                 "var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/dpkg/triggers",
                 "var/lib/dpkg/alternatives", "var/lib/apt/lists/partial",
                 "var/cache/apt/archives/partial", "var/log/apt"):
        (root / path).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    files = set()
    for name in names:
        for path in info_files(name):
            shutil.copy2(path, root / "var/lib/dpkg/info")
            if path.suffix == ".list":
                files |= set(path.read_text(encoding="utf-8").split("\n"))
    merged = re.compile("^/(" + "|".join(MERGED) + ")/")
    wanted = set()
    for file in files:
        wanted.add("." + merged.sub(r"/usr/\1/", file))
    skipped = {"."} | {f"./{name}" for name in MERGED}
    there = sorted(path for path in wanted - skipped if os.path.lexists("/" + path))
    listing = "\0".join(there).encode()
    pack = subprocess.Popen(["tar", "--create", "--directory=/", "--no-recursion", "--null",
                             "--files-from=-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unpack = subprocess.Popen(["tar", "--extract", f"--directory={root}", "--same-permissions"],
                              stdin=pack.stdout)
    pack.stdin.write(listing)
    pack.stdin.close()
    if unpack.wait() != 0 or pack.wait() != 0:
        raise OSError("the packages of this machine could not be copied")
    for name in ("diversions", "statoverride", "available"):
        (root / "var/lib/dpkg" / name).touch()
    (root / "var/lib/dpkg/info/format").write_text("1\n")


def make_accounts(root):
    """Makes the accounts of a new system, as base-passwd does, without the machine's own users."""
    masters = root / "usr/share/base-passwd"
    for kind in ("passwd", "group"):
        shutil.copy(masters / f"{kind}.master", root / "etc" / kind)
    users = [line.split(":")[0] for line in (root / "etc/passwd").read_text().splitlines()]
    groups = [line.split(":")[0] for line in (root / "etc/group").read_text().splitlines()]
    (root / "etc/shadow").write_text("".join(f"{user}:*:19000:0:99999:7:::\n" for user in users))
    (root / "etc/gshadow").write_text("".join(f"{group}:*::\n" for group in groups))
    (root / "etc/shadow").chmod(0o640)
    (root / "etc/gshadow").chmod(0o640)


def from_mirror(folder, depends):
    stamp = hashlib.sha256(depends.encode()).hexdigest()
    root = folder / f"mirror-{stamp[:16]}"
    if root.exists():
        return root
    folder.mkdir(parents=True, exist_ok=True)
    making = folder / "mirror-making"
    shutil.rmtree(making, ignore_errors=True)
    include = ",".join([*ALWAYS, *(names[0] for names in names_of(depends))])
    subprocess.run(["mmdebstrap", "--variant=minbase", f"--include={include}", "bookworm", making,
                    mirror()], check=True)
    making.rename(root)
    return root


def mirror():
    told = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)",
                           "Created-By: Packages"], capture_output=True, text=True, check=True)
    for line in told.stdout.splitlines():
        address, _, release = line.partition(" ")
        if release == "bookworm" and address.rstrip("/").endswith("debian"):
            return address
    raise LookupError("apt has no mirror of Debian 12 configured")
