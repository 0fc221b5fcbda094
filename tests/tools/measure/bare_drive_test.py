#!/usr/bin/env python3
"""The bare loop beside which a drive is measured: bare_drive_test.py BUILD."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tools/measure"))

from bare_drive import PROGRAM, BareDrive, BareDriveFailed  # noqa: E402
from daemon import built  # noqa: E402

MIB = 1 << 20
SIZE, MEMORY = 40 * MIB, 20 * MIB  # neither is a multiple of the pieces under way
CANNOT = ("Invalid argument", "Operation not permitted", "Function not implemented",
          "Cannot allocate memory")  # no O_DIRECT, no io_uring, no memory to lock


class BareDriveTest(unittest.TestCase):
    def setUp(self):
        scratch = self.enterContext(tempfile.TemporaryDirectory(dir="/var/tmp"))
        self.directory = pathlib.Path(scratch) / "a drive: 'x' $HOME; y:z"
        self.directory.mkdir()
        self.file = self.directory / "fio.data"
        self.drive = BareDrive(self.directory, SIZE, 0.02, MEMORY)
        try:
            self.drive.fill(SIZE)
        except BareDriveFailed as why:
            if any(words in str(why) for words in CANNOT):
                self.skipTest(str(why))
            raise

    def test_it_measures_each_way_and_leaves_nothing_there(self):
        self.file.write_bytes(bytes(SIZE))
        for rate in (self.drive.read(), self.drive.overwrite(), self.drive.fill(SIZE)):
            self.assertGreater(rate, 0.001)
        content = self.file.read_bytes()  # overwritten from its beginning, as far as it came
        self.assertEqual(content, (b"\1" * content.count(1)).ljust(SIZE, b"\0"))
        self.assertGreaterEqual(content.count(1), 16 * MIB)
        self.assertEqual(list(self.directory.iterdir()), [self.file])

    def test_reads_leave_the_file_as_it_is(self):
        content = os.urandom(SIZE)
        self.file.write_bytes(content)
        self.drive.read()
        self.assertEqual(self.file.read_bytes(), content)

    def test_what_it_cannot_do_is_said(self):
        with self.assertRaisesRegex(BareDriveFailed, "fio.data: No such file"):
            self.drive.read()
        self.file.write_bytes(bytes(MIB))
        with self.assertRaisesRegex(BareDriveFailed, "read: Input/output error"):
            self.drive.read()  # it is shorter than declared

    def test_a_wrong_command_line_is_refused(self):
        for arguments in ([], ["read"], ["erase", "x", "1048576", "1", "16777216"],
                          ["read", "x", "1", "1", "16777216"], ["read", "x", "1048576", "1", "1"]):
            ran = subprocess.run([built(PROGRAM), *arguments], capture_output=True, check=False)
            self.assertEqual(ran.returncode, 2, arguments)


if __name__ == "__main__":
    os.environ["KVKEEP_BUILD"] = sys.argv.pop(1)
    unittest.main()
