"""The index of published models, `language-models.csv`: shapes as stated in their config.json.

A name is looked up as on Hugging Face, without its publisher, or without parts that do not change the shape
("-Instruct", "-it", "-hf", a version of the weights).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from csv import DictReader
from difflib import get_close_matches
from functools import cache
from typing import Final

import msgspec

from gpuwatch.domain.market.spellings import fold
from gpuwatch.domain.plan.architectures.quantisation import Quantisation, published_quantisation
from gpuwatch.domain.plan.architectures.transformer_shape import TransformerShape

_NOT_SHAPE: Final = r"[-_ ](?:instruct|it|chat|base|hf|pt|thinking|think|v0\.[123]|2507|inst)(?=$|[-_ ])"
_DATE: Final = r"date: (\d{4}-\d\d-\d\d)"


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
    fields = {key: int(row[key]) for key in _shape_fields() if row.get(key)}
    shape = TransformerShape(**fields | {"tied": bool(row["tied"])})  # type: ignore[arg-type]
    return ListedModel(
        name=row["name"],
        shape=shape,
        quantisation=published_quantisation(row["quantised"], shape) if row["quantised"] else None,
        published_params=float(row["published_b"]) * 1e9,
        published_active=float(row["active_b"]) * 1e9 if row["active_b"] else None,
        source=row["source"],
    )


def _shape_fields() -> Iterable[str]:
    return TransformerShape.__struct_fields__
