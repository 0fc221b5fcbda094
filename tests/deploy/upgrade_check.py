#!/usr/bin/env python3
"""Two versions of kvkeep on one node: upgrade and downgrade under load, and mixed clients.

    upgrade_check.py --root SOURCES --old BUILD_OR_WHEEL --new BUILD_OR_WHEEL

A worker of either version puts and gets all the time, and compares every byte, while the daemon is
replaced by the other version's on the same state, path of G3 and mounted G2, and then by its own
again. No chunk is lost: from before the old one's end the worker only gets, so nothing puts back
what is missing. It sees nothing but misses and a daemon that is away. A client of each version does
every call with a daemon of each, on both paths. Until there is a tag, CI has the same tree as both;
then --old names the tag's wheel, or a built tree of it.

G2 on its mount takes a mount namespace; where that is not permitted, G2 starts cold, and the output
says so.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

ROOT = OLD = NEW = None
NAMESPACE = "KVKEEP_UPGRADE_IN_NAMESPACE"
WORKER, CALLS = "--worker", "--calls"
CHUNKS, NBYTES = 400, 64 << 10


def sources_of(build):
    """Returns the folder of the sources that a build tree is made of."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return pathlib.Path(re.search(r"(?m)^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", cache).group(1))


def same_in_spite_of(root, old, new):
    """Returns what is wrong where both versions are one tree, and a tag is there to upgrade from:
    a tag whose commit is older than, or beside, the one that is checked out. Else None."""
    told = subprocess.run(["git", "tag", "--list", "v*", "--no-contains", "HEAD"], cwd=root,
                          capture_output=True, text=True, check=False).stdout.split()
    if old != new or not told:
        return None
    return (f"upgrade_check: {old} is both versions, but there is {told[-1]} to upgrade from: set "
            "KVKEEP_OLD (cmake -DKVKEEP_OLD=) to its wheel, or to a built tree of it")


class Version:
    """The daemon, the tool and the client of a build tree or of a wheel."""

    def __init__(self, place, folder):
        if place.suffix == ".whl":
            zipfile.ZipFile(place).extractall(folder)
            for name in ("kvkeepd", "kvkeep"):
                (folder / "kvkeep/bin" / name).chmod(0o755)
            self.daemon, self.package = folder / "kvkeep/bin/kvkeepd", folder
            self.library = folder / "kvkeep/lib/libkvkeep-client.so.1"
        else:
            self.daemon, self.package = place / "bin/kvkeepd", sources_of(place) / "client/python"
            self.library = place / "lib/libkvkeep-client.so.1"

    def python(self, *words, **options):
        """Starts this script as a client of this version."""
        environment = {**os.environ, "PYTHONPATH": str(self.package),
                       "KVKEEP_CLIENT_LIBRARY": str(self.library)}
        return subprocess.Popen([sys.executable, "-B", __file__, *words], env=environment,
                                stdout=subprocess.PIPE, text=True, **options)


# ---- what clients do: processes of their own, as a library is loaded once -----------------------


def key(number):
    return hashlib.sha256(b"upgrade %d" % number).digest()


def payload(number):
    return hashlib.sha256(b"bytes %d" % number).digest() * (NBYTES // 32)


def worker(endpoint, path):
    """Puts and gets; from the first line on stdin it only gets, and the second one ends it. Prints
    what it stored at the first, and what it saw at the second, as JSON."""
    import kvkeep  # of the version that started this
    import select
    seen = {"stored": [], "hits": 0, "misses": 0, "wrong": 0, "errors": {}, "calls": 0}
    into = bytearray(NBYTES)
    with kvkeep.Client(endpoint, path=path, timeout=5) as client:
        assert client.wait_connected(30), "no session"
        print(client.path.name, flush=True)
        space = client.namespace("upgrade", tokens_per_chunk=16, bytes_per_part=NBYTES)
        number, putting = 0, True
        while True:
            if select.select([sys.stdin], [], [], 0)[0]:
                sys.stdin.readline()  # the next one is sent after the answer to this
                if not putting:
                    break
                putting = False
                print(json.dumps(seen["stored"]), flush=True)
            number = (number + 1) % CHUNKS
            found = space.get([key(number)], [into])
            if found.good[0]:
                seen["hits"] += 1
                seen["wrong"] += into != payload(number)
            else:
                seen["misses"] += 1
                if putting:
                    put = space.put([(key(number), payload(number))])
                    if put.good[0] and number not in seen["stored"]:
                        seen["stored"].append(number)
                    found.error = found.error or put.error
            if found.error is not None:
                code = found.error.code
                seen["errors"][code] = seen["errors"].get(code, 0) + 1
                time.sleep(0.01)  # the daemon is away: others run
            seen["calls"] += 1
    print(json.dumps(seen), flush=True)


def calls(endpoint, path, first):
    """Does each call once with chunks from `first` on. Ends with an error if one fails."""
    import kvkeep
    first = int(first)
    keys = [key(first), key(first + 1)]
    with kvkeep.Client(endpoint, path=path, timeout=20) as client:
        assert client.wait_connected(20), "no session"
        space = client.namespace("calls", tokens_per_chunk=16)
        put = space.put([(one, payload(first + at)) for at, one in enumerate(keys)], durable=True)
        assert put.error is None and put.stored == 2, (put.error, put.statuses, put.why)
        found = space.lookup([*keys, bytes(32)], lease="leading")
        assert (found.error, found.leading_keys, found.leased_keys) == (None, 2, 2), vars(found)
        into = [bytearray(NBYTES), bytearray(NBYTES)]
        got = space.get(keys, into, lease=found.lease)
        assert got.error is None and got.hits == 2, (got.error, got.statuses)
        assert into == [payload(first), payload(first + 1)], "other bytes"
        found.lease.release()
        assert space.touch(keys).chunks == 2
        assert space.prefetch(keys).error is None
        assert client.server_info()["version"]
        assert space.delete(keys[:1]).chunks == 1
        assert space.get(keys, into).hits == 1
        if path == "local":
            with space.acquire(keys[1:]) as acquired:
                assert (acquired.error, acquired.leased_keys) == (None, 1)
    print("done")


# ---- the node -----------------------------------------------------------------------------------


def mount_arena(folder):
    """Mounts G2's two folders, in this process's mount namespace. Returns the settings for it."""
    writable, readonly = folder / "rw", folder / "ro"
    for path in (writable, readonly):
        path.mkdir(mode=0o700)
    for words in (("-t", "tmpfs", "-o", "size=80M,mode=0700", "kvkeep", writable),
                  ("--bind", writable, readonly), ("-o", "remount,bind,ro", readonly)):
        subprocess.run(["mount", *map(str, words)], check=True)
    return {"KVKEEP_G2_ARENA": "mount", "KVKEEP_G2_ARENA_DIR": str(writable),
            "KVKEEP_G2_ARENA_READONLY_DIR": str(readonly)}


class Upgrade(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(ROOT / "tests/client/c"))
        from daemon import Daemon
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        self.old = Version(OLD, folder / "old")
        self.new = Version(NEW, folder / "new")
        settings = {"KVKEEP_G2_CAPACITY": "64MiB", "KVKEEP_G2_SEGMENT_BYTES": "16MiB"}
        self.mounted = NAMESPACE in os.environ
        if self.mounted:
            settings |= mount_arena(folder)
            self.addCleanup(subprocess.run, ["umount", folder / "ro", folder / "rw"], check=True)
        self.node = Daemon(self.old.daemon, settings)
        self.addCleanup(self.node.__exit__)

    def start(self, version):
        self.node.binary = str(version.daemon)
        self.node.start()
        self.node.wait_joined()

    def stop(self):
        self.node.process.terminate()
        self.assertEqual(self.node.process.wait(60), 0, self.node.log())
        self.node.process = None

    def kept(self, version, stored):
        """Checks that a client of that version finds all of these chunks, and their bytes."""
        reader = version.python("--kept", self.node.endpoint, json.dumps(sorted(stored)),
                                stderr=subprocess.PIPE)
        said, complained = reader.communicate(timeout=60)
        self.assertEqual((said, reader.returncode), ("kept\n", 0), f"chunks are lost: {complained}")

    def replaced(self, first, second, path, *, stored, between=None):
        """Runs a worker of the first version while the daemon becomes the second one's. Adds what
        it stores to `stored`, and checks that all of it is kept. `between` is called while there is
        no daemon."""
        client = first.python(WORKER, self.node.endpoint, path, stdin=subprocess.PIPE)
        self.addCleanup(client.__exit__, None, None, None)  # its mapping of G2 ends with it
        self.addCleanup(client.kill)
        self.assertEqual(client.stdout.readline().strip(), path)
        deadline = time.monotonic() + 60
        while self.node.status()["tenants"][0]["chunks"] < CHUNKS:  # the worker puts them
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        time.sleep(1.5)  # under load
        client.stdin.write("gets only\n")
        client.stdin.flush()
        stored.update(json.loads(client.stdout.readline()))
        self.stop()
        if between is not None:
            between()
        self.start(second)
        self.kept(second, stored)
        recovered = int(re.findall(r"recovered_g2_chunks=(\d+)", self.node.log())[-1])
        if self.mounted:
            self.assertEqual(recovered, len(stored), "chunks of G2 on its mount are lost")
        time.sleep(1.5)
        said, _ = client.communicate("end\n", timeout=60)
        seen = json.loads(said)
        self.assertEqual(seen["wrong"], 0)
        # gRPC says CANCELLED of a call that is under way when its connection ends.
        away = {"UNAVAILABLE", "CANCELLED"} if path == "grpc" else {"UNAVAILABLE"}
        self.assertLessEqual(set(seen["errors"]), away, seen["errors"])
        self.assertGreater(seen["hits"], 100)
        self.assertGreater(seen["errors"].get("UNAVAILABLE", 0), 0, "it was never away")
        print(f"    {path}: {seen['calls']} calls, {seen['hits']} hits, {seen['errors']}, "
              f"{recovered} chunks of G2 kept", file=sys.stderr)

    def test_chunks_stay_and_no_load_fails_on_the_way_up_and_back(self):
        stored = set()
        self.start(self.old)
        for first, second in ((self.old, self.new), (self.new, self.old)):
            for path in ("local", "grpc"):
                self.stop()
                self.start(first)
                self.replaced(first, second, path, stored=stored)
        self.assertEqual(len(stored), CHUNKS)
        self.stop()
        self.node.settings |= {"KVKEEP_G2_ARENA": "memfd", "KVKEEP_G2_ARENA_DIR": "",
                               "KVKEEP_G2_ARENA_READONLY_DIR": ""}
        self.start(self.new)
        self.kept(self.old, stored)  # from G3 alone

    def test_the_check_above_can_fail(self):
        def lose():
            for name in ("nvme", "state"):
                shutil.rmtree(pathlib.Path(self.node.dir, name))
            if self.mounted:
                for path in pathlib.Path(self.node.settings["KVKEEP_G2_ARENA_DIR"]).iterdir():
                    path.unlink()

        self.start(self.old)
        with self.assertRaisesRegex(AssertionError, "chunks are lost"):
            self.replaced(self.old, self.new, "local", stored=set(), between=lose)

    def test_one_tree_is_not_both_versions_once_there_is_a_tag(self):
        self.assertIsNone(same_in_spite_of(ROOT, OLD, NEW), "main() asks this first")
        with tempfile.TemporaryDirectory() as folder:
            def git(*words):
                subprocess.run(["git", "-c", "user.name=tests", "-c", "user.email=tests@kvkeep",
                                *words], cwd=folder, check=True, capture_output=True)
            git("init")
            git("commit", "--allow-empty", "--message", "x")
            git("tag", "v0.0.1")
            self.assertIsNone(same_in_spite_of(folder, NEW, NEW), "nothing came before it")
            git("commit", "--allow-empty", "--message", "y")
            self.assertIsNone(same_in_spite_of(folder, NEW.parent, NEW))
            self.assertIn("v0.0.1 to upgrade from", same_in_spite_of(folder, NEW, NEW))

    def test_clients_of_each_version_do_every_call_with_each_daemon(self):
        number = 10 * CHUNKS
        for daemon in (self.old, self.new):
            self.start(daemon)
            for client in (self.old, self.new):
                for path in ("local", "grpc"):
                    number += 2
                    with self.subTest(daemon=daemon.daemon, client=client.library, path=path):
                        done = client.python(CALLS, self.node.endpoint, path, str(number),
                                             stderr=subprocess.PIPE)
                        said, complained = done.communicate(timeout=60)
                        self.assertEqual((said, done.returncode), ("done\n", 0), complained)
            self.stop()

    def test_the_tool_of_each_version_reads_each_daemon(self):
        for daemon in (self.old, self.new):
            self.start(daemon)
            for tool in (self.old, self.new):
                self.node.binary = str(tool.daemon)
                status = self.node.status()
                self.assertIn("g2", status)
                done = subprocess.run([tool.daemon.parent / "kvkeep", "--endpoint",
                                       self.node.endpoint, "ping"], check=False,
                                      capture_output=True)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.stop()


def kept(endpoint, numbers):
    import kvkeep
    into = bytearray(NBYTES)
    with kvkeep.Client(endpoint, timeout=20) as client:
        assert client.wait_connected(20)
        space = client.namespace("upgrade", tokens_per_chunk=16, bytes_per_part=NBYTES)
        for number in json.loads(numbers):
            got = space.get([key(number)], [into])
            assert got.hits == 1, (number, got.error, got.statuses)
            assert into == payload(number), f"{number}: other bytes"
    print("kept")


def main():
    global ROOT, OLD, NEW
    own = {WORKER: worker, CALLS: calls, "--kept": kept}
    if len(sys.argv) > 1 and sys.argv[1] in own:
        return own[sys.argv[1]](*sys.argv[2:])
    enter = ["unshare", "--mount"]
    if NAMESPACE not in os.environ:
        if os.geteuid() == 0 and shutil.which("unshare") and subprocess.run(
                [*enter, "true"], check=False).returncode == 0:
            os.environ[NAMESPACE] = "1"
            os.execvp("unshare", [*enter, sys.executable, "-B", *sys.argv])
        print("skipped: G2 on its mount: mount namespaces are not permitted here")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--root", "--old", "--new"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    ROOT, OLD, NEW = (path.resolve() for path in (arguments.root, arguments.old, arguments.new))
    wrong = same_in_spite_of(ROOT, OLD, NEW)
    if wrong:
        sys.exit(wrong)
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
