"""A server that a peer starts for itself: it dies with this process, however that ends."""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import time

PR_SET_PDEATHSIG = 1
START_PATIENCE_S = 120
PAUSE_S = 0.02  # between two looks at another process: nothing tells when it is ready
LAST_WORDS = 2000

_libc = ctypes.CDLL(None)


def free_port():
    """One of the loopback that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    def __init__(self, name, command, directory, is_ready, environment=None):
        """Returns when is_ready() says so. OSError, with its last words, when it ended instead."""
        log = pathlib.Path(directory) / f"{name}.log"
        parent = os.getpid()

        def die_with_parent():
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})}, preexec_fn=die_with_parent)
        deadline = time.monotonic() + START_PATIENCE_S
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                words = log.read_text(errors="replace")[-LAST_WORDS:]
                raise OSError(f"{name} did not start: {words}")
            time.sleep(PAUSE_S)

    @property
    def pid(self):
        return self._process.pid

    def stop(self):
        self._process.kill()
        self._process.wait()
