"""The torch example without a GPU: its own code, on tensors of the CPU that lie in the device
memory of the fake driver. Everything except CUDA runs: registered memory, plans, puts, gets,
logits.

    torch_on_fake.py FAKE_DRIVER [options of the example]
"""

import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("client/python/examples", "tests/fakes/cuda")]

import torch  # noqa: E402
import torch_paged_kv as example  # noqa: E402
from fake_gpu import NAME, FakeGpu  # noqa: E402
from kvkeep import Pointer  # noqa: E402

LEAST_ALLOCATION = 2 << 20  # what may be given to the daemon


class FakeMemory:
    """Acts as example.CudaMemory. It is never freed, as the fake ends a process that frees what the
    daemon has."""

    device = "cpu"
    name = NAME.decode()

    def __init__(self, library):
        self._gpu = FakeGpu(library)
        self.driver = self._gpu.library

    def zeros(self, shape, dtype):
        nbytes = math.prod(shape) * dtype.itemsize
        address = self._gpu.alloc(max(nbytes, LEAST_ALLOCATION))
        return torch.frombuffer(self._gpu.view(address, nbytes), dtype=dtype).view(shape)

    def located(self, tensor):
        return Pointer(tensor.data_ptr(), tensor.nbytes)

    def synchronize(self):
        pass


if __name__ == "__main__":
    torch.set_num_threads(1)
    ASKED = example.parse(sys.argv[2:])
    print(json.dumps(example.run(FakeMemory(sys.argv[1]), ASKED)))
