#!/usr/bin/env python3
"""Makes the pictures of the READMEs anew, by hand: the dashboard and `kvkeep top`, at work.

    apt-get install python3-rich
    tests/deploy/pictures.py --bin build/release/bin [--seconds 480]

Runs a daemon with small tiers, engines' sessions by the local path beside a replayed trace by gRPC,
and a Prometheus that scrapes both. Then writes deploy/grafana/kvkeep.svg and tools/kvkeep/top.svg.
Needs 13 GB of disk below --scratch and a quiet machine.
"""

import argparse
import io
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import fcntl

import rich.console
import rich.text

import prometheus_check
import scraper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "deploy" / "grafana")]
import picture  # noqa: E402

LOAD = "80 users of multi-round sessions by the local path, a recorded trace by gRPC"
DAEMON = """
listen: {{unix: {0}/kv.sock, local: {0}/local.sock, admin: {0}/admin.sock}}
g2: {{capacity: 1GiB}}
g3: {{paths: [{{dir: {0}/nvme0, capacity: 4GiB}}, {{dir: {0}/nvme1, capacity: 4GiB}}]}}
metrics: {{listen: "127.0.0.1:{1}"}}
state: {{dir: {0}/state}}
limits: {{staging: "100%"}}
g4: {{url: "file://{0}/g4", write_bytes_per_second: 8MiB, admission: all}}
fleet: {{name: checks, key_file: {0}/fleet-key}}
"""
COLUMNS, ROWS = 132, 24


class Load(threading.Thread):
    """Runs one command again and again, until stop()."""

    def __init__(self, *command):
        super().__init__()
        self.command, self.process, self.stopping = [str(word) for word in command], None, False
        self.start()

    def run(self):
        while not self.stopping:
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.PIPE, text=True)
            said = self.process.stderr.read()
            if self.process.wait() != 0 and not self.stopping:
                print(self.command, said[-2000:], file=sys.stderr)
                return

    def stop(self):
        self.stopping = True
        self.process.kill()
        self.join()


def on_terminal(*command):
    """Returns a program's output on a terminal of ROWS by COLUMNS."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvp(str(command[0]), [str(word) for word in command])
    out = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the program ended
            break
        out += read
    os.waitpid(pid, 0)
    return out.decode()


def terminal_picture(text, title):
    """Returns the last screen as SVG."""
    screen = re.sub(r"\x1b\[[KJ]", "", text.rsplit("\x1b[H", 1)[-1]).replace("\r", "").rstrip()
    console = rich.console.Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(rich.text.Text.from_ansi(screen), soft_wrap=True)
    return console.export_svg(title=title)


def take(folder, binaries, seconds):
    port, endpoint = prometheus_check.free_port(), f"unix://{folder}/kv.sock"
    (folder / "kv.yaml").write_text(DAEMON.format(folder, port))
    prometheus_check.make_g4(folder)
    with open(folder / "daemon.log", "w", encoding="utf-8") as log:
        daemon = subprocess.Popen([binaries / "kvkeepd", "--config", folder / "kv.yaml"],
                                  stdout=log, stderr=log)
    prometheus = scraper.Prometheus(
        folder, ROOT / "deploy" / "prometheus" / "kvkeep-alerts.yaml", port,
        prometheus_check.free_port())
    ends = [prometheus.process, daemon]
    loads = []
    try:
        prometheus_check.eventually("the daemon serves", lambda: subprocess.run(
            [binaries / "kvkeep", "--endpoint", endpoint, "ping"], check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0)
        sockets = ["--endpoint", endpoint, "--admin", f"unix://{folder}/admin.sock"]
        loads = [
            Load(ROOT / "tools/bench/kvkeep-bench", "--client", binaries / "kvkeep-bench-client",
                 *sockets, "--local-socket", folder / "local.sock",
                 "--path", "local", "--clear", "--pattern", "sessions", "--rate", "3",
                 "--history", "2000",
                 "--kv-bytes-per-token", "4096", "--seconds", str(seconds)),
            Load(binaries / "kvkeep", "--endpoint", endpoint, "--path", "grpc", "replay",
                 "--chunk-bytes", "1MiB", ROOT / "tests" / "traces" / "conversation_trace.jsonl"),
        ]
        time.sleep(seconds)  # this is the time in the picture
        recorded = picture.record(prometheus_check.dashboard(), prometheus.url, seconds,
                                  rate_interval_seconds=10)
        screen = on_terminal(binaries / "kvkeep", *sockets, "top", "--count", "2")
        return {**recorded, "load": LOAD}, screen
    finally:
        for load in loads:
            load.stop()
        for process in ends:
            process.terminate()
        for process in ends:
            process.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=480)
    parser.add_argument("--scratch", default="/var/tmp", help="where the tiers lie meanwhile")
    asked = parser.parse_args()
    prometheus_check.ROOT = ROOT
    with tempfile.TemporaryDirectory(dir=asked.scratch) as folder:
        recorded, screen = take(pathlib.Path(folder), asked.bin.resolve(), asked.seconds)
        screen = screen.replace(folder, "/mnt")
        recorded = json.loads(json.dumps(recorded).replace(folder, "/mnt"))
    grafana = ROOT / "deploy" / "grafana"
    (grafana / "kvkeep.svg").write_text(picture.draw(recorded))
    (ROOT / "tools" / "kvkeep" / "top.svg").write_text(terminal_picture(screen, "kvkeep top"))


if __name__ == "__main__":
    main()
