#!/usr/bin/env python3
"""Real vLLM engines on a CPU with kvkeep below them: the tokens are those of vLLM without it.

    uv pip install vllm==0.33.0 --override tests/engines/vllm_override.txt
    vllm_engine_test.py --root SOURCES --build build/release       (with that environment's Python)

The model is a random-weight Llama, greedy. The cases: a cold start; a second engine beside the
first; a daemon that is killed while an engine loads, back, and away; two tensor-parallel ranks; a
daemon so small that it evicts what engines still load; routers that hear what engines stored. Each
runs with the tier, and with the direct connector with KV in host memory and in a GPU's: the fake
driver's, with which the CPU computes and from which the daemon copies (test_gpu_*). Engines are
processes of their own. Needs the targets kvkeep_c, kvkeepd, kvkeep and kvkeep_fake_cuda. About
twenty minutes.
"""

import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import unittest

import engine_process
import vllm_engine
from engine_process import PROMPTS

ASKED = engine_process.arguments(__doc__)
FAKE_DRIVER = ASKED.build / "fake-cuda" / "libcuda.so.1"
DIRECT = {"direct": {}}
ON_GPU = {**DIRECT, "gpu_driver": FAKE_DRIVER}
# Stores every chunk, however slow the daemon: by default stores may hold the blocks of 12 chunks.
KEEPS_ALL = {"direct": {"max_pinned_part": 0.5, "store_timeout_s": 60}}
# A stopped daemon is stopped for longer than that.
IMPATIENT = {"direct": {"timeout_s": 0.5, "store_timeout_s": 0.5}}
CHUNKS = 1000 // vllm_engine.CHUNK_TOKENS  # of a prompt
LONG_TOKENS = 1900


def engine(model):
    """Makes an engine, in a process of its own. A line is names of prompts, which are asked for at
    once, or "rest": vLLM's loop goes on as long as it does in a server without requests."""
    options = engine_process.options()
    connector = None
    lookup = {"lookup_timeout_s": options.get("lookup_timeout_s", 10)}  # on a busy machine
    if os.environ.get("KVKEEP_ENDPOINT") and "direct" in options:
        connector = vllm_engine.direct(**lookup, **options["direct"])
    elif os.environ.get("KVKEEP_ENDPOINT"):
        connector = vllm_engine.offloading([{**vllm_engine.KVKEEP, **lookup}],
                                           options.get("cpu", 64 << 20))
    llm = vllm_engine.make(model, connector, options.get("events"),
                           tensor_parallel_size=options.get("ranks", 1),
                           kv_cache_memory_bytes=options.get("gpu", 64 << 20))
    params = vllm_engine.sampling(engine_process.ANSWER_TOKENS)

    def answer(line):
        if line == "rest":
            while llm.llm_engine.engine_core.engine_core.scheduler.has_requests():
                llm.llm_engine.step()
            return {}
        begin = time.monotonic()
        outs = llm.generate([{"prompt_token_ids": prompt_named(name)} for name in line.split()],
                            params, use_tqdm=False)
        return {"tokens": [list(out.outputs[0].token_ids) for out in outs],
                "cached": [out.num_cached_tokens for out in outs],
                "seconds": round(time.monotonic() - begin, 3)}

    engine_process.serve(answer)


def prompt_named(name):
    """Names of prompts. p3: of 1,000 tokens. l3: a long one."""
    return engine_process.prompt(int(name[1:]), LONG_TOKENS if name[0] == "l" else 1000)


class VllmEngine(unittest.TestCase):
    SCRIPT = __file__  # of engine processes
    EXPECTED = {}  # by what was asked

    def setUp(self):
        sys.path.insert(0, str(ASKED.root / "tests" / "client" / "c"))
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.model = holder.name
        engine_process.make_model(self.model)

    def daemon(self, g2=None, g3=None, **settings):
        """Starts a daemon with other capacities, and KVKEEP_* variables."""
        from daemon import Daemon

        daemon = Daemon(ASKED.build / "bin" / "kvkeepd", {} if vllm_engine.ON_A_GPU else {
            "LD_LIBRARY_PATH": str(FAKE_DRIVER.parent.resolve())})
        daemon.settings.update(settings)
        if g2:
            daemon.settings.update({"KVKEEP_G2_CAPACITY": g2, "KVKEEP_G3_PATHS": json.dumps(
                [{"dir": f"{daemon.dir}/nvme", "capacity": g3}])})
        daemon.start()
        self.addCleanup(daemon.__exit__)
        return daemon

    def daemon_and_router(self):
        """Starts it with a router that hears of its chunks from the first one on."""
        from events_heard import EventsHeard

        endpoint = f"ipc://{self.model}/events"
        heard = EventsHeard(endpoint)
        self.addCleanup(heard.close)
        return self.daemon(KVKEEP_EVENTS_ZMQ=endpoint), heard

    def hears_engines(self):
        """Returns (a router of an engine's own events beside those of the GPU, if it publishes
        them)."""
        from daemon import free_port
        from events_heard import EventsHeard

        port = free_port()
        heard = EventsHeard(f"tcp://127.0.0.1:{port}", medium="CPU")
        self.addCleanup(heard.close)
        return heard, f"tcp://*:{port}"

    def check_heard(self, heard, told):
        """Checks that each prompt's whole chunks were reported, once, and nothing else; or
        nothing."""
        whole, per_block = CHUNKS * vllm_engine.CHUNK_TOKENS, vllm_engine.BLOCK_TOKENS
        expected = len(PROMPTS) * whole // per_block if told else 0
        deadline = time.monotonic() + 30
        while len(heard.blocks()) < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual((len(heard.blocks()), heard.again), (expected, 0))
        for prompt in PROMPTS if told else ():
            self.assertEqual(heard.matched(prompt_named(prompt), per_block), whole)

    def engine(self, endpoint, gpu_driver=None, **options):
        """gpu_driver: KV lies in the device memory of that fake driver."""
        environment = dict(vllm_engine.ENVIRONMENT, **(
            {"KVKEEP_FAKE_DRIVER": str(gpu_driver)} if gpu_driver else {}))
        made = engine_process.EngineProcess(self.SCRIPT, ASKED, self.model, endpoint, environment,
                                            options=options)
        self.addCleanup(made.close)
        return made

    def expect(self, prompts, **options):
        """Asks vLLM without kvkeep for each prompt's answer, one by one. It is the same in each
        test, as all have the same model."""
        asked = (tuple(prompts), repr(options))
        if asked not in self.EXPECTED:
            plain = self.engine(None, **options)
            self.EXPECTED[asked] = {prompt: plain.ask(prompt)["tokens"][0] for prompt in prompts}
            plain.close()
        self.expected = self.EXPECTED[asked]
        self.assertEqual(len({tuple(tokens) for tokens in self.expected.values()}), len(prompts))

    def ask(self, asked, *prompts):
        """Returns how many tokens of each prompt were not computed."""
        said = asked.ask(" ".join(prompts), quiet=len(prompts) > 1)
        self.assertEqual(said["tokens"], [self.expected[prompt] for prompt in prompts])
        return said["cached"]

    def check(self, asked, prompt, recalled):
        cached = self.ask(asked, prompt)[0]
        self.assertEqual(cached >= 800, recalled, cached)

    def wait_stored(self, asked, daemon, chunks):
        """Waits until that many chunks are in G3. vLLM stores some of them after its answers."""
        asked.ask("rest", quiet=True)
        daemon.wait_clean(chunks)

    def test_tokens_are_those_of_vllm_without_kvkeep(self):
        self.tokens_are_those_of_vllm_without_kvkeep()

    def test_direct_tokens_are_those_of_vllm_without_kvkeep(self):
        self.tokens_are_those_of_vllm_without_kvkeep(**KEEPS_ALL)

    def test_gpu_tokens_are_those_of_vllm_without_kvkeep(self):
        self.tokens_are_those_of_vllm_without_kvkeep(**{**ON_GPU, **KEEPS_ALL})

    def tokens_are_those_of_vllm_without_kvkeep(self, **options):
        self.expect(PROMPTS)
        daemon, heard = self.daemon_and_router()
        first = self.engine(daemon.endpoint, **options)
        with daemon.slowed():
            for prompt in PROMPTS:
                self.check(first, prompt, recalled=False)
        self.wait_stored(first, daemon, len(PROMPTS) * CHUNKS)
        self.check_heard(heard, told="direct" in options)
        second = self.engine(daemon.endpoint, **options)  # beside the first
        self.check(second, "p0", recalled=True)
        # Killed at some moment of a load: hit or miss, but never other tokens, nor a hang.
        killer = threading.Timer(0.03, daemon.kill)
        killer.start()
        self.ask(second, "p1")
        killer.join()
        self.ask(second, "p2")  # away
        second.close()
        daemon.start()
        daemon.wait_joined()
        third = self.engine(daemon.endpoint, **options)
        for prompt in PROMPTS:
            self.check(third, prompt, recalled=True)
        third.close()
        self.ask(first, "p0")  # it has seen two daemons

    def test_direct_routers_hear_the_engine_itself(self):
        """Chunks are reported as stored, with vLLM's own events; chunks that the daemon lost, as
        removed."""
        self.expect(PROMPTS)
        own, endpoint = self.hears_engines()
        daemon, heard = self.daemon_and_router()
        first = self.engine(daemon.endpoint, events=endpoint,
                            direct={**KEEPS_ALL["direct"], "events": "engine"})
        for prompt in PROMPTS:
            self.check(first, prompt, recalled=False)
        self.wait_stored(first, daemon, len(PROMPTS) * CHUNKS)
        self.ask(first, "p0")
        self.check_heard(own, told=True)
        self.check_heard(heard, told=False)
        daemon.clear()
        deadline = time.monotonic() + 60
        while own.blocks():
            self.assertLess(time.monotonic(), deadline)
            self.ask(first, "p0")  # an idle engine reports nothing
        second = self.engine(daemon.endpoint, direct={**KEEPS_ALL["direct"], "events": "none"})
        for prompt in PROMPTS:
            self.check(second, prompt, recalled=False)
        self.wait_stored(second, daemon, len(PROMPTS) * CHUNKS)
        second.close()
        third, endpoint = self.hears_engines()
        loads = self.engine(daemon.endpoint, direct={"events": "engine"}, events=endpoint)
        for prompt in PROMPTS:
            self.check(loads, prompt, recalled=True)
        self.ask(loads, "p0")
        self.check_heard(third, told=True)  # what it has loaded

    def test_two_tensor_parallel_ranks(self):
        self.two_tensor_parallel_ranks()

    def test_direct_two_tensor_parallel_ranks(self):
        self.two_tensor_parallel_ranks(**DIRECT)

    def test_gpu_two_tensor_parallel_ranks(self):
        self.two_tensor_parallel_ranks(**ON_GPU)

    def two_tensor_parallel_ranks(self, **options):
        """Each rank has half of the heads: a row of the wrong rank gives other tokens."""
        self.expect(PROMPTS, ranks=2)
        daemon, heard = self.daemon_and_router()
        first = self.engine(daemon.endpoint, ranks=2, **options)
        for prompt in PROMPTS:
            self.check(first, prompt, recalled=False)
        parts = 2 if "direct" in options else 1  # otherwise a row is of both ranks
        self.wait_stored(first, daemon, len(PROMPTS) * CHUNKS * parts)
        self.check_heard(heard, told="direct" in options)  # once, not by each rank
        first.close()
        daemon.restart()
        second = self.engine(daemon.endpoint, ranks=2, **options)
        for prompt in PROMPTS:
            self.check(second, prompt, recalled=True)
        second.close()
        alone = self.engine(daemon.endpoint, **options)  # other chunks of the same tokens
        self.check(alone, "p0", recalled=False)
        alone.close()
        daemon.clear()
        deadline = time.monotonic() + 30
        while heard.blocks() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(heard.blocks(), {})

    def test_direct_engines_of_other_tensor_parallelism_share(self):
        self.engines_of_other_tensor_parallelism_share(direct={"tp_parts": 2})

    def test_gpu_engines_of_other_tensor_parallelism_share(self):
        self.engines_of_other_tensor_parallelism_share(direct={"tp_parts": 2},
                                                       gpu_driver=FAKE_DRIVER)

    def engines_of_other_tensor_parallelism_share(self, **options):
        """Checks that one rank loads what two ranks have stored, and the other way round."""
        prompts = [*PROMPTS, "p7"]
        self.expect(prompts)
        daemon, heard = self.daemon_and_router()
        two = self.engine(daemon.endpoint, ranks=2, **options)
        for prompt in PROMPTS:
            self.check(two, prompt, recalled=False)
        self.wait_stored(two, daemon, len(PROMPTS) * CHUNKS * 2)
        self.check_heard(heard, told=True)
        one = self.engine(daemon.endpoint, **options)
        for prompt in PROMPTS:
            self.check(one, prompt, recalled=True)
        self.check(one, "p7", recalled=False)
        self.wait_stored(one, daemon, len(prompts) * CHUNKS * 2)
        self.check(two, "p7", recalled=True)

    def test_prompts_move_to_another_node_through_a_bucket(self):
        self.prompts_move_to_another_node_through_a_bucket()

    def test_direct_prompts_move_to_another_node_through_a_bucket(self):
        self.prompts_move_to_another_node_through_a_bucket(**DIRECT)

    def prompts_move_to_another_node_through_a_bucket(self, **options):
        """The first node is gone with its disks; the second has its fleet's key, and nothing
        else. KVKEEP_TEST_BUCKET: g4.url of a bucket or directory in place of the test's own
        directory, with KVKEEP_G4_CREDENTIALS_FILE. The model is large enough for its prefill to
        take seconds."""
        from daemon import Daemon

        engine_process.make_model(self.model, hidden_size=512, intermediate_size=2048,
                                  num_hidden_layers=8, head_dim=64)
        prompts = [f"l{number}" for number in range(3)]
        shared = tempfile.TemporaryDirectory()
        self.addCleanup(shared.cleanup)
        key = pathlib.Path(shared.name, "fleet.key")
        key.touch(mode=0o600)
        key.write_text(os.urandom(32).hex(), encoding="utf-8")
        pathlib.Path(shared.name, "bucket").mkdir()
        pathlib.Path(shared.name, "bucket", ".kvkeep").write_text("test\n", encoding="utf-8")
        beyond = {"KVKEEP_FLEET_NAME": "test", "KVKEEP_FLEET_KEY_FILE": str(key),
                  "KVKEEP_G4_ADMISSION": "all", "KVKEEP_G4_WRITE_BYTES_PER_SECOND": "1GiB",
                  "KVKEEP_G2_CAPACITY": "512MiB",
                  "KVKEEP_G4_URL": os.environ.get("KVKEEP_TEST_BUCKET",
                                                  f"file://{shared.name}/bucket")}
        self.expect(["p9", *prompts], gpu=512 << 20)
        whole = LONG_TOKENS // vllm_engine.CHUNK_TOKENS * vllm_engine.CHUNK_TOKENS
        seconds = {}
        for node in ("computes", "recalls"):
            daemon = Daemon(ASKED.build / "bin" / "kvkeepd", beyond)
            self.addCleanup(daemon.__exit__)
            daemon.start()
            asked = self.engine(daemon.endpoint, gpu=512 << 20, cpu=256 << 20, **options)
            self.ask(asked, "p9")  # costs of the first request only
            seconds[node] = 0
            for prompt in prompts:
                said = asked.ask(prompt)
                self.assertEqual(said["tokens"], [self.expected[prompt]])
                self.assertEqual(said["cached"], [whole if node == "recalls" else 0])
                seconds[node] += said["seconds"]
            if node == "computes":
                daemon.wait_beyond(CHUNKS + len(prompts) * whole // vllm_engine.CHUNK_TOKENS)
            asked.close()
            daemon.__exit__()
        print({**seconds, "ratio": round(seconds["recalls"] / seconds["computes"], 3)}, flush=True)

    def test_a_daemon_that_is_killed_stopped_and_started_at_any_moment(self):
        self.daemon_at_any_moment()

    def test_direct_a_daemon_that_is_killed_stopped_and_started_at_any_moment(self):
        self.daemon_at_any_moment(**DIRECT)

    def test_gpu_a_daemon_that_is_killed_stopped_and_started_at_any_moment(self):
        self.daemon_at_any_moment(**{**ON_GPU, **IMPATIENT})

    def daemon_at_any_moment(self, **options):
        """Kills the daemon while an engine, whose own memory has room for few prompts, loads and
        stores all the time. KVKEEP_MOMENTS: number of kills; KVKEEP_SEED: their moments."""
        moments = int(os.environ.get("KVKEEP_MOMENTS", "20"))
        seed = int(os.environ.get("KVKEEP_SEED", random.randrange(1 << 30)))
        print(f"KVKEEP_SEED={seed}", flush=True)
        prompts = [f"p{number}" for number in range(12)]
        own = {"gpu": 24 << 20, "cpu": 12 << 20}
        self.expect(prompts, **own)
        daemon = self.daemon()
        # Shorter than a daemon may be stopped.
        asked = self.engine(daemon.endpoint, lookup_timeout_s=1, **own, **options)
        order, what = random.Random(seed), random.Random(seed + 1)
        over, done = threading.Event(), {"kill": 0, "stop": 0}

        def disturb():
            while sum(done.values()) < moments:
                over.wait(what.random() * 1.2)
                kind = what.choice(("kill", "stop"))
                if kind == "kill":
                    daemon.kill()
                    over.wait(what.random() * 0.5)
                    daemon.start()
                else:
                    daemon.process.send_signal(signal.SIGSTOP)
                    over.wait(what.random() * 1.5)
                    daemon.process.send_signal(signal.SIGCONT)
                done[kind] += 1
            over.set()

        disturber = threading.Thread(target=disturb)
        disturber.start()
        cached, longest = [], 0.0
        while not over.is_set():
            begin = time.monotonic()
            cached.extend(self.ask(asked, *order.sample(prompts, 2)))
            longest = max(longest, time.monotonic() - begin)
        disturber.join()
        whole = sum(one >= 800 for one in cached)
        print({**done, "prompts": len(cached), "recalled whole": whole,
               "longest answer": round(longest, 3)}, flush=True)
        self.assertGreater(whole, moments // 10)

    def test_chunks_evicted_while_engines_load(self):
        self.chunks_evicted_while_engines_load()

    def test_direct_chunks_evicted_while_engines_load(self):
        self.chunks_evicted_while_engines_load(**DIRECT)

    def test_gpu_chunks_evicted_while_engines_load(self):
        self.chunks_evicted_while_engines_load(**ON_GPU)

    def chunks_evicted_while_engines_load(self, **options):
        """Twice as many chunks as the daemon's tiers hold, for two engines at once whose own memory
        has room for few. Both ask for any of the prompts, three at a time."""
        prompts = [f"p{number}" for number in range(36)]
        own = {"gpu": 24 << 20, "cpu": 12 << 20}
        self.expect(prompts, **own)
        daemon = self.daemon(g2="32MiB", g3="64MiB")
        engines = [self.engine(daemon.endpoint, **own, **options) for _ in range(2)]
        cached, failed = [], []

        def load(asked, seed):
            order = random.Random(seed)
            try:
                for _ in range(24):
                    cached.extend(self.ask(asked, *order.sample(prompts, 3)))
            except Exception as mistake:  # pylint: disable=broad-except  # fails the test's thread
                failed.append(mistake)

        both = [threading.Thread(target=load, args=(asked, seed))
                for seed, asked in enumerate(engines)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        self.assertEqual(failed, [])
        tenant = daemon.status()["tenants"][0]
        full, none = (sum(one >= 800 for one in cached), sum(one < 128 for one in cached))
        print({"all of a prompt": full, "a part": len(cached) - full - none, "nothing": none,
               "evicted": [tenant["g2_evictions"], tenant["g3_evictions"]]})
        self.assertEqual(len(cached), 2 * 24 * 3)
        for evictions in ("g2_evictions", "g3_evictions"):
            self.assertGreater(tenant[evictions], 50)
        self.assertGreater(full, 10)
        self.assertGreater(none, 10)


if __name__ == "__main__":
    if ASKED.engine:
        engine(ASKED.engine)
    else:
        unittest.main(argv=[sys.argv[0], "-v", *ASKED.tests])
