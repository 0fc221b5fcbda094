#!/usr/bin/env python3
"""From nothing to the first hit: `kvkeep up`, put, get, `kvkeep down`, as a user does it.

Usage: up_test.py DIRECTORY-OF-BINARIES
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve()
CONFIG = """
listen:
  unix: "{0}/kvkeep/kvkeep.sock"
  local: "{0}/kvkeep/local.sock"
  admin: "{0}/kvkeep/admin.sock"
g2: {{capacity: 64MiB, segment_bytes: 64MiB}}
g3: {{paths: []}}
metrics: {{listen: ""}}
state: {{dir: "{0}/kvkeep"}}
"""


class UpTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="kvkeep up ")
        self.addCleanup(directory.cleanup)
        self.home = pathlib.Path(directory.name)
        self.environment = {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home),
                            "PATH": os.environ["PATH"],
                            "KVKEEP_ENDPOINT": f"unix://{self.home}/kvkeep/kvkeep.sock",
                            "KVKEEP_ADMIN": f"unix://{self.home}/kvkeep/admin.sock"}
        self.config = self.home / "kvkeep.yaml"
        self.addCleanup(lambda: self.kvkeep("down"))

    def kvkeep(self, *words):
        return subprocess.run([BIN / "kvkeep", "--json", *words], env=self.environment, text=True,
                              capture_output=True, timeout=120)

    def up(self, *words):
        done = self.kvkeep("up", "--log", str(self.home / "log"), *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_up_serves_and_down_stops(self):
        self.config.write_text(CONFIG.format(self.home))
        self.assertTrue(self.up("--config", str(self.config))["started"])
        (self.home / "bytes").write_bytes(b"kept")
        self.assertEqual(self.kvkeep("put", "a", str(self.home / "bytes")).returncode, 0)
        got = self.kvkeep("get", "a", "-o", str(self.home / "back"))
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual((self.home / "back").read_bytes(), b"kept")
        # A second start does nothing, and names the serving process.
        again = self.up("--config", str(self.config))
        self.assertFalse(again["started"])
        self.assertEqual(again["pid"], json.loads(self.kvkeep("status").stdout)["pid"])
        self.assertEqual(self.kvkeep("down").returncode, 0)
        self.assertEqual(self.kvkeep("ping").returncode, 4)
        self.assertEqual(self.kvkeep("down").returncode, 4)

    def test_of_two_at_once_one_starts_it(self):
        self.config.write_text(CONFIG.format(self.home))
        words = ["up", "--config", self.config, "--log", self.home / "log"]
        both = [subprocess.Popen([BIN / "kvkeep", "--json", *words], env=self.environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for _ in range(2)]
        said = [process.communicate(timeout=120) for process in both]
        started = [process.returncode == 0 and json.loads(out)["started"]
                   for process, (out, _) in zip(both, said)]
        self.assertEqual(started.count(True), 1, said)
        self.assertEqual(self.kvkeep("ping").returncode, 0)

    def test_a_config_is_named_from_here_and_one_that_is_there_stays(self):
        written = subprocess.run([BIN / "kvkeep", "init", "--config", "own.yaml", "--print"],
                                 env=self.environment, cwd=self.home, capture_output=True)
        self.assertEqual(written.returncode, 0)
        (self.home / "own.yaml").write_text(CONFIG.format(self.home))
        done = subprocess.run([BIN / "kvkeep", "up", "--config", "own.yaml", "--log", "log"],
                              env=self.environment, cwd=self.home, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        # The sockets are where the environment says, so that `down` needs no more.
        self.assertIn("stop it: kvkeep down", done.stdout)
        refused = self.kvkeep("init", "--config", str(self.config.with_name("own.yaml")))
        self.assertEqual(refused.returncode, 1)
        self.assertIn("is there already", refused.stderr)

    def test_a_user_stops_a_daemon_beside_the_packages_directories(self):
        """The tool finds a user's admin socket where only that daemon listens."""
        del self.environment["KVKEEP_ADMIN"], self.environment["KVKEEP_ENDPOINT"]
        if pathlib.Path("/run/kvkeep/kvkeep.sock").exists():
            self.skipTest("the system's own daemon is on")
        self.config.write_text(CONFIG.format(self.home))
        self.assertTrue(self.up("--config", str(self.config))["started"])
        self.assertEqual(self.kvkeep("down").returncode, 0)

    def test_flags_of_engines_are_those_of_the_pages(self):
        for engine in ("vllm-0.33.0", "sglang-0.5.23", "lmcache-0.5.6"):
            (self.home / "venv/lib/python3.11/site-packages" / f"{engine}.dist-info").mkdir(
                parents=True)
        self.environment["VIRTUAL_ENV"] = str(self.home / "venv")
        self.config.write_text(CONFIG.format(self.home))
        hints = self.up("--config", str(self.config))["engines"]
        told = {hint.split()[0]: json.loads(re.search(r"'(\{.*\})'", hint)[1]) for hint in hints}
        root = pathlib.Path(__file__).parents[2]
        pages = "".join((root / name).read_text() for name in ("README.md", "client/README.md"))
        shown = [json.loads(text)
                 for text in re.findall(r"--[\w-]+ '(\{.*?\})'", pages, re.DOTALL)]
        told["lmcache"]["adapter_params"]["name"] = "X"
        self.assertEqual(len(told), 3)
        for engine, flags in told.items():
            self.assertIn(flags, shown, engine)

    def test_a_daemon_that_does_not_start_is_told_with_its_log(self):
        taken = self.home / "kvkeep"
        taken.mkdir(mode=0o700)
        (taken / "identity").mkdir()  # no file can be written there
        self.config.write_text(CONFIG.format(self.home))
        failed = self.kvkeep("up", "--config", str(self.config), "--log", str(self.home / "log"))
        self.assertEqual(failed.returncode, 4)
        self.assertIn("kvkeepd does not start", failed.stderr)
        self.assertIn("identity", failed.stderr)

    def test_in_the_foreground_it_becomes_the_daemon(self):
        self.config.write_text(CONFIG.format(self.home))
        daemon = subprocess.Popen(
            [BIN / "kvkeep", "up", "--foreground", "--config", str(self.config)],
            env=self.environment, stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.kill)
        self.assertEqual(self.kvkeep("wait").returncode, 0)
        self.assertEqual(json.loads(self.kvkeep("status").stdout)["pid"], daemon.pid)
        daemon.terminate()
        self.assertEqual(daemon.wait(timeout=60), 0)


if __name__ == "__main__":
    unittest.main()
