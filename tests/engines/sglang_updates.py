"""Changes the weights of a running SGLang engine in each way that SGLang 0.5.23 has on a CPU.

An engine's process calls `update`; a test sends it the line that `line` makes.
"""

import json
import pathlib
import socket
import threading

# Ways that need a GPU are missing: IPC with a checkpoint engine, and memory that is given away.
WAYS = ("disk", "tensor", "distributed")
_JOINED = []  # groups of a distributed update; no name is used twice


def line(how, folder=None, **named):
    """Returns a line that `update` understands."""
    return "update " + json.dumps({"how": how, "folder": str(folder), **named})


def update(made, said):
    """Runs a line on a sglang.Engine; returns what SGLang answers.

    how: one of WAYS, to the weights of the model in `folder`, with or without a `version`, and with
    or without SGLang's own `flush`; "scramble": to random ones.
    """
    wanted = json.loads(said.removeprefix("update "))
    how, folder = wanted["how"], pathlib.Path(wanted["folder"])
    options = {"flush_cache": wanted.get("flush", True), "weight_version": wanted.get("version")}
    good, why = {"disk": _disk, "tensor": _tensor, "distributed": _distributed,
                 "scramble": _scramble}[how](made, folder, options)
    return {"updated": good, "why": str(why)}


def _call(made, name, request):
    return made.loop.run_until_complete(getattr(made.tokenizer_manager, name)(request, None))


def _tensors(folder):
    from safetensors.torch import load_file
    return [pair for file in sorted(folder.glob("*.safetensors"))
            for pair in sorted(load_file(file).items())]


def _disk(made, folder, options):
    from sglang.srt.managers import io_struct
    good, why, _ = _call(made, "update_weights_from_disk", io_struct.UpdateWeightFromDiskReqInput(
        model_path=str(folder), **options))
    return good, why


def _tensor(made, folder, options):
    from sglang.srt.managers import io_struct
    made.begin_weight_update()
    given = made._serialize_tensors_per_rank(_tensors(folder), None)
    said = _call(made, "update_weights_from_tensor", io_struct.UpdateWeightsFromTensorReqInput(
        serialized_named_tensors=given, **options))
    made.end_weight_update()
    return said


def _distributed(made, folder, options):
    """This process is rank 0, and sends."""
    from sglang.srt.managers import io_struct
    from sglang.srt.utils import init_custom_process_group
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    tensors, group = _tensors(folder), f"of a test {len(_JOINED)}"

    def send():
        _JOINED.append(init_custom_process_group(
            backend="gloo", init_method=f"tcp://127.0.0.1:{port}", world_size=2, rank=0,
            group_name=group))
        for _, tensor in tensors:
            _JOINED[-1].broadcast(tensor, 0).wait()

    sender = threading.Thread(target=send)
    sender.start()
    good, why = made.init_weights_update_group("127.0.0.1", port, 1, 2, group, backend="gloo")
    if not good:
        return good, why
    made.begin_weight_update()
    said = _call(made, "update_weights_from_distributed",
                 io_struct.UpdateWeightsFromDistributedReqInput(
                     names=[name for name, _ in tensors],
                     dtypes=[str(tensor.dtype).removeprefix("torch.") for _, tensor in tensors],
                     shapes=[list(tensor.shape) for _, tensor in tensors], group_name=group,
                     **options))
    made.end_weight_update()
    sender.join()
    made.destroy_weights_update_group(group)
    return said


def _scramble(made, folder, options):
    del folder, options
    from sglang.srt.managers import io_struct
    said = _call(made, "check_weights", io_struct.CheckWeightsReqInput(action="reset_tensors"))
    return said[:2] if isinstance(said, tuple) else (said.success, said.message)
