"""Common code of the tests of weights and adapters: a model's folder. kvkeep is in sys.path by
then."""

import json
import os
import pathlib
import struct
import tempfile
import unittest

from kvkeep import weights

PAGE = 4096
LARGE = 20 * PAGE  # size of a tensor that is not read whole if a model is large


def safetensors(path, metadata=None, **tensors):
    """Writes tensors as their own library does. name=bytes: a tensor of these bytes."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, content in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(content)],
                        "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))


class WithModel(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        self.model = self.make("model")

    def make(self, name):
        folder = self.root / name
        folder.mkdir()
        (folder / "config.json").write_text('{"hidden_size": 4}')
        (folder / "tokenizer.json").write_text("{}")
        safetensors(folder / "model-1.safetensors", a=b"a" * 3 * PAGE, b=b"b" * 100)
        safetensors(folder / "model-2.safetensors", c=b"c" * LARGE, none=b"")
        return folder

    def id(self, folder=None, **how):
        return weights.fingerprint(folder or self.model, **how).id

    def write(self, name, at, content):
        with open(self.model / name, "r+b") as file:
            file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
            file.write(content)
