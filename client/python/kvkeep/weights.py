"""Which weights a model or an adapter has: a fingerprint of their files, wherever they lie.

Where nothing can be read (weights that are made up, or come from elsewhere than a file system) a
name stands in its place, and is mandatory: who names them says that they are the same.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import multiprocessing
import os
import pathlib
import struct
import time

_WHOLE_BYTES = 1 << 30  # up to so much the whole content is read: less than a second
_PAGES = 4096  # read of what is more
_PAGE_BYTES = 4096
_BLOCK_BYTES = 4 << 20
_THREADS = 8
_MAX_HEADER_BYTES = 100 << 20  # of a safetensors file, as its own library has it
_SHARDS = (("*.safetensors",), ("*.bin", "*.pt", "*.pth"), ("*.gguf",))  # the first that are there
# Beside the weights: what says how they are to be read; code that comes with a model, too.
_SIDE_FILES = ("config.json", "params.json", "adapter_config.json", "hf_quant_config.json",
               "quantize_config.json", "*.py")
_NOT_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "optimizer.bin")


@dataclasses.dataclass(frozen=True)
class Weights:
    """id: what tells them from others. changed_ns: when the last of their files was, by the file
    system's clock; 0 for a name, and in the hub's cache, where a revision's files never change."""

    id: str
    changed_ns: int = 0


def check_option(value):
    """ValueError: it is none of "auto", "full" and "name:X"."""
    named = isinstance(value, str) and value.startswith("name:") and value != "name:"
    if value not in ("auto", "full") and not named:
        raise ValueError(f'weights: "auto", "full" or "name:" and a name, not {value!r}')


def weights_of(model, option, *, revision=None, cache_dir=None, unreadable=None):
    """By the option "weights". unreadable: why files say nothing of these weights, if they do not.
    ValueError says what to do where neither a fingerprint nor a name is to be had."""
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
    """ValueError: the files were written after the engine began, which may have loaded others."""
    if weights.changed_ns > _engine_began_ns():
        raise ValueError(f"kvkeep: the weights of {model!r} were written while the engine was "
                         'starting: start it again, or give "weights": "name:X"')


def _engine_began_ns():
    """Before it read its weights. A process that was made for an engine began then; of one that
    may have written the weights itself, the import of this is all there is."""
    if multiprocessing.parent_process() is None:
        return _IMPORTED_NS
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - int(running_s * 1e9)


def locate(model, revision=None, cache_dir=None):
    """The folder or file of a model; one that is named as in the hub lies in its cache."""
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
    except Exception as why:  # pylint: disable=broad-except  # it has many
        raise ValueError(f"{model} is no path, and not in the hub's cache: {why}") from why


def files_of(path):
    """(those of the weights, those beside them), by name."""
    path = pathlib.Path(path)
    if path.is_file():
        return [path], []
    for patterns in _SHARDS:
        shards = {one for pattern in patterns for one in path.glob(pattern)}
        shards = sorted(one for one in shards if one.name not in _NOT_WEIGHTS)
        if shards:
            side = sorted({one for pattern in _SIDE_FILES for one in path.glob(pattern)})
            return shards, side
    raise ValueError(f"{path} has no weights in it (*.safetensors, *.bin, *.pt, *.gguf)")


def signature(path):
    """Of the files, without reading them: it changes when one is written or replaced."""
    shards, side = files_of(path)
    said = [(one.name, one.stat()) for one in shards + side]
    return tuple((name, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_dev, at.st_ino)
                 for name, at in said)


def fingerprint(path, whole=False):
    """Of names, sizes and content, so the same wherever the files lie and whenever they were
    written. Of more than 1 GiB, unless `whole` is asked for: each safetensors header, and a page of
    4 KiB from the middle of each tensor, up to 4,096 of them, evenly chosen."""
    before = signature(path)
    shards, side = files_of(path)
    sizes = [one.stat().st_size for one in shards]
    read_all = whole or sum(sizes) <= _WHOLE_BYTES
    found = hashlib.sha256(b"kvkeep weights 1 whole" if read_all else b"kvkeep weights 1 pages")

    def add(name, content):
        found.update(struct.pack("<QQ", len(name.encode()), len(content)) + name.encode() + content)

    for one in side:
        add(one.name, one.read_bytes())
    for one, size in zip(shards, sizes):
        add(_name_of(one, path), struct.pack("<Q", size))
    if read_all:
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            for one, digest in zip(shards, pool.map(_digest_of, shards)):
                add(_name_of(one, path), digest)
    else:
        for one, name, content in _pages(shards, sizes):
            add(f"{_name_of(one, path)}\0{name}", content)
    if signature(path) != before:
        raise ValueError(f"{path} changed while it was read")
    changed = max(max(mtime, ctime) for _, _, mtime, ctime, _, _ in before)
    return Weights(f"sha256:{found.hexdigest()}", changed)


def _name_of(shard, path):
    """One that was named by itself has no name: only its place has."""
    return "" if pathlib.Path(path).is_file() else shard.name


def _digest_of(path):
    digest, block = hashlib.sha256(), bytearray(_BLOCK_BYTES)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(memoryview(block)[:count])
    return digest.digest()


def _pages(shards, sizes):
    """(file, what it is of, bytes): headers, then pages."""
    places = []
    for shard, size in zip(shards, sizes):
        with open(shard, "rb") as file:
            if shard.suffix == ".safetensors":
                header, at = _header(file, size, shard)
                yield shard, "header", header
                places += [(shard, name, at + begin, end - begin)
                           for begin, end, name in _tensors(header, size - at, shard)]
            else:  # no header that can be read safely: its ends, and pages all over it
                yield shard, "head", file.read(_PAGE_BYTES)
                share = max(1, _PAGES * size // sum(sizes))
                places += [(shard, str(number), number * size // share, size // share)
                           for number in range(share)]
    step = max(1, -(-len(places) // _PAGES))
    for shard, name, begin, nbytes in places[::step]:
        with open(shard, "rb", buffering=0) as file:
            middle = begin + max(0, nbytes - _PAGE_BYTES) // 2
            yield shard, name, os.pread(file.fileno(), min(nbytes, _PAGE_BYTES), middle)


def _header(file, size, path):
    """(its bytes, where the data begins)."""
    start = file.read(8)
    nbytes = struct.unpack("<Q", start)[0] if len(start) == 8 else size
    if nbytes > min(size - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"{path} is no safetensors file")
    return file.read(nbytes), 8 + nbytes


def _tensors(header, data_bytes, path):
    """(begin, end, name) in the data, in the order that they lie in."""
    try:
        found = sorted((*tensor["data_offsets"], name)
                       for name, tensor in json.loads(header).items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise ValueError(f"{path} has a broken header: {why}") from why
    if any(not 0 <= begin <= end <= data_bytes for begin, end, _ in found):
        raise ValueError(f"{path} is shorter than its header says")
    return found
