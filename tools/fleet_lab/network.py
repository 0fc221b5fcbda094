"""Where nodes are: each in a network namespace of its own on a bridge, or all on loopback.

This process moves into a fresh network namespace first, so nothing of the machine's network is
touched, and all of it is gone when the process is. A user without root gets one by a user
namespace, where the kernel permits that.
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess

from processes import free_port

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
BRIDGE, GATEWAY, NODE_PORT = "lab", "10.77.0.1", 9400
_libc = ctypes.CDLL(None, use_errno=True)


class NoNamespaces(Exception):
    """This machine does not permit or have them."""


def _must(result, what):
    if result != 0:
        raise NoNamespaces(f"{what}: {os.strerror(ctypes.get_errno())}")


def _run(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoNamespaces(f"{' '.join(words)}: {done.stderr.strip()}")


def _ip(*words):
    _run(["ip", *words])


def _enter_new():
    """Moves this process into a network namespace of its own. It must have one thread."""
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(CLONE_NEWNET) == 0:
        return
    _must(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNET), "unshare")
    own = pathlib.Path("/proc/self")
    with contextlib.suppress(OSError):
        (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"0 {user} 1")
    (own / "gid_map").write_text(f"0 {group} 1")


class Loopback:
    """All nodes on 127.0.0.1, each on a port of its own."""

    kind = "loopback"
    gateway = "127.0.0.1"

    def __init__(self, nodes):
        self._ports = {node: free_port() for node in nodes}

    def address(self, node):
        return "127.0.0.1", self._ports[node]

    def command(self, node, words):
        """Returns the command that runs `words` where the node is."""
        del node
        return words

    def cut(self, node):
        """Pulls the node's plug. Returns False where only the relay can do that."""
        del node
        return False

    def join(self, node):
        del node


class Namespaces:
    """Each node has a namespace, with a cable to a bridge. The gateway is this process' end."""

    kind = "namespaces"
    gateway = GATEWAY

    def __init__(self, nodes):
        """NoNamespaces: this machine does not permit them. This process may then be in a
        namespace that has loopback and nothing else."""
        for program in ("ip", "nsenter"):
            if shutil.which(program) is None:
                raise NoNamespaces(f"there is no program {program}")
        _enter_new()
        _ip("link", "set", "lo", "up")
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        self._spaces, self._hosts = {}, {}
        for number, node in enumerate(nodes):
            self._add(node, f"10.77.0.{number + 2}")

    def _add(self, node, host):
        own = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            _must(_libc.unshare(CLONE_NEWNET), "unshare")
            space = os.open("/proc/self/ns/net", os.O_RDONLY)
            _must(_libc.setns(own, CLONE_NEWNET), "setns")
        finally:
            os.close(own)
        self._spaces[node], self._hosts[node] = space, host
        _ip("link", "add", f"{BRIDGE}-{node}", "type", "veth", "peer", "name", "eth0", "netns",
            self._path(node))
        _ip("link", "set", f"{BRIDGE}-{node}", "master", BRIDGE, "up")
        for words in (["addr", "add", f"{host}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                      ["link", "set", "lo", "up"]):
            _run(self.command(node, ["ip", *words]))

    def _path(self, node):
        return f"/proc/{os.getpid()}/fd/{self._spaces[node]}"

    def address(self, node):
        return self._hosts[node], NODE_PORT

    def command(self, node, words):
        return ["nsenter", f"--net={self._path(node)}", "--", *words]

    def cut(self, node):
        _ip("link", "set", f"{BRIDGE}-{node}", "down")
        return True

    def join(self, node):
        _ip("link", "set", f"{BRIDGE}-{node}", "up")
