"""The memory that a model needs and the cards that hold it, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuwatch.domain.planning.memory_need import METHOD_TEXT, OVERHEAD_GB, RESERVE

if TYPE_CHECKING:
    from gpuwatch.domain.planning.memory_need import CardFit, MemoryNeed


def plan_size_sources_json(weights: float, total: float, found: Sequence[tuple[int, float, str]]) -> dict[str, Any]:
    """JSON of `gpuwatch plan size --seed`."""
    cards = [{"gpu": name, "cards": cards, "memory_gb": memory} for cards, memory, name in found]
    return {"method": "seed", "weights_gb": weights, "input_gb": total - weights, "total_gb": total, "fits": cards}


def plan_size_json(needed: MemoryNeed, found: list[CardFit]) -> dict[str, Any]:
    """JSON of `gpuwatch plan size`."""

    work = needed.workload
    return {
        "method": METHOD_TEXT,
        "model": work.model.name,
        "params": work.model.params,
        "shape_from": work.model.like or work.model.name,
        "workload": work.method.value,
        "precision": work.precision.value,
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
            for fit in found
        ],
    }
