#!/usr/bin/env python3
"""Ratios, targets, tables and the JSON of tools/compare, from made-up figures."""

import unittest

from made_up import discipline, nvme_result, slices
from contest import (GRPC, LMCACHE, LOCAL, MEMCPY, MOONCAKE, STAGING, STREAM, Discipline,
                     turns)
import figures
from figures import KIB, MIB
from report import Comparison, document, text
from targets import judged


def verdict_on(comparison, what, theirs):
    return next((one for one in judged(comparison.disciplines, comparison.nvme)
                 if (one.what, one.theirs) == (what, theirs)), None)


class TargetsTest(unittest.TestCase):
    def test_each_size_and_batch_has_its_target_and_a_hair_less_is_missed(self):
        for operation, size, batch, ours, theirs, what, target in (
                ("get", 32 * MIB, 1, LOCAL, MEMCPY, "get 32.0 MiB", 0.95),
                ("get", 4 * MIB, 8, LOCAL, MEMCPY, "get 8 x 4.0 MiB", 0.95),
                ("get", 4 * MIB, 1, LOCAL, MEMCPY, "get 4.0 MiB", 0.9),
                ("put", 32 * MIB, 1, STAGING, MEMCPY, "put 32.0 MiB", 0.8),
                ("get", 4 * MIB, 1, GRPC, STREAM, "get 4.0 MiB", 0.9),
                ("put", 4 * MIB, 1, GRPC, STREAM, "put 4.0 MiB", 0.9),
                ("first put", 4 * MIB, 1, LOCAL, LMCACHE, "first put 4.0 MiB", 3),
                ("put", MIB, 1, LOCAL, LMCACHE, "put 1.0 MiB", 1.5),
                ("lookup+get", MIB, 1, LOCAL, LMCACHE, "lookup+get 1.0 MiB", 1),
                ("lookup", 4 * KIB, 512, LOCAL, LMCACHE, "lookup 512 x 4.0 KiB", 100),
                ("get", MIB, 8, LOCAL, MOONCAKE, "get 8 x 1.0 MiB", 1),
                ("lookup", 4 * KIB, 512, LOCAL, MOONCAKE, "lookup 512 x 4.0 KiB", 1),
                ("put", 32 * MIB, 1, LOCAL, MOONCAKE, "put 32.0 MiB", 0.7)):
            for more, outcome in ((1.05, "met"), (0.95, "missed")):
                with self.subTest(what=what, beside=theirs, more=more):
                    rates = {ours: target * more, theirs: 1}
                    found = verdict_on(
                        Comparison(disciplines=[discipline(operation, size, batch, rates)]),
                        what, theirs)
                    self.assertEqual((found.target, found.verdict), (target, outcome))
                    self.assertAlmostEqual(found.measured, target * more, places=6)

    def test_nothing_is_said_of_what_was_not_measured_or_has_no_target(self):
        self.assertEqual(judged([], []), [])
        self.assertEqual(judged([discipline("get", 32 * MIB, 1, {LOCAL: 1})], []), [])
        self.assertEqual(judged([discipline("get", MIB, 1, {LOCAL: 1, MEMCPY: 1})], []), [])

    def test_nvme_is_judged_beside_fios_better_blocks(self):
        both = Comparison(nvme=[nvme_result(4 * MIB, 0.96, 1), nvme_result(32 * MIB, 0.89, 1)])
        self.assertAlmostEqual(verdict_on(both, "NVMe read 4.0 MiB", "fio").measured, 0.96)
        for part in ("read", "first fill", "overwrite"):
            self.assertEqual(verdict_on(both, f"NVMe {part} 4.0 MiB", "fio").verdict, "met")
            self.assertEqual(verdict_on(both, f"NVMe {part} 32.0 MiB", "fio").verdict, "missed")

    def test_nvme_is_judged_beside_a_bare_loop_too(self):
        both = Comparison(nvme=[nvme_result(4 * MIB, 0.89, 1), nvme_result(32 * MIB, 0.7, 1)])
        for part in ("read", "first fill", "overwrite"):
            self.assertEqual(verdict_on(both, f"NVMe {part} 4.0 MiB", "bare loop").verdict, "met")
            self.assertEqual(verdict_on(both, f"NVMe {part} 32.0 MiB", "bare loop").verdict,
                             "missed")
        self.assertIn("1.11", text(both))

    def test_reads_that_did_not_come_from_nvme_are_refused_and_the_report_says_so(self):
        for from_nvme, refused in ((0.5, True), (0.97, True), (0.99, False)):
            one = Comparison(names=[MEMCPY], nvme=[nvme_result(4 * MIB, 2.3, from_nvme)])
            self.assertEqual(one.refused, refused)
            self.assertAlmostEqual(one.nvme[0].from_nvme, from_nvme)
            self.assertEqual(verdict_on(one, "NVMe overwrite 4.0 MiB", "fio").verdict, "met")
            self.assertEqual("REFUSED" in text(one), refused)
            self.assertEqual(document(one)["nvme"][0]["refused"], refused)
            self.assertEqual(document(one)["verdicts"][0]["verdict"],
                             "refused" if refused else "met")


class ReportTest(unittest.TestCase):
    def test_beside_the_bare_stream_a_figure_is_the_median_of_the_rounds_ratios(self):
        one = Discipline("get", 4 * MIB, 1, {MEMCPY: slices([9, 9, 9]), GRPC: slices([1, 2, 8]),
                                             STREAM: slices([2, 2, 2])})
        compared = Comparison(names=[MEMCPY], disciplines=[one])
        self.assertEqual(document(compared)["disciplines"][0]["of_stream"][GRPC],
                         {"median": 1, "min": 0.5, "max": 4})
        self.assertIn("kvkeep gRPC / gRPC stream", text(compared))

    def test_lookups_are_compared_by_the_median_call(self):
        one = Discipline("lookup", 4 * KIB, 512, {LOCAL: slices([4]), LMCACHE: slices([1])})
        one.results[LOCAL][0].bytes = one.results[LMCACHE][0].bytes = 0
        self.assertEqual(one.times_as_fast(LOCAL, LMCACHE), [4])

    def test_who_took_part_in_some_calls_only_is_in_the_report_of_those(self):
        one, other = (discipline("get", size, 1, {MEMCPY: 4, LOCAL: 2}) for size in (MIB, 4 * MIB))
        lookup = discipline("lookup", 4 * KIB, 512, {LOCAL: 2})
        del other.results[LOCAL]
        compared = Comparison(names=[MEMCPY, LOCAL], disciplines=[one, other, lookup])
        bandwidths, lookups, cpu, _ = text(compared).split("\n\n")[:4]
        self.assertRegex(bandwidths, r"(?m)^kvkeep local +2\.00 .* - +- +- +-$")
        self.assertRegex(lookups, r"(?m)^memcpy +- +- +-$")
        self.assertRegex(cpu, r"(?m)^kvkeep local +0\.000 \+ 0\.000 +-$")
        self.assertEqual([list(each["results"]) for each in document(compared)["disciplines"]],
                         [[MEMCPY, LOCAL], [MEMCPY], [LOCAL]])

    def test_a_wrong_byte_of_anybody_counts(self):
        one = discipline("get", MIB, 1, {MEMCPY: 1, LOCAL: 1})
        compared = Comparison(names=[MEMCPY, LOCAL], disciplines=[one],
                              nvme=[nvme_result(4 * MIB, 1, 1)])
        self.assertEqual(compared.wrong_bytes, 0)
        one.results[LOCAL][2].wrong_bytes = 3
        compared.nvme[0].parts["read"].kvkeep[1].wrong_bytes = 4
        self.assertEqual(compared.wrong_bytes, 7)
        self.assertIn("wrong bytes: 7\n", text(compared))

    def test_cpu_seconds_are_of_a_gigabyte(self):
        one = discipline("get", MIB, 1, {MEMCPY: 2})
        for each in one.results[MEMCPY]:
            each.cpu_s, each.server_cpu_s = 1, 3
        compared = Comparison(names=[MEMCPY], disciplines=[one])
        self.assertIn("0.500 + 1.500", text(compared))
        found = document(compared)["disciplines"][0]["results"][MEMCPY]
        self.assertEqual((found["client_cpu_seconds_per_gb"], found["rounds"]), (0.5, 3))


class FiguresTest(unittest.TestCase):
    def test_medians_ratios_and_spreads(self):
        self.assertEqual(figures.summary([3, 1, 10]), {"median": 3, "min": 1, "max": 10})
        self.assertEqual(figures.summary([]), {"median": 0, "min": 0, "max": 0})
        self.assertEqual(figures.median([1, 2, 4, 8]), 3)
        self.assertEqual(figures.ratios([2, 9, 8], [1, 0, 2]), [2, 4])
        self.assertEqual(figures.spread([2, 4, 5]), 0.75)

    def test_sizes_are_read_and_written(self):
        self.assertEqual(figures.chunk_sizes("64KiB,1.5MiB,5"), [64 * KIB, 3 << 19, 5])
        for bad in ("", "0", "1.5", "257MiB", "1MB", "many"):
            self.assertRaises(ValueError, figures.chunk_sizes, bad)
        self.assertEqual([figures.bytes_text(size) for size in (512, 1536, 4 * MIB)],
                         ["512 B", "1.5 KiB", "4.0 MiB"])

    def test_the_order_moves_on_by_one_each_round(self):
        self.assertEqual(list(turns(3, ["a", "b"])), [(0, "a"), (0, "b"), (1, "b"), (1, "a"),
                                                      (2, "a"), (2, "b")])


if __name__ == "__main__":
    unittest.main()
