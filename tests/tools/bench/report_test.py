#!/usr/bin/env python3
"""Figures of kvkeep-bench: added up, judged, printed."""

import argparse
import math
import random
import unittest
from collections import Counter

from made_up import histogram, measured, series
from cpu_costs import cost_of, write_back_cost
from histogram import Histogram
from line import difference_line, missing_line, none_missed, plain_line, ratio_line
from measured import added_up
from report import OPTIONS, Report
from series import Series, Usage

LAST_BUCKET = [3775, 1]  # of 2^64 - 1 ns


def bucket_of(ns):
    """As client/histogram.cc."""
    shift = max(ns.bit_length() - 7, 0)
    return ns if ns < 128 else 128 + (shift - 1) * 64 + (ns >> shift) - 64


class MeasuredTest(unittest.TestCase):
    def test_quantiles_are_those_of_the_clients_buckets(self):
        one = Histogram(histogram(*range(1, 101)))
        self.assertEqual([1e3 * one.quantile_us(share) for share in (0, 0.5, 0.99, 0.999, 1)],
                         [1, 50, 99, 100, 100])
        self.assertEqual(one.report(), {"count": 100, "min": 0.001, "p50": 0.05, "p99": 0.099,
                                        "p999": 0.1, "max": 0.1, "mean": 0.0505})
        # From 128 ns on a bucket has 2 ns, and 4 from 256 on: its middle is printed.
        for bucket, low, middle in ((128, 128, 129), (191, 254, 255), (192, 256, 258)):
            wire = {"min": low, "max": low + 3, "sum": low, "buckets": [[bucket, 1]]}
            self.assertEqual(1e3 * Histogram(wire).quantile_us(0.5), middle)
        wire = {"min": 0, "max": 2**64 - 1, "sum": 0, "buckets": [LAST_BUCKET]}
        self.assertAlmostEqual(1e3 * Histogram(wire).quantile_us(0.5) / 2**64, 1, delta=0.016)

    def test_quantiles_are_within_1_6_percent_of_the_exact_ones(self):
        draw = random.Random(7)
        values = sorted(draw.getrandbits(30) >> draw.randrange(30) for _ in range(5000))
        buckets = Counter(map(bucket_of, values))
        one = Histogram({"min": values[0], "max": values[-1], "sum": sum(values),
                         "buckets": list(buckets.items())})
        for share in (0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1):
            exact = values[math.ceil(share * len(values)) - 1]
            self.assertLessEqual(abs(1e3 * one.quantile_us(share) - exact), 0.016 * exact)

    def test_an_empty_histogram_answers_zero_for_everything(self):
        self.assertEqual(set(Histogram().report().values()), {0})

    def test_histograms_that_are_merged_are_as_one_that_has_all(self):
        one, whole = Histogram(histogram(5, 9, 9)), Histogram(histogram(5, 9, 9, 2, 100))
        one.merge(Histogram(histogram(2, 100)))
        one.merge(Histogram())
        self.assertEqual(one.report(), whole.report())

    def test_clients_side_by_side_share_the_time_rounds_follow_each_other(self):
        parts = [measured(50), measured(50, seconds=0.4, first_failure="why")]
        beside, after = added_up(parts, side_by_side=True), added_up(parts, side_by_side=False)
        self.assertEqual((beside.seconds, after.seconds), (0.5, 0.9))
        self.assertEqual((beside.per_second("ops"), beside.ops), (200, 100))
        self.assertEqual((after.client_cpu_seconds, after.first_failure), (0.5, "why"))
        self.assertEqual(beside.latency.count, 100)
        self.assertEqual(parts[0].latency.count, 50)


class LineTest(unittest.TestCase):
    def test_it_holds_by_the_median_of_the_rounds_on_the_right_side_of_its_limit(self):
        for line, verdict in (
                (ratio_line("", "", [5, 7, 1], [10, 10, 10], ("at least", 0.5)), "ok"),
                (ratio_line("", "", [4, 7, 1], [10, 10, 10], ("at least", 0.5)), "MISSED"),
                (difference_line("", "us", [50, 60], [11, 19], ("at most", 40)), "ok"),
                (difference_line("", "us", [50, 62], [9, 19], ("at most", 40)), "MISSED"),
                (plain_line("", "", [1], ("more than", 1)), "MISSED"),
                (plain_line("", "", [1], ("less than", 1)), "MISSED"),
                (plain_line("", "", [], ("at most", 1)), "not measured"),
                (ratio_line("", "", [5], [10]), "told"),
                (ratio_line("", "", [], []), "not measured"),
                (missing_line("x", "why"), "not measured")):
            self.assertEqual(line.verdict, verdict, line)
            self.assertEqual(none_missed([line]), verdict != "MISSED")

    def test_it_is_written_for_people(self):
        line = ratio_line("rate", "/s", [6e6, 120], [1e7, 200.4], ("at least", 0.55))
        self.assertEqual((line.measured, line.baseline), ("3 million /s", "5 million /s"))
        self.assertEqual((line.figure, line.target), ("0.599 (0.599 to 0.6)", "at least 0.55"))
        self.assertEqual(plain_line("", "us", [0, 150.7], ("at most", 75)).figure,
                         "75.3 us (0 to 151)")


class ReportTest(unittest.TestCase):
    def report(self, *cases, **others):
        options = argparse.Namespace(**dict.fromkeys(OPTIONS))
        return Report(options, cases=list(cases), **others)

    def test_as_json_it_has_options_every_case_with_its_numbers_baselines_and_the_table(self):
        one = series("get", measured(10, copied_bytes=5), measured(20), daemon=True, path="grpc")
        one.daemon.lock_held_ns_max_since_start = 5000
        found = self.report(one, baselines=[series("memcpy", measured(5))], path="grpc",
                            lines=[ratio_line("rate", "/s", [6], [10], ("at least", 0.5))])
        text, found = found.text(), found.document()
        self.assertEqual(" ".join(found["options"]), "verb endpoint path daemon arena_dir g2_bytes "
                         "g3_bytes copy_threads sizes tier run_sizes adjacent batch depth clients "
                         "seconds ops rounds keys table_chunks mix verify region_bytes seed quick "
                         "sections lookup_table_chunks")
        case = found["cases"][0]
        self.assertEqual((case["rounds"], case["about"]), (2, {"path": "grpc"}))
        self.assertEqual(case["over_rounds"]["ops_per_second"],
                         {"median": 30, "min": 20, "max": 40, "spread": 20 / 30})
        self.assertEqual(case["daemon"]["lock_held_ns_max_since_start"], 5000)
        total = case["total"]
        self.assertEqual((total["ops_per_second"], total["chunks_per_second"]), (30, 60))
        self.assertEqual((total["gb_per_second"], total["copied_bytes"]), (30e3 / 1e9, 5))
        self.assertEqual(total["latency_us"]["max"], 0.02)
        self.assertFalse({"first_piece_us", "first_failure"} & set(total))
        self.assertNotIn("daemon", found["baselines"][0])
        self.assertEqual(found["table"][0]["verdict"], "ok")
        self.assertEqual(found["table"][0]["numbers"]["figure"], 0.6)
        self.assertTrue(found["sound"])
        self.assertIn("at least 0.5", text)
        self.assertIn("memcpy", text)

    def test_wrong_bytes_failed_calls_and_cases_without_any_call_make_it_unsound(self):
        self.assertTrue(self.report(series("get", measured(10))).sound())
        for word, wrong in (("WRONG BYTES: get: 1 of 9", measured(1, wrong_bytes=1,
                                                                    verified_bytes=9)),
                            ("failed calls: get: 2, the first: lost",
                             measured(1, failed_ops=2, first_failure="lost")),
                            ("", measured(0))):
            report = self.report(series("get", measured(10), wrong)
                                 if word else series("get", wrong))
            self.assertFalse(report.sound())
            self.assertIn(word, report.text())
        failed = self.report(series("get", measured(10)), failure="put: no room")
        self.assertFalse(failed.document()["sound"])
        self.assertIn("failed: put: no room", failed.text())

    def test_cpu_seconds_go_by_gigabytes_and_write_back_is_what_puts_do_not_explain(self):
        part = measured(1, bytes=2_000_000_000, client_cpu_seconds=1)
        put = cost_of("local put", Series("put", {}, [part, part], Usage(cpu_seconds=2)))
        self.assertEqual((put.gigabytes, put.client_seconds_per_gb, put.daemon_seconds_per_gb),
                         (4, 0.5, 0.5))
        # 4 GB put cost 2 s of 5; the others went into 3 GB written back.
        written = write_back_cost(put, 4_000_000_000, 5, 3_000_000_000)
        self.assertEqual((written.path, written.daemon_seconds_per_gb), ("write-back", 1))
        self.assertEqual(write_back_cost(put, 4_000_000_000, 1, 3_000_000_000)
                         .daemon_seconds_per_gb, 0)
        report = self.report(cpu_costs=[put])
        self.assertEqual(report.document()["cpu_costs"][0]["path"], "local put")
        self.assertIn("local put", report.text())


if __name__ == "__main__":
    unittest.main()
