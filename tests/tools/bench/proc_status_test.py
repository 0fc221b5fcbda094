#!/usr/bin/env python3
"""Reads a process's figures from /proc, and takes nothing for 0."""

import os
import unittest

import made_up  # noqa: F401
from proc_status import resident_beside_shared_bytes, resident_shared_bytes, wake_ups


class ProcStatusTest(unittest.TestCase):
    def test_what_a_process_holds_and_how_often_it_was_woken_is_told(self):
        self.assertGreater(resident_beside_shared_bytes(os.getpid()), 0)
        self.assertGreaterEqual(resident_shared_bytes(os.getpid()), 0)
        self.assertTrue(wake_ups(os.getpid()))

    def test_of_one_that_is_not_there_or_has_ended_nothing_is_taken_for_0(self):
        ended = os.fork()  # /proc has it until it is waited for
        if ended == 0:
            os._exit(0)
        os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
        try:
            for pid in (ended, 0):
                self.assertRaises(OSError, resident_beside_shared_bytes, pid)
                self.assertRaises(OSError, resident_shared_bytes, pid)
        finally:
            os.waitpid(ended, 0)
        self.assertRaises(OSError, wake_ups, 0)


if __name__ == "__main__":
    unittest.main()
