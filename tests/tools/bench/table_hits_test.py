#!/usr/bin/env python3
"""Hits beside write-back: enough is written that a slice of gets is done before the drive is."""

import contextlib
import types
import unittest

from made_up import measured
from table import Scale
from table_chunks import CHUNK_BYTES, HITS_DOUBLINGS, measure_hits

DIRTY_CHUNKS = 40


class FakeLoad:
    """Clients of a daemon whose drive writes `slice_bytes` during each slice of gets."""

    def __init__(self, slice_bytes):
        self.slice_bytes = slice_bytes
        self.dirty = 0

    def prepare(self, name, **_):
        return types.SimpleNamespace(about={}, name=name)

    def load(self, first, count, size, **_):
        self.dirty = (count - first) * size

    def run(self, series, *_, **__):
        if "write-back" in series.name:
            self.dirty = max(self.dirty - self.slice_bytes, 0)
        series.rounds.append(measured(10))

    def status(self):
        return {"g2_dirty_bytes": self.dirty}


class FakeTable:
    """Keeps what is added, and how many bytes of G2 each daemon had."""

    def __init__(self, slice_bytes):
        self.options = types.SimpleNamespace(verify=False)
        self.scale = Scale(seconds=0.03, rounds=2, put_rounds=1, large_table=1,
                           hits_dirty_chunks=DIRTY_CHUNKS)
        self.slice_bytes = slice_bytes
        self.lines, self.kept, self.g2_bytes = [], [], []

    @contextlib.contextmanager
    def daemon(self, g2_bytes, *_, **__):
        self.g2_bytes.append(g2_bytes)
        yield None, FakeLoad(self.slice_bytes)

    def say_round(self, *_):
        pass

    def add(self, line):
        self.lines.append(line)

    def keep(self, *series):
        self.kept += series


class HitsTest(unittest.TestCase):
    def measure(self, slice_chunks):
        table = FakeTable(slice_chunks * CHUNK_BYTES)
        measure_hits(table)
        return table, {line.verdict for line in table.lines}

    def test_a_slow_drive_is_measured_at_once(self):
        table, verdicts = self.measure(slice_chunks=1)
        self.assertNotIn("not measured", verdicts)
        self.assertEqual(len(table.g2_bytes), table.scale.rounds)

    def test_a_drive_that_is_done_too_soon_gets_more_to_write_and_later_rounds_begin_so(self):
        table, verdicts = self.measure(slice_chunks=2 * DIRTY_CHUNKS)
        self.assertNotIn("not measured", verdicts)
        first = table.g2_bytes[0]
        self.assertEqual([one // first for one in table.g2_bytes],
                         [1, 2] + table.scale.rounds * [4])
        self.assertEqual({len(series.rounds) for series in table.kept if "use" not in series.name},
                         {table.scale.rounds})

    def test_a_drive_that_is_always_done_too_soon_is_a_line_that_says_so(self):
        table, verdicts = self.measure(slice_chunks=10**6)
        self.assertEqual(verdicts, {"not measured"})
        self.assertEqual(max(table.g2_bytes) // table.g2_bytes[0], 1 << HITS_DOUBLINGS)


if __name__ == "__main__":
    unittest.main()
