"""One arm's engine, a process of its own, which answers a line of JSON with another. Run by
gpu_serve.arms only, with torch and with kvkeep's client on its path.

start, then for each number of users fill and play; or for each length prefill, recall and forget.
"""

import asyncio
import hashlib
import json
import pathlib
import statistics
import sys

TOOLS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOOLS), str(TOOLS / "engine-bench"), str(TOOLS / "measure"),
                str(TOOLS.parent / "client" / "python")]

import torch  # noqa: E402
from gpu_serve.blocks import BlockPool, Prefix  # noqa: E402
from gpu_serve.engine import Engine  # noqa: E402
from gpu_serve.meter import meter_of  # noqa: E402
from gpu_serve.model import Model  # noqa: E402
from gpu_serve.paged import PagedCache, check_attention  # noqa: E402
from gpu_serve.runner import KERNELS, Runner  # noqa: E402
from gpu_serve.scheduler import Limits  # noqa: E402
from gpu_serve.shapes import SHAPES  # noqa: E402
from gpu_serve.store import KvkeepStore  # noqa: E402
from load import Load  # noqa: E402
from processes import serve  # noqa: E402
from torch.nn.attention import sdpa_kernel  # noqa: E402
from users import Users  # noqa: E402

GAP_DIGITS = 4
AT_ONCE_QPS = 1e6


def name_of(prompt):
    """Names a question in all arms, which are all asked the same."""
    return hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:16]


def heard_of(words):
    """{"user,round": tokens} as Users has it, and back by `heard_words`."""
    return {tuple(map(int, key.split(","))): tokens for key, tokens in words.items()}


def heard_words(heard):
    return {f"{user},{number}": tokens for (user, number), tokens in heard.items()}


def device_facts(device):
    facts = {"torch": torch.__version__, "device": "cpu", "uuid": None,
             "threads": torch.get_num_threads()}
    if device == "cuda":
        found = torch.cuda.get_device_properties(0)
        uuid = str(found.uuid)
        facts |= {"device": found.name, "cuda": torch.version.cuda,
                  "uuid": uuid if uuid.startswith("GPU-") else f"GPU-{uuid}",
                  "gpu_bytes": found.total_memory}
    return facts


async def _nothing(_prompt, _answer_tokens):
    return {"tokens": [], "gaps": []}


def fake_memory(driver):
    """Memory of the tests' fake GPU, or None without a driver."""
    if not driver:
        return None
    sys.path.insert(0, str(TOOLS.parent / "tests" / "gpu"))
    from torch_on_fake import FakeMemory

    return FakeMemory(driver)


class Worker:
    def __init__(self):
        self._users = self._meter = self._store = self._computed = None

    def answer(self, command):
        done = {name: value for name, value in command.items() if name != "do"}
        return getattr(self, command["do"])(**done)

    def start(self, shape, device, exact, seed, kv_bytes, budget, rows, keeps, endpoint, threads,
              fake_driver):
        """keeps: whether the GPU's cache finds prefixes again. endpoint: of the daemon, or "".
        fake_driver: a library, or ""."""
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if threads:
            torch.set_num_threads(threads)
        self._keeps = keeps or bool(endpoint)
        if exact:
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # slow, and of no use here
        self._shape = SHAPES[shape]
        model = Model(self._shape, device, seed)
        blocks = kv_bytes // self._shape.block_bytes
        self._cache = PagedCache(self._shape, blocks, device, fake_memory(fake_driver))
        self._pool = BlockPool(blocks, keeps)
        limits = Limits(self._shape.block_tokens, self._shape.chunk_tokens, budget, rows, exact)
        self._runner = Runner(model, self._cache, exact, rows, self._shape.chunk_tokens)
        self._warm_up(limits)
        if endpoint:
            self._store = KvkeepStore(self._cache, endpoint)
        self._pool = BlockPool(blocks, keeps)
        self._engine = Engine(self._pool, limits, self._runner, self._store)
        facts = device_facts(device)
        self._meter = meter_of(facts["uuid"])
        return facts | {
            "kv_blocks": blocks, "path": self._store.path if self._store else "",
            "energy": self._meter.said if self._meter else "not counted"}

    def _warm_up(self, limits):
        """Loads and chooses kernels: prompts of a step's size, then a few sequences at a time."""
        with sdpa_kernel(KERNELS):
            check_attention(self._shape, self._cache.all.device)
        engine = Engine(BlockPool(self._cache.blocks), limits, self._runner)
        longest = max(1, min(limits.budget * 2, self._shape.positions - 64,
                             self._cache.blocks * self._shape.block_tokens // 4))
        prompts = [[3 + at] * (longest if at == 0 else 32) for at in range(min(4, limits.rows))]
        for asked in [engine.ask(prompt, 8) for prompt in prompts]:
            asked.result()
        engine.stop()
        self._runner.synchronize()

    # ---- users

    def fill(self, load, gap_s, heard):
        """Each user's first question, all of them at once: their histories come in. Nothing is
        measured. An engine that keeps nothing is not asked what is known."""
        self.forget()
        self._load = Load(**load)
        self._heard = heard_of(heard)
        self._users = Users(self._load, self._load.users / gap_s, self._heard)
        known = all((user, 0) in self._heard for user in range(self._load.users))
        ask = self._ask if self._keeps or not known else _nothing
        seconds = asyncio.run(self._users.play(range(1), ask, qps=AT_ONCE_QPS))
        self._engine.settle()
        return {"seconds": seconds, "said": {} if ask is _nothing else self._said(0)}

    async def _ask(self, prompt, answer_tokens):
        return await asyncio.wrap_future(self._engine.ask(prompt, answer_tokens))

    def play(self):
        """All further rounds, at their pace."""
        before, users = self._counts(), self._users
        first = len(users.said)
        joules = self._meter.joules() if self._meter else None
        seconds = asyncio.run(users.play(range(1, self._load.rounds), self._ask))
        spent = self._meter.joules() - joules if self._meter else None
        after = self._counts()  # before what is still to be saved
        self._engine.settle()
        return {"seconds": seconds, "joules": spent, "heard": heard_words(self._heard),
                "prompt_tokens": list(map(len, users.prompts[first:])), "said": self._said(first),
                "requests": [{name: one[name] for name in ("ttft_s", "itl_s", "cached", "recalled")}
                             | {"tokens": len(one["tokens"])} for one in users.said[first:]],
                "counts": {name: after[name] - before[name] for name in after}}

    def _said(self, first):
        """{question: [tokens, gaps]} of the answers from `first` on."""
        users = self._users
        return {name_of(prompt): [one["tokens"], [round(gap, GAP_DIGITS) for gap in one["gaps"]]]
                for prompt, one in zip(users.prompts[first:], users.said[first:])}

    def _counts(self):
        return {"prefilled_tokens": self._engine.prefilled, "steps": self._engine.steps,
                **(self._store.counts if self._store else {})}

    def forget(self):
        """Nothing of before is in the GPU's cache."""
        self._engine.settle()
        self._pool.forget_all()
        return {}

    # ---- one prompt: computed, or recalled

    def prefill(self, tokens):
        """Time to the first token of a prompt that nothing has anything of; the store has it
        then."""
        self.forget()
        said = self._one(tokens)
        self._engine.settle()
        self._computed = self._sums(tokens)
        return said

    def recall(self, tokens, times=1):
        """The same, of a prompt that the store has; the GPU's cache has nothing of it. same_kv:
        every byte that came is as it was computed."""
        answers = []
        for _ in range(times):
            self.forget()
            answers.append(self._one(tokens))
        self._engine.settle()
        came = answers[-1]["recalled"] // self._shape.block_tokens
        return dict(answers[-1], ttft_s=statistics.median(one["ttft_s"] for one in answers),
                    same_kv=self._sums(tokens)[:came] == self._computed[:came])

    def _sums(self, tokens):
        """Sums of the blocks of that length's prompt, which the GPU's cache has."""
        prefix = Prefix(self._shape.block_tokens)
        prefix.extend(self._prompt(tokens))
        return self._cache.sums_of(self._pool.find(prefix.digests))

    def _prompt(self, tokens):
        return Load(users=1, vocabulary=self._shape.vocabulary).say(tokens, "length", tokens)

    def _one(self, tokens):
        before = self._counts()
        said = self._engine.ask(self._prompt(tokens), 1).result()
        after = self._counts()
        return {"ttft_s": said["ttft_s"], "cached": said["cached"], "recalled": said["recalled"],
                "token": said["tokens"][0], "gap": said["gaps"][0],
                "from_g3_chunks": after.get("from_g3_chunks", 0) - before.get("from_g3_chunks", 0)}

    def stop(self):
        self._engine.stop()
        if self._store is not None:
            self._store.close()
        if self._meter is not None:
            self._meter.close()
        return {}


if __name__ == "__main__":
    serve(Worker().answer)
