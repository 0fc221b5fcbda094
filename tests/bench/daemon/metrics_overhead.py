#!/usr/bin/env python3
"""CPU time that metrics and logging cost a get on the local path.

    metrics_overhead.py BIN_DIR [--pairs 30] [--seconds 2] [--most 1.03]

Two kvkeepd run on the same machine. One has the defaults (metrics served, logging from info on) and
is scraped once a second, fifteen times as often as usual. The other has no HTTP port and logs
errors only. kvkeep-bench gets chunks of 1 MiB from both, one a call, as nothing else shows so much
of a call's cost; the order changes with every pair. Prints the ratio of CPU time a call, daemon and
client together: the median over the pairs, and their middle half. Exit status 1: the median is
above --most.

The counters and histograms themselves have no switch, so both daemons pay for them.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "client" / "c"))
from daemon import Daemon, free_port  # noqa: E402  (found by the line above)

BENCH = ROOT / "tools" / "bench" / "kvkeep-bench"
SCRAPE_SECONDS = 1.0


@contextlib.contextmanager
def scraped(address, count):
    """Fetches /metrics again and again; `count` gets an item for each fetch."""
    done = threading.Event()

    def fetch():
        while True:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
                count.append(len(page.read()))
            if done.wait(SCRAPE_SECONDS):
                return

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def cpu_seconds_a_call(binaries, daemon, seconds):
    """Returns CPU seconds a call of daemon and client together, in one run of kvkeep-bench."""
    bench = subprocess.run(
        [BENCH, "get", "--clear", "--client", binaries / "kvkeep-bench-client", "--path", "local",
         "--endpoint", daemon.endpoint,
         "--admin", f"unix://{daemon.dir}/admin.sock",
         "--local-socket", f"{daemon.dir}/local.sock", "--daemon-pid", str(daemon.process.pid),
         "--size", "1MiB", "--keys", "64", "--seconds", str(seconds), "--rounds", "1",
         "--no-verify", "--json"], check=True, capture_output=True, text=True)
    case = json.loads(bench.stdout)["cases"][0]
    spent = case["daemon"]["cpu_seconds"] + case["total"]["client_cpu_seconds"]
    return spent / case["total"]["ops"]


def run_pairs(binaries, pairs, seconds):
    address = f"127.0.0.1:{free_port()}"
    scrapes, ratios = [], []
    quiet = {"KVKEEP_METRICS_LISTEN": "", "KVKEEP_LOG_LEVEL": "error"}
    telling = {"KVKEEP_METRICS_LISTEN": address, "KVKEEP_LOG_LEVEL": "info"}
    with Daemon(binaries / "kvkeepd", quiet) as without, \
            Daemon(binaries / "kvkeepd", telling) as with_metrics:

        def measure_telling():
            with scraped(address, scrapes):
                return cpu_seconds_a_call(binaries, with_metrics, seconds)

        def measure_quiet():
            return cpu_seconds_a_call(binaries, without, seconds)

        for pair in range(pairs):
            if pair % 2 == 0:
                base, told = measure_quiet(), measure_telling()
            else:
                told, base = measure_telling(), measure_quiet()
            ratios.append(told / base)
            print(f"pair {pair + 1:2d}: {base * 1e6:6.2f} us without, {told * 1e6:6.2f} with, "
                  f"ratio {ratios[-1]:.3f}", flush=True)
    return ratios, len(scrapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=2.0, help="of gets in a run")
    parser.add_argument("--most", type=float, default=1.03)
    asked = parser.parse_args()
    if asked.pairs < 2:
        parser.error("--pairs: at least 2")
    ratios, scrapes = run_pairs(asked.binaries, asked.pairs, asked.seconds)
    low, median, high = statistics.quantiles(ratios, n=4)
    print(f"CPU time of a local get with metrics and logging: {median:.3f} of that without "
          f"(middle half {low:.3f} to {high:.3f}, {asked.pairs} pairs, {scrapes} scrapes); "
          f"asked: at most {asked.most:.2f}")
    return 0 if median <= asked.most else 1


if __name__ == "__main__":
    sys.exit(main())
