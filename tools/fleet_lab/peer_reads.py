"""What a node reads from a peer, beside a bare gRPC stream by mutual TLS in the same minutes.

Two kvkeepd with certificates are on loopback, without G4. In each round chunks are put at one; the
other one looks them up, beyond the node, and gets them: the clock runs over both, and every byte is
compared. Then the bare stream sends as many bytes, in frames of the same size, to memory. Figures
are medians over rounds; a ratio is the median of the rounds' ratios. A round whose search or reads
are late is made again, and counted.

Exit status: 0 all is well, 1 a byte was wrong, a chunk was not found, or a process failed, 2 wrong
usage.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURE = str(ROOT / "tools/measure")
sys.path += [MEASURE, str(ROOT / "client/python")]

import fleet  # noqa: E402
from arguments import several, within  # noqa: E402
from figures import MIB, byte_size, ratios, summary, table  # noqa: E402
from network import Loopback  # noqa: E402
from processes import Child, ChildFailed  # noqa: E402

BARE = pathlib.Path(__file__).with_name("bare_stream.py")
NODES = ("a", "b")
PATIENCE_S = 60
SEARCH_S = 0.5
WORTH_S_PER_KEY = 60  # so much that fetching a single key is worth it
MOST_LATE = 50
CALLS_IN_G2 = 6  # G2 has space for the chunks of so many rounds


def arguments(words):
    parser = argparse.ArgumentParser(prog="fleet-lab --peer-reads", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=pathlib.Path, default=ROOT / "build/release", help="build tree")
    add("--mib", type=several(within(1, 4096)), default=[4, 32, 128], metavar="MIB,...",
        help="sizes of prompts (default 4,32,128)")
    add("--chunk-bytes", type=byte_size, default=byte_size("4MiB"), metavar="SIZE",
        help="default 4MiB")
    add("--rounds", type=within(1, 1000), default=10, help="default %(default)s")
    add("--json", type=pathlib.Path, metavar="FILE", help="gets the figures")
    return parser.parse_args(words)


class Direct:
    """Links without a relay between."""

    def add(self, _one, _other, _host, port):
        return port


def wait_for_peers(nodes):
    deadline = time.monotonic() + PATIENCE_S
    while not all(any(value for name, value in (node.metrics() or {}).items()
                      if name.startswith("peer_up{")) for node in nodes.values()):
        if time.monotonic() > deadline:
            raise OSError("a peer does not answer")
        time.sleep(0.05)


class Reads:
    """Prompts of one size: what was put at node a is got at node b."""

    def __init__(self, clients, size, chunk_bytes):
        self._from, self._at = (client.namespace("m", tokens_per_chunk=256) for client in clients)
        count = max(1, size // chunk_bytes)
        self._size = min(size, chunk_bytes)
        self.memory = bytearray(count * self._size)
        view = memoryview(self.memory)
        self._targets = [view[at:at + self._size] for at in range(0, len(view), self._size)]
        self.wrong = self.late = 0

    def round(self):
        """Returns the seconds that the chunks took to come."""
        for _ in range(MOST_LATE):
            took = self._round()
            if took is not None:
                return took
            self.late += 1
        raise OSError(f"{MOST_LATE} rounds in line were late")

    def _round(self):
        """Returns None if the search or a read was late, as on a busy machine."""
        payload = os.urandom(self._size)
        keys = [os.urandom(32) for _ in self._targets]
        put = self._from.put([(key, payload) for key in keys])
        if put.stored < len(keys):
            raise OSError(f"of {len(keys)} chunks {put.stored} were stored: {put.why}")
        began = time.monotonic()
        found = self._at.lookup(keys, lease=True, remote_wait=SEARCH_S,
                                recompute_per_key=WORTH_S_PER_KEY)
        got = self._at.get(keys, self._targets, lease=found.lease)
        took = time.monotonic() - began
        self.wrong += sum(came and target.tobytes() != payload
                          for came, target in zip(got.good, self._targets))
        return took if found.remote_keys == got.hits == len(keys) else None


def measure(asked, sizes, directory):
    """Returns the figures of each size."""
    import kvkeep  # pylint: disable=import-outside-toplevel  # loads what $KVKEEP_BUILD has
    capacity = max(CALLS_IN_G2 * max(sizes), 256 * MIB)
    options = argparse.Namespace(g2=f"{capacity // MIB}MiB", g3=f"{capacity // MIB}MiB")
    nodes = fleet.make_nodes(NODES, directory, Loopback(NODES), Direct(), None, options)
    with contextlib.ExitStack() as undo:
        bare = Child("the bare stream",
                     [sys.executable, "-B", BARE, directory, NODES[0], fleet.name_of(NODES[0]),
                      str(max(sizes))], {"PYTHONPATH": MEASURE})
        undo.callback(bare.stop)
        for node in nodes.values():
            undo.callback(node.kill)
            node.start()
        wait_for_peers(nodes)
        clients = [undo.enter_context(kvkeep.Client(node.endpoint)) for node in nodes.values()]
        return [of_size(Reads(clients, size, asked.chunk_bytes), bare, asked.rounds)
                for size in sizes]


def of_size(reads, bare, rounds):
    ours, theirs = [], []
    size = len(reads.memory)
    reads.round()  # the first one of each warms
    bare.ask("get", bytes=size)
    for _ in range(rounds):
        ours.append(size / reads.round())
        theirs.append(size / bare.ask("get", bytes=size)["seconds"])
    return {"bytes": size, "peer_bytes_per_second": summary(ours),
            "bare_bytes_per_second": summary(theirs), "ratio": summary(ratios(ours, theirs)),
            "late_rounds": reads.late, "wrong_chunks": reads.wrong}


def main(words):
    asked = arguments(words)
    sizes = [mib * MIB for mib in asked.mib]
    fleet.use_build(asked.build.absolute())
    with tempfile.TemporaryDirectory(prefix="lab-") as directory:
        try:
            figures = measure(asked, sizes, pathlib.Path(directory))
        except (OSError, ChildFailed) as failed:
            print(f"fleet-lab: {failed}", file=sys.stderr)
            return 1
    print(table([["prompt", "peer MB/s", "bare MB/s", "ratio", "from", "to", "late"]] + [
        [f"{one['bytes'] // MIB} MiB", f"{one['peer_bytes_per_second']['median'] / 1e6:.0f}",
         f"{one['bare_bytes_per_second']['median'] / 1e6:.0f}"]
        + [f"{one['ratio'][what]:.2f}" for what in ("median", "min", "max")]
        + [str(one["late_rounds"])] for one in figures]), end="")
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 1 if any(one["wrong_chunks"] for one in figures) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
