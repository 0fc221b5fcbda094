"""SGLang: refuses models that take images, audio or video.

SGLang's page keys know such an input by 64 bits, which a user can partly choose: hashes may come
with a request, and 64 bits can be searched. An adapter gets page keys alone, and cannot tell which
pages are of requests with images. So one user's image could be found as another one's.
"""

_KINDS = ("is_multimodal", "is_audio_model", "is_image_understandable_model",
          "is_audio_understandable_model")  # of SGLang's ModelConfig
CHOICES = ("refused", "trusted")


def check_option(value):
    """ValueError: it is no value of the option "multimodal"."""
    if value not in CHOICES:
        raise ValueError(f'multimodal: "refused" or "trusted", not {value!r}')


def check_text_only(model, option):
    """model: SGLang's ModelConfig. ValueError: requests may have other inputs than tokens, and the
    option does not say that their senders are trusted. --language-only is no way out: an encoder
    elsewhere sends the images then."""
    if option == "trusted" or not any(getattr(model, kind) for kind in _KINDS):
        return
    raise ValueError(
        f"kvkeep: the model {model.hf_config.architectures[0]} takes images, audio or video, which "
        "SGLang's page keys know by 64 bits that a user can partly choose: one user's image could "
        "be found as another one's. For text alone start SGLang with --language-model-only (not "
        "--language-only), or with enable_multimodal=False; where everybody who sends requests is "
        'trusted, give kvkeep the option "multimodal": "trusted"')
