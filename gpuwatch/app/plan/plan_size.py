"""The memory that a model needs, by parts, and the cards that hold it; the known models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.domain.market.spellings import fold
from gpuwatch.domain.plan.architectures.language_models import ListedModel, model_index
from gpuwatch.domain.plan.memory_need import (
    MEMORY_METHOD_TEXT,
    OVERHEAD_GB,
    CardFit,
    MemoryNeed,
    MemoryPart,
    fitting_cards,
    memory_need,
    published_weights,
)
from gpuwatch.domain.plan.network_speed import passes_per_s
from gpuwatch.domain.plan.roofline import TrainingMethod
from gpuwatch.domain.plan.throughput import measured_peak
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.plan.plan_schema import SizeRequest
    from gpuwatch.domain.plan.workload import Workload


def memory_needed(work: Workload) -> MemoryNeed:
    """The memory that a workload needs: as the owner measured it, else by parts. Raises UsageError."""
    try:
        needed = memory_need(work)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault
    row = measured_peak(throughput_table(), work)
    if row is None or row.peak_gb is None:
        return needed
    measured = MemoryPart("measured", row.peak_gb, f"{row.publication}, on {row.gpu}")
    return msgspec.structs.replace(needed, measured=measured)


def fitting_cards_of(needed: MemoryNeed, request: SizeRequest) -> list[CardFit]:
    """The cards that hold it, or the named ones among them. Raises UsageError: no GPU has a name."""
    names = [name for text in request.gpu for name in gpu_names_of(text)]
    return fitting_cards(needed, request.max_cards, names or None, 1 - request.fill / 100)


def plan_size_json(needed: MemoryNeed, card_fits: Sequence[CardFit], fill: float) -> dict[str, Any]:
    """JSON of `gpuwatch plan size`."""
    work = needed.workload
    return {
        "method": MEMORY_METHOD_TEXT,
        "model": work.model.name,
        "params": work.model.params,
        "shape_from": work.model.like or work.model.name,
        "workload": work.method.value,
        "precision": work.precision.value,
        "quantisation": _quantisation_json(work),
        "kv_bytes_token": 2 * work.model.shape.cached_values,
        "remarks": list(work.model.remarks),
        "optimizer": work.optimizer if work.trains else None,
        "batch": work.batch,
        "context": work.context,
        "parts": [{"name": part.name, "gb": part.gb, "how": part.how} for part in needed.parts],
        "counted_gb": needed.counted_gb,
        "measured": None if needed.measured is None else {"gb": needed.measured.gb, "by": needed.measured.how},
        "total_gb": needed.gb,
        "overhead_gb_card": OVERHEAD_GB,
        "reserve": round(1 - fill / 100, 6),
        "network": _network_json(work),
        "fits": [
            {
                "gpu": fit.gpu.name,
                "passes_per_s": None if (span := passes_per_s(work, fit.gpu)) is None else list(span),
                "cards": fit.cards,
                "least_cards": fit.least,
                "memory_gib": fit.gpu.memory_gib,
                "filled": round(fit.filled, 4),
                "nvlink": fit.gpu.nvlink,
                "tensor_cores": fit.gpu.has_tensor_cores,
                "against": list(fit.against),
            }
            for fit in card_fits
        ],
    }


def _network_json(work: Workload) -> dict[str, Any] | None:
    """What is counted of a diffusion, vision or speech model; None: it is a language model."""
    network = work.model.network
    if network is None:
        return None
    return {"kind": network.kind, "unit": network.unit, "tflop": network.flop / 1e12, "source": network.source}


def _quantisation_json(work: Workload) -> dict[str, Any] | None:
    """The quantisation of the published weights, and whether it is what was counted."""
    stated = work.model.quantisation
    if stated is None:
        return None
    return msgspec.structs.asdict(stated) | {"counted": published_weights(work) is not None}


def published_text(work: Workload) -> list[str]:
    """How the published weights are quantised, and whether that is what is counted; empty: they are not."""
    if (stated := work.model.quantisation) is None:
        return []
    if published_weights(work) is not None:
        return [stated.text]
    held = "4 bits" if work.method is TrainingMethod.QLORA else work.precision.value
    return [f"the published weights are quantised ({stated.method}); counted here in {held}"]


# --- the known models -------------------------------------------------------------------------------------------------


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
