#!/usr/bin/env python3
"""fio, if it is installed."""

import pathlib
import resource
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tools/measure"))

from fio import Fio, FioAbsent  # noqa: E402

SIZE = 4 << 20


class FioTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("fio"), "there is no fio")
    def test_it_reads_in_a_directory_of_any_name_and_leaves_nothing_there(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
            directory = pathlib.Path(scratch) / "a drive: 'x' $HOME; y:z"
            directory.mkdir()
            fio = Fio(directory, SIZE, 0.01)
            self.assertEqual((directory / "fio.data").stat().st_size, SIZE)
            self.assertGreater(fio.read(), 0)
            self.assertGreater(fio.fill(1 << 20, SIZE), 0)
            fio.close()
            self.assertEqual(list(directory.iterdir()), [])
            self.assertEqual(list(pathlib.Path(scratch).iterdir()), [directory])

    @unittest.skipUnless(shutil.which("fio"), "there is no fio")
    def test_one_that_cannot_write_has_failed(self):
        with tempfile.TemporaryDirectory() as scratch, self.assertRaises(OSError):
            Fio(f"{scratch}/missing", SIZE, 0.01)

    @unittest.skipUnless(shutil.which("fio"), "there is no fio")
    def test_of_one_that_fails_no_file_is_left(self):
        with tempfile.TemporaryDirectory() as scratch:
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 4, limits[1]))
            try:
                self.assertRaises(OSError, Fio, scratch, SIZE, 0.01)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            self.assertEqual(list(pathlib.Path(scratch).iterdir()), [])

    def test_where_there_is_none_that_is_said(self):
        with mock.patch("shutil.which", return_value=None), self.assertRaises(FioAbsent):
            Fio("/tmp", SIZE, 0.01)


if __name__ == "__main__":
    unittest.main()
