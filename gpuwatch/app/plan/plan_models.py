"""The list of models for `gpuwatch plan models`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuwatch.domain.market.spellings import fold
from gpuwatch.domain.plan.architectures.model_index import ListedModel, model_index
from gpuwatch.errors import UsageError


def listed_models(search_text: str | None) -> Sequence[ListedModel]:
    """The models with a text in their name, smallest first; None: all. Raises UsageError: there is none."""
    models = [model for model in model_index().models if search_text is None or fold(search_text) in fold(model.name)]
    if not models:
        raise UsageError(f"no known model has {search_text!r} in its name; list all with: gpuwatch plan models")
    return sorted(models, key=lambda model: (model.shape.params, model.name))


def listed_models_json(models: Sequence[ListedModel]) -> dict[str, Any]:
    """JSON of `gpuwatch plan models`."""
    index = model_index()
    return {"date": index.date, "sources": index.sources, "models": [_model_json(model) for model in models]}


def _model_json(model: ListedModel) -> dict[str, Any]:
    shape = model.shape
    return {
        "name": model.name,
        "params": shape.params,
        "active_params": shape.active_params,
        "published_params": model.published_params,
        "published_active_params": model.published_active,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "experts": shape.experts,
        "experts_used": shape.used,
        "vocab": shape.vocab,
        "tied_embeddings": shape.tied,
        "kv_bytes_token": 2 * shape.cached_values,
        "source": model.source,
    }
