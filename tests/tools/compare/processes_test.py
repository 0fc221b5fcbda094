#!/usr/bin/env python3
"""Children and servers of tools/compare: what they answer, that failures are said, and that none
outlives its owner."""

import os
import pathlib
import select
import subprocess
import sys
import tempfile
import unittest

from made_up import COMPARE
from processes import Child, ChildFailed, Server, cpu_seconds

ANSWERS = """
import os, time
from processes import serve
def answer(command):
    print("this is no answer")
    if command["do"] == "end":
        os._exit(1)
    if command["do"] == "spin":
        while time.process_time() < 0.2:
            pass
    return {"half": command["number"] / 2}
serve(answer)
"""


class ChildTest(unittest.TestCase):
    def setUp(self):
        self.log = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "log"
        self.child = Child("halves", [sys.executable, "-B", "-c", ANSWERS],
                           {"PYTHONPATH": str(COMPARE)}, self.log)
        self.addCleanup(self.child.stop)

    def test_commands_are_answered_and_failures_are_said(self):
        self.assertEqual(self.child.ask("halve", number=7), {"half": 3.5})
        with self.assertRaisesRegex(ChildFailed, "halves: TypeError"):
            self.child.ask("halve", number="seven")
        self.assertEqual(self.child.ask("halve", number=8), {"half": 4})
        self.assertIn("this is no answer", self.log.read_text())

    def test_one_that_is_gone_is_said_with_its_last_words(self):
        for _ in range(2):
            with self.assertRaisesRegex(ChildFailed, "halves is gone (?s:.*)this is no answer"):
                self.child.ask("end")

    def test_its_cpu_time_is_known(self):
        before = cpu_seconds([self.child.pid])
        self.child.ask("spin", number=0)
        self.assertGreater(cpu_seconds([self.child.pid]) - before, 0.1)
        self.assertEqual(cpu_seconds([]), 0)


class ServerTest(unittest.TestCase):
    def test_a_server_that_ends_at_once_says_its_last_words(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaisesRegex(OSError, "no such thing here"):
                Server("talker", ["sh", "-c", "echo no such thing here; exit 1"], directory,
                       lambda: False)

    def test_a_server_is_there_when_it_says_so(self):
        with tempfile.TemporaryDirectory() as directory:
            ready = pathlib.Path(directory) / "ready"
            started = Server("sleeper", ["sh", "-c", f"touch {ready}; exec sleep 60"], directory,
                             ready.exists)
            self.addCleanup(started.stop)
            os.kill(started.pid, 0)

    def test_a_server_dies_with_its_owner_however_that_ends(self):
        program = ("import processes, sys\n"
                   "one = processes.Server('sleeper', ['sleep', '60'], sys.argv[1], lambda: 1)\n"
                   "print(one.pid, flush=True)\n"
                   "sys.stdin.read()\n")
        with tempfile.TemporaryDirectory() as directory:
            with subprocess.Popen([sys.executable, "-B", "-c", program, directory], cwd=COMPARE,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
                ended = os.pidfd_open(int(owner.stdout.readline()))
                self.addCleanup(os.close, ended)
                self.assertEqual(select.select([ended], [], [], 0)[0], [])
                owner.kill()
            self.assertEqual(select.select([ended], [], [], 20)[0], [ended])


if __name__ == "__main__":
    unittest.main()
