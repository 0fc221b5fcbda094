#!/usr/bin/env python3
"""The plans of tools/compare, its estimates of their time, and plans that it refuses."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import made_up  # noqa: F401  (adds the path)
import compare
from figures import GIB, MIB
from plan import QUICK_S, QuickBudget
from processes import MAX_SOCKET_PATH_BYTES

CONTESTANTS = 8  # all but peers


def planned(*arguments):
    return compare.parse([f"--build={made_up.ROOT}", *arguments])[1]


class PlanTest(unittest.TestCase):
    def test_the_ordinary_run_has_each_size_alone_and_eight_of_4_mib(self):
        self.assertEqual(planned().calls,
                         [(MIB, 1), (4 * MIB, 1), (4 * MIB, 8), (32 * MIB, 1)])
        self.assertEqual(planned().nvme.sizes, [4 * MIB, 32 * MIB])
        self.assertEqual(planned("--no-nvme").nvme.sizes, [])
        self.assertEqual(planned("--batches=1,8,64").calls,  # as asked for, where they fit
                         [(MIB, 1), (MIB, 8), (MIB, 64), (4 * MIB, 1), (4 * MIB, 8),
                          (4 * MIB, 64), (32 * MIB, 1), (32 * MIB, 8)])

    def test_quick_takes_less_than_two_minutes_and_the_ordinary_run_some_ten(self):
        self.assertGreaterEqual(planned().rounds, 9)
        self.assertLess(planned().most_seconds(CONTESTANTS), 780)
        self.assertGreater(planned().most_seconds(CONTESTANTS), 300)
        quick = planned("--quick").most_seconds(CONTESTANTS)
        self.assertLess(quick, QUICK_S)
        # More of anything takes longer.
        self.assertGreater(planned("--quick").most_seconds(CONTESTANTS + 1), quick)
        self.assertGreater(planned("--quick", "--sizes=1MiB,4MiB,32MiB,8MiB").most_seconds(
            CONTESTANTS), quick)

    def test_quick_leaves_out_what_it_would_be_too_late_for(self):
        in_time = QuickBudget()  # as estimated: all of it
        self.assertTrue(all(in_time.has_room_for(20, 20 * step) for step in range(6)))
        self.assertFalse(in_time.has_room_for(20, 101))
        slow = QuickBudget()  # the first step took three times as long: so will the next ones
        self.assertEqual([slow.has_room_for(20, at) for at in (0, 60, 120)], [True, True, False])
        slower = QuickBudget()
        self.assertEqual([slower.has_room_for(20, 0), slower.has_room_for(20, 70)], [True, False])
        self.assertTrue(slower.has_room_for(10, 70))  # a smaller one may be in time
        fast = QuickBudget()  # no step is taken for shorter than it may be
        self.assertEqual([fast.has_room_for(20, 0), fast.has_room_for(119, 5)], [True, False])

    def test_rounds_of_writes_are_as_large_as_drive_and_memory_allow(self):
        wanted = planned().nvme
        self.assertEqual(wanted.round_bytes, 1536 * MIB)
        for disk, memory, mib in ((80, 20, 1536), (30, 20, 768), (80, 4, 768), (15, 20, 384)):
            plan = wanted.fitted(disk * GIB, memory * GIB)
            self.assertEqual(plan.round_bytes, mib * MIB)
            self.assertLess(plan.disk_bytes, disk * GIB)
            # Nothing that is read can still be in G2, whatever the size of the rounds.
            self.assertGreaterEqual(plan.read_bytes, 2 * plan.g2_bytes)
            self.assertGreaterEqual(plan.put_first_bytes - plan.read_bytes, plan.g2_bytes)
        self.assertIsNone(wanted.fitted(GIB, 20 * GIB))
        self.assertIsNone(wanted.fitted(80 * GIB, GIB))

    def test_chunks_that_the_readers_cannot_hold_one_each_of_are_left_out_of_nvme(self):
        for rounds, sizes, too_large in ((256, [4 * MIB, 64 * MIB], []),
                                         (255, [4 * MIB], [64 * MIB]), (64, [4 * MIB], [64 * MIB])):
            plan = planned("--sizes=1MiB,4MiB,64MiB", f"--nvme-round-mib={rounds}").nvme
            self.assertEqual((plan.sizes, plan.too_large), (sizes, too_large))
        wanted = planned("--sizes=64MiB", "--nvme-round-mib=256").nvme
        self.assertEqual(wanted.fitted(80 * GIB, 20 * GIB).sizes, [64 * MIB])
        self.assertIsNone(wanted.fitted(3 * GIB, 20 * GIB))  # there is room for rounds of 128 MiB

    def test_a_scratch_directory_with_too_long_a_path_for_sockets_is_refused(self):
        base = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        longest = MAX_SOCKET_PATH_BYTES - len(compare.DEEPEST_SOCKET)
        for size, outcome in ((longest, contextlib.nullcontext()),
                              (longest + 1, self.assertRaises(SystemExit))):
            directory = base / ("d" * (size - len(str(base)) - 1))
            directory.mkdir()
            said = io.StringIO()
            with contextlib.redirect_stderr(said), outcome:
                planned(f"--scratch={directory}")
        self.assertIn("a socket's path below it", said.getvalue())

    def test_what_cannot_be_compared_is_refused_by_name(self):
        for arguments, named in ((["--only=somebody"], "somebody"), (["--sizes=0"], "--sizes"),
                                 (["--sizes=1 MB"], "--sizes"), (["--batches=0"], "--batches"),
                                 (["--sizes=64MiB", "--region-mib=32"], "--sizes"),
                                 (["--sizes=32MiB", "--batches=16"], "--batches"),
                                 (["--rounds=0"], "--rounds"), (["--build=/nowhere"], "nowhere")):
            said = io.StringIO()
            with (self.subTest(arguments=arguments), contextlib.redirect_stderr(said),
                  self.assertRaises(SystemExit) as ended):
                planned(*arguments)
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(named, said.getvalue())


if __name__ == "__main__":
    unittest.main()
