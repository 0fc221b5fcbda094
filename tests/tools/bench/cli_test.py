#!/usr/bin/env python3
"""The whole of kvkeep-bench against the real daemon: cli_test.py BUILD. Everything works and is
counted; speeds are not checked."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[3] / "tools/bench/kvkeep-bench"
BUILD = None
PATIENCE_S = 300
# Keys that scripts rely on.
REQUEST_KEYS = set("name rates seconds users workers depth get_chunks seed quick model gpu "
                   "kv_bytes_per_token prefill_tokens_per_second tokens_per_chunk rounds "
                   "system_prompt_tokens history_tokens".split())
PATTERN_KEYS = set("kind users workers requests_per_second seconds seed".split())
OF_KIND_KEYS = {"pm1753": set("document_chunks written_share burst_every_seconds burst_share "
                              "burst_rate burst_requests_at_once".split()),
                "sessions": set("rounds tokens_per_chunk system_prompt_tokens history_tokens "
                                "question_tokens answer_tokens".split())}
MEASURED_KEYS = set("seconds client_cpu_seconds requests asked_chunks found_chunks stored_chunks "
                    "refused_chunks recalled_bytes stored_bytes prefixes prefixes_from_nvme "
                    "faster_prefixes stalls failed_calls verified_bytes wrong_bytes".split())
LATENCY_KEYS = set("chunk_wait_us chunk_us prefix_us store_us began_late_us".split())
QUANTILE_KEYS = set("count min p50 p99 p999 max mean".split())


def run(*arguments):
    """Returns (exit code, standard output, standard error)."""
    ran = subprocess.run([BENCH, "--client", BUILD / "bin/kvkeep-bench-client",
                          *map(str, arguments)], capture_output=True, text=True,
                         timeout=PATIENCE_S, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def daemon():
    return "--daemon", BUILD / "bin/kvkeepd"


class CliTest(unittest.TestCase):
    def run_well(self, *arguments):
        """Returns its output, parsed as JSON."""
        code, out, err = run(*arguments, "--json")
        self.assertEqual(code, 0, out + err)
        return json.loads(out)

    def run_with_daemon(self, *arguments):
        return self.run_well(*arguments, *daemon(), "--g2", "192MiB", "--rounds", 1, "--region",
                             "8MiB", "--seconds", "0.02")

    def test_wrong_usage_is_refused_with_a_word_on_what_is_wrong(self):
        for wrong, word in (([], "one of a verb"), (["get", "--size", "257MiB"], "257MiB"),
                            (["get", "--size", "many"], "many"),
                            (["get", "--path", "carrier-pigeon"], "carrier-pigeon"),
                            (["get", "--mix", "0,0,0"], "weights"),
                            (["table", "--section", "nonsense"], "nonsense"),
                            (["table"], "--daemon"), (["cpu"], "--daemon"),
                            (["pieces", "--batch", "2"], "must be 1"),
                            (["get", "--arena-dir", "/x"], "both or none"),
                            (["get"], "say --clear"), (["--pattern", "pm1753"], "say --clear"),
                            (["--path", "pinned"], "say --clear"),
                            (["--json", "get"], "put --json last"),
                            (["get", "--g2", "inf"], "inf"), (["get", "--size", "1e3"], "1e3"),
                            (["get", "--pattern", "pm1753"], "one of a verb and --pattern"),
                            (["--pattern", "sessions", "--clear", "--model", "gpt-0"],
                             "llama-3.1-8b"),
                            (["--pattern", "pm9999"], "pm9999"),
                            (["--pattern", "pm1753", "--rate", "0"], "rate")):
            code, _, err = run(*wrong)
            self.assertEqual(code, 2, wrong)
            self.assertIn(word, err)
        self.assertEqual(run("--help")[0], 0)

    def test_without_a_daemon_the_load_fails_and_says_so_the_baselines_do_not_need_one(self):
        code, _, err = run("get", "--clear", "--endpoint",
                           "unix:///nonexistent/kvkeep.sock")
        self.assertEqual(code, 1)
        self.assertIn("kvkeep-bench: client 0: ", err)
        alone = self.run_well("baseline", "--rounds", 2, "--seconds", "0.01", "--size",
                              "64KiB,4MiB", "--region", "4MiB", "--batch", "512")
        # Ping-pong messages have both sizes.
        self.assertEqual([(one["name"], one["rounds"]) for one in alone["baselines"]],
                         [("memcpy 4.0 MiB, 1 thread", 2), ("memcpy 4.0 MiB, 2 threads", 2),
                          ("memcpy 64.0 KiB, 1 thread", 2), ("memcpy 64.0 KiB, 2 threads", 2),
                          ("ping-pong, get of 512 keys", 4)])
        regions = {one["name"]: one["about"].get("region_bytes") for one in alone["baselines"]}
        self.assertEqual(regions["memcpy 4.0 MiB, 1 thread"], 8 << 20)
        self.assertEqual(alone["cases"], [])
        self.assertGreaterEqual(alone["machine"]["cpus"], 1)

    def test_clients_and_daemons_that_are_none_fail_with_a_word(self):
        for wrong, word in ((["--client", "/bin/true"], "is gone"),
                            (["--client", "/bin/echo"], "gave no answer"),
                            (["--daemon", "/bin/true"], "did not start")):
            with tempfile.TemporaryDirectory() as scratch:
                code, _, err = run("get", "--clear", "--scratch", scratch, *wrong)
                self.assertEqual(code, 1, err)
                self.assertIn(word, err)
                self.assertNotIn("Traceback", err)
                self.assertEqual(list(pathlib.Path(scratch).iterdir()), [])

    def test_json_with_a_path_is_written_there_and_the_text_comes_as_ever(self):
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch) / "out.json"
            baseline = ["baseline", "--rounds", 1, "--seconds", "0.01", "--size", "64KiB",
                        "--region", "4MiB"]
            code, out, err = run(*baseline, "--json", file)
            self.assertEqual(code, 0, err)
            self.assertIn("ping-pong", out)
            self.assertTrue(json.loads(file.read_text())["sound"])
            code, _, err = run(*baseline, "--json", f"{scratch}/missing/out.json")
            self.assertEqual(code, 1)
            self.assertIn("cannot write", err)

    def test_each_verb_does_its_calls_verified_and_counts_the_daemons_cpu_time_and_lock(self):
        for verb in ("get", "put", "lookup", "mixed"):
            found = self.run_with_daemon(verb, "--size", "256KiB,512KiB", "--batch", 2, "--depth",
                                         2, "--clients", 2, "--keys", 16)
            self.assertEqual(len(found["cases"]), 2)
            for one in found["cases"]:
                total = one["total"]
                self.assertGreater(total["ops"], 0)
                self.assertEqual(total["chunks"], 2 * total["ops"])
                self.assertEqual((total["failed_ops"], total["wrong_bytes"]), (0, 0))
                self.assertEqual(total["verified_bytes"] > 0, verb != "lookup")
                self.assertGreater(total["client_cpu_seconds"], 0)
                self.assertGreater(one["daemon"]["cpu_seconds"], 0)
                self.assertGreater(one["daemon"]["lock_acquisitions"], 0)
                self.assertEqual(one["about"]["clients"], 2)

    def test_lookups_of_a_filled_table_find_every_key(self):
        found = self.run_with_daemon("lookup", "--table-chunks", 3000, "--batch", 512)
        self.assertEqual(found["cases"][0]["total"]["failed_ops"], 0)

    def test_gets_of_chunks_that_are_not_there_make_the_run_fail(self):
        # More chunks than fit: the first ones were evicted.
        code, out, _ = run("get", "--size", "1MiB", "--keys", 400, *daemon(), "--g2", "192MiB",
                           "--json", "--rounds", 1, "--region", "8MiB", "--seconds", "0.02")
        self.assertEqual(code, 1)
        self.assertGreater(json.loads(out)["cases"][0]["total"]["failed_ops"], 0)

    def test_a_quick_table_has_every_line_of_the_promise_measured_or_with_a_reason_why_not(self):
        found = self.run_well("table", "--quick", *daemon())
        self.assertTrue(found["sound"])
        self.assertGreaterEqual(len(found["table"]), 20)
        whats = "\n".join(line["what"] for line in found["table"])
        for what in ("gRPC: p50", "prefault", "in G2 while write-back", "two simulated drives",
                     "resident beside the arena", "wake-ups"):
            self.assertIn(what, whats)
        for line in found["table"]:
            self.assertTrue(line["figure"])
            self.assertNotEqual(line["verdict"], "not measured", line)
            self.assertIsInstance(line["numbers"]["figure"], (int, float))

    def test_what_a_gigabyte_costs_is_told_of_every_path_promotion_and_write_back_among_them(self):
        costs = self.run_with_daemon("cpu")["cpu_costs"]
        self.assertEqual([cost["path"] for cost in costs],
                         ["local get", "local put", "unix get", "unix put", "tcp get", "tcp put",
                          "promotion", "write-back"])
        for cost in costs:
            self.assertGreater(cost["gigabytes"], 0)
            self.assertGreaterEqual(cost["daemon_seconds_per_gb"], 0)

    def test_a_pattern_of_load_reads_from_nvme_checks_every_byte_and_stores_what_was_asked_for(
            self):
        for pattern in ("pm1753", "sessions"):
            for path in ("local", "grpc"):
                with (self.subTest(pattern=pattern, path=path),
                      tempfile.TemporaryDirectory(dir="/var/tmp") as scratch):
                    self.check_pattern(pattern, self.run_well(
                        "--pattern", pattern, "--path", path, "--quick", "--rate", "60,90",
                        "--scratch", scratch, *daemon()))
                    self.assertEqual(list(pathlib.Path(scratch).iterdir()), [])

    def check_pattern(self, pattern, found):
        self.assertTrue(found["sound"])
        self.assertEqual((len(found["runs"]), len(found["table"])), (2, 4))
        self.assertEqual(set(found["request"]), REQUEST_KEYS)
        self.assertEqual(set(found["model"]), {"kv_bytes_per_token", "prefill_tokens_per_second"})
        for run_found in found["runs"]:
            loaded = run_found["loaded"]
            self.assertEqual(set(run_found["pattern"]), PATTERN_KEYS | OF_KIND_KEYS[pattern])
            for part in (run_found["alone"], loaded):
                self.assertEqual(set(part) - {"first_failure"}, MEASURED_KEYS | LATENCY_KEYS)
                for latency in LATENCY_KEYS:
                    self.assertEqual(set(part[latency]), QUANTILE_KEYS)
            self.assertGreater(loaded["requests"], 0)
            self.assertGreater(loaded["prefixes"], 0)
            self.assertEqual(loaded["verified_bytes"], loaded["recalled_bytes"])
            self.assertEqual(loaded["recalled_bytes"],
                             loaded["found_chunks"] * run_found["chunk_bytes"])
            self.assertGreater(loaded["stored_chunks"], 0)
            self.assertEqual(loaded["refused_chunks"], 0)
            self.assertGreater(run_found["alone"]["prefixes"], 0)
            self.assertGreater(run_found["daemon_cpu_seconds"], 0)
            self.assertEqual(run_found["device_bytes_per_second"] > 0,
                             found["device_why_not"] == "")
            if pattern == "pm1753":
                self.assertEqual(run_found["found_share"], 1)
                self.assertAlmostEqual(run_found["stored_share"], 0.08, delta=0.01)
                self.assertGreater(run_found["from_nvme_share"], 0)
                self.assertGreater(run_found["device_runs_per_prefix"], 0)
                self.assertEqual(found["wants"], "")


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).absolute()
    unittest.main()
