#!/usr/bin/env python3
"""Results of the requests of a pattern, printed and judged."""

import unittest

from made_up import histogram
from measured import Measured
from pattern_report import PatternReport, PatternRun

REQUEST = {"name": "pm1753", "rates": [50]}
PATTERN = {"kind": "pm1753", "requests_per_second": 50, "seconds": 30}
OF_RUN = {"pattern", "chunk_bytes", "get_chunks", "depth", "recompute_us_per_chunk",
          "distinct_chunks", "working_set_bytes", "offered_bytes_per_second",
          "recalled_bytes_per_second", "stored_bytes_per_second", "found_share", "stored_share",
          "from_nvme_share", "device_bytes_per_second", "offered_share_of_device",
          "nvme_share_of_device", "peak_share_of_device", "below_device_rate",
          "stalls_over_100_ms", "fetch_faster_than_recompute_share", "promotions", "device_runs",
          "device_runs_per_prefix", "daemon_cpu_seconds", "alone", "loaded"}
OF_REPORT = {"request", "model", "daemon", "arena", "path", "g2_bytes", "g3_bytes", "wants",
             "device_why_not", "runs", "table", "sound"}
MS = 1_000_000


def requests(chunk_ns=100, **others):
    counts = dict.fromkeys(("refused_chunks", "stored_bytes", "failed_calls", "wrong_bytes"), 0)
    return Measured({
        "seconds": 2, "client_cpu_seconds": 0.5, "requests": 2, "asked_chunks": 9,
        "found_chunks": 3, "stored_chunks": 1, "recalled_bytes": 300, "prefixes": 1,
        "prefixes_from_nvme": 1, "faster_prefixes": 1, "stalls": 1, "verified_bytes": 300,
        "first_failure": "", **counts,
        **{name: histogram(chunk_ns) for name in ("chunk_wait", "chunk", "prefix", "store",
                                                  "began_late")}, **others})


def report(loaded=None, job=None, **of_run):
    """Returns one rate, of which nothing is wrong."""
    job = {"job": {**PATTERN, "chunk_bytes": 100, "get_chunks": 8, "depth": 16, "burst_rate": 2,
                   "recompute_seconds_per_chunk": 0.001},
           "pattern": PATTERN, "closed_loop": False, "asked_chunks": 300_000_000,
           "chunks_before": 5, "distinct_chunks": 10_000, "working_set_bytes": 20 * 10**9,
           **(job or {})}
    run = PatternRun(job, requests(), loaded or requests(), served_g2_chunks=1,
                     served_g3_chunks=3, promotions=3, promotion_runs=2, **of_run)
    one = PatternReport(REQUEST, {}, g2_bytes=10**9, g3_bytes=10**11, runs=[run])
    one.judge()
    return one


class PatternReportTest(unittest.TestCase):
    def test_its_json_has_these_keys_which_scripts_rely_on(self):
        found = report().document()
        self.assertEqual(set(found), OF_REPORT)
        run = found["runs"][0]
        self.assertEqual(set(run), OF_RUN)
        self.assertEqual(run["device_runs_per_prefix"], 2)
        self.assertEqual(run["from_nvme_share"], 0.75)
        self.assertEqual(run["stored_share"], 0.25)
        self.assertEqual(run["fetch_faster_than_recompute_share"], 1)
        self.assertEqual(run["offered_bytes_per_second"], 10**9)
        self.assertEqual(run["recalled_bytes_per_second"], 150)
        self.assertEqual(run["recompute_us_per_chunk"], 1000)
        self.assertEqual(run["loaded"]["chunk_us"]["max"], 0.1)

    def test_it_says_what_was_wrong_and_what_the_daemon_would_have_to_be_given(self):
        one = report()
        self.assertTrue(one.sound())
        self.assertEqual(one.wants(), "")
        self.assertIn("stalls over 100 ms", one.text())
        for g2_bytes, g3_bytes, word in ((15 * 10**9, 10**11, "more than half"),
                                         (10**9, 2 * 10**9, "does not hold it"),
                                         (10**9, 0, "without a G3")):
            one.g2_bytes, one.g3_bytes = g2_bytes, g3_bytes
            self.assertIn(word, one.text())
        for wrong, word in ((requests(wrong_bytes=1), "WRONG BYTES: 1 of 300"),
                            (requests(failed_calls=2, first_failure="lost"), "the first: lost"),
                            (requests(requests=0), "")):
            self.assertFalse(report(wrong).sound())
            self.assertIn(word, report(wrong).text())

    def test_stalls_and_p99_are_judged_where_bursts_stay_below_the_drives_rate_else_told(self):
        # Three quarters of the load come from NVMe, and twice as much in bursts.
        drive = {"device_bytes_per_second": 1.6e9}
        one = report(**drive)
        self.assertEqual(one.runs[0].offered_share_of_device, 0.625)
        self.assertEqual(one.runs[0].peak_share_of_device, 0.9375)
        self.assertIn("at most 94 % of the drive's rate", one.lines[0].what)
        self.assertEqual([line.verdict for line in one.lines], ["MISSED", "ok"])  # one stall
        slow = {"min": 110, "max": 127, "sum": 110, "buckets": [[125, 1]]}
        one = report(requests(stalls=0, chunk=slow), **drive)
        self.assertEqual([line.verdict for line in one.lines], ["ok", "ok"])
        slow = {"min": 500, "max": 510, "sum": 500, "buckets": [[253, 1]]}
        one = report(requests(stalls=0, chunk=slow), **drive)
        self.assertEqual([line.verdict for line in one.lines], ["ok", "MISSED"])
        self.assertFalse(one.all_ok())
        self.assertEqual(one.document()["table"][1]["target"], "at most 4")
        self.assertIn("MISSED", one.text())
        # Bursts are above that; unknown.
        for rate, word in ((1.4e9, "of the drive's rate"), (0, "not known")):
            one = report(device_bytes_per_second=rate)
            self.assertEqual([line.verdict for line in one.lines], ["told", "told"])
            self.assertEqual(one.lines[1].target, "")
            self.assertIn(word, one.lines[0].what)

    def test_of_sessions_a_closed_loop_nothing_is_promised(self):
        one = report(job={"closed_loop": True, "asked_chunks": 1}, device_bytes_per_second=1e9)
        self.assertEqual([line.verdict for line in one.lines], ["told", "told"])


if __name__ == "__main__":
    unittest.main()
