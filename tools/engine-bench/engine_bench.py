#!/usr/bin/env python3
"""vLLM on a CPU with kvkeep below it beside what else could keep its KV; see README.md.

    tools/engine-bench/run SCENARIO [--quick] [--json FILE] [--svg FILE] [--check]

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
                str(ROOT / "tools")]
sys.path.append(str(ROOT / "tools" / "measure"))  # last: its `daemon` is another one

import arms  # noqa: E402
import engine_process  # noqa: E402
import field as loads  # noqa: E402
import field_report  # noqa: E402
import figures  # noqa: E402
import moved as fleets  # noqa: E402
import report  # noqa: E402
import stores as storing  # noqa: E402
import vllm_engine  # noqa: E402
from arguments import several  # noqa: E402
from load import Load  # noqa: E402
from users import Users  # noqa: E402


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
    rounds: int  # of all but sessions and field
    qps: float  # of serve
    users_at: tuple  # of field: users of each rate
    gap_s: float  # of field: between two questions of a user
    seconds: int  # of field: for each rate
    bound_s: float  # of field: users are counted whose TTFT p90 is at most this

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
    rounds=9, qps=0.5, users_at=(2, 4, 8, 16), gap_s=8.0, seconds=60, bound_s=2.0)
QUICK = Scale(
    model={"max_position_embeddings": 4096, "vocab_size": 1000},
    llm={"dtype": "float32", "max_model_len": 4096, "max_num_batched_tokens": 4096},
    cpu_bytes=64 << 20, tier_bytes=256 << 20,
    load=Load(users=2, rounds=2, system_tokens=256, history_tokens=1024, answer_tokens=8,
              vocabulary=1000),
    prompt_tokens=1000, answer_tokens=16, rounds=2, qps=4, users_at=(1, 2), gap_s=2.0,
    seconds=6, bound_s=1.0)


def in_turn(names, number):
    """Everybody is first, second, ... as often as the others."""
    at = number % len(names)
    return names[at:] + names[:at]


# LMBenchmark's names on the command line, and what they are of a Load.
LOAD_OPTIONS = {"num_users": "users", "num_rounds": "rounds",
                "shared_system_prompt": "system_tokens", "user_history_prompt": "history_tokens",
                "answer_len": "answer_tokens"}


@dataclasses.dataclass(frozen=True)
class Serving:
    """Options of `serve`. restart_after: rounds of the users' before all engines are started anew;
    0: they are not."""

    load: Load
    qps: float
    engines: int
    restart_after: int

    @staticmethod
    def of(asked, scale):
        wanted = {ours: getattr(asked, theirs) for theirs, ours in LOAD_OPTIONS.items()
                  if getattr(asked, theirs, None) is not None}
        load = dataclasses.replace(scale.load, **wanted)
        return Serving(load, getattr(asked, "qps", None) or scale.qps,
                       getattr(asked, "engines", 2),
                       min(getattr(asked, "restart_engine_after", 0), load.rounds))


class Bench:
    """One scenario's rows. arm(name): one that is closed in the end."""

    def __init__(self, asked, model, holder):
        self.asked, self.scale = asked, QUICK if asked.quick else FULL
        self.serving = Serving.of(asked, self.scale)
        self.rounds = asked.rounds or (1 if asked.scenario == "field" else self.scale.rounds)
        self.rows, self._arms = [], {}
        self.holder, self.model = holder, model
        self._make = lambda name, **more: holder.enter_context(contextlib.closing(
            arms.Arm(name, asked, model, self.scale, **more)))

    def arm(self, name):
        if name not in self._arms:
            self._arms[name] = self._make(name)
        return self._arms[name]

    def arm_at(self, name, daemon):
        """Returns a new arm at a daemon that serves."""
        return self._make(name, daemon=daemon)

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


def moved(bench, names):
    """A prompt asked on node a, and the same one again: on a, when only its NVMe has it; on b,
    which reads from its peer a; and on c, when a and b are gone and G4 has it."""
    fleet = bench.holder.enter_context(fleets.Fleet(bench.asked.build, bench.scale.tier_bytes))
    at, answers = {}, {}
    for node in "abc":
        fleet.nodes[node].start()
        at[node] = bench.arm_at(names[0], fleet.nodes[node].daemon)
        at[node].start()
    for node in "ab":
        fleet.nodes[node].wait_peers(1)

    def ask(node, number, prompt, called):
        at[node].restart()
        said = bench.measure(at[node], number, [prompt], 1, called=called)
        tokens = said["requests"][0]["tokens"]
        if answers.setdefault(number, tokens) != tokens:
            raise RuntimeError(f"round {number}, {called}: other tokens than when it was cold")

    def prompt_of(number):
        return bench.scale.load.say(tokens, "moved", number)

    # For fewer than eight chunks, nobody beyond the node is asked.
    tokens = max(bench.scale.prompt_tokens, 12 * vllm_engine.CHUNK_TOKENS + 1)
    chunks = tokens // vllm_engine.CHUNK_TOKENS
    for number in range(bench.rounds):
        prompt = prompt_of(number)
        ask("a", number, prompt, "cold")
        fleet.nodes["a"].daemon.wait_beyond((number + 1) * chunks)
        fleet.nodes["a"].evict()
        ask("a", number, prompt, "own NVMe")
        ask("b", number, prompt, "peer")
    for gone in "ab":
        fleet.nodes[gone].daemon.kill()
    for number in range(bench.rounds):
        ask("c", number, prompt_of(number), "G4")


def no_hit(bench, names):
    """Prompts that nobody has, in engines that go on; one unmeasured round to warm up."""
    for name in names:
        bench.arm(name).start()
        bench.arm(name).ask([bench.fresh_prompt("warm", name)], bench.scale.answer_tokens)
    for number in range(bench.rounds):
        for name in in_turn(names, number):
            bench.measure(bench.arm(name), number, [bench.fresh_prompt("no hit", number)],
                          bench.scale.answer_tokens)


def serve(bench, names):
    """Users talk to servers by turns, at a pace; all arms of a round hear the answers of its
    first. Engines are new for each arm and round; what is below them stays."""
    serving = bench.serving
    for number in range(bench.rounds):
        heard = {}
        load = dataclasses.replace(serving.load, seed=number)
        for name in in_turn(names, number):
            arm, users, seconds = bench.arm(name), Users(load, serving.qps, heard), 0.0
            engines = arm.serve(serving.engines)
            for rounds in (range(serving.restart_after), range(serving.restart_after, load.rounds)):
                if not rounds:
                    continue
                if rounds[0] > 0:
                    engines.restart()
                seconds += engines.play(users, rounds)
            bench.rows.append({
                **figures.of_round(name, number, users.prompts, seconds, users.said),
                **figures.percentiles(users.said), "host_bytes": arm.host_bytes()})
            print(json.dumps(bench.rows[-1]), file=sys.stderr, flush=True)
            arm.stop()


def stores(bench, names):
    """KV memory is stored whole, in a new engine and daemon each time."""
    for number in range(bench.rounds):
        for name in in_turn(names, number):
            bench.rows.append(storing.measure(name, bench.asked, number))
            print(json.dumps(bench.rows[-1]), file=sys.stderr, flush=True)


def field(bench, names, tools=None):
    """LMBenchmark and AIPerf against one server an arm, at rising rates. All arms of a round get
    the same users, who hear that arm's own answers, and no run gets users of another."""
    asked, load = bench.asked, bench.serving.load
    tools = tools or loads.Tools.of(asked, bench.model, bench.holder)
    gap_s, seconds = asked.gap or bench.scale.gap_s, asked.seconds or bench.scale.seconds
    next_user = 0
    for number in range(bench.rounds):
        runs = []
        for users in asked.users_at or bench.scale.users_at:
            rate = loads.Rate(users, gap_s)
            for tool in asked.tools:
                runs.append((tool, rate, next_user))
                next_user += rate.users_in(seconds, load.rounds)
        for name in in_turn(names, number):
            arm = bench.arm(name)
            url = arm.serve(1).urls[0]
            for tool, rate, first_user in runs:
                bench.rows.append({
                    "arm": name, "round": number, "tool": tool, "users": rate.users,
                    "qps": rate.qps, **tools.run(tool, url, load, rate, seconds, first_user)})
                print(json.dumps(bench.rows[-1]), file=sys.stderr, flush=True)
            arm.stop()


# scenario: what runs it, its arms, what they are held to
SCENARIOS = {"sessions": (sessions, ["none", "fs", "lmcache", "kvkeep"], ["none"]),
             "recall": (recall, ["dict", "kvkeep"], ["cold", "dict"]),
             "moved": (moved, ["kvkeep"], ["own NVMe", "cold"]),
             "no-hit": (no_hit, ["none", "cpu", "kvkeep"], ["none", "cpu"]),
             "stores": (stores, ["kvkeep", "direct"], ["kvkeep"]),
             "field": (field, ["none", "cpu", "lmcache", "kvkeep", "direct"], ["none"]),
             "serve": (serve, ["none", "cpu", "kvkeep", "direct", "lmcache"],
                       ["none", "lmcache"])}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--quick", action="store_true", help="a toy of a model, few rounds")
    parser.add_argument("--rounds", type=int, help="of all but sessions")
    serving = parser.add_argument_group("serve, by LMBenchmark's names")
    for name in LOAD_OPTIONS:
        serving.add_argument("--" + name.replace("_", "-"), type=int)
    serving.add_argument("--qps", type=float, help="questions a second, of all users together")
    serving.add_argument("--engines", type=int, default=2, help="servers, asked by turns")
    serving.add_argument("--restart-engine-after", type=int, default=0, metavar="ROUND",
                         help="of the users; all servers are started anew then")
    of_field = parser.add_argument_group("field")
    of_field.add_argument("--lmbenchmark", type=pathlib.Path, metavar="DIR",
                          help="a clone of LMBenchmark; else it is cloned into build/engines")
    of_field.add_argument("--tools", type=several(str), default=list(loads.TOOLS),
                          help=f"of {','.join(loads.TOOLS)}")
    of_field.add_argument("--users-at", type=several(int), help="users of each rate, by commas")
    of_field.add_argument("--gap", type=float, help="seconds between two questions of a user")
    of_field.add_argument("--seconds", type=int, help="for each rate")
    of_field.add_argument("--ttft-bound", type=float, help="seconds, of TTFT p90")
    parser.add_argument("--arms", help="by commas, instead of the scenario's own")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="fail unless what is promised holds")
    return checked(parser, parser.parse_args())


def checked(parser, asked):
    """Returns the options with the scenario's own arms; ends the process if some do not fit."""
    asked.arms = asked.arms.split(",") if asked.arms else SCENARIOS[asked.scenario][1]
    unknown = sorted(set(asked.arms) - set(arms.NAMES))
    if unknown:
        parser.error(f"no arm {unknown}: there are {', '.join(arms.NAMES)}")
    if "lmcache" in asked.arms and not {arms.LMCACHE, arms.LMCACHE_PACKAGE} <= set(os.environ):
        parser.error(f"lmcache wants {arms.LMCACHE} and {arms.LMCACHE_PACKAGE}; see run")
    if asked.scenario == "stores":
        asked.arms = [arm for arm in asked.arms if arm in SCENARIOS["stores"][1]]
        if not asked.arms:
            parser.error("stores: --arms kvkeep,direct")
    if asked.scenario == "moved" and (len(asked.arms) != 1 or
                                      not set(asked.arms) <= {"kvkeep", "direct"}):
        parser.error("moved: --arms kvkeep or --arms direct")
    if not set(asked.tools) <= set(loads.TOOLS):
        parser.error(f"--tools: of {', '.join(loads.TOOLS)}")
    if min([*(asked.users_at or [1]), asked.seconds or 1, asked.gap or 1]) <= 0:
        parser.error("--users-at, --seconds, --gap: above 0")
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds: at least 1")
    if asked.engines < 1 or asked.restart_engine_after < 0 or (asked.qps or 1) <= 0:
        parser.error("--engines: at least 1; --restart-engine-after: at least 0; --qps: above 0")
    return asked


def main():
    asked = arguments()
    run, _, bases = SCENARIOS[asked.scenario]
    with contextlib.ExitStack() as holder:
        model = holder.enter_context(tempfile.TemporaryDirectory())
        bench = Bench(asked, model, holder)
        made = engine_process.make_model(model, **bench.scale.model)
        engine_process.make_tokenizer(
            model, bench.scale.vocabulary,
            loads.words(bench.scale.vocabulary) if asked.scenario == "field" else ())
        if bench.scale.llm["dtype"] == "bfloat16":
            made.bfloat16().save_pretrained(model)
        run(bench, asked.arms)
        about = {
            "machine": f"{platform.machine()}, one thread of the model's", "quick": asked.quick,
            "prompt_tokens": bench.scale.prompt_tokens,
            **({"serving": dataclasses.asdict(bench.serving)}
               if asked.scenario in ("serve", "field") else
               {"load": dataclasses.asdict(bench.scale.load)})}
    if asked.scenario == "field":
        drawn = field_report
        said = field_report.document(bench.rows, asked.ttft_bound or bench.scale.bound_s, about)
    else:
        drawn = report
        said = report.document(asked.scenario, bench.rows, bases, about)
    print(drawn.table(said))
    if asked.json:
        asked.json.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    if asked.svg:
        asked.svg.write_text(drawn.picture(said), encoding="utf-8")
    if asked.check and not all(holds for _, holds in report.promises(said)):
        sys.exit(1)


if __name__ == "__main__":
    main()
