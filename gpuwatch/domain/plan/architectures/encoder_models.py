"""Encoders (BERT), and encoders with a decoder (T5, BART, Whisper)."""

from __future__ import annotations

from typing import Final

from gpuwatch.domain.plan.architectures.layer_weights import LayerSums
from gpuwatch.domain.plan.architectures.model_keys import ConfigKeys
from gpuwatch.domain.plan.architectures.transformer_shape import LinearRole, OtherWeights, TransformerShape

_T5: Final = frozenset({"t5", "mt5", "umt5", "longt5", "pix2struct_text_model"})
_BART: Final = frozenset(
    {"bart", "mbart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "pegasus", "plbart", "whisper"}
)
ENCODER_DECODERS: Final = _T5 | _BART
ENCODERS: Final = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "mpnet", "ernie", "esm", "distilbert"})
_WHISPER_FRAMES: Final = 1500  # of 30 s of sound


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
