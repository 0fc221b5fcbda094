"""The step of tools/gpu-check that runs the torch example: two processes, one daemon.

The first computes a prompt and puts its paged KV out of GPU memory; the second gets it, and must
have the same bytes and say the same next token (a GPU's logits differ in their last bits from call
to call). Reported: the time to the first token of the second, beside that of a full
prefill in the same process. Dry, the same code runs on tensors of the CPU in the device memory of
the fake driver (tests/gpu/torch_on_fake.py).

A missing part (torch, its CUDA) is named in the result, and fails nothing: {"not_run": why}.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "client" / "c"))

from daemon import Daemon  # noqa: E402

LIBRARY = pathlib.Path("lib", "libkvkeep-client.so.1")
FAKE_DRIVER = pathlib.Path("fake-cuda", "libcuda.so.1")
SMALL = ["--tokens", "512", "--layers", "2", "--hidden", "256", "--head-dim", "64",
         "--kv-heads", "2"]
ASK_TORCH = "import torch; print(torch.cuda.is_available(), torch.__version__)"
LONGEST_S = 300
MIB = 1 << 20


class Broken(Exception):
    """With a message for people."""


def missing(build):
    """The targets that have to be built, by ninja's names."""
    return [target for target, path in (("kvkeepd", pathlib.Path("bin", "kvkeepd")),
                                        ("kvkeep_c", LIBRARY)) if not (build / path).exists()]


def why_not(python, dry_run):
    """Why the example cannot run there, or None."""
    try:
        asked = subprocess.run([str(python), "-c", ASK_TORCH], capture_output=True, text=True,
                               timeout=LONGEST_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{python}: {error}"
    if asked.returncode != 0:
        why = asked.stderr.strip().rpartition("\n")[2]
        return f"{python} cannot import torch ({why}): name one that can with --torch-python"
    words = asked.stdout.split()[-2:]
    if len(words) != 2:
        return f"{python} does not say which torch it has"
    available, version = words
    if available != "True" and not dry_run:
        return f"torch {version} of {python} finds no GPU that it can use"
    return None


def one_process(command, build, daemon):
    env = dict(os.environ, KVKEEP_ENDPOINT=daemon.endpoint,
               KVKEEP_CLIENT_LIBRARY=str(build / LIBRARY),
               PYTHONPATH=str(ROOT / "client" / "python"))
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONGEST_S,
                         check=False)
    if ran.returncode != 0:
        raise Broken(f"ended with {ran.returncode}: {ran.stderr.strip()[-500:]}")
    try:
        return json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise Broken(f"printed no figures: {ran.stdout.strip()[-500:]!r}") from None


def check(first, second):
    """Raises what is not as it must be."""
    tokens = first["tokens"]
    if first["restored_tokens"] != 0 or first["stored_chunks"] == 0:
        raise Broken(f"the first process got {first['restored_tokens']} tokens and stored "
                     f"{first['stored_chunks']} chunks")
    if second["restored_tokens"] != tokens:
        raise Broken(f"the second process got {second['restored_tokens']} of {tokens} tokens")
    for what, said in (("kv", "other bytes"), ("next_token", "another next token")):
        if second[what] != first[what]:
            raise Broken(f"the second process has {said}")


def run(build, python, dry_run):
    """{"not_run": why}, {"failed": why}, or the figures of both processes."""
    why = why_not(python, dry_run)
    if why is not None:
        return {"not_run": why}
    build = build.resolve()
    # Room for the prompt in G2, whose first put must not wait for NVMe.
    settings = {"KVKEEP_G2_CAPACITY": "128MiB" if dry_run else "4GiB",
                "KVKEEP_GPU_MODE": "required"}
    if dry_run:
        settings["LD_LIBRARY_PATH"] = str((build / FAKE_DRIVER).parent)
        command = [ROOT / "tests" / "gpu" / "torch_on_fake.py", build / FAKE_DRIVER, *SMALL]
    else:
        command = [ROOT / "client" / "python" / "examples" / "torch_paged_kv.py"]
    command = [str(word) for word in (python, "-B", *command)]
    try:
        with Daemon(build / "bin" / "kvkeepd", settings) as daemon:
            first = one_process(command, build, daemon)
            second = one_process(command, build, daemon)
        check(first, second)
    except (Broken, RuntimeError, subprocess.TimeoutExpired) as error:
        return {"failed": str(error)}
    return {"first": first, "second": second,
            "times_faster": second["full_prefill_ttft_s"] / second["ttft_s"]}


def lines(result):
    """The same in words, for the table."""
    for word, said in (("not_run", "was not run"), ("failed", "FAILED")):
        if word in result:
            return ["", f"The torch example {said}: {result[word]}."]
    second = result["second"]
    ttft_ms, full_ms = second["ttft_s"] * 1000, second["full_prefill_ttft_s"] * 1000
    return ["", f"The torch example: {second['tokens']} tokens, {second['kv_bytes'] / MIB:.1f} MiB "
            f"of paged KV in {second['runs_a_chunk']} runs a chunk. A second process has the first "
            f"one's bytes; its first token comes after {ttft_ms:.1f} ms, by a full prefill after "
            f"{full_ms:.1f} ms, {result['times_faster']:.1f} times as long."]
