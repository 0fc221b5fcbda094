"""Runs arms: for each a daemon if it wants one, and a worker process with the engine.

    recompute   nothing is kept: every prompt is computed from its first token
    gpu         what the paged cache in the GPU still has of a prompt is found again
    kvkeep-g2   that, and kvkeep below it with its memory alone
    kvkeep-g3   that, and kvkeep below it with little memory, and NVMe
    lengths     one prompt of each length: computed, recalled from G2, recalled from NVMe

No torch in this process. A worker that is not done when the time is up is killed, and what it was
at is not kept; the next run begins there.
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

from gpu_serve import results
from gpu_serve.shapes import SHAPES

TOOLS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOOLS), str(TOOLS / "engine-bench"), str(TOOLS / "measure")]

import figures  # noqa: E402  # pylint: disable=wrong-import-position
from daemon import Daemon, built  # noqa: E402  # pylint: disable=wrong-import-position
from processes import Child, ChildFailed, run  # noqa: E402  # pylint: disable=wrong-import-position

ARMS = ("recompute", "gpu", "kvkeep-g2", "kvkeep-g3")
LENGTHS = "lengths"
BOUND_S = 1.0  # of TTFT's p90, for users
LOOK_S = 0.05  # between two looks at the daemon, which tells of no end
START_S = 25  # of a worker, more or less: below that none is started
RECALLS = 3  # from G2, of which the median counts
EVERYTHING = "1024TiB"


class TimeIsUp(Exception):
    """The next run goes on."""


class Clock:
    def __init__(self, minutes):
        self._ends = time.monotonic() + 60 * minutes

    @property
    def left_s(self):
        return self._ends - time.monotonic()

    def need(self, seconds):
        if self.left_s < seconds:
            raise TimeIsUp(f"{self.left_s:.0f} s are left, and {seconds:.0f} wanted")


class KeptBy:
    """A daemon of an arm's own. g3_bytes: 0 for none."""

    def __init__(self, clock, folder, g2_bytes, g3_dir, g3_bytes, fake_driver=None):
        self._clock = clock
        self._g3 = tempfile.TemporaryDirectory(prefix="kvkeep-gpu-serve-", dir=g3_dir)
        config = {"g2": {"capacity": str(g2_bytes), "arena": "memfd", "dirty_budget": "100%"},
                  "limits": {"leased_bytes": "90%", "reserved_bytes": "50%", "staging": "100%"}}
        if g3_bytes:
            config["g3"] = {"paths": [{"dir": f"{self._g3.name}/nvme", "capacity": str(g3_bytes)}]}
        environment = None
        if fake_driver is not None:
            environment = {"LD_LIBRARY_PATH": str(pathlib.Path(fake_driver).parent)}
            config["gpu"] = {"mode": "required"}
        self._daemon = Daemon(folder, config, metrics=False, environment=environment)
        self.endpoint = self._daemon.endpoint
        self._tool("wait", "--devices")

    def close(self):
        self._daemon.stop()
        self._g3.cleanup()

    def clear(self):
        self._daemon.clear()

    def wait_written(self):
        """Until everything is on NVMe, too, as far as it has room."""
        for _ in range(2):
            self._wait(lambda said: said["g2"]["dirty_bytes"] == 0)

    def only_on_nvme(self):
        """Waits for that, then empties G2."""
        self.wait_written()
        self._tool("evict", EVERYTHING, "--tier", "g2", "--yes")

    def wait_registered(self):
        """Until the driver has registered G2, or refused to: before, copies are slow."""
        self._wait(lambda said: said["counters"].get("gpu_arena_registered_bytes", 0)
                   + said["counters"].get("gpu_arena_refused_bytes", 0)
                   >= said["g2"]["capacity_bytes"])

    def _wait(self, is_done):
        while not is_done(said := self._tool("status")):
            if self._clock.left_s <= 0:
                raise TimeIsUp(f"the daemon is not done: {said['g2']}")
            time.sleep(LOOK_S)

    def _tool(self, *words):
        said, code = run([built("bin/kvkeep"), "--admin", self._daemon.admin_endpoint, "--json",
                          *words], 120)
        if code != 0:
            raise OSError(f"kvkeep {words[0]}: {said}")
        return json.loads(said)


class Worker:
    """The engine's process. Every answer comes before the clock's end, or it is killed."""

    def __init__(self, python, clock):
        self._clock = clock
        self._child = Child("worker", [python, "-B", TOOLS / "gpu_serve" / "worker.py"],
                            patience_s=0, environment={
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # for --check
                "KVKEEP_CLIENT_LIBRARY": str(built("lib/libkvkeep-client.so.1"))})

    def ask(self, what, **arguments):
        left_s = self._clock.left_s
        try:
            return self._child.ask(what, beyond_s=max(left_s, 0), **arguments)
        except ChildFailed:
            if self._clock.left_s <= 0:
                raise TimeIsUp(f"{what} is not done") from None
            raise

    def kill(self):
        self._child.kill()


class Arm:
    """A context manager: the daemon, if any, and the worker, started."""

    def __init__(self, name, asked, clock, folder):
        """asked: the options of tools/gpu-serve, with sizes in bytes."""
        self.name, self._kept_by, self._worker = name, None, None
        clock.need(START_S if asked.shape != "tiny" else 1)
        sizes = {}
        try:
            if name not in ("recompute", "gpu"):
                both = name == LENGTHS
                g2_bytes = asked.g2_small_bytes if name == "kvkeep-g3" else asked.g2_bytes
                if both:  # no more than the longest prompt wants: memory takes time to register
                    g2_bytes = min(g2_bytes, room_for_lengths(asked))
                g3_bytes = asked.g3_bytes if both or name == "kvkeep-g3" else 0
                self._kept_by = KeptBy(clock, folder, g2_bytes, asked.g3_dir, g3_bytes,
                                       asked.fake_driver)
                sizes = {"g2_bytes": g2_bytes, "g3_bytes": g3_bytes}
            self._worker = Worker(asked.torch_python, clock)
            self.facts = sizes | self._worker.ask(
                "start", shape=asked.shape, device=asked.device, exact=asked.check,
                seed=asked.seed, kv_bytes=asked.kv_bytes, budget=asked.step_tokens,
                rows=asked.rows, keeps=name != "recompute", threads=asked.threads,
                fake_driver=str(asked.fake_driver or ""),
                endpoint=self._kept_by.endpoint if self._kept_by else "")
            if self.facts["path"] == "CUDA IPC":
                self._kept_by.wait_registered()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        try:
            if failure is None:
                self._worker.ask("stop")
        finally:
            self.close()

    def close(self):
        if self._worker is not None:
            self._worker.kill()
        if self._kept_by is not None:
            self._kept_by.close()

    def users(self, load, gap_s, heard):
        """A row of results for so many users, what they heard, and what was said."""
        if self._kept_by is not None:
            self._kept_by.clear()
        filled = self._worker.ask("fill", load=load, gap_s=gap_s, heard=heard)
        if self.name == "kvkeep-g3":
            self._kept_by.only_on_nvme()
        played = self._worker.ask("play")
        return row_of(self.name, load, filled, played), played["heard"], {
            **filled["said"], **played["said"]}

    def length(self, tokens):
        """A row of one length."""
        self._kept_by.clear()
        computed = self._worker.ask("prefill", tokens=tokens)
        row = {"tokens": tokens, "computed_s": computed["ttft_s"], "equal": True,
               "same_kv": True, "gap": computed["gap"]}
        self._kept_by.wait_written()
        for name, times in (("g2", RECALLS), ("nvme", 1)):
            seconds = []
            for _ in range(RECALLS // times):
                if name == "nvme":
                    self._kept_by.only_on_nvme()
                said = self._worker.ask("recall", tokens=tokens, times=times)
                seconds.append(said["ttft_s"])
                row[f"{name}_recalled"] = said["recalled"]
                row[f"{name}_from_g3_chunks"] = said["from_g3_chunks"]
                row["equal"] = row["equal"] and said["token"] == computed["token"]
                row["same_kv"] = row["same_kv"] and said["same_kv"]
            row[f"{name}_s"] = statistics.median(seconds)
        return row


def room_for_lengths(asked):
    """Bytes of G2 that the longest prompt wants, with some to spare."""
    return max(asked.lengths) * SHAPES[asked.shape].token_bytes * 3 // 2 + (1 << 27)


def row_of(name, load, filled, played):
    """The figures of one arm and number of users."""
    requests = played["requests"]
    asked = [[0] * tokens for tokens in played["prompt_tokens"]]
    counted = figures.of_round(name, 0, asked, played["seconds"], [
        dict(one, tokens=[0] * one["tokens"]) for one in requests])
    tokens = sum(one["tokens"] for one in requests)
    del counted["round"]
    return {**counted, "users": load["users"], **figures.percentiles(requests),
            "requests": len(requests), "answer_tokens": tokens, "seconds": played["seconds"],
            "fill_s": filled["seconds"], "prompt_tokens": sum(played["prompt_tokens"]),
            "recalled_tokens": sum(one["recalled"] for one in requests),
            "joules_per_token": played["joules"] / tokens if played["joules"] else None,
            **played["counts"]}


def numbers_of_users(first, factor, most):
    """first, then each time more by the factor, up to `most`."""
    number = first
    while number <= most:
        yield number
        number = max(number + 1, round(number * factor))


def run_users(name, asked, clock, kept, folder, say):
    """One arm, from the number of users that it is not measured at yet until its bound breaks."""
    rows = {row["users"]: row for row in kept.rows(name)}
    left = [count for count in numbers_of_users(asked.users, asked.factor, asked.most_users)
            if count not in rows]
    if not left or any(row["ttft_p90_s"] > BOUND_S for row in rows.values()):
        return
    with Arm(name, asked, clock, folder) as arm:
        kept.facts_of(name, arm.facts)
        say(results.line_of_facts(name, arm.facts))
        expected_s = asked.gap_s * asked.rounds
        for count in left:
            load, began = asked.load_of(count), clock.left_s
            clock.need(expected_s)
            row, heard, said = arm.users(load, asked.gap_s, kept.heard(count))
            kept.add(row, heard, said)
            expected_s = asked.factor * (began - clock.left_s)
            say(results.line_of(row))
            if row["ttft_p90_s"] > BOUND_S:
                break


def run_lengths(asked, clock, kept, folder, say):
    shape = SHAPES[asked.shape]
    fits = min(asked.kv_bytes // shape.token_bytes, asked.g2_bytes * 8 // 10 // shape.token_bytes,
               asked.g3_bytes * 8 // 10 // shape.token_bytes, shape.positions) - shape.block_tokens
    done = {row["tokens"] for row in kept.lengths()}
    left = [tokens for tokens in asked.lengths if tokens not in done and tokens <= fits]
    if not left:
        return
    with Arm(LENGTHS, asked, clock, folder) as arm:
        kept.facts_of(LENGTHS, arm.facts)
        say(results.line_of_facts(LENGTHS, arm.facts))
        expected_s = 0
        for tokens in left:
            clock.need(expected_s)
            began = clock.left_s
            row = arm.length(tokens)
            kept.add_length(row)
            say(results.line_of_length(row))
            expected_s = 2 * (began - clock.left_s)


def run_all(asked, clock, kept, say):
    """The arms that were asked for, as far as time allows. False: there is more to do."""
    with tempfile.TemporaryDirectory(prefix="gpu-serve-") as folder:
        try:
            for name in asked.arms:
                if name == LENGTHS:
                    run_lengths(asked, clock, kept, folder, say)
                else:
                    run_users(name, asked, clock, kept, folder, say)
        except TimeIsUp as why:
            say(f"time is up ({why}): the same command goes on from here")
            return False
    return True
