"""Language models by their shape, which determines memory and arithmetic. Figures: the published configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuwatch.domain.market.gpu_names import fold
from gpuwatch.domain.planning.figures import parse_figure

_SAME = 1.2  # a size within this factor of a known model takes its shape unchanged
_GRAIN = 128  # hidden sizes are multiples of it


class TransformerShape(msgspec.Struct, frozen=True):
    """The dimensions of a transformer decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int  # fewer than heads: grouped queries
    ffn: int  # inner width of the gated feed-forward layer
    vocab: int
    experts: int = 1
    tied: bool = False  # input and output embeddings are shared

    @property
    def kv_width(self) -> int:
        """Width of all keys of a token, in one layer."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def params(self) -> float:
        """Number of weights; norms and biases, below a thousandth, are left out."""
        attention = 2 * self.hidden * (self.hidden + self.kv_width)
        layer = attention + 3 * self.hidden * self.ffn * self.experts
        return float(self.layers * layer + self.vocab * self.hidden * (1 if self.tied else 2))


class LanguageModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to run or train. `like` names the known model whose shape was used or scaled; None: its own."""

    name: str
    params: float
    active_params: float  # used per token: fewer than `params` in a mixture of experts
    shape: TransformerShape
    like: str | None = None


def _known(name: str, billions: float, shape: TransformerShape, active: float | None = None) -> LanguageModel:
    return LanguageModel(name=name, params=billions * 1e9, active_params=(active or billions) * 1e9, shape=shape)


MODELS = (
    _known(
        "GPT-2", 0.124, TransformerShape(12, 768, 12, 12, 2048, 50257, tied=True)
    ),  # 4 h twice is as much as 8/3 h thrice
    _known("Llama 3.2 1B", 1.236, TransformerShape(16, 2048, 32, 8, 8192, 128256, tied=True)),
    _known("Llama 3.2 3B", 3.213, TransformerShape(28, 3072, 24, 8, 8192, 128256, tied=True)),
    _known("Llama 2 7B", 6.738, TransformerShape(32, 4096, 32, 32, 11008, 32000)),
    _known("Mistral 7B", 7.242, TransformerShape(32, 4096, 32, 8, 14336, 32000)),
    _known("Qwen2.5 7B", 7.616, TransformerShape(28, 3584, 28, 4, 18944, 152064)),
    _known("Llama 3.1 8B", 8.030, TransformerShape(32, 4096, 32, 8, 14336, 128256)),
    _known("Llama 2 13B", 13.016, TransformerShape(40, 5120, 40, 40, 13824, 32000)),
    _known("Qwen2.5 14B", 14.77, TransformerShape(48, 5120, 40, 8, 13824, 152064)),
    _known("Qwen2.5 32B", 32.764, TransformerShape(64, 5120, 40, 8, 27648, 152064)),
    _known("Mixtral 8x7B", 46.703, TransformerShape(32, 4096, 32, 8, 14336, 32000, experts=8), active=12.88),
    _known("Llama 2 70B", 68.977, TransformerShape(80, 8192, 64, 8, 28672, 32000)),
    _known("Llama 3.1 70B", 70.554, TransformerShape(80, 8192, 64, 8, 28672, 128256)),
    _known("Qwen2.5 72B", 72.706, TransformerShape(80, 8192, 64, 8, 29568, 152064)),
    _known("Mixtral 8x22B", 140.63, TransformerShape(56, 6144, 48, 8, 16384, 32768, experts=8), active=39.15),
    _known("Llama 3.1 405B", 405.853, TransformerShape(126, 16384, 128, 8, 53248, 128256)),
)
_SHAPES = ("GPT-2", "Llama 3.2 1B", "Llama 3.2 3B", "Llama 3.1 8B", "Qwen2.5 14B", "Qwen2.5 32B", "Llama 3.1 70B")
_TYPICAL = tuple(model for model in MODELS if model.name in (*_SHAPES, "Llama 3.1 405B"))


def model_of(text: str) -> LanguageModel:
    """A known model by its name, or one of this size ("70B"). Raises ValueError: what was expected."""
    named = {fold(model.name): model for model in MODELS}
    if (known := named.get(fold(text))) is not None:
        return known
    try:
        return of_size(parse_figure(text), text.strip())
    except ValueError:
        names = ", ".join(model.name for model in MODELS)
        raise ValueError(f'expected a number of parameters such as "70B", or one of: {names}') from None


def of_size(params: float, name: str) -> LanguageModel:
    """A dense model of a known size only: with the shape of the nearest typical model, scaled if necessary."""
    near = min(_TYPICAL, key=lambda model: max(model.params / params, params / model.params))
    ratio = params / near.params
    shape = near.shape if 1 / _SAME <= ratio <= _SAME else _scaled(near.shape, ratio)
    return LanguageModel(name=name, params=params, active_params=params, shape=shape, like=near.name)


def model_from_config(fields: Mapping[str, Any], name: str) -> LanguageModel:
    """From a model's own `config.json`, as its publisher ships it. Raises ValueError: a field is missing or invalid."""
    hidden, heads = _whole(fields, "hidden_size"), _whole(fields, "num_attention_heads")
    shape = TransformerShape(
        layers=_whole(fields, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_whole(fields, "num_key_value_heads", heads),
        ffn=_whole(fields, "intermediate_size"),
        vocab=_whole(fields, "vocab_size"),
        experts=_whole(fields, "num_local_experts", 1),
        tied=fields.get("tie_word_embeddings") is True,
    )
    one = msgspec.structs.replace(shape, experts=min(shape.experts, _whole(fields, "num_experts_per_tok", 1)))
    return LanguageModel(name=name, params=shape.params, active_params=one.params, shape=shape)


def _whole(fields: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**7:
        raise ValueError(f"{key}: expected a whole number above 0")
    return value


def _scaled(shape: TransformerShape, ratio: float) -> TransformerShape:
    """Depth and width scale alike: parameters are proportional to layers × hidden²."""
    by = ratio ** (1 / 3)
    hidden = max(_GRAIN, round(shape.hidden * by / _GRAIN) * _GRAIN)
    heads = max(1, hidden // (shape.hidden // shape.heads))
    heads = max(1, 1 << (heads.bit_length() - 1))
    return TransformerShape(
        layers=max(1, round(shape.layers * by)),
        hidden=hidden,
        heads=heads,
        kv_heads=min(shape.kv_heads, heads),
        ffn=max(_GRAIN, round(shape.ffn * by / _GRAIN) * _GRAIN),
        vocab=shape.vocab,
        tied=shape.tied,
    )
