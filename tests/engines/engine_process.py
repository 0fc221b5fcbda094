"""Common code of the tests of real engines, and of tools/engine-bench: command line, random-weight
model, prompts, and an engine in a process.

A test that needs an engine runs itself again with --engine MODEL in the engine's environment. The
new process makes the engine and answers lines of its standard input, by default the name of a
prompt each, with JSON.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ANSWER_TOKENS = 8
LORA_RANK = 8
_OPTIONS = "KVKEEP_TEST_ENGINE"  # environment variable: EngineProcess's `options`, as JSON


def prompt(number, tokens=1000):
    """Returns a prompt of a vocabulary of 1,000; a different one for each number."""
    return [(i * 37 + i * i + 101 * number) % 990 + 3 for i in range(tokens)]


PROMPTS = {f"p{number}": prompt(number) for number in range(3)}


def arguments(manual, engine=True):
    """`engine`: whether the script is run again as an engine. `tests`: names, as CLASS.METHOD."""
    parser = argparse.ArgumentParser(description=manual,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("root", "build"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    if engine:
        parser.add_argument("--engine", help="for this script's own use: the model's folder")
    parser.add_argument("tests", nargs="*", help="CLASS.METHOD; all unless given")
    return parser.parse_args()


def make_model(folder, seed=0, **other):
    """Makes a random-weight Llama, without a tokenizer. `other`: keys of its config."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**{
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 1000,
        "max_position_embeddings": 4096, "initializer_range": 0.2, **other}))
    model.save_pretrained(folder)
    return model


def make_tokenizer(folder, vocabulary, words=()):
    """Makes a tokenizer of a word a token, for servers that need one: t0, t1, ... `words`: those
    that stand for the last tokens instead. Each other word is t0."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [f"t{token}" for token in range(vocabulary - len(words))] + list(words)
    tokens = Tokenizer(models.WordLevel({name: at for at, name in enumerate(names)},
                                        unk_token="t0"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokens, unk_token="t0",
        chat_template="{% for one in messages %}{{ one['content'] }}\n{% endfor %}",
    ).save_pretrained(folder)


def make_adapter(folder, seed, merge_into=None):
    """Makes a random LoRA adapter for make_model's Llama. merge_into: makes such a model, which
    then answers as the model with the adapter does."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": LORA_RANK, "lora_alpha": 2 * LORA_RANK, "bias": "none",
        "task_type": "CAUSAL_LM", "target_modules": ["q_proj", "v_proj"]}), encoding="utf-8")
    tensors = {}
    for layer in range(4):
        for name, outputs in (("q_proj", 256), ("v_proj", 128)):
            down = torch.randn(LORA_RANK, 256) * 0.3
            up = torch.randn(outputs, LORA_RANK) * 0.3
            at = f"model.layers.{layer}.self_attn.{name}"
            tensors[f"base_model.model.{at}.lora_A.weight"] = down
            tensors[f"base_model.model.{at}.lora_B.weight"] = up
            if merge_into is not None:
                merge_into.get_submodule(at).weight.data += 2 * up @ down
    save_file(tensors, folder / "adapter_model.safetensors")


def options():
    """Returns the options of EngineProcess, in the engine's process."""
    return json.loads(os.environ[_OPTIONS])


def serve(answer):
    """Calls `answer(line)` for every line, until there are no more, in the engine's process."""
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(line.strip())), flush=True)


def environment_of(asked, environment, endpoint, path=()):
    """Returns the environment of a process that imports kvkeep and `path`, with its daemon."""
    root, build = asked.root.resolve(), asked.build.resolve()
    return dict(
        os.environ, HF_HUB_OFFLINE="1", **environment, KVKEEP_ENDPOINT=endpoint or "",
        KVKEEP_CLIENT_LIBRARY=str(build / "lib" / "libkvkeep-client.so.1"),
        PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=os.pathsep.join(map(str, (
            *path, root / "tests" / "engines", root / "client" / "python"))))


class EngineProcess:
    """asked: the test's own arguments (root, build). environment: variables of the engine;
    path: folders for its imports; options: what options() returns there."""

    def __init__(self, script, asked, model, endpoint, environment, path=(), options=None):
        root, build = asked.root.resolve(), asked.build.resolve()
        environment = dict(environment_of(asked, environment, endpoint, path),
                           **{_OPTIONS: json.dumps(options or {})})
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-B", script, "--root", root, "--build", build, "--engine", model],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            text=True)
        try:
            self.read("ready")
        except AssertionError:
            self.close()
            raise

    def read(self, wanted):
        """Returns the next line with this beginning; skips the engine's other output."""
        while line := self.process.stdout.readline():
            if line.startswith(wanted):
                return line
        raise AssertionError("the engine has ended: " + self.said())

    def said(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    def ask(self, line, quiet=False):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        said = json.loads(self.read("{"))
        if not quiet:
            print(line, said, flush=True)
        return said

    def close(self):
        """Idempotent."""
        if self.process.stdin.closed:
            return
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
