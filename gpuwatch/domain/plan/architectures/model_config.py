"""A model's own `config.json`, as its publisher ships it for Hugging Face's transformers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpuwatch.domain.plan.architectures.encoder_models import (
    ENCODER_DECODERS,
    ENCODERS,
    encoder_decoder_shape,
    encoder_shape,
    encoders_of,
    other_embeddings,
    positions_of,
    unread_encoders,
)
from gpuwatch.domain.plan.architectures.layer_kinds import FeedForward, Mixer, layer_count, layer_kinds
from gpuwatch.domain.plan.architectures.layer_weights import (
    LayerSums,
    add_feed_forward,
    add_mixer,
    dense_width,
    expert_count,
    expert_width,
    head_width,
    kv_heads,
    matrices,
    shared_width,
)
from gpuwatch.domain.plan.architectures.model_keys import ConfigKeys, config_text, model_types, unknown_keys
from gpuwatch.domain.plan.architectures.quantisation import Quantisation, quantisation_of
from gpuwatch.domain.plan.architectures.transformer_shape import TransformerShape

_ABOVE: Final = ("vocab_size", "tie_word_embeddings")  # may be stated outside of the text model
_PREDICTING: Final = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_NESTED: Final = ("attn_config", "ffn_config")
_TEXT_PARTS: Final = ("thinker_config", "text_config", "llm_config", "language_config", "language_model_config")
# keys of structures that are not understood, whatever the model type
_OTHER_LAYERS: Final = (
    "block_configs", "num_zero_experts", "zero_expert_num", "swa_num_key_value_heads", "hybrid_layer_pattern",
    "compress_rates", "compress_ratios",
)  # fmt: skip


class ConfiguredModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a config.json says about the size of its model."""

    shape: TransformerShape
    quantisation: Quantisation | None
    remarks: tuple[str, ...]  # what is not understood, or not counted


def read_config(fields: Mapping[str, Any]) -> ConfiguredModel:
    """Read a config.json.

    Raises:
        ValueError: a key is missing or invalid, or the structure is not understood.
    """
    outer, keys = _text_keys(fields)
    if other := next((key for key in _OTHER_LAYERS if keys.fields.get(key)), None):
        raise ValueError(f"{other}: its layers differ; pass its size instead, such as 70B")
    known = model_types().get(keys.kind)
    if known is not None and known.refused:
        raise ValueError(f"model_type {keys.kind}: {known.refused}; pass its size instead, such as 70B")
    if keys.kind in ENCODER_DECODERS:
        shape = encoder_decoder_shape(keys)
    elif keys.kind in ENCODERS:
        shape = encoder_shape(keys)
    else:
        shape = _decoder_shape(outer, keys)
    return ConfiguredModel(
        shape=shape,
        quantisation=quantisation_of(fields, keys, shape),
        remarks=tuple(_remarks(fields, outer, keys, is_known=known is not None)),
    )


def _text_keys(fields: Mapping[str, Any]) -> tuple[ConfigKeys, ConfigKeys]:
    """The outermost level, and the level of the text model."""
    outer = keys = ConfigKeys(_stated_type(fields), fields)
    while (inner := _inner(outer, keys)) is not None:
        if inner.fields is not keys.fields:  # what is outside of the text model belongs to the outermost level
            around = {name: value for name, value in outer.fields.items() if name not in keys.fields}
            outer = ConfigKeys(keys.kind or outer.kind, {**keys.fields, **around})
        keys = inner
    known = model_types().get(keys.kind)
    nested = [part for name in _NESTED if isinstance(part := keys.fields.get(name), Mapping)]
    if nested:  # DBRX and MPT
        keys = ConfigKeys(keys.kind, {**{k: v for part in nested for k, v in part.items()}, **keys.fields}, keys.outer)
    if known and known.like:
        keys = ConfigKeys(known.like, {**known.defaults, **keys.fields}, keys.outer)
    return outer, keys


def _inner(outer: ConfigKeys, keys: ConfigKeys) -> ConfigKeys | None:
    """The text model inside of a level; None: this level is the text model."""
    known = model_types().get(keys.kind)
    parts = known.parts if known else {}
    name = next((name for name in _TEXT_PARTS if isinstance(keys.fields.get(name), Mapping)), None)
    if name is None:  # its keys are beside those of the other parts
        by_type = next((parts[name] for name in _TEXT_PARTS if name in parts), None)
        return ConfigKeys(by_type, keys.fields, keys.outer) if by_type else None
    inner, above = keys.fields[name], {}
    for key in _ABOVE:
        sources = (keys.fields.get(key), outer.fields.get(key), keys.get(key), outer.get(key))
        above[key] = next((value for value in sources if value is not None), None)
    kind = _stated_type(inner) or parts.get(name, "")
    text_type = model_types().get(kind)
    if not _states_tied(keys, outer) and text_type and text_type.defaults.get("tie_word_embeddings") is False:
        above["tie_word_embeddings"] = False  # Mistral Small 3.1 leaves the key out, and has an output layer of its own
    said = {key: keys.fields[key] for key in ("tie_word_embeddings",) if keys.fields.get(key) is not None}
    return ConfigKeys(kind, {**inner, **said}, above)


def _states_tied(*levels: ConfigKeys) -> bool:
    return any(level.fields.get("tie_word_embeddings") is not None for level in levels)


def _stated_type(fields: Mapping[str, Any]) -> str:
    stated = fields.get("model_type")
    return stated if isinstance(stated, str) else ""


def _decoder_shape(outer: ConfigKeys, keys: ConfigKeys) -> TransformerShape:
    layers, hidden = layer_count(keys), keys.whole("hidden_size")
    kinds = layer_kinds(keys, layers)
    sums = LayerSums()
    first_reuse = layers - keys.whole("num_kv_shared_layers", default=0)
    for at, (mixer, feed_forward) in enumerate(kinds):
        add_mixer(sums, keys, mixer, reuses=at >= first_reuse)
        add_feed_forward(sums, keys, feed_forward, reuses=at >= first_reuse)
    mixers, inner = {mixer for mixer, _ in kinds}, {kind for _, kind in kinds}
    attends = bool(mixers & {Mixer.ATTENTION, Mixer.WINDOW, Mixer.CROSS, Mixer.BOTH})
    has_experts = FeedForward.EXPERTS in inner
    return TransformerShape(
        layers=layers,
        hidden=hidden,
        heads=keys.whole("num_attention_heads") if attends else 1,
        kv_heads=kv_heads(keys) if attends else 1,
        head_dim=head_width(keys) if attends else 0,
        ffn=expert_width(keys) if has_experts else dense_width(keys) if FeedForward.DENSE in inner else 2 * hidden,
        vocab=keys.whole("vocab_size"),
        tied=keys.flag("tie_word_embeddings"),
        matrices=matrices(keys),
        experts=expert_count(keys) if has_experts else 1,
        used=keys.whole("num_experts_per_tok", default=1) if has_experts else 1,
        shared=shared_width(keys) if has_experts else 0,
        own=sums.linears,
        caches=sums.caches,
        state=sums.state,
        beside=(*positions_of(keys, hidden), *encoders_of(outer), *other_embeddings(keys, hidden)),
    )


def _remarks(fields: Mapping[str, Any], outer: ConfigKeys, keys: ConfigKeys, *, is_known: bool) -> Iterator[str]:
    """What is not understood, and what is not counted."""
    if keys.kind and not is_known:
        yield f"model_type {config_text(keys.kind)} is unknown: counted as a transformer like Llama"
    for name, fault in unread_encoders(outer):
        yield f"not counted: {name} ({fault})"
    if unknown := unknown_keys(keys, fields if outer is keys or keys.fields is fields else {}):
        yield f"keys that are not understood, and may change the size: {', '.join(unknown)}"
    extra = next((keys.whole(name) for name in _PREDICTING if keys.fields.get(name)), 0)
    if extra:
        yield f"not counted: {extra} further layers that predict several tokens at once"
