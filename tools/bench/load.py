"""Load on a daemon: clients, each a process of its own, driven in step, and what the daemon spends
meanwhile. client/load_client.h says what they can be told."""

import pathlib
import time

from measured import Measured, added_up
from processes import Child, cpu_seconds
from series import Series, Usage

# Loading a large table takes long, and so may verifying what was measured.
PATIENCE_S = 600
WRITE_BACK_PATIENCE_S = 300
JOIN_PATIENCE_S, JOIN_PAUSE_S = 60, 0.01
NO_STATUS = {"pid": 0, "counters": {}}
# Defaults of a case.
CASE = {"batch": 1, "depth": 1, "keys": 0, "verify": True, "verify_all": False, "no_g3": True,
        "mix": [8, 1, 1], "run_bytes": 0, "adjacent": 1}


def client_process(program, name):
    return Child(name, [pathlib.Path(program).absolute()], patience_s=PATIENCE_S)


def ask_once(program, what, **arguments):
    """A client that is there for this one command."""
    child = client_process(program, what)
    try:
        return child.ask(what, **arguments)
    finally:
        child.kill()


class Load:
    """A context manager. ChildFailed: a client said an error, or is gone."""

    def __init__(self, program, target, admin="", clients=1, daemon_pid=0):
        """`target`: endpoint, local_socket, path, seed, pool_bytes. `admin`: the daemon's socket
        for that; without it nothing is known of the daemon. `daemon_pid`: whose CPU time counts; 0:
        as its status says."""
        self._children, self._probe = [], None
        try:
            for number in range(clients):
                self._children.append(client_process(program, f"client {number}"))
            for number, child in enumerate(self._children):
                child.send("connect", **target, number=number, clients=clients)
            connected = [child.receive() for child in self._children]
            self.kind_of_path = connected[0]["path"]
            self.path = connected[0]["why"] or self.kind_of_path
            if admin:
                self._probe = client_process(program, "status")
                self._probe.ask("watch", admin=admin)
                self.await_status(lambda status: status["joining_devices"] == 0, "join its devices",
                                  JOIN_PATIENCE_S, JOIN_PAUSE_S)
            self.daemon_pid = daemon_pid or self.status()["pid"]
        except BaseException:
            self.close()
            raise

    def close(self):
        for child in [*self._children, *filter(None, [self._probe])]:
            child.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, what, beyond_s=0, **arguments):
        """The first client."""
        return self._children[0].ask(what, beyond_s, **arguments)

    def ask_all(self, what, beyond_s=0, **arguments):
        for child in self._children:
            child.send(what, **arguments)
        return [child.receive(beyond_s) for child in self._children]

    # ---- the daemon

    def status(self):
        return self._probe.ask("status") if self._probe else NO_STATUS

    def clear(self):
        if self._probe:
            self._probe.ask("clear")

    def await_clean(self, pause_s=0.002):
        """Until everything is written back."""
        self.await_status(lambda status: status["g2_dirty_bytes"] == 0, "write everything back",
                          WRITE_BACK_PATIENCE_S, pause_s)

    def await_status(self, is_done, what, patience_s, pause_s):
        if not self._probe:
            return
        give_up = time.monotonic() + patience_s
        while not is_done(self.status()):
            if time.monotonic() > give_up:
                raise OSError(f"the daemon did not {what} in time")
            time.sleep(pause_s)  # for another process

    def daemon_cpu_seconds(self):
        return cpu_seconds([self.daemon_pid]) if self.daemon_pid else 0

    # ---- cases

    def load(self, first, count, size, no_g3=True):
        """Puts these chunks, by the first client."""
        self.ask("load", first=first, count=count, size=size, no_g3=no_g3)

    def prepare(self, name, **case):
        """A series of rounds to come, of a case (client/case.h): its `verb`, `size`, and what is
        not as in CASE."""
        case = {**CASE, **case}
        prepared = self.ask_all("prepare", case=case)[0]["prepared"]  # the same on each client
        about = {name: value for name, value in case.items()
                 if not (name == "mix" and case["verb"] != "mixed"
                         or name in ("run_bytes", "adjacent") and case["run_bytes"] == 0)}
        return Series(name, {"verb": about.pop("verb"), "size": about.pop("size"), **about,
                             "clients": len(self._children), "path": self.kind_of_path,
                             "prepared": prepared}, daemon=Usage())

    def run(self, series, seconds, max_ops=0):
        """One more round of it. `max_ops`: of each client; 0: no limit."""
        before, cpu_before = self.status(), self.daemon_cpu_seconds()
        answers = self.ask_all("run", seconds, prepared=series.about["prepared"], seconds=seconds,
                               max_ops=max_ops, verify=series.about["verify"])
        cpu_after = self.daemon_cpu_seconds()
        series.daemon.add(cpu_after - cpu_before, before, self.status())
        series.rounds.append(added_up([Measured(one) for one in answers], side_by_side=True))
