"""The nodes: kvkeepd with certificates, each in its own directory and at its own address.

A node that was killed starts again on its own files. What ends this process ends all daemons.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket

from certificates import make_certificates
from daemon import built
from processes import Server, listens_at, socket_path

METRICS_PATIENCE_S = 0.5
G4_WRITE_BYTES_PER_SECOND = "1GiB"


def use_build(build):
    """Has nodes and clients run what this tree has. The C library may be named by the caller."""
    os.environ["KVKEEP_BUILD"] = str(build)
    os.environ["KVKEEP_CLIENT_LIBRARY"] = (os.environ.get("KVKEEP_CLIENT_LIBRARY")
                                           or str(built("lib/libkvkeep-client.so.1")))


def name_of(node):
    """The node's name in the fleet, and in its certificate."""
    return f"{node}.lab"


def metrics_of(path):
    """Returns {name, with its labels: value} as the daemon's Unix socket says it."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(METRICS_PATIENCE_S)
        asked.connect(str(path))
        asked.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: asked.recv(1 << 16), b"")).decode()
    values = {}
    for line in answer.partition("\r\n\r\n")[2].splitlines():
        name, _, value = line.rpartition(" ")
        if name and not name.startswith("#"):
            values[name.removeprefix("kvkeep_")] = float(value)
    return values


class Node:
    def __init__(self, name, directory, network, settings):
        """settings: sections of kvkeep.yaml, but for where the node's files and sockets are."""
        self.name, self.directory, self._network = name, directory, network
        directory.mkdir(mode=0o700)
        self._files = directory / "files"
        self._server, self._starts, self.stopped = None, 0, False
        self._socket = socket_path(directory, "kvkeep.sock")
        config = {**settings, "state": {"dir": str(self._files / "state")},
                  "metrics": {"listen": "", "unix": str(directory / "metrics.sock")}}
        config["listen"].update(unix=str(self._socket), local=str(directory / "local.sock"),
                                admin=str(directory / "admin.sock"))
        config["g3"] = {"paths": [{"dir": str(self._files / "nvme"), **settings["g3"]}]}
        (directory / "kvkeep.yaml").write_text(json.dumps(config))  # JSON is YAML

    @property
    def endpoint(self):
        return f"unix://{self._socket}"

    @property
    def answers(self):
        """Whether it should: it was neither killed nor stopped."""
        return self._server is not None and not self.stopped

    def start(self):
        """Returns when it serves. OSError: it does not."""
        if self._server is not None:
            return
        self._files.mkdir(exist_ok=True)
        command = [str(built("bin/kvkeepd")), "--config", str(self.directory / "kvkeep.yaml")]
        self._starts += 1
        self._server = Server(f"kvkeepd-{self._starts}", self._network.command(self.name, command),
                              self.directory, lambda: listens_at(self._socket))

    @property
    def ended(self):
        """Whether the daemon ended by itself, which it should not."""
        return self._server is not None and self._server.ended

    def kill(self):
        if self._server is not None:
            self._server.stop()
        self._server, self.stopped = None, False

    def lose(self):
        """Kills it and deletes its files."""
        self.kill()
        shutil.rmtree(self._files)

    def stop(self):
        if self.answers:
            os.kill(self._server.pid, signal.SIGSTOP)
            self.stopped = True

    def go_on(self):
        if self.stopped:
            os.kill(self._server.pid, signal.SIGCONT)
            self.stopped = False

    def metrics(self):
        """Returns the metrics, or None if it does not answer."""
        with contextlib.suppress(OSError, ValueError):
            if self.answers:
                return metrics_of(self.directory / "metrics.sock") or None
        return None


def make_nodes(nodes, directory, network, links, storage, options):
    """Returns the Nodes by name, not started yet. storage: None for no G4."""
    make_certificates(directory, {node: name_of(node) for node in nodes})
    key = directory / "fleet.key"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(32))
    ca = str(directory / "ca.pem")
    out = {}
    for node in nodes:
        ports = {other: links.add(node, other, *network.address(other))
                 for other in nodes if other != node}
        peers = [f"{name_of(other)}={network.gateway}:{port}" for other, port in ports.items()]
        settings = {
            "listen": {"tcp": "{}:{}".format(*network.address(node)), "shared": True,
                       "certificate_names": ["engines.lab"]},
            "tls": {"cert_file": str(directory / f"{node}.pem"),
                    "key_file": str(directory / f"{node}.key"), "client_ca_file": ca},
            "fleet": {"name": "lab", "key_file": str(key), "node": name_of(node), "ca_file": ca,
                      "peers": peers},
            "g2": {"capacity": options.g2, "segment_bytes": "16MiB", "arena": "memfd",
                   "dirty_budget": "100%"},
            "g3": {"capacity": options.g3}}
        if storage is not None:
            settings["g4"] = {**storage.config(node, links, network.gateway),
                              "write_bytes_per_second": G4_WRITE_BYTES_PER_SECOND,
                              "admission": options.g4_admission}
        out[node] = Node(node, directory / node, network, settings)
    return out
