#!/usr/bin/env python3
"""client/python/examples/transformers_demo.py with real transformers, a real daemon, and a SIGKILL.

    python3 -m venv VENV && VENV/bin/pip install torch transformers numpy
    transformers_test.py --root SOURCES --build build/release --python VENV/bin/python

The logits of a restored prompt are bit for bit those of the computed one: from G2 by the local
path, from G3 after the daemon was killed, and over gRPC. Other weights restore nothing. Models with
inputs other than text are refused, by transformers' own configurations of them. Prints the times,
and how many times faster than the prefill each was; with --check, for a quiet machine, each has to
be 100 times.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

# Prints for each configuration of transformers, as its class makes it, whether a keeper takes it.
TAKEN = """
import json
import kvkeep, transformers
from kvkeep.transformers import CacheKeeper
client, said = kvkeep.Client(), {}
for name in %r:
    try:
        CacheKeeper(client, getattr(transformers, name)(), name="m", dtype="float32")
        said[name] = True
    except ValueError as why:
        assert "a key is made of tokens alone" in str(why), why
        said[name] = False
print(json.dumps(said))
"""
TEXT = ["LlamaConfig", "Qwen3Config", "Gemma3TextConfig", "Qwen2_5_VLTextConfig", "GPT2Config",
        "DbrxConfig", "MptConfig", "DeepseekV3Config"]
# Images, also without an encoder of their own; audio; both in a thinker; a translated text.
OTHERS = ["LlavaConfig", "Gemma3Config", "Qwen2_5_VLConfig", "FuyuConfig", "ChameleonConfig",
          "Phi4MultimodalConfig", "Qwen2AudioConfig", "GraniteSpeechConfig", "Qwen3OmniMoeConfig",
          "WhisperConfig", "T5Config"]
TOKENS = 4096
WANTED_TIMES = 100


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("root", "build", "python"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    root, build = asked.root.resolve(), asked.build.resolve()
    sys.path.insert(0, str(root / "tests" / "client" / "c"))
    from daemon import Daemon  # pylint: disable=import-outside-toplevel

    example = (root / "client" / "python" / "examples" / "transformers_demo.py").read_text()
    by_grpc = example.replace("kvkeep.Client()", 'kvkeep.Client(path="grpc")')
    assert by_grpc != example
    other_weights = example.replace("torch.manual_seed(0)", "torch.manual_seed(2)")
    assert other_weights != example

    def run(program):
        environment = dict(os.environ, KVKEEP_ENDPOINT=daemon.endpoint,
                           KVKEEP_CLIENT_LIBRARY=str(build / "lib" / "libkvkeep-client.so.1"),
                           PYTHONPATH=str(root / "client" / "python"))
        done = subprocess.run([asked.python, "-c", program], env=environment, check=True,
                              capture_output=True, text=True)
        said = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps(said))
        return said

    with Daemon(build / "bin" / "kvkeepd") as daemon:
        cold = run(example)
        warm = run(example)
        daemon.wait_clean(TOKENS // 256)
        daemon.restart()
        killed = run(example)
        grpc = run(by_grpc)
        other = run(other_weights)  # of the same configuration
        taken = run(TAKEN % [*TEXT, *OTHERS])
    assert [name for name, good in taken.items() if good] == TEXT, taken
    assert (cold["restored_tokens"], cold["stored_chunks"]) == (0, TOKENS // 256), cold
    assert other["restored_tokens"] == 0 and other["logits"] != cold["logits"], other
    for said, path in ((warm, "local"), (killed, "local"), (grpc, "grpc")):
        assert (said["path"], said["restored_tokens"]) == (path, TOKENS), said
        assert said["logits"] == cold["logits"], "other logits than computed"
    for name, said in (("G2, in place", warm), ("after a SIGKILL", killed), ("gRPC", grpc)):
        times = cold["prefill_s"] / said["restore_s"]
        print(f"{name}: {times:.0f} times faster than the prefill")
        assert times >= WANTED_TIMES or not asked.check, f"wanted: {WANTED_TIMES}"


if __name__ == "__main__":
    main()
