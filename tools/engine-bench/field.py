"""The field's own load generators, unmodified, against served engines: LMBenchmark's multi-round
question answering, and AIPerf with users of the same kind. This module runs them and reads what
they write; field_report.py says what came out.
"""

import csv
import dataclasses
import json
import math
import os
import pathlib
import re
import subprocess
import tempfile

import figures
from load import Talk

LMBENCHMARK = "https://github.com/LMCache/LMBenchmark"
COMMIT = "26d02bd21e682dbf3b7f769ef6db1d545ead50c2"
SCRIPT = pathlib.Path("synthetic-multi-round-qa") / "multi-round-qa.py"
TOOLS = ("lmbenchmark", "aiperf")
PYTHON = "KVKEEP_LOADS_PYTHON"  # environment variable: the Python of `tests/engines/venv loads`
MODEL = "m"  # as vllm_engine.serve_arguments names it
QUESTIONS_NAMED = 50
ENDS_WITHIN_S = 300  # after the time of the load: answers that are on their way


@dataclasses.dataclass(frozen=True)
class Rate:
    """So many users, each of whom asks again `gap_s` seconds after it asked."""

    users: int
    gap_s: float

    @property
    def qps(self):
        return self.users / self.gap_s

    def users_in(self, seconds, rounds):
        """Returns a number that LMBenchmark's users do not exceed: who has asked everything goes,
        and others come."""
        return 2 * self.users + 2 + math.ceil(seconds * self.qps / (rounds - 1))


def users_named(vocabulary):
    """Returns how many users have a number that is a word of the tokenizer."""
    return min(vocabulary // 5, 5000)


def words(vocabulary):
    """Returns the words of LMBenchmark's prompts, for engine_process.make_tokenizer."""
    said = ("Hi, here's some system prompt: hi hi. hi.For user here are some other context: "
            "hi.Here's Here's question can you tell me a new long story with a happy ending? "
            "USER: ASSISTANT: WARMUP: I'm Here text: .").split()
    numbers = [f"{at}," for at in range(users_named(vocabulary))] + [
        f"#{at}:" for at in range(QUESTIONS_NAMED)]
    return list(dict.fromkeys(said + numbers))


def clone(folder):
    """Returns a folder with LMBenchmark's pinned commit, which is cloned unless it is there."""
    folder = pathlib.Path(folder)
    if not (folder / SCRIPT).exists():
        subprocess.run(["git", "clone", "--quiet", LMBENCHMARK, folder], check=True)
        subprocess.run(["git", "-C", folder, "checkout", "--quiet", COMMIT], check=True)
    return folder


class Tools:
    """python: one that has both tools' packages. lmbenchmark: the folder of its clone."""

    def __init__(self, python, lmbenchmark, model, folder):
        self._python, self._model = pathlib.Path(python), model
        self._lmbenchmark, self._folder = (pathlib.Path(one).resolve()
                                           for one in (lmbenchmark, folder))
        self._runs = 0

    @staticmethod
    def of(asked, model, holder):
        """Returns those of the command line. holder: an ExitStack, of the tools' files."""
        folder = holder.enter_context(tempfile.TemporaryDirectory())
        return Tools(os.environ[PYTHON], asked.lmbenchmark or clone(
            asked.root / "build" / "engines" / "LMBenchmark"), model, folder)

    def run(self, tool, url, load, rate, seconds, first_user):
        """Returns the measures of one run; see of_lmbenchmark. first_user: a number above those of
        users who talked before, so that nobody has their history."""
        named = users_named(load.vocabulary)
        if first_user + rate.users_in(seconds, load.rounds) > named:
            raise ValueError(f"{named} users have words of their own; ask fewer, or for less time")
        self._runs += 1
        out = self._folder / f"{tool}-{self._runs}"
        out.mkdir()
        run = {"lmbenchmark": self._run_lmbenchmark, "aiperf": self._run_aiperf}[tool]
        return run(out, url, load, rate, seconds, first_user)

    def _run_lmbenchmark(self, out, url, load, rate, seconds, first_user):
        self._ran(out, [
            self._python, self._lmbenchmark / SCRIPT, "--num-users", rate.users,
            "--num-rounds", load.rounds, "--qps", rate.qps,
            "--shared-system-prompt", load.system_tokens,
            "--user-history-prompt", load.history_tokens, "--answer-len", load.answer_tokens,
            "--model", MODEL, "--base-url", url, "--time", seconds,
            "--init-user-id", first_user, "--output", out / "summary.csv"], seconds)
        return of_lmbenchmark((out / "summary.csv").read_text(encoding="utf-8"))

    def _run_aiperf(self, out, url, load, rate, seconds, first_user):
        talks = out / "talks.jsonl"
        users = rate.users_in(seconds, load.rounds)
        talks.write_text(conversations(load, users, first_user), encoding="utf-8")
        self._ran(out, [
            self._python.parent / "aiperf", "profile", "--model", MODEL, "--url", url,
            "--endpoint-type", "chat", "--streaming", "--tokenizer", self._model,
            "--use-server-token-count", "--input-file", talks,
            "--custom-dataset-type", "multi_turn", "--dataset-sampling-strategy", "sequential",
            "--request-rate", rate.qps, "--concurrency", rate.users,
            "--arrival-pattern", "constant",
            "--extra-inputs", f"max_tokens:{load.answer_tokens}", "--extra-inputs", "temperature:0",
            "--benchmark-duration", seconds, "--benchmark-grace-period", 60,
            "--workers-max", 1, "--ui-type", "none", "--artifact-dir", out / "artifacts"], seconds)
        found = next((out / "artifacts").rglob("profile_export_aiperf.json"))
        return of_aiperf(json.loads(found.read_text(encoding="utf-8")))

    def _ran(self, out, line, seconds):
        """Raises with the end of what it said unless it ended well."""
        with open(out / "log", "w+", encoding="utf-8", errors="replace") as log:
            status = subprocess.run(
                list(map(str, line)), cwd=out, stdout=log, stderr=subprocess.STDOUT, check=False,
                timeout=seconds + ENDS_WITHIN_S, env=environment()).returncode
            if status != 0:
                log.seek(0)
                raise RuntimeError(f"{line[0]}: {status}: {log.read()[-3000:]}")


def environment():
    """Returns the environment of the tools, which look for nothing outside this machine."""
    proxies = {name: value for name, value in os.environ.items()
               if not re.fullmatch("(https?|all)_proxy", name.lower())}
    return {**proxies, "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONDONTWRITEBYTECODE": "1"}


def conversations(load, users, first_user):
    """Returns AIPerf's multi-turn input: users of the Load, in words of the tokenizer."""
    lines, left = [], load.vocabulary - len(words(load.vocabulary))
    load = dataclasses.replace(load, vocabulary=left)
    for user in range(first_user, first_user + users):
        talk, turns, said = Talk(load, user), [], 0
        for _ in range(load.rounds):
            prompt = talk.ask()
            turns.append({"text": " ".join(f"t{token}" for token in prompt[said:])})
            talk.hear(())  # AIPerf adds the answers
            said = len(prompt)
        lines.append(json.dumps({"session_id": f"user-{user}", "turns": turns}))
    return "\n".join(lines) + "\n"


def of_lmbenchmark(text):
    """Returns the measures of its CSV: times in seconds, and rates a second."""
    rows = [{name: float(value) for name, value in row.items()}
            for row in csv.DictReader(text.splitlines())]
    rows = [row for row in rows if row["ttft"] > 0]  # 0: no word came
    if not rows:
        raise ValueError("LMBenchmark: no answers")
    seconds = (max(row["finish_time"] for row in rows) - min(row["launch_time"] for row in rows))
    gaps = [row["generation_time"] / (row["generation_tokens"] - 1) for row in rows
            if row["generation_tokens"] > 1]
    ttft = sorted(row["ttft"] for row in rows)
    latency = sorted(row["finish_time"] - row["launch_time"] for row in rows)
    return {**_percentiles("ttft", ttft), **_percentiles("latency", latency),
            **({"itl_s": sum(gaps) / len(gaps)} if gaps else {}),
            "tps": sum(row["generation_tokens"] for row in rows) / seconds,
            "rps": len(rows) / seconds, "requests": len(rows)}


def _percentiles(name, ranked):
    return {f"{name}_p{percent}_s": figures.nearest(ranked, percent) for percent in (50, 90, 99)}


def of_aiperf(said):
    """Returns the same measures of its JSON export, whose times are milliseconds."""
    out = {f"{ours}_p{percent}_s": said[theirs][f"p{percent}"] / 1000
           for ours, theirs in (("ttft", "time_to_first_token"), ("latency", "request_latency"))
           for percent in (50, 90, 99)}
    if said.get("inter_token_latency"):
        out["itl_s"] = said["inter_token_latency"]["avg"] / 1000
    if said.get("overall_usage_prompt_cache_read_pct"):
        out["hit_ratio"] = said["overall_usage_prompt_cache_read_pct"]["avg"] / 100
    return {**out, "tps": said["output_token_throughput"]["avg"],
            "rps": said["request_throughput"]["avg"],
            "requests": int(said["request_count"]["avg"])}
