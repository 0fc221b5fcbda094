"""What goes wrong, as exceptions. A cache that is away is none: that is a miss.

Calls raise for mistakes (InvalidArgument, PermissionDenied, ...). What happens to a healthy program
because the daemon is away, slow or full comes back as a result with misses in it, whose `error`
says why; `raise_for_error()` turns it into an exception for who wants one.
"""


class KvkeepError(Exception):
    """`code` is the name of the C ABI's code, such as "UNAVAILABLE"."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message


class InvalidArgument(KvkeepError, ValueError):
    """The message names the argument and the limit."""


class PermissionDenied(KvkeepError, PermissionError):
    """This client may not, by the daemon's configuration."""


class FailedPrecondition(KvkeepError):
    """A lease that is over, or a call that only the local path has."""


class Unavailable(KvkeepError, ConnectionError):
    """The daemon is away, recovering or draining."""


class DeadlineExceeded(KvkeepError, TimeoutError):
    """The call's time was over first."""


class ResourceExhausted(KvkeepError):
    """The message names the limit."""


_BY_CODE = {
    "INVALID_ARGUMENT": InvalidArgument,
    "PERMISSION_DENIED": PermissionDenied,
    "UNAUTHENTICATED": PermissionDenied,
    "FAILED_PRECONDITION": FailedPrecondition,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
}
# What may happen to a program that does nothing wrong.
_MISSES = frozenset(("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED",
                     "ABORTED", "DATA_LOSS"))


def make(code, message):
    return _BY_CODE.get(code, KvkeepError)(code, message)


def of(library, error):
    """What an error of the C ABI is in Python."""
    return make(library.kvkeep_code_name(error.code).decode(),
                error.message.decode(errors="replace"))


def is_miss(error):
    return error.code in _MISSES
