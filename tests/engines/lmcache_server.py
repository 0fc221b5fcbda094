"""`lmcache server` in a process of its own, for tests and for tools/engine-bench."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "client" / "c"))

from daemon import free_port  # noqa: E402


def wait_until(what, fails, limit_s=60):
    """Waits until the condition holds; the limit is for failing tests."""
    deadline = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > deadline:
            raise AssertionError(fails())
        time.sleep(0.05)


class Server:
    """A server with a memory (L1) of 1 GiB. lmcache: the program; environment: of its process;
    more: arguments for its command line."""

    def __init__(self, lmcache, environment, more=()):
        self.port, self.http, self.log = free_port(), free_port(), tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [lmcache, "server", "--port", str(self.port), "--http-port", str(self.http),
             "--l1-size-gb", "1", "--no-l1-use-lazy", "--shm-name", f"kvkeep_test_{os.getpid()}",
             "--eviction-policy", "LRU", "--supported-transfer-mode", "engine_driven",
             "--disable-metrics", *more],
            env=environment, stdout=self.log, stderr=subprocess.STDOUT)
        wait_until(self.serves, self.said)

    def serves(self):
        if self.process.poll() is not None:
            raise AssertionError(self.said())
        try:
            return self.ask("GET", "healthcheck")["status"] == "healthy"
        except OSError:
            return False

    def said(self):
        self.log.seek(0)
        return "the server: " + self.log.read()[-3000:]

    def ask(self, method, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}/{path}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
