"""Lists the names that others rely on in a built tree, as lines of text: see also layouts.py.

    python(node)    the Python client: its names, and what its calls take
    engines(node)   the adapters' classes and options
    config(node)    the keys of the configuration, and which of them are taken over by a reload
    metrics(node)   the metrics, their types and labels
    json(node)      the keys of the JSON of the tool's verbs that ask a daemon

`node` is a Node that serves, with a directory or a bucket (which does not answer) as its G4. What a
default or a text is, is free, so it is not listed.
"""

import ast
import enum
import inspect
import json as json_module
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/client/c"), str(ROOT / "tests/deploy")]

import scraper  # noqa: E402
from daemon import Daemon, free_port  # noqa: E402

# Modules whose names an engine's flags or a program's imports have, beside `kvkeep`'s own.
ADAPTERS = ("lmcache", "lmcache_native", "sglang", "sglang_direct", "transformers", "trtllm",
            "vllm", "vllm_direct")
# Classes whose objects kvkeep makes: what makes them is its own affair.
RESULTS = {"Acquired", "AcquiredChunk", "AsyncCache", "Cache", "Counted", "Found", "Got",
           "GpuStats", "Lease", "Namespace", "News", "Path", "PinStats", "Prefetched", "Result",
           "Stats", "Stored", "WatchEvent"}
# What has no underscore and is of use to kvkeep's own modules alone.
OWN = {"Acquired.kept", "Acquired.library", "Acquired.must", "Client.begin", "Client.end",
       "Client.exception", "Client.grpc_options", "Client.handle", "Client.in_use",
       "Client.is_ours", "Client.library", "Client.options", "Client.run", "Client.usable",
       "GpuRuns.adopt", "GpuRuns.array", "GpuUse.kept", "KvPlanner.KIND", "Lease.kept",
       "Namespace.handle", "Namespace.spec", "PagePlanner.KIND", "PinnedArena.kept", "Calls.run"}
# Methods that Python calls by itself.
SPOKEN = {"__aenter__", "__aexit__", "__await__", "__contains__", "__delitem__", "__enter__",
          "__exit__", "__getitem__", "__iter__", "__len__", "__next__", "__aiter__", "__anext__"}
VERBS = (("put", "one", "CHUNK"), ("get", "one", "--output", "CHUNK"), ("lookup", "one"),
         ("ping",), ("version",), ("wait", "--devices"), ("status",), ("sessions",), ("leases",),
         ("namespaces",), ("quota",), ("config", "show"), ("config", "reload"), ("verify",),
         ("evict", "4KiB", "--yes"), ("delete", "one"), ("clear", "--yes"), ("drain",))


class Node(Daemon):
    """A daemon with all that has names of its own: G4, a fleet, metrics."""

    def __init__(self, binary, bucket):
        super().__init__(binary)
        place = pathlib.Path(self.dir)
        scraper.write_tokens(place)
        for name, text in (("fleet-key", "0123456789abcdef" * 4),
                           ("bucket-keys", "id\nsecret\n")):
            (place / name).touch(mode=0o600)
            (place / name).write_text(text, encoding="ascii")
        (place / "g4").mkdir()
        (place / "g4/.kvkeep").write_text("golden\n", encoding="ascii")
        self.port = free_port()
        self.settings = {
            "KVKEEP_G2_CAPACITY": "64MiB", "KVKEEP_G2_SEGMENT_BYTES": "16MiB",
            "KVKEEP_METRICS_LISTEN": f"127.0.0.1:{self.port}",
            "KVKEEP_METRICS_TOKEN_FILE": str(place / "metrics-tokens"),
            "KVKEEP_FLEET_NAME": "golden", "KVKEEP_FLEET_KEY_FILE": str(place / "fleet-key"),
            "KVKEEP_G4_URL": f"file://{place}/g4"}
        if bucket:
            self.settings |= {"KVKEEP_G4_URL": f"http://127.0.0.1:{free_port()}/golden",
                              "KVKEEP_G4_CREDENTIALS_FILE": str(place / "bucket-keys")}


# ---- Python -------------------------------------------------------------------------------------


def _call(name, function, *, bound):
    """Yields what a call takes. bound: its first parameter is self."""
    parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0:]
    required = [one.name for one in parameters if one.default is one.empty
                and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    yield f"call {name} requires {', '.join(required) or 'nothing'}"
    for at, one in enumerate(parameters):
        where = {one.KEYWORD_ONLY: "by its name", one.VAR_POSITIONAL: "as any number",
                 one.VAR_KEYWORD: "as any names", one.POSITIONAL_ONLY: f"at {at}"}.get(
                     one.kind, f"at {at} or by its name")
        yield f"takes {name} {one.name} {where}"


def _members(kind):
    """Returns {name: what} of a class and its bases, where these are kvkeep's."""
    found = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith("kvkeep"):
            found.update(dict.fromkeys(vars(one).get("__annotations__", ())))
            found.update(vars(one))
    return found


def _class(name, kind):
    """Yields what a class has."""
    yield f"class {name}"
    if issubclass(kind, enum.Enum):
        yield from (f"value {name}.{one.name} {one.value}" for one in kind)
        return
    members = {**dict.fromkeys(_set_by_init(kind)), **_members(kind)}
    for member, what in members.items():
        whole = f"{name}.{member}"
        if ".".join(whole.split(".")[-2:]) in OWN:
            continue
        if member == "__init__":
            if kind.__name__ not in RESULTS and not issubclass(kind, Exception):
                yield from _call(name, what, bound=True)
        elif member in SPOKEN:
            yield f"method {whole}"
        elif not member.startswith("_"):
            if isinstance(what, (staticmethod, classmethod)):
                yield from _call(whole, what.__func__, bound=isinstance(what, classmethod))
            elif inspect.isfunction(what):
                yield from _call(whole, what, bound=True)
            else:
                yield f"field {whole}"
    if issubclass(kind, tuple) and kind.__name__ not in RESULTS:
        yield from _call(name, kind, bound=False)


def _set_by_init(kind):
    """Yields the attributes that the __init__ of a class or of its bases sets."""
    for one in kind.__mro__:
        made = vars(one).get("__init__")
        if one.__module__.startswith("kvkeep") and made and "." in made.__code__.co_filename:
            text = textwrap.dedent(inspect.getsource(made))  # else it is a dataclass's
            for node in ast.walk(ast.parse(text)):
                if (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                        and getattr(node.value, "id", "") == "self"):
                    yield node.attr


def _adapter(module):
    """Yields the names of a module that takes an engine to import: those in __all__, else its
    classes."""
    tree = ast.parse((ROOT / f"client/python/kvkeep/{module}.py").read_text(encoding="utf-8"))
    listed = [ast.literal_eval(one.value) for one in ast.walk(tree) if isinstance(one, ast.Assign)
              and getattr(one.targets[0], "id", "") == "__all__"]
    names = {name for names in listed for name in names} if listed else {
        one.name for one in tree.body if isinstance(one, ast.ClassDef)}
    yield from (f"adapter kvkeep.{module}.{name}" for name in names if name[0] != "_")


def _options():
    """Yields the options of each adapter, which an engine's flags or files have by these names."""
    classes = {}
    for path in sorted((ROOT / "client/python/kvkeep").glob("*.py")):
        for one in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(one, ast.ClassDef) and one.name.endswith("Options"):
                fields = [below.target.id for below in one.body if isinstance(below, ast.AnnAssign)
                          and ast.unparse(below.annotation) != "ClassVar"]
                bases = [base.id for base in one.bases]
                classes[one.name] = bases, fields, path.name != "engine.py"  # it has bases alone

    def fields_of(name):
        bases, fields, _ = classes[name]
        return [*fields, *(field for base in bases for field in fields_of(base))]
    yield from (f"option {name}.{field}" for name, (_, _, used) in classes.items() if used
                for field in fields_of(name))


def imported(node):
    """Returns the module `kvkeep` of this tree, with the library of the build."""
    library = pathlib.Path(node.binary).parents[1] / "lib/libkvkeep-client.so.1"
    os.environ["KVKEEP_CLIENT_LIBRARY"] = str(library)
    sys.path.insert(0, str(ROOT / "client/python"))
    import kvkeep
    import kvkeep.aio
    import kvkeep.watch
    return kvkeep


def python(node):
    kvkeep = imported(node)
    lines = set()
    named = {f"kvkeep.{name}": getattr(kvkeep, name) for name in kvkeep.__all__}
    named["kvkeep.aio.Calls"] = kvkeep.aio.Calls
    for name in ("Begin", "News", "WatchEvent"):
        named[f"kvkeep.watch.{name}"] = getattr(kvkeep.watch, name)
    for name, what in named.items():
        if inspect.isclass(what):
            lines |= set(_class(name, what))
        else:
            lines |= set(_call(name, what, bound=False))
    return sorted(lines)


def engines(_):
    return sorted({*_options(), *(line for module in ADAPTERS for line in _adapter(module))})


# ---- the daemon and the tool --------------------------------------------------------------------


def config(node):
    told = subprocess.run([node.binary, "--print-config-reference"], check=True,
                          capture_output=True, text=True).stdout
    lines = set()
    for line in re.findall(r"(?m)^\| `.*\|$", told):
        cells = re.split(r"(?<!\\) \| ?", line)
        key = cells[0].strip("| `")
        lines |= {f"key {key}"} | ({f"live {key}"} if cells[3].strip() == "live" else set())
    return sorted(lines)


def metrics(node):
    request = urllib.request.Request(f"http://127.0.0.1:{node.port}/metrics",
                                     headers={"Authorization": f"Bearer {scraper.TOKEN}"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        text = reply.read().decode()
    lines, name = set(), None
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            lines.add(f"metric {name} {line.split()[3]}")
        elif not line.startswith("#") and "{" in line:
            labels = re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', line)
            lines |= {f"label {name} {label}" for label in labels}
    return sorted(lines)


def _keys(value, path):
    """Yields the path of each key below."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield f"{path} {key}" if " " not in path else f"{path}.{key}"
            yield from _keys(below, f"{path} {key}" if " " not in path else f"{path}.{key}")
    elif isinstance(value, list):
        for below in value:
            yield from _keys(below, f"{path}[]")


def json(node):
    kvkeep = imported(node)
    tool = [pathlib.Path(node.binary).parent / "kvkeep", "--endpoint", node.endpoint,
            "--timeout", "20s", "--admin", f"unix://{node.dir}/admin.sock", "--json"]
    chunk = pathlib.Path(node.dir, "chunk")
    chunk.write_bytes(b"golden" * 1000)
    lines = set()
    with kvkeep.Client(node.endpoint, timeout=20) as client:
        assert client.wait_connected(20), "no session"
        space = client.namespace("golden", tokens_per_chunk=16)
        space.put([(bytes(32), b"leased")])
        leased = space.lookup([bytes(32)], lease=True)  # so that there is a session with a lease
        for words in VERBS:
            done = subprocess.run([*tool, *(str(chunk) if one == "CHUNK" else one
                                            for one in words)],
                                  check=False, capture_output=True, text=True)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
            verb = "-".join(one for one in words[:2] if words[0] == "config" or one == words[0])
            lines |= set(_keys(json_module.loads(done.stdout), verb))
        leased.lease.release()
    return sorted(lines)


LISTINGS = {"python": python, "engines": engines, "config": config, "metrics": metrics,
            "json": json}


def now(binary):
    """Returns {name: lines} of a build, by its daemon."""
    found = {name: set() for name in LISTINGS}
    for bucket in (True, False):
        with Node(binary, bucket) as node:
            node.wait_joined()
            for name, listing in LISTINGS.items():
                found[name] |= set(listing(node))
    return {name: sorted(lines) for name, lines in found.items()}
