"""Makes reads of G3 fail while a test asks for it: failing_reads.c, preloaded into a daemon, and
the page of shared memory that controls it. Needs gcc or another cc. The daemon reads with threads,
as io_uring has no function that could be replaced.
"""

import mmap
import pathlib
import shutil
import struct
import subprocess

_FIELDS = {name: at * 4 for at, name in enumerate(("fail", "skip", "delay_us", "failed", "reads"))}


class FailingReads:
    """settings: what a daemon's environment must have. folder: for the library and the page."""

    def __init__(self, folder):
        folder, source = pathlib.Path(folder), pathlib.Path(__file__).with_suffix(".c")
        library, page = folder / "failing_reads.so", folder / "failing_reads.page"
        compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"],
                       check=True)
        page.write_bytes(bytes(4096))
        with open(page, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)
        self.settings = {"LD_PRELOAD": str(library), "KVKEEP_FAILING_READS": str(page),
                         "KVKEEP_G3_IO": "threads"}

    def fail(self, count, after=0):
        """Fails this many reads after `after` good ones; 0: stops failing."""
        self._set("fail", 0)
        self._set("skip", after)
        self._set("fail", count)

    def slow(self, seconds):
        """Delays each read by this time."""
        self._set("delay_us", round(seconds * 1e6))

    @property
    def failed(self):
        return self._get("failed")

    @property
    def reads(self):
        return self._get("reads")

    def _set(self, name, value):
        struct.pack_into("=I", self._page, _FIELDS[name], value)

    def _get(self, name):
        return struct.unpack_from("=I", self._page, _FIELDS[name])[0]
