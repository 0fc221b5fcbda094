"""How fast the drive of a directory is without kvkeep for bytes that lie in as much memory as a
cache has (kvkeep-bare-drive, tools/compare/contestants/bare_drive.cc). It is as fio is in all else.
"""

import pathlib

from daemon import built
from fio import FILE, LAST_WORDS, LEAST_BYTES_PER_S, PATIENCE_S
from processes import run

PROGRAM = "bin/kvkeep-bare-drive"


class BareDriveFailed(OSError):
    """It gave no result."""


class BareDrive:
    """It reads and overwrites the file that fio has in the directory, in `seconds` each."""

    def __init__(self, directory, data_bytes, seconds, memory_bytes):
        self._directory, self._data_bytes = pathlib.Path(directory), data_bytes
        self._seconds, self._memory_bytes = seconds, memory_bytes

    def read(self):
        """GB/s, as the others. All of them: BareDriveFailed."""
        return self._run("read", FILE, self._data_bytes)

    def overwrite(self):
        return self._run("overwrite", FILE, self._data_bytes)

    def fill(self, data_bytes):
        """Writes into a file that was never written to, and which is gone then."""
        return self._run("fill", "bare.fresh", data_bytes)

    def _run(self, way, name, data_bytes):
        patience_s = PATIENCE_S + self._seconds + data_bytes / LEAST_BYTES_PER_S
        said, code = run([built(PROGRAM), way, self._directory / name, str(data_bytes),
                          str(self._seconds), str(self._memory_bytes)], patience_s)
        if code != 0:
            raise BareDriveFailed(f"{PROGRAM} ended with {code}: {said[-LAST_WORDS:]}")
        return float(said) / 1e9
