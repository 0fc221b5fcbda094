"""A digest of everything that KV bytes depend on: the namespace of an engine's chunks.

    identity = Identity("vllm", version, weights=fingerprint(path).id, config=..., dtype=..., ...)
    client.namespace(identity.model, layout=identity.layout, ...)

Two engines share chunks exactly if their identities have the same digest. Facts have names and a
canonical form: the order of a dict's keys does not matter, and a value without a stable form is an
error. Imports no engine, and nothing outside of the standard library but huggingface_hub, for a
model that is named as in the hub.
"""

import dataclasses
import enum
import hashlib
import json
import math
import pathlib

FORMAT = 1  # of the canonical form and of what adapters include; a change gives other digests
HASH_BYTES = 32  # of hashes that resist collisions: SHA-256, blake3
# Keys of a model's configuration that say where it lay and who wrote it.
_NOT_OF_THE_MODEL = frozenset(("_name_or_path", "name_or_path", "_commit_hash",
                               "transformers_version"))
# Kinds of RoPE whose angles do not depend on the longest sequence that an engine takes.
_ROPE_OF_ANY_LENGTH = frozenset((None, "default", "linear", "llama3", "yarn", "mrope"))
_ROPE_KEYS = ("rope_scaling", "rope_parameters")


class Identity:
    """engine and version made the bytes. facts: everything that changes a byte or its meaning."""

    def __init__(self, engine, version, **facts):
        self.facts = canonical({"format": FORMAT, "engine": engine, "version": version, **facts})
        self.digest = digest_of(self.facts)

    def __str__(self):
        """Returns the JSON that is digested, which shows how two identities differ."""
        return json.dumps(self.facts, sort_keys=True, indent=1, ensure_ascii=False)

    def name_of(self, config):
        """Returns a readable name for the model with this model_config."""
        kinds = config.get("architectures") or [config.get("model_type") or "model"]
        return f"{kinds[0]} {self.digest[:16]}"

    @property
    def layout(self):
        """The namespace's layout."""
        return f"kvkeep identity {FORMAT} {self.digest}"


def digest_of(value):
    """Returns the SHA-256 in hex of a value in canonical form."""
    return hashlib.sha256(_text(value).encode()).hexdigest()


def _text(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def canonical(value, at="identity"):
    """Returns the value in JSON's terms, equal in every process. Raises TypeError if it has
    none."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, enum.Enum):  # before the types of which it may be a subtype
        return {"enum": f"{type(value).__qualname__}.{value.name}"}
    if isinstance(value, int):
        return value
    if isinstance(value, float):  # JSON written by people has 1 and 1.0 for one value
        if value.is_integer() and abs(value) < 2 ** 53:
            return int(value)
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, type):
        return {"class": f"{value.__module__}.{value.__qualname__}"}
    if isinstance(value, pathlib.PurePath):
        return str(value)
    return _canonical_of_many(value, at)


def _canonical_of_many(value, at):
    if isinstance(value, (list, tuple)):
        return [canonical(one, f"{at}[{number}]") for number, one in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return {"set": sorted((canonical(one, at) for one in value), key=_text)}
    if hasattr(value, "items"):
        pairs = {}
        for key, one in value.items():
            name = key if isinstance(key, str) else _text(canonical(key, at))
            if name in pairs:
                raise TypeError(f"{at}: two keys are {name!r}")
            pairs[name] = canonical(one, f"{at}.{name}")
        return pairs
    if dataclasses.is_dataclass(value):
        return {"class": type(value).__qualname__,
                **{one.name: canonical(getattr(value, one.name), f"{at}.{one.name}")
                   for one in dataclasses.fields(value)}}
    kind, said = f"{type(value).__module__}.{type(value).__qualname__}", repr(value)
    if type(value).__repr__ is object.__repr__ or " at 0x" in said:
        raise TypeError(f"{at}: a {kind} has no canonical form")
    return {"repr": f"{kind} {said}"}  # torch.dtype, Fraction


# ---- models


def model_config(config):
    """Returns a transformers configuration, or its dict, without the place it was read from."""
    plain = config.to_dict() if hasattr(config, "to_dict") else config
    return canonical(_stripped(plain), "config")


def _stripped(value):
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        return {key: _stripped(one) for key, one in value.items() if key not in _NOT_OF_THE_MODEL}
    return [_stripped(one) for one in value] if isinstance(value, (list, tuple)) else value


def rope_depends_on_length(config):
    """Returns whether the engine's longest sequence changes the angles of a model_config's RoPE.
    True for unknown kinds."""
    if isinstance(config, list):
        return any(map(rope_depends_on_length, config))
    if not isinstance(config, dict):
        return False
    found = [config[key] for key in _ROPE_KEYS if config.get(key)]
    return any(map(_depends_on_length, found)) or any(
        rope_depends_on_length(one) for key, one in config.items() if key not in _ROPE_KEYS)


def _depends_on_length(rope):
    if not isinstance(rope, dict):
        return True
    inner = [one for one in rope.values() if isinstance(one, dict)]  # of each kind of layer
    kinds = {rope.get("rope_type", rope.get("type"))}
    return not kinds <= _ROPE_OF_ANY_LENGTH or any(map(_depends_on_length, inner))
