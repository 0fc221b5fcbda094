"""Which object knows which, read from the members that the headers of a folder declare.

An object calls another one that it holds: a member of that type, a pointer or a reference. So if no
chain of members leads back to its beginning, no two objects call each other. An interface that the
caller owns (an abstract class) is no such chain: its implementation is not named there.
"""

import collections
import re

import cpp_source

_CLASS = re.compile(
    r"^(?:class|struct)\s+(?:ABSL_\w+(?:\([^)]*\))?\s+)?(\w+)(?: final)?\s*(?::[^{;]*)?\{",
    re.MULTILINE)
_MEMBER = re.compile(
    r"^  (?:mutable |const )*(?:std::(?:unique|shared)_ptr<)?(?:const )?(\w+)>?[&*]?(?: const)?"
    r"\s+\w+(?: (?:STORE_GUARDED|ABSL_\w+\([^)]*\)))?(?:\{[^}]*\}| = [^;]*)?;", re.MULTILINE)
_PURE = r"virtual [^;]*= 0;"

Class = collections.namedtuple("Class", "name path line body")


def classes(path, text):
    """Yields the classes that a header defines outside of any other class."""
    code = cpp_source.strip(text)
    for match in _CLASS.finditer(code):
        end = re.compile(r"^\};", re.MULTILINE).search(code, match.end())
        yield Class(match.group(1), path, code.count("\n", 0, match.start()) + 1,
                    code[match.end():end.start() if end else match.end()])


def _reached(graph, start):
    reached, waiting = set(), [start]
    while waiting:
        for name in graph[waiting.pop()] - reached:
            reached.add(name)
            waiting.append(name)
    return reached


def circles(headers):
    """Yields each class of a folder that its own members lead back to, and the chain."""
    known = {one.name: one for path, text in headers.items() for one in classes(path, text)}
    graph = {name: set(_MEMBER.findall(one.body)) & set(known) - {name}
             for name, one in known.items()}
    for name, one in sorted(known.items()):
        back = sorted(other for other in graph[name] if name in _reached(graph, other))
        if back:
            yield one, back


def interfaces(path, text):
    """Yields the abstract classes of a header, nested ones as Outer::Inner."""
    for one in classes(path, text):
        if re.search(rf"^  {_PURE}", one.body, re.MULTILINE):
            yield one.name
        for nested in re.finditer(r"^  class (\w+) \{(.*?)^  \};", one.body,
                                  re.MULTILINE | re.DOTALL):
            if re.search(_PURE, nested.group(2)):
                yield f"{one.name}::{nested.group(1)}"
