"""The contest of arms on one S3 server: every arm has one slice a round, and the order moves on by
one. A slice begins with nothing known, loads a run of chunks that are in the bucket, puts as many
fresh ones, and looks up keys of which some are there. Every byte that was loaded is compared.
"""

from dataclasses import dataclass
from typing import Optional

from contest import turns
from processes import Child, ChildFailed, cpu_seconds

NOBODYS = "nobody's"  # a prompt that nobody put


@dataclass
class Sample:
    """Sample of one arm in one round. `requests` is None where nobody counts them."""

    arm: str
    what: str
    size: int
    round: int
    seconds: float
    bytes: int = 0
    cpu_s: float = 0
    requests: Optional[int] = None


class ArmProcess(Child):
    """An arm, by its name; see arm.py for the commands. One that does not look up is asked to only
    for its connections' sake."""

    def __init__(self, name, command, environment, looks_up=True):
        super().__init__(name, command, environment)
        self.looks_up, self._pids = looks_up, []
        try:
            self.version = self.ask("hello")["version"]
        except ChildFailed:
            self.stop()
            raise

    def begin(self, size, chunks):
        self._pids = [self.pid, *self.ask("begin", size=size, chunks=chunks)["pids"]]

    def timed(self, what, **arguments):
        """The answer, with the CPU seconds of the arm's processes."""
        before = cpu_seconds(self._pids)
        answer = self.ask(what, **arguments)
        answer["cpu_s"] = cpu_seconds(self._pids) - before
        return answer


@dataclass
class Plan:
    sizes: list
    chunks: int
    rounds: int
    lookup_keys: int
    lookup_present: int
    lookup_bytes: int


class Contest:
    def __init__(self, plan, gateway, say):
        self._plan, self._gateway, self._say = plan, gateway, say
        self.samples, self.wrong_bytes, self.failures = [], 0, {}

    def run(self, arms):
        """An arm that fails is stopped, and out from then on; `failures` has the reason."""
        plan = self._plan
        for size in plan.sizes:
            self._section(arms, size, plan.chunks)
        self._section([arm for arm in arms if arm.looks_up], plan.lookup_bytes,
                      plan.lookup_present, plan.lookup_keys)

    def _section(self, arms, size, chunks, keys=None):
        for arm in arms:
            self._guarded(arm, lambda a=arm: self._prepare(a, size, chunks))
        kept = self._gateway.names()
        for turn, arm in turns(self._plan.rounds, arms):
            self._guarded(arm, lambda a=arm, t=turn: self._slice(a, t, size, chunks, keys))
            self._gateway.remove_all_but(kept)

    def _guarded(self, arm, step):
        if arm.name in self.failures:
            return
        try:
            step()
        except ChildFailed as failure:
            self._say(str(failure))
            self.failures[arm.name] = str(failure)
            arm.stop()  # what it may still do would be on the others' time

    def _prepare(self, arm, size, chunks):
        """Puts the chunks that are loaded later into the bucket."""
        self._say(f"{arm.name}: {chunks} x {size >> 10} KiB are put, to be loaded later")
        arm.begin(size, chunks)
        arm.ask("put", prompt=f"kept-{size}", chunks=chunks)
        arm.ask("end")

    def _slice(self, arm, turn, size, chunks, keys):
        """A recall, a load and a put of `chunks`; of more `keys`, if any, a lookup, and a load of
        those chunks, which are there."""
        self._say(f"round {turn + 1}: {arm.name}, {keys or chunks} x {size >> 10} KiB")
        arm.begin(size, chunks)
        arm.ask("lookup", prompt=NOBODYS, keys=chunks)  # connections are nobody's time
        prompt, total = f"kept-{size}", chunks * size
        before = self._gateway.requests()
        found = self._look_up(arm, prompt, keys or chunks, chunks)
        if keys:  # to count takes a while, in which a recall could get ahead
            self._keep(arm, "lookup", size, turn, found, 0, self._since(before))
        loaded = arm.timed("load", prompt=prompt, chunks=chunks)
        self._compare(arm, chunks)
        both = {name: found[name] + loaded[name] for name in ("seconds", "cpu_s")}
        if keys:
            self._keep(arm, "lookup+load", size, turn, both, 0, self._since(before))
        else:
            self._keep(arm, "recall", size, turn, both, total, self._since(before))
            self._keep(arm, "load", size, turn, loaded, total)
            before = self._gateway.requests()
            put = arm.timed("put", prompt=f"fresh-{size}-{turn}", chunks=chunks)
            self._keep(arm, "put", size, turn, put, total, self._since(before))
        arm.ask("end")

    def _look_up(self, arm, prompt, keys, present):
        if not arm.looks_up:
            return {"seconds": 0, "cpu_s": 0}
        found = arm.timed("lookup", prompt=prompt, keys=keys)
        if found["found"] != present:
            raise ChildFailed(f"{arm.name} finds {found['found']} chunks, and {present} are there")
        return found

    def _compare(self, arm, chunks):
        wrong = arm.ask("compare", chunks=chunks)["wrong_bytes"]
        if wrong:
            self._say(f"{arm.name}: {wrong} WRONG BYTES")
        self.wrong_bytes += wrong

    def _since(self, before):
        return None if before is None else self._gateway.requests() - before

    def _keep(self, arm, what, size, turn, took, total, requests=None):
        self.samples.append(Sample(arm.name, what, size, turn, took["seconds"], total,
                                   took["cpu_s"], requests))
