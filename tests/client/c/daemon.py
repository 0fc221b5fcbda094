"""A real kvkeepd for the tests of the C ABI, in a process of its own.

    daemon.py KVKEEPD PROGRAM [ARGUMENT...]   runs PROGRAM with KVKEEP_ENDPOINT set; its exit status

The daemon's C++ fixture cannot be in the tests' process: it brings the same generated Protobuf code
as libkvkeep-client.so, and Protobuf takes each file only once.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CONFIG = """
listen: {{unix: {dir}/kvkeep.sock, local: {dir}/local.sock, admin: {dir}/admin.sock}}
g2: {{capacity: 128MiB, arena: memfd}}
g3: {{paths: [{{dir: {dir}/nvme, capacity: 256MiB}}]}}
metrics: {{listen: ""}}
state: {{dir: {dir}/state}}
"""
PR_SET_PDEATHSIG = 1


def free_port():
    """Returns a TCP port of loopback that is free now. It lies below the kernel's ephemeral ports,
    which a client could take before the server binds, and is random, as tests run side by side."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        below = range(10_000, int(file.read().split()[0]))
    for port in [*random.sample(below, min(100, len(below))), 0]:  # 0: any
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise OSError("no TCP port of 127.0.0.1 is free")


class Daemon:
    """One daemon's directory, over any number of starts. A context manager."""

    def __init__(self, binary, settings=None):
        """`settings`: KVKEEP_* variables, which override the file."""
        self.settings = settings or {}
        self.binary = str(pathlib.Path(binary).resolve())
        self.dir = tempfile.mkdtemp(prefix="kvkeep-c-")
        self.process = None

    @property
    def endpoint(self):
        return f"unix://{self.dir}/kvkeep.sock"

    def start(self):
        config = pathlib.Path(self.dir, "kvkeep.yaml")
        config.write_text(CONFIG.format(dir=self.dir), encoding="utf-8")
        libc = ctypes.CDLL(None)  # loaded before the fork
        with open(pathlib.Path(self.dir, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "--config", str(config)], stderr=log,
                env=dict(os.environ, **self.settings),
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        deadline = time.monotonic() + 120
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("kvkeepd does not serve:\n" + self.log())
            time.sleep(0.005)

    def _listens(self):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(f"{self.dir}/kvkeep.sock") == 0

    def log(self):
        return pathlib.Path(self.dir, "log").read_text(encoding="utf-8", errors="replace")

    def _tool(self):
        """Runs `kvkeep` against this daemon; the tool must be built too."""
        return [str(pathlib.Path(self.binary).parent / "kvkeep"), "--admin",
                f"unix://{self.dir}/admin.sock", "--json"]

    def status(self):
        """Returns the output of `kvkeep status`, parsed."""
        asked = [*self._tool(), "status"]
        return json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)

    def wait_joined(self):
        """Waits until its devices have joined. It serves before that, but what G3 has is a miss
        till then."""
        subprocess.run([*self._tool(), "wait", "--devices", "--for", "120s"], check=True,
                       capture_output=True)

    def restart(self):
        """Kills it. Its devices keep what they have then."""
        self.kill()
        self.start()
        self.wait_joined()

    def wait_clean(self, chunks):
        """Waits until that many chunks are in G3, so that a kill loses none of them: a device's
        first sync tells the next start that its records are sure. The limit is for failing
        tests."""
        deadline = time.monotonic() + 120
        while True:
            said = self.status()
            counters = said["counters"]
            synced = counters["syncs"] > 0 or counters["index_commits"] == 0
            if said["g3"]["chunks"] >= chunks and said["g2"]["dirty_bytes"] == 0 and synced:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{chunks} chunks should be in G3: {said['g2']} {said['g3']}")
            time.sleep(0.05)

    def wait_beyond(self, chunks):
        """Waits until that many chunks put here are in its bucket."""
        deadline = time.monotonic() + 120
        while (said := self.status()["g4"])["written_chunks"] < chunks:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{chunks} chunks should be beyond the node: {said}")
            time.sleep(0.05)

    @contextlib.contextmanager
    def slowed(self, stopped_s=0.3):
        """Lets it run for two milliseconds between stops, as on a busy machine."""
        over = threading.Event()

        def stop_and_go():
            while not over.wait(0.002):
                self.process.send_signal(signal.SIGSTOP)
                over.wait(stopped_s)
                self.process.send_signal(signal.SIGCONT)

        slows = threading.Thread(target=stop_and_go)
        slows.start()
        try:
            yield
        finally:
            over.set()
            slows.join()

    def clear(self):
        """Makes it forget all chunks."""
        subprocess.run([*self._tool(), "clear", "--yes"], check=True, capture_output=True)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with Daemon(sys.argv[1]) as daemon:
        environment = dict(os.environ, KVKEEP_ENDPOINT=daemon.endpoint,
                           KVKEEPD_PID=str(daemon.process.pid))
        status = subprocess.call(sys.argv[2:], env=environment)
        if status != 0:
            print(daemon.log(), file=sys.stderr)
    sys.exit(status if status >= 0 else 1)


if __name__ == "__main__":
    main()
