#!/usr/bin/env python3
"""Results as they are kept in this repository: small, and a diff of them can be read.

    tools/kept.py build/compare/compare.json tools/compare/compare.json

Four digits of each number, and a line for each row: for each value of the document, and for each
element of its lists.
"""

import json
import sys


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(below) for key, below in value.items()}
    if isinstance(value, list):
        return [rounded(below) for below in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _line(value):
    return json.dumps(value, separators=(",", ":"))


def _rows(value):
    if not isinstance(value, list) or not any(isinstance(row, (dict, list)) for row in value):
        return _line(value)
    return "[\n" + ",\n".join(_line(row) for row in value) + "]"


def kept(document):
    """The text of a document, a dict or a list of rows."""
    document = rounded(document)
    if isinstance(document, list):
        return _rows(document) + "\n"
    return "{\n" + ",\n".join(f"{_line(key)}: {_rows(value)}"
                              for key, value in document.items()) + "}\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        text = kept(json.load(file))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
