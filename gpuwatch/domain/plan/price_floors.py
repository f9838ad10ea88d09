"""Implausibly cheap prices: far below the others of the same GPU.

Such a price is often a mistake, a trap, or a machine that fails. It is judged by the whole market: which offers can run
the job does not change the normal price of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import quantiles
from typing import Final, NamedTuple

from gpuwatch.domain.plan.card_specs import peak_flops

TOO_CHEAP: Final = 0.5  # share of the lower quartile
TOO_CHEAP_TEXT: Final = (
    "too cheap: under half of the lower quartile of that GPU's prices; a mistake, a trap, or a failing machine "
    "(include it with --any-price)"
)
_LEAST_OFFERS: Final = 5  # needed for a quartile


class MarketPrice(NamedTuple):
    """A price per GPU-hour, in any common unit."""

    gpu: str
    family: str
    spot: bool
    gpu_hour: float


_Key = Callable[[MarketPrice], tuple[tuple[str, bool], float | None]]


class PriceFloors:
    """Compares a price with the lower quartile of its GPU; with few offers, of its family, then of all GPUs per FLOP/s.

    The median is unsuitable: clouds sell the same card with many processors at several times the price.
    """

    def __init__(self, market: Iterable[MarketPrice]) -> None:
        seen = list(market)
        self._floors = [(key, _group_floors(seen, key)) for key in (_by_gpu, _by_family, _by_compute)]

    def is_too_cheap(self, one: MarketPrice) -> bool:
        """Is it below the floor of the nearest group that has enough offers?"""
        for key, least in self._floors:
            group, value = key(one)
            if group in least and value is not None:
                return value < least[group]
        return False


def _group_floors(seen: Iterable[MarketPrice], key: _Key) -> dict[tuple[str, bool], float]:
    groups: dict[tuple[str, bool], list[float]] = {}
    for price in seen:
        group, value = key(price)
        if value is not None:
            groups.setdefault(group, []).append(value)
    enough = {group: found for group, found in groups.items() if len(found) >= _LEAST_OFFERS}
    return {group: quantiles(found, n=4, method="inclusive")[0] * TOO_CHEAP for group, found in enough.items()}


def _by_gpu(one: MarketPrice) -> tuple[tuple[str, bool], float | None]:
    return (one.gpu, one.spot), one.gpu_hour


def _by_family(one: MarketPrice) -> tuple[tuple[str, bool], float | None]:
    return (one.family, one.spot), one.gpu_hour


def _by_compute(one: MarketPrice) -> tuple[tuple[str, bool], float | None]:
    flops = peak_flops(one.gpu, fp8=False)
    return ("", one.spot), one.gpu_hour / flops if flops else None
