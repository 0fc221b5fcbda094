"""Adds tools/fleet_lab and what it uses to the path."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / folder) for folder in ("tools/fleet_lab", "tools/measure", "client/python")]
