"""Writes a signed apt repository as files, for any web server.

    write(debs, folder, ...)      pool/, dists/SUITE/ with by-hash/, InRelease and Release.gpg

Indices lie under the names of their digests as well (by-hash), so that a client which reads while a
new release is copied gets a whole one. A version is never replaced by other bytes. Each
architecture in the pool has an index of its own. Digests are SHA-256 only. The same packages and
key make the same files.
"""

import gzip
import hashlib
import lzma
import pathlib
import shutil
import subprocess
import sys
import time

COMPONENT = "main"
ORIGIN = "kvkeep"


def _pool(debs, folder):
    pool = folder / "pool" / COMPONENT / "k" / "kvkeep"
    pool.mkdir(parents=True, exist_ok=True)
    for deb in debs:
        there = pool / deb.name
        if there.exists() and there.read_bytes() != deb.read_bytes():
            sys.exit(f"release: {deb.name} is in the repository already, with other bytes: a "
                     "version that was published is never replaced")
        shutil.copyfile(deb, there)


def _architectures(folder):
    """Returns the architectures that the pool has packages of."""
    return {deb.stem.rpartition("_")[2] for deb in (folder / "pool").rglob("*.deb")} - {"all"}


def _stanzas(folder, architecture):
    """Returns the index of an architecture's packages in the pool, and of those for all, without
    the digests that nobody should use."""
    told = subprocess.run(["dpkg-scanpackages", "--multiversion", "--hash", "sha256", "--arch",
                           architecture, "pool"],
                          cwd=folder, check=True, capture_output=True, text=True).stdout
    return told.encode()


def _with_digest(path, data):
    """Writes an index under its name and under its digest's. Returns the digest."""
    digest = hashlib.sha256(data).hexdigest()
    by_hash = path.parent / "by-hash" / "SHA256"
    by_hash.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    (by_hash / digest).write_bytes(data)
    return digest


def write(debs, folder, *, suite, architecture, epoch, signer):
    """architecture: one that has an index even without packages of it. signer: has clear(data) and
    detached(data), which return armoured signatures' bytes."""
    _pool([pathlib.Path(deb) for deb in debs], folder)
    top = folder / "dists" / suite
    architectures = sorted({architecture} | _architectures(folder))
    sums = []
    for one in architectures:
        plain = _stanzas(folder, one)
        binary = top / COMPONENT / f"binary-{one}"
        binary.mkdir(parents=True, exist_ok=True)
        for name, data in (("Packages", plain), ("Packages.gz", gzip.compress(plain, mtime=0)),
                           ("Packages.xz", lzma.compress(plain))):
            digest = _with_digest(binary / name, data)
            sums.append(f" {digest} {len(data)} {(binary / name).relative_to(top)}")
    date = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(epoch))
    release = "\n".join([
        f"Origin: {ORIGIN}", f"Label: {ORIGIN}", f"Suite: {suite}", f"Codename: {suite}",
        f"Date: {date}", "Acquire-By-Hash: yes", f"Architectures: {' '.join(architectures)}",
        f"Components: {COMPONENT}", "SHA256:", *sums, ""]).encode()
    (top / "Release").write_bytes(release)
    (top / "InRelease").write_bytes(signer.clear(release))
    (top / "Release.gpg").write_bytes(signer.detached(release))
