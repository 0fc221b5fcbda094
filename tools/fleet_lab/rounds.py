"""A trace as rounds of sessions, and which node each round goes to. No clock, no files of its own.

The format is that of tests/traces: a JSON object a line with `timestamp` (ms), `input_length`
(tokens) and `hash_ids`, an id for each 512 tokens of the prompt. The partial last block is left
out, as no engine keeps it. A request that begins with all full blocks of an earlier request is the
next round of its session; the trace itself does not name sessions.
"""

import dataclasses
import json
import random

TOKENS_PER_BLOCK = 512
MIN_BLOCKS_TO_CONTINUE = 2  # the first one may be a system prompt, which all sessions have


@dataclasses.dataclass
class Request:
    """A round of a session."""

    session: int
    round: int
    blocks: list
    at_s: float
    node: str = ""
    moved: bool = False  # the round before went to another node
    previous: int = -1  # number of the request of the round before, -1 for the first round


def read(file):
    """Returns the requests of a trace. ValueError names the line that is no request."""
    requests, tails, rounds = [], {}, []
    for number, line in enumerate(file, 1):
        try:
            said = json.loads(line)
            full = int(said["input_length"]) // TOKENS_PER_BLOCK
            blocks, at_s = [int(one) for one in said["hash_ids"][:full]], said["timestamp"] / 1000
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"line {number} is no request of a trace: {error}") from error
        if not blocks:
            continue
        session = next((tails[block] for block in reversed(blocks) if block in tails), len(rounds))
        if session == len(rounds):
            rounds.append(0)
        if len(blocks) >= MIN_BLOCKS_TO_CONTINUE:
            tails[blocks[-1]] = session
        requests.append(Request(session, rounds[session], blocks, at_s))
        rounds[session] += 1
    return requests


def sample(requests, most):
    """Returns whole sessions from all over the trace, about `most` requests in all. The kept
    sessions are as far apart as possible."""
    counts = {}
    for one in requests:
        counts[one.session] = counts.get(one.session, 0) + 1
    share = min(1, most / max(1, len(requests)))
    kept = {session for session in counts if int((session + 1) * share) > int(session * share)}
    return [one for one in requests if one.session in kept]


@dataclasses.dataclass(frozen=True)
class Split:
    """How sessions are divided over nodes: `move` and `pause` are shares of rounds."""

    nodes: tuple
    seconds: float
    move: float = 0.2
    pause: float = 0.1
    pause_s: float = 5
    seed: int = 0


def split(requests, how):
    """Gives each request its node, its time within how.seconds, and the round before it. Rounds
    that pause, and all later ones of their session, are asked how.pause_s later."""
    chance = random.Random(how.seed)
    first = min((one.at_s for one in requests), default=0)
    span = max((one.at_s for one in requests), default=0) - first or 1
    last, later, homes = {}, {}, {}
    for number, one in enumerate(requests):
        home = homes.setdefault(one.session, how.nodes[len(homes) % len(how.nodes)])
        one.node, one.moved, one.previous = home, False, last.get(one.session, -1)
        if one.previous >= 0:
            others = [node for node in how.nodes if node != home]
            if others and chance.random() < how.move:
                one.node, one.moved = chance.choice(others), True
                homes[one.session] = one.node
            if chance.random() < how.pause:
                later[one.session] = later.get(one.session, 0) + how.pause_s
        one.at_s = (one.at_s - first) / span * how.seconds + later.get(one.session, 0)
        last[one.session] = number
    return requests


def best_hits(requests):
    """Returns how many blocks a cache that forgets nothing, shared by all nodes, would have had."""
    seen, hits = set(), 0
    for one in requests:
        hits += next((n for n, block in enumerate(one.blocks) if block not in seen),
                     len(one.blocks))
        seen.update(one.blocks)
    return hits
