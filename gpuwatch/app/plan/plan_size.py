"""The memory that a model needs, by parts, and the cards that hold it; the known models, and the published speeds."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.spellings import fold
from gpuwatch.domain.plan.architectures.language_models import (
    LanguageModel,
    ListedModel,
    model_from_config,
    model_index,
    model_of,
)
from gpuwatch.domain.plan.figures import parse_figure, parse_range
from gpuwatch.domain.plan.memory_need import (
    BYTES_PER_WEIGHT,
    MEMORY_METHOD_TEXT,
    OVERHEAD_GB,
    RESERVE,
    CardFit,
    MemoryNeed,
    Precision,
    TrainingMethod,
    Workload,
    fitting_cards,
    memory_need,
    published_weights,
    source_cards,
    source_gb,
)
from gpuwatch.domain.plan.roofline import SpeedTask, WorkMethod
from gpuwatch.domain.plan.throughput import MeasuredSpeed, ThroughputTable
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.plan.memory_need import WorkloadRequest


_MAX_BYTES = 1_000_000  # of a config.json


def has_model(request: WorkloadRequest) -> bool:
    """Does the request state a model?"""
    return request.params is not None or request.shape is not None


def memory_needed(request: WorkloadRequest) -> MemoryNeed:
    """The memory that a workload needs. Raises UsageError."""
    work = workload_of(request)
    try:
        return memory_need(work)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault


def fitting_cards_of(needed: MemoryNeed, gpus: Sequence[str], max_cards: int) -> list[CardFit]:
    """The cards that hold it, or the named ones among them. Raises UsageError: no GPU has a name."""
    return fitting_cards(needed, max_cards, [name for text in gpus for name in gpu_names_of(text)] or None)


def plan_size_json(needed: MemoryNeed, card_fits: Sequence[CardFit]) -> dict[str, Any]:
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
        "total_gb": needed.gb,
        "overhead_gb_card": OVERHEAD_GB,
        "reserve": RESERVE,
        "fits": [
            {
                "gpu": fit.gpu.name,
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


def workload_of(request: WorkloadRequest) -> Workload:
    """The workload that the owner stated. Raises UsageError."""
    fields = msgspec.structs.asdict(request)
    params, shape = fields.pop("params"), fields.pop("shape")
    names = {"method": TrainingMethod(request.method or "full"), "precision": Precision(request.precision or "bf16")}
    model = _model(params, shape)
    return Workload(model=model, as_published=request.precision is None, **(fields | names))


def named_model(request: WorkloadRequest) -> LanguageModel | str | None:
    """The model of a config.json, else its name as written. Raises UsageError."""
    is_file = request.shape is not None or (request.params or "").endswith(".json")
    return _model(request.params, request.shape) if is_file else request.params


def _model(params: str | None, shape: Path | None) -> LanguageModel:
    if shape is not None:
        return _shaped(shape, params)
    if params is None:
        raise UsageError("the model is missing: use --model 70B, a model's name, or its config.json")
    if params.endswith(".json"):
        return _shaped(Path(params), None)
    try:
        return model_of(params)
    except ValueError as fault:
        raise UsageError(f"model {params!r}: {fault}") from fault


def _shaped(path: Path, params: str | None) -> LanguageModel:
    try:
        text = path.read_bytes()
        fields = json.loads(text) if len(text) <= _MAX_BYTES else None
        if not isinstance(fields, dict):
            raise UsageError(f"{path}: not a model's config.json")
        model = model_from_config(fields, path.absolute().parent.name if path.name == "config.json" else path.stem)
        return model if params is None else msgspec.structs.replace(model, params=parse_figure(params))
    except OSError as fault:
        raise UsageError(f"{path}: {fault.strerror}") from fault
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"{path}: {fault}") from fault


# --- as the sources compute -------------------------------------------------------------------------------------------


class SourceSize(msgspec.Struct, frozen=True, kw_only=True):
    """Weights and input only, and the cards that hold them by nominal memory."""

    workload: Workload
    weights_gb: float
    total_gb: float
    fits: Sequence[tuple[int, float, str]]  # cards, GB of each, name


def size_as_sources(request: WorkloadRequest, gpus: Sequence[str], max_cards: int, input_gb: float) -> SourceSize:
    """Compute as the sources do. Raises UsageError."""
    work, names = workload_of(request), [name for text in gpus for name in gpu_names_of(text)]
    total = source_gb(work.model.params, work.precision, work.batch, input_gb)
    specs = [spec for spec in gpu_specs().values() if spec.memory_gib and (not names or spec.name in names)]
    fits = sorted((source_cards(total, spec.memory_gib), spec.memory_gib, spec.name) for spec in specs)
    return SourceSize(
        workload=work,
        weights_gb=source_gb(work.model.params, work.precision),
        total_gb=total,
        fits=[fit for fit in fits if fit[0] <= max_cards],
    )


def plan_size_sources_json(source_size: SourceSize) -> dict[str, Any]:
    """JSON of `gpuwatch plan size --seed`."""
    return {
        "method": "seed",
        "weights_gb": source_size.weights_gb,
        "input_gb": source_size.total_gb - source_size.weights_gb,
        "total_gb": source_size.total_gb,
        "fits": [{"gpu": name, "cards": cards, "memory_gb": memory} for cards, memory, name in source_size.fits],
    }


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


# --- published speeds -------------------------------------------------------------------------------------------------

_QLORA_BYTES = 0.516  # 4.127 bits, with the constants


@cache
def throughput_table() -> ThroughputTable:
    """All published speeds; read once."""
    text = (files("gpuwatch.domain.plan") / "throughput.toml").read_text(encoding="utf-8")
    return parse_throughput(tomllib.loads(text))


def parse_throughput(fields: dict[str, Any]) -> ThroughputTable:
    """The table of a parsed file. Raises KeyError, ValueError: a row is incomplete or impossible."""
    models = fields["models"]
    return ThroughputTable(
        tuple(_row(models, publication | row) for publication in fields["publication"] for row in publication["rows"])
    )


def _row(models: dict[str, Any], row: dict[str, Any]) -> MeasuredSpeed:
    model, method, precision = models[row["model"]], WorkMethod(row["method"]), Precision(row["precision"])
    task = SpeedTask(
        method=method,
        params=model["params"],
        active_params=model.get("active", model["params"]),
        layers=model["layers"],
        hidden=model["hidden"],
        kv_width=model["kv_width"],
        weight_bytes=_QLORA_BYTES if method is WorkMethod.QLORA else BYTES_PER_WEIGHT[precision],
        fp8=precision is Precision.FP8,
        fp32=precision is Precision.FP32,
        batch=row["batch"],
        context=row["context"],
        offload=row.get("offload", False),
    )
    return MeasuredSpeed(
        model=row["model"],
        task=task,
        gpu=row["gpu"],
        count=row["count"],
        nvlink=row.get("link") == "NVLink",
        tokens_per_s=parse_range(row["tokens_per_s"]),
        publication=row["name"],
        url=row["url"],
        date=row["date"],
    )
