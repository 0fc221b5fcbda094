#!/usr/bin/env python3
"""Style as a test: checks the tree against the rules of CONTRIBUTING.md.

    tests/tidy/tidy.py [--root DIR]     exit 1 and one line per problem: file:line: [rule] what

Every rule is a function from the tree to problems, and tidy_test.py has a bad tree for each. The
ratchets at the top hold what is tolerated for now, with its reason; they may only shrink.
"""

import argparse
import ast
import collections
import pathlib
import re
import subprocess
import sys

import cpp_source
import objects
import prose
from layers import Layers

# ---- ratchets: path -> why it is tolerated ------------------------------------------------------

# Folders with sources whose README.md is still to be written.
KNOWN_MISSING = {}
# Files with lines beyond MAX_COLUMNS: the longest they may have.
KNOWN_LONG_LINES = {}
# Headers beyond MAX_HEADER_LINES: path -> why it is better in one piece.
LONG_HEADERS = {
    "proto/local/protocol.h": "a wire contract is read as one page",
    "client/c/kvkeep.h": "the C ABI: one file to install, to read and to bind to",
}

# Top folders -> how many of their sentences still begin as riddles do (riddle below).
KNOWN_RIDDLES = {}
# Top folders -> how many cells of their tables are still longer than prose.MAX_CELL.
KNOWN_LONG_CELLS = {}
# The store's interfaces through which an object calls one that knows it: class -> why it must.
STORE_INTERFACES = {
    "ChunkHooks": "a chunk ends in Chunks, and has parts in other tiers",
    "Committer::Host": "a commit gives room to writes",
    "Filler::Host": "what a read means for a chunk's other copies is not the reader's to say",
    "LowerTier": "devices, and what lies beyond the node, are read alike",
    "Promotions": "what those who ask for reads see of Filler",
    "ReadSink": "a tier tells of bytes, whoever asked",
    "Recaller::Host": "a recall needs a slot of the table",
}

# ---- limits -------------------------------------------------------------------------------------

MAX_FILE_LINES = 600
MAX_HEADER_LINES = 200
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

# ---- layers --------------------------------------------------------------------------------------

# Which folder may include which is not written here: it is the DEPS in CMakeLists.txt (layers.py).
# Walls: folder -> who alone may include its headers, besides what is in it.
WALLS = {
    "client/internal": ("client/", "tests/client/", "tests/e2e/", "tests/gpu/"),
    "client/transport": ("client/", "tests/client/"),
    "client/local": ("client/", "tests/client/", "tests/e2e/"),
    "client/grpc": ("client/", "tests/client/", "tests/e2e/"),
}

# Outside headers and the only places that may include them (tests of those places too).
_GRPC = ("proto", "server", "client", "tools", "tests")
OUTSIDE_HEADERS = [
    (r"grpc(pp|)/|google/protobuf/|.*\.pb\.h$", _GRPC),
    (r"yaml-cpp/", ("config", "tests/config")),
    (r"prometheus/|civetweb\.h|CivetServer\.h", ("server", "tests/server")),
    (r"curl/", ("tiers/objects", "tests/tiers/objects")),
    (r"rocksdb/", ("tiers/index", "tests/tiers/index", "tests/tiers/fsck")),
    (r"liburing", ("tiers/io", "tests/tiers/io", "tools/compare/contestants")),
    (r"cuda|nvml|nvtx", ("gpu/", "server/gpu", "client", "tools", "tests/gpu", "tests/fakes/cuda",
                         "tests/client")),
    (r"nlohmann/", ("tiers/objects/key_answers", "tiers/policy/trace", "tiers/policy/simulate",
                    "config", "server", "client", "tools", "tests")),
]

# ---- banned in C++: pattern, where (path -> bool), what instead ----------------------------------

_PRODUCTION = ("tiers/", "config/", "proto/", "gpu/", "server/", "client/", "tools/")


def _under(*prefixes):
    return lambda path: path.startswith(prefixes)


def _anywhere(path):
    return True


def _except(*paths):
    return lambda path: path not in paths


BANNED = [
    (r"\bassert\s*\(", _anywhere, "KVKEEP_CHECK (tiers/base/check.h): it stays on in release"),
    (r"\bstd::(recursive_|shared_|timed_)?mutex\b|\bstd::condition_variable|"
     r"\bstd::(lock_guard|unique_lock|scoped_lock|shared_lock)\b",
     _except("tiers/base/mutex.h", "cmake/gcc11_wait.cc"),
     "kvkeep::Mutex, MutexLock, CondVar (tiers/base/mutex.h)"),
    (r"\babsl::(Mutex|MutexLock|CondVar|ReaderMutexLock|WriterMutexLock)\b", _anywhere,
     "kvkeep::Mutex (tiers/base/mutex.h): thread sanitizer sees it"),
    (r"\busing\s+namespace\b(?!\s+(std::)?(chrono_)?(literals|chrono_literals|string_literals)\b)"
     r"(?!\s+std::literals)", _anywhere, "using-declarations of single names"),
    (r"\bstd::(cout|cerr|clog)\b|(?<![\w:])(std::)?printf\s*\(", _under("tiers/"),
     "a Status, or Stats: the library prints nothing"),
    (r"\bv?sprintf\s*\(|\bstr(cpy|cat)\s*\(|\bgets\s*\(", _anywhere,
     "absl::StrFormat, std::string"),
    (r"(?<![\w.>])(rand\s*\(\s*\)|srand\s*\()|\bstd::random_device\b", _anywhere,
     "RandomSource (tiers/base/random.h), in tests SeededRandom (tests/fakes)"),
    (r"\b(steady|system|high_resolution)_clock::now\b|\babsl::Now\s*\(",
     lambda path: path.startswith("tiers/") and path != "tiers/base/clock.cc",
     "Clock (tiers/base/clock.h): the simulator owns time"),
    (r"\.detach\s*\(\s*\)", _anywhere, "join the thread: nothing outlives its owner"),
    (r"(?<!\w)throw\b(?!\s*\()", _under(*_PRODUCTION), "absl::Status"),
]

# A sleep waits for something that sends no signal (another process, a busy kernel or RocksDB), and
# says so in a comment on that line or just above it.
_SLEEP = re.compile(r"\bsleep_(for|until)\s*\(|\babsl::SleepFor\b"
                    r"|(?<![\w.>:])(::)?(u|nano)?sleep\s*\(")
_MAY_SLEEP = _under("server/", "client/", "tools/", "tiers/io/", "tests/e2e/", "tests/server/",
                    "tests/client/", "tests/tools/", "tests/tiers/io/", "tests/tiers/index/",
                    "tests/tiers/host/", "tests/tiers/nvme/", "tiers/nvme/",
                    "tests/crash/", "tests/sick/")

# ---- the tree -----------------------------------------------------------------------------------

CPP = (".h", ".cc")
TEXT = CPP + (".proto", ".py", ".md", ".cmake", ".txt", ".json", ".sh", ".yaml", ".yml",
              ".service")
SKIPPED_FOLDERS = {".git", "build", ".cache", "__pycache__"}

Problem = collections.namedtuple("Problem", "path line rule message")


def read_tree(root):
    """Returns {path: text} of the files that git knows or would add; of all files without git."""
    root = pathlib.Path(root)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = [name.decode() for name in listed.stdout.split(b"\0") if name]
    else:
        paths = [str(p.relative_to(root)) for p in root.rglob("*")
                 if not SKIPPED_FOLDERS.intersection(p.relative_to(root).parts)]
    tree = {}
    for path in sorted(set(paths)):
        file = root / path
        if not file.is_file() or file.is_symlink():
            continue
        try:
            tree[path] = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            pass  # not text: none of the rules is about it
    return tree


def folder(path):
    return path.rpartition("/")[0]


def is_text(path, text):
    return path.endswith(TEXT) or text.startswith("#!")


def cpp_files(tree):
    return [(path, text) for path, text in tree.items() if path.endswith(CPP)]


# ---- rules --------------------------------------------------------------------------------------


def include_arrow(tree):
    layers = Layers(tree)
    for path, text in cpp_files(tree):
        if path.startswith("cmake/"):
            continue
        mine = layers.home(path)
        for line, _, target in cpp_source.includes(text):
            if target.startswith("tests/"):
                if not path.startswith("tests/"):
                    yield Problem(path, line, "include-arrow",
                                  f"production code includes {target}")
            elif target in tree and layers.home(target) not in layers.reach(mine):
                yield Problem(path, line, "include-arrow",
                              f"no target of {mine} has one of {layers.home(target)} in its DEPS, "
                              f"directly or by another ({target})")


def circle(tree):
    for folder_, theirs, target in Layers(tree).circles():
        yield Problem(f"{target.folder}/CMakeLists.txt", target.line, "circle",
                      f"{target.name} depends on {theirs}, which leads back to {folder_}")


def wall(tree):
    for path, text in cpp_files(tree):
        for line, _, target in cpp_source.includes(text):
            for hidden, allowed in WALLS.items():
                if target.startswith(hidden + "/") and not path.startswith(allowed):
                    yield Problem(path, line, "wall",
                                  f"{target} is internal: for {', '.join(allowed)} alone")


def include_rooted(tree):
    for path, text in cpp_files(tree):
        for line, quote, target in cpp_source.includes(text):
            # Generated, hence in no tree.
            if target.endswith(".pb.h") or target + ".in" in tree:
                continue
            if quote == '"' and target not in tree:
                yield Problem(path, line, "include-rooted",
                              f'"{target}" is no path from the top of the repository')
            if quote == "<" and target in tree:
                yield Problem(path, line, "include-rooted", f'ours: write "{target}"')


def outside_header(tree):
    for path, text in cpp_files(tree):
        if path.startswith("cmake/"):
            continue
        for line, _, target in cpp_source.includes(text):
            for pattern, places in OUTSIDE_HEADERS:
                if target not in tree and re.match(pattern, target) and not path.startswith(places):
                    yield Problem(path, line, "outside-header",
                                  f"<{target}> belongs into {', '.join(places)}")


def file_length(tree):
    for path, text in tree.items():
        if not is_text(path, text) or path.endswith((".md", ".json")):
            continue
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            yield Problem(path, lines, "file-length", f"{lines} lines, at most {MAX_FILE_LINES}")
        if path.endswith(".h") and lines > MAX_HEADER_LINES and path not in LONG_HEADERS:
            yield Problem(path, lines, "header-length",
                          f"{lines} lines, at most {MAX_HEADER_LINES}: split it by idea")


def python_functions(text):
    try:
        nodes = ast.walk(ast.parse(text))
    except SyntaxError:  # its own test says so better
        return []
    return [(node.name, node.lineno, node.end_lineno) for node in nodes
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def function_length(tree):
    for path, text in tree.items():
        if path.endswith(CPP):
            functions = cpp_source.functions(text)
        elif path.endswith(".py"):
            functions = python_functions(text)
        else:
            continue
        for name, first, last in functions:
            if last - first + 1 > MAX_FUNCTION_LINES:
                yield Problem(path, first, "function-length",
                              f"{name}: {last - first + 1} lines, at most {MAX_FUNCTION_LINES}")


def line_length(tree):
    for path, text in tree.items():
        if not path.endswith(CPP + (".proto", ".py")):
            continue
        limit = max(MAX_COLUMNS, KNOWN_LONG_LINES.get(path, 0))
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > limit and "://" not in line:
                yield Problem(path, number, "line-length",
                              f"{len(line)} columns, at most {MAX_COLUMNS}")


def whitespace(tree):
    for path, text in tree.items():
        if not path.endswith(CPP + (".proto", ".py", ".cmake", "CMakeLists.txt")):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if "\t" in line or line != line.rstrip():
                yield Problem(path, number, "whitespace", "a tab, or blanks at the end of the line")
        if text and not text.endswith("\n"):
            yield Problem(path, text.count("\n") + 1, "whitespace", "no newline at the end")


def banned(tree):
    for path, text in cpp_files(tree):
        code = cpp_source.strip(text).splitlines()
        for number, line in enumerate(code, 1):
            for pattern, where, instead in BANNED:
                match = re.search(pattern, line)
                if match and where(path):
                    yield Problem(path, number, "banned", f"'{match.group()}': use {instead}")


def sleep(tree):
    for path, text in cpp_files(tree):
        raw = text.splitlines()
        for number, line in enumerate(cpp_source.strip(text).splitlines(), 1):
            if not _SLEEP.search(line):
                continue
            if not _MAY_SLEEP(path):
                yield Problem(path, number, "sleep", "wait with CondVar, or move a ManualClock")
            elif not any("//" in near for near in raw[max(0, number - 2):number]):
                yield Problem(path, number, "sleep", "say in a comment what this waits for")


def todo(tree):
    words = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3))
    for path, text in tree.items():
        if not is_text(path, text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for match in re.finditer(rf"\b({words})\b(?!\(#\d+\))", line):
                yield Problem(path, number, "todo",
                              f"{match.group()} without an issue: write {match.group()}(#123), "
                              "or do it")


def riddles(tree):
    """Yields each sentence of a comment or page that does not begin with what it is about."""
    for path, text in tree.items():
        for number, word in prose.beginnings(path, text):
            yield Problem(path, number, "riddle",
                          f"a sentence begins with {word}: name its subject")


def long_cells(tree):
    for path, text in tree.items():
        if path.endswith(".md"):
            for number, length in prose.long_cells(text):
                yield Problem(path, number, "long-cell",
                              f"{length} characters in a table's cell, at most {prose.MAX_CELL}: "
                              "make it a list, or say it below the table")


def by_top_folder(problems):
    found = collections.defaultdict(list)
    for problem in problems:
        found[problem.path.rpartition("/")[0].partition("/")[0]].append(problem)
    return found


def beyond(known, problems):
    """Returns the problems of the top folders that have more of them than `known` tolerates."""
    return [problem for name, found in by_top_folder(problems).items()
            if len(found) > known.get(name, 0) for problem in found]


def riddle(tree):
    return beyond(KNOWN_RIDDLES, riddles(tree))


def long_cell(tree):
    return beyond(KNOWN_LONG_CELLS, long_cells(tree))


def header(tree):
    for path, text in tree.items():
        if not path.endswith(".h"):
            continue
        if not text.startswith("//"):
            yield Problem(path, 1, "header-comment",
                          "begin with a comment: what it is, guarantees, owner, threads")
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            yield Problem(path, 1, "header-guard", "#pragma once is missing")


def file_name(tree):
    for path, _ in cpp_files(tree):
        if not re.fullmatch(r"[a-z0-9_]+\.(h|cc)", path.rpartition("/")[2]):
            yield Problem(path, 1, "file-name", "snake_case.h or snake_case.cc")


def readme(tree):
    # tests/ mirrors the tree, so one page describes all of it; so does proto/, whose folders only
    # spell the package. cmake/ needs none.
    folders = {path.split("/")[0] if path.startswith(("tests/", "proto/")) else folder(path)
               for path in tree if path.endswith(CPP + (".proto",))}
    for name in sorted(folders - {"cmake"} - set(KNOWN_MISSING)):
        if f"{name}/README.md".lstrip("/") not in tree:
            yield Problem(name, 1, "readme", "a folder with sources has a README.md")


def one_title(tree):
    for path, text in tree.items():
        if not path.endswith(".md"):
            continue
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        titles = len(re.findall(r"^# ", prose, re.MULTILINE))
        if titles != 1:
            yield Problem(path, 1, "one-title", f"{titles} titles ('# ...'), want exactly one")


# Two types of one name in one namespace are one to the linker, which takes the inline functions of
# either; headers that never meet hide that from the compiler.
_TYPE = re.compile(
    r"(?:struct|class|enum class)\s+(?:ABSL_\w+(?:\([^)]*\))?\s+)?(\w+)\b(?!::)[^;(]*\{")


def one_type(tree):
    places = collections.defaultdict(set)
    for path, text in cpp_files(tree):
        if path.startswith("tests/"):
            continue
        spaces = []
        for line in text.splitlines():
            if opened := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{", line):
                spaces.append(opened.group(1))
            elif line.startswith("}  // namespace") and spaces:
                spaces.pop()
            elif (named := _TYPE.match(line)) and spaces and "" not in spaces:
                places["::".join([*spaces, named.group(1)])].add(path)
    for name, paths in sorted(places.items()):
        for path in sorted(paths)[1:]:
            yield Problem(path, 1, "one-type", f"{name} is defined in {sorted(paths)[0]} as well")


def known_both_ways(tree):
    """No two objects of a folder call each other, however long the way back is."""
    folders = collections.defaultdict(dict)
    for path, text in tree.items():
        if path.endswith(".h") and not path.startswith("tests/"):
            folders[folder(path)][path] = text
    for headers in folders.values():
        for one, back in objects.circles(headers):
            yield Problem(one.path, one.line, "known-both-ways",
                          f"{one.name} holds {', '.join(back)}, which leads back to it: let one of "
                          "them own an interface, or a third one do what both need")


def store_interfaces(tree):
    """Yields the path and the name of each interface of the store."""
    for path, text in tree.items():
        if path.startswith("tiers/store/") and path.endswith(".h"):
            for name in objects.interfaces(path, text):
                yield path, name


def store_interface(tree):
    for path, name in store_interfaces(tree):
        if name not in STORE_INTERFACES:
            yield Problem(path, 1, "store-interface",
                          f"{name} is a new way to call upwards: say in STORE_INTERFACES "
                          "(tests/tidy/tidy.py) and in tiers/store/README.md why it must be")


def cmake_source(tree):
    for path in tree:
        if not path.endswith(".cc") or path.startswith("cmake/"):
            continue
        home = folder(path)
        while f"{home}/CMakeLists.txt".lstrip("/") not in tree and home:
            home = folder(home)
        build_file = f"{home}/CMakeLists.txt".lstrip("/")
        words = re.sub(r"#.*", "", tree.get(build_file, ""))
        name = path[len(home) + 1:] if home else path
        if not re.search(rf"(?<![\w.-])(?<![\w.]/){re.escape(name)}(?![\w.])", words):
            yield Problem(path, 1, "cmake-source", f"not built: name it in {build_file}")


def planted(tree):
    """A planted bug exists only where its source is compiled again with it."""
    build_file = tree.get("tests/sim/CMakeLists.txt", "")
    again = {f"tiers/{name}/{source}"
             for name, sources in re.findall(r"kvkeep_plant\((\w+)\s([^)]*)\)", build_file)
             for source in sources.split()}
    for path, text in cpp_files(tree):
        if path.startswith("tiers/") and path != "tiers/base/canary.h" and path not in again:
            at = cpp_source.strip(text).find("Planted(")
            if at >= 0:
                yield Problem(path, text.count("\n", 0, at) + 1, "planted",
                              "asks Planted(): only sources that kvkeep_plant() names in "
                              "tests/sim/CMakeLists.txt may, and no header")


def local_path(tree):
    # Spelled in halves, or this file would break its own rule.
    pattern = re.compile(r"(?<![\w./~$}-])/(" + "|".join(("wo" + "rk", "ho" + "me", "ro" + "ot"))
                         + r")/\w|(?<![\w./~$}-])/t" + r"mp/(wt|bash_jobs)\b")
    for path, text in tree.items():
        for number, line in enumerate(text.splitlines(), 1):
            match = pattern.search(line)
            if match:
                yield Problem(path, number, "local-path",
                              f"'{match.group()}...': a path of one machine")


# Decoders that run code from their input caused the field's worst holes.
_CODE_IN_DATA = re.compile(
    r"\b((c|cloud)?pickle|dill|joblib|marshal|shelve)\b|\btorch\s*\.\s*load\b|"
    r"\byaml\s*\.\s*(unsafe_|full_)?load(_all)?\b|\byaml\.(Unsafe|Full)?Loader\b", re.IGNORECASE)


def code_in_data(tree):
    for path, text in tree.items():
        if path.endswith(".md") or path == "tests/tidy/tidy.py" or not is_text(path, text):
            continue
        code = cpp_source.strip(text) if path.endswith(CPP) else text
        for number, line in enumerate(code.splitlines(), 1):
            match = _CODE_IN_DATA.search(line)
            if match:
                yield Problem(path, number, "code-in-data",
                              f"'{match.group()}' may run what it reads: protobuf, fixed layouts, "
                              "JSON, yaml.safe_load")


RULES = [include_arrow, circle, wall, include_rooted, outside_header, file_length,
         function_length, line_length, whitespace, banned, sleep, todo, riddle, long_cell, header,
         file_name, readme, one_title, one_type, known_both_ways, store_interface, cmake_source,
         planted, local_path, code_in_data]

# ---- running ------------------------------------------------------------------------------------


def check(tree):
    return [problem for rule in RULES for problem in rule(tree)]


def stale_ratchets(tree):
    """Yields exceptions that the ratchets still tolerate though nothing needs them any more."""
    for name in KNOWN_MISSING:
        if f"{name}/README.md" in tree:
            yield f"KNOWN_MISSING: {name}"
    for name, limit in KNOWN_LONG_LINES.items():
        longest = max((len(line) for line in tree.get(name, "").splitlines()), default=0)
        if longest < limit:
            yield f"KNOWN_LONG_LINES: {name} (now {longest})"
    for what, known, problems in (("KNOWN_RIDDLES", KNOWN_RIDDLES, riddles(tree)),
                                  ("KNOWN_LONG_CELLS", KNOWN_LONG_CELLS, long_cells(tree))):
        found = by_top_folder(problems)
        for name, limit in known.items():
            if len(found[name]) < limit:
                yield f"{what}: {name} (now {len(found[name])})"
    for name in sorted(set(STORE_INTERFACES) - {name for _, name in store_interfaces(tree)}):
        yield f"STORE_INTERFACES: {name}"
    for name in LONG_HEADERS:
        if tree.get(name, "").count("\n") <= MAX_HEADER_LINES:
            yield f"LONG_HEADERS: {name}"


def summary(tree):
    lengths = sorted(text.count("\n") for _, text in cpp_files(tree))
    p95 = lengths[min(len(lengths) - 1, len(lengths) * 95 // 100)]
    return (f"tidy: {len(tree)} files, {len(lengths)} of C++ "
            f"({sum(lengths)} lines, file p95 {p95}, longest {lengths[-1]})")


def main():
    parser = argparse.ArgumentParser(description="Checks kvkeep's tree against its own rules.")
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    tree = read_tree(parser.parse_args().root)
    if not cpp_files(tree):
        sys.exit("tidy: found no C++ file: wrong --root?")
    problems = check(tree)
    for problem in problems:
        print(f"{problem.path}:{problem.line}: [{problem.rule}] {problem.message}")
    for entry in stale_ratchets(tree):
        print(f"note: no longer needed in tests/tidy/tidy.py: {entry}")
    print(summary(tree))
    if problems:
        print(f"tidy: {len(problems)} problems")
        sys.exit(1)


if __name__ == "__main__":
    main()
