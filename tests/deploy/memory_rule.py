"""The most memory of a daemon with a config: deploy/README.md's rule ("Size")."""

import re
import subprocess

import yaml

BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
COUNTS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
TABLES, LEARNED = 300, 500  # bytes for each of limits.max_chunks; more, where a policy is not lru
REST = 1 << 30


def quantity(text, units):
    number, unit = re.fullmatch(r"([\d.]+)(\w*)", str(text)).groups()
    return float(number) * units[unit]


def share(text):
    return float(str(text).removesuffix("%")) / 100


def needed(binaries, text):
    """Returns bytes for the configuration `text`, with the daemon's own defaults for absent
    keys."""
    default = subprocess.run([str(binaries / "kvkeepd"), "--print-default-config"],
                             capture_output=True, text=True, check=True).stdout
    said, otherwise = yaml.safe_load(text), yaml.safe_load(default)
    g2 = quantity({**otherwise["g2"], **said.get("g2", {})}["capacity"], BYTES)
    limits = {**otherwise["limits"], **said.get("limits", {})}
    policies = [{**otherwise[tier], **said.get(tier, {})}["policy"] for tier in ("g2", "g3")]
    tables = TABLES + (0 if set(policies) == {"lru"} else LEARNED)
    return int(g2 * (1 + 0.002 + share(limits["staging"]))
               + quantity(limits["receive_memory"], BYTES)
               + 2 * quantity(limits["call_memory"], BYTES)
               + quantity(limits["local_memory"], BYTES)
               + quantity(limits["max_chunks"], COUNTS) * tables + REST)
