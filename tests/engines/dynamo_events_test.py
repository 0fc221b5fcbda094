"""Dynamo's own indexer fed by the daemon's events over ZeroMQ, compared with the daemon's lookups.

    $(tests/engines/venv dynamo) tests/engines/dynamo_events_test.py --root . --build build/release

Prompts that share prefixes are put, got and deleted at random, more than both tiers hold. Then, in
1,000 queries, the longest match that the indexer reports, tier by tier, is that of the daemon's
lookup. The same after a SIGKILL and a new start, and after more prompts. Only the target `kvkeepd`
must be built. With --keeper, a Python that has transformers, what kvkeep.transformers saves is
tested too; this also needs the target `kvkeep_c`.
"""

import argparse
import hashlib
import importlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "client" / "c"))

from daemon import free_port  # noqa: E402

BLOCK = 16  # tokens of a chunk, and of the indexer's blocks
PAYLOAD = 60_000
QUERIES = 1000

# Saves a random cache of each prompt, and prints how many tokens of each it finds again.
KEEPER = """
import json, sys
import kvkeep, torch
from kvkeep.transformers import CacheKeeper
from transformers import DynamicCache, LlamaConfig
config = LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2)
client = kvkeep.Client()
assert client.wait_connected(20)
keeper = CacheKeeper(client, config, name="m", tokens_per_chunk=64, tokens_per_block=16,
                     dtype=torch.float32)
prompts = json.load(sys.stdin)
for tokens in prompts:
    cache = DynamicCache(config=config)
    for layer in range(2):
        cache.update(*(torch.randn(1, 2, len(tokens), 16) for _ in range(2)), layer)
    keeper.save(tokens, cache).raise_for_error()
print(json.dumps([keeper.restore(tokens + [0])[1] for tokens in prompts]))
"""

CONFIG = """
listen: {{unix: {dir}/kv.sock, local: "", admin: {dir}/admin.sock}}
g2: {{capacity: 16MiB, segment_bytes: 2MiB, arena: memfd}}
g3: {{paths: [{{dir: {dir}/nvme, capacity: 128MiB}}]}}
metrics: {{listen: ""}}
events: {{zmq: "tcp://127.0.0.1:{port}", form: {form}}}
state: {{dir: {dir}/state}}
"""


def generated(root, folder):
    """Returns the modules that protoc makes of the daemon's proto."""
    from grpc_tools import protoc
    status = protoc.main(["", f"-I{root}/proto", f"--python_out={folder}",
                          f"--grpc_python_out={folder}", f"{root}/proto/kvkeep/v1/kvkeep.proto"])
    assert status == 0
    sys.path.insert(0, str(folder))
    return (importlib.import_module("kvkeep.v1.kvkeep_pb2"),
            importlib.import_module("kvkeep.v1.kvkeep_pb2_grpc"))


class Indexer:
    """endpoint: of instance 7; more may be registered. python: the interpreter of an environment
    with Dynamo."""

    def __init__(self, endpoint, python=sys.executable, block=BLOCK):
        self.port, self._block = free_port(), block
        self.process = subprocess.Popen(
            [python, "-m", "dynamo.indexer", "--port", str(self.port), "--threads", "1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self.call("/health"), "the indexer answers")
        self.register(7, endpoint)

    def register(self, instance, endpoint):
        self.call("/register", {"instance_id": instance, "endpoint": endpoint, "model_name": "m",
                                "block_size": self._block, "dp_rank": 0})

    def call(self, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.read().decode() or "ok"
        except OSError:
            return None

    def tiers(self, tokens, instance=7):
        """Returns {tier: tokens matched up to its end}."""
        told = json.loads(self.call("/query", {"token_ids": tokens, "model_name": "m"}))
        return told.get("instances", {}).get(str(instance), {})

    def match(self, tokens, instance=7):
        """Returns matched tokens: in DRAM from the head, and with what NVMe has from there on."""
        of_us = self.tiers(tokens, instance)
        return of_us.get("cpu", 0), of_us.get("disk", 0)


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            sys.exit(f"FAILED: {what}: not within {seconds} s")
        time.sleep(0.05)
    return result


class Daemon:
    def __init__(self, build, config, folder, wire):
        self.command = [build / "bin" / "kvkeepd", "--config", config]
        self.folder, self.wire, self.process = folder, wire, None

    def start(self):
        import grpc
        pb, rpc = self.wire
        self.process = subprocess.Popen(self.command, stderr=open(self.folder / "log", "ab"))
        self.channel = grpc.insecure_channel(f"unix:{self.folder}/kv.sock")
        self.stub = rpc.KvCacheStub(self.channel)

        def serves():
            try:
                return self.stub.GetServerInfo(pb.GetServerInfoRequest()).state == 2
            except grpc.RpcError:
                return False
        until(serves, "the daemon serves")
        self.session = self.stub.OpenSession(pb.OpenSessionRequest(client_name="test"))
        self.token = next(self.session).session_token
        self.ns = self.stub.OpenNamespace(pb.OpenNamespaceRequest(
            session_token=self.token, model="m", tokens_per_chunk=BLOCK, parts=1,
        )).namespace_digest
        self.about = {"session_token": self.token, "namespace_digest": self.ns}

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.channel.close()

    def put(self, chunks):
        pb = self.wire[0]
        frames = []
        for key, parent, tokens in chunks:
            said = pb.ChunkMetadata(format=0x316d766b, parent_key=parent, token_ids=tokens,
                                    block_size=BLOCK)
            frames.append(pb.PutFrame(
                chunk=pb.PutChunkHeader(key=key, payload_bytes=PAYLOAD,
                                        metadata=said.SerializeToString(),
                                        hints=pb.PutHints(parent_key=parent)),
                payload=key * (PAYLOAD // 32)))
        frames[0].stream.CopyFrom(pb.PutStreamHeader(**self.about))
        return list(self.stub.Put(iter(frames)))

    def match(self, keys):
        pb = self.wire[0]
        found = self.stub.Lookup(pb.LookupRequest(**self.about, keys=b"".join(keys)))
        cpu = 0
        while cpu < len(keys) and found.g2_parts[cpu] & 1:
            cpu += 1
        disk = cpu
        while disk < len(keys) and found.g3_parts[disk] & 1:
            disk += 1
        return cpu * BLOCK, disk * BLOCK


def prompts(chance):
    """Returns token lists of whole blocks; many begin as another does."""
    made = []
    for _ in range(150):
        head = []
        if made and chance.random() < 0.7:
            shared = chance.choice(made)
            head = shared[:BLOCK * chance.randint(1, len(shared) // BLOCK)]
        made.append(head + [chance.randint(0, 50_000) for _ in
                            range(BLOCK * chance.randint(1, 20))])
    return made


def chain(tokens):
    """Returns (key, parent's key, tokens) of each block of a prompt."""
    blocks, parent = [], b""
    for at in range(0, len(tokens), BLOCK):
        mine = tokens[at:at + BLOCK]
        key = hashlib.sha256(parent + json.dumps(mine).encode()).digest()
        blocks.append((key, parent, mine))
        parent = key
    return blocks


def stir(daemon, all_prompts, chance):
    pb = daemon.wire[0]
    for _ in range(300):
        blocks = chain(chance.choice(all_prompts))
        kind = chance.random()
        if kind < 0.75:
            daemon.put(blocks)
        elif kind < 0.9:
            keys = b"".join(key for key, _, _ in blocks)
            for _ in daemon.stub.Get(pb.GetRequest(**daemon.about, keys=keys)):
                pass
        else:
            key = chance.choice(blocks)[0]
            daemon.stub.Delete(pb.DeleteRequest(**daemon.about, keys=key))


def check(daemon, indexer, all_prompts, chance, when):
    """Makes 1,000 queries, once the indexer has everything that was sent."""
    def ask(tokens):
        keys = [key for key, _, _ in chain(tokens)]
        return daemon.match(keys), indexer.match(tokens)

    def settled():
        answers = [ask(tokens) for tokens in all_prompts]
        return all(mine == theirs for mine, theirs in answers)

    end = time.monotonic() + 60
    while not settled() and time.monotonic() < end:
        time.sleep(0.5)
    wrong, in_dram, on_nvme = [], 0, 0
    for _ in range(QUERIES):
        tokens = list(chance.choice(all_prompts))
        tokens = tokens[:BLOCK * chance.randint(1, len(tokens) // BLOCK)]
        tokens += [chance.randint(0, 50_000) for _ in range(BLOCK * chance.randint(0, 3))]
        mine, theirs = ask(tokens)
        in_dram += mine[0] > 0
        on_nvme += mine[1] > mine[0]
        if mine != theirs:
            wrong.append((mine, theirs))
    print(f"{when}: {QUERIES} queries, {in_dram} with a match in DRAM, {on_nvme} with one that "
          f"goes on or begins on NVMe: {len(wrong)} differ {wrong[:5]}")
    return not wrong and on_nvme > 0


def check_keeper(python, root, build, daemon, indexer, chance):
    """Makes prompts, some of which begin alike, and has kvkeep.transformers save them."""
    heads = [[chance.randint(50_001, 90_000) for _ in range(64 * 3)] for _ in range(5)]
    asked = [head[:64 * chance.randint(1, 3)] + [chance.randint(50_001, 90_000) for _ in
                                                 range(chance.randint(16, 300))]
             for head in heads for _ in range(4)]
    environment = dict(os.environ, KVKEEP_ENDPOINT=f"unix://{daemon.folder}/kv.sock",
                       KVKEEP_CLIENT_LIBRARY=str(build / "lib" / "libkvkeep-client.so.1"),
                       PYTHONPATH=str(root / "client" / "python"))
    done = subprocess.run([python, "-c", KEEPER], input=json.dumps(asked), env=environment,
                          check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    kept = json.loads(done.stdout.splitlines()[-1])
    assert kept == [len(tokens) // 64 * 64 for tokens in asked], kept
    wanted = [(tokens, tokens) for tokens in kept]
    end = time.monotonic() + 60
    while (found := [indexer.match(tokens) for tokens in asked]) != wanted:
        if time.monotonic() > end:
            break
        time.sleep(0.5)
    wrong = sum(theirs != mine for theirs, mine in zip(found, wanted))
    print(f"kvkeep.transformers: {len(asked)} prompts, {sum(kept)} tokens kept: {wrong} differ")
    return wrong == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("root", "build"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    parser.add_argument("--form", default="vllm", choices=("vllm", "sglang"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keeper", type=pathlib.Path)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wire = generated(asked.root.resolve(), folder)
        port = free_port()
        config = folder / "kvkeep.yaml"
        config.write_text(CONFIG.format(dir=folder, port=port, form=asked.form))
        daemon = Daemon(asked.build.resolve(), config, folder, wire)
        daemon.start()
        indexer = Indexer(f"tcp://127.0.0.1:{port}")
        try:
            all_prompts = prompts(chance)
            stir(daemon, all_prompts, chance)
            good = check(daemon, indexer, all_prompts, chance, "after puts, gets, deletes")
            daemon.kill()
            daemon.start()
            good &= check(daemon, indexer, all_prompts, chance, "after a kill and a start")
            stir(daemon, all_prompts, chance)
            good &= check(daemon, indexer, all_prompts, chance, "after more of it")
            if asked.keeper:
                good &= check_keeper(asked.keeper, asked.root.resolve(), asked.build.resolve(),
                                     daemon, indexer, chance)
        finally:
            indexer.process.terminate()
            daemon.kill()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
