"""Checks for doubtful price files: a whole GPU family that jumps at once, and prices that never move. Pure.

A wrong unit, a wrong column or a rate card would otherwise pass as a market, and a backtest would overstate savings.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from gpuwatch.domain.history.poll_timeline import Ints
from gpuwatch.domain.history.price_columns import NO_LISTING, OfferIndex, PriceColumns, PriceSource
from gpuwatch.domain.market.offer import OfferKind

JUMP = 5.0  # factor by which both quartiles and the median must change
_FAMILY_OFFERS = 3  # fewer offers are not enough to call it a jump
_SAME_SIZE = 1.5  # up to this ratio of offer counts it is the same part of the market (assumed)
_CARD_OFFERS, _CARD_MOMENTS, _CARD_S = 5, 5, 7 * 86_400  # assumed: a market of five offers moves within a week


class PriceJump(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU family whose prices all changed by a large factor from one moment to the next.

    Attributes:
        before: median GPU price, micro-dollars per hour.
        after: the same at `at_s`.
    """

    provider: str
    gpu_family: str
    spot: bool
    at_s: int
    before: int
    after: int


class _Quartiles(NamedTuple):
    at_s: int
    offers: int
    prices: tuple[int, int, int]


class FeedChecks:
    """Reads the rows of a file in parts, in the file's order; no moment is split between parts."""

    def __init__(self, index: OfferIndex) -> None:
        self._index = index
        self.jumps: list[PriceJump] = []
        self._last: dict[int, _Quartiles] = {}
        families: dict[tuple[PriceSource, str, bool], int] = {}
        family, gpus = [], []
        for place, facts in enumerate(index.facts):
            source = index.sources[int(index.source[place])]
            name = "" if facts is None else facts.gpu_family
            family.append(families.setdefault((source, name, bool(index.spot[place])), len(families)))
            gpus.append(1 if facts is None else facts.gpu_count)
        self._families = list(families)
        self._family, self._gpus = np.array(family, np.int64), np.array(gpus, np.int64)
        listings = len(index.identities)
        self._least, self._most = np.full(listings, np.iinfo(np.int64).max), np.zeros(listings, np.int64)
        self._rows = np.zeros(listings, np.int64)

    def add(self, rows: PriceColumns) -> None:
        """Check one part."""
        rows = rows.where(self._index.listing[rows.offer] != NO_LISTING)
        if not len(rows.at_s):
            return
        listing = self._index.listing[rows.offer]
        np.minimum.at(self._least, listing, rows.microusd)
        np.maximum.at(self._most, listing, rows.microusd)
        self._rows += np.bincount(listing, minlength=len(self._rows))
        self._look_for_jumps(self._family[rows.offer], rows.at_s, rows.microusd // self._gpus[rows.offer])

    def rate_cards(self, moments: dict[PriceSource, Ints]) -> list[str]:
        """The providers whose prices are marked as live but never change.

        Args:
            moments: the times of each source.
        """
        kinds: dict[PriceSource, list[int]] = {}
        for number, (identity, kind) in enumerate(self._index.identities):
            kinds.setdefault((identity.provider, kind), []).append(number)
        return sorted(
            source[0]
            for source, numbers in kinds.items()
            if source in moments  # not if all its rows were skipped
            and source[1] is not OfferKind.LISTED
            and self._never_moves(np.array(numbers), moments[source])
        )

    def _never_moves(self, listings: Ints, moments: Ints) -> bool:
        again = listings[self._rows[listings] > 1]
        if len(again) < _CARD_OFFERS or len(moments) < _CARD_MOMENTS or moments[-1] - moments[0] < _CARD_S:
            return False
        return bool((self._least[again] == self._most[again]).all())

    def _look_for_jumps(self, family: Ints, at_s: Ints, gpu_microusd: Ints) -> None:
        order = np.lexsort((gpu_microusd, at_s, family))
        family, at_s, gpu_microusd = family[order], at_s[order], gpu_microusd[order]
        begins = np.flatnonzero(np.append(True, (family[1:] != family[:-1]) | (at_s[1:] != at_s[:-1])))
        many = np.diff(np.append(begins, len(family)))
        begins, many = begins[many >= _FAMILY_OFFERS], many[many >= _FAMILY_OFFERS]
        quartiles = [gpu_microusd[begins + (many - 1) * quarter // 4].tolist() for quarter in (1, 2, 3)]
        columns = (family[begins].tolist(), at_s[begins].tolist(), many.tolist(), *quartiles)
        for number, moment, offers, *prices in zip(*columns, strict=True):
            self._compare(number, _Quartiles(moment, offers, (prices[0], prices[1], prices[2])))

    def _compare(self, family: int, now: _Quartiles) -> None:
        last = self._last.get(family)
        self._last[family] = now
        if last is None or last.at_s >= now.at_s:
            return
        if max(last.offers, now.offers) > _SAME_SIZE * min(last.offers, now.offers):
            return  # the offers changed, not the prices: an incomplete poll, or part of the market left
        pairs = list(zip(last.prices, now.prices, strict=True))
        if all(after >= JUMP * before for before, after in pairs) or all(
            before >= JUMP * after for before, after in pairs
        ):
            (provider, _), name, spot = self._families[family]
            self.jumps.append(
                PriceJump(
                    provider=provider,
                    gpu_family=name,
                    spot=spot,
                    at_s=now.at_s,
                    before=last.prices[1],
                    after=now.prices[1],
                )
            )
