"""A decoder in Llama's form with random weights: RMSNorm, RoPE, grouped heads, SwiGLU."""

import torch
from torch.nn import functional

PEAKED = 3.0  # scales queries, so that attention picks tokens and does not average over all of them


class Model:
    def __init__(self, shape, device, seed=0):
        self.shape = shape
        generator = torch.Generator(device).manual_seed(seed)

        def weights(rows, columns, scale=1.0):
            drawn = torch.empty(rows, columns, dtype=getattr(torch, shape.dtype), device=device)
            return drawn.normal_(0, scale * columns ** -0.5, generator=generator)

        self._queries = shape.heads * shape.head_dim
        self._keys = shape.kv_heads * shape.head_dim
        self._tokens = weights(shape.vocabulary, shape.hidden, shape.hidden ** 0.5)
        self._layers = []
        for _ in range(shape.layers):
            layer = {"qkv": weights(self._queries + 2 * self._keys, shape.hidden),
                     "out": weights(shape.hidden, self._queries),
                     "gate_up": weights(2 * shape.inner, shape.hidden),
                     "down": weights(shape.hidden, shape.inner)}
            layer["qkv"][:self._queries] *= PEAKED
            self._layers.append(layer)
        self._head = weights(shape.vocabulary, shape.hidden)
        self._turns = shape.theta ** -(torch.arange(0, shape.head_dim, 2, device=device).double()
                                       / shape.head_dim)

    def forward(self, ids, positions, attend):
        """The last layer's [tokens, hidden]. attend(layer, queries, keys, values): what each token
        takes from the cache, [tokens, heads x head_dim]."""
        angles = positions[:, None].double() * self._turns
        turn = (angles.cos().float()[:, None], angles.sin().float()[:, None])
        x = self._tokens[ids]
        for at, layer in enumerate(self._layers):
            queries, keys, values = functional.linear(_norm(x), layer["qkv"]).split(
                [self._queries, self._keys, self._keys], dim=-1)
            dims = (len(ids), -1, self.shape.head_dim)
            mixed = attend(at, _rotate(queries.view(dims), turn), _rotate(keys.view(dims), turn),
                           values.view(dims))
            x = x + functional.linear(mixed, layer["out"])
            gate, up = functional.linear(_norm(x), layer["gate_up"]).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer["down"])
        return x

    def logits(self, x):
        return functional.linear(_norm(x), self._head).float()


def _norm(x):
    return functional.rms_norm(x, x.shape[-1:], eps=1e-5)


def _rotate(x, turn):
    cos, sin = turn
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1).to(x.dtype)
