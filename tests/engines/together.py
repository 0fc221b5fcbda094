"""Several test files in one process, which imports their engine once.

    together.py --root SOURCES --build build/release vllm_direct_test vllm_shards_test ...
"""

import sys
import unittest

import engine_process

if __name__ == "__main__":
    files = engine_process.arguments(__doc__, engine=False).tests
    unittest.main(module=None, argv=[sys.argv[0], "-v", *files])
