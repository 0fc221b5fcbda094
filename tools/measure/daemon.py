"""A kvkeepd of one's own, in a fresh directory; it dies with the process that owns it.

The program, and what else the build made, is below $KVKEEP_BUILD.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import urllib.request

from processes import Server, free_port, listens_at, run, socket_path

PATIENCE_S, CLEAR_PATIENCE_S, LOOK_PATIENCE_S = 300, 120, 30
# Between two looks at the metrics, as nothing tells when the daemon is done. A look costs it some
# milliseconds of CPU time, so the next one comes after a part of what the rest should take.
LEAST_PAUSE_S = 0.01
PAUSE_OF_REST, PAUSE_OF_ELAPSED = 0.5, 0.1  # the lesser
# Everything may be dirty, leased, reserved or staging memory: limits are not what is compared.
ROOMY = {"g2": {"dirty_budget": "100%", "arena": "memfd"},
         "limits": {"leased_bytes": "90%", "reserved_bytes": "50%", "leases_per_session": 4096,
                    "staging": "100%"}}


def built(name):
    return pathlib.Path(os.environ["KVKEEP_BUILD"]) / name


class Daemon:
    """A context manager: it is stopped at the end."""

    def __init__(self, directory, config, tcp=False, bulk=False, metrics=True, program=None,
                 **start):
        """Serves when this returns. `config`: sections of kvkeep.yaml, but for where it listens and
        lies; without "g3" it has none. {dir} in a text is its own directory, which is made in
        `directory`. `tcp`, `bulk`: it serves there, too. `program`: another kvkeepd than the
        build's; `start`: as Server takes it. OSError: it did not start, or its sockets' paths
        are too long."""
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="kvkeepd-", dir=directory))
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self.directory, ignore_errors=True)
            self._metrics = free_port() if metrics else 0
            self.tcp_endpoint = f"127.0.0.1:{free_port()}" if tcp else ""
            listener = socket_path(self.directory, "kvkeep.sock")  # the longest of the names
            self.endpoint = f"unix://{listener}"
            self.bulk = f"unix://{self.directory}/bulk.sock" if bulk else ""
            self.bulk_tcp = f"127.0.0.1:{free_port()}" if bulk and tcp else ""
            bulk_keys = {"bulk": "{dir}/bulk.sock", "bulk_tcp": self.bulk_tcp} if bulk else {}
            where = {"g3": {"paths": []}, **config,
                     "listen": {"unix": "{dir}/kvkeep.sock", "local": "{dir}/local.sock",
                                "admin": "{dir}/admin.sock", "tcp": self.tcp_endpoint, **bulk_keys},
                     "metrics": {"listen": f"127.0.0.1:{self._metrics}" if metrics else ""},
                     "state": {"dir": "{dir}/state"}}
            file = self.directory / "kvkeep.yaml"  # of which JSON is a part
            file.write_text(json.dumps(where).replace("{dir}", str(self.directory)))
            command = [program or built("bin/kvkeepd"), "--config", file]
            self._server = Server("kvkeepd", command, self.directory,
                                  lambda: listens_at(listener), **start)
            undo.pop_all()
        self.ready_at = time.monotonic()  # when it was seen to serve

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def admin_endpoint(self):
        return f"unix://{self.directory}/admin.sock"

    @property
    def local_socket(self):
        return f"{self.directory}/local.sock"

    @property
    def pid(self):
        return self._server.pid

    def clear(self):
        said, code = run([built("bin/kvkeep"), "--admin", self.admin_endpoint, "clear", "--yes"],
                         CLEAR_PATIENCE_S)
        if code != 0:
            raise OSError(f"kvkeep clear: {said}")

    def metrics(self, *names):
        """The values at one time. A name may have a label: "moved_bytes_total{way="promotion"}"."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics",
                                    timeout=LOOK_PATIENCE_S) as answer:
            text = answer.read().decode()
        found = []
        for name in names:
            base, _, label = name.rstrip("}").partition("{")
            values = re.findall(rf"^kvkeep_{base}(?:{{[^}}]*{label}[^}}]*}})? (\S+)$", text,
                                re.MULTILINE)
            if not values:
                raise OSError(f"the daemon counts no {name}")
            found.append(sum(map(float, values)))
        return found

    def wait_for(self, left):
        """Until left() is 0 or less. It says how much is to be done still, at a look each."""
        began = time.monotonic()
        first = rest = left()
        while rest > 0:
            elapsed = time.monotonic() - began
            if elapsed > PATIENCE_S:
                raise OSError(f"the daemon is not done: {rest:.0f} are left")
            done = first - rest
            pause = min(PAUSE_OF_REST * elapsed * rest / done if done > 0 else 0,
                        PAUSE_OF_ELAPSED * elapsed)
            time.sleep(max(LEAST_PAUSE_S, pause))
            rest = left()

    def stop(self):
        self._server.stop()
        shutil.rmtree(self.directory)
