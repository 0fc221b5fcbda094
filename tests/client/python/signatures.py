#!/usr/bin/env python3
"""Signatures of the engines' classes that call our adapters, recorded beside this.

    signatures.py check [PACKAGES]    recorded/ against the packages in that folder; this Python's
                                      own unless given. Absent packages are skipped
    signatures.py record PACKAGES     writes recorded/ anew, of the packages that are there

kvkeep.engine_records says what a record is, and which there are. Tests run them in the place of
modules of an engine that is not installed. `check` and `record` also print the digest that
kvkeep/engine_facts.py has for the version.
"""

import pathlib
import sys
import sysconfig
import types

sys.path.append(str(pathlib.Path(__file__).parents[3] / "client" / "python"))
from kvkeep import engine_versions  # noqa: E402
from kvkeep.engine_facts import KNOWN  # noqa: E402
from kvkeep.engine_records import WANTED, digest_of, sources, stub  # noqa: E402

RECORDED = pathlib.Path(__file__).parent / "recorded"


def load(module):
    """Runs a record and puts it, with its parents, in the place of the module."""
    at = module.split(".")
    for length in range(1, len(at) + 1):
        name = ".".join(at[:length])
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = []  # or there is no import below it
            if length > 1:
                setattr(sys.modules[".".join(at[:length - 1])], at[length - 1], sys.modules[name])
    path = RECORDED / f"{module}.pyi"
    if path.exists():
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"),  # pylint: disable=exec-used
             vars(sys.modules[module]))
    return sys.modules[module]


def installed(package, version):
    """Makes the package look installed in this version, with the recorded classes."""
    load(package).__version__ = version
    read = engine_versions.looks_as
    engine_versions.looks_as = (
        lambda asked: KNOWN[package][0].digest if asked == package else read(asked))


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("check", "record"):
        sys.exit(__doc__)
    packages = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else sysconfig.get_path("purelib"))
    bad = []
    for package in sorted({module.split(".", maxsplit=1)[0] for module in WANTED}):
        if not (packages / package).is_dir():
            continue
        for module, source in sources(package, packages / package):
            path = RECORDED / f"{module}.pyi"
            text = "" if source is None else stub(source, WANTED[module])
            if sys.argv[1] == "record":
                path.write_text(text, encoding="utf-8")
            elif path.read_text(encoding="utf-8") != text:
                bad.append(module)
            print(f"{module}: {'differs from its record' if module in bad else 'as recorded'}")
        digest = digest_of(package, packages / package)
        known = [one.recorded for one in KNOWN[package] if one.digest == digest]
        bad += [] if known or sys.argv[1] == "record" else [package]
        print(f"{package}: {digest}, {', '.join(known) or 'not known'}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
