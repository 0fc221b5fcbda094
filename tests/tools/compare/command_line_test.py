#!/usr/bin/env python3
"""The comparison's exit code and messages when something is wrong. Nothing is built or measured
here: builds, programs and figures are made up."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import made_up  # noqa: F401  (adds the path)
from bare_drive import PROGRAM as BARE_PROGRAM
import compare
from contest import environment_of
from figures import MIB
from measured import Slice

# Prints a result as often as $FIO_RESULTS says, and then $FIO_LAST.
FIO = """#!/bin/sh
echo run >> runs
if [ $(wc -l < runs) -gt $FIO_RESULTS ]; then echo "$FIO_LAST"; exit 1; fi
echo '{"jobs": [{"read": {"bw_bytes": 2000000000}, "write": {"bw_bytes": 2000000000}}]}'
"""
BARE_DRIVE = "#!/bin/sh\necho 1600000000\n"
UNUSABLE = "#!/bin/sh\necho this daemon is unwell\nexit 1\n"


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.build = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ))
        for name in compare.BUILT:
            file = self.build / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(BARE_DRIVE if name == BARE_PROGRAM else UNUSABLE)
            file.chmod(0o700)

    def main(self, *arguments):
        """Returns the exit code and the output; nothing is left behind."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = compare.main([f"--build={self.build}", f"--scratch={self.scratch}",
                                 "--capacity-mib=64", "--region-mib=32", "--sizes=1MiB",
                                 "--rounds=1", "--seconds=0.01", *arguments])
        self.assertEqual(list(self.scratch.iterdir()), [])
        return code, said.getvalue()

    def test_a_build_that_lacks_something_is_wrong_usage_and_says_what(self):
        for name in compare.BUILT:
            with self.subTest(name=name):
                away = self.build / "away"
                (self.build / name).rename(away)
                code, said = self.main("--only=memcpy", "--no-nvme")
                away.rename(self.build / name)
                self.assertEqual(code, 2)
                self.assertIn(f"there is no {name} in {self.build}", said)

    def test_one_of_ours_that_does_not_start_is_a_failure(self):
        code, said = self.main("--only=memcpy,kvkeep local", "--no-nvme")
        self.assertEqual(code, 1)
        self.assertIn("kvkeep local did not start", said)
        self.assertIn("this daemon is unwell", said)

    def test_programs_of_others_find_no_modules_of_ours_but_the_client(self):
        program = ("from importlib.util import find_spec\n"
                   "print([name for name in ('kvkeep', 'memory', 'report', 'slices', 'contestant')"
                   " if find_spec(name)])\n")
        found = subprocess.run([sys.executable, "-B", "-c", program], check=True, text=True,
                               stdout=subprocess.PIPE, cwd=self.scratch,
                               env={**os.environ, **environment_of(self.build)})
        self.assertEqual(found.stdout, "['kvkeep']\n")

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

    def compare_with_fio(self, results, promoted_bytes=0, wrong_bytes=0, last="", there=True):
        """Returns the exit code, the output, and the figures. All are made up except fio's JSON."""
        fio = self.build / "path/fio"
        fio.parent.mkdir()
        if there:
            fio.write_text(FIO)
            fio.chmod(0o700)
        os.environ.update(PATH=f"{fio.parent}:/usr/bin:/bin" if there else str(fio.parent),
                          FIO_RESULTS=str(results), FIO_LAST=last)
        drive, contest = mock.MagicMock(), mock.MagicMock(names=["memcpy"], versions={})
        drive.__enter__.return_value, contest.__enter__.return_value = drive, contest
        drive.daemon.pid = os.getpid()
        drive.promoted_bytes.side_effect = [0, promoted_bytes]
        drive.write_back.return_value = Slice(1, 1, 10**9)
        bursts = mock.Mock(**{"run.return_value": Slice(1, 1, 10**9, 10**9, wrong_bytes)})
        contest.run.return_value = []
        figures = self.build / "figures.json"
        with (mock.patch("compare.Contest", return_value=contest),
              mock.patch("compare.available_memory_bytes", return_value=1 << 40),
              mock.patch("shutil.disk_usage", return_value=mock.Mock(free=1 << 44)),
              mock.patch("nvme.Drive", return_value=drive),
              mock.patch("nvme.Bursts", return_value=bursts)):
            code, said = self.main("--sizes=4MiB", "--nvme-round-mib=64", f"--json={figures}")
        return code, said, json.loads(figures.read_text()) if figures.exists() else {}

    def test_nvme_beside_fio_is_measured_and_reported(self):
        code, said, found = self.compare_with_fio(100, promoted_bytes=10**9)
        self.assertEqual(code, 0, said)
        (nvme,) = found["nvme"]
        self.assertEqual((nvme["size"], nvme["refused"], nvme["fio_read"]["median"]),
                         (4 * MIB, False, 2))
        self.assertEqual({one["measured"] for one in found["verdicts"]
                          if one["theirs"] == "bare loop"}, {1 / 1.6})
        self.assertEqual({one["verdict"] for one in found["verdicts"]}, {"missed"})
        self.assertNotIn("failure", found["about"])

    def test_wrong_bytes_from_nvme_are_a_failure(self):
        code, said, found = self.compare_with_fio(100, promoted_bytes=10**9, wrong_bytes=3)
        self.assertEqual((code, found["nvme"][0]["read"]["wrong_bytes"]), (1, 3))
        self.assertIn("wrong bytes: 3\n", said)

    def test_reads_that_did_not_come_from_nvme_are_a_failure(self):
        code, said, found = self.compare_with_fio(100, promoted_bytes=10**9 // 2)
        self.assertEqual((code, found["nvme"][0]["refused"]), (1, True))
        self.assertIn("not all that was read came from NVMe", said)

    def test_what_was_measured_before_fio_failed_is_kept(self):
        # The file, the reads by two sizes of blocks, and no first fill.
        code, said, found = self.compare_with_fio(3, promoted_bytes=10**9 // 2, wrong_bytes=3,
                                                  last="no space left")
        self.assertEqual(code, 1)
        self.assertIn("no space left", said)
        self.assertIn("no space left", found["about"]["failure"])
        (nvme,) = found["nvme"]
        self.assertEqual((nvme["refused"], nvme["read"]["wrong_bytes"], nvme["read"]["rounds"]),
                         (True, 3, 1))
        self.assertEqual([(one["what"], one["theirs"]) for one in found["verdicts"]],
                         [("NVMe read 4.0 MiB", "fio"), ("NVMe read 4.0 MiB", "bare loop")])

    def test_chunks_that_are_too_large_for_the_rounds_are_left_out_and_it_is_said(self):
        code, said = self.main("--only=memcpy", "--sizes=32MiB", "--nvme-round-mib=64")
        self.assertEqual(code, 0, said)
        self.assertIn("NVMe is left out: rounds of writes are too small for such chunks", said)

    def test_a_bare_loop_that_fails_is_a_failure(self):
        (self.build / BARE_PROGRAM).write_text(UNUSABLE)
        code, said, _ = self.compare_with_fio(100)
        self.assertEqual(code, 1)
        self.assertIn("bin/kvkeep-bare-drive ended with 1: this daemon is unwell", said)

    def test_where_there_is_no_fio_nvme_is_left_out(self):
        code, said, found = self.compare_with_fio(0, there=False)
        self.assertEqual(code, 0, said)
        self.assertIn("NVMe is left out: there is no fio", said)
        self.assertEqual(found, {})

    def test_fio_that_can_do_nothing_in_the_directory_is_a_failure(self):
        code, said, _ = self.compare_with_fio(0, last="no such engine")
        self.assertEqual(code, 1)
        self.assertIn("fio gave no result: no such engine", said)

    def test_a_result_of_a_fio_that_ended_badly_is_none(self):
        half = '{"jobs": [{"write": {"bw_bytes": 5}}]}'
        code, said, _ = self.compare_with_fio(0, last=half)
        self.assertEqual(code, 1)
        self.assertIn("fio ended with 1: {", said)


if __name__ == "__main__":
    unittest.main()
