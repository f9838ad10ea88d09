"""What each layer of a model consists of: how it mixes tokens, and its feed-forward part. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from gpuwatch.domain.plan.architectures.model_keys import ConfigKeys, config_text


class Mixer(StrEnum):
    """How a layer lets tokens see each other."""

    ATTENTION = "attention"
    WINDOW = "attention with a window"
    CROSS = "attention to images"
    MAMBA = "Mamba"
    MAMBA_2 = "Mamba 2"
    BOTH = "attention and Mamba 2"
    DELTA = "gated delta rule"
    KDA = "Kimi delta attention"
    LIGHTNING = "lightning attention"
    CONVOLUTION = "short convolution"
    RECURRENT = "gated recurrence"
    NONE = "none"


class FeedForward(StrEnum):
    """The kind of feed-forward part."""

    DENSE = "dense"
    EXPERTS = "experts"
    NONE = "none"


_WORDS: Final = {  # of `layer_types` and its like
    "attention": Mixer.ATTENTION,
    "full_attention": Mixer.ATTENTION,
    "global_attention": Mixer.ATTENTION,
    "mla_attention": Mixer.ATTENTION,
    "sliding_attention": Mixer.WINDOW,
    "local_attention": Mixer.WINDOW,
    "chunked_attention": Mixer.WINDOW,
    "mamba": Mixer.MAMBA_2,
    "mamba2": Mixer.MAMBA_2,
    "conv": Mixer.CONVOLUTION,
    "short_conv": Mixer.CONVOLUTION,
    "recurrent": Mixer.RECURRENT,
    "kda": Mixer.KDA,
    "indexed_attention": Mixer.ATTENTION,
    "deepseek_sparse_attention": Mixer.ATTENTION,
}
_LINEAR: Final = {  # what `linear_attention` is
    "granitemoehybrid": Mixer.MAMBA_2,
    "bamba": Mixer.MAMBA_2,
    "jamba": Mixer.MAMBA,
    "minimax": Mixer.LIGHTNING,
    "minimax_text_01": Mixer.LIGHTNING,
    "kimi_linear": Mixer.KDA,
}
_LETTERS: Final = {  # of `hybrid_override_pattern`: one part per layer
    "M": (Mixer.MAMBA_2, FeedForward.NONE),
    "*": (Mixer.ATTENTION, FeedForward.NONE),
    "-": (Mixer.NONE, FeedForward.DENSE),
    "E": (Mixer.NONE, FeedForward.EXPERTS),
}
_ALL_OF: Final = {  # types with layers of one kind
    "mamba": Mixer.MAMBA,
    "falcon_mamba": Mixer.MAMBA,
    "mamba2": Mixer.MAMBA_2,
    "falcon_h1": Mixer.BOTH,
}
_ALL_BY_DEFAULT: Final = {"granitemoehybrid": Mixer.MAMBA_2, "bamba": Mixer.MAMBA_2}  # unless the file says otherwise
_FULL_BY_DEFAULT: Final = {"qwen3_next": 4, "qwen3_5_text": 4, "qwen3_5_moe_text": 4, "minimax": 2}  # each n-th layer
_GRIFFIN: Final = ["recurrent", "recurrent", "attention"]  # RecurrentGemma's layers, over and over
_NAMES_OF_KINDS: Final = ("layer_types", "layers_block_type", "block_types", "_block_types")
_OTHER_NAMES: Final = (  # say the same as the former, or concern layers that this model has none of
    "attn_layer_indices", "attn_layer_offset", "attn_layer_period", "attn_type_list", "full_attention_interval",
    "conv_L_cache", "full_attn_idxs", "global_attn_every_n_layers", "interleave_moe_layer_step",
    "first_k_dense_replace", "intermediate_size_mlp", "dense_intermediate_size", "num_attention_heads",
    "num_key_value_heads", "head_dim",
)  # fmt: skip
# every n-th layer attends to all tokens, unless the file says otherwise; the others have a window
_FULL_EVERY: Final = {
    "gemma2": 2,
    "gemma3_text": 6,
    "gemma3n_text": 5,
    "gemma4_text": 6,
    "cohere2": 4,
    "gpt_oss": 2,
    "olmo3": 4,
    "exaone4": 4,
    "llama4_text": 4,
}
_NO_WINDOW: Final = frozenset({"smollm3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"})  # unless `use_sliding_window`


def layer_kinds(keys: ConfigKeys, layers: int) -> list[tuple[Mixer, FeedForward]]:
    """The kinds of all layers. Raises ValueError: a kind is unknown."""
    pattern = keys.get("hybrid_override_pattern")
    keys.read.update(_OTHER_NAMES)
    window_of(keys)
    if pattern is not None:
        pattern = pattern if isinstance(pattern, str) else ""
        unknown = sorted(set(pattern) - set(_LETTERS))
        if unknown or len(pattern) != layers:
            raise ValueError(f"hybrid_override_pattern: expected {layers} of the letters {''.join(_LETTERS)}")
        return [_LETTERS[letter] for letter in pattern]
    if keys.kind == "nemotron_h":
        return _nemotron(keys.texts("layers_block_type", "layer_types"))
    mixers = _mixers(keys, layers)
    is_sparse = _sparse_layers(keys)
    has_inner = keys.kind not in {"mamba", "mamba2", "falcon_mamba"}
    dense = FeedForward.DENSE if has_inner else FeedForward.NONE
    return [(mixer, FeedForward.EXPERTS if is_sparse(at) else dense) for at, mixer in enumerate(mixers)]


def layer_count(keys: ConfigKeys) -> int:
    """The number of layers; a hybrid model may state it by its pattern."""
    if keys.get("num_hidden_layers") is None and keys.kind == "nemotron_h":
        pattern = keys.get("hybrid_override_pattern")
        return len(pattern) if isinstance(pattern, str) else len(keys.texts("layers_block_type", "layer_types"))
    return keys.whole("num_hidden_layers")


def window_of(keys: ConfigKeys) -> int:
    """The last tokens that a layer with a window attends to; 0: there is none."""
    return keys.whole("sliding_window", "attention_chunk_size", "local_attention", "attention_window_size", default=0)


def _nemotron(words: list[str]) -> list[tuple[Mixer, FeedForward]]:
    kinds = {"mamba": _LETTERS["M"], "attention": _LETTERS["*"], "mlp": _LETTERS["-"], "moe": _LETTERS["E"]}
    if not words or not set(words) <= set(kinds):
        raise ValueError("hybrid_override_pattern: its layers are not stated")
    return [kinds[word] for word in words]


def _mixers(keys: ConfigKeys, layers: int) -> list[Mixer]:
    if keys.kind in _ALL_OF:
        return [_ALL_OF[keys.kind]] * layers
    words = keys.texts(*_NAMES_OF_KINDS) or (_GRIFFIN if keys.kind == "recurrent_gemma" else [])
    if words:
        if len(words) < layers:
            words = [words[at % len(words)] for at in range(layers)]
        return [_named_mixer(keys, word) for word in words[:layers]]
    for found in (_hybrid(keys, layers), _windowed(keys, layers)):
        if found:
            return found
    return [_ALL_BY_DEFAULT.get(keys.kind, Mixer.ATTENTION)] * layers


def _named_mixer(keys: ConfigKeys, word: str) -> Mixer:
    if keys.kind == "jamba" and word == "mamba":
        return Mixer.MAMBA
    if keys.kind == "recurrent_gemma" and word == "attention":
        return Mixer.WINDOW
    if word == "linear_attention":
        return _LINEAR.get(keys.kind, Mixer.DELTA)
    if word not in _WORDS:
        raise ValueError(f"layer_types: unknown kind of layer {config_text(word)}; pass its size instead, such as 70B")
    return _WORDS[word]


def _hybrid(keys: ConfigKeys, layers: int) -> list[Mixer]:
    """Layers of which only some attend to tokens, by the keys of each family."""
    is_full: Callable[[int], bool]
    other = Mixer.MAMBA
    if period := keys.whole("attn_layer_period", default=0):  # Jamba
        offset = keys.whole("attn_layer_offset", default=0)
        is_full = lambda at: at % period == offset  # noqa: E731
    elif keys.get("attn_layer_indices") is not None:  # Bamba
        indices = set(keys.wholes("attn_layer_indices"))
        is_full, other = lambda at: at in indices, Mixer.MAMBA_2
    elif keys.get("full_attn_idxs") is not None:  # LFM2
        places = set(keys.wholes("full_attn_idxs"))
        is_full, other = lambda at: at in places, Mixer.CONVOLUTION
    elif keys.get("attn_type_list") is not None:  # MiniMax-Text-01
        listed = keys.wholes("attn_type_list")
        is_full, other = lambda at: listed[at % len(listed)] == 1, Mixer.LIGHTNING
    elif (linear := keys.part("linear_attn_config")) is not None:  # Kimi Linear counts from 1
        full = set(linear.wholes("full_attn_layers"))
        is_full, other = lambda at: at + 1 in full, Mixer.KDA
    elif keys.get("cross_attention_layers") is not None:  # Llama 3.2 Vision
        crossing = set(keys.wholes("cross_attention_layers"))
        is_full, other = lambda at: at not in crossing, Mixer.CROSS
    elif interval := keys.whole("full_attention_interval", default=0) or _FULL_BY_DEFAULT.get(keys.kind, 0):
        is_full, other = lambda at: (at + 1) % interval == 0, _LINEAR.get(keys.kind, Mixer.DELTA)
    else:
        return []
    return [Mixer.ATTENTION if is_full(at) else other for at in range(layers)]


def _windowed(keys: ConfigKeys, layers: int) -> list[Mixer]:
    """Layers of which some have a window; the rest of `layer_types`, which older files leave out."""
    if not window_of(keys) or (keys.kind in _NO_WINDOW and not keys.flag("use_sliding_window")):
        return []
    first = keys.whole("max_window_layers", default=0) if keys.kind in _NO_WINDOW else 0
    every = keys.get("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
    if isinstance(every, str):  # EXAONE: "LLLG"
        every = len(every)
    every = every if isinstance(every, int) and every > 0 else _FULL_EVERY.get(keys.kind, 0)
    from_start = keys.kind == "modernbert"
    return [
        Mixer.ATTENTION if at < first or (every and (at + (not from_start)) % every == 0) else Mixer.WINDOW
        for at in range(layers)
    ]


def _sparse_layers(keys: ConfigKeys) -> Callable[[int], bool]:
    """Which layers have experts."""
    fewest = 0 if keys.kind == "granitemoehybrid" else 1
    has_none = keys.kind == "gemma4_text" and not keys.flag("enable_moe_block")
    if has_none or max(keys.wholes("num_experts"), default=0) <= fewest:
        return lambda _at: False
    kinds = keys.texts("mlp_layer_types", "ffn_layer_types")
    if kinds:
        return lambda at: at < len(kinds) and kinds[at] in {"sparse", "moe"}
    if isinstance(keys.get("moe_layer_freq"), list):
        chosen = keys.wholes("moe_layer_freq")
        return lambda at: at < len(chosen) and chosen[at] == 1
    if keys.get("moe_layers") is not None:
        listed = set(keys.wholes("moe_layers"))
        return lambda at: at in listed
    return _sparse_by_period(keys)


def _sparse_by_period(keys: ConfigKeys) -> Callable[[int], bool]:
    """Experts in every n-th layer, after some dense ones."""
    if period := keys.whole("expert_layer_period", default=0):  # Jamba
        offset = keys.whole("expert_layer_offset", default=0)
        return lambda at: at % period == offset
    if step := keys.whole("interleave_moe_layer_step", default=0):  # Llama 4
        return lambda at: (at + 1) % step == 0
    first, step = keys.whole("first_k_dense_replace", default=0), keys.whole("decoder_sparse_step", default=0) or 1
    every = keys.whole("moe_layer_interval", "moe_layer_freq", default=0) or 1
    last = keys.get("moe_layer_end_index")
    end = last if isinstance(last, int) and last >= 0 else MOST_LAYERS
    dense = set(keys.wholes("mlp_only_layers"))
    if keys.kind.startswith("ernie4_5"):
        return lambda at: (at + 1) % every == 0 and first <= at <= end
    return lambda at: at not in dense and at >= first and (at + 1) % step == 0 and at % every == 0


MOST_LAYERS: Final = 10_000
