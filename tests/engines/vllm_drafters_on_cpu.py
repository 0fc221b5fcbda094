"""Four kernels that the PyPI wheel of vLLM 0.33 lacks to run drafters on a CPU, in addition to
vllm_on_cpu.py: in plain torch, for greedy requests only. And a random-weight EAGLE for make_model's
Llama. For tests only. Import this before an engine is made, and in the process of its core.
"""

import json
import pathlib
import sys

import torch

_library = torch.library.Library("_C", "FRAGMENT")
REJECTED = -1


def _kernel(schema):
    def define(function):
        if "--engine" not in sys.argv:  # not an engine's process
            return function
        _library.define(schema)
        _library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
        return function
    return define


@_kernel("rejection_greedy_sample_kernel_impl(Tensor(a!) output, Tensor ends, Tensor drafts, "
         "Tensor target, Tensor bonus, Tensor? is_greedy, int most) -> ()")
def _accept(output, ends, drafts, target, bonus, is_greedy, most):
    del most
    assert is_greedy is None or bool(is_greedy.all())
    begin = 0
    for request, end in enumerate(ends.tolist()):
        for at in range(begin, end):
            output[request, at - begin] = target[at]
            if drafts[at] != target[at]:
                break
        else:
            output[request, end - begin] = bonus.flatten()[request]
        begin = end


@_kernel("eagle_prepare_inputs_padded_kernel_impl(Tensor ends, Tensor valid, Tensor starts, "
         "Tensor(a!) to_sample, Tensor(b!) rejected, int requests) -> ()")
def _prepare_inputs(ends, valid, starts, to_sample, rejected, requests):
    begin = 0
    for request in range(requests):
        drafts = int(ends[request]) - begin
        begin += drafts
        rejected[request] = drafts + 1 - int(valid[request]) if drafts > 0 else 0
        to_sample[request] = int(starts[request + 1]) - 1 - int(rejected[request])


@_kernel("eagle_prepare_next_token_padded_kernel_impl(Tensor sampled, Tensor discarded, "
         "Tensor backup, Tensor(a!) next, Tensor(b!) valid, int vocabulary, int width, "
         "int requests) -> ()")
def _prepare_next(sampled, discarded, backup, following, valid, vocabulary, width, requests):
    for request in range(requests):
        tokens = [] if discarded[request] else [
            token for token in sampled[request, :width].tolist()
            if token != REJECTED and token < vocabulary]
        following[request] = tokens[-1] if tokens else int(backup[request])
        valid[request] = len(tokens)


@_kernel("eagle_step_slot_mapping_metadata_kernel_impl(Tensor positions, Tensor blocks, "
         "Tensor(a!) lengths, Tensor(b!) clamped, Tensor(c!) slots, int block, int most, "
         "int padding) -> ()")
def _step(positions, blocks, lengths, clamped, slots, block, most, padding):
    count = positions.shape[0]
    for request, position in enumerate(positions.tolist()):
        beyond = position + 1 >= most
        now = 0 if beyond else position + 1
        number = min(now // block, blocks.shape[1] - 1)
        slots[request] = padding if beyond else int(blocks[request, number]) * block + now % block
        lengths[request] = min(1 if beyond else int(lengths[request]) + 1, most)
        clamped[request] = now
    slots[count:] = padding


def make_eagle(folder, seed=7):
    """Makes a drafter of one layer. It has KV of its own, and few of its drafts are right."""
    from safetensors.torch import save_file

    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 1000, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "torch_dtype": "float32"}), encoding="utf-8")
    torch.manual_seed(seed)
    shapes = {"fc.weight": (256, 512)}
    layer = "layers.0."
    for name, shape in (("self_attn.q_proj", (256, 256)), ("self_attn.k_proj", (128, 256)),
                        ("self_attn.v_proj", (128, 256)), ("self_attn.o_proj", (256, 256)),
                        ("mlp.gate_proj", (512, 256)), ("mlp.up_proj", (512, 256)),
                        ("mlp.down_proj", (256, 512))):
        shapes[f"{layer}{name}.weight"] = shape
    tensors = {name: torch.randn(shape) * 0.05 for name, shape in shapes.items()}
    tensors[layer + "post_attention_layernorm.weight"] = torch.ones(256)
    save_file(tensors, folder / "model.safetensors")
