"""vLLM's KV in the device memory of the fake driver (tests/fakes/cuda), with which the CPU
computes.

The direct connector takes it for a GPU's, and the daemon copies as it does from a GPU.
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fakes" / "cuda"))

from fake_gpu import FakeGpu  # noqa: E402

LEAST_ALLOCATION = 2 << 20  # what may be given to a daemon


class FakeDevice:
    """Acts as kvkeep.vllm_device.Cuda. holding: no fence is over while it is True."""

    def __init__(self, library):
        self._gpu = FakeGpu(library)
        self.driver, self.holding = self._gpu.library, False

    def use(self):
        self._gpu.use()

    def fence(self):
        return self

    def is_over(self, fence):
        return not fence.holding

    def zeros(self, nbytes):
        """Returns a tensor of bytes. It is never freed, as the fake ends a process that frees what
        a daemon has."""
        address = self._gpu.alloc(max(nbytes, LEAST_ALLOCATION))
        made = torch.frombuffer(self._gpu.view(address, nbytes), dtype=torch.int8)
        return made.zero_()


def install(library):
    """Puts KV there: called in a rank's process, before its KV memory is allocated."""
    from vllm.v1.worker import utils

    class Torch:
        """Acts as vLLM's module of allocations."""

        def __getattr__(self, name):
            return getattr(torch, name)

        @staticmethod
        def zeros(size, *, dtype, device):
            from kvkeep import vllm_connector, vllm_device

            assert (dtype, torch.device(device).type) == (torch.int8, "cpu")
            fake = FakeDevice(library)
            vllm_connector.transfers_of = lambda *given: vllm_device.DeviceTransfers(*given, fake)
            return fake.zeros(size)

    utils.torch = Torch()
