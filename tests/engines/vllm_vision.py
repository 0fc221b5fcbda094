"""A random-weight BLIP-2 and its processor, made on the spot, and images for it.

Its text model is engine_process.make_model's Llama. vLLM computes it on a CPU without torchvision
and without kernels that vllm_on_cpu.py lacks, unlike most of its other models of images.
"""

import json
import pathlib

IMAGE_TOKENS = 32  # of an image, before the tokens of its prompt
_VOCABULARY, _IMAGE_TOKEN = 1000, 2
_EDGE = 32  # of an image, in pixels


def make_model(folder, seed=0):
    import torch
    from transformers import (Blip2Config, Blip2ForConditionalGeneration, Blip2QFormerConfig,
                              Blip2VisionConfig, LlamaConfig)

    torch.manual_seed(seed)
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "initializer_range": 0.2}
    model = Blip2ForConditionalGeneration(Blip2Config(
        text_config=LlamaConfig(
            hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
            num_key_value_heads=4, head_dim=32, vocab_size=_VOCABULARY,
            max_position_embeddings=4096, initializer_range=0.2),
        vision_config=Blip2VisionConfig(**small, image_size=_EDGE, patch_size=8),
        qformer_config=Blip2QFormerConfig(**small, vocab_size=_VOCABULARY),
        num_query_tokens=IMAGE_TOKENS, image_token_index=_IMAGE_TOKEN, initializer_range=0.2))
    model.query_tokens.data.normal_()  # initial zeros would all give the same answer
    model.save_pretrained(folder)
    _make_processor(folder)


def _make_processor(folder):
    from tokenizers import Tokenizer, models
    from transformers import Blip2Processor, PreTrainedTokenizerFast
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    names = {f"t{token}": token for token in range(_VOCABULARY) if token != _IMAGE_TOKEN}
    words = Tokenizer(models.WordLevel({**names, "<image>": _IMAGE_TOKEN}, unk_token="t0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="t0", pad_token="t0")
    Blip2Processor(BlipImageProcessorPil(size={"height": _EDGE, "width": _EDGE}), tokenizer,
                   num_query_tokens=IMAGE_TOKENS).save_pretrained(folder)
    # In a file of its own, as for most models.
    whole, images = (pathlib.Path(folder, f"{name}_config.json")
                     for name in ("processor", "preprocessor"))
    said = json.loads(whole.read_text(encoding="utf-8"))
    images.write_text(json.dumps(said.pop("image_processor")), encoding="utf-8")
    whole.write_text(json.dumps(said), encoding="utf-8")


def change_processor(folder):
    """Changes it in place: the same pixels become other input."""
    path = pathlib.Path(folder, "preprocessor_config.json")
    said = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**said, "image_mean": [0.1, 0.9, 0.3]}), encoding="utf-8")


def image(seed):
    """Returns an image of random pixels."""
    import numpy
    from PIL import Image

    pixels = numpy.random.default_rng(seed).integers(0, 256, (_EDGE, _EDGE, 3), dtype=numpy.uint8)
    return Image.fromarray(pixels)
