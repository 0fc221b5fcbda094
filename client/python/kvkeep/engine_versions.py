"""Tells an engine's version, and whether an adapter works with it.

If engine_facts.py does not know the version, adapters let the engine start, say so once, and keep
and find nothing, because nobody has read what its bytes and keys are. A version without a digit
("dev", of a source tree) is known if its classes are.
KVKEEP_UNCHECKED_ENGINE=refuse in the environment keeps such an engine from starting. =1 takes its
version: it shares with others only if their classes are the same, and lacks what the known versions
next to it lack.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import pathlib
import re
import sys
from typing import NamedTuple, Optional

from kvkeep.engine_facts import KNOWN, PLACES, Known
from kvkeep.engine_records import digest_of

UNCHECKED = "KVKEEP_UNCHECKED_ENGINE"  # of the environment

_logger = logging.getLogger(__name__)
_told = set()  # versions that tell_idle has logged
# The numbers, and what makes the version older than its final one.
_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)[-_.]?((?:a|b|c|rc|alpha|beta|pre|preview|dev)(?![a-z]))?")


class Version(NamedTuple):
    """text: as the engine reports it. known: its entry in engine_facts.py; if None, `why` says what
    is known instead."""

    text: str
    known: Optional[Known]
    why: str = ""


def engine_version(package):
    """Returns the version that the package itself reports, else the installed one, else
    "unknown"."""
    said = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(said, str):
        return said
    try:
        return importlib.metadata.version(package) or "unknown"
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def version_of(package):
    """Returns a Version. The first call reads the engine's source, for half a second at most."""
    return _judged(package, engine_version(package))


@functools.lru_cache(maxsize=64)
def _judged(package, text):
    near = [known for known in KNOWN[package]
            if not _has_digit(text) or (text + ".").startswith(known.range + ".")]
    if near:
        digest = looks_as(package)
        found = [known for known in near if known.digest == digest]
        if found:
            same = [known for known in found if known.recorded == text]
            return Version(text, (same or found)[0])
        why = (f"its classes are not those of "
               f"{', '.join(known.recorded for known in near)}, which kvkeep knows")
    else:
        why = f"kvkeep knows {', '.join(known.recorded for known in KNOWN[package])}"
    return Version(text, None, why)


def _has_digit(text):
    """Returns whether it is a version's name, and not one word for all of them."""
    return any(map(str.isdigit, text))


def looks_as(package):
    """Returns the digest of the engine's classes, or None if they cannot be read."""
    try:
        return digest_of(package, _folder_of(package))
    except (OSError, SyntaxError, ValueError, ImportError, IndexError) as mistake:
        _logger.warning("kvkeep: the classes of %s cannot be read: %s", package, mistake)
        return None


def _folder_of(package):
    """Returns the package's folder. Imports nothing that is not imported already."""
    module = sys.modules.get(package)
    places = getattr(module, "__path__", None)
    if places is None:
        places = getattr(importlib.util.find_spec(package), "submodule_search_locations", None)
    if places is None:
        raise ImportError(f"{package} has no folder")
    return pathlib.Path(list(places)[0])


# ---- for adapters


def is_taken(package):
    """Returns whether adapters work with this version. If not, they keep and find nothing, and call
    `tell_idle` where the engine's log shows it once. Raises ValueError if the operator wants
    unknown versions refused, or taken where nothing tells which one it is."""
    version, asked = version_of(package), os.environ.get(UNCHECKED, "")
    if asked not in ("", "1", "refuse"):
        raise ValueError(f'{UNCHECKED}: "refuse" or "1", not {asked!r}')
    if version.known is not None:
        return True
    if asked == "refuse":
        raise ValueError(f"kvkeep: {package} {version.text} is not known: {version.why}. Use a "
                         f"kvkeep for it, or unset {UNCHECKED} to let it run without kvkeep")
    if asked == "1" and not _has_digit(version.text):
        raise ValueError(
            f"kvkeep: {package} {version.text} cannot be taken, as {version.text!r} is not a "
            f"version and {version.why}: nothing tells it from other versions. Install a released "
            f"version, or unset {UNCHECKED} to let it run without kvkeep")
    return asked == "1"


def tell_idle(package, logger):
    """Logs, once in this process, that this engine's adapter keeps and finds nothing. Returns the
    version's text."""
    version = version_of(package)
    if (package, version.text) in _told:
        return version.text
    _told.add((package, version.text))
    logger.warning(
        "kvkeep: %s %s IS NOT KNOWN: %s. NOTHING IS KEPT OR FOUND, the engine runs as without "
        "kvkeep. Use a kvkeep for this version. %s=refuse refuses the start in place of this",
        package, version.text, version.why, UNCHECKED)
    return version.text


@contextlib.contextmanager
def needs(package):
    """Around imports of what an adapter needs of the engine even where it keeps and finds nothing.
    Raises an ImportError that names the engine's version and what is missing."""
    try:
        yield
    except ImportError as why:
        raise _cannot_be_idle(package, why) from why


def can_be_idle(package):
    """Decorates an adapter's class. Raises ImportError if the engine's base class asks for methods
    that this one has not."""
    def checked(kind):
        missing = sorted(getattr(kind, "__abstractmethods__", ()))
        if missing:
            raise _cannot_be_idle(package, f"{kind.__name__} has no {', '.join(missing)}, and its "
                                           "base class asks for it")
        return kind

    return checked


def _cannot_be_idle(package, why):
    is_taken(package)  # raises if the operator wants it refused
    return ImportError(
        f"kvkeep: {package} {version_of(package).text} is without something that even an adapter "
        f"that keeps nothing needs: {why}. Start the engine without kvkeep, or use a kvkeep for "
        "this version")


def check_engine(package, logger):
    """Returns the version as an Identity has it, for an adapter that works with it. Raises
    ValueError for a version that none works with."""
    version = version_of(package)
    if not is_taken(package):
        raise ValueError(f"kvkeep: {package} {version.text} is not known: {version.why}")
    if version.known is None:
        logger.warning("kvkeep: %s %s is not known, and is taken as it is (%s=1): %s", package,
                       version.text, UNCHECKED, version.why)
    elif _has_digit(version.text):
        return version.text
    digest = looks_as(package)  # as other versions may have this name
    if digest is None:
        raise ValueError(f"kvkeep: {package} {version.text} is not known, and its classes cannot "
                         "be read: nothing tells it from others of this name")
    return f"{version.text}, classes {digest}"


def take_unchecked(why, logger):
    """Logs that something was not checked. Raises ValueError unless the environment accepts
    that."""
    if os.environ.get(UNCHECKED) != "1":
        raise ValueError(f"{why}. Use a kvkeep for it, or set {UNCHECKED}=1 to take it as it is")
    logger.warning("%s; %s=1", why, UNCHECKED)


def field(package, owner, kind, name):
    """Returns owner.name, a field of this class, or the value that stands for it if the engine's
    version has no such field. Raises AttributeError if the field is missing for no known reason."""
    known = version_of(package).known
    if known is not None and f"{kind}.{name}" in known.absent:
        return getattr(owner, name, known.absent[f"{kind}.{name}"])
    return getattr(owner, name)


def lacks(package, part):
    """Returns whether that part of kvkeep cannot run with this version. An unknown one lacks what
    any newer version lacks, and the newest of the older ones."""
    version = version_of(package)
    if version.known is not None:
        return part in version.known.without
    for known in KNOWN[package]:
        if part in known.without:
            return True
        if _number(known.recorded) <= _number(version.text):
            break
    return False


def _number(text):
    """Returns a version's number, to compare with others. A text without one is the oldest."""
    found = _RELEASE.match(text)
    if found is None:
        return (), False
    numbers = [int(part) for part in found[1].split(".")]
    while numbers and numbers[-1] == 0:  # 0.33 is 0.33.0
        numbers.pop()
    return tuple(numbers), not found[2]


def imported(package, name):
    """Returns a thing of the engine's that is in one of several places. Raises ImportError if none
    has it."""
    places = PLACES[package][name]
    for place in places:
        if place is None:
            return None
        try:
            return getattr(importlib.import_module(place), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ImportError(f"{package} {engine_version(package)} has no {name} in {', '.join(places)}")
