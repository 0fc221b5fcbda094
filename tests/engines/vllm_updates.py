"""Ways in which tests change the weights of a running vLLM engine to those of another folder.

CHANGES has them by name: each is called with a vllm.LLM and a folder. vLLM's processes import this
for FileWeights and Extension.
"""

import dataclasses
import functools
import os
import pathlib

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

IN_PROCESS = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0"


def _tensors(folder):
    from safetensors.torch import load_file

    return load_file(pathlib.Path(folder) / "model.safetensors").items()


def _load(model, *, folder):
    model.load_weights(_tensors(folder))


@dataclasses.dataclass
class _Folder:
    folder: str = ""


class FileWeights(WeightTransferEngine):
    """vLLM's weight transfer from a folder: {"backend": "files"}."""

    init_info_cls = update_info_cls = _Folder

    def init_transfer_engine(self, init_info):
        pass

    def start_weight_update(self):
        pass

    def finish_weight_update(self):
        pass

    def update_weights(self, update_info):
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info):
        with torch.no_grad():
            _load(self.model, folder=update_info.folder)

    def shutdown(self):
        pass


if "files" not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine("files", FileWeights)


class Extension:
    """Extends a worker by a method that writes tensors in place."""

    def write_tensors(self, folder):
        named = dict(self.model_runner.model.named_parameters())
        with torch.no_grad():
            for name, tensor in _merged(dict(_tensors(folder))).items():
                named[name].data[:len(tensor)].copy_(tensor)  # vLLM pads the vocabulary


def _merged(tensors):
    """Returns a checkpoint's tensors as vLLM's Llama holds them."""
    for name in [name for name in tensors if "q_proj" in name or "gate_proj" in name]:
        parts, merged = (("q_proj", "k_proj", "v_proj"), "qkv_proj") if "q_proj" in name else (
            ("gate_proj", "up_proj"), "gate_up_proj")
        tensors[name.replace(parts[0], merged)] = torch.cat(
            [tensors.pop(name.replace(parts[0], part)) for part in parts])
    return tensors


def _reload(llm, folder):
    llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})


def _transfer(llm, folder):
    """Updates as vllm.entrypoints.rl does, without a pause."""
    llm.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": {}})
    llm.collective_rpc("start_weight_update")
    llm.collective_rpc("update_weights", kwargs={"update_info": {"folder": folder}})
    llm.collective_rpc("finish_weight_update")


def _paused(llm, folder):
    """Updates without a reset of caches by the pause itself."""
    core = llm.llm_engine.engine_core
    if IN_PROCESS:
        core.engine_core.pause_scheduler("keep", False)
    else:
        core.call_utility("pause_scheduler", "keep", False)
    _reload(llm, folder)
    if IN_PROCESS:
        core.engine_core.resume_scheduler()
    else:
        core.call_utility("resume_scheduler")


def _extension(llm, folder):
    llm.collective_rpc("write_tensors", args=(folder,))


def _apply(llm, folder):
    """Runs the user's own code, which vLLM takes with VLLM_ALLOW_INSECURE_SERIALIZATION."""
    llm.apply_model(functools.partial(_load, folder=folder))


def _colocated(llm, folder):
    """Updates as trainers do that have the engine in their process: no call to a worker."""
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    with torch.no_grad():
        _load(runner.model, folder=folder)


def _colocated_in_place(llm, folder):
    """Updates so that only the reset after it reveals the change."""
    worker = llm.llm_engine.model_executor.driver_worker.worker
    Extension.write_tensors(worker, folder)


CHANGES = {"reload": _reload, "paused": _paused, "transfer": _transfer, "extension": _extension,
           "apply": _apply}
COLOCATED = {"load_weights": _colocated, "in place": _colocated_in_place}
