"""Which cards of the catalogue hold a workload, and how many of them it takes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuwatch.domain.market.gpu_specs import GpuSpecs, gpu_specs
from gpuwatch.domain.planning.job_hours import lacks_bf16
from gpuwatch.domain.planning.memory_need import (
    MemoryNeed,
    Precision,
    cards_for,
    even_card_count,
    usable_gb,
)


class CardFit(msgspec.Struct, frozen=True, kw_only=True):
    """So many of a card hold the workload."""

    gpu: GpuSpecs
    least: int  # cards that hold it
    cards: int  # cards to rent: a count over which every layer divides evenly
    filled: float  # share of what may be filled, with `cards` of them
    against: tuple[str, ...]  # what speaks against it

    @property
    def is_even(self) -> bool:
        """Are the least cards such a count by themselves?"""
        return self.cards == self.least


def fitting_cards(needed: MemoryNeed, most_cards: int, names: Iterable[str] | None = None) -> list[CardFit]:
    """The cards that can hold it: nothing against them first, then even counts, then few cards, then small ones.

    Args:
        names: canonical names; None: the whole catalogue.
    """
    specs = gpu_specs()
    chosen = specs.values() if names is None else [specs[name] for name in names if name in specs]
    found = [fit for one in chosen if (fit := _fit(needed, one)) is not None and fit.cards <= most_cards]
    return sorted(found, key=lambda fit: (len(fit.against), not fit.is_even, fit.cards, fit.gpu.memory_gib))


def _fit(needed: MemoryNeed, gpu: GpuSpecs) -> CardFit | None:
    least = cards_for(needed.gb, gpu.memory_gib)
    if not least:
        return None
    cards = even_card_count(least, needed.workload.model.shape)
    filled = needed.gb / (cards * usable_gb(gpu.memory_gib))
    return CardFit(gpu=gpu, least=least, cards=cards, filled=filled, against=tuple(_against(needed, gpu, cards)))


def _against(needed: MemoryNeed, gpu: GpuSpecs, cards: int) -> Iterable[str]:
    """Training wants matrix units and a quick way between the cards; inference wants neither."""
    if needed.workload.precision is Precision.BF16 and lacks_bf16(gpu.name):
        yield "no bf16"
    if not needed.workload.trains:
        return
    if not gpu.has_tensor_cores:
        yield "no Tensor cores"
    if cards > 1 and not gpu.nvlink and gpu.form_factor != "OAM":  # whose boards have a mesh of their own
        yield "no NVLink"
