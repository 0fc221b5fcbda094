"""What the nodes share as G4: a server of S3's protocol, a directory, or nothing.

The server is one of tools/g4_servers.sh, in a process of bash that ends when its input does.
"""

import pathlib
import subprocess
import urllib.parse

from daemon import built
from faults import BUCKET
from processes import Child, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_PATIENCE_S = 90
FLEET = "lab"

_FIND = """set -eu
. tools/g4_servers.sh
g4_servers_take_option "$@"
g4_find_server >&2
printf '%s\\n' "$g4_server"
"""
_SERVE = """set -eu
cd "$3"
. tools/g4_servers.sh
g4_server=$2
trap g4_stop_server EXIT
g4_start_server "$1" >&2
printf '{"endpoint": "%s", "credentials": "%s", "server": "%s"}\\n' \
  "$g4_endpoint" "$g4_credentials" "$(g4_describe_server)"
read -r _ || true
"""


class NoServer(Exception):
    """There is none; the text says what to install."""


def find_server(options):
    """Returns the server that g4_servers.sh takes. It may be installed now, by Go."""
    done = subprocess.run(["bash", "-c", _FIND, "fleet-lab", *options], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise NoServer("there is no server of S3's protocol; --g4 directory needs none")
    return done.stdout.split("\n")[-2]


class S3Server:
    """Nodes reach it by links of the relay, so that these can be cut."""

    def __init__(self, found, directory):
        directory.mkdir()
        self._child = Child("the S3 server", ["bash", "-c", _SERVE, "fleet-lab", directory,
                                              found, ROOT], log=directory / "s3.log",
                            patience_s=START_PATIENCE_S)
        said = self._child.receive()
        self.name, self._credentials = said["server"], said["credentials"]
        self._at = urllib.parse.urlsplit(said["endpoint"])

    def config(self, node, links, gateway):
        """Returns the section g4 of a node's configuration, but for what all kinds have."""
        port = links.add(node, BUCKET, self._at.hostname, self._at.port)
        return {"url": f"http://{gateway}:{port}/kvkeep", "credentials_file": self._credentials}

    def cut(self, is_cut):
        """Returns False, as links do it."""
        del is_cut
        return False

    def stop(self):
        self._child.stop()


class Directory:
    """All nodes of the lab see one directory."""

    name = "a directory"

    def __init__(self, directory):
        self._directory = directory / "g4"
        self._directory.mkdir()
        said, code = run([built("bin/kvkeep"), "g4", "init", "--directory", self._directory,
                          "--fleet", FLEET], START_PATIENCE_S)
        if code != 0:
            raise OSError(f"kvkeep g4 init: {said}")

    def config(self, node, links, gateway):
        del node, links, gateway
        return {"url": f"file://{self._directory}"}

    def cut(self, is_cut):
        """Takes the mark away, as a mount that is gone does. Returns True: it is done."""
        mark, away = self._directory / ".kvkeep", self._directory / ".kvkeep.away"
        if is_cut and mark.exists():
            mark.rename(away)
        elif not is_cut and away.exists():
            away.rename(mark)
        return True

    def stop(self):
        pass
