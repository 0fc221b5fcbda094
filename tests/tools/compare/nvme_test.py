#!/usr/bin/env python3
"""Reads beside fio, with a real daemon: nvme_test.py BUILD. Every byte is compared, bursts end
together, and counted bytes came from NVMe."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from made_up import COMPARE
from daemon import ROOMY
from figures import MIB
from nvme import FIO_BLOCKS, PARTS, Bursts, Drive
from processes import ChildFailed, cpu_seconds

SIZE, CHUNKS, READERS = MIB + 300_000, 10, 3  # of two pieces, the last one short
QUIET_S, PAUSE_S, WORK_S = 3, 0.05, 0.002
PATIENCE_S = 60
SCRATCH = "/var/tmp"  # a drive, where /tmp may be none
BUILD = None


class BurstsTest(unittest.TestCase):
    def drive(self, spoilt=None):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        drive = self.enterContext(Drive(BUILD, directory, {
            **ROOMY, "g2": {**ROOMY["g2"], "capacity": 64 * MIB}}, READERS))
        drive.writer.ask("put", size=SIZE, first=0, chunks=CHUNKS, spoilt=spoilt)
        return drive

    def bursts(self, drive, chunks=CHUNKS, burst_s=0.02):
        return Bursts(drive.readers, SIZE, chunks, 6 * SIZE, burst_s)

    def test_all_that_is_read_is_compared_the_last_byte_too(self):
        for spoilt in (None, 7):
            drive = self.drive(spoilt)
            bursts, calls, wrong = self.bursts(drive), 0, 0
            give_up = time.monotonic() + PATIENCE_S
            # Until all were read, and again; on a busy machine few of them are in one run.
            while time.monotonic() < give_up and (
                    calls <= CHUNKS or (spoilt is not None and wrong == 0)):
                one = bursts.run(drive.flag, 0.1)
                self.assertGreaterEqual(one.seconds, 0.1)
                self.assertEqual(one.bytes, one.calls * SIZE)
                self.assertEqual(one.verified_bytes, one.bytes)
                self.assertLessEqual(one.wrong_bytes, one.calls)
                calls, wrong = calls + one.calls, wrong + one.wrong_bytes
            self.assertGreater(calls, CHUNKS)
            self.assertEqual(wrong > 0, spoilt is not None)

    def test_nobody_begins_a_read_when_the_first_client_has_nothing_left_to_ask_for(self):
        drive = self.drive()
        bursts = self.bursts(drive, burst_s=60)
        stopped, *others = [reader.pid for reader in drive.readers]
        before = cpu_seconds(others)

        def go_on_when_the_others_are_done():
            last, quiet_since = before, time.monotonic()
            give_up = quiet_since + PATIENCE_S  # they may not have begun by then: it fails below
            while quiet_since + QUIET_S > time.monotonic() < give_up:
                time.sleep(PAUSE_S)  # for the others to work
                now = cpu_seconds(others)
                if now == before or now - last > WORK_S:
                    quiet_since = time.monotonic()
                last = now
            os.kill(stopped, signal.SIGCONT)

        os.kill(stopped, signal.SIGSTOP)
        later = threading.Thread(target=go_on_when_the_others_are_done)
        later.start()
        one = bursts.run(drive.flag, 0.9)  # a burst of the others, who hold two chunks each
        later.join()
        self.assertTrue(2 <= one.calls < 6, one)
        self.assertEqual(one.verified_bytes, one.calls * SIZE)

    def test_what_could_never_come_to_an_end_is_refused(self):
        drive = self.drive()
        with self.assertRaisesRegex(ValueError, "no chunks"):
            drive.write_back_until(SIZE, SIZE, chunks=0)
        with self.assertRaisesRegex(ValueError, "2 chunks"):
            self.bursts(drive, chunks=READERS - 1)

    def test_the_daemon_is_stopped_when_a_client_cannot_be_started(self):
        with (mock.patch("nvme.Daemon") as daemon,
              mock.patch("nvme.Child", side_effect=[mock.MagicMock(), OSError("no more")])):
            daemon.return_value.directory = self.enterContext(tempfile.TemporaryDirectory())
            self.assertRaisesRegex(OSError, "no more", Drive, BUILD, "", {})
        daemon.return_value.stop.assert_called_once_with()

    def test_reads_of_what_is_not_there_fail(self):
        drive = self.drive()
        bursts = self.bursts(drive, chunks=2 * CHUNKS)
        with self.assertRaisesRegex(ChildFailed, "not there"):
            bursts.run(drive.flag, 5)


def why_fio_measures_nothing():
    """Returns the comparison's reason to refuse it; "": there is none."""
    if shutil.which("fio") is None:
        return "there is no fio"
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        ran = subprocess.run(["fio", "--name=probe", "--filename=probe", "--size=1M", "--direct=1",
                              "--rw=write", "--ioengine=io_uring", "--fixedbufs=1"], cwd=directory,
                             capture_output=True, timeout=PATIENCE_S, check=False)
    return "" if ran.returncode == 0 else f"no O_DIRECT or io_uring for fio: {ran.stderr}"


class BesideFioTest(unittest.TestCase):
    def test_what_is_read_comes_from_nvme_and_every_byte_of_it_is_compared(self):
        if why := why_fio_measures_nothing():
            self.skipTest(why)
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            figures = pathlib.Path(scratch) / "figures.json"
            ran = subprocess.run(
                [sys.executable, "-B", COMPARE / "compare.py", f"--build={BUILD}", "--scratch",
                 scratch, "--json", figures, "--only=memcpy", "--sizes=4MiB", "--batches=1",
                 "--rounds=2", "--seconds=0.05", "--nvme-round-mib=64", "--capacity-mib=64",
                 "--region-mib=32", "--revision=v1-test"], capture_output=True, text=True,
                check=False)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            found = json.loads(figures.read_text())
        self.assertEqual(found["about"]["revision"], "v1-test")
        if "nvme" not in found:
            self.assertIn("no room on the drive or in memory", ran.stderr)
            self.skipTest("no room on the drive or in memory")
        (nvme,) = found["nvme"]
        self.assertGreaterEqual(nvme["from_nvme"], 0.98)
        self.assertFalse(nvme["refused"])
        self.assertGreater(nvme["read"]["calls"], 0)
        self.assertGreater(nvme["read"]["p50_us"]["median"], 0)
        self.assertEqual(nvme["read"]["verified_bytes"], nvme["read"]["calls"] * 4 * MIB)
        for part in PARTS:
            part = part.replace(" ", "_")
            blocks = nvme[f"fio_{part}_by_block"]
            self.assertEqual([one["block_bytes"] for one in blocks], list(FIO_BLOCKS))
            self.assertEqual(nvme[part]["rounds"], 2)
            self.assertEqual(nvme[f"fio_{part}"]["median"],
                             max(one["gb_per_second"]["median"] for one in blocks))
        self.assertIn("NVMe read 4.0 MiB", ran.stdout)
        self.assertEqual([one["measured"] > 0 for one in found["verdicts"]
                          if one["theirs"] == "bare loop"], [True] * 3)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1))
    os.environ["KVKEEP_BUILD"] = str(BUILD)
    unittest.main()
