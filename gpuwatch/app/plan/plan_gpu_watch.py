"""The `[[watch]]` for a result of `plan fit` and `plan size`: GPUs that hold the work, their number, and a price."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final

from gpuwatch import providers
from gpuwatch.app.plan.plan_fit import disk_gb
from gpuwatch.app.plan.plan_watch import MEMORY, RELIABILITY, host_clauses, reliability_floor, watch_toml
from gpuwatch.domain.plan.job_data import data_of
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_fit import FitPlan, FitRequest
    from gpuwatch.domain.plan.memory_need import CardFit, MemoryNeed

_STEP: Final = Decimal("0.0001")  # limits are rounded up to it, so that the current offer stays under its own limit


def fit_watch(name: str, request: FitRequest, plan: FitPlan) -> str | None:
    """The best class at its current price, as TOML; None: no class with a plausible price fits."""
    best = next((choice for choice in plan.ranked.choices if not choice.too_cheap), None)
    if best is None:
        return None
    priced = best.priced
    memory_gib = best.gpu.memory_gib if priced.provider is None else priced.memory_gib
    clauses = {
        "name": name,
        "gpu": best.gpu.name,
        "gpu_count": _counts(best.needed, max(best.needed, priced.cards)),
        "max_price": (best.usd_hour / priced.cards).quantize(_STEP, ROUND_CEILING),
        "providers": [request.provider.removesuffix(":listed")] if request.provider else None,
        "spot": "only" if priced.spot else None,
        "listed": priced.listed or None,
        "disk_gb": disk_gb(request),
        "min_vram_gib": None if memory_gib is None else floor(memory_gib * MEMORY),
        **host_clauses([priced.provider or ""], reliability_floor(priced, is_polled=request.poll)),
    }
    return watch_toml({"[[watch]]": clauses})


def size_watch(name: str, needed: MemoryNeed, card_fits: Sequence[CardFit], max_price: float) -> str:
    """The cards without reasons against them that hold the work in the smallest number, as TOML. Raises UsageError."""
    good = [card_fit for card_fit in card_fits if not card_fit.against]
    if not good:
        raise UsageError(f"--watch {name!r}: no card holds it without a caveat; use --gpu, or plan fit")
    cards = [card_fit for card_fit in good if card_fit.cards == good[0].cards]
    clauses: dict[str, Any] = {
        "name": name,
        "gpu": [card_fit.gpu.name for card_fit in cards],
        "gpu_count": cards[0].cards,
        "max_price": max_price,
        "disk_gb": ceil(data_of(needed.workload, None).disk_gb),
        "min_vram_gib": floor(min(card_fit.gpu.memory_gib for card_fit in cards) * MEMORY),
        **host_clauses(providers.names(), RELIABILITY),
    }
    return watch_toml({"[[watch]]": clauses})


def _counts(min_count: int, max_count: int) -> int | dict[str, int]:
    return min_count if min_count == max_count else {"min": min_count, "max": max_count}
