"""Identifies the weights of a model or an adapter: by a fingerprint of their files, wherever they
lie.

If nothing can be read (weights that are made up, or come from elsewhere than a file system), a name
stands in its place and is mandatory: equal names mean equal weights.
"""

import dataclasses
import hashlib
import json
import multiprocessing
import os
import pathlib
import struct
import time

from kvkeep.readers import Readers

_WHOLE_BYTES = 1 << 30  # up to this size all content is read: less than a second
_SMALL_BYTES = 64 << 10  # beyond that, tensors up to this size are read whole
_PAGE_BYTES = 4096  # and a page of each larger one
_PAGES = 4096  # of files that do not describe their tensors
_BLOCK_BYTES = 4 << 20
_READS = 256  # pages and small tensors that a thread reads in one go
_THREADS = 8
_THREADS_FOR_PAGES = 32  # each page is a round trip to a file system over a network
_MAX_HEADER_BYTES = 100 << 20  # of a safetensors file, as its own library has it
_SHARDS = (("*.safetensors",), ("*.bin", "*.pt", "*.pth"), ("*.gguf",))  # the first with a match
# Files beside the weights that say how to read them (quantize_config.json and such), and how
# images, audio and video become input (preprocessor_config.json and such; tekken.json for Mistral's
# models); code that comes with a model, too.
_SIDE_FILES = ("config.json", "*_config.json", "params.json", "tekken.json", "*.py")
# Files that KV does not depend on: tokens are in the keys.
_NOT_OF_KV = ("generation_config.json", "tokenizer_config.json")
_NOT_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "optimizer.bin")


@dataclasses.dataclass(frozen=True)
class Weights:
    """id: distinguishes weights. changed_ns: when the last of their files changed, by the file
    system's clock; 0 for a name, and in the hub's cache, where a revision's files never change."""

    id: str
    changed_ns: int = 0


def check_option(value):
    """Raises ValueError unless it is "auto", "full" or "name:X"."""
    named = isinstance(value, str) and value.startswith("name:") and value != "name:"
    if value not in ("auto", "full") and not named:
        raise ValueError(f'weights: "auto", "full" or "name:" and a name, not {value!r}')


def weights_of(model, option, *, revision=None, cache_dir=None, unreadable=None):
    """Returns the Weights by the option "weights". unreadable: why files say nothing of these
    weights, or None. Without a fingerprint and a name it raises ValueError, which says what to
    do."""
    check_option(option)
    if option.startswith("name:"):
        return Weights(option)
    try:
        if unreadable is not None:
            raise ValueError(unreadable)
        found = fingerprint(locate(model, revision, cache_dir), whole=option == "full")
        return found if os.path.exists(model) else Weights(found.id)
    except (OSError, ValueError) as why:
        raise ValueError(
            f"kvkeep: it cannot be told which weights {model!r} has: {why}. Give "
            '"weights": "name:X", and another X whenever these weights change') from why


_IMPORTED_NS = time.time_ns()


def check_older_than_engine(weights, model):
    """Raises ValueError if the files were written after the engine began, which may have loaded
    others."""
    if weights.changed_ns > _engine_began_ns():
        raise ValueError(f"kvkeep: the weights of {model!r} were written while the engine was "
                         'starting: start it again, or give "weights": "name:X"')


def _engine_began_ns():
    """Returns a time before the engine read its weights. A process that was made for an engine
    began then. A process that may have written the weights itself has only the import of this
    module."""
    if multiprocessing.parent_process() is None:
        return _IMPORTED_NS
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - int(running_s * 1e9)


def locate(model, revision=None, cache_dir=None):
    """Returns a model's folder or file; a model named as in the hub lies in its cache."""
    path = pathlib.Path(model)
    if path.exists():
        return path
    try:
        from huggingface_hub import snapshot_download  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise ValueError(f"{model} is not there") from None
    try:
        return pathlib.Path(snapshot_download(model, revision=revision, cache_dir=cache_dir,
                                              local_files_only=True))
    except Exception as why:  # pylint: disable=broad-except  # many kinds
        raise ValueError(f"{model} is no path, and not in the hub's cache: {why}") from why


def files_of(path):
    """Returns (files of the weights, files beside them), by name."""
    path = pathlib.Path(path)
    if path.is_file():
        return [path], []
    for patterns in _SHARDS:
        shards = {one for pattern in patterns for one in path.glob(pattern)}
        shards = sorted(one for one in shards if one.name not in _NOT_WEIGHTS)
        if shards:
            return shards, _side_files(path)
    raise ValueError(f"{path} has no weights in it (*.safetensors, *.bin, *.pt, *.gguf)")


def _side_files(folder):
    found = {one for pattern in _SIDE_FILES for one in folder.glob(pattern)}
    return sorted(one for one in found if one.name not in _NOT_OF_KV)


def beside(model, revision=None, cache_dir=None):
    """Returns a digest of the files beside a model's weights, which may be absent. Returns None if
    the model is no folder here."""
    try:
        path = locate(model, revision, cache_dir)
    except ValueError:
        return None
    if not path.is_dir():
        return None
    found = hashlib.sha256()
    for one in _side_files(path):
        _add(found, one.name, one.read_bytes())
    return found.hexdigest()


def signature(path):
    """Returns a signature of the files, without reading them: it changes when one is written or
    replaced."""
    shards, side = files_of(path)
    said = [(one.name, one.stat()) for one in shards + side]
    return tuple((name, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_dev, at.st_ino)
                 for name, at in said)


def fingerprint(path, whole=False):
    """Returns the Weights, made of names, sizes and content, wherever and whenever the files were
    written. All content counts up to 1 GiB, or with `whole`. Beyond that, it is each safetensors
    header, each tensor of up to 64 KiB, and a page of 4 KiB from the middle of each larger one."""
    before = signature(path)
    shards, side = files_of(path)
    sizes = [one.stat().st_size for one in shards]
    read_all = whole or sum(sizes) <= _WHOLE_BYTES
    found = hashlib.sha256(b"kvkeep weights 2 whole" if read_all else b"kvkeep weights 2 pages")
    for one in side:
        _add(found, one.name, one.read_bytes())
    for one, size in zip(shards, sizes):
        _add(found, _name_of(one, path), struct.pack("<Q", size))
    reads = [(one,) for one in shards] if read_all else list(_samples(shards, sizes))
    readers = Readers(_THREADS if read_all else _THREADS_FOR_PAGES)
    try:
        digests = readers.in_order(_digest_of if read_all else _digest_of_places, reads)
        for (one, *_), digest in zip(reads, digests):
            _add(found, _name_of(one, path), digest)
    finally:
        readers.close()
    if signature(path) != before:
        raise ValueError(f"{path} changed while it was read")
    changed = max(max(mtime, ctime) for _, _, mtime, ctime, _, _ in before)
    return Weights(f"sha256:{found.hexdigest()}", changed)


def _add(digest, name, content):
    """Adds both with their lengths, so that no two lists of names and contents give the same
    bytes."""
    name = name.encode()
    digest.update(struct.pack("<QQ", len(name), len(content)) + name + content)


def _name_of(shard, path):
    """Returns a shard's name; empty for a file that was named by itself, as only its place names
    it."""
    return "" if pathlib.Path(path).is_file() else shard.name


def _digest_of(path):
    digest, block = hashlib.sha256(), bytearray(_BLOCK_BYTES)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(memoryview(block)[:count])
    return digest.digest()


def _samples(shards, sizes):
    """Yields (file, some of its places to read): (name, begin, bytes) of each place."""
    for shard, size in zip(shards, sizes):
        if shard.suffix == ".safetensors":
            with open(shard, "rb") as file:
                header, at = _header(file, size, shard)
            places = [("header", 0, at)]
            places += [(f"tensor {name}", *_sample(at + begin, end - begin, _SMALL_BYTES))
                       for begin, end, name in _tensors(header, size - at, shard)]
        else:  # no header that is safe to read: its head, and pages all over it
            share = max(1, _PAGES * size // sum(sizes))
            places = [("head", 0, min(size, _PAGE_BYTES))]
            places += [(str(number), *_sample(number * size // share, size // share, _PAGE_BYTES))
                       for number in range(share)]
        for first in range(0, len(places), _READS):
            yield shard, places[first:first + _READS]


def _sample(begin, nbytes, small):
    """Returns (where to read, how much): all of a small range, else a page of its middle."""
    if nbytes <= small:
        return begin, nbytes
    return begin + (nbytes - _PAGE_BYTES) // 2, _PAGE_BYTES


def _digest_of_places(path, places):
    """Returns a digest of names and bytes. places: as _samples yields them."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        for name, begin, nbytes in places:
            content = os.pread(file.fileno(), nbytes, begin)
            if len(content) != nbytes:
                raise ValueError(f"{path} is shorter than it was")
            _add(digest, name, content)
    return digest.digest()


def _header(file, size, path):
    """Returns (the header's bytes, where the data begins)."""
    start = file.read(8)
    nbytes = struct.unpack("<Q", start)[0] if len(start) == 8 else size
    if nbytes > min(size - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"{path} is no safetensors file")
    return file.read(nbytes), 8 + nbytes


def _tensors(header, data_bytes, path):
    """Returns (begin, end, name) in the data, in the order of their places."""
    try:
        found = sorted((*tensor["data_offsets"], name)
                       for name, tensor in json.loads(header).items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise ValueError(f"{path} has a broken header: {why}") from why
    if any(not 0 <= begin <= end <= data_bytes for begin, end, _ in found):
        raise ValueError(f"{path} is shorter than its header says")
    return found
