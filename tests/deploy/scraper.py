"""A real Prometheus that scrapes one daemon twice a second, with kvkeep's alert rules."""

import hashlib
import json
import subprocess
import urllib.parse
import urllib.request

TOKEN = "token-of-the-checks-for-metrics"
CONFIG = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: kvkeep
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def write_tokens(folder):
    """Makes the file of metrics.token_file, for a daemon that is scraped with all labels."""
    file = folder / "metrics-tokens"
    file.touch(mode=0o600)
    file.write_text(hashlib.sha256(TOKEN.encode()).hexdigest() + "\n")


class Prometheus:
    """A Prometheus with its files in `folder`, listening on loopback. Ends with stop()."""

    def __init__(self, folder, rules, scraped_port=9464, port=9090):
        self.url = f"http://127.0.0.1:{port}"
        config = folder / "prometheus.yaml"
        config.write_text(CONFIG.format(rules=rules, port=scraped_port, token=TOKEN))
        with open(folder / "prometheus.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address=127.0.0.1:{port}", "--web.console.templates=",
                 "--web.console.libraries="], stdout=log, stderr=log)

    def get(self, path, **words):
        """Returns the API's answer, or None if it is not up yet."""
        query = urllib.parse.urlencode(words)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as reply:
                return json.load(reply)["data"]
        except OSError:
            return None

    def vector(self, query):
        answer = self.get("query", query=query)
        return answer["result"] if answer else []

    def value(self, query):
        """Returns the value of the first series, or None if there is none."""
        found = self.vector(query)
        return float(found[0]["value"][1]) if found else None

    def rules(self):
        answer = self.get("rules") or {"groups": []}
        return [rule for group in answer["groups"] for rule in group["rules"]]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
