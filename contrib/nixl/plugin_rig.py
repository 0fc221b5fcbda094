"""What plugin_test.py works with: its command line, NIXL with the plugin alone, an agent, a daemon.

Importing it ends the process with 77 where something is missing.
"""

import argparse
import atexit
import contextlib
import importlib.util
import itertools
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("client/python", "tests/client/c")]
PATIENCE_S = 60  # for a test that went wrong
DEADLINE_MS = 3000
SLACK_S = 2.0
MIB = 1 << 20


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", type=pathlib.Path,
                        default=ROOT / "build" / "nixl" / "libplugin_KVKEEP.so")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("tests", nargs="*", help="CLASS.METHOD; all unless given")
    return parser.parse_args()


def skip_unless_all_there(asked):
    missing = [f"{file} is not there" for file in (asked.plugin, asked.build / "bin" / "kvkeepd")
               if not file.exists()]
    missing += [f"this Python has no {package}: pip install nixl==1.5.1 numpy"
                for package in ("nixl", "numpy") if importlib.util.find_spec(package) is None]
    if missing:
        print("skipped: THE NIXL PLUGIN WAS NOT TESTED: " + "; ".join(missing))
        sys.exit(77)


ASKED = arguments()
skip_unless_all_there(ASKED)
PLUGINS = tempfile.mkdtemp(prefix="kvkeep-nixl-")
atexit.register(shutil.rmtree, PLUGINS, ignore_errors=True)
shutil.copy(ASKED.plugin, pathlib.Path(PLUGINS, "libplugin_KVKEEP.so"))
os.environ["NIXL_PLUGIN_DIR"] = PLUGINS
os.environ["KVKEEP_CLIENT_LIBRARY"] = str(ASKED.build.resolve() / "lib" / "libkvkeep-client.so.1")
for variable in ("KVKEEP_ENDPOINT", "KVKEEP_NIXL_NAMESPACE"):
    os.environ.pop(variable, None)

import numpy as np  # noqa: E402
from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t  # noqa: E402

from daemon import Daemon  # noqa: E402


def bytes_of(seed, size):
    return np.frombuffer(random.Random(seed).randbytes(size), np.uint8).copy()


@contextlib.contextmanager
def errors_said():
    """Gives a function that returns what was written to standard error meanwhile."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)

        def said():
            file.seek(0)
            return file.read().decode()
        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)


class Node:
    """An agent with the backend KVKEEP."""

    count = 0

    def __init__(self, threads=False, **parameters):
        Node.count += 1
        self.name = f"agent{Node.count}"
        self.agent = nixl_agent(self.name, nixl_agent_config(
            backends=[], sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT if threads else None))
        self.agent.create_backend("KVKEEP", {
            "namespace": "test", "deadline_ms": str(DEADLINE_MS), **parameters})
        self._device = itertools.count(1)  # an object of each transfer has a number of its own
        self._memory = []

    def register(self, array):
        self._memory.append(array)
        self.agent.register_memory([(array.ctypes.data, array.nbytes, 0, "")], "DRAM")
        return array

    def forget(self, array):
        self.agent.deregister_memory(self.agent.get_reg_descs(
            [(array.ctypes.data, array.nbytes, 0, "")], "DRAM"))

    @contextlib.contextmanager
    def prepared(self, operation, pieces):
        """pieces: (name, offset in the object, array) each. Gives a transfer, not started."""
        devices, ends = {}, {}
        for name, offset, array in pieces:
            if name not in devices:
                devices[name] = next(self._device)
            ends[name] = max(ends.get(name, 0), offset + array.nbytes)
        objects = self.agent.register_memory(
            [(0, ends[name], device, name) for name, device in devices.items()], "OBJ")
        try:
            local = self.agent.get_xfer_descs(
                [(array.ctypes.data, array.nbytes, 0) for _, _, array in pieces], "DRAM")
            remote = self.agent.get_xfer_descs(
                [(offset, array.nbytes, devices[name]) for name, offset, array in pieces], "OBJ")
            transfer = self.agent.initialize_xfer(operation, local, remote, self.name)
            try:
                yield transfer
            finally:
                self.agent.release_xfer_handle(transfer)
        finally:
            self.agent.deregister_memory(objects)

    def end(self, transfer, state="PROC"):
        deadline = time.monotonic() + PATIENCE_S
        while state == "PROC":
            if time.monotonic() > deadline:
                raise TimeoutError("a transfer does not end")
            time.sleep(0.0005)
            state = self.agent.check_xfer_state(transfer)
        return state

    def move(self, operation, pieces):
        """Returns "DONE", or the name of NIXL's error."""
        try:
            with self.prepared(operation, pieces) as transfer:
                return self.end(transfer, self.agent.transfer(transfer))
        except TimeoutError:
            raise
        except Exception as error:  # each status is a class of its own
            return type(error).__name__

    def write(self, name, array):
        return self.move("WRITE", [(name, 0, array)])

    def read(self, name, array):
        return self.move("READ", [(name, 0, array)])

    def query(self, *names):
        found = self.agent.query_memory([(0, 0, 0, name) for name in names], "KVKEEP", "OBJ")
        return [one is not None for one in found]


class WithDaemon(unittest.TestCase):
    settings = {"KVKEEP_G2_CAPACITY": "512MiB"}

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(ASKED.build / "bin" / "kvkeepd", cls.settings)
        cls.daemon.__enter__()
        cls.addClassCleanup(cls.daemon.__exit__, None, None, None)

    def node(self, **parameters):
        return Node(endpoint=self.daemon.endpoint, **parameters)

    @contextlib.contextmanager
    def stopped(self):
        """While the daemon is stopped, as a debugger stops it."""
        self.daemon.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.daemon.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)

    def until_done(self, step):
        """The client connects again within two seconds."""
        deadline = time.monotonic() + PATIENCE_S
        while (state := step()) != "DONE":
            self.assertLess(time.monotonic(), deadline, state)
            time.sleep(0.01)
