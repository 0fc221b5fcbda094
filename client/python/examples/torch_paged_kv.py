"""Prefill once, put the paged KV out of GPU memory, get it back in a new process: the same bytes.

    python torch_paged_kv.py [--tokens 8192 --layers 16 ...]    the second time it gets the prompt

A transformer with random weights (from a seed, so that it is the same in each run) whose KV cache
is paged as engines have it: a CUDA tensor [2, blocks, 16, heads, dim] a layer, and a block table,
here in another random order in each process. The daemon copies between that memory and its chunks;
the bytes never pass this process. Prints JSON: what was found, digests of the prompt's KV and of
the logits of the last token, the next token, and the time to the first token beside that of a full
prefill in the same process. The logits' last bits may differ even between two calls in one process:
kernels add in the order in which their parts end.

Wants torch with CUDA and a kvkeepd on this machine; says so where it finds none.
"""

import argparse
import array
import hashlib
import json
import random
import time

import kvkeep
import torch
from torch.nn import functional

BLOCK_TOKENS = 16
CHUNK_TOKENS = 256
VOCABULARY = 32000


class CudaMemory:
    """A GPU's memory, as torch allocates it, for the tensors of the cache."""

    device = "cuda"
    driver = None  # libcuda.so.1

    def __init__(self):
        if not torch.cuda.is_available():
            built = torch.version.cuda or "without CUDA"
            raise SystemExit(f"torch {torch.__version__} (built for {built}) finds no GPU that it "
                             "can use: this example copies out of GPU memory")
        self.name = torch.cuda.get_device_name()

    def zeros(self, shape, dtype):
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def located(self, tensor):
        """Returns the tensor as GpuRegion takes it."""
        return tensor

    def synchronize(self):
        torch.cuda.synchronize()


class PagedCache:
    """K and V of each layer in blocks, found by the block table of one sequence."""

    def __init__(self, memory, asked):
        blocks = 2 * (asked.tokens // BLOCK_TOKENS + 1)  # half of them stay unused
        shape = (asked.layers, 2, blocks, BLOCK_TOKENS, asked.kv_heads, asked.head_dim)
        self.memory, self.all = memory, memory.zeros(shape, torch.bfloat16)
        self.layers = list(self.all)
        # Another order in each process: returned KV lies in other blocks.
        self.table = random.SystemRandom().sample(range(blocks), blocks // 2)
        on_device = torch.tensor(self.table, device=self.all.device)
        offsets = torch.arange(BLOCK_TOKENS, device=self.all.device)
        self.slots = (on_device[:, None] * BLOCK_TOKENS + offsets).flatten()

    def write(self, layer, first, keys_and_values):
        """Writes [2, tokens, heads, dim] of the tokens from `first` on."""
        tokens = keys_and_values.shape[1]
        self._flat(layer)[:, self.slots[first:first + tokens]] = keys_and_values

    def read(self, layer, tokens):
        """Returns [2, tokens, heads, dim] of the first tokens."""
        return self._flat(layer)[:, self.slots[:tokens]]

    def digest(self, tokens):
        """Returns a digest of the first tokens' K and V, in order, wherever they lie."""
        said = hashlib.sha256()
        for layer in range(len(self.layers)):
            said.update(self.read(layer, tokens).view(torch.uint8).cpu().numpy())
        return said.hexdigest()

    def _flat(self, layer):
        return self.layers[layer].flatten(1, 2)


class Model:
    """Embedding, layers of attention and a gated MLP, and the vocabulary again."""

    def __init__(self, asked, device):
        width, heads, dim = asked.hidden, asked.hidden // asked.head_dim, asked.head_dim
        self.heads, self.kv_heads, self.dim = heads, asked.kv_heads, dim
        generator = torch.Generator(device).manual_seed(asked.seed)

        def weights(rows, columns):
            drawn = torch.randn(rows, columns, generator=generator, device=device)
            return (drawn * columns ** -0.5).to(torch.bfloat16)

        self.tokens = weights(VOCABULARY, width)
        self.places = weights(asked.tokens + 1, width)
        self.layers = [{"qkv": weights((heads + 2 * asked.kv_heads) * dim, width),
                        "out": weights(width, heads * dim),
                        "gate": weights(4 * width, width), "up": weights(4 * width, width),
                        "down": weights(width, 4 * width)} for _ in range(asked.layers)]

    @torch.no_grad()
    def forward(self, ids, cache, first=0):
        """Returns the logits of the last of `ids`, which are the tokens from `first` on."""
        x = self.tokens[ids] + self.places[first:first + len(ids)]
        for at, layer in enumerate(self.layers):
            x = x + self._attend(layer, at, _norm(x), cache, first)
            y = _norm(x)
            gated = functional.silu(y @ layer["gate"].T) * (y @ layer["up"].T)
            x = x + gated @ layer["down"].T
        return (_norm(x[-1:]) @ self.tokens.T)[0].float()

    def _attend(self, layer, at, x, cache, first):
        count, total = len(x), first + len(x)
        query, rest = (x @ layer["qkv"].T).split(
            [self.heads * self.dim, 2 * self.kv_heads * self.dim], dim=-1)
        cache.write(at, first, rest.view(count, 2, self.kv_heads, self.dim).transpose(0, 1))
        keys, values = (part.repeat_interleave(self.heads // self.kv_heads, dim=1).transpose(0, 1)
                        for part in cache.read(at, total))
        query = query.view(count, self.heads, self.dim).transpose(0, 1)
        # One token sees all earlier ones; so does each token of a prompt, by a causal mask that
        # begins at `first`.
        seen = None
        if first > 0 and count > 1:
            seen = torch.ones(count, total, dtype=torch.bool, device=x.device).tril(first)
        mixed = functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], attn_mask=seen,
            is_causal=first == 0 and count > 1)[0]
        return mixed.transpose(0, 1).reshape(count, -1) @ layer["out"].T


def _norm(x):
    return functional.rms_norm(x.float(), x.shape[-1:]).to(x.dtype)


class Keeper:
    """The chunks of one prompt: their runs of the cache, and their keys."""

    def __init__(self, client, cache, asked, prompt):
        form = kvkeep.KvFormat.LAYERS_KV_BLOCKS
        self.namespace = client.namespace(
            f"torch-paged-kv-seed-{asked.seed}", tokens_per_chunk=CHUNK_TOKENS, dtype="bfloat16",
            layout=form.name.lower())
        whole = cache.memory.located(cache.all)
        self.region = kvkeep.GpuRegion(client, whole, driver=cache.memory.driver)
        layer_bytes = self.region.nbytes // asked.layers
        planner = kvkeep.KvPlanner(
            form, layers=asked.layers, blocks=cache.all.shape[2], block_tokens=BLOCK_TOKENS,
            heads=asked.kv_heads, head_bytes=asked.head_dim * cache.all.element_size(),
            tensors=[self.region.run(i * layer_bytes, layer_bytes) for i in range(asked.layers)])
        self.bytes_per_token = planner.bytes_per_token
        prefix, self.keys, self.chunks = hashlib.sha256(), [], []
        for first in range(0, asked.tokens, CHUNK_TOKENS):
            prefix.update(prompt[first:first + CHUNK_TOKENS].tobytes())
            runs = planner.plan(cache.table, first, CHUNK_TOKENS)
            self.keys.append(prefix.digest())
            self.chunks.append(kvkeep.GpuChunk(prefix.digest(), runs))

    def restore(self):
        """Returns how many tokens of the prompt are in the cache now."""
        found = self.namespace.lookup(self.keys, lease=True)
        if found.lease is None:
            return 0
        with found.lease as lease:
            good = self._over(
                self.namespace.gpu_get(self.chunks[:found.leased_keys], lease=lease)).good
        return CHUNK_TOKENS * (good.index(False) if False in good else len(good))

    def save(self):
        """Returns how many chunks are kept now."""
        return self._over(self.namespace.gpu_put(self.chunks)).stored

    def _over(self, result):
        """Makes a call that broke off a miss, once the daemon copies no more. Raises if the daemon
        may still copy: then a prefill must not write to the cache yet. An engine would leave those
        blocks alone until the region is not in use, and go on with others."""
        if self.region.in_use:
            result.raise_for_error()
        return result


def first_token(model, cache, ids, tokens):
    """Returns the logits of the last of `ids`, with `tokens` of them in the cache."""
    if tokens < len(ids) - 1:
        model.forward(ids[tokens:-1], cache, tokens)
    logits = model.forward(ids[-1:], cache, len(ids) - 1)
    logits.argmax().item()  # complete when the GPU has done all of it
    return logits


def timed(memory, work):
    """Returns (its answer, seconds)."""
    memory.synchronize()
    start = time.perf_counter()
    answer = work()
    memory.synchronize()
    return answer, time.perf_counter() - start


def run(memory, asked):
    """Returns the values to print as JSON."""
    draw = random.Random(asked.seed)
    prompt, other = (array.array("i", (draw.randrange(VOCABULARY) for _ in range(asked.tokens + 1)))
                     for _ in range(2))
    model, cache = Model(asked, memory.device), PagedCache(memory, asked)
    ids, warm_up = (torch.tensor(each, dtype=torch.long, device=memory.device)
                    for each in (prompt, other))
    client = kvkeep.Client(path="local", name="torch example", timeout=60)
    client.wait_connected(30)
    keeper = Keeper(client, cache, asked, prompt)
    with keeper.region:
        first_token(model, cache, warm_up, 0)  # loads and chooses kernels
        cache.all.zero_()
        tokens, restore_s = timed(memory, keeper.restore)
        logits, rest_s = timed(memory, lambda: first_token(model, cache, ids, tokens))
        kv = cache.digest(asked.tokens)
        stored, save_s = timed(memory, keeper.save) if tokens < asked.tokens else (0, 0.0)
        cache.all.zero_()
        _, full_s = timed(memory, lambda: first_token(model, cache, ids, 0))
    digest = hashlib.sha256(bytes(logits.cpu().view(torch.uint8).tolist())).hexdigest()
    return {"device": memory.name, "torch": torch.__version__, "tokens": asked.tokens,
            "restored_tokens": tokens, "stored_chunks": stored,
            "kv_bytes": asked.tokens * keeper.bytes_per_token,
            "runs_a_chunk": len(keeper.chunks[0].runs), "restore_s": restore_s, "save_s": save_s,
            "ttft_s": restore_s + rest_s, "full_prefill_ttft_s": full_s, "kv": kv,
            "logits": digest, "next_token": logits.argmax().item()}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name, default in (("tokens", 8192), ("layers", 16), ("hidden", 2048), ("head-dim", 128),
                          ("kv-heads", 8), ("seed", 0)):
        parser.add_argument("--" + name, type=int, default=default)
    asked = parser.parse_args(arguments)
    if asked.tokens < CHUNK_TOKENS or asked.tokens % CHUNK_TOKENS:
        parser.error(f"--tokens: a multiple of {CHUNK_TOKENS}")
    if asked.hidden % (asked.head_dim * asked.kv_heads):
        parser.error("--hidden: a multiple of --head-dim times --kv-heads")
    return asked


if __name__ == "__main__":
    ASKED = parse()
    print(json.dumps(run(CudaMemory(), ASKED)))
