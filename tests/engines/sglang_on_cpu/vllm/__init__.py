"""Not vLLM: see the README beside this folder."""
