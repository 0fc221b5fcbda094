#!/usr/bin/env python3
"""Plays real traces through the real daemon and holds the figures to what was promised.

  agrees   one client, the whole conversation trace: the daemon's hit ratio is within 0.5 points of
           what `kvkeep simulate` says for the number of chunks that G3 held, and within 1.5 of
           what `kvkeep plan --live` says of that size
  policies lru, arc and reuse in both tiers, a part of that trace each: hits, hits from G2 and
           chunks written to G3 are about those of `kvkeep simulate`
  turnover mixed sizes up to 33 MiB, G3 full and turned over ten times, SIGKILL and restart in the
           middle, several clients: no wrong byte, no tier over its capacity, few extents a chunk

Usage: replay_check.py --bin DIR [--quick] {agrees|policies|turnover}. `--quick` is for slow
(sanitized) builds: less of everything, and no comparison of ratios.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TRACE = str(pathlib.Path(__file__).resolve().parents[1] / "traces" / "conversation_trace.jsonl")
MIB = 1 << 20
POLICY_REQUESTS = 1200  # of the trace, for each policy
# How far the daemon may be from simulate: points of hits, points of hits from G2, share of chunks
# written. Writes take time, and what is dirty cannot go: reuse, which gives up newcomers first,
# has to take others then.
TOLERANCES = {"lru": (0.8, 0.3, 0.02), "arc": (0.8, 0.3, 0.02), "reuse": (2.0, 1.0, 0.06)}


class Daemon:
    """One kvkeepd on a directory of its own; kill() and start() again keep what is on disk."""

    def __init__(self, binaries, directory, g2, g3, policy="lru", budget="25%"):
        self.policy = policy
        self.binaries = pathlib.Path(binaries)
        self.directory = pathlib.Path(directory)
        self.process = None
        self.config = self.directory / "kvkeepd.yaml"
        self.config.write_text(
            f"listen: {{unix: {directory}/kv.sock, admin: {directory}/admin.sock, "
            "local: ''}\n"
            f"g2: {{capacity: {g2}, policy: {policy}, dirty_budget: {budget}}}\n"
            f"g3: {{paths: [{{dir: {directory}/nvme, capacity: {g3}}}], policy: {policy}}}\n"
            f"state: {{dir: {directory}/state}}\n"
            "metrics: {listen: ''}\n")

    def start(self):
        log = open(self.directory / "kvkeepd.log", "ab")
        self.process = subprocess.Popen(
            [self.binaries / "kvkeepd", "--config", self.config], stderr=log, stdout=log)
        for _ in range(600):
            ping = subprocess.run(self.command("ping"), capture_output=True)
            if ping.returncode == 0:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit("kvkeepd does not serve:\n" + (self.directory / "kvkeepd.log").read_text())

    def await_session(self):
        """Until a client is there: a slow machine takes a while to start one."""
        for _ in range(600):
            if self.json("status")["sessions"]:
                return
            time.sleep(0.1)
        sys.exit("nobody came")

    def stop(self, sig):
        self.process.send_signal(sig)
        return self.process.wait(timeout=120)

    def command(self, *arguments):
        return [str(self.binaries / "kvkeep"), "--endpoint", f"unix://{self.directory}/kv.sock",
                "--admin", f"unix://{self.directory}/admin.sock", "--json", *arguments]

    def json(self, *arguments):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True)
        if not done.stdout:
            sys.exit(f"kvkeep {' '.join(arguments)}: {done.stderr}")
        return json.loads(done.stdout)


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}")


def agrees(daemon, quick):
    daemon.start()
    requests = ["--requests", "300"] if quick else []
    report = daemon.json("replay", TRACE, "--chunk-bytes", "16KiB", "--check-capacity", *requests)
    held = daemon.json("status")["g3"]["chunks"]
    print(json.dumps(report))
    expect(report["wrong_bytes"] == 0, "no wrong byte")
    expect(report["rejected"] == 0, "nothing was rejected")
    if not quick:
        simulated = daemon.json("simulate", TRACE, "--policy", "lru", "--chunks", str(held))
        ratio, model = 100 * report["hit_ratio"], 100 * simulated[0]["hit_ratio"]
        expect(17000 < held < 20000, f"G3 held about 18,279 chunks: {held}")
        expect(abs(ratio - model) <= 0.5,
               f"hit ratio {ratio:.2f} % within 0.5 of simulate's {model:.2f} % at {held} chunks")
        plan = daemon.json("plan", "--live", "--kv-bytes-per-token", "32", "--g2", "8MiB",
                           "--g3", str(held * 20 * 1024))  # a header and 16 KiB each
        predicted = 100 * plan["sizes"][0]["hit_ratio"]
        measured = 100 * plan["now"]["measured_hit_ratio"]
        expect(abs(predicted - measured) <= 1.5,
               f"plan --live says {predicted:.2f} % of that size, within 1.5 of {measured:.2f} %")
    expect(daemon.stop(signal.SIGTERM) == 0, "a clean stop")


def in_time_of(report, requests, path):
    """Writes the trace as the replay played it: policies know time, and it took far less of it."""
    asked, chunks = 0, sum(len(request["hash_ids"]) for request in requests)
    with open(path, "w", encoding="utf-8") as file:
        for request in requests:
            played = dict(request, timestamp=int(1000 * report["seconds"] * asked / chunks))
            asked += len(request["hash_ids"])
            file.write(json.dumps(played) + "\n")


def follows(daemon, quick):
    """One policy in both tiers, against simulate of as many chunks as they held."""
    requests = 150 if quick else POLICY_REQUESTS
    daemon.start()
    report = daemon.json("replay", TRACE, "--chunk-bytes", "16KiB", "--requests", str(requests))
    expect(report["wrong_bytes"] == 0 and report["rejected"] == 0, "no wrong byte, no rejection")
    status = daemon.json("status")
    if not quick:
        compare(daemon, report, status)
    expect(daemon.stop(signal.SIGTERM) == 0, "a clean stop")


def compare(daemon, report, status):
    policy = daemon.policy
    apart, apart_g2, apart_written = TOLERANCES[policy]
    written = status["counters"]["g3_evictions"] + status["g3"]["chunks"]
    cancelled = status["counters"]["write_backs_cancelled"]
    # They were not written, and may have been misses later: nothing is as simulate has it.
    if cancelled > apart_written / 2 * written:
        print(f"skipped: {policy} beside simulate, as the disk did not take {cancelled} of "
              f"{written + cancelled} chunks in time")
        return
    with open(TRACE, encoding="utf-8") as file:
        requests = [json.loads(line) for line in itertools.islice(file, POLICY_REQUESTS)]
    played = str(daemon.directory / "played.jsonl")
    in_time_of(report, requests, played)
    simulated = daemon.json("simulate", played, "--chunk-bytes", "16KiB",
                            "--policy", policy, "--chunks", str(status["g2"]["chunks"]),
                            "--g3-policy", policy, "--g3-chunks", str(status["g3"]["chunks"]))[0]
    asked = report["chunk_refs"]
    from_g2, model_g2 = 100 * report["g2_hits"] / asked, 100 * simulated["g2_hit_chunks"] / asked
    expect(abs(from_g2 - model_g2) <= apart_g2,
           f"{policy}: from G2 {from_g2:.2f} %, within {apart_g2} of simulate's {model_g2:.2f} %")
    ratio, model = 100 * report["hit_ratio"], 100 * simulated["hit_ratio"]
    model_written = simulated["g3_written_bytes"] // (16 << 10)
    expect(abs(ratio - model) <= apart and abs(written - model_written) <= apart_written * written,
           f"{policy}: hits {ratio:.2f} %, within {apart} of simulate's {model:.2f} %; chunks "
           f"written to G3 {written}, within {apart_written:.0%} of {model_written}")


def turnover(daemon, quick):
    daemon.start()
    g3_bytes = 1024 * MIB
    put_bytes, skip, kills = 0, 0, 0
    step = 2 if quick else 16
    while put_bytes < (1 if quick else 10) * g3_bytes:
        replay = subprocess.Popen(
            daemon.command("replay", TRACE, "--chunk-bytes", "64KiB,256KiB,2MiB,33MiB",
                           "--skip", str(skip), "--requests", str(step), "--concurrency", "2",
                           "--check-capacity", "--tolerate-restart"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if kills < 2:
            daemon.await_session()
            time.sleep(2)
            daemon.stop(signal.SIGKILL)
            daemon.start()
            kills += 1
        out, err = replay.communicate()
        expect(out, f"replay answers ({err.strip()})")
        report = json.loads(out)
        expect(report["wrong_bytes"] == 0 and report["capacity_violations"] == 0,
               f"requests {skip} to {skip + step}: no wrong byte, no tier over its capacity; "
               f"put {report['bytes_put'] / MIB:.0f} MiB, hits {report['leading_hit_chunks']}")
        put_bytes += report["bytes_put"]
        skip += step
    status = daemon.json("status")
    for tier in ("g2", "g3"):
        extents = status[tier]["mean_extents_per_chunk"]
        turned = put_bytes / g3_bytes
        expect(extents < 2,
               f"{tier}: {extents:.2f} extents a chunk after {turned:.1f} times G3's size in puts")
    expect(status["g2"]["leased_bytes"] == 0 and status["g2"]["reserved_bytes"] == 0,
           "all leases and reservations were given back")
    expect(daemon.stop(signal.SIGTERM) == 0, "a clean stop")


def run(options, scenario, *of_daemon):
    directory = tempfile.mkdtemp(prefix="kvkeep-replay-", dir=os.environ.get("TMPDIR", "/tmp"))
    daemon = Daemon(options.bin, directory, *of_daemon)
    try:
        scenario(daemon, options.quick)
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("scenario", choices=["agrees", "policies", "turnover"])
    options = parser.parse_args()
    if options.scenario == "policies":
        for policy in TOLERANCES:
            run(options, follows, "64MiB", "160MiB", policy, "90%")
    elif options.scenario == "agrees":
        run(options, agrees, "64MiB", "457MiB")
    else:
        run(options, turnover, "512MiB", "1GiB")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
