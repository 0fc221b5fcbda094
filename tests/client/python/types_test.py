"""The types of the package kvkeep, by mypy --strict and by pyright, as its pyproject.toml says.

    types_test.py SOURCES

Both tools come from PyPI, pinned, into build/types-venv the first time. If they cannot be had, the
tests that need them are skipped; pyright also wants a node on this machine.
"""

import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

SOURCES = pathlib.Path(sys.argv[1]).resolve()
HERE = SOURCES / "tests" / "client" / "python"
PACKAGE = SOURCES / "client" / "python"
GOOD = [HERE / "types_good.py", PACKAGE / "examples" / "names.py"]
VENV = SOURCES / "build" / "types-venv"
PUBLIC = {"__init__", "_abi", "aio", "cache", "calls", "client", "completions", "errors", "gpu",
          "handle", "keys", "kv", "lease", "memory", "metadata", "pages", "parked", "plans",
          "registered", "run", "watch"}


def make_tools():
    """Makes the environment, or finds it made. Raises SkipTest if it cannot be had."""
    wanted, made_of = HERE / "types_requirements.txt", VENV / "made-of"
    VENV.parent.mkdir(exist_ok=True)
    with open(f"{VENV}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second waits
        if made_of.is_file() and made_of.read_text() == wanted.read_text():
            return
        for command in ([sys.executable, "-m", "venv", "--clear", VENV],
                        [VENV / "bin" / "pip", "install", "--quiet", "--retries", "1",
                         "--no-compile", "--requirement", wanted]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                said = (done.stderr.strip() or done.stdout.strip()).splitlines()
                raise unittest.SkipTest("mypy and pyright cannot be had (python3-venv, and PyPI): "
                                        + (said[-1] if said else ""))
        shutil.copy(wanted, made_of)


def settings():
    with open(PACKAGE / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["tool"]


def wrong_lines(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("  # wrong")}


class LeftOut(unittest.TestCase):
    def test_mypy_and_pyright_leave_out_the_same_modules_and_no_public_one(self):
        modules = set((PACKAGE / "kvkeep").glob("*.py"))
        by_mypy = {path.stem for path in modules
                   if any(re.search(one, str(path)) for one in settings()["mypy"]["exclude"])}
        by_pyright = {path.stem for one in settings()["pyright"]["exclude"]
                      for path in PACKAGE.glob(one)}
        self.assertEqual(by_mypy, by_pyright)
        self.assertEqual({path.stem for path in modules} - by_mypy, PUBLIC)


class Checked(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make_tools()
        cls.cache = cls.enterClassContext(tempfile.TemporaryDirectory())

    def run_tool(self, tool, *arguments):
        """Runs a tool in the package's folder, whose pyproject.toml it reads."""
        return subprocess.run(
            [VENV / "bin" / tool, *arguments], cwd=PACKAGE, capture_output=True, text=True,
            check=False, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1",
                                           "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})

    def mypy(self, *files):
        return self.run_tool("mypy", "--strict", "--cache-dir", self.cache, *files)

    def pyright(self, *files):
        """Returns its errors: (file, line from 1 on, message)."""
        if shutil.which("node") is None:
            self.skipTest("pyright wants node, which is not installed")
        done = self.run_tool("pyright", "--outputjson", *files)
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)
        said = json.loads(done.stdout)
        self.assertGreaterEqual(said["summary"]["filesAnalyzed"], len(files) or len(PUBLIC))
        return [(pathlib.Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"])
                for one in said["generalDiagnostics"] if one["severity"] == "error"]

    def test_the_public_modules_pass_mypy(self):
        done = self.mypy()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"no issues found in {len(PUBLIC)} source files", done.stdout)

    def test_the_public_modules_pass_pyright(self):
        self.assertEqual(self.pyright(), [])

    def test_a_typed_program_passes_mypy_and_its_mistakes_do_not(self):
        done = self.mypy(*GOOD)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        path = HERE / "types_mistakes.py"
        done = self.mypy(path)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        refused = re.findall(r"types_mistakes\.py:(\d+): error", done.stdout)
        self.assertEqual(set(map(int, refused)), wrong_lines(path), done.stdout)

    def test_a_typed_program_passes_pyright_and_its_mistakes_do_not(self):
        self.assertEqual(self.pyright(*GOOD), [])
        path = HERE / "types_mistakes.py"
        said = self.pyright(path)
        self.assertEqual({line for _, line, _ in said}, wrong_lines(path), said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
