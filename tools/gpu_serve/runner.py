"""Computes the pieces of a step with a model, over the paged cache, and picks the best tokens.

exact: each piece of a prompt and all next tokens are forwards of their own, of shapes that are
always the same, and each sequence attends alone. So the arithmetic of one sequence does not depend
on what else is in the step: tokens are equal in all arms, bit by bit, and slower.
"""

import torch
from gpu_serve.blocks import SCRATCH
from gpu_serve.paged import attend_next, attend_prompt
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

# Not cuDNN's: it makes a plan for each new length, and next tokens have new ones all the time.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Runner:
    """rows, piece_tokens: with `exact`, the shapes of forwards of next tokens and of prompts."""

    def __init__(self, model, cache, exact=False, rows=0, piece_tokens=0):
        self._model, self._cache, self._exact = model, cache, exact
        self._rows, self._piece_tokens = rows, piece_tokens
        self._device = cache.all.device

    @torch.inference_mode()
    def run(self, pieces):
        """For each wanted piece, in their order: (token, how far its logit is above the next). What
        was written to the cache is there then, for whoever copies it."""
        with sdpa_kernel(KERNELS):
            said = self._run(pieces)
        self.synchronize()  # a step may want no token, which else would be waited for
        return said

    def _run(self, pieces):
        nexts = [piece for piece in pieces if piece.decodes]
        prompts = [piece for piece in pieces if not piece.decodes]
        if not self._exact:
            return self._forward(nexts, prompts, 0)
        said = self._forward(nexts, [], self._rows) if nexts else []
        for piece in prompts:
            said += self._forward([], [piece], self._piece_tokens)
        return said

    def _forward(self, nexts, prompts, padded_to):
        """nexts are the first rows."""
        ids, positions, slots, wanted = [], [], [], []
        for piece in [*nexts, *prompts]:
            one, end = piece.sequence, piece.first + piece.count
            ids += one.tokens[piece.first:end]
            positions += range(piece.first, end)
            slots += self._cache.slots_of(one.blocks, piece.first, piece.count)
            if piece.wanted:
                wanted.append(len(ids) - 1)
        for at in range(padded_to - len(ids)):
            ids.append(0)
            positions.append(0)
            slots += self._cache.slots_of([SCRATCH], at % self._cache.shape.block_tokens, 1)
        attention = _Attention(self._cache, self._numbers(slots), self._exact,
                               self._plan_nexts(nexts), [self._plan_prompt(one, padded_to)
                                                         for one in prompts])
        x = self._model.forward(self._numbers(ids), self._numbers(positions), attention)
        if not wanted:
            return []
        if self._exact:
            wanted += [wanted[-1]] * (self._rows - len(wanted))
        best = self._model.logits(x[self._numbers(wanted)]).topk(2)
        tokens, values = best.indices[:, 0].tolist(), best.values.tolist()
        count = sum(piece.wanted for piece in [*nexts, *prompts])
        return [(token, high - low) for token, (high, low) in zip(tokens, values)][:count]

    def _plan_nexts(self, nexts):
        """(tables, tokens of each)."""
        if not nexts:
            return None
        size = self._cache.shape.block_tokens
        totals = [piece.first + 1 for piece in nexts]
        longest = -(-max(totals) // size)
        tables = [(piece.sequence.blocks + [SCRATCH] * longest)[:longest] for piece in nexts]
        return self._numbers(tables), totals

    def _plan_prompt(self, piece, padded_to):
        """(table, rows, tokens, what they see): the rows are the last of so many tokens."""
        rows = max(piece.count, padded_to)
        tokens = piece.first + rows
        blocks = -(-tokens // self._cache.shape.block_tokens)
        table = (piece.sequence.blocks + [SCRATCH] * blocks)[:blocks]
        # Made once for all layers: torch allocates host memory of its size, though it is not used.
        return self._numbers([table]), rows, tokens, causal_lower_right(rows, tokens)

    def _numbers(self, values):
        # Not from pinned memory: a copy of some KiB.
        return torch.tensor(values, dtype=torch.long, device=self._device)

    def synchronize(self):
        if self._device.type == "cuda":
            torch.cuda.synchronize()


class _Attention:
    """Writes a step's keys and values into the cache, and mixes what each token sees of it."""

    def __init__(self, cache, slots, exact, nexts, prompts):
        self._cache, self._slots, self._exact, self._prompts = cache, slots, exact, prompts
        self._tables, self._totals = nexts or (None, [])
        self._seen = None
        if nexts and not exact:
            length = self._tables.shape[1] * cache.shape.block_tokens
            self._seen = torch.arange(length, device=slots.device)[None] < torch.tensor(
                self._totals, device=slots.device)[:, None]

    def __call__(self, layer, queries, keys, values):
        self._cache.write(layer, self._slots, keys, values)
        mixed = torch.zeros(len(queries), queries[0].numel(), dtype=queries.dtype,
                            device=queries.device)
        count = len(self._totals)
        if count:
            mixed[:count] = self._nexts(layer, queries[:count])
        for table, rows, tokens, seen in self._prompts:
            (found_keys,), (found_values,) = self._cache.read(layer, table)
            mixed[count:count + rows] = attend_prompt(
                queries[count:count + rows], found_keys[:tokens], found_values[:tokens], seen)
            count += rows
        return mixed

    def _nexts(self, layer, queries):
        if not self._exact:
            return attend_next(queries, *self._cache.read(layer, self._tables), self._seen)
        alone = []
        for at, total in enumerate(self._totals):
            blocks = -(-total // self._cache.shape.block_tokens)
            keys, values = self._cache.read(layer, self._tables[at:at + 1, :blocks])
            alone.append(attend_next(queries[at:at + 1], keys[:, :total], values[:, :total], None))
        return torch.cat(alone)
