#!/usr/bin/env python3
"""Makes one trace of recorded sessions of coding agents, as `kvkeep simulate` reads it.

    git clone https://github.com/callanjfox/kv-cache-tester
    tests/traces/agents.py kv-cache-tester/traces > agents.jsonl

Takes 180 of the sessions, drawn by --seed, and starts each at a moment drawn from --hours. A chunk
is 512 tokens: eight of their blocks. Blocks are numbered within a session, so sessions share
nothing: their common beginning (tools, system prompt) counts once for each.
"""

import argparse
import json
import pathlib
import random
import sys

BLOCKS_PER_CHUNK = 8  # of 64 tokens


def chain_of(session, blocks, ids):
    chain, before = [], None
    for begin in range(0, len(blocks), BLOCKS_PER_CHUNK):
        part = tuple(blocks[begin:begin + BLOCKS_PER_CHUNK])
        before = ids.setdefault((session, before, part), len(ids))
        chain.append(before)
    return chain


def requests_of(listed):
    """Also yields the requests of its subagents, whose times count from the session's start."""
    for request in listed:
        if "hash_ids" in request:
            yield request
        else:
            yield from requests_of(request.get("requests", []))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sessions", type=int, default=180)
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    files = sorted(options.folder.glob("*.json"))
    ids, requests = {}, []
    for file in rng.sample(files, min(options.sessions, len(files))):
        start = rng.uniform(0, options.hours * 3600)
        for request in requests_of(json.loads(file.read_text())["requests"]):
            chain = chain_of(file.name, request["hash_ids"], ids)
            if chain:
                requests.append((start + request.get("t", 0), request.get("out", 0), chain))
    for at, out, chain in sorted(requests, key=lambda request: request[0]):
        print(json.dumps({"timestamp": int(at * 1000), "input_length": 512 * len(chain),
                          "output_length": max(1, out), "hash_ids": chain}))
    print(f"{len(requests)} requests, {len(ids)} distinct chunks", file=sys.stderr)


if __name__ == "__main__":
    main()
