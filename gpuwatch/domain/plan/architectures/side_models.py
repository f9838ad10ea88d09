"""What a model has beside the layers of its text model: image and sound encoders, an encoder, position embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from gpuwatch.domain.plan.architectures.model_keys import ConfigKeys, model_types
from gpuwatch.domain.plan.architectures.transformer_shape import OtherWeights

_ENCODERS: Final = {"vision_config": "image encoder", "audio_config": "sound encoder"}
_GATED: Final = ("pixtral", "qwen2_5_vl", "qwen2_5_omni_vision_encoder", "glm4v", "glm_ocr", "aimv2", "ovis2")
_LEARNED: Final = frozenset(  # position embeddings
    {"biogpt", "gpt2", "gpt_bigcode", "gpt_neo", "opt", "openai-gpt", "ctrl"}
)


def encoders_of(keys: ConfigKeys) -> Iterator[OtherWeights]:
    """The image and sound encoders of a multimodal model, and what joins them to the text model."""
    for name, what in _ENCODERS.items():
        part = keys.part(name)
        with suppress(ValueError):  # `unread_encoders` names it
            if part is not None:
                yield OtherWeights(what, _encoder_params(part))


def unread_encoders(keys: ConfigKeys) -> Iterator[tuple[str, str]]:
    """The encoders that are not counted, and why."""
    known = model_types().get(keys.kind)
    for name in _ENCODERS:
        if known and name in known.parts and name not in keys.fields:
            yield name, "the file does not have it"
        if (part := keys.part(name)) is not None:
            try:
                _encoder_params(part)
            except ValueError as fault:
                yield name, str(fault)


def positions_of(keys: ConfigKeys, hidden: int) -> Iterator[OtherWeights]:
    """Learned position embeddings."""
    if keys.kind in _LEARNED:
        count = keys.whole("max_position_embeddings", "n_positions", "n_ctx", default=0)
        yield OtherWeights("position embeddings", count * hidden)


def _encoder_params(keys: ConfigKeys) -> int:
    """Attention and feed-forward of each layer, patches and positions, and the projection into the text model."""
    hidden = keys.whole("embed_dim", default=0) or keys.whole("hidden_size", "d_model", "vt_hidden_size")
    layers = keys.whole("depth", "num_hidden_layers", "encoder_layers", "vt_num_hidden_layers")
    ratio = keys.get("mlp_ratio")
    inner = keys.whole("intermediate_size", "encoder_ffn_dim", "vt_intermediate_size", default=0)
    if not inner or ("intermediate_size" not in keys.fields and "hidden_size" in keys.fields):
        inner = int(float(ratio) * hidden) if isinstance(ratio, (int, float)) else 4 * hidden
    matrices = 3 if keys.kind.startswith(_GATED) else 2
    if keys.kind.startswith("glm4v"):  # its `intermediate_size` is that of the merger
        inner, merged = keys.whole("out_hidden_size"), inner
        return layers * (4 * hidden * hidden + 3 * hidden * inner) + 3 * inner * merged + _patches(keys, hidden)
    params = layers * (4 * hidden * hidden + matrices * hidden * inner)
    params += keys.whole("num_global_layers", default=0) * (4 * hidden * hidden + matrices * hidden * inner)
    return params + _patches(keys, hidden) + _merger(keys, hidden)


def _patches(keys: ConfigKeys, hidden: int) -> int:
    patch = max(keys.wholes("patch_size", "spatial_patch_size"), default=0)
    if not patch:  # sound: two convolutions of three frames, and the positions
        bins = keys.whole("num_mel_bins", default=0)
        positions = keys.whole("max_source_positions", default=0)
        return (3 * bins + 3 * hidden + positions) * hidden if bins else 0
    size = max(keys.wholes("image_size"), default=0)
    channels = keys.whole("num_channels", "in_channels", "in_chans", default=3)
    frames = keys.whole("temporal_patch_size", default=1)
    positions = (size // patch) ** 2 + 1 if size else keys.whole("num_position_embeddings", default=0)
    return hidden * (channels * frames * patch * patch + positions)


def _merger(keys: ConfigKeys, hidden: int) -> int:
    """Qwen's models join 2 × 2 patches, then project them into the text model."""
    out = keys.whole("out_hidden_size", default=0)
    if not out and keys.kind.startswith("qwen2_vl"):
        out = keys.whole("hidden_size", default=0)
    if not out:
        return 0
    joined = hidden * keys.whole("spatial_merge_size", default=2) ** 2
    deep = len(keys.wholes("deepstack_visual_indexes"))
    return (1 + deep) * (joined * joined + joined * out)


def other_embeddings(keys: ConfigKeys, hidden: int) -> Iterator[OtherWeights]:
    """Further embeddings of the tokens: of each layer (Gemma 3n), or narrower ones (OPT-350M)."""
    narrow = keys.whole("word_embed_proj_dim", default=0)
    if narrow and narrow != hidden and "word_embed_proj_dim" in keys.fields:
        yield OtherWeights("narrower embeddings", (narrow - hidden) * keys.whole("vocab_size") + 2 * narrow * hidden)
    width = keys.whole("hidden_size_per_layer_input", default=0)
    if not width:
        return
    layers, words = keys.whole("num_hidden_layers"), keys.whole("vocab_size_per_layer_input", "vocab_size")
    yield OtherWeights("embeddings of each layer", layers * width * (words + 3 * hidden))
    keys.get("altup_num_inputs")
    if rank := keys.whole("laurel_rank", default=0):
        yield OtherWeights("low-rank residuals", layers * 2 * hidden * rank)
