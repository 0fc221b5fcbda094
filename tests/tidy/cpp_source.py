"""Reads C++ just well enough for tidy: no parser, heuristics that fit clang-formatted code.

strip() blanks comments and literals, includes() lists #include lines, functions() finds where
functions begin and end. Line numbers count from 1.
"""

import re

# Order matters: a quote inside a comment is no string, a // inside a string is no comment, and
# the apostrophe in 1'000 is no character literal.
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<raw>R"(?P<delimiter>[^(\s"]*)\(.*?\)(?P=delimiter)")
      |(?P<number>\b\d[\w']*)
      |(?P<string>"(?:\\.|[^"\\\n])*")
      |(?P<char>'(?:\\.|[^'\\\n])+')""",
    re.DOTALL | re.VERBOSE,
)


def _blank(match):
    text = match.group()
    if match.lastgroup == "number":
        return text
    newlines = "\n" * text.count("\n")
    if match.group("string") or match.group("raw"):
        return '""' + newlines
    return ("' '" if match.group("char") else " ") + newlines


def strip(text):
    """Returns the code without comments and with empty literals, on the same lines."""
    return TOKEN.sub(_blank, text)


def includes(text):
    """Returns [(line number, '"' or '<', path)] of the #include lines that are not commented
    out."""
    found = []
    code = strip(text).splitlines()
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match and number <= len(code) and re.match(r"\s*#\s*include", code[number - 1]):
            found.append((number, match.group(1), match.group(2)))
    return found


_PREPROCESSOR = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_ACCESS_LABEL = re.compile(r"\s*(public|private|protected)\s*")
_SCOPE = re.compile(
    r"\s*(\[\[.*?\]\]\s*|(inline|export)\s+)*(namespace\b|extern\s+\"\")"
    r"|\s*(template\s*<.*?>\s*(requires\b.*?)?)*(typedef\s+)?(class|struct|union|enum)\b",
    re.DOTALL,
)


def functions(text):
    """Returns [(name-ish, first line, last line)] of functions at namespace and class level.

    A brace opens a scope (namespace, class), a function (its head has a parenthesis), or an
    initializer. Inside a function braces are only counted, so lambdas belong to it.
    """
    code = _PREPROCESSOR.sub(lambda m: "\n" * m.group().count("\n"), strip(text))
    found = []
    head_start = 0  # where the declaration being read begins
    depth = 0  # braces inside the current function or initializer
    function = None  # (name, first line) while inside one
    line = 1
    line_of_head = None
    for position, char in enumerate(code):
        if char == "\n":
            line += 1
        if line_of_head is None and not char.isspace():
            line_of_head = line
        if depth > 0:
            if char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                # In "A::A() : a_{1}, b_{2} {" the body is still to come: keep the head.
                if depth == 0 and not re.match(r"\s*[,{]", code[position + 1:position + 200]):
                    if function:
                        found.append((*function, line))
                    function, head_start, line_of_head = None, position + 1, None
            continue
        if char == ":" and _ACCESS_LABEL.fullmatch(code[head_start:position]):
            head_start, line_of_head = position + 1, None
        elif char in ";}":
            head_start, line_of_head = position + 1, None
        elif char == "{":
            head = code[head_start:position]
            if _SCOPE.match(head):
                head_start, line_of_head = position + 1, None
                continue
            depth = 1
            if "(" in head:
                name = " ".join(head.split("(")[0].split())
                function = (name.split(" ")[-1] or "function", line_of_head)
    return found
