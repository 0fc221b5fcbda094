"""A fleet in a lab: real daemons, a real trace, faults by script, and a report of what was found.

Three kvkeepd with certificates stand in network namespaces on a bridge (or on loopback, where this
machine permits none), with peers and G4. All links lead through a relay that delays, cuts and
resets them. The rounds of a trace's sessions go to the nodes; some move to another node, some
pause. Each request is a lookup that searches beyond the node, a get of what was found, every byte
compared, and a put of the rest. The report (JSON, Markdown, SVG) says where chunks came from.

Not modelled: prefill takes no time here, and times are those of this machine and of --chunk-bytes.

Exit status: 0 all is well, 1 a byte was wrong, or a call did not end by its deadline, or the lab
failed, 2 wrong usage. The C library is $KVKEEP_CLIENT_LIBRARY, else the build tree's.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURE, CLIENT = ROOT / "tools/measure", ROOT / "client/python"
sys.path += [str(MEASURE), str(CLIENT)]

import faults  # noqa: E402
import fleet  # noqa: E402
import picture  # noqa: E402
import report  # noqa: E402
import rounds  # noqa: E402
from arguments import within  # noqa: E402
from counters import Sampled  # noqa: E402
from figures import byte_size  # noqa: E402
from links import Links  # noqa: E402
from network import Loopback, Namespaces, NoNamespaces  # noqa: E402
from processes import Child, ChildFailed  # noqa: E402
from storage import Directory, NoServer, S3Server, find_server  # noqa: E402

NODES = ("a", "b", "c")
TRACE = "tests/traces/conversation_trace.jsonl"
LOAD = pathlib.Path(__file__).with_name("load.py")
LOOK_S = 0.05  # between looks at the clock, while the load plays
SAMPLE_S = 0.5
OVERTIME = 1.25  # of the run's length: what has not begun by then is not played


def say(words):
    print(f"fleet-lab: {words}", file=sys.stderr, flush=True)


def arguments(words):
    parser = argparse.ArgumentParser(
        prog="fleet-lab", description=__doc__, epilog=faults.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=pathlib.Path, default=ROOT / "build/release",
        help="build tree with bin/kvkeepd, bin/kvkeep and the C library; without it, "
             "tools/fleet-lab builds them")
    add("--out", type=pathlib.Path, default=ROOT / "build/fleet-lab", metavar="DIR",
        help="gets report.json, report.md and report.svg")
    add("--work", metavar="DIR", help="where daemons' files are meanwhile (default: a new "
                                      "directory in $TMPDIR). Its path has to be short")
    add("--keep", action="store_true", help="keeps them, logs included")
    add("--trace", default=str(ROOT / TRACE), metavar="FILE", help="as kvkeep simulate takes it")
    add("--requests", type=within(1, 10**6), default=1000,
        help="about so many, in whole sessions from all over the trace (default %(default)s)")
    add("--seconds", type=within(1.0, 86400.0), default=180.0,
        help="in which they are asked (default %(default)s)")
    add("--move", type=within(0.0, 1.0), default=0.2, metavar="SHARE",
        help="of rounds that go to another node than the one before (default %(default)s)")
    add("--pause", type=within(0.0, 1.0), default=0.1, metavar="SHARE",
        help="of rounds before which the session pauses (default %(default)s)")
    add("--pause-seconds", type=within(0.0, 3600.0), default=10.0)
    add("--chunk-bytes", type=byte_size, default=byte_size("256KiB"), metavar="SIZE",
        help="of a block of 512 tokens (default 256KiB)")
    add("--prefill-tokens-per-second", type=within(1.0, 1e9), default=5000.0,
        help="what computing costs, for the TTFT saved, and told to lookups (default %(default)s)")
    add("--no-cost", action="store_true",
        help="lookups are not told what computing costs, so the daemon declines none for it")
    add("--g2", default="192MiB", metavar="SIZE", help="of each node (default %(default)s)")
    add("--g3", default="512MiB", metavar="SIZE", help="the same (default %(default)s)")
    add("--g4", choices=("server", "directory", "none"), default="server",
        help="default: a server of S3's protocol, as tools/g4-server has it")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--server", metavar="PATH", help="of versitygw or minio")
    which.add_argument("--swift", action="store_true", help="the server is OpenStack Swift")
    which.add_argument("--radosgw", action="store_true", help="the server is Ceph's")
    add("--g4-admission", choices=("all", "second_use"), default="all",
        help="g4.admission (default %(default)s)")
    add("--no-namespaces", action="store_true", help="all nodes on loopback")
    add("--faults", default="demo", metavar="FILE",
        help="a script, whose form is below; 'demo' is one, 'none' is empty (default %(default)s)")
    add("--concurrency", type=within(1, 64), default=4,
        help="requests at once, a node (default %(default)s)")
    add("--path", choices=("auto", "grpc", "local"), default="grpc",
        help="from the load to the daemons (default %(default)s)")
    add("--remote-wait", type=within(0.0, 10.0), default=0.2, metavar="SECONDS",
        help="that a lookup may search beyond the node (default %(default)s)")
    add("--timeout", type=within(0.001, 600.0), default=5.0, metavar="SECONDS",
        help="of each call (default %(default)s)")
    add("--slack", type=within(0.0, 60.0), default=1.0, metavar="SECONDS",
        help="beyond it, after which a call is late (default %(default)s)")
    add("--bins", type=within(1, 500), default=60, help="of the run, in the report and the picture")
    add("--seed", type=within(0, 2**32), default=0)
    add("--mutate", type=within(0.0, 1.0), default=0.0, metavar="SHARE",
        help="of chunks that are put with a wrong byte: tests the checks")
    return parser.parse_args(words)


class Script:
    """Does the faults when they are due."""

    def __init__(self, planned, nodes, links, storage, sampled):
        self._planned, self._nodes, self._links = list(planned), nodes, links
        self._storage, self._sampled, self.done = storage, sampled, []

    def run(self, now_s):
        while self._planned and self._planned[0].at_s <= now_s:
            fault = self._planned.pop(0)
            self.done.append((now_s, str(fault)))
            say(f"{now_s:6.1f} s  {fault}")
            self._do(fault)

    def _do(self, fault):
        verb, ends = fault.verb, fault.ends
        node = self._nodes.get(ends[0]) if ends else None
        if verb in ("kill", "lose"):
            node.kill() if verb == "kill" else node.lose()
        elif verb == "restart":
            node.kill()
            self._sampled[node.name].restarted()
            node.start()
        elif verb == "stop":
            node.stop()
        elif verb == "continue":
            node.go_on()
        elif verb == "slow":
            self._links.slow(ends, fault.settings)
        elif verb == "half-open":
            self._links.half_open(ends)
        elif verb == "reset":
            self._links.reset(ends)
        elif verb == "partition":
            if ends != (faults.BUCKET,) or self._storage is None or not self._storage.cut(True):
                self._links.partition(ends)
        elif verb == "heal":
            if self._storage is not None and (not ends or faults.BUCKET in ends):
                self._storage.cut(False)
            self._links.heal(ends)


class Lab:
    """All processes of a run; a context manager that ends them."""

    def __init__(self, asked, network, server):
        self._asked, self._network, self._server = asked, network, server
        self._undo = contextlib.ExitStack()
        self.nodes, self.storage, self.links, self._load = {}, None, None, None
        self._ended = []

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            asked, work = self._asked, tempfile.mkdtemp(prefix="lab-", dir=self._asked.work)
            if asked.keep:
                say(f"files and logs stay in {work}")
            else:
                undo.callback(shutil.rmtree, work, ignore_errors=True)
            work = pathlib.Path(work)
            paths = {"PYTHONPATH": os.pathsep.join([str(MEASURE), str(CLIENT)])}
            self.links = Links(self._network, NODES, paths, work / "relay.log")
            undo.callback(self.links.stop)
            if asked.g4 != "none":
                self.storage = (Directory(work) if asked.g4 == "directory"
                                else S3Server(self._server, work / "s3"))
                undo.callback(self.storage.stop)
            self.nodes = fleet.make_nodes(NODES, work, self._network, self.links, self.storage,
                                          asked)
            for node in self.nodes.values():
                undo.callback(node.kill)
                node.start()
            self._load = Child("the load", [sys.executable, "-B", LOAD], paths, work / "load.log")
            undo.callback(self._load.kill)
            self._connect()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_):
        self._undo.close()

    def _connect(self):
        asked = self._asked
        said = self._load.ask(
            "connect", nodes={name: node.endpoint for name, node in self.nodes.items()},
            path=asked.path, chunk_bytes=asked.chunk_bytes, seed=asked.seed, mutate=asked.mutate,
            timeout_s=asked.timeout, slack_s=asked.slack, wait_s=asked.remote_wait,
            recompute_s=0 if asked.no_cost else (rounds.TOKENS_PER_BLOCK
                                                 / asked.prefill_tokens_per_second),
            concurrency=asked.concurrency)
        if not said["connected"]:
            raise OSError("a daemon takes no session")

    def play(self, requests, planned):
        """Returns the load's answer, the counts by node, and the faults as they were done."""
        sampled = {name: Sampled() for name in self.nodes}
        script = Script(planned, self.nodes, self.links, self.storage, sampled)
        self._load.send("play", until_s=self._asked.seconds * OVERTIME, requests=[
            {"blocks": one.blocks, "at_s": one.at_s, "node": one.node, "previous": one.previous}
            for one in requests])
        began, next_sample_s = time.monotonic(), SAMPLE_S
        while not self._load.answers_within(LOOK_S):
            now_s = time.monotonic() - began
            script.run(now_s)
            if now_s >= next_sample_s:
                next_sample_s = now_s + SAMPLE_S
                self._sample(sampled, now_s)
        answer = self._load.receive()
        self._sample(sampled, time.monotonic() - began)
        answer["failures"] += self._ended
        return answer, sampled, script.done

    def _sample(self, sampled, now_s):
        for name, node in self.nodes.items():
            if node.ended:
                self._ended.append(f"the daemon of node {name} ended by itself at {now_s:.1f} s")
                say(self._ended[-1])
                node.kill()  # nothing is left; a restart may follow
            values = node.metrics()
            if values is not None:
                sampled[name].add(now_s, values)


def network_of(asked):
    if asked.no_namespaces:
        return Loopback(NODES)
    try:
        return Namespaces(NODES)
    except NoNamespaces as missing:
        say(f"all nodes are on loopback, as there are no network namespaces ({missing})")
        return Loopback(NODES)


def planned_faults(asked):
    built_in = {"none": "", "demo": faults.DEMO}
    text = (built_in[asked.faults] if asked.faults in built_in
            else pathlib.Path(asked.faults).read_text(encoding="utf-8"))
    return faults.parse(text, NODES, asked.seconds)


def requests_of(asked):
    with open(asked.trace, encoding="utf-8") as file:
        requests = rounds.sample(rounds.read(file), asked.requests)
    return rounds.split(requests, rounds.Split(
        NODES, asked.seconds, asked.move, asked.pause, asked.pause_seconds, asked.seed))


def run(asked):
    """Returns the report's document."""
    planned, requests = planned_faults(asked), requests_of(asked)
    options = ["--server", asked.server] if asked.server else (
        ["--swift"] * asked.swift + ["--radosgw"] * asked.radosgw)
    server = find_server(options) if asked.g4 == "server" else ""
    fleet.use_build(asked.build)
    network = network_of(asked)  # after what needs the machine's own network
    with Lab(asked, network, server) as lab:
        g4 = lab.storage.name if lab.storage is not None else "none"
        say(f"{len(requests)} requests in {asked.seconds:g} s, {network.kind}, G4: {g4}")
        answer, sampled, done = lab.play(requests, planned)
        moved = lab.links.moved()
    settings = {name: value if isinstance(value, (int, float)) else str(value)
                for name, value in vars(asked).items() if name not in ("out", "work", "build")}
    settings.update(trace=pathlib.Path(asked.trace).name, network=network.kind, g4=g4,
                    best_hits=rounds.best_hits(requests))
    return report.document(settings, requests, answer, sampled, moved, done)


def main(words):
    asked = arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what was started, in order
    asked.build = asked.build.absolute()
    try:
        said = run(asked)
    except (NoServer, ValueError) as wrong:
        say(wrong)
        return 2
    except (OSError, ChildFailed) as failed:
        say(failed)
        return 1
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "report.json").write_text(json.dumps(said) + "\n", encoding="utf-8")
    (asked.out / "report.md").write_text(report.markdown(said, "report.svg"), encoding="utf-8")
    (asked.out / "report.svg").write_text(picture.draw(said), encoding="utf-8")
    print(report.text(said), end="")
    say(f"the report is {asked.out}/report.md, the picture report.svg")
    return 1 if report.problems(said) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
