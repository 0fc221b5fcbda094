"""vLLM's OpenAI server on a CPU, in a process of its own. Run by served.py only."""

import runpy
import sys

import vllm_on_cpu  # noqa: F401  # pylint: disable=unused-import
from measured_engine import hide_llvmlite

if __name__ == "__main__":
    if "LMCacheMPConnector" in " ".join(sys.argv):
        hide_llvmlite()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
