"""Finds the places where C++ sources of this tree make or pass on an error: by text, with positions
that clang's coverage knows."""
import bisect
import re

MACROS = re.compile(r"\bKVKEEP_(RETURN_IF_ERROR|ASSIGN_OR_RETURN)\s*\(")
# absl::NotFoundError(...) and our own makers, which always make an error.
MAKERS = re.compile(
    r"\b(?:absl::\w+Error|absl::ErrnoToStatus|absl::Status|ErrnoStatus|SetUpError|StoppingError"
    r"|OpenError|Error|Wrong|Damaged|AsBroken|About)\s*\(")
# These pass on a success too: an error only where a condition has said so.
PASSERS = re.compile(r"\b(?:Wrap|WrapWrite|FromRocks)\s*\(")
IF = re.compile(r"\bif\s*(?:constexpr\s*)?\(")
NOT_OK = re.compile(r"!\s*[^\s&|!]*\.ok\(\)|!\s*\(?\*?\w+[^&|]*\.ok\(\)")
DECLARES = re.compile(r"(?:^\s*(?:static\s+)?(?!return\b)[A-Za-z_][\w:]*|<|static|inline|explicit"
                      r"|StatusOr<[^;{}()]*>)\s*$")


def blank(text):
    """Returns the text with comments and literals blanked, every offset kept."""
    out = []
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    at = 0
    for match in pattern.finditer(text):
        if match.group().startswith("'") and match.start() and text[match.start() - 1].isalnum():
            continue  # 10'000
        out.append(text[at:match.start()])
        out.append(re.sub(r"[^\n]", " ", match.group()))
        at = match.end()
    out.append(text[at:])
    return "".join(out)


def closing(code, opening):
    depth = 0
    for at in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    raise ValueError("no closing parenthesis")


class Site:
    """One place. `macro` says that the error leaves inside a macro that begins there."""

    def __init__(self, line, column, macro, text):
        self.line, self.column, self.macro, self.text = line, column, macro, text


def statement_at(text, code, begin, offset):
    """Returns the line, joined with those behind it up to the end of what is open in it."""
    end = text.find("\n", offset)
    while end >= 0 and code.count("(", begin, end) > code.count(")", begin, end):
        end = text.find("\n", end + 1)
    return " ".join(text[begin:end if end >= 0 else len(text)].split())


def sites(text):
    """Returns all places of a source, in order; one for each arm of the code that only errors
    take."""
    code = blank(text)
    starts = [0] + [match.end() for match in re.finditer("\n", text)]
    found = {}

    def add(offset, macro=False):
        line = bisect.bisect_right(starts, offset)
        whole = statement_at(text, code, starts[line - 1], offset)
        found.setdefault(offset, Site(line, offset - starts[line - 1] + 1, macro, whole))

    for match in MACROS.finditer(code):
        if code.rfind("#define", code.rfind("\n", 0, match.start()) + 1, match.start()) < 0:
            add(match.start(), macro=True)
    arms = []
    for match in IF.finditer(code):
        close = closing(code, match.end() - 1)
        arm = close + 1 + len(code[close + 1:]) - len(code[close + 1:].lstrip())
        arms.append(arm)
        if NOT_OK.search(code[match.end():close]):
            add(arm)
    for pattern in (MAKERS, PASSERS):
        for match in pattern.finditer(code):
            line_start = code.rfind("\n", 0, match.start()) + 1
            before = code[line_start:match.start()]
            if DECLARES.search(before) or re.search(r"(::|\.|->|~|\bis|class|struct) *$", before):
                continue  # a declaration, or another's name
            statement = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
            if pattern is PASSERS and not any(statement <= arm <= match.start() for arm in arms):
                continue
            if any(arm in found and arm <= match.start() < code.find(";", arm) and
                   "?" not in code[arm:match.start()] for arm in arms):
                continue  # counted with its arm
            add(match.start())
    return [found[offset] for offset in sorted(found)]
