#!/usr/bin/env python3
"""Tests error_returns.py's judgement on made-up counts, without a build."""
import pathlib
import tempfile
import unittest

import error_returns

SOURCE = """
absl::Status One() {
  if (a) {
    return absl::FailedPreconditionError(
        absl::StrCat("first ", x));
  }
  if (b) {
    return absl::FailedPreconditionError(
        absl::StrCat("second ", x));
  }
  if (!added.ok()) return added;
  Go();
  if (!added.ok()) return added;
}
"""
SECOND = ('return absl::FailedPreconditionError( absl::StrCat("second ", x));')


class Missed:
    """Returns counts by which everything ran except what begins in these lines."""

    def __init__(self, *lines):
        self.lines = lines

    def at(self, _, site):
        return 0 if site.line in self.lines else 1


class JudgeTest(unittest.TestCase):
    def judge(self, missed, listed):
        with tempfile.TemporaryDirectory() as root:
            source = pathlib.Path(root) / "tiers" / "x.cc"
            source.parent.mkdir()
            source.write_text(SOURCE)
            file = pathlib.Path(root) / "list"
            file.write_text("".join(f"tiers/x.cc: {text}\n  why\n" for text in listed))
            _, _, _, unlisted, wrong = error_returns.judge(
                Missed(*missed), error_returns.read_unreachable(file), pathlib.Path(root))
            return len(unlisted), len(wrong)

    def test_what_is_listed_is_excused_and_nothing_that_begins_alike(self):
        self.assertEqual(self.judge([8], [SECOND]), (0, 0))
        self.assertEqual(self.judge([4, 8], [SECOND]), (1, 0))
        self.assertEqual(self.judge([4], [SECOND]), (1, 2))  # it ran, and is out of date

    def test_of_the_same_text_all_places_are_counted(self):
        text = "if (!added.ok()) return added;"
        self.assertEqual(self.judge([11, 13], [text + " (2 places)"]), (0, 0))
        self.assertEqual(self.judge([11], [text + " (2 places)"]), (0, 2))
        self.assertEqual(self.judge([11, 13], [text]), (0, 1))

    def test_a_line_that_is_gone_is_told(self):
        self.assertEqual(self.judge([], ["return absl::UnknownError(x);"]), (0, 1))

    def test_the_list_names_lines_that_are_there(self):
        listed = error_returns.read_unreachable(error_returns.HERE / "unreachable.txt")

        class ListedMissed:
            def at(self, path, site):
                name = str(pathlib.Path(path).relative_to(error_returns.ROOT))
                return 0 if (name, site.text) in listed else 1

        _, _, found, unlisted, wrong = error_returns.judge(ListedMissed(), listed)
        self.assertEqual((unlisted, wrong), ([], []))
        self.assertEqual(found, sum(listed.values()))


if __name__ == "__main__":
    unittest.main()
