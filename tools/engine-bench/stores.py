"""A host's cost of storing KV: CPU time a GB, and bytes of its memory for each byte that is kept.

No model: stored_engine.py. KV lies in a GPU's memory, for the direct connector in the fake driver's
(tests/fakes/cuda). Left out of the CPU time is what a GPU's copy engines do: the threads of the
fake one, and the copies into the tier's memory. The daemon has no G3, so that neither arm writes to
a disk. Its G2 has room for little more than what is stored, and so has the tier's CPU memory: the
case of one prompt that is as long as all that is kept, which else the tier would not find.
"""

import pathlib

import engine_process
import served
import vllm_engine
from daemon import Daemon

HERE = pathlib.Path(__file__).resolve().parent
CHUNKS, QUICK_CHUNKS = 112, 16  # of 8 MiB; the fake GPU has 1 GiB
GPU_THREAD = "fake-gpu-copies"
WARM, MEASURED = 2, 3  # times that all is stored, under other keys each time


def cpu_seconds(pids):
    """CPU time of all their threads but the GPU's; none may have ended in between."""
    return sum(int((task / "schedstat").read_text().split()[0]) / 1e9 for pid in pids
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
               if (task / "comm").read_text().strip() != GPU_THREAD)


def measure(arm, asked, number):
    """A row. Memory is what engine and daemon have more, when all is stored, than an engine without
    either. CPU time is of when all pages are there, and what is stored takes the place of other."""
    chunks = QUICK_CHUNKS if asked.quick else CHUNKS
    driver = asked.build / "fake-cuda" / "libcuda.so.1"
    daemon = Daemon(asked.build / "bin" / "kvkeepd",
                    {"KVKEEP_G2_CAPACITY": f"{(chunks + 8) * 8}MiB", "KVKEEP_G3_PATHS": "[]",
                     "LD_LIBRARY_PATH": str(driver.parent.resolve())})
    try:
        engine = engine_process.EngineProcess(
            HERE / "stored_engine.py", asked, "none", daemon.endpoint, vllm_engine.ENVIRONMENT,
            path=[asked.root.resolve() / "tests" / "client" / "python"],
            options={"arm": arm, "chunks": chunks, "driver": str(driver.resolve())})
        try:
            without = served.host_bytes([engine.process.pid])
            daemon.start()
            for turn in range(WARM):
                stored = engine.ask(str(turn), quiet=True)["stored_bytes"]
            pids = engine.process.pid, daemon.process.pid
            kept, began = served.host_bytes(pids) - without, cpu_seconds(pids)
            by_gpu = sum(engine.ask(str(WARM + turn), quiet=True)["by_gpu_s"]
                         for turn in range(MEASURED))
            took = cpu_seconds(pids) - began - by_gpu
            return {"arm": arm, "round": number, "host_bytes": kept / stored,
                    "store_cpu_s": took / (MEASURED * stored) * 1e9}
        finally:
            left = served.offloaded([engine.process.pid])
            engine.close()
            served.remove(left)
    finally:
        daemon.__exit__()
