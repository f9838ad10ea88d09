"""Checks list prices: rows that are placeholders, and answers with far too few rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.offer import Offer
from gpuwatch.providers.toolkit.post_processing import ParseResult

MIN_USD_GPU_HOUR: Final = 0.002  # less is a placeholder such as 0.00001; the cheapest real card costs ten times this
MAX_USD_GPU_HOUR: Final = 200.0  # more is a placeholder such as 999, or the price of a whole term
_PLACEHOLDER_SHARE: Final = (
    0.2  # of the median: a lower price is a placeholder. source: price lists of the large clouds, 2026
)
_ACCEPTED_AFTER: Final = 3  # consecutive answers with few rows until they count as normal
_MIN_PRICES: Final = 3  # a median of two is meaningless


def is_plausible(usd_hour: float, gpus: float) -> bool:
    """Return whether this number of GPUs (or fraction of one) can have this price."""
    return MIN_USD_GPU_HOUR * gpus <= usd_hour <= MAX_USD_GPU_HOUR * max(gpus, 1.0)


def drop_implausible(result: ParseResult, name: str) -> None:
    """Drop offers at a price that nobody would ask, and count them. Raises NoRowUnderstood: no other is left."""
    offers, result.offers = result.offers, []
    for offer in offers:
        if is_plausible(offer.quoted_usd_hour, offer.gpu_count * offer.terms.gpu_fraction):
            result.offers.append(offer)
        else:
            result.skip("a placeholder: nobody would ask this price")
    if offers and not result.offers:
        raise result.no_usable_row(f"{name}: none of {count_text(len(offers), 'price')} can be used")


def without_placeholders(offers: Iterable[Offer], result: ParseResult) -> list[Offer]:
    """Return the offers except placeholders: prices far below the median of their type over the regions."""
    offers = list(offers)
    prices: dict[object, list[float]] = {}
    for offer in offers:
        prices.setdefault(_type_key(offer), []).append(offer.quoted_usd_hour)
    floors = {kind: _median(found) * _PLACEHOLDER_SHARE for kind, found in prices.items() if len(found) >= _MIN_PRICES}
    plausible = [offer for offer in offers if offer.quoted_usd_hour >= floors.get(_type_key(offer), 0.0)]
    for _ in range(len(offers) - len(plausible)):
        result.skip("a placeholder: far under the median of its type over the regions")
    return plausible


TOO_FEW_ROWS = "it shows fewer than a third of its usual prices"


class RowCountGuard:
    """Tracks the usual number of rows of a source: fewer than a third is an incomplete answer, unless it persists."""

    def __init__(self) -> None:
        self._max_rows: dict[object, int] = {}
        self._few_in_a_row: dict[object, int] = {}

    def is_too_few(self, source: object, rows: int) -> bool:
        """Return whether this is fewer than a third of the most rows so far; the third time it becomes the norm."""
        few_in_a_row = self._few_in_a_row.get(source, 0) + 1
        if rows * 3 >= self._max_rows.get(source, 0) or few_in_a_row >= _ACCEPTED_AFTER:
            self._few_in_a_row[source] = 0
            self._max_rows[source] = (
                rows if few_in_a_row >= _ACCEPTED_AFTER else max(rows, self._max_rows.get(source, 0))
            )
            return False
        self._few_in_a_row[source] = few_in_a_row
        return True


def _type_key(offer: Offer) -> object:
    return offer.terms.seller, offer.terms.instance_type, offer.gpu, offer.gpu_count, offer.spot


def _median(prices: list[float]) -> float:
    """The median. The module `statistics` is not used: its import costs more than this whole module."""
    sorted_prices, middle = sorted(prices), len(prices) // 2
    return sorted_prices[middle] if len(sorted_prices) % 2 else (sorted_prices[middle - 1] + sorted_prices[middle]) / 2
