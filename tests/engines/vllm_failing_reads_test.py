#!/usr/bin/env python3
"""Real vLLM engines on a CPU with kvkeep below them, whose reads of NVMe fail with EIO.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_failing_reads_test.py --root SOURCES --build build/release
                                                                (with that environment's Python)

Prefixes are on NVMe alone. Reads fail at random moments: the first reads of a lookup's lease, reads
after the first pieces of a prefix, and reads some milliseconds after the request. This is tried for
one request, and for two at once that share the prefix. Then all reads fail, until the device is
offline, and comes back. The tokens are those of vLLM without kvkeep, every request ends, and
afterwards the engine and the daemon recall everything. KVKEEP_ROUNDS: number of rounds (30 by
default); KVKEEP_SEED: their moments. Tests the direct connector, with KV in host memory and in the
fake driver's (test_gpu_*), and the tier. Needs the targets kvkeep_c, kvkeepd, kvkeep and
kvkeep_fake_cuda, and a C compiler.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
import unittest

import engine_process
import vllm_asked
import vllm_engine
import vllm_engine_test as engines
from failing_reads import FailingReads

TOKENS = 8
WHOLE = 7 * vllm_engine.CHUNK_TOKENS  # of each prompt
PROMPTS = 8
BLOCK_BYTES = 4 * 2 * 4 * 32 * 4 * vllm_engine.BLOCK_TOKENS  # of make_model's model
GPU = 80 * BLOCK_BYTES  # has room for two prompts
CPU = 24 * vllm_engine.BLOCKS_PER_CHUNK * BLOCK_BYTES  # with the tier: for three
LONGEST_S = 60.0  # for an answer; a load ends after 30 s at the latest
ALL = (1 << 32) - 1
LOOKUP = {"lookup_timeout_s": 10}
DIRECT = {"direct": {**LOOKUP, "max_pinned_part": 0.5}}  # all blocks of a prompt, in one step
ON_GPU = {**DIRECT, "gpu_driver": engines.FAKE_DRIVER}
TIER = {"tiers": [{**vllm_engine.KVKEEP, **LOOKUP}]}


def one(number):
    return f"{number}:1000"


def sibling(number):
    """Returns a prompt that shares the whole chunks of the first one."""
    return f"{number}:{WHOLE}+{number + 500}:{1000 - WHOLE}"


class FailingReadsTest(unittest.TestCase):
    SCRIPT = __file__
    EXPECTED = {}  # prompt: tokens
    setUp = engines.VllmEngine.setUp
    engine = engines.VllmEngine.engine

    def expect(self):
        """Asks vLLM without kvkeep for the answers; the same in each test."""
        prompts = [name(number) for number in range(PROMPTS) for name in (one, sibling)]
        if not self.EXPECTED:
            plain = self.engine(None)
            for prompt in prompts:
                self.EXPECTED[prompt] = self.said(plain, [prompt])["tokens"][0]
            plain.close()
        self.assertEqual(len(set(map(tuple, self.EXPECTED.values()))), len(prompts))

    @staticmethod
    def said(asked, prompts):
        return asked.ask(json.dumps({"ask": prompts, "tokens": TOKENS}), quiet=True)

    def check(self, asked, prompts):
        said = self.said(asked, prompts)
        self.assertEqual(said["tokens"], [self.EXPECTED[prompt] for prompt in prompts])
        self.assertLess(said["seconds"], LONGEST_S)
        return said

    def only_on_nvme(self, daemon):
        """Evicts G2 once everything is written back, so that kept chunks are in G3."""
        while daemon.status()["g2"]["dirty_bytes"]:
            time.sleep(0.02)
        subprocess.run([*daemon._tool(), "evict", "--yes", "--tier", "g2", "64MiB"], check=True,
                       capture_output=True)

    @staticmethod
    def wait_read(daemon):
        """Waits until the device is read again: it is opened anew some seconds after it went
        offline. A device that had an error is degraded until it was read or written."""
        deadline = time.monotonic() + 120
        while True:
            states = [device["state"] for device in daemon.status()["devices"]]
            if states in (["ok"], ["degraded"]):
                return
            if time.monotonic() > deadline:
                raise AssertionError(states)
            time.sleep(0.1)

    def test_direct(self):
        self.reads_fail(**DIRECT)

    def test_gpu(self):
        self.reads_fail(**ON_GPU)

    def test_tier(self):
        self.reads_fail(**TIER)

    def reads_fail(self, **options):
        rounds = int(os.environ.get("KVKEEP_ROUNDS", "30"))
        seed = int(os.environ.get("KVKEEP_SEED", random.randrange(1 << 30)))
        print(f"KVKEEP_SEED={seed}", flush=True)
        self.expect()
        reads = FailingReads(self.model)
        daemon = engines.VllmEngine.daemon(self, g2="32MiB", g3="256MiB", **reads.settings)
        asked = self.engine(daemon.endpoint, gpu=GPU, cpu=CPU, **options)
        self.store_all(daemon, asked)
        drawn, done = random.Random(seed), {"rounds": 0, "with failed reads": 0, "requests": 0,
                                            "part recalled": 0, "whole": 0, "longest": 0.0}
        for at in range(rounds):
            self.one_round(at, drawn, daemon, reads, asked, done)
        done["failed reads"] = reads.failed
        self.all_reads_fail(daemon, reads, asked)
        said = self.well_again(daemon, asked, options)
        print(done, said["failed"], flush=True)
        self.assertGreater(done["with failed reads"], rounds // 2)
        self.assertGreater(done["whole"] + done["part recalled"], 0)

    def store_all(self, daemon, asked):
        """Waits until all whole chunks of the prompts are in G3. An engine with so little memory
        skips some stores, and the last ones of a request go with the next one."""
        deadline = time.monotonic() + 120
        while daemon.status()["g3"]["chunks"] < PROMPTS * WHOLE // vllm_engine.CHUNK_TOKENS:
            self.assertLess(time.monotonic(), deadline)
            for number in [*range(PROMPTS), 0]:
                said = self.check(asked, [one(number)])
            self.only_on_nvme(daemon)
        return said

    def one_round(self, at, drawn, daemon, reads, asked, done):
        self.wait_read(daemon)
        self.only_on_nvme(daemon)
        number = (at + 1) % PROMPTS  # the one asked for longest ago: vLLM has it no more
        prompts = drawn.choice(([one(number)], [one(number), sibling(number)],
                                [one(number), one(number)],
                                [one(number), sibling(number), sibling(number)]))
        reads.slow(drawn.choice((0, 0.002, 0.02)))
        # Three in a row take the device offline, which is rare here.
        fail, after = drawn.choice((1, 1, 2)), drawn.choice((0, 0, 1, 2, 3, 5, 6))
        wait_s = drawn.choice((0, 0, 0, 0.005, 0.02, 0.05))
        before = reads.failed
        timer = threading.Timer(wait_s, reads.fail, (fail, after))
        timer.start() if wait_s else reads.fail(fail, after)
        said = self.check(asked, prompts)
        timer.cancel()
        reads.fail(0)
        done["rounds"] += 1
        done["with failed reads"] += reads.failed > before
        done["requests"] += len(prompts)
        done["whole"] += sum(cached >= WHOLE for cached in said["cached"])
        done["part recalled"] += sum(0 < cached < WHOLE for cached in said["cached"])
        done["longest"] = max(done["longest"], said["seconds"])

    def all_reads_fail(self, daemon, reads, asked):
        """Nothing is recalled; the daemon goes on."""
        self.only_on_nvme(daemon)
        reads.slow(0)
        before = reads.failed
        reads.fail(ALL)
        for number in range(PROMPTS):
            self.check(asked, [one(number), sibling(number)])
        reads.fail(0)
        self.assertGreater(reads.failed, before)

    def well_again(self, daemon, asked, options):
        """Checks that unreadable chunks were stored anew: another engine recalls all of them."""
        self.wait_read(daemon)
        self.assertIsNone(daemon.process.poll())
        deadline = time.monotonic() + 120
        while True:
            for number in [*range(PROMPTS), 0]:
                said = self.check(asked, [one(number)])
            self.only_on_nvme(daemon)
            second = self.engine(daemon.endpoint, gpu=GPU, cpu=CPU, **options)
            cached = [self.check(second, [one(number)])["cached"][0] for number in range(PROMPTS)]
            second.close()
            if min(cached) >= WHOLE:
                return said
            print({"recalled by another engine": cached}, flush=True)
            self.assertLess(time.monotonic(), deadline)


if __name__ == "__main__":
    if engines.ASKED.engine:
        engine_process.serve(vllm_asked.Engine(engines.ASKED.engine).answer)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *engines.ASKED.tests])
