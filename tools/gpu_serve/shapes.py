"""Sizes of decoders in Llama's form, without torch: a model has random weights of such sizes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of one model, and of the pages of its KV."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int  # of the gated MLP
    vocabulary: int
    positions: int
    theta: float  # of RoPE
    dtype: str
    block_tokens: int  # of a page of the cache
    chunk_tokens: int  # of what a store keeps under one key

    def __post_init__(self):
        if self.heads % self.kv_heads or self.chunk_tokens % self.block_tokens:
            raise ValueError(f"{self.name}: heads or tokens do not divide")

    @property
    def element_bytes(self):
        return {"bfloat16": 2, "float32": 4}[self.dtype]

    @property
    def token_bytes(self):
        """K and V of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.element_bytes

    @property
    def block_bytes(self):
        return self.block_tokens * self.token_bytes

    @property
    def chunk_blocks(self):
        return self.chunk_tokens // self.block_tokens

    @property
    def parameters(self):
        a_layer = self.hidden * (self.head_dim * 2 * (self.heads + self.kv_heads) + 3 * self.inner)
        return self.layers * a_layer + 2 * self.vocabulary * self.hidden


# The sizes of Llama 3.1 8B. RoPE has its theta and not its scaling, which costs nothing to run.
LLAMA_8B = Shape("llama_8b", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128,
                 inner=14336, vocabulary=128256, positions=131072 + 512, theta=500000.0,
                 dtype="bfloat16", block_tokens=16, chunk_tokens=256)
TINY = Shape("tiny", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, inner=128,
             vocabulary=512, positions=4096, theta=10000.0, dtype="float32", block_tokens=8,
             chunk_tokens=32)
SHAPES = {one.name: one for one in (LLAMA_8B, TINY)}
