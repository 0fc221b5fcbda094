"""Memory of the paged KV cache, and attention over what is gathered from it.

One tensor [blocks, layers, 2, block_tokens, kv_heads, head_dim]: all layers of a block lie
together, so a block is one run for whoever copies it (kvkeep.KvFormat.BLOCKS_FIRST, as vLLM's
cross-layer layout). Attention is PyTorch's scaled_dot_product_attention over a copy of the pages,
layer by layer: it reads the KV of a sequence twice where an engine's kernel reads it once.
"""

import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right


class PagedCache:
    """fake: what has zeros(shape, dtype) and located(tensor) of a fake GPU's memory; or None.

    shared: the memory, and the driver's name, as kvkeep.GpuRegion takes them; None: it is no GPU's.
    """

    def __init__(self, shape, blocks, device, fake=None):
        self.shape, self.blocks = shape, blocks
        sizes = (blocks, shape.layers, 2, shape.block_tokens, shape.kv_heads, shape.head_dim)
        dtype = getattr(torch, shape.dtype)
        if fake is not None:
            self.all = fake.zeros(sizes, dtype)
            self.shared = (fake.located(self.all), fake.driver)
        else:
            self.all = torch.zeros(sizes, dtype=dtype, device=device)
            self.shared = (self.all, None) if device == "cuda" else None
        self._pages = self.all.view(blocks * shape.layers * 2, -1)
        self._slots = self.all.view(blocks * shape.layers * 2 * shape.block_tokens, -1)

    def slots_of(self, table, first, count):
        """Where layer 0 keeps K of `count` tokens from `first` on: for `write`."""
        size = self.shape.block_tokens
        return [table[at // size] * self.shape.layers * 2 * size + at % size
                for at in range(first, first + count)]

    def write(self, layer, slots, keys, values):
        """Both are [tokens, kv_heads, head_dim]."""
        at = slots + layer * 2 * self.shape.block_tokens
        self._slots.index_copy_(0, at, keys.flatten(1))
        self._slots.index_copy_(0, at + self.shape.block_tokens, values.flatten(1))

    def read(self, layer, tables):
        """K and V, each [sequences, blocks x block_tokens, kv_heads, head_dim]. tables:
        [sequences, blocks]."""
        pages = tables * (self.shape.layers * 2) + layer * 2
        found = self._pages.index_select(0, torch.stack([pages, pages + 1]).flatten())
        return found.view(2, len(tables), -1, self.shape.kv_heads, self.shape.head_dim)

    def sums_of(self, blocks, at_once=64):
        """A number for the bytes of each block, which depends on their places, to compare."""
        out = []
        for first in range(0, len(blocks), at_once):
            words = self.copy_of(blocks[first:first + at_once]).flatten(1).view(torch.int32)
            places = torch.arange(words.shape[1], device=words.device) % 65521 + 1
            out += (words.long() * places).sum(dim=1).tolist()
        return out

    def staging(self, blocks):
        """Host memory for the bytes of so many blocks, which a GPU copies from by itself."""
        return torch.empty((blocks, *self.all.shape[1:]), dtype=self.all.dtype,
                           pin_memory=self.all.is_cuda)

    def fill(self, parts):
        """parts: (blocks, their bytes in host memory). They are there when this returns."""
        for blocks, part in parts:
            self.all[torch.tensor(blocks, device=self.all.device)] = part.to(self.all.device)
        if self.all.is_cuda:
            torch.cuda.synchronize()

    def copy_of(self, blocks):
        """The bytes of these blocks, to compare."""
        return self.all[torch.tensor(blocks, device=self.all.device)]


def attend_prompt(queries, keys, values, seen):
    """Attention of the last tokens of a sequence. queries: [tokens, heads, head_dim]; keys and
    values: [all tokens, kv_heads, head_dim]; seen: causal_lower_right of both numbers of tokens."""
    mixed = functional.scaled_dot_product_attention(
        queries.transpose(0, 1)[None], keys.transpose(0, 1)[None], values.transpose(0, 1)[None],
        attn_mask=seen, enable_gqa=True)
    return mixed[0].transpose(0, 1).flatten(1)


def check_attention(shape, device):
    """Raises if this device's kernels do not attend as attention is defined."""
    tokens, new = 112, 48
    queries, keys, values = (
        torch.randn(count, heads, shape.head_dim, device=device).to(getattr(torch, shape.dtype))
        for count, heads in ((new, shape.heads), (tokens, shape.kv_heads),
                             (tokens, shape.kv_heads)))
    group = shape.heads // shape.kv_heads
    spread = keys.float().repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", queries.float(), spread) * shape.head_dim ** -0.5
    seen = torch.ones(new, tokens, dtype=torch.bool, device=device).tril(tokens - new)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    wanted = torch.einsum("hqk,khd->qhd", weights, values.float().repeat_interleave(group, dim=1))
    ways = {"a prompt": attend_prompt(queries, keys, values, causal_lower_right(new, tokens)),
            "a next token": attend_next(queries[-1:], keys[None], values[None], seen[-1:])}
    for way, found in ways.items():
        apart = (found.float() - wanted.flatten(1)[-len(found):]).abs().max().item()
        if not apart < 0.05:
            raise RuntimeError(f"attention of {way} is {apart:.3g} from its definition")


def attend_next(queries, keys, values, seen):
    """Attention of one token of each sequence. queries: [sequences, heads, head_dim]; keys and
    values as PagedCache.read has them; seen: [sequences, all tokens], or None for all of them."""
    count, heads, dim = queries.shape
    kv_heads = keys.shape[2]
    # The heads of a group are the rows that one head of KV is read for.
    mixed = functional.scaled_dot_product_attention(
        queries.view(count, kv_heads, heads // kv_heads, dim), keys.transpose(1, 2),
        values.transpose(1, 2), attn_mask=None if seen is None else seen[:, None, None, :])
    return mixed.reshape(count, heads * dim)
