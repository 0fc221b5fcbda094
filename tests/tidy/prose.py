"""Reads comments and Markdown just well enough for tidy: sentences' first words, and table cells.

beginnings() finds the riddles: sentences that begin with a word that refers to something else, as
"Of", where a writer names the subject. long_cells() finds paragraphs in tables.
"""

import ast
import re

import cpp_source

MAX_CELL = 200

_WORDS = r"(Of|Those|That|Who|Such)\b"
# Before a sentence: its block's beginning, or the end of the one before; then marks that open it.
_BEGINS = re.compile(r"(?:\A|\n[ ]*\n|[.?!:][\"')`*]*\s+|\|\s*|\()(?:[-#>]+\s+)*[\"'`*]*"
                     + _WORDS)
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s|#|\|")  # a line that begins a paragraph of its own
_MARK = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_HASH = (".py", ".cmake", "CMakeLists.txt", ".yaml", ".yml", ".sh", ".conf", ".service")


def _blocks(lines):
    """Yields (first line, text) of lines that follow one another. lines: (number, text)."""
    block = []
    for number, text in lines:
        if block and number != block[-1][0] + 1:
            yield block[0][0], "\n".join(text for _, text in block)
            block = []
        block.append((number, text))
    if block:
        yield block[0][0], "\n".join(text for _, text in block)


def _cpp_comments(text):
    for match in cpp_source.TOKEN.finditer(text):
        if match.lastgroup == "comment":
            first = text.count("\n", 0, match.start()) + 1
            for number, line in enumerate(match.group().split("\n"), first):
                yield number, re.sub(r"^\s*(?://+!?<?|/?\*+/?)", "", line).strip()


def _hash_comments(text):
    for number, line in enumerate(text.split("\n"), 1):
        if match := re.match(r"(?:[^#\"']*\s)?#+(?!!)(.*)", line):
            yield number, match.group(1).strip()


def _docstrings(text):
    """Yields (first line, text) of the docstrings of Python that parses."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node) is not None:
                yield node.body[0].lineno, node.body[0].value.value


def _paragraphs(text):
    """Yields (first line, text) of Markdown's paragraphs, items, headings and rows."""
    lines, fenced = [], False
    for number, line in enumerate(text.split("\n"), 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if fence or fenced:
            line = ""
        if (not line.strip() or _ITEM.match(line)) and lines:
            yield lines[0][0], "\n".join(line for _, line in lines)
            lines = []
        if line.strip():
            lines.append((number, _MARK.sub("", line)))
    if lines:
        yield lines[0][0], "\n".join(line for _, line in lines)


def _texts(path, text):
    if path.endswith((".h", ".cc", ".c", ".proto")):
        yield from _blocks(_cpp_comments(text))
    elif path.endswith(".md"):
        yield from _paragraphs(text)
    elif path.endswith(_HASH):
        yield from _blocks(_hash_comments(text))
        if path.endswith(".py"):
            yield from _docstrings(text)


def beginnings(path, text):
    """Yields (line, word) of each sentence of a comment or of Markdown that begins as a riddle."""
    for first, block in _texts(path, text):
        for match in _BEGINS.finditer(block):
            yield first + block.count("\n", 0, match.start(1)), match.group(1)


def long_cells(text):
    """Yields (line, characters) of each cell of a Markdown table above MAX_CELL."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("|"):
            for cell in line.replace("\\|", "/").strip("|").split("|"):
                if len(cell.strip()) > MAX_CELL:
                    yield number, len(cell.strip())
