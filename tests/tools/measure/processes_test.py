#!/usr/bin/env python3
"""Children and servers: their answers, reports of failures, and that none outlives its owner."""

import os
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

MEASURE = pathlib.Path(__file__).resolve().parents[3] / "tools/measure"
sys.path.append(str(MEASURE))

from processes import (MAX_SOCKET_PATH_BYTES, Child, ChildFailed, Server, cpu_seconds, listens_at,
                       run, socket_path)

ANSWERS = """
import os, time
from processes import serve
def answer(command):
    print("this is no answer")
    if command["do"] == "end":
        os._exit(1)
    if command["do"] == "spin":
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    return {"half": command["number"] / 2}
serve(answer)
"""
SERVES = """
import sys
import processes
def answer(command):
    return {"pid": processes.Server("sleeper", ["sleep", "60"], sys.argv[1], lambda: 1).pid}
processes.serve(answer)
"""


class ChildTest(unittest.TestCase):
    def setUp(self):
        self.log = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "log"
        self.child = Child("halves", [sys.executable, "-B", "-c", ANSWERS],
                           {"PYTHONPATH": str(MEASURE)}, self.log)
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

    def test_one_that_says_half_an_answer_does_not_answer(self):
        child = Child("half", ["sh", "-c", "echo '{}'; printf '{'; exec sleep 60"])
        self.addCleanup(child.stop)
        self.addCleanup(os.kill, child.pid, 9)  # it does not end by itself
        self.assertEqual(child.receive(), {})
        with (mock.patch("processes.ANSWER_PATIENCE_S", 0.1),
              self.assertRaisesRegex(ChildFailed, "half does not answer")):
            child.receive()

    def test_answers_that_came_together_are_taken_one_by_one(self):
        for number in (2, 4, 100_000):
            self.child.send("halve", number=number)
        self.assertEqual([self.child.receive()["half"] for _ in range(3)], [1, 2, 50_000])

    def test_whether_it_has_answered_is_known_without_taking_the_answer(self):
        self.assertFalse(self.child.answers_within(0.05))
        self.child.send("halve", number=2)
        self.assertTrue(self.child.answers_within(20))
        self.child.send("halve", number=4)
        self.assertEqual([self.child.receive()["half"] for _ in range(2)], [1, 2])
        self.child.send("end", number=0)
        self.assertTrue(self.child.answers_within(20))
        self.assertRaises(ChildFailed, self.child.receive)

    def test_its_cpu_time_is_known(self):
        before = cpu_seconds([self.child.pid])
        self.child.ask("spin", number=0)
        self.assertGreater(cpu_seconds([self.child.pid]) - before, 0.1)
        self.assertEqual(cpu_seconds([]), 0)
        self.assertEqual(cpu_seconds([1 << 22]), 0)  # the kernel gives no number that high


class RunTest(unittest.TestCase):
    def test_what_a_program_says_and_how_it_ends_is_told(self):
        self.assertEqual(run(["sh", "-c", "pwd; echo no >&2; exit 3"], 60, "/"), ("/\nno\n", 3))
        self.assertRaises(OSError, run, ["there is no such program"], 60)

    def test_one_that_takes_too_long_is_stopped(self):
        with self.assertRaisesRegex(OSError, "sleep is not done after 0 s"):
            run(["sleep", "60"], 0.05)


class SocketTest(unittest.TestCase):
    def test_a_socket_is_listened_at_when_a_connection_succeeds(self):
        path = socket_path(self.enterContext(tempfile.TemporaryDirectory()), "socket")
        self.assertFalse(listens_at(path))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            self.assertFalse(listens_at(path))
            listener.listen()
            self.assertTrue(listens_at(path))

    def test_a_path_that_no_socket_can_have_is_refused(self):
        directory = "/" + "d" * (MAX_SOCKET_PATH_BYTES - 4)
        socket_path(directory, "ab")
        with self.assertRaisesRegex(OSError, "more than 107 bytes"):
            socket_path(directory, "abc")


class ServerTest(unittest.TestCase):
    def test_servers_of_a_child_are_gone_when_it_is_stopped(self):
        with tempfile.TemporaryDirectory() as directory:
            child = Child("owner", [sys.executable, "-B", "-c", SERVES, directory],
                          {"PYTHONPATH": str(MEASURE)})
            self.addCleanup(child.stop)
            pid = child.ask("start")["pid"]
            os.kill(pid, 0)
            child.stop()
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_a_server_that_cannot_be_asked_is_stopped(self):
        def is_ready():
            raise OSError("cannot ask")

        with (tempfile.TemporaryDirectory() as directory,
              mock.patch.object(Server, "stop", autospec=True, side_effect=Server.stop) as stop):
            with self.assertRaisesRegex(OSError, "cannot ask"):
                Server("sleeper", ["sleep", "60"], directory, is_ready)
            stop.assert_called_once()

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
            self.assertFalse(started.ended)
            ended = os.pidfd_open(started.pid)
            self.addCleanup(os.close, ended)
            os.kill(started.pid, 9)
            select.select([ended], [], [], 20)
            self.assertTrue(started.ended)

    def test_a_server_dies_with_its_owner_however_that_ends(self):
        program = ("import processes, sys\n"
                   "one = processes.Server('sleeper', ['sleep', '60'], sys.argv[1], lambda: 1)\n"
                   "print(one.pid, flush=True)\n"
                   "sys.stdin.read()\n")
        with tempfile.TemporaryDirectory() as directory:
            with subprocess.Popen([sys.executable, "-B", "-c", program, directory], cwd=MEASURE,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
                ended = os.pidfd_open(int(owner.stdout.readline()))
                self.addCleanup(os.close, ended)
                self.assertEqual(select.select([ended], [], [], 0)[0], [])
                owner.kill()
            self.assertEqual(select.select([ended], [], [], 20)[0], [ended])


if __name__ == "__main__":
    unittest.main()
