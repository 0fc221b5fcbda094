#!/usr/bin/env python3
"""What the comparison's exit code and messages are when something is not as it should be. Nothing
is built or measured here: builds, programs and figures are made up."""

import contextlib
import io
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import made_up  # noqa: F401  (where the rest is)
import compare

UNUSABLE = "#!/bin/sh\necho this daemon is unwell\nexit 1\n"


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.build = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ))
        for name in compare.BUILT:
            file = self.build / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(UNUSABLE)
            file.chmod(0o700)

    def main(self, *arguments):
        """The exit code, and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = compare.main([f"--build={self.build}", f"--scratch={self.scratch}",
                                 "--capacity-mib=64", "--region-mib=32", "--sizes=1MiB",
                                 "--rounds=1", "--seconds=0.01", "--no-nvme", *arguments])
        self.assertEqual(list(self.scratch.iterdir()), [])
        return code, said.getvalue()

    def test_a_build_that_lacks_something_is_wrong_usage_and_says_what(self):
        for name in compare.BUILT:
            with self.subTest(name=name):
                away = self.build / "away"
                (self.build / name).rename(away)
                code, said = self.main("--only=memcpy")
                away.rename(self.build / name)
                self.assertEqual(code, 2)
                self.assertIn(f"there is no {name} in {self.build}", said)

    def test_one_of_ours_that_does_not_start_is_a_failure(self):
        code, said = self.main("--only=memcpy,kvkeep local")
        self.assertEqual(code, 1)
        self.assertIn("kvkeep local did not start", said)
        self.assertIn("this daemon is unwell", said)

    def test_who_took_part_in_any_call_is_named_in_the_order_of_the_programs(self):
        there = iter([["memcpy", "files"], ["memcpy", "Redis"]])

        def contest(*_):
            made = mock.MagicMock(names=next(there), versions={})
            made.__enter__.return_value = made
            made.run.return_value = []
            return made

        compared = compare.Comparison()
        options, plan = compare.parse([f"--build={self.build}", "--sizes=1MiB,2MiB", "--no-nvme"])
        with mock.patch("compare.Contest", contest), contextlib.redirect_stderr(io.StringIO()):
            compare.compare(options, plan, self.scratch, compared)
        self.assertEqual(compared.names, ["memcpy", "Redis", "files"])


if __name__ == "__main__":
    unittest.main()
