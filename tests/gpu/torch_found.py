"""A Python with torch for tests: $KVKEEP_TORCH_PYTHON, or an environment of tests/engines/venv, for
which this waits while it is being made, or the Python that runs this."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gpu_check_torch  # noqa: E402

INSTALL_LIMIT_S = 240  # while another test makes an environment
NONE = "no Python with torch: name one with KVKEEP_TORCH_PYTHON, or run tests/engines/venv " \
       "transformers"


def _made(engine):
    """Returns the Python of an engine's environment, or None."""
    asked = subprocess.run(
        ["timeout", str(INSTALL_LIMIT_S), ROOT / "tests" / "engines" / "venv", "--made", engine],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else None


def torch_python():
    """Returns its path, or None."""
    said = os.environ.get("KVKEEP_TORCH_PYTHON")
    if said:
        return said  # and if it has none, that is a failure
    found = (python for source in (lambda: _made("transformers"), lambda: sys.executable,
                                   lambda: _made("vllm")) if (python := source()) is not None)
    return next((python for python in found
                 if gpu_check_torch.why_not(python, dry_run=True) is None), None)
