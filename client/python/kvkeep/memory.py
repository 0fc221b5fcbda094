"""Converts objects that hold bytes into addresses and lengths for calls.

An object has the buffer protocol (bytes, bytearray, memoryview, numpy arrays, mmap), has
`data_ptr()` and `nbytes` (torch tensors), or is a `Pointer`. It is contiguous; nothing is copied.
An argument is kept alive, and its buffer locked, until the call is over.
"""

from __future__ import annotations

import ctypes
from typing import (TYPE_CHECKING, Any, Iterable, List, NamedTuple, Optional, Protocol, Sequence,
                    Tuple, Union, cast)

from kvkeep import _abi

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class Pointer(NamedTuple):
    """`nbytes` at `address`. The caller keeps the memory there until the call is over."""

    address: int
    nbytes: int


class Buffer(Protocol):
    """An object with the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class Array(Protocol):
    """An array of numpy, whose stubs tell of its buffer to some versions of Python only."""

    @property
    def nbytes(self) -> int: ...

    @property
    def __array_interface__(self) -> Any: ...


class Tensor(Protocol):
    """A tensor of torch. Its `device`, if it has one, is "cpu"."""

    @property
    def nbytes(self) -> int: ...

    def data_ptr(self) -> int: ...

    def is_contiguous(self) -> bool: ...


Memory = Union[Buffer, Array, Tensor, Pointer]
Payload = Union[Memory, Sequence[Memory]]  # one object, or a list or tuple that makes one payload


def skip(nbytes: int) -> Pointer:
    """Skips this many of a chunk's bytes, in the list of a get's buffers for that chunk."""
    return Pointer(0, nbytes)


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython's stable ABI."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int),
                ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


_PYBUF_SIMPLE, _PYBUF_WRITABLE = 0, 1
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


class _Locked:
    """A buffer that its owner can neither free nor resize while this lives."""

    def __init__(self, owner: Any, writable: bool) -> None:
        self._held: Optional[_PyBuffer] = None
        view = _PyBuffer()
        _get_buffer(owner, ctypes.byref(view), _PYBUF_WRITABLE if writable else _PYBUF_SIMPLE)
        self._held = view  # only now: a failed request raised, and holds nothing
        self.address: int = view.buf or 0
        self.nbytes: int = view.len

    def __del__(self) -> None:
        if self._held is not None:
            _release_buffer(ctypes.byref(self._held))
            self._held = None


def locate(owner: Any, writable: bool = False) -> Tuple[int, int, object]:
    """Returns (address, nbytes, object to keep until the call is over)."""
    if isinstance(owner, Pointer):
        return owner.address, owner.nbytes, owner
    data_ptr = getattr(owner, "data_ptr", None)
    if data_ptr is not None:
        if not owner.is_contiguous():
            raise ValueError("a tensor must be contiguous")
        if getattr(owner, "device", None) is not None and owner.device.type != "cpu":
            raise ValueError(f"a tensor must be in host memory, not on {owner.device}")
        return data_ptr(), owner.nbytes, owner
    locked = _Locked(owner, writable)
    return locked.address, locked.nbytes, locked


def _are_several(owners: Payload) -> TypeIs[Sequence[Memory]]:
    return isinstance(owners, (list, tuple)) and not isinstance(owners, Pointer)


class Located:
    """A get's buffers, one for each chunk, with `skip`s, located once for any number of gets."""

    def __init__(self, owners: Iterable[Memory]) -> None:
        self.array, self._kept = runs(list(owners), writable=True)
        self.counts = (ctypes.c_uint32 * len(self.array))(*[1] * len(self.array))

    def __len__(self) -> int:
        return len(self.array)

    def first(self, count: int) -> Located:
        """Returns the buffers of the first `count` chunks."""
        made = Located(())
        made._kept = self
        made.array = (_abi.Buffer * count).from_buffer(self.array)
        made.counts = (ctypes.c_uint32 * count).from_buffer(self.counts)
        return made


def runs_of_each(into: Union[Located, Sequence[Payload]]) -> Tuple[
        ctypes.Array[ctypes.Structure], object, Optional[ctypes.Array[ctypes.c_uint32]]]:
    """Returns (array of Buffer, object to keep, each chunk's number of buffers or None for one).
    into: a get's buffers, one for each chunk, or a list that its bytes fill in order, or
    Located."""
    if isinstance(into, Located):
        return into.array, into, into.counts
    if not any(map(_are_several, into)):
        array, located = runs(list(cast(Sequence[Memory], into)), writable=True)
        return array, located, None
    each = [one if _are_several(one) else [one] for one in into]
    array, located = runs([buffer for buffers in each for buffer in buffers], writable=True)
    return array, located, (ctypes.c_uint32 * len(each))(*map(len, each))


def runs(owners: Payload,
         writable: bool = False) -> Tuple[ctypes.Array[ctypes.Structure], object]:
    """Returns (array of Buffer, object to keep). owners: one object, or a list that makes one
    payload."""
    if not _are_several(owners):
        owners = [owners]
    located = [locate(owner, writable) for owner in owners]
    return _abi.array(_abi.Buffer, [(address, nbytes) for address, nbytes, _ in located]), located
