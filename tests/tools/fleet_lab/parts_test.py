#!/usr/bin/env python3
"""Parts of the lab, without processes: sessions of a trace, faults, payloads, reports."""

import io
import json
import sys
import time
import types
import unittest
import xml.etree.ElementTree

import path

import faults
import load
import picture
import report
import rounds
from counters import COUNTED, Sampled
from payload import Payloads

NODES = ("a", "b", "c")


def line(at_ms, *blocks, partial=True):
    return json.dumps({"timestamp": at_ms, "input_length": 512 * len(blocks) + (100 * partial),
                       "output_length": 1, "hash_ids": [*blocks, *([10**6 + at_ms] * partial)]})


def read(*lines):
    return rounds.read(io.StringIO("\n".join(lines)))


class RoundsTest(unittest.TestCase):
    def test_a_request_that_begins_as_an_earlier_one_is_its_next_round(self):
        requests = read(line(0, 1, 2), line(5, 1, 3), line(9, 1, 2, 4), line(12, 1, 2, 4, 5))
        self.assertEqual([(one.session, one.round) for one in requests],
                         [(0, 0), (1, 0), (0, 1), (0, 2)])
        self.assertEqual(requests[2].blocks, [1, 2, 4])

    def test_a_common_first_block_makes_no_session(self):
        self.assertEqual([one.session for one in read(line(0, 1), line(1, 1), line(2, 1, 2))],
                         [0, 1, 2])

    def test_names_the_line_that_is_wrong(self):
        with self.assertRaisesRegex(ValueError, "line 2"):
            read(line(0, 1), "{}")

    def test_samples_whole_sessions(self):
        requests = read(*(line(10 * n + at, n, *range(1000 * n, 1000 * n + at + 1))
                          for at in range(3) for n in range(1, 41)))
        some = rounds.sample(requests, 30)
        self.assertEqual(len(some), 30)
        self.assertEqual(len({one.session for one in some}), 10)

    def test_splits_moves_and_pauses(self):
        requests = read(*(line(100 * at + n, n, *range(1000 * n, 1000 * n + at + 1))
                          for at in range(5) for n in range(1, 61)))
        how = rounds.Split(NODES, seconds=50, move=0.5, pause=0.5, pause_s=7)
        rounds.split(requests, how)
        self.assertEqual({one.node for one in requests}, set(NODES))
        later = [one for one in requests if one.previous >= 0]
        self.assertEqual(len(later), 240)
        for one in later:
            before = requests[one.previous]
            self.assertEqual((before.session, before.round), (one.session, one.round - 1))
            self.assertEqual(one.moved, one.node != before.node)
        self.assertTrue(80 < sum(one.moved for one in later) < 160)
        self.assertTrue(any(one.at_s > 57 for one in later))
        still = rounds.split(read(line(0, 1, 2), line(1000, 1, 2, 3)),
                             rounds.Split(NODES, seconds=50, move=0, pause=0))
        self.assertEqual([(one.node, one.at_s) for one in still], [("a", 0), ("a", 50)])

    def test_the_best_cache_hits_leading_blocks_of_all_earlier_requests(self):
        self.assertEqual(rounds.best_hits(read(line(0, 1, 2), line(1, 1, 2, 3), line(2, 9, 1))), 2)

    def test_the_traces_of_the_repository_have_sessions(self):
        with open(path.ROOT / "tests/traces/conversation_trace.jsonl", encoding="utf-8") as file:
            requests = rounds.read(file)
        self.assertEqual(len(requests), 12031 - self._without_blocks())
        self.assertGreater(sum(one.round > 0 for one in requests), 3000)

    @staticmethod
    def _without_blocks():
        with open(path.ROOT / "tests/traces/conversation_trace.jsonl", encoding="utf-8") as file:
            return sum(json.loads(one)["input_length"] < 512 for one in file)


class FaultsTest(unittest.TestCase):
    def test_parses_times_ends_and_settings(self):
        parsed = faults.parse("50% kill b # now\n\n3 slow a g4 delay=20ms rate=4MiB loss=0.1\n"
                              "1 partition a", NODES, 60)
        self.assertEqual([(one.at_s, str(one)) for one in parsed], [
            (1, "partition a"), (3, "slow a g4 delay=20ms rate=4MiB loss=0.1"), (30, "kill b")])
        self.assertEqual(faults.link_settings(parsed[1].settings),
                         {"delay_s": 0.02, "bytes_per_s": 4 << 20, "loss": 0.1})

    def test_the_demo_is_one(self):
        self.assertGreater(len(faults.parse(faults.DEMO, NODES, 100)), 10)

    def test_names_the_line_that_is_wrong(self):
        for wrong in ("x kill a", "1", "1 burn a", "1 kill", "1 kill g4", "1 kill d", "1 slow a",
                      "1 slow a delay=3s", "1 slow a loss=2", "1 kill a rate=1MiB", "-1 kill a",
                      "1 half-open a", "1 partition a a", "1 heal a b c"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "line 2"):
                faults.parse("1 heal\n" + wrong, NODES, 60)


class PayloadTest(unittest.TestCase):
    def test_each_byte_is_compared(self):
        payloads = Payloads(5000)
        key, other = payloads.key_of(1), payloads.key_of(2)
        good = bytearray(b"".join(payloads.to_put(key)))
        self.assertEqual(len(good), 5000)
        self.assertEqual(payloads.wrong_bytes(key, good), 0)
        self.assertGreater(payloads.wrong_bytes(other, good), 4900)
        good[3000] ^= 1
        self.assertEqual(payloads.wrong_bytes(key, good), 1)
        self.assertEqual(payloads.wrong_bytes(key, good[:-1]), 2)

    def test_mutates_a_share(self):
        payloads = Payloads(5000, mutate=0.25)
        keys = [payloads.key_of(n) for n in range(400)]
        wrong = [payloads.wrong_bytes(key, bytearray(b"".join(payloads.to_put(key))))
                 for key in keys]
        self.assertEqual(set(wrong), {0, 1})
        self.assertTrue(60 < sum(wrong) < 140)


class Namespace:
    """A daemon that has the payloads of `has`, and takes `takes_s` for each call."""

    def __init__(self, payloads, takes_s=0.0, has=(), damaged=()):
        self._payloads, self._takes_s = payloads, takes_s
        self._has, self._damaged, self.put_keys = has, damaged, []

    def lookup(self, keys, **_):
        time.sleep(self._takes_s)  # this daemon is slow
        presence = bytes(load.kvkeep.Found.IN_G3 if key in self._has else 0 for key in keys)
        leading = next((at for at, one in enumerate(presence) if not one), len(keys))
        return types.SimpleNamespace(lease=io.BytesIO(), leased_keys=leading, presence=presence,
                                     error=None)

    def get(self, keys, buffers, **_):
        for key, buffer in zip(keys, buffers):
            buffer[:] = b"".join(self._payloads.to_put(key))
            buffer[-1] ^= key in self._damaged
        return types.SimpleNamespace(good=[True] * len(keys),
                                     payload_bytes=[len(one) for one in buffers])

    def put(self, chunks, **_):
        self.put_keys += [chunk.key for chunk in chunks]
        return types.SimpleNamespace(stored=len(chunks), error=None)


class WorkerTest(unittest.TestCase):
    def play(self, slack_s=60, **more):
        payloads = Payloads(5000)
        self.keys = [payloads.key_of(n) for n in range(4)]
        self.namespace = Namespace(payloads, **{
            name: value if name == "takes_s" else [self.keys[n] for n in value]
            for name, value in more.items()})
        worker = load.Worker("a", self.namespace, payloads, {
            "timeout_s": 0.01, "slack_s": slack_s, "wait_s": 0, "recompute_s": 0,
            "chunk_bytes": 5000})
        return worker.play(range(4))

    def test_gets_what_is_there_and_puts_the_rest(self):
        said = self.play(has=(0, 1, 3))
        self.assertEqual((said["g3"], said["recomputed"], said["late"]), (2, 2, 0))
        self.assertEqual((said["got"], said["wrong_chunks"]), (2, 0))
        self.assertEqual(self.namespace.put_keys, self.keys[2:])

    def test_finds_wrong_bytes(self):
        said = self.play(has=(0, 1), damaged=(1,))
        self.assertEqual((said["wrong_chunks"], said["wrong_bytes"]), (1, 1))

    def test_counts_calls_that_end_after_their_deadline_and_the_slack(self):
        self.assertEqual(self.play(slack_s=0.01, takes_s=0.05)["late"], 1)


class QueueTest(unittest.TestCase):
    def test_a_round_waits_for_the_one_before_it(self):
        queue = load.Queue([{"node": "a", "at_s": 0, "previous": -1, "blocks": [1]},
                            {"node": "b", "at_s": 0, "previous": 0, "blocks": [1, 2]}], 0.2)
        self.assertEqual(queue.take("a"), 0)
        self.assertIsNone(queue.take("b"))  # the time is over
        queue = load.Queue([{"node": "a", "at_s": 0, "previous": -1, "blocks": [1]},
                            {"node": "b", "at_s": 0.05, "previous": 0, "blocks": [1, 2]}], 20)
        queue.done(queue.take("a"))
        self.assertEqual(queue.take("b"), 1)
        self.assertGreaterEqual(queue.now(), 0.05)
        queue.done(1)
        self.assertIsNone(queue.take("a"))


def played(request, ended_s, **more):
    one = {**dict.fromkeys(report.OF_CLIENT, 0), "request": request, "began_s": ended_s - 0.2,
           "ended_s": ended_s, "lookup_s": 0.1, "get_s": 0.1, "put_s": 0, "errors": [], **more}
    one["hits"] = one["g2"] + one["g3"] + one["beyond"]
    one["asked"] = one["hits"] + one["recomputed"]
    return one


def document(*requests, **answer):
    sampled = {node: Sampled() for node in NODES}
    sampled["a"].add(1, {})
    sampled["a"].add(2, {"peer_reads_total": 9, 'peer_unserved_reads_total{reason="busy"}': 1,
                         'peer_unserved_reads_total{reason="absent"}': 2,
                         "g4_source_reads_total": 2})
    sampled["a"].add(9.5, {"peer_reads_total": 9,
                           'peer_unserved_reads_total{reason="busy"}': 3,
                           "g4_source_reads_total": 5})
    asked = [rounds.Request(0, n, [], 0, node="abc"[n % 3], moved=n > 2)
             for n in range(len(requests))]
    settings = {"seconds": 10, "prefill_tokens_per_second": 512, "chunk_bytes": 1 << 18, "bins": 10,
                "trace": "t", "network": "loopback", "g4": "none", "best_hits": 99}
    return report.document(settings, asked, {"played": list(requests), "seconds": 9, "hung": 0,
                                             "failures": [], "not_played": 0, **answer},
                           sampled, {("a", "b"): 5, ("b", "a"): 7}, [(3.0, "kill b")])


class ReportTest(unittest.TestCase):
    def test_a_restarted_daemon_counts_from_zero(self):
        counts = Sampled()
        for at_s, reads in ((1, 7), (2, 10), (7, 15)):
            counts.add(at_s, {"peer_reads_total": reads})
        counts.restarted()
        counts.add(18, {"peer_reads_total": 4})
        self.assertEqual([one["peer_reads_total"] for one in counts.in_bins(20, 4)], [10, 5, 0, 4])
        self.assertEqual(counts.around(1.5, 3)["peer_reads_total"], 8)
        self.assertEqual(counts.totals()["peer_reads_total"], 19)
        self.assertEqual(set(counts.totals()), set(COUNTED))

    def test_counts_add_up_and_are_divided_as_the_daemon_counts(self):
        said = document(played(0, 1.5, g2=1, beyond=8, recomputed=2),
                        played(1, 2, g3=3, recomputed=1), played(2, 3), played(3, 9, beyond=4))
        self.assertEqual(said["nodes"]["a"]["sources"],
                         {"g2": 1, "g3": 0, "peer": 6, "g4": 6, "recomputed": 2})
        self.assertEqual(said["sources"], {"g2": 1, "g3": 3, "peer": 6, "g4": 6, "recomputed": 3})
        self.assertEqual(said["asked"], 19)
        self.assertEqual(said["moved_rounds"]["beyond"], 4)
        self.assertEqual(report.problems(said), [])

    def test_ttft_saved_is_the_tokens_time_less_the_waits(self):
        said = document(played(0, 1, g2=3), played(1, 1, recomputed=2))
        self.assertEqual(said["ttft"]["computed_s"], 3)
        self.assertAlmostEqual(said["ttft"]["saved_s"], 3 - 0.4)
        self.assertAlmostEqual(said["ttft"]["saved_s_of_a_hit_median"], 2.8)

    def test_says_what_must_not_be(self):
        for bad in (document(played(0, 1, wrong_bytes=1, wrong_chunks=1)),
                    document(played(0, 1, late=1)), document(hung=1),
                    document(failures=["the daemon of node a ended"])):
            self.assertEqual(len(report.problems(bad)), 1)
            self.assertIn("FAILED: " + report.problems(bad)[0], report.text(bad))
            self.assertIn(report.problems(bad)[0], report.markdown(bad, "x.svg"))
        odd = document(played(0, 1, g2=1))
        odd["sources"]["g2"] = 2
        self.assertRegex(report.problems(odd)[0], "sources")

    def test_the_picture_is_xml_and_names_faults(self):
        said = document(played(0, 1.5, g2=1, beyond=8, recomputed=2))
        drawn = picture.draw(said)
        xml.etree.ElementTree.fromstring(drawn)
        self.assertIn(">kill b<title>", drawn)
        self.assertIn("peer: 6 chunks", drawn)
        xml.etree.ElementTree.fromstring(picture.draw(document()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
