"""Three nodes of a fleet for the scenario `moved`: a and b read from each other, c knows no peer.
All share a directory as G4.
"""

import pathlib
import secrets
import subprocess
import tempfile
import time

from certificates import make_certificates
from daemon import Daemon, free_port

FLEET = "moved"
PATIENCE_S = 60


class Node:
    """A daemon of the fleet. Its files go with it."""

    def __init__(self, build, settings):
        self.daemon = Daemon(build / "bin" / "kvkeepd", settings)

    def start(self):
        self.daemon.start()
        self.daemon.wait_joined()

    def evict(self):
        """Leaves what this node has on its NVMe alone."""
        subprocess.run([*self.daemon._tool(), "evict", "1TiB", "--tier", "g2", "--yes"],
                       check=True, capture_output=True)

    def wait_peers(self, peers):
        deadline = time.monotonic() + PATIENCE_S
        while list(self.daemon.status().get("peers", {}).values()).count("up") < peers:
            if time.monotonic() > deadline:
                raise RuntimeError("a peer does not answer:\n" + self.daemon.log())
            time.sleep(0.05)

    def close(self):
        self.daemon.__exit__()


class Fleet:
    """Nodes a, b and c, not started. A context manager."""

    def __init__(self, build, tier_bytes):
        self._files = tempfile.TemporaryDirectory(prefix="kvkeep-moved-")
        directory = pathlib.Path(self._files.name)
        bucket = directory / "g4"
        bucket.mkdir()
        subprocess.run([build / "bin" / "kvkeep", "g4", "init", "--directory", bucket, "--fleet",
                        FLEET], check=True, capture_output=True)
        names = {node: f"{node}.{FLEET}" for node in "abc"}
        make_certificates(directory, names)
        key = directory / "key"
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(32), encoding="ascii")
        at = {node: f"127.0.0.1:{free_port()}" for node in names}
        self.nodes = {}
        for node, name in names.items():
            peers = [f"{names[other]}={at[other]}" for other in "ab" if node != "c"]
            self.nodes[node] = Node(build, {
                "KVKEEP_LISTEN_TCP": at[node], "KVKEEP_LISTEN_SHARED": "true",
                "KVKEEP_LISTEN_CERTIFICATE_NAMES": f"[engine.{FLEET}]",
                "KVKEEP_TLS_CERT_FILE": str(directory / f"{node}.pem"),
                "KVKEEP_TLS_KEY_FILE": str(directory / f"{node}.key"),
                "KVKEEP_TLS_CLIENT_CA_FILE": str(directory / "ca.pem"),
                "KVKEEP_FLEET_NAME": FLEET, "KVKEEP_FLEET_KEY_FILE": str(key),
                "KVKEEP_FLEET_NODE": name, "KVKEEP_FLEET_CA_FILE": str(directory / "ca.pem"),
                "KVKEEP_FLEET_PEERS": f"[{', '.join(peers)}]",
                "KVKEEP_G4_URL": f"file://{bucket}", "KVKEEP_G4_ADMISSION": "all",
                "KVKEEP_G4_WRITE_BYTES_PER_SECOND": "1GiB",
                "KVKEEP_G2_CAPACITY": str(tier_bytes)})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes.values():
            node.close()
        self._files.cleanup()
