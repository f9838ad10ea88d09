"""Checks list prices: rows that are placeholders, and answers with far too few rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpuwatch.domain.market.offer import Offer
from gpuwatch.providers.toolkit.post_processing import ParseResult

LEAST_USD_GPU_HOUR: Final = 0.002  # less is a placeholder such as 0.00001; the cheapest real card costs ten times this
MOST_USD_GPU_HOUR: Final = 200.0  # more is a placeholder such as 999, or the price of a whole term
_FEW: Final = 0.2  # of the median: a lower price is a placeholder. source: price lists of the large clouds, 2026
_BELIEVED_AT: Final = 3  # consecutive answers with few rows until they count as normal
_ENOUGH_PLACES: Final = 3  # a median of two is meaningless


def is_plausible(usd_hour: float, gpus: float) -> bool:
    """Return whether this number of GPUs (or fraction of one) can have this price."""
    return LEAST_USD_GPU_HOUR * gpus <= usd_hour <= MOST_USD_GPU_HOUR * max(gpus, 1.0)


def without_placeholders(offers: Iterable[Offer], seen: ParseResult) -> list[Offer]:
    """Return the offers except placeholders: prices far below the median of their type over the regions."""
    offers = list(offers)
    prices: dict[object, list[float]] = {}
    for offer in offers:
        prices.setdefault(_kind(offer), []).append(offer.quoted_usd_hour)
    floors = {kind: _median(found) * _FEW for kind, found in prices.items() if len(found) >= _ENOUGH_PLACES}
    kept = [offer for offer in offers if offer.quoted_usd_hour >= floors.get(_kind(offer), 0.0)]
    for _ in range(len(offers) - len(kept)):
        seen.skip("a placeholder: far under the median of its type over the regions")
    return kept


TOO_FEW = "it shows fewer than a third of its usual prices"


class RowCountGuard:
    """Tracks the usual number of rows of a source: fewer than a third is an incomplete answer, unless it persists."""

    def __init__(self) -> None:
        self._most: dict[object, int] = {}
        self._few_in_a_row: dict[object, int] = {}

    def is_too_few(self, source: object, rows: int) -> bool:
        """Return whether this is fewer than a third of the most rows so far; the third time it becomes the norm."""
        few = self._few_in_a_row.get(source, 0) + 1
        if rows * 3 >= self._most.get(source, 0) or few >= _BELIEVED_AT:
            self._few_in_a_row[source] = 0
            self._most[source] = rows if few >= _BELIEVED_AT else max(rows, self._most.get(source, 0))
            return False
        self._few_in_a_row[source] = few
        return True


def _kind(offer: Offer) -> object:
    return offer.terms.seller, offer.terms.instance_type, offer.gpu, offer.gpu_count, offer.spot


def _median(prices: list[float]) -> float:
    """The median. The module `statistics` is not used: its import costs more than this whole module."""
    ordered, half = sorted(prices), len(prices) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
