"""Continuous batching, as simple as it can honestly be; numbers only, no torch.

A sequence is admitted, first come first served, once there are blocks for all of its prompt and
answer, so none is ever preempted. A step is every running sequence's next token, and pieces of
prompts up to a budget of tokens. What the GPU's cache has of a prompt is shared; what a store has
is loaded by other threads meanwhile, in whole chunks.

exact: a prompt is computed in pieces of one chunk at places that depend on nothing else, and only
such KV is kept and found again. Then the arithmetic of a token does not depend on what was found.
"""

import dataclasses
import enum

from gpu_serve.blocks import Prefix


class State(enum.Enum):
    LOADING = 1  # a store writes to its blocks
    PROMPT = 2
    RUNNING = 3
    DONE = 4


@dataclasses.dataclass
class Piece:
    """Tokens of a sequence to compute: `count` from `first` on, then the token after them if
    `wanted`."""

    sequence: "Sequence"
    first: int
    count: int
    wanted: bool
    decodes: bool  # one token, of a running sequence


class Sequence:
    """One request. done(sequence) is called at its end."""

    def __init__(self, prompt, answer_tokens, began, done, block_tokens):
        if not prompt or answer_tokens < 1:
            raise ValueError("a request has a prompt, and an answer of at least one token")
        self.tokens, self.prompt_tokens = list(prompt), len(prompt)
        self.answer_tokens, self.began, self.done = answer_tokens, began, done
        self.prefix = Prefix(block_tokens)
        self.prefix.extend(self.tokens)
        self.state, self.blocks = None, []
        self.computed = 0  # tokens whose KV is in the blocks
        self.published = 0  # blocks
        self.stored = 0  # chunks given to the store, or found
        self.cached = self.recalled = 0  # tokens of the prompt: found in all; by the store
        self.at, self.gaps = [], []  # of each token of the answer: when, and the logits' gap

    @property
    def answer(self):
        return self.tokens[self.prompt_tokens:]

    def add(self, token, gap, now):
        self.tokens.append(token)
        self.prefix.extend([token])
        self.gaps.append(gap)
        self.at.append(now)


@dataclasses.dataclass(frozen=True)
class Limits:
    block_tokens: int
    chunk_tokens: int
    budget: int  # tokens of prompts in a step
    rows: int  # sequences that are admitted at a time
    exact: bool = False

    def __post_init__(self):
        if self.rows < 1 or self.budget < (self.chunk_tokens if self.exact else 1):
            raise ValueError(f"a step of {self.budget} tokens and {self.rows} rows does nothing")


class Scheduler:
    """store: None, or has load(sequence, keys, blocks of each) and save(keys, blocks of each),
    which begin something and return at once."""

    def __init__(self, pool, limits, store=None):
        self._pool, self._limits, self._store = pool, limits, store
        self._chunk_blocks = limits.chunk_tokens // limits.block_tokens
        self._waiting, self._active = [], []
        self.prefilled = 0  # tokens of prompts that were computed

    def add(self, sequence):
        needed = self._blocks_of(sequence)
        if needed >= self._pool.blocks:
            raise ValueError(f"a request of {needed} blocks never fits in {self._pool.blocks}")
        self._waiting.append(sequence)

    @property
    def idle(self):
        return not self._waiting and not self._active

    def admit(self):
        while self._waiting and len(self._active) < self._limits.rows:
            sequence = self._waiting[0]
            found = self._pool.find(self._findable(sequence))
            blocks = self._pool.take(found, self._blocks_of(sequence) - len(found))
            if blocks is None:
                return
            self._waiting.pop(0)
            self._active.append(sequence)
            sequence.blocks, sequence.published = blocks, len(found)
            sequence.computed = sequence.cached = len(found) * self._limits.block_tokens
            sequence.stored = len(found) // self._chunk_blocks
            sequence.state = State.PROMPT
            self._load(sequence)

    def loaded(self, sequence, chunks):
        """So many chunks, from the first that was asked for, came from the store."""
        sequence.recalled = chunks * self._limits.chunk_tokens
        sequence.computed += sequence.recalled
        sequence.cached += sequence.recalled
        sequence.stored += chunks
        sequence.state = State.PROMPT
        self._publish(sequence)

    def saved(self, blocks):
        """The store does not read these any more."""
        self._pool.drop(blocks)

    def compose(self):
        """The pieces of the next step; none if there is nothing to compute now."""
        pieces = [Piece(one, one.computed, 1, True, True) for one in self._active
                  if one.state is State.RUNNING]
        left = self._limits.budget
        for one in self._active:
            first = one.computed
            while one.state is State.PROMPT and left > 0 and first < one.prompt_tokens:
                count = min(self._until(one, first), left)
                if self._limits.exact and count < self._until(one, first):
                    left = 0  # a piece of this chunk has to wait for a step that has all of it
                    break
                pieces.append(Piece(one, first, count, first + count == one.prompt_tokens, False))
                first, left = first + count, left - count
        return pieces

    def advance(self, pieces, said, now):
        """said: for each wanted piece, in their order, (token, gap of the logits)."""
        said = iter(said)
        for piece in pieces:
            one = piece.sequence
            one.computed += piece.count
            self.prefilled += 0 if piece.decodes else piece.count
            if piece.wanted:
                one.state = State.RUNNING
                one.add(*next(said), now)
            self._publish(one)
            if len(one.tokens) == one.prompt_tokens + one.answer_tokens:
                self._end(one)

    def _blocks_of(self, sequence):
        tokens = sequence.prompt_tokens + sequence.answer_tokens
        return -(-tokens // self._limits.block_tokens)

    def _until(self, sequence, first):
        """Tokens of the prompt from `first` on that may be one piece."""
        left = sequence.prompt_tokens - first
        chunk = self._limits.chunk_tokens
        return min(left, chunk - first % chunk) if self._limits.exact else left

    def _findable(self, sequence):
        """Digests of the blocks that may be found: whole chunks where chunks matter, and never the
        last token, whose logits are wanted."""
        whole = (sequence.prompt_tokens - 1) // self._limits.block_tokens
        if self._store is not None or self._limits.exact:
            digests = sequence.prefix.digests[:whole // self._chunk_blocks * self._chunk_blocks]
            found = len(self._pool.find(digests))
            return digests[:found // self._chunk_blocks * self._chunk_blocks]
        return sequence.prefix.digests[:whole]

    def _load(self, sequence):
        chunks = (sequence.prompt_tokens - 1) // self._limits.chunk_tokens
        if self._store is None or sequence.stored >= chunks:
            return
        keys, blocks = self._chunks(sequence, sequence.stored, chunks)
        sequence.state = State.LOADING
        self._store.load(sequence, keys, blocks)

    def _chunks(self, sequence, first, end):
        """(keys, blocks of each)."""
        each = self._chunk_blocks
        return ([sequence.prefix.digests[(at + 1) * each - 1] for at in range(first, end)],
                [sequence.blocks[at * each:(at + 1) * each] for at in range(first, end)])

    def _publish(self, sequence):
        kept = min(sequence.computed, sequence.prompt_tokens) if self._limits.exact \
            else sequence.computed
        end = kept // self._limits.block_tokens
        for at in range(sequence.published, end):
            self._pool.publish(sequence.blocks[at], sequence.prefix.digests[at])
        sequence.published = max(end, sequence.published)
        chunks = end // self._chunk_blocks
        if self._store is not None and chunks > sequence.stored:
            keys, blocks = self._chunks(sequence, sequence.stored, chunks)
            sequence.stored = chunks
            for each in blocks:
                self._pool.hold(each)
            self._store.save(keys, blocks)

    def _end(self, sequence):
        sequence.state = State.DONE
        self._active.remove(sequence)
        self._pool.drop(sequence.blocks)
        sequence.done(sequence)
