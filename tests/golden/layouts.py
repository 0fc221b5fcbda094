"""Lists the interfaces of this tree as lines of text, one for each thing that others rely on.

    abi(root)     the C ABI: its functions, constants, and the layout of each struct
    local(root)   the local protocol: its constants, messages, and the layout of each struct
    grpc(root)    kvkeep.v1: the listing that tests/proto holds to the descriptors

The C++ and C headers are read for names only. Numbers come from the compiler: a program with
sizeof, offsetof and the constants is compiled, and prints them.
"""

import pathlib
import re
import subprocess
import tempfile

C_HEADERS = ("kvkeep.h", "kvkeep_gpu.h", "kvkeep_kv.h", "kvkeep_pin.h", "kvkeep_watch.h")
LOCAL_HEADER = "proto/local/protocol.h"
GRPC_LISTING = "tests/proto/kvkeep.v1.golden.txt"


def _code(path):
    """Returns the header without its comments."""
    return re.sub(r"//.*", "", path.read_text(encoding="utf-8"))


def _fields(body):
    """Returns (name, type) of a struct's fields."""
    found = []
    for statement in body.split(";"):
        words = " ".join(re.sub(r"=.*|\{[^}]*\}", "", statement, flags=re.DOTALL).split())
        if words:
            type_, name, array = re.fullmatch(r"(.*?)(\w+)((?:\[[^\]]*\])*)", words).groups()
            found.append((name, type_.strip() + array))
    return found


def _structs(code):
    """Yields (name, fields) of each struct that is defined there."""
    for match in re.finditer(r"\bstruct (\w+) \{\n(.*?)^\}", code, re.MULTILINE | re.DOTALL):
        yield match.group(1), _fields(match.group(2))


def _enumerators(code):
    for match in re.finditer(r"\benum (class )?(\w+)[^{;]*\{(.*?)\}", code, re.DOTALL):
        scope = f"{match.group(2)}::" if match.group(1) else ""
        yield from (scope + name for name in re.findall(r"(\w+)\s*=", match.group(3)))


def _function(declaration):
    """Returns it without the names of its parameters, which are free to change."""
    result, name, parameters = re.fullmatch(r"(.*?)\b(kvkeep_\w+)\((.*)\)", declaration).groups()
    if parameters == "void":
        types = ["void"]
    else:
        types = [re.sub(r"\s*\b\w+(\[\d+\])?$", r"\1", word.strip())
                 for word in parameters.split(",")]
    return f"function {result}{name}({', '.join(types)})"


def _functions(code):
    code = re.sub(r"\{[^{}]*\}", "", re.sub(r"^\s*#.*", "", code, flags=re.MULTILINE))
    for statement in code.split(";"):
        statement = " ".join(statement.split()).rpartition('extern "C" ')[2]
        if re.fullmatch(r"[\w *]+\bkvkeep_\w+\(.*\)", statement):
            yield _function(statement)


def _printed(root, compiler, suffix, includes, structs, constants):
    """Compiles and runs a program that prints sizes, offsets and constants."""
    lines = [f"#include <{name}>" for name in includes]
    lines += ["#include <stddef.h>", "#include <stdio.h>"]
    lines += ["using namespace kvkeep::local;"] if suffix == ".cc" else []
    lines.append("int main(void) {")
    for name, fields in structs:
        lines.append(f'printf("struct {name} %zu bytes\\n", sizeof({name}));')
        for field, type_ in fields:
            lines.append(f'printf("field {name}.{field} at %zu, %zu bytes, {type_}\\n", '
                         f'offsetof({name}, {field}), sizeof((({name}*)0)->{field}));')
    lines += [f'printf("constant {name} %lld\\n", (long long){name});' for name in constants]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / f"layouts{suffix}"
        source.write_text("\n".join([*lines, "return 0;", "}", ""]), encoding="utf-8")
        program = source.with_suffix("")
        subprocess.run([*compiler, "-I", root, "-I", root / "client/c", source, "-o", program],
                       check=True)
        told = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return told.splitlines()


def abi(root):
    codes = [_code(root / "client/c" / name) for name in C_HEADERS]
    structs = [one for code in codes for one in _structs(code)]
    constants = [name for code in codes for name in [
        *re.findall(r"^#define (KVKEEP_\w+) \d", code, re.MULTILINE), *_enumerators(code)]]
    lines = _printed(root, ["cc", "-std=c99", "-w"], ".c", C_HEADERS, structs, constants)
    return sorted([*lines, *(line for code in codes for line in _functions(code))])


def local(root):
    code = _code(root / LOCAL_HEADER)
    constants = re.findall(r"^inline constexpr \w+ (k\w+) =", code, re.MULTILINE)
    return sorted(_printed(root, ["c++", "-std=c++20", "-w"], ".cc", [LOCAL_HEADER],
                           list(_structs(code)), [*constants, *_enumerators(code)]))


def grpc(root):
    listing = (root / GRPC_LISTING).read_text(encoding="utf-8")
    return sorted(line for line in listing.splitlines() if not line.startswith("#"))


INTERFACES = {"abi": abi, "local": local, "grpc": grpc}
