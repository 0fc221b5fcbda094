"""Processes of a measurement's own: children that answer commands, and servers.

A child reads a command a line from its standard input and writes an answer a line to its standard
output, both JSON: Child is our side of it, serve() the child's. A failure is an answer too:
{"error": "..."}. Children and servers die with the process that started them, however that ends;
it must have one thread while it starts them.
"""

import atexit
import contextlib
import ctypes
import json
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import sys
import time
import traceback

PR_SET_PDEATHSIG = 1
CPU_CLOCK_OF_ALL_THREADS = 2  # CPUCLOCK_SCHED: a process' clock, in nanoseconds
ANSWER_PATIENCE_S, START_PATIENCE_S, END_PATIENCE_S = 300, 120, 10
PAUSE_S = 0.02  # between two looks at another process: nothing tells when it is ready
LAST_WORDS = 2000
READ_BYTES = 1 << 16
MAX_SOCKET_PATH_BYTES = 107

_libc = ctypes.CDLL(None)


class ChildFailed(Exception):
    """A child said an error, or is gone."""


def _start(command, **streams):
    parent = os.getpid()

    def die_with_parent():
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen([str(word) for word in command], preexec_fn=die_with_parent, **streams)


def _last_words(log):
    return pathlib.Path(log).read_text(errors="replace")[-LAST_WORDS:] if log else ""


def cpu_seconds(pids):
    """User and system, of all threads, of those processes that are still there."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += time.clock_gettime(~pid << 3 | CPU_CLOCK_OF_ALL_THREADS)
    return total


def run(command, timeout_s, directory=None):
    """A program's output, on both of its streams, and its exit code. It dies with this process.
    OSError: it cannot be started, or is not done in that time."""
    process = _start(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     stderr=subprocess.STDOUT, text=True, errors="replace")
    with process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as late:
            raise OSError(f"{command[0]} is not done after {timeout_s:.0f} s") from late
        finally:
            process.kill()  # one that ended is not there any more
    return said, process.returncode


class Child:
    """A child process that answers. Its other output goes to the file `log`, else to our stderr."""

    def __init__(self, name, command, environment=None, log=None, patience_s=None):
        self.name, self._log, self._patience_s = name, log, patience_s
        with open(log, "wb") if log else contextlib.nullcontext() as errors:
            self._process = _start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=errors, env={**os.environ, **(environment or {})})
        self._ahead = b""  # of its answers, what was read and not taken yet

    @property
    def pid(self):
        return self._process.pid

    def send(self, what, **arguments):
        """Take the answer later: so several children work at once."""
        with contextlib.suppress(BrokenPipeError):  # receive() says it
            self._process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, beyond_s=0):
        """`beyond_s`: how long what was asked for takes, at most."""
        patience_s = ANSWER_PATIENCE_S if self._patience_s is None else self._patience_s
        deadline = time.monotonic() + patience_s + beyond_s
        while b"\n" not in self._ahead:
            self._read(deadline)
        line, _, self._ahead = self._ahead.partition(b"\n")
        try:
            answer = dict(json.loads(line))
        except (TypeError, ValueError) as wrong:
            raise ChildFailed(f"{self.name} gave no answer: {line[:LAST_WORDS]}") from wrong
        if "error" in answer:
            raise ChildFailed(f"{self.name}: {answer['error']}")
        return answer

    def _read(self, deadline):
        """The part of a line that is there: not more, as the rest may never come."""
        output = self._process.stdout
        if not select.select([output], [], [], max(deadline - time.monotonic(), 0))[0]:
            self._process.kill()  # what it may say yet is no answer to what is asked next
            raise ChildFailed(f"{self.name} does not answer")
        got = os.read(output.fileno(), READ_BYTES)
        if not got:
            raise ChildFailed(f"{self.name} is gone {_last_words(self._log)}")
        self._ahead += got

    def answers_within(self, seconds):
        """Whether there is something to receive: an answer's beginning, or its end."""
        return bool(self._ahead or select.select([self._process.stdout], [], [], seconds)[0])

    def ask(self, what, beyond_s=0, **arguments):
        self.send(what, **arguments)
        return self.receive(beyond_s)

    def stop(self):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.kill()

    def kill(self):
        """At once, whatever it does."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()


def serve(answer):
    """Calls answer(command) for each command, until standard input ends. Whatever else a library
    prints goes to standard error, so that it is no answer."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # it was a pipe's
    for line in sys.stdin:
        try:
            said = answer(json.loads(line))
        except Exception as error:  # whatever a library may raise: the other side says it
            traceback.print_exc()
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), file=answers, flush=True)


def free_port():
    """A TCP port of the loopback that was free just now. It lies below the kernel's ephemeral
    ports, which a client could take before the server binds, and is random, as others look too."""
    ephemeral = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    below = range(10_000, int(ephemeral.split()[0]))
    for port in [*random.sample(below, min(100, len(below))), 0]:  # 0: any
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise OSError("no TCP port of 127.0.0.1 is free")


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def listens_at(path):
    """As `listens`, of a Unix socket. One that is there may not be listened at yet."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def socket_path(directory, name):
    """Where a Unix socket can be. OSError: nowhere below so deep a directory."""
    path = pathlib.Path(directory) / name
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise OSError(f"{path} is no path for a socket: it has more than {MAX_SOCKET_PATH_BYTES} "
                      "bytes. Use a directory with a shorter path")
    return path


class Server:
    """It is stopped, and its end awaited, when this process ends, if not before."""

    def __init__(self, name, command, directory, is_ready, environment=None, pause_s=PAUSE_S,
                 meanwhile=None):
        """Returns when is_ready() says so. OSError, with its last words, when it ended instead.
        meanwhile(pid) is called before each pause."""
        log = pathlib.Path(directory) / f"{name}.log"
        with open(log, "wb") as output:
            self._process = _start(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})})
        atexit.register(self.stop)
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            deadline = time.monotonic() + START_PATIENCE_S
            while not is_ready():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise OSError(f"{name} did not start: {_last_words(log)}")
                if meanwhile is not None:
                    meanwhile(self.pid)
                time.sleep(pause_s)
            undo.pop_all()

    @property
    def pid(self):
        return self._process.pid

    @property
    def ended(self):
        """Whether it is gone, though nobody stopped it."""
        return self._process.poll() is not None

    def stop(self):
        atexit.unregister(self.stop)
        self._process.kill()
        self._process.wait()
