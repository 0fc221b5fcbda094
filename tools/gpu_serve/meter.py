"""Energy of one GPU: NVML's counter, or the power that nvidia-smi prints, added up.

    meter = meter_of(uuid)      # None: nothing tells
    before = meter.joules()
"""

import ctypes
import shutil
import subprocess
import threading
import time

LIBRARY = "libnvidia-ml.so.1"
ASK = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits"]
SAMPLE_S = 0.5


class NvmlMeter:
    """The driver counts since it was loaded, in millijoules. OSError: it does not."""

    said = "NVML's energy counter"

    def __init__(self, uuid, library=LIBRARY):
        self._nvml, self._device = ctypes.CDLL(library), ctypes.c_void_p()
        self._must("nvmlInit_v2")
        self._must("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._device))
        self.joules()

    def joules(self):
        counted = ctypes.c_ulonglong()
        self._must("nvmlDeviceGetTotalEnergyConsumption", self._device, ctypes.byref(counted))
        return counted.value / 1000

    def _must(self, name, *arguments):
        try:
            code = getattr(self._nvml, name)(*arguments)
        except AttributeError as absent:
            raise OSError(f"NVML has no {name}") from absent
        if code != 0:
            raise OSError(f"{name}: {code}")

    def close(self):
        pass


class SampledMeter:
    """watts(): the power now. A thread asks twice a second."""

    said = "nvidia-smi's power draw, twice a second"

    def __init__(self, watts):
        self._watts, self._joules, self._over = watts, 0.0, threading.Event()
        self._watts()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self):
        last = time.monotonic()
        while not self._over.wait(SAMPLE_S):
            watts, now = self._watts(), time.monotonic()
            self._joules += watts * (now - last)
            last = now

    def joules(self):
        return self._joules

    def close(self):
        self._over.set()
        self._thread.join()


def _smi(uuid):
    def watts():
        said = subprocess.run([*ASK, f"--id={uuid}"], capture_output=True, text=True, timeout=10,
                              check=True).stdout
        return float(said.splitlines()[0])

    return watts


def meter_of(uuid):
    """A meter of the GPU with this UUID ("GPU-..."), or None. uuid: None without a GPU."""
    if uuid is None:
        return None
    try:
        return NvmlMeter(uuid)
    except OSError:
        pass
    if shutil.which(ASK[0]) is None:
        return None
    try:
        return SampledMeter(_smi(uuid))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
