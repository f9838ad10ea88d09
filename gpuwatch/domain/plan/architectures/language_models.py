"""Language models by their shape, which determines memory and arithmetic. Source: the published configs. Pure.

The index of published models, `language-models.csv`, has their shapes as stated in their config.json. A name is looked
up as on Hugging Face, without its publisher, or without parts that do not change the shape ("-Instruct", "-it", "-hf",
a version of the weights).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from csv import DictReader
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.spellings import fold
from gpuwatch.domain.plan.architectures.encoder_models import ENCODERS
from gpuwatch.domain.plan.architectures.model_config import ConfiguredModel, read_config
from gpuwatch.domain.plan.architectures.model_keys import model_types
from gpuwatch.domain.plan.architectures.quantisation import Quantisation, published_quantisation
from gpuwatch.domain.plan.architectures.transformer_shape import TransformerShape
from gpuwatch.domain.plan.figures import parse_figure
from gpuwatch.domain.plan.networks.network_config import network_of, unread_text
from gpuwatch.domain.plan.networks.network_shape import NetworkShape

_NOT_SHAPE: Final = r"[-_ ](?:instruct|it|chat|base|hf|pt|thinking|think|v0\.[123]|2507|inst)(?=$|[-_ ])"
_DATE: Final = r"date: (\d{4}-\d\d-\d\d)"

_NO_DECODER: Final = TransformerShape(layers=1, hidden=1, heads=1, kv_heads=1, ffn=1, vocab=1)  # of other networks
_SAME = 1.2  # a size within this factor of a known model takes its shape unchanged
_GRAIN = 128  # hidden sizes are multiples of it
_SHAPES = ("GPT-2", "Llama 3.2 1B", "Llama 3.2 3B", "Llama 3.1 8B", "Qwen2.5 14B", "Qwen2.5 32B", "Llama 3.1 70B")


# keys of images and sounds that a language model does not have beside its own
_SENSES: Final = ("image_size", "patch_size", "num_channels", "conv_dim", "num_mel_bins", "backbone_config")
_PARTS: Final = ("vision_config", "audio_config", *_SENSES)


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the index."""

    name: str  # on Hugging Face, with its publisher
    shape: TransformerShape
    published_params: float  # counted in the published files, or from the model card
    published_active: float | None  # from the model card; None: not stated, or all parameters
    source: str  # where the shape was read; see `sources` of the index
    quantisation: Quantisation | None = None  # of the published weights

    @property
    def short_name(self) -> str:
        """The name without its publisher."""
        return self.name.rpartition("/")[2]


class ModelIndex(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, the date of collection, and their sources."""

    date: str
    sources: dict[str, str]
    models: tuple[ListedModel, ...]


@cache
def model_index() -> ModelIndex:
    """The index, read once."""
    path = os.path.join(os.path.dirname(__file__), "language-models.csv")
    lines = __spec__.loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    remarks = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    date = next(found[1] for line in remarks if (found := re.search(_DATE, line)))
    rows = DictReader(line for line in lines if not line.startswith("#"))
    return ModelIndex(
        date=date,
        sources=dict(line.split(": ", maxsplit=1) for line in remarks[1:]),
        models=tuple(_listed(row) for row in rows),
    )


def find_listed(text: str) -> ListedModel | None:
    """Find a model by its name, or by an unambiguous prefix of one; None: it is not in the index."""
    names = _names()
    if found := next((names[key] for key in _keys(text) if key in names), None):
        return found
    start = fold(text)
    begin = [model for model in model_index().models if start and fold(model.short_name).startswith(start)]
    return begin[0] if len(begin) == 1 else None


def near_names(text: str) -> list[str]:
    """Up to three similar names."""
    short = {fold(model.short_name): model.short_name for model in model_index().models}
    return [short[key] for key in get_close_matches(fold(text.rpartition("/")[2]), short, 3, 0.7)]


@cache
def _names() -> dict[str, ListedModel]:
    found: dict[str, ListedModel] = {}
    keys = [(_keys(model.name), model) for model in model_index().models]
    for depth in range(3):  # an exact name before one without its publisher, and the latter before an abbreviated name
        for forms, one in keys:
            found.setdefault(forms[depth], one)
    return found


def _keys(name: str) -> tuple[str, str, str]:
    short = name.strip().rpartition("/")[2]
    plain = re.sub(_NOT_SHAPE, "", re.sub(_NOT_SHAPE, "", short.lower())).removeprefix("meta-")
    return fold(name), fold(short), fold(plain)


def _listed(row: dict[str, str]) -> ListedModel:
    fields = {key: int(row[key]) for key in TransformerShape.__struct_fields__ if row.get(key)}
    shape = TransformerShape(**fields | {"tied": bool(row["tied"])})  # type: ignore[arg-type]
    return ListedModel(
        name=row["name"],
        shape=shape,
        quantisation=published_quantisation(row["quantised"], shape) if row["quantised"] else None,
        published_params=float(row["published_b"]) * 1e9,
        published_active=float(row["active_b"]) * 1e9 if row["active_b"] else None,
        source=row["source"],
    )


class LanguageModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to run or train. `like` names the known model whose shape was used or scaled; None: its own shape."""

    name: str
    params: float
    active_params: float  # used per token: fewer than `params` in a mixture of experts
    shape: TransformerShape
    like: str | None = None
    quantisation: Quantisation | None = None  # of the published weights
    remarks: tuple[str, ...] = ()  # what its config.json leaves open
    network: NetworkShape | None = None  # of a diffusion, vision or speech model, whose memory is counted by its blocks


def _known(name: str, billions: float, shape: TransformerShape, active: float | None = None) -> LanguageModel:
    return LanguageModel(name=name, params=billions * 1e9, active_params=(active or billions) * 1e9, shape=shape)


MODELS = (
    _known(
        "GPT-2", 0.124, TransformerShape(12, 768, 12, 12, 2048, 50257, tied=True)
    ),  # 4 h twice equals 8/3 h three times
    _known("Llama 3.2 1B", 1.236, TransformerShape(16, 2048, 32, 8, 8192, 128256, tied=True)),
    _known("Llama 3.2 3B", 3.213, TransformerShape(28, 3072, 24, 8, 8192, 128256, tied=True)),
    _known("Llama 2 7B", 6.738, TransformerShape(32, 4096, 32, 32, 11008, 32000)),
    _known("Mistral 7B", 7.242, TransformerShape(32, 4096, 32, 8, 14336, 32000)),
    _known("Qwen2.5 7B", 7.616, TransformerShape(28, 3584, 28, 4, 18944, 152064)),
    _known("Llama 3.1 8B", 8.030, TransformerShape(32, 4096, 32, 8, 14336, 128256)),
    _known("Llama 2 13B", 13.016, TransformerShape(40, 5120, 40, 40, 13824, 32000)),
    _known("Qwen2.5 14B", 14.77, TransformerShape(48, 5120, 40, 8, 13824, 152064)),
    _known("Qwen2.5 32B", 32.764, TransformerShape(64, 5120, 40, 8, 27648, 152064)),
    _known("Mixtral 8x7B", 46.703, TransformerShape(32, 4096, 32, 8, 14336, 32000, experts=8), active=12.75),
    _known("Llama 2 70B", 68.977, TransformerShape(80, 8192, 64, 8, 28672, 32000)),
    _known("Llama 3.1 70B", 70.554, TransformerShape(80, 8192, 64, 8, 28672, 128256)),
    _known("Qwen2.5 72B", 72.706, TransformerShape(80, 8192, 64, 8, 29568, 152064)),
    _known("Mixtral 8x22B", 140.63, TransformerShape(56, 6144, 48, 8, 16384, 32768, experts=8), active=38.95),
    _known("Llama 3.1 405B", 405.853, TransformerShape(126, 16384, 128, 8, 53248, 128256)),
)
_NAMED = {fold(model.name): model for model in MODELS}
_TYPICAL = tuple(model for model in MODELS if model.name in (*_SHAPES, "Llama 3.1 405B"))


def model_of(text: str) -> LanguageModel:
    """Find a model by its name, or build one of this size ("70B"). Raises ValueError: what was expected."""
    if (known := _NAMED.get(fold(text))) is not None:
        return known
    try:
        return of_size(parse_figure(text), text.strip())
    except ValueError:
        pass
    if (listed := find_listed(text)) is not None:
        return LanguageModel(
            name=listed.short_name,
            params=listed.shape.params,
            active_params=listed.shape.active_params,
            shape=listed.shape,
            quantisation=listed.quantisation,
        )
    near = near_names(text)
    hint = f"did you mean {' or '.join(near)}?" if near else "`gpuwatch plan models` lists more"
    raise ValueError(f'expected a number of parameters such as "70B", or a model such as "Llama 3.1 70B"; {hint}')


def of_size(params: float, name: str) -> LanguageModel:
    """A dense model of known size only: with the shape of the nearest typical model, scaled if necessary."""
    near = min(_TYPICAL, key=lambda model: max(model.params / params, params / model.params))
    ratio = params / near.params
    shape = near.shape if 1 / _SAME <= ratio <= _SAME else _scaled(near.shape, ratio)
    return LanguageModel(name=name, params=params, active_params=params, shape=shape, like=near.name)


def model_from_config(fields: Mapping[str, Any], name: str) -> LanguageModel:
    """A model from its own `config.json`, as published. Raises ValueError: a field is missing or invalid."""
    network = network_of(fields)
    if network is not None and fields.get("model_type") != "whisper":
        params = float(network.params)
        return LanguageModel(name=name, params=params, active_params=params, shape=_NO_DECODER, network=network)
    read = _read(fields)
    return LanguageModel(
        name=name,
        params=read.shape.params,
        active_params=read.shape.active_params,
        shape=read.shape,
        quantisation=read.quantisation,
        remarks=read.remarks,
        network=network,
    )


def _read(fields: Mapping[str, Any]) -> ConfiguredModel:
    """A language model's config.json. Raises ValueError; of an unknown type that lacks a key, the type is wrong."""
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind in model_types():
        return read_config(fields)
    if _sees_or_hears(fields):
        raise ValueError(unread_text("model_type", kind))
    try:
        return read_config(fields)
    except ValueError as fault:
        if isinstance(fields.get("text_config"), Mapping):
            raise
        raise ValueError(f"{unread_text('model_type', kind)}; as a language model: {fault}") from fault


def _sees_or_hears(fields: Mapping[str, Any]) -> bool:
    """Is it a network of images or sounds? One that joins a known language model with them is not."""
    text = fields.get("text_config")
    if not isinstance(text, Mapping):
        return any(fields.get(key) is not None for key in _SENSES)
    kind = text.get("model_type")
    speaks = isinstance(kind, str) and kind in model_types() and kind not in ENCODERS
    return not speaks and any(fields.get(key) is not None for key in _PARTS)


def _scaled(shape: TransformerShape, ratio: float) -> TransformerShape:
    """Scale depth and width alike: parameters are proportional to layers × hidden²."""
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
