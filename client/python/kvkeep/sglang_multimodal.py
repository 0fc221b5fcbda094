"""SGLang: refuses models that take images, audio or video.

SGLang's page keys identify such an input by 64 bits, which a user can partly choose: a request may
bring hashes, and 64 bits can be searched. An adapter gets page keys alone, and cannot tell which
pages belong to requests with images. So one user's image could be found as another one's.
"""

_KINDS = ("is_multimodal", "is_audio_model", "is_image_understandable_model",
          "is_audio_understandable_model")  # of SGLang's ModelConfig
CHOICES = ("refused", "trusted")


def check_option(value):
    """Raises ValueError if the option "multimodal" has another value."""
    if value not in CHOICES:
        raise ValueError(f'multimodal: "refused" or "trusted", not {value!r}')


def check_text_only(model, option):
    """Raises ValueError if requests may have inputs other than tokens and the option does not trust
    their senders. model: SGLang's ModelConfig. --language-only does not help, as an encoder
    elsewhere then sends images."""
    if option == "trusted" or not any(getattr(model, kind) for kind in _KINDS):
        return
    raise ValueError(
        f"kvkeep: the model {model.hf_config.architectures[0]} takes images, audio or video, which "
        "SGLang's page keys know by 64 bits that a user can partly choose: one user's image could "
        "be found as another one's. For text alone start SGLang with --language-model-only (not "
        "--language-only), or with enable_multimodal=False; where everybody who sends requests is "
        'trusted, give kvkeep the option "multimodal": "trusted"')
