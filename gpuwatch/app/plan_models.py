"""The list of models for `gpuwatch plan models`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuwatch.domain.market.spellings import fold
from gpuwatch.domain.planning.model_index import ListedModel, model_index
from gpuwatch.errors import UsageError


def listed_models(named: str | None) -> Sequence[ListedModel]:
    """The models with a text in their name, smallest first; None: all. Raises UsageError: there is none."""
    found = [one for one in model_index().models if named is None or fold(named) in fold(one.name)]
    if not found:
        raise UsageError(f"no known model has {named!r} in its name; list all with: gpuwatch plan models")
    return sorted(found, key=lambda one: (one.shape.params, one.name))


def listed_models_json(found: Sequence[ListedModel]) -> dict[str, Any]:
    """JSON of `gpuwatch plan models`."""
    index = model_index()
    return {"date": index.date, "sources": index.sources, "models": [_model_json(one) for one in found]}


def _model_json(one: ListedModel) -> dict[str, Any]:
    shape = one.shape
    return {
        "name": one.name,
        "params": shape.params,
        "active_params": shape.active_params,
        "published_params": one.published_params,
        "published_active_params": one.published_active,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "experts": shape.experts,
        "experts_used": shape.used,
        "vocab": shape.vocab,
        "tied_embeddings": shape.tied,
        "kv_bytes_token": 2 * shape.layers * shape.cached_values,
        "source": one.source,
    }
