"""The console scripts kvkeepd and kvkeep: they become the programs of those names in the wheel.

The process stays the same one, so signals, descriptors, the exit status and the PID are the
program's. A unit of systemd names the program itself, kvkeep/bin/kvkeepd.
"""

import os
import pathlib
import sys
from typing import NoReturn


def _become(name: str) -> NoReturn:
    program = str(pathlib.Path(__file__).with_name("bin") / name)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program}: {error.strerror}: this package has no programs; install a "
                 "wheel of tools/wheel")


def kvkeepd() -> NoReturn:
    _become("kvkeepd")


def kvkeep() -> NoReturn:
    _become("kvkeep")
