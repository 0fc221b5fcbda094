"""FakeGpu: device memory of the fake driver (README.md) in a Python process, with no CUDA in it.

    gpu = FakeGpu(library)              # a context of device 0 is current on this thread
    address = gpu.alloc(4 << 20)
    gpu.view(address, 4 << 20)[:5] = b"bytes"

The fake's device memory is a memfd at its own address, so this process reads and writes it. A real
driver is refused: its addresses mean nothing here.
"""

import ctypes
import os

NAME = b"kvkeep fake GPU"


class FakeGpu:
    """`library`: the path of the fake's libcuda.so.1. The process's end frees the rest."""

    def __init__(self, library):
        self.library = os.fspath(library)
        self._driver = ctypes.CDLL(self.library)
        device, context, name = ctypes.c_int(), ctypes.c_void_p(), ctypes.create_string_buffer(64)
        self._must("cuInit", 0)
        self._must("cuDeviceGet", ctypes.byref(device), 0)
        self._must("cuDeviceGetName", name, len(name), device)
        if not name.value.startswith(NAME):
            raise RuntimeError(f"{self.library} is no fake driver but has a {name.value.decode()}")
        self._must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context
        self.use()

    def use(self):
        """Makes the context current on this thread, too."""
        self._must("cuCtxSetCurrent", self._context)

    def alloc(self, nbytes):
        address = ctypes.c_uint64()
        self._must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def free(self, address):
        """Frees the memory. Ends the process if another one has it open, as the fake does."""
        self._must("cuMemFree_v2", ctypes.c_uint64(address))

    @staticmethod
    def view(address, nbytes):
        """Returns the memory itself, to read and write."""
        return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")

    def _must(self, function, *arguments):
        result = getattr(self._driver, function)(*arguments)
        if result != 0:
            raise RuntimeError(f"{function}: {result}")
