#!/usr/bin/env python3
"""tools/kept.py turns results into the same ones with fewer digits, a line a row."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import kept  # noqa: E402


class Kept(unittest.TestCase):
    def test_numbers_have_four_digits_and_whole_ones_stay(self):
        row = {"a": 0.123456, "b": 2147483648, "c": [1e-9 / 3], "d": "1.23456"}
        made = json.loads(kept.kept(row))
        self.assertEqual(made, {"a": 0.1235, "b": 2147483648, "c": [3.333e-10], "d": "1.23456"})

    def test_each_row_is_a_line(self):
        text = kept.kept({"about": {"cores": 2}, "rows": [{"a": [1, 2]}, {"a": []}], "none": []})
        self.assertEqual(text, '{\n"about": {"cores":2},\n"rows": [\n{"a":[1,2]},\n{"a":[]}],\n'
                               '"none": []}\n')
        self.assertEqual(kept.kept([{"a": 1}, {"a": 2}]), '[\n{"a":1},\n{"a":2}]\n')


if __name__ == "__main__":
    unittest.main()
