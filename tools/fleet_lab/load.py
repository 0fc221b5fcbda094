"""The load: plays requests through the nodes' daemons, as engines would. A child process.

A request is one lookup that may search beyond the node, a get of all that it found, and a put of
the rest. Every byte that a get says it has is compared. A round begins when it is due and the round
before it, on whatever node, is over.
"""

import contextlib
import heapq
import threading
import time

import kvkeep

from payload import Payloads
from processes import serve
from rounds import TOKENS_PER_BLOCK

SOURCES = {kvkeep.Found.IN_G2: "g2", kvkeep.Found.IN_G3: "g3", kvkeep.Found.COMING: "beyond"}
HUNG_S = 60  # beyond its deadline, a call is given up


class Queue:
    """Requests in the order of their times, for the threads of each node. Thread-safe."""

    def __init__(self, requests, until_s):
        self._requests, self._until_s = requests, until_s
        self._next = {one["previous"]: at for at, one in enumerate(requests)
                      if one["previous"] >= 0}
        self._ready = {}
        self._changed = threading.Condition()
        self.left = len(requests)
        self.began = time.monotonic()
        for at, one in enumerate(requests):
            if one["previous"] < 0:
                self._release(at)

    def now(self):
        return time.monotonic() - self.began

    def _release(self, at):
        one = self._requests[at]
        heapq.heappush(self._ready.setdefault(one["node"], []), (one["at_s"], at))

    def blocks_of(self, at):
        return self._requests[at]["blocks"]

    def take(self, node):
        """Returns the next request of a node once it is due, or None: there will be no more."""
        with self._changed:
            while self.left > 0 and self.now() < self._until_s:
                ready = self._ready.get(node)
                wait = (ready[0][0] if ready else self._until_s) - self.now()
                if ready and wait <= 0:
                    return heapq.heappop(ready)[1]
                self._changed.wait(min(wait, self._until_s - self.now()))
            self._changed.notify_all()
            return None

    def done(self, at):
        with self._changed:
            self.left -= 1
            if at in self._next:
                self._release(self._next[at])
            self._changed.notify_all()


class Worker:
    """One of a node's threads, with buffers of its own."""

    def __init__(self, node, namespace, payloads, asked):
        self.node, self._namespace, self._payloads, self._asked = node, namespace, payloads, asked
        self._buffers = []
        self._late = 0
        self.until = None  # the deadline of the call under way, with the slack

    def _timed(self, call, *arguments, **more):
        """Returns the call's result and its seconds. Counts a call that ended after its deadline
        and the slack."""
        began = time.monotonic()
        self.until = began + self._asked["timeout_s"] + self._asked["slack_s"]
        result = call(*arguments, timeout=self._asked["timeout_s"], **more)
        took = time.monotonic() - began
        self._late += time.monotonic() > self.until
        self.until = None
        return result, took

    def play(self, blocks):
        """Returns what happened to a request's chunks."""
        payloads, self._late = self._payloads, 0
        keys = [payloads.key_of(block) for block in blocks]
        found, lookup_s = self._timed(
            self._namespace.lookup, keys, lease="leading", remote_wait=self._asked["wait_s"],
            recompute_per_key=self._asked["recompute_s"])
        said = {"asked": len(keys), "g2": 0, "g3": 0, "beyond": 0, "lookup_s": lookup_s,
                "get_s": 0, "put_s": 0, "got": 0, "wrong_chunks": 0, "wrong_bytes": 0,
                "missed_leased": 0}
        good = 0
        if found.lease is not None:
            with found.lease:
                good = self._get(keys[:found.leased_keys], found, said)
        rest, chunks = keys[good:], []
        for at, key in enumerate(rest, good):
            parent = keys[at - 1] if at > 0 else None
            chunks.append(kvkeep.Chunk(key, payloads.to_put(key), parent=parent))
        stored, said["put_s"] = self._timed(self._namespace.put, chunks)
        said.update(hits=good, recomputed=len(rest), stored=stored.stored, late=self._late,
                    errors=[str(one.error)[:200] for one in (found, stored) if one.error])
        return said

    def _get(self, keys, found, said):
        """Gets and compares the leased chunks. Returns the length of the run that an engine can
        use; what comes after the first miss is recomputed."""
        while len(self._buffers) < len(keys):
            self._buffers.append(bytearray(self._asked["chunk_bytes"]))
        buffers = self._buffers[:len(keys)]
        try:
            got, said["get_s"] = self._timed(self._namespace.get, keys, buffers,
                                             lease=found.lease)
        except kvkeep.FailedPrecondition:  # its daemon was killed after the lookup
            self.until = None
            said["missed_leased"] = len(keys)
            return 0
        good = 0
        for key, buffer, hit, nbytes in zip(keys, buffers, got.good, got.payload_bytes):
            if not hit:
                said["missed_leased"] += 1
                continue
            said["got"] += 1
            wrong = self._payloads.wrong_bytes(key, buffer) if nbytes == len(buffer) else nbytes
            said["wrong_bytes"] += wrong
            said["wrong_chunks"] += wrong > 0
            good += said["missed_leased"] == 0
        for presence in found.presence[:good]:
            bit = next(bit for bit in SOURCES if presence & bit)
            said[SOURCES[bit]] += 1
        return good


class Player:
    def __init__(self):
        self._asked, self._requests, self._clients = {}, [], {}

    def answer(self, command):
        what = command.pop("do")
        if what == "connect":
            self._asked = command
            self._clients = {node: kvkeep.Client(endpoint, name=f"lab-{node}",
                                                 path=command["path"])
                             for node, endpoint in command["nodes"].items()}
            return {"connected": all([client.wait_connected(30)
                                      for client in self._clients.values()])}
        if what == "play":
            return self._play(command["requests"], command["until_s"])
        raise ValueError(f"the load knows no '{what}'")

    def _play(self, requests, until_s):
        asked = self._asked
        payloads = Payloads(asked["chunk_bytes"], asked["seed"], asked["mutate"])
        queue, played, failures = Queue(requests, until_s), [], []
        workers, threads = [], []
        for node, client in self._clients.items():
            namespace = client.namespace("fleet-lab", tokens_per_chunk=TOKENS_PER_BLOCK)
            for _ in range(asked["concurrency"]):
                workers.append(Worker(node, namespace, payloads, asked))
                threads.append(threading.Thread(
                    target=self._work, args=(workers[-1], queue, played, failures), daemon=True))
        for thread in threads:
            thread.start()
        hung = 0
        for worker, thread in zip(workers, threads):
            while thread.is_alive():
                thread.join(1)
                if worker.until is not None and time.monotonic() > worker.until + HUNG_S:
                    hung += 1
                    break
        return {"played": played, "failures": failures, "hung": hung,
                "not_played": len(requests) - len(played), "seconds": queue.now()}

    @staticmethod
    def _work(worker, queue, played, failures):
        try:
            while (at := queue.take(worker.node)) is not None:
                began_s = queue.now()
                said = worker.play(queue.blocks_of(at))
                played.append({"request": at, "began_s": began_s, "ended_s": queue.now(), **said})
                queue.done(at)
        except Exception as mistake:  # whatever it is: the other side says it
            failures.append(f"the load of node {worker.node}: {type(mistake).__name__}: {mistake}")
            raise


def main():
    player = Player()
    with contextlib.suppress(KeyboardInterrupt):
        serve(player.answer)


if __name__ == "__main__":
    main()
