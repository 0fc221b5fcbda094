"""Comments of headers, .proto files and docstrings, as Markdown.

    as_markdown(text)         a comment's text: paragraphs, "* " items, indented code
    header_page(title, text)  a header or .proto file: its first comment as prose, then what it
                              declares, each with the comment that stands above it
"""

import re
import textwrap

# Lines that belong to the language, not to the file's API.
_NOT_SHOWN = re.compile(r"""
    \#(pragma|include|ifdef|ifndef|endif|if|else)\b | extern\ "C" | syntax\ = | package\ | import\s
  | (inline\ )?namespace\s | }\ \ //\ (namespace|extern)
  | (class|struct|enum\ class)\ [\w:]+(\ :\ \w+)?;$""", re.VERBOSE)
_PRIVATE = re.compile(r" *(private|protected):$")
# The name of what a declaration declares: a type, a macro, an alias, a function, a value.
_NAMED = re.compile(r"""
    (?:^|\s)(?:class|struct|enum\ class|enum|service|message)\s+(?:\[\[\w+\]\]\s+)?(\w+)
        \s*(?:final\s*)?(?:[:{]|$)
  | ^\#define\s+(\w+)
  | ^using\s+(\w+)
  | ^typedef\s+struct\s+(\w+)
  | (\w+)\(
  | (\w+)(?:\[\w*\])?\s*(?:=|\{|;)""", re.VERBOSE)
_RULE = re.compile(r"// -{8,} (.+)$")


def _plain(line):
    """A line of prose: what Markdown or HTML would take for markup stays what it is."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else
                   part.replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")
                   for part in parts)


def _is_item(line):
    return re.match(r"[*-] |[\w.]+(, [\w.]+)*: ", line)


def as_markdown(text, language=""):
    out, paragraph = [], []

    def end_paragraph():
        # A line that begins like "name: what" begins an item, unless it is the paragraph's first
        # and nothing like it follows.
        items = [line for line in paragraph if _is_item(line)]
        whole = len(items) > 1 or any(line.startswith(("* ", "- ")) for line in items)
        for line in paragraph:
            if whole and _is_item(line):
                item = _plain(re.sub(r"^[*-] ", "", line))
                out.extend(["", f"- {item}"])
            else:
                out.append("  " + _plain(line.strip()) if whole and items else _plain(line))
        out.append("")
        paragraph.clear()

    lines, at = text.splitlines(), 0
    while at < len(lines):
        line = lines[at]
        in_item = any(_is_item(one) for one in paragraph)
        if line.startswith("  ") and not in_item:
            end_paragraph()
            first = at
            while at < len(lines) and (not lines[at].strip() or lines[at].startswith("  ")):
                at += 1
            code = textwrap.dedent("\n".join(lines[first:at])).strip("\n")
            out.extend([f"```{language}", code, "```", ""])
            continue
        if line.strip():
            paragraph.append(line)
        else:
            end_paragraph()
        at += 1
    end_paragraph()
    return "\n".join(out)


def _text_of(comment):
    return "\n".join(re.sub(r"^\s*// ?", "", line) for line in comment)


def _public(lines):
    """Without private members, whose part of a class runs from `private:` to its end."""
    shown, hidden_until = [], None
    for line in lines:
        if hidden_until is not None:
            if line == hidden_until:
                hidden_until = None
                while shown and not shown[-1].strip():
                    shown.pop()
            else:
                continue
        elif _PRIVATE.match(line):
            hidden_until = " " * (len(line) - len(line.lstrip()) - 1) + "};"
            continue
        shown.append(line)
    return shown


def _blocks(lines):
    """(rule, comment, code) of each declaration. A rule is a heading: `// ------- values`."""
    comment, code, depth = [], [], 0
    for line in [*lines, ""]:
        rule = _RULE.match(line)
        outside = depth == 0
        if outside and code and (not line.strip() or line.startswith("//")):
            yield None, comment, code
            comment, code = [], []
        if outside and rule:
            yield rule.group(1), [], []
        elif outside and line.startswith("//"):
            comment.append(line)
        elif outside and not line.strip():
            comment = []
        elif not (outside and _NOT_SHOWN.match(line)):
            code.append(line)
            bare = re.sub(r"//.*|\"[^\"]*\"", "", line)
            depth += sum(bare.count(one) for one in "{(") - sum(bare.count(one) for one in "})")


def _name(code):
    found = _NAMED.search(re.sub(r"//.*", "", " ".join(line.strip() for line in code)))
    return next((name for name in found.groups() if name), "") if found else ""


def header_page(path, text, language):
    """One section of a page: the heading is the file's path, what it declares stands below."""
    lines = _public(text.splitlines())
    first = next((at for at, line in enumerate(lines) if not line.startswith("//")), len(lines))
    out = [f"## {path.rpartition('/')[2]}", "", as_markdown(_text_of(lines[:first]), language)]
    for rule, comment, code in _blocks(lines[first:]):
        if rule:
            out.extend([f"**{rule[0].upper()}{rule[1:]}**", ""])
            continue
        name = _name(code)
        if name:
            out.extend([f"### {name}", ""])
        if comment:
            out.extend([as_markdown(_text_of(comment), language), ""])
        out.extend([f"```{language}", *code, "```", ""])
    return "\n".join(out)
