#!/usr/bin/env python3
"""deploy/prometheus, deploy/grafana and RUNBOOK.md against a real daemon and a real Prometheus.

    prometheus_check.py --root SOURCES --bin FOLDER_OF_BINARIES      exit 1 when anything is wrong

Skipped with a message if Prometheus or PyYAML is not installed.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
import xml.etree.ElementTree

import scraper

SOURCES = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCES / "deploy" / "grafana"), str(SOURCES / "tests" / "client" / "c")]
import picture  # noqa: E402
from daemon import free_port  # noqa: E402

ROOT = BIN = None

DAEMON = """
listen: {{unix: {0}/kv.sock, local: {0}/local.sock, admin: {0}/admin.sock}}
g2: {{capacity: 64MiB, segment_bytes: 16MiB}}
g3: {{paths: [{{dir: {0}/nvme0, capacity: 256MiB}}]}}
metrics: {{listen: "127.0.0.1:{1}", token_file: {0}/metrics-tokens}}
state: {{dir: {0}/state}}
g4: {{url: "file://{0}/g4", write_bytes_per_second: 64MiB, admission: all}}
fleet: {{name: checks, key_file: {0}/fleet-key}}
"""
SCRAPERS_OWN = {"up"}


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)


def of_others():
    """Metrics of requests to a bucket and of peers, which are absent here: G4 is a directory, and
    there are no peers."""
    observe = ROOT / "server" / "observe"
    text = (observe / "g4_requests.cc").read_text() + (observe / "peer_counters.cc").read_text()
    return {"kvkeep_" + name for name in re.findall(r'"((?:g4|peer)_\w+)"', text)}


def make_g4(folder):
    """Makes the G4 that DAEMON configures: a directory, and the fleet's key."""
    (folder / "g4").mkdir()
    (folder / "g4" / ".kvkeep").write_text("checks\n", encoding="utf-8")
    key = folder / "fleet-key"
    key.touch(mode=0o600)
    key.write_text("0123456789abcdef" * 4)


def fetch(url):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {scraper.TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.read().decode()


def eventually(what, condition, patience=60):
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in time: {what}")
        time.sleep(0.1)  # for another process


def rules():
    return ROOT / "deploy" / "prometheus" / "kvkeep-alerts.yaml"


def dashboard():
    return json.loads((ROOT / "deploy" / "grafana" / "kvkeep.json").read_text())


def expressions():
    """Yields every panel's title and query, with Grafana's variables filled in."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], picture.expand(target["expr"], rate_interval_seconds=5)


def names(expression):
    """Returns the names of the series in a query, without text in quotes."""
    return set(re.findall(r"\b(?:kvkeep[_:][a-z0-9_:]*|process_[a-z_]+|up)\b",
                          re.sub(r'"[^"]*"', "", expression)))


def series_names(text):
    """Returns the series of a scrape that a query may name: for a histogram, its parts."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {name + part for part in parts}
    return found


class Files(unittest.TestCase):
    def setUp(self):
        if shutil.which("promtool") is None:
            self.skipTest("no promtool here")

    def test_the_rules_are_good_and_fire_when_they_should(self):
        folder = rules().parent
        for words in (["check", "rules", rules().name],
                      ["test", "rules", "kvkeep-alerts.test.yaml"]):
            done = run("promtool", *words, cwd=folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_alert_is_tested_and_has_its_section_in_the_runbook(self):
        alerts = re.findall(r"^ +- alert: (\w+)$", rules().read_text(), re.MULTILINE)
        self.assertGreater(len(alerts), 10)
        self.assertEqual(len(alerts), len(set(alerts)), "an alert stands twice")
        tests = (rules().parent / "kvkeep-alerts.test.yaml").read_text()
        runbook = (ROOT / "deploy" / "RUNBOOK.md").read_text()
        sections = re.findall(r"^## (\w+)$", runbook, re.MULTILINE)
        self.assertEqual(alerts, sections)
        for alert in alerts:
            self.assertIn(f'alertname="{alert}"', tests)
            self.assertIn(f"RUNBOOK.md#{alert.lower()}\n", rules().read_text())

    def test_the_kept_picture_is_of_this_dashboard(self):
        kept = xml.etree.ElementTree.parse(ROOT / "deploy" / "grafana" / "kvkeep.svg")
        titles = [text.text for text in kept.iter("{http://www.w3.org/2000/svg}text")
                  if text.get("class") in ("row", "title")]
        self.assertEqual(titles, [panel["title"] for panel in dashboard()["panels"]])


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for tool in ("prometheus", "promtool"):
            if shutil.which(tool) is None:
                raise unittest.SkipTest(f"no {tool} here")
        cls.holder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.holder.name)
        cls.processes = []
        cls.addClassCleanup(cls.tear_down)
        port = free_port()
        (folder / "kv.yaml").write_text(DAEMON.format(folder, port))
        scraper.write_tokens(folder)
        make_g4(folder)
        cls.metrics_url = f"http://127.0.0.1:{port}/metrics"
        endpoint = f"unix://{folder}/kv.sock"
        cls.start(folder / "daemon.log", BIN / "kvkeepd", "--config", folder / "kv.yaml")
        # The gRPC socket is the last to be opened.
        ping = [BIN / "kvkeep", "--endpoint", endpoint, "--path", "grpc", "ping"]
        eventually("the daemon serves", lambda: run(*ping).returncode == 0)
        cls.first_scrape = fetch(cls.metrics_url)
        cls.prometheus = scraper.Prometheus(folder, rules(), port, free_port())
        cls.processes.append(cls.prometheus.process)
        cls.use(folder, endpoint)
        eventually("Prometheus has scraped often enough for rates",
                   lambda: (cls.prometheus.value("count_over_time(up[10s])") or 0) >= 8)

    @classmethod
    def start(cls, log, *command):
        with open(log, "w", encoding="utf-8") as out:
            cls.processes.append(subprocess.Popen([str(word) for word in command], stdout=out,
                                                  stderr=out))

    @classmethod
    def tear_down(cls):
        for process in cls.processes:
            process.send_signal(signal.SIGTERM)
        for process in cls.processes:
            process.wait(60)
        cls.holder.cleanup()

    @staticmethod
    def use(folder, endpoint):
        payload = folder / "payload"
        payload.write_bytes(os.urandom(200_000))
        for path in ("grpc", "local"):
            for words in (["put", path, payload], ["lookup", path, "absent"],
                          ["get", path, "--output", folder / "back"]):
                done = run(BIN / "kvkeep", "--endpoint", endpoint, "--path", path, *words)
                assert done.returncode == 0, (words, done.stdout, done.stderr)

    def test_the_format_and_the_names_are_what_promtool_wants(self):
        done = run("promtool", "check", "metrics", input=fetch(self.metrics_url))
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_every_series_is_there_from_the_first_scrape(self):
        def series(text):
            return {line.rsplit(" ", 1)[0] for line in text.splitlines()
                    if line[:1] not in ("#", "")}
        # A namespace gets its own when it is opened; the sum is there from the start.
        of_namespaces = "kvkeep_tokens_saved_total{"
        first, now = series(self.first_scrape), series(fetch(self.metrics_url))
        self.assertEqual({one for one in now - first if not one.startswith(of_namespaces)}, set())
        self.assertTrue(any(one.startswith(of_namespaces) for one in first))
        self.assertTrue(any(one.startswith(of_namespaces) for one in now - first))

    def value(self, series):
        line = re.search(rf"^{re.escape(series)} (\S+)$", fetch(self.metrics_url), re.MULTILINE)
        self.assertIsNotNone(line, series)
        return float(line.group(1))

    def test_what_was_done_is_in_the_histograms(self):
        for listener in ("grpc", "local"):
            for operation in ("lookup", "put", "get"):
                name = "kvkeep_request_duration_seconds"
                labels = f'{{listener="{listener}",operation="{operation}"}}'
                with self.subTest(listener=listener, operation=operation):
                    self.assertGreaterEqual(self.value(f"{name}_count{labels}"), 1)
                    self.assertGreater(self.value(f"{name}_sum{labels}"), 0)
        path = re.search(r'path="([^"]+)"', self.first_scrape).group(1)
        labels = f'{{path="{path}",operation="write"}}'
        eventually("the chunks are written back", lambda: self.value(
            f"kvkeep_device_operation_duration_seconds_count{labels}") >= 2)
        eventually("and committed",
                   lambda: self.value("kvkeep_write_back_age_seconds_count") == 2)
        self.assertGreater(self.value("kvkeep_store_lock_hold_duration_seconds_count"), 10)
        self.assertGreater(self.value("kvkeep_store_lock_wait_duration_seconds_count"), 10)
        self.assertEqual(self.value('kvkeep_served_bytes_total{tier="g2"}'), 2 * 200_000)

    def test_what_was_put_is_in_g4(self):
        eventually("the chunks are written there",
                   lambda: self.value("kvkeep_g4_written_chunks_total") == 2)
        eventually("it is asked whether it serves",
                   lambda: self.value("kvkeep_g4_checks_total") == 1)
        self.assertEqual(self.value('kvkeep_g4_state{state="well"}'), 1)

    def test_the_start_line_says_what_a_report_needs(self):
        log = (pathlib.Path(self.holder.name) / "daemon.log").read_text()
        line = re.search(r"^.* msg=serving .*$", log, re.MULTILINE).group(0)
        shown = re.search(r" config_hash=([0-9a-f]{16}) ", line).group(1)
        self.assertEqual(self.value(f'kvkeep_config_hash_info{{hash="{shown}"}}'), 1)
        for field in ("version", "g2_bytes", "g3_bytes", "recovered_chunks", "recovery_ms",
                      "arena", "io", "memlock_bytes"):
            self.assertRegex(line, rf' {field}=("[^"]+"|\S+)')
        self.assertIn(f'kernel="Linux {os.uname().release}"', line)

    def test_the_process_is_told_of_as_the_kernel_does(self):
        self.assertGreater(self.value("process_cpu_seconds_total"), 0)
        self.assertGreater(self.value("process_resident_memory_bytes"), 1 << 20)
        self.assertGreater(self.value("process_open_fds"), 10)
        self.assertLess(abs(time.time() - self.value("process_start_time_seconds")), 600)

    def test_it_is_up_and_all_rules_are_well(self):
        # A scrape has half a second, which a busy machine may take.
        eventually("it is up", lambda: self.prometheus.value('up{job="kvkeep"}') == 1)
        self.assertGreater(len(self.prometheus.rules()), 10)
        eventually("all rules were evaluated", lambda: all(
            rule["health"] == "ok" for rule in self.prometheus.rules()))
        self.assertEqual(self.prometheus.vector('ALERTS{alertstate="firing"}'), [])

    def test_what_alerts_and_panels_ask_for_is_there(self):
        scraped = series_names(fetch(self.metrics_url))
        recorded = set(re.findall(r"record: (\S+)", rules().read_text()))
        exprs = re.findall(r"expr: *(?:\|\n)?((?:.|\n)*?)\n +(?:for|labels):", rules().read_text())
        self.assertGreater(len(exprs), 10)
        asked = [("an alert", expr) for expr in exprs] + list(expressions())
        for where, expr in asked:
            with self.subTest(where=where, expr=expr):
                self.assertNotEqual(names(expr), set())
                self.assertEqual(names(expr) - scraped - recorded - SCRAPERS_OWN - of_others(),
                                 set())

    def test_every_panel_shows_something(self):
        for title, expr in expressions():
            with self.subTest(panel=title, expr=expr):
                eventually(expr, lambda asked=expr: self.prometheus.vector(asked) != [], 20)
        panels = dashboard()["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        for panel in panels:
            if panel["type"] != "row":
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], panel["title"])

    def test_the_picture_shows_every_panel(self):
        """Makes the dashboard from this Prometheus, as `pictures.py` does for the README."""
        recorded = picture.record(dashboard(), self.prometheus.url, 10, rate_interval_seconds=5)
        drawn = xml.etree.ElementTree.fromstring(picture.draw(recorded))
        svg = "{http://www.w3.org/2000/svg}"
        plots = drawn.findall(f"{svg}g")
        panels = [panel for panel in recorded["panels"] if panel["type"] != "row"]
        self.assertEqual(len(plots), len(panels))
        for panel, plot in zip(panels, plots):
            with self.subTest(panel=panel["title"]):
                shown = f"{svg}text" if panel["type"] == "stat" else f"{svg}polyline"
                self.assertNotEqual(panel["series"], [])
                filled = [one for one in panel["series"] if picture.known(one["values"])]
                self.assertGreaterEqual(len(plot.findall(shown)), len(filled))
        # Events that did not happen in so short a time have no quantile.
        self.assertGreater(len(drawn.findall(f".//{svg}polyline")), len(panels))


def main():
    global ROOT, BIN
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    ROOT, BIN = arguments.root.resolve(), arguments.bin.resolve()
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
