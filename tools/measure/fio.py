"""How fast the drive of a directory is without kvkeep, in the same minutes: fio with io_uring,
O_DIRECT, registered buffers and depth 16, on files of its own. Its buffers are ordinary memory.
"""

import json
import pathlib
import shutil

from figures import MIB
from processes import run

FILE = "fio.data"
LAST_WORDS = 500
PATIENCE_S, LEAST_BYTES_PER_S = 120, 10e6  # beyond what it is asked to take


class FioAbsent(Exception):
    """There is no fio."""


class FioFailed(OSError):
    """There is one, and it gave no result."""


class Fio:
    """It runs in the directory, so that it is told no path: some characters have a meaning of their
    own to it. It is one process, which dies with ours."""

    def __init__(self, directory, data_bytes, seconds):
        """Writes its file once, whole, as the daemon does; reads and writes of it take `seconds`.
        FioAbsent; this and the others: FioFailed."""
        if shutil.which("fio") is None:
            raise FioAbsent("there is no fio")
        self._directory = directory
        self._patience_s = PATIENCE_S + seconds + data_bytes / LEAST_BYTES_PER_S
        file = [f"--filename={FILE}", f"--size={data_bytes}"]
        self._timed = [*file, "--time_based", f"--runtime={round(seconds * 1000)}ms"]
        try:
            self._run("write", MIB, file)
        except BaseException:
            self.close()
            raise

    def close(self):
        """Its file goes."""
        (pathlib.Path(self._directory) / FILE).unlink(missing_ok=True)

    def read(self, block_bytes=MIB):
        """GB/s, as the others."""
        return self._run("read", block_bytes, self._timed)

    def overwrite(self, block_bytes):
        return self._run("write", block_bytes, self._timed)

    def fill(self, block_bytes, data_bytes):
        """Writes into a file that was never written to, and which is gone then."""
        return self._run("write", block_bytes, ["--fallocate=native", "--unlink=1",
                                                "--filename=fio.fresh", f"--size={data_bytes}"])

    def _run(self, direction, block_bytes, what):
        said, code = run(
            ["fio", "--name=kvkeep", "--thread", f"--bs={block_bytes}", f"--rw={direction}",
             "--direct=1", "--ioengine=io_uring", "--fixedbufs=1", "--iodepth=16",
             "--output-format=json", *what], self._patience_s, self._directory)
        try:
            found = json.loads(said[said.index("{"):said.rindex("}") + 1])  # notes stand around it
            bytes_per_s = found["jobs"][0][direction]["bw_bytes"]
        except (ValueError, LookupError, TypeError) as error:
            raise FioFailed(f"fio gave no result: {said[-LAST_WORDS:]}") from error
        if bytes_per_s <= 0:
            raise FioFailed("fio moved nothing. Can this directory do O_DIRECT, and the kernel "
                            "io_uring?")
        if code != 0:
            raise FioFailed(f"fio ended with {code}: {said[:LAST_WORDS]}")
        return bytes_per_s / 1e9
