#!/usr/bin/env python3
"""vLLM on a CPU with kvkeep below it beside what else could keep its KV; see README.md.

    tools/engine-bench/run sessions|recall|no-hit [--quick] [--json FILE] [--svg FILE] [--check]

Exit code 1: with --check, a promise that did not hold. Only ratios mean anything.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "engines"), str(ROOT / "tests" / "client" / "c"),
                str(ROOT / "tools" / "compare")]

import arms  # noqa: E402
import engine_process  # noqa: E402
import figures  # noqa: E402
import report  # noqa: E402
from load import Load  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Scale:
    """A model whose prefill costs as much as memory is slow, or (quick) a toy."""

    model: dict
    llm: dict
    cpu_bytes: int
    tier_bytes: int
    load: Load
    prompt_tokens: int  # of recall and no-hit
    answer_tokens: int  # of no-hit
    rounds: int  # of recall and no-hit

    @property
    def vocabulary(self):
        return self.model["vocab_size"]


FULL = Scale(
    model={"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
           "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
           "vocab_size": 32000, "max_position_embeddings": 8192, "initializer_range": 0.05},
    llm={"dtype": "bfloat16", "max_model_len": 8192, "max_num_batched_tokens": 8192,
         "kv_cache_memory_bytes": 512 << 20},
    cpu_bytes=256 << 20, tier_bytes=1 << 30, load=Load(), prompt_tokens=4000, answer_tokens=64,
    rounds=9)
QUICK = Scale(
    model={"max_position_embeddings": 4096, "vocab_size": 1000},
    llm={"dtype": "float32", "max_model_len": 4096, "max_num_batched_tokens": 4096},
    cpu_bytes=64 << 20, tier_bytes=256 << 20,
    load=Load(users=2, rounds=2, system_tokens=256, history_tokens=1024, answer_tokens=8,
              vocabulary=1000),
    prompt_tokens=1000, answer_tokens=16, rounds=2)


def in_turn(names, number):
    """Everybody is first, second, ... as often as the others."""
    at = number % len(names)
    return names[at:] + names[:at]


class Bench:
    """One scenario's rows. arm(name): one that is closed in the end."""

    def __init__(self, asked, model, holder):
        self.scale = QUICK if asked.quick else FULL
        self.rounds = asked.rounds or self.scale.rounds
        self.rows, self._arms = [], {}
        self._make = lambda name: holder.enter_context(contextlib.closing(
            arms.Arm(name, asked, model, self.scale)))

    def arm(self, name):
        if name not in self._arms:
            self._arms[name] = self._make(name)
        return self._arms[name]

    def measure(self, arm, number, prompts, answer_tokens, called=None):
        """A row of it; what the engine said."""
        said = arm.ask(prompts, answer_tokens)
        self.rows.append(figures.of_round(called or arm.name, number, prompts, said["seconds"],
                                          said["requests"]))
        print(json.dumps(self.rows[-1]), file=sys.stderr, flush=True)
        return said

    def fresh_prompt(self, *who):
        return self.scale.load.say(self.scale.prompt_tokens, *who)


def sessions(bench, names):
    """Users talk in turns, and each round meets new engines, as after a rolling restart. All arms
    hear the answers of the first: their prompts are the same."""
    talks = bench.scale.load.talks()
    for number in range(bench.scale.load.rounds):
        prompts, answers = [talk.ask() for talk in talks], {}
        for name in in_turn(names, number):
            arm = bench.arm(name)
            arm.start()
            said = bench.measure(arm, number, prompts, bench.scale.load.answer_tokens)
            answers[name] = [one["tokens"] for one in said["requests"]]
            arm.stop()
        for name in names:
            same = sum(map(list.__eq__, answers[name], answers[names[0]]))
            next(row for row in bench.rows if (row["arm"], row["round"]) == (name, number)).update(
                answers_as_of_first=same / len(talks))
        for talk, answer in zip(talks, answers[names[0]]):
            talk.hear(answer)
    # Nobody could have anything of the first round.
    bench.rows[:] = [row for row in bench.rows if row["round"] > 0]


def recall(bench, names):
    """A prompt that was never seen, and the same one in a new engine."""
    for name in names:
        bench.arm(name).start()
    for number in range(bench.rounds):
        for name in in_turn(names, number):
            arm, prompt = bench.arm(name), bench.fresh_prompt("recall", name, number)
            arm.restart()
            bench.measure(arm, number, [prompt], 1,
                          called="cold" if name == "kvkeep" else f"{name}, cold")
            arm.restart()
            bench.measure(arm, number, [prompt], 1)


def no_hit(bench, names):
    """Prompts that nobody has, in engines that go on; one unmeasured round to warm up."""
    for name in names:
        bench.arm(name).start()
        bench.arm(name).ask([bench.fresh_prompt("warm", name)], bench.scale.answer_tokens)
    for number in range(bench.rounds):
        for name in in_turn(names, number):
            bench.measure(bench.arm(name), number, [bench.fresh_prompt("no hit", number)],
                          bench.scale.answer_tokens)


# scenario: what runs it, its arms, what they are held to
SCENARIOS = {"sessions": (sessions, ["none", "fs", "lmcache", "kvkeep"], ["none"]),
             "recall": (recall, ["dict", "kvkeep"], ["cold", "dict"]),
             "no-hit": (no_hit, ["none", "cpu", "kvkeep"], ["none", "cpu"])}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--quick", action="store_true", help="a toy of a model, few rounds")
    parser.add_argument("--rounds", type=int, help="of recall and no-hit")
    parser.add_argument("--arms", help="by commas, instead of the scenario's own")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="fail unless what is promised holds")
    asked = parser.parse_args()
    asked.arms = asked.arms.split(",") if asked.arms else SCENARIOS[asked.scenario][1]
    unknown = sorted(set(asked.arms) - set(arms.NAMES))
    if unknown:
        parser.error(f"no arm {unknown}: there are {', '.join(arms.NAMES)}")
    if "lmcache" in asked.arms and not {arms.LMCACHE, arms.LMCACHE_PACKAGE} <= set(os.environ):
        parser.error(f"lmcache wants {arms.LMCACHE} and {arms.LMCACHE_PACKAGE}; see run")
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds: at least 1")
    return asked


def main():
    asked = arguments()
    run, _, bases = SCENARIOS[asked.scenario]
    with contextlib.ExitStack() as holder:
        model = holder.enter_context(tempfile.TemporaryDirectory())
        bench = Bench(asked, model, holder)
        made = engine_process.make_model(model, **bench.scale.model)
        if bench.scale.llm["dtype"] == "bfloat16":
            made.bfloat16().save_pretrained(model)
        run(bench, asked.arms)
        said = report.document(asked.scenario, bench.rows, bases, {
            "machine": f"{platform.machine()}, one thread of the model's", "quick": asked.quick,
            "prompt_tokens": bench.scale.prompt_tokens,
            "load": dataclasses.asdict(bench.scale.load)})
    print(report.table(said))
    if asked.json:
        asked.json.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    if asked.svg:
        asked.svg.write_text(report.picture(said), encoding="utf-8")
    if asked.check and not all(holds for _, holds in report.promises(said)):
        sys.exit(1)


if __name__ == "__main__":
    main()
