#!/usr/bin/env python3
"""tools/release: what it refuses, what it makes, and that it makes the same twice.

    release_check.py --root SOURCES --build BUILD

It runs in a clone of the checked-out commit. Packages are small ones of this test's own; the real
ones are packages_check.py's. A whole release, with image and wheel, is made by `tools/release
--check`, which takes minutes and a mirror.
"""

import argparse
import gzip
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = BUILD = None
AUTHOR = ("-c", "user.name=tests", "-c", "user.email=tests@kvkeep.example")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)


def must(*command, **options):
    done = run(*command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def release_module(root):
    loader = importlib.machinery.SourceFileLoader("release", str(root / "tools" / "release"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("release", loader))
    loader.exec_module(module)
    return module


def scratch(test):
    holder = tempfile.TemporaryDirectory()
    test.addCleanup(holder.cleanup)
    pathlib.Path(holder.name).chmod(0o755)  # apt reads it as a user of its own
    return pathlib.Path(holder.name)


class Refusals(unittest.TestCase):
    def setUp(self):
        if shutil.which("gpg") is None or run("git", "rev-parse", "HEAD", cwd=ROOT).returncode:
            self.skipTest("no gpg, or no git checkout, here")
        self.clone = scratch(self) / "clone"
        # Without the tags: a version may be changed here that is released there.
        must("git", "clone", "--quiet", "--shared", "--no-tags", ROOT, self.clone)
        if (self.clone / ".git/shallow").exists():  # so is this checkout: a commit without parents
            whole = must("git", *AUTHOR, "commit-tree", "HEAD^{tree}", "-m", "x", cwd=self.clone)
            must("git", "reset", "--quiet", "--hard", whole.strip(), cwd=self.clone)
            (self.clone / ".git/shallow").unlink()

    def refusal(self, *words):
        done = run(self.clone / "tools/release", "--only", "sources", "--output",
                   self.clone.parent / "out", *words)
        return "" if done.returncode == 0 else done.stderr

    def commit(self, name, change):
        path = self.clone / name
        path.write_text(change(path.read_text()))
        must("git", *AUTHOR, "commit", "--quiet", "--all", "--message", "x", cwd=self.clone)

    def version(self):
        return release_module(self.clone).versions()["CMakeLists.txt"]

    def test_a_clean_tree_is_released(self):
        self.assertEqual(self.refusal(), "")
        name = f"kvkeep-{self.version()}"
        out = self.clone.parent / "out"
        with tarfile.open(out / f"{name}.tar.gz") as tar:
            self.assertIn(f"{name}/tools/release", tar.getnames())
        self.assertIn("SHA256SUMS.asc", [path.name for path in out.iterdir()])
        self.assertEqual(run("sha256sum", "--check", "SHA256SUMS", cwd=out).returncode, 0)
        must("gpgv", "--keyring", out / "key.gpg", out / "SHA256SUMS.asc", out / "SHA256SUMS")
        self.assertIn("is there already", self.refusal())

    def test_what_is_not_committed_is_not_released(self):
        (self.clone / "README.md").write_text("else\n")
        self.assertIn("changes that are not committed", self.refusal())

    def test_versions_agree(self):
        self.commit("client/python/pyproject.toml",
                    lambda text: text.replace(f'"{self.version()}"', '"7.7.7"'))
        self.assertIn("client/python/pyproject.toml 7.7.7", self.refusal())

    def test_a_charts_two_versions_agree(self):
        self.commit("deploy/helm/kvkeep/Chart.yaml",
                    lambda text: text.replace("appVersion: ", "appVersion: 7"))
        self.assertIn("deploy/helm/kvkeep/Chart.yaml none", self.refusal())

    def test_golden_files_of_a_tag_stay(self):
        version = self.version()
        must("git", *AUTHOR, "tag", "--annotate", "--message", "x", f"v{version}", cwd=self.clone)
        self.assertEqual(self.refusal(), "")
        self.commit(f"tests/golden/{version}/abi.txt", lambda text: text[:-2] + "\n")
        self.assertIn("released golden files stay", self.refusal())
        self.assertIn(f"v{version} is another commit", self.refusal())

    def test_released_golden_files_are_not_written_anew(self):
        must("git", *AUTHOR, "tag", "--annotate", "--message", "x", f"v{self.version()}",
             cwd=self.clone)
        for name, *daemon in (("interfaces",), ("stores", BUILD / "bin/kvkeepd"),
                              ("messages", BUILD / "bin/kvkeepd"),
                              ("names", BUILD / "bin/kvkeepd")):
            with self.subTest(name):
                done = run(sys.executable, "-B", self.clone / f"tests/golden/{name}_check.py",
                           *daemon, "--write")
                self.assertIn("its golden files stay as they are", done.stderr)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(must("git", "status", "--porcelain", cwd=self.clone), "")

    def test_a_shallow_repository_is_refused(self):
        shallow = self.clone.parent / "shallow"
        must("git", "clone", "--quiet", "--no-tags", "--depth", "1", f"file://{self.clone}",
             shallow)
        done = run(shallow / "tools/release", "--only", "sources", "--output",
                   self.clone.parent / "out")
        self.assertIn("the repository is shallow", done.stderr)

    def test_a_tree_of_other_sources_or_another_version_is_not_packed(self):
        build = self.tree()
        cache = (build / "CMakeCache.txt").read_text()
        for option in ("--build", "--portable"):
            part = {"--build": "sbom", "--portable": "wheel"}[option]
            for change, complaint in (
                    (lambda text: text.replace(f"={self.clone}\n", "=/else\n"), "is of /else"),
                    (lambda text: text.replace(f"={self.version()}\n", "=7.7.7\n"),
                     "is of version 7.7.7"), (lambda text: "", "is not a build tree")):
                with self.subTest(option, complaint=complaint):
                    (build / "CMakeCache.txt").write_text(change(cache))
                    done = run(self.clone / "tools/release", "--only", part, "--output",
                               self.clone.parent / "out", option, build)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(complaint, done.stderr)

    def test_what_gpg_says_is_said(self):
        key = self.clone.parent / "key"
        key.write_text("none\n")
        self.assertIn("no valid OpenPGP data", self.refusal("--key", key))

    def test_a_tag_takes_a_key_and_all_parts(self):
        self.assertIn("--tag takes", self.refusal("--tag"))
        self.assertIn("no part nothing", self.refusal("--only", "nothing"))

    def tree(self):
        """Returns a build tree of the clone with the binaries of BUILD."""
        build = self.clone.parent / "build"
        (build / "bin").mkdir(parents=True)
        (build / "lib").mkdir()
        for name in ("bin/kvkeepd", "bin/kvkeep", "lib/libkvkeep-client.so.1"):
            shutil.copy(BUILD / name, build / name)
        (build / "CMakeCache.txt").write_text(
            f"CMAKE_PROJECT_VERSION:STATIC={self.version()}\n"
            f"CMAKE_HOME_DIRECTORY:INTERNAL={self.clone}\n")
        return build

    def test_sources_chart_and_bill_are_the_same_twice(self):
        said = must(self.clone / "tools/release", "--check", "--only", "sources,chart,sbom",
                    "--build", self.tree())
        self.assertRegex(said, r"6 files, the same bytes twice: sources, chart, sbom")

    def test_the_check_above_can_fail(self):
        self.commit("tools/release", lambda text: text.replace(
            "gzip.compress(plain, mtime=0)", "gzip.compress(plain + os.urandom(8))"))
        done = run(self.clone / "tools/release", "--check", "--only", "sources")
        self.assertRegex(done.stderr, r"not the same bytes twice: SHA256SUMS, .*tar\.gz")


class Apt(unittest.TestCase):
    """A repository of two small packages, read by this machine's apt."""

    def setUp(self):
        for tool in ("apt-get", "dpkg-deb", "dpkg-scanpackages", "gpg"):
            if shutil.which(tool) is None:
                self.skipTest(f"no {tool} here")
        self.work = scratch(self)
        self.release = release_module(ROOT)
        self.architecture = must("dpkg", "--print-architecture").strip()
        self.signer = self.release.Signer(self.work / "gnupg", None, 1_800_000_000)
        self.repository = self.work / "apt"
        self.write([self.deb("1.0", "first")])

    def deb(self, version, text, architecture=None):
        architecture = architecture or self.architecture
        tree = self.work / f"tree-{text}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "text").write_text(text)
        (tree / "DEBIAN/control").write_text(
            f"Package: kvkeep-try\nVersion: {version}\nArchitecture: {architecture}\n"
            "Maintainer: tests <tests@kvkeep.example>\nDescription: nothing\n")
        path = self.work / text / f"kvkeep-try_{version}_{architecture}.deb"
        path.parent.mkdir()
        must("dpkg-deb", "--root-owner-group", "--build", tree, path)
        return path

    def write(self, debs, folder=None, architecture=None):
        self.release.apt_repository.write(
            debs, folder or self.repository, suite="bookworm",
            architecture=architecture or self.architecture, epoch=1_800_000_000, signer=self.signer)

    def apt(self, *words):
        """Runs apt with nothing but this repository and its key."""
        place = self.work / "client"
        for name in ("lists/partial", "archives/partial", "parts"):
            (place / name).mkdir(parents=True, exist_ok=True)
        (place / "status").touch()
        (place / "key.gpg").write_bytes(self.signer.public())
        (place / "sources.list").write_text(
            f"deb [signed-by={place}/key.gpg] file:{self.repository} bookworm main\n")
        options = {"Dir::Etc::sourcelist": place / "sources.list", "Dir::Etc::sourceparts": "-",
                   "Dir::State::lists": place / "lists", "Dir::State::status": place / "status",
                   "Dir::Cache": place, "Dir::Cache::archives": place / "archives",
                   "Dir::Etc::parts": place / "parts", "APT::Sandbox::User": "root",
                   "Acquire::Languages": "none"}
        return run("apt-get", *(f"-o{name}={value}" for name, value in options.items()), *words,
                   cwd=place)

    def test_apt_takes_the_newest_and_verifies_it(self):
        self.write([self.deb("1.1", "second")])
        done = self.apt("update")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        done = self.apt("download", "kvkeep-try")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.work / f"client/kvkeep-try_1.1_{self.architecture}.deb").exists())
        done = self.apt("download", "kvkeep-try=1.0")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_second_architecture_leaves_the_first_as_it_was(self):
        other = "amd64" if self.architecture == "arm64" else "arm64"
        self.write([self.deb("1.1", "second", other)], architecture=other)
        done = self.apt("update")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        done = self.apt("download", "kvkeep-try")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.work / f"client/kvkeep-try_1.0_{self.architecture}.deb").exists())
        for name in (self.architecture, other):
            listed = (self.repository / f"dists/bookworm/main/binary-{name}/Packages").read_text()
            self.assertEqual([line for line in listed.splitlines() if "Architecture:" in line],
                             [f"Architecture: {name}"])
        done = self.apt(f"-oAPT::Architecture={other}", "update")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_apt_refuses_what_the_key_did_not_sign(self):
        path = self.repository / "dists/bookworm/InRelease"
        path.write_bytes(path.read_bytes().replace(b"Label: kvkeep", b"Label: kvkeeq"))
        self.assertRegex(self.apt("update").stderr, "BADSIG|invalid")

    def test_apt_refuses_another_key(self):
        self.signer = self.release.Signer(self.work / "other", None, 1_800_000_000)
        self.assertRegex(self.apt("update").stderr, "NO_PUBKEY")

    def test_apt_refuses_an_index_that_is_not_the_signed_one(self):
        for path in (self.repository / "dists/bookworm/main").rglob("*"):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:-1])
        self.assertNotEqual(self.apt("update").returncode, 0)

    def test_a_published_version_is_never_replaced(self):
        with self.assertRaisesRegex(SystemExit, "never replaced"):
            self.write([self.deb("1.0", "other")])

    def test_indices_lie_under_their_digests_and_twice_the_same_is_made(self):
        release = (self.repository / "dists/bookworm/Release").read_text()
        self.assertIn("Acquire-By-Hash: yes", release)
        self.assertNotRegex(release, "MD5|SHA1")
        for name in ("Packages", "Packages.gz", "Packages.xz"):
            path = self.repository / f"dists/bookworm/main/binary-{self.architecture}" / name
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            self.assertIn(f" {digest} {path.stat().st_size} main/", release)
            self.assertEqual((path.parent / "by-hash/SHA256" / digest).read_bytes(),
                             path.read_bytes())
        again = self.work / "again"
        self.write(sorted((self.work / "first").glob("*.deb")), again)
        self.assertEqual(self.release.sums_of(again), self.release.sums_of(self.repository))


class Image(unittest.TestCase):
    def setUp(self):
        self.work = scratch(self)
        self.oci = release_module(ROOT).oci_image
        self.config = self.oci.settings((ROOT / "deploy/docker/Dockerfile").read_text())
        with tarfile.open(self.work / "root.tar", "w") as tar:
            member = tarfile.TarInfo("./etc/os-release")
            member.size = 3
            tar.addfile(member, io.BytesIO(b"os\n"))

    def write(self, name):
        return self.oci.write(self.work / "root.tar", self.work / name, config=self.config,
                              created="2026-11-30T00:00:00Z", version="1.2.3",
                              architecture="amd64", sbom=b'{"bomFormat": "CycloneDX"}')

    def blob(self, descriptor):
        data = (self.work / "image/blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        self.assertEqual(hashlib.sha256(data).hexdigest(), descriptor["digest"][7:])
        self.assertEqual(len(data), descriptor["size"])
        return data

    def test_it_is_an_oci_layout_whose_digests_are_right(self):
        digest = self.write("image")
        self.assertEqual(json.loads((self.work / "image/oci-layout").read_text()),
                         {"imageLayoutVersion": "1.0.0"})
        image, bill = json.loads((self.work / "image/index.json").read_text())["manifests"]
        self.assertEqual(image["digest"], digest)
        manifest = json.loads(self.blob(image))
        config = json.loads(self.blob(manifest["config"]))
        (layer,) = manifest["layers"]
        plain = gzip.decompress(self.blob(layer))
        self.assertEqual(config["rootfs"]["diff_ids"],
                         [f"sha256:{hashlib.sha256(plain).hexdigest()}"])
        artifact = json.loads(self.blob(bill))
        self.assertEqual(artifact["subject"]["digest"], digest)
        self.assertIn(b"CycloneDX", self.blob(artifact["layers"][0]))

    def test_it_starts_as_the_dockerfile_says(self):
        self.assertEqual(self.config["User"], "64000")
        self.assertEqual(self.config["Cmd"], ["kvkeepd", "--config", "/etc/kvkeep/kvkeep.yaml"])
        self.assertEqual(self.config["ExposedPorts"], {"9464/tcp": {}})
        check = self.config["Healthcheck"]
        self.assertEqual(check["Test"], ["CMD", "kvkeep", "--timeout", "3s", "ping"])
        self.assertEqual((check["Interval"], check["StartPeriod"]), (10 * 10**9, 600 * 10**9))

    def test_a_path_of_this_machine_is_found_in_a_root(self):
        traces = release_module(ROOT).traces
        root, release, work = (pathlib.Path(name) for name in ("/src", "/srv", "/tmp/w0rk"))
        own = b"/usr/src/linux /src /srv/www /usr/src/tools.h"
        self.assertEqual(traces(own, root, release, work), [])
        for trace in ("/src/tools/release", "/src/build/release/x.cc", "/src/tiers/io/a.h",
                      "/src/deploy/", "/srv/apt", "/tmp/w0rk/key.gpg"):
            self.assertEqual(traces(own + trace.encode(), root, release, work),
                             [trace if trace.startswith(("/srv", "/tmp")) else
                              "/".join(trace.split("/")[:3]) + "/"])

    def test_the_same_root_makes_the_same_files(self):
        self.write("image")
        self.write("again")
        sums = release_module(ROOT).sums_of
        self.assertEqual(sums(self.work / "image"), sums(self.work / "again"))


def main():
    global ROOT, BUILD
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    ROOT, BUILD = arguments.root.resolve(), arguments.build.resolve()
    sys.dont_write_bytecode = True
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
