"""Hugging Face transformers: a prompt's DynamicCache, kept and restored by chunks of its tokens.

    keeper = CacheKeeper(kvkeep.Client(), model)
    cache, tokens = keeper.restore(ids)             # what is known of this prompt, maybe nothing
    out = model(ids[:, tokens:], past_key_values=cache, use_cache=True)
    keeper.save(ids, out.past_key_values)

A key is a SHA-256 chain over the tokens, so it covers the whole prefix. The namespace covers the
model's weights and adapters as they are in memory when the keeper is made, its configuration, and
the cache's layout: make another keeper after changing them. One sequence at a time; plain
full-attention layers only, of models whose only input is text, as two images of one size have the
same tokens. A restored cache has exactly the saved bits. Not thread-safe.

A chunk's metadata has its tokens, so that a daemon with that configuration can report them to
routers. They lie beside its bytes in the daemon, on NVMe too; with tell_tokens=False they do not.
"""

import hashlib
import logging

import torch
import transformers
from kvkeep.calls import Chunk, Stored
from kvkeep.engine_versions import check_engine, is_taken, needs, tell_idle
from kvkeep.errors import KvkeepError
from kvkeep.identity import Identity, model_config
from kvkeep.metadata import chunk_metadata

with needs("transformers"):
    from transformers import DynamicCache

logger = logging.getLogger(__name__)

# (layer, key or value, head, token, head dimension), each chunk of tokens by itself.
LAYOUT = "layer,kv,head,token,dim"
# Words in names of configurations of other inputs.
_OTHER_INPUTS = frozenset(("vision", "visual", "image", "images", "img", "video", "audio", "speech",
                           "sound", "multimodal", "mm"))
_PARTS_OF_TEXT = ("attn_config", "ffn_config")  # nested configurations of a text model's layers
_WHOLE_BYTES, _PAGE_BYTES = 1 << 28, 4096  # up to this size all bytes are read, else pages


class CacheKeeper:
    """Keeps caches of one model in the node's daemon.

    model: a transformers model, or its configuration, which then needs a name. name: distinguishes
    its weights, and replaces a fingerprint of them. Partial chunks at the end are not kept.
    tokens_per_block: tokens in a router's block; a whole chunk by default.
    """

    def __init__(self, client, model, *, name=None, tokens_per_chunk=256, dtype=None,
                 tell_tokens=True, tokens_per_block=None):
        if tokens_per_block is not None and (
                tokens_per_block < 1 or tokens_per_chunk % tokens_per_block):
            raise ValueError(f"tokens_per_block: {tokens_per_block} does not divide "
                             f"{tokens_per_chunk}, the tokens of a chunk")
        self._config = getattr(model, "config", model)
        self._is_idle = not is_taken("transformers")
        if self._is_idle:  # no cache is kept, and none is found
            tell_idle("transformers", logger)
            return
        _check_text_only(self._config)
        self._tokens_per_chunk = tokens_per_chunk
        self._tell_tokens, self._tokens_per_block = tell_tokens, tokens_per_block or 0
        self._dtype = dtype or getattr(model, "dtype", None) or self._config.dtype
        config = model_config(self._config)
        identity = Identity(
            "transformers", check_engine("transformers", logger), config=config, layout=LAYOUT,
            weights=f"name:{name}" if name else _weights_of(model))
        self._ns = client.namespace(
            name or identity.name_of(config), tokens_per_chunk=tokens_per_chunk,
            dtype=str(self._dtype).removeprefix("torch."), layout=identity.layout,
            hash_algorithm="sha256 chain of int64 tokens")
        self._local = lambda: client.path.name == "local"

    def keys(self, ids):
        """Returns a key for each whole chunk of tokens, head of the prompt first."""
        tokens, digest, keys = self._flat(ids), b"", []
        for at in range(0, len(tokens) - self._tokens_per_chunk + 1, self._tokens_per_chunk):
            chunk = tokens[at:at + self._tokens_per_chunk]
            digest = hashlib.sha256(digest + chunk.numpy().tobytes()).digest()
            keys.append(digest)
        return keys

    def save(self, ids, cache):
        """Keeps the chunks of `ids` in the cache that are not kept already. Returns a `Stored`."""
        if self._is_idle:
            return Stored(None, [], None)
        layers = self._layers(cache)
        known = min(cache.get_seq_length(), len(self._flat(ids)))
        keys = self.keys(self._flat(ids)[:known])
        have = self._ns.lookup(keys).leading_keys if keys else 0
        chunks = [Chunk(keys[number], self._runs(layers, number),
                        parent=keys[number - 1] if number else None,
                        metadata=self._metadata(ids, keys, number))
                  for number in range(have, len(keys))]
        return self._ns.put(chunks, timeout=60)

    def restore(self, ids):
        """Returns (cache, tokens): the longest kept prefix of `ids` without the last token, whose
        logits the model has to compute. With nothing kept, or without a daemon, an empty cache and
        0."""
        if self._is_idle:
            return DynamicCache(config=self._config), 0
        keys = self.keys(self._flat(ids)[:-1])
        count = self._ns.lookup(keys).leading_keys if keys else 0
        if count == 0:
            return DynamicCache(config=self._config), 0
        layers = self._empty(count)
        count = (self._read_in_place if self._local() else self._copy)(keys[:count], layers)
        tokens, cache = count * self._tokens_per_chunk, DynamicCache(config=self._config)
        for number, (key, value) in enumerate(layers if count else ()):
            cache.update(key[None, :, :tokens], value[None, :, :tokens], number)
        return cache, tokens

    def _flat(self, ids):
        tokens = torch.as_tensor(ids, device="cpu")
        if tokens.dim() == 2 and tokens.shape[0] != 1:
            raise ValueError(f"one sequence at a time, not {tokens.shape[0]}")
        return tokens.reshape(-1).to(torch.int64)

    def _layers(self, cache):
        for number, layer in enumerate(cache.layers):
            # A layer that does not say so (DummyLayer) has no keys either.
            if getattr(layer, "is_sliding", True) or layer.keys.shape[0] != 1:
                raise ValueError(f"layer {number} is no plain full-attention layer of one sequence")
        return [(layer.keys[0].cpu(), layer.values[0].cpu()) for layer in cache.layers]

    def _empty(self, chunks):
        text = self._config.get_text_config()
        heads = text.num_key_value_heads
        dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        shape = (heads, chunks * self._tokens_per_chunk, dim)
        return [(torch.empty(shape, dtype=self._dtype), torch.empty(shape, dtype=self._dtype))
                for _ in range(text.num_hidden_layers)]

    def _runs(self, layers, number):
        """Returns the places of a chunk's bytes, in LAYOUT's order: a run for each head."""
        at = slice(number * self._tokens_per_chunk, (number + 1) * self._tokens_per_chunk)
        return [head[at] for layer in layers for tensor in layer for head in tensor]

    def _metadata(self, ids, keys, number):
        if not self._tell_tokens:
            return b""
        at = slice(number * self._tokens_per_chunk, (number + 1) * self._tokens_per_chunk)
        return chunk_metadata(self._flat(ids)[at].tolist(), keys[number - 1] if number else None,
                              self._tokens_per_block)

    def _read_in_place(self, keys, layers):
        """Copies from the daemon's memory into the cache, one copy, each piece as it arrives. Takes
        one lease after another if one is too small for all."""
        done = 0
        while done < len(keys):
            with self._ns.acquire(keys[done:], timeout=60) as acquired:
                for chunk in acquired.chunks:
                    try:
                        chunk.copy_into(self._runs(layers, done), timeout=60)
                    except KvkeepError:  # damaged, or the daemon is gone: earlier chunks are good
                        return done
                    done += 1
                if not acquired.chunks:
                    return done
        return done

    def _copy(self, keys, layers):
        nbytes = sum(run.nbytes for run in self._runs(layers, 0))
        into = [torch.empty(nbytes, dtype=torch.uint8) for _ in keys]
        got = self._ns.get(keys, into, timeout=60)
        for number, (status, memory) in enumerate(zip(got.statuses, into)):
            if status.name != "HIT":
                return number
            at = 0
            for run in self._runs(layers, number):
                piece = memory[at:at + run.nbytes].view(self._dtype).view(run.shape)
                run.copy_(piece)
                at += run.nbytes
        return len(keys)


def _check_text_only(config):
    """Raises ValueError if the cache depends on more than the tokens. Any nested configuration
    other than the text model's counts, as keys do not cover what it encodes."""
    text = config if config.is_encoder_decoder else config.get_text_config()
    found = ["is_encoder_decoder"] if config.is_encoder_decoder else [
        name for name, value in vars(config).items() if value and (
            _OTHER_INPUTS.intersection(name.lower().split("_")) or
            isinstance(value, transformers.PretrainedConfig) and value is not text and
            name not in _PARTS_OF_TEXT)]
    if found:
        raise ValueError(
            f"CacheKeeper: a key is made of tokens alone, and {type(config).__name__} has other "
            f"inputs ({', '.join(sorted(found))}): one image would be taken for another one of its "
            "size. For text alone give the keeper the text model (model.language_model)")


def _weights_of(model):
    """Returns a digest of each tensor's name, shape and type, and 4 KiB from its middle; for small
    models of all bytes."""
    if not hasattr(model, "state_dict"):
        raise ValueError("CacheKeeper: a configuration does not say which weights there are: give "
                         "the model, or a name, another one for each set of weights")
    found, state = hashlib.sha256(b"kvkeep tensors 1"), model.state_dict()
    whole = sum(tensor.nbytes for tensor in state.values()) <= _WHOLE_BYTES
    for name, tensor in sorted(state.items()):
        flat = tensor.detach().reshape(-1)
        if not whole:
            count = max(1, _PAGE_BYTES // tensor.element_size())
            flat = flat[max(0, flat.numel() - count) // 2:][:count]
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
        found.update(flat.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    adapters = getattr(model, "active_adapters", None)  # a method, where they are loaded
    if getattr(model, "_hf_peft_config_loaded", False) and adapters is not None:
        found.update(repr(adapters()).encode())
    return f"sha256:{found.hexdigest()}"
