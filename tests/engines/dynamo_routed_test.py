#!/usr/bin/env python3
"""Sessions behind Dynamo's indexer, which hears the daemons of two nodes: a request goes to the
node that has most of its prompt, and some go elsewhere on purpose, as a router balances load.

    KVKEEP_DYNAMO_PYTHON=$(tests/engines/venv dynamo) \\
      $(tests/engines/venv vllm) tests/engines/dynamo_routed_test.py --root . --build build/release

Each node has a vLLM engine with kvkeep's direct connector. The indexer names the node that
answered last, and a session that is moved has its tokens from the other node. The last line says
what share of the tokens of earlier rounds was recalled.
"""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import dynamo_events_test
import engine_process
import vllm_engine

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "engine-bench"))

import engine_bench  # noqa: E402
from arms import Arm  # noqa: E402
from moved import Fleet  # noqa: E402

PYTHON = os.environ.get("KVKEEP_DYNAMO_PYTHON")
USERS, ROUNDS, ANSWER_TOKENS = 4, 4, 8
WHOLE = vllm_engine.CHUNK_TOKENS
# A node asks beyond itself for eight chunks and more.
SYSTEM, HISTORY, QUESTION = 2 * WHOLE, 9 * WHOLE, WHOLE
INSTANCES = {"a": 7, "b": 8}  # the indexer's numbers of the nodes


class Router:
    """Sends requests to the node that the indexer says has most of them."""

    def __init__(self, endpoints):
        self._indexer = dynamo_events_test.Indexer(endpoints["a"], PYTHON,
                                                   vllm_engine.BLOCK_TOKENS)
        self._indexer.register(INSTANCES["b"], endpoints["b"])
        self._sent = dict.fromkeys(INSTANCES, 0)

    def matched(self, node, tokens):
        return max(self._indexer.match(tokens, INSTANCES[node]))

    def pick(self, tokens):
        """Returns the node with the longest match; of equal ones that with fewer requests."""
        node = max(INSTANCES, key=lambda one: (self.matched(one, tokens), -self._sent[one]))
        self._sent[node] += 1
        return node

    def close(self):
        self._indexer.process.terminate()
        self._indexer.process.wait()


def other(node):
    return "b" if node == "a" else "a"


def is_moved(user, number):
    """Each session is moved once, in a round of its own."""
    return number == 1 + user % (ROUNDS - 1)


@unittest.skipUnless(PYTHON, "KVKEEP_DYNAMO_PYTHON: no Dynamo")
class RoutedSessions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = pathlib.Path(folder.name, "model")
        engine_process.make_model(self.model, **engine_bench.QUICK.model)
        fleet = Fleet(ASKED.build.resolve(), engine_bench.QUICK.tier_bytes)
        self.enterContext(fleet)
        self.arms, endpoints = {}, {}
        for name in INSTANCES:
            node = fleet.nodes[name]
            endpoints[name] = f"tcp://127.0.0.1:{dynamo_events_test.free_port()}"
            node.daemon.settings["KVKEEP_EVENTS_ZMQ"] = endpoints[name]
            node.start()
            self.arms[name] = self.arm("direct", node.daemon)
        for name in INSTANCES:
            fleet.nodes[name].wait_peers(1)
        self.router = Router(endpoints)
        self.addCleanup(self.router.close)

    def arm(self, name, daemon=None):
        made = Arm(name, ASKED, self.model, engine_bench.QUICK, daemon)
        self.addCleanup(made.close)
        made.start()
        return made

    def play(self):
        """Yields (user, was moved, the prompt, the answer) of each request, round by round."""
        histories = [engine_process.prompt(900, SYSTEM) + engine_process.prompt(user, HISTORY)
                     for user in range(USERS)]
        last = {}
        for number in range(ROUNDS):
            for user, prompt in enumerate(histories):
                node = self.router.pick(prompt)
                if number > 0:
                    self.assertEqual(node, last[user], "the indexer names who answered last")
                moved = is_moved(user, number)
                node = other(node) if moved else node
                said = self.arms[node].ask([prompt], ANSWER_TOKENS)["requests"][0]
                yield user, moved, list(prompt), said
                whole = len(prompt) // WHOLE * WHOLE
                dynamo_events_test.until(lambda: self.router.matched(node, prompt) >= whole,
                                         "the indexer knows what was stored")
                last[user] = node
                prompt += said["tokens"] + engine_process.prompt(100 * number + user, QUESTION)

    def test_sessions_that_move_are_recalled(self):
        known, recalled, answers, before = {}, {}, [], {}
        for user, moved, prompt, said in self.play():
            answers.append((prompt, said["tokens"]))
            if user in before:
                known[moved] = known.get(moved, 0) + before[user]
                recalled[moved] = recalled.get(moved, 0) + min(said["cached"], before[user])
            before[user] = len(prompt) // WHOLE * WHOLE
        cold = self.arm("none")
        for prompt, tokens in answers:
            self.assertEqual(cold.ask([prompt], ANSWER_TOKENS)["requests"][0]["tokens"], tokens)
        share = {moved: recalled[moved] / known[moved] for moved in known}
        print(json.dumps({"stayed": share[False], "moved": share[True]}))
        self.assertEqual(share[False], 1)
        # A search that a busy machine does not answer in time is a miss.
        self.assertGreater(share[True], 0.7)


if __name__ == "__main__":
    ASKED = engine_process.arguments(__doc__, engine=False)
    unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
