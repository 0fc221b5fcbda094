"""Common code of the planners: a library handle, and plans of any number of runs."""

import ctypes
from typing import Any, FrozenSet, Optional, Type

from kvkeep import _abi, errors
from kvkeep.gpu import GpuRuns

_FEW = 256  # runs that fit at first


class Planner:
    """Works on numbers only, without daemon or driver. Thread-safe."""

    KIND = ""  # part of the names of the library's calls

    def __init__(self, layout: ctypes.Structure, regions: FrozenSet[int]) -> None:
        self._handle: Optional[int] = None
        self._room = _FEW
        self._library, self._regions = _abi.load(), regions
        handle, error = ctypes.c_void_p(), _abi.Error()
        create = getattr(self._library, f"kvkeep_{self.KIND}_planner_create")
        if create(ctypes.byref(layout), ctypes.byref(handle), ctypes.byref(error)) != 0:
            raise errors.of(self._library, error)
        self._handle = handle.value

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            getattr(self._library, f"kvkeep_{self.KIND}_planner_free")(self._handle)

    def _plan(self, kind: Type[ctypes.Structure], **request: Any) -> GpuRuns:
        """Returns the runs that answer a request of this kind, whose room is still unset."""
        plan = getattr(self._library, f"kvkeep_{self.KIND}_plan")
        count, error = ctypes.c_uint64(), _abi.Error()
        room = self._room  # another thread may change the number meanwhile
        while True:
            runs = (_abi.GpuRun * room)()
            asked = _abi.make(kind, runs=runs, room=len(runs), **request)
            if plan(self._handle, ctypes.byref(asked), ctypes.byref(count),
                    ctypes.byref(error)) == 0:
                return GpuRuns.adopt(runs, count.value, self._regions)
            if count.value <= room:
                raise errors.of(self._library, error)
            room = self._room = count.value  # OUT_OF_RANGE: `count` is the number of runs
