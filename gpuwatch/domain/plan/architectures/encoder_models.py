"""Encoders (BERT), models with an encoder and a decoder (T5, BART, Whisper), and what else a model has. Pure.

Beside the layers of its text model, a model may have image and sound encoders, position embeddings, and further
embeddings of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from gpuwatch.domain.plan.architectures.layer_weights import LayerSums
from gpuwatch.domain.plan.architectures.model_keys import ConfigKeys, model_types
from gpuwatch.domain.plan.architectures.transformer_shape import LinearRole, OtherWeights, TransformerShape

_T5: Final = frozenset({"t5", "mt5", "umt5", "longt5", "pix2struct_text_model"})
_BART: Final = frozenset(
    {"bart", "mbart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "pegasus", "plbart", "whisper"}
)
ENCODER_DECODERS: Final = _T5 | _BART
ENCODERS: Final = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "mpnet", "ernie", "esm", "distilbert"})
_WHISPER_FRAMES: Final = 1500  # of 30 s of sound

_ENCODERS: Final = {"vision_config": "image encoder", "audio_config": "sound encoder"}
_GATED: Final = ("pixtral", "qwen2_5_vl", "qwen2_5_omni_vision_encoder", "glm4v", "glm_ocr", "aimv2", "ovis2")
_LEARNED: Final = frozenset(  # position embeddings
    {"biogpt", "gpt2", "gpt_bigcode", "gpt_neo", "opt", "openai-gpt", "ctrl"}
)


def encoder_decoder_shape(keys: ConfigKeys) -> TransformerShape:
    """The shape of a model with an encoder and a decoder. Raises ValueError: a key is missing or impossible."""
    return _t5_shape(keys) if keys.kind in _T5 else _bart_shape(keys)


def _t5_shape(keys: ConfigKeys) -> TransformerShape:
    hidden, heads, size = keys.whole("d_model"), keys.whole("num_heads"), keys.whole("d_kv")
    inner, encoder = keys.whole("d_ff"), keys.whole("num_layers")
    decoder = keys.whole("num_decoder_layers", default=0) or encoder
    is_gated = str(keys.get("feed_forward_proj") or "").startswith("gated")
    sums = LayerSums()
    for _ in range(encoder):
        _add_attention(sums, hidden, heads * size, "encoder.SelfAttention")
        _add_inner(sums, hidden, inner, 3 if is_gated else 2, "encoder.DenseReluDense")
    for _ in range(decoder):
        _add_decoder_layer(sums, hidden, heads * size, inner, 3 if is_gated else 2)
    return TransformerShape(
        layers=decoder,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=size,
        ffn=inner,
        vocab=keys.whole("vocab_size"),
        tied=keys.flag("tie_word_embeddings", default=keys.kind != "mt5"),
        matrices=3 if is_gated else 2,
        own=sums.linears,
        caches=sums.caches,
    )


def _bart_shape(keys: ConfigKeys) -> TransformerShape:
    hidden = keys.whole("d_model")
    heads, inner = keys.whole("decoder_attention_heads"), keys.whole("decoder_ffn_dim")
    encoder_inner, decoder = keys.whole("encoder_ffn_dim"), keys.whole("decoder_layers")
    sums = LayerSums()
    for _ in range(keys.whole("encoder_layers")):
        _add_attention(sums, hidden, hidden, "encoder.self_attn")
        _add_inner(sums, hidden, encoder_inner, 2, "encoder.fc")
    for _ in range(decoder):
        _add_decoder_layer(sums, hidden, hidden, inner, 2)
    state, beside = 0, keys.whole("max_position_embeddings", default=0) * 2 * hidden
    if keys.kind == "whisper":
        beside = keys.whole("max_target_positions", default=448) * hidden + 3 * hidden * hidden
        beside += keys.whole("max_source_positions", default=_WHISPER_FRAMES) * hidden
        beside += 3 * keys.whole("num_mel_bins", default=80) * hidden
        state = decoder * 2 * hidden * keys.whole("max_source_positions", default=_WHISPER_FRAMES)
    elif keys.kind in {"m2m_100", "pegasus", "marian"}:  # computed positions
        beside = 0
    return TransformerShape(
        layers=decoder,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=inner,
        vocab=keys.whole("vocab_size"),
        tied=keys.flag("tie_word_embeddings", default=True),
        matrices=2,
        own=sums.linears,
        caches=sums.caches,
        state=state,
        beside=(OtherWeights("position embeddings and sound input", beside),) if beside else (),
    )


def encoder_shape(keys: ConfigKeys) -> TransformerShape:
    """The shape of an encoder, which caches nothing. Raises ValueError: a key is missing or impossible."""
    hidden, layers = keys.whole("hidden_size", "dim"), keys.whole("num_hidden_layers", "n_layers")
    inner, vocab = keys.whole("intermediate_size", "hidden_dim"), keys.whole("vocab_size")
    keys.get("tie_word_embeddings")
    sums = LayerSums()
    for _ in range(layers):
        _add_attention(sums, hidden, hidden, "attention")
        _add_inner(sums, hidden, inner, 2, "intermediate")
    positions = keys.whole("max_position_embeddings", default=0) + keys.whole("type_vocab_size", default=0)
    return TransformerShape(
        layers=layers,
        hidden=hidden,
        heads=keys.whole("num_attention_heads", "n_heads"),
        kv_heads=keys.whole("num_attention_heads", "n_heads"),
        ffn=inner,
        vocab=vocab,
        tied=True,
        matrices=2,
        own=sums.linears,
        caches=(),
        beside=(OtherWeights("positions and output", positions * hidden + hidden * hidden),),
    )


def _add_decoder_layer(sums: LayerSums, hidden: int, width: int, inner: int, matrices: int) -> None:
    """Attention to what was written (which is cached), and to the encoder's output."""
    _add_attention(sums, hidden, width, "decoder.self_attn")
    sums.cache(2 * width)
    _add_attention(sums, hidden, width, "decoder.encoder_attn")
    _add_inner(sums, hidden, inner, matrices, "decoder.mlp")


def _add_attention(sums: LayerSums, hidden: int, width: int, module: str) -> None:
    for role in (LinearRole.QUERY, LinearRole.KEY, LinearRole.VALUE):
        sums.add(role, hidden, width, f"{module}.{role.value}")
    sums.add(LinearRole.OUTPUT, width, hidden, f"{module}.output")


def _add_inner(sums: LayerSums, hidden: int, inner: int, matrices: int, module: str) -> None:
    for _ in range(matrices - 1):
        sums.add(LinearRole.FEED_FORWARD, hidden, inner, module)
    sums.add(LinearRole.FEED_FORWARD, inner, hidden, module)


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
