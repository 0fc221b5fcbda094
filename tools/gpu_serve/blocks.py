"""Blocks of the paged KV cache: which are free, who uses them, which prefix each one ends.

A block that nobody uses keeps its prefix until it is taken for something else; the one that was
given back longest ago goes first. Numbers only, no memory. One thread.
"""

import array
import collections
import hashlib

SCRATCH = 0  # the block that padding is written to; nobody gets it


class Prefix:
    """Digests of the prefixes of a growing sequence, one at each whole block."""

    def __init__(self, block_tokens):
        self._block_tokens = block_tokens
        self._hash, self._rest = hashlib.sha256(), []
        self.digests = []

    def extend(self, tokens):
        self._rest += tokens
        whole = len(self._rest) // self._block_tokens * self._block_tokens
        for first in range(0, whole, self._block_tokens):
            block = self._rest[first:first + self._block_tokens]
            self._hash.update(array.array("i", block).tobytes())
            self.digests.append(self._hash.digest())
        del self._rest[:whole]


class BlockPool:
    """keeps: whether a prefix can be found again once its last user is gone."""

    def __init__(self, blocks, keeps=True):
        if blocks < 2:
            raise ValueError("a pool has at least two blocks: the first is for padding")
        self.blocks, self._keeps = blocks, keeps
        self._users = [0] * blocks
        self._digest_of = [None] * blocks
        self._block_of = {}
        self._free = collections.OrderedDict((block, None) for block in range(1, blocks))

    @property
    def free(self):
        return len(self._free)

    def find(self, digests):
        """The blocks of the leading prefixes that are here. They may go with the next `take`."""
        found = []
        for digest in digests:
            if digest not in self._block_of:
                break
            found.append(self._block_of[digest])
        return found

    def take(self, found, more):
        """`found` blocks and so many fresh ones, all in use by the caller; None: there is no
        room."""
        if more > len(self._free) - sum(1 for block in found if block in self._free):
            return None
        self.hold(found)
        fresh = []
        for _ in range(more):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._users[block] = 1
            fresh.append(block)
        return [*found, *fresh]

    def hold(self, blocks):
        """One more user of each."""
        for block in blocks:
            self._free.pop(block, None)
            self._users[block] += 1

    def drop(self, blocks):
        """One user less. The end of a sequence goes before its beginning, which more may share."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if self._users[block] == 0:
                self._free[block] = None
                if self._digest_of[block] is None:
                    self._free.move_to_end(block, last=False)

    def publish(self, block, digest):
        """The block, which is in use, ends this prefix, unless another one does already."""
        if self._keeps and digest not in self._block_of and self._digest_of[block] is None:
            self._block_of[digest], self._digest_of[block] = block, digest

    def forget_all(self):
        """All prefixes, as if nothing had been computed yet."""
        for block in range(self.blocks):
            self._forget(block)

    def _forget(self, block):
        digest, self._digest_of[block] = self._digest_of[block], None
        if digest is not None:
            del self._block_of[digest]
