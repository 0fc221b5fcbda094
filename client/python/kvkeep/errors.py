"""Errors as exceptions. A cache that is away is not an error but a miss.

Calls raise for mistakes (InvalidArgument, PermissionDenied, ...). If the daemon is away, slow or
full, a call returns a result with misses in it, whose `error` says why; `raise_for_error()` turns
that into an exception.
"""

import ctypes
from typing import Dict, Type


class KvkeepError(Exception):
    """`code` is the name of the C ABI's code, such as "UNAVAILABLE"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message


class InvalidArgument(KvkeepError, ValueError):
    """The message names the argument and the limit."""


class PermissionDenied(KvkeepError, PermissionError):
    """The daemon's configuration does not allow this client to do this."""


class FailedPrecondition(KvkeepError):
    """The lease is over, or only the local path has the call."""


class Unavailable(KvkeepError, ConnectionError):
    """The daemon is away, recovering or draining."""


class DeadlineExceeded(KvkeepError, TimeoutError):
    """The call's time was over before its answer."""


class ResourceExhausted(KvkeepError):
    """The message names the limit."""


_BY_CODE: Dict[str, Type[KvkeepError]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "PERMISSION_DENIED": PermissionDenied,
    "UNAUTHENTICATED": PermissionDenied,
    "FAILED_PRECONDITION": FailedPrecondition,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
}
# Codes that a program may meet without a mistake of its own.
_MISSES = frozenset(("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED",
                     "ABORTED", "DATA_LOSS"))


def make(code: str, message: str) -> KvkeepError:
    return _BY_CODE.get(code, KvkeepError)(code, message)


def of(library: ctypes.CDLL, error: ctypes.Structure) -> KvkeepError:
    """Returns the exception for an error of the C ABI."""
    return make(library.kvkeep_code_name(error.code).decode(),
                error.message.decode(errors="replace"))


def is_miss(error: KvkeepError) -> bool:
    return error.code in _MISSES
