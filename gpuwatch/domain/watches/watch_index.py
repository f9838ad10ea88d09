"""Evaluates all watches on all offers, poll after poll; only offers that changed and could match are evaluated again.

The results always equal those of `match.matches` for each watch. Two things make it fast. An offer that is too
expensive for all watches of its GPU and count is skipped after one comparison. And the result for an offer is kept
until one of its fields changes. Time affects only whether a host stays long enough, which is checked in every update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from operator import itemgetter
from typing import Any

import msgspec

from gpuwatch.domain.market.money import Commission, OfferPrice, disk_usd_hour, listed_ceiling_usd, threshold_microusd
from gpuwatch.domain.market.offer import Offer, copy_of
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.match import NO_COMMISSION, accepts, match_of, price_for, rank
from gpuwatch.domain.watches.watch import Watch

_ROUNDING_USD = 1e-6  # dollars: more than the floating-point error when a quote is compared with a ceiling
_RANK = itemgetter(0)
# the watch's number, the price, the job's cost, the rank
_PricedMatch = tuple[int, OfferPrice, int | None, tuple[Any, ...]]
_MAX_ENTRIES = 2_000  # GPUs, or counts of one: invented ones must not fill the memory


class _CeilingAndWatches(msgspec.Struct, frozen=True):
    """The watches for one provider, GPU and count."""

    ceiling_usd: float  # no watch accepts a higher listed price for the whole offer
    # by disk: number, watch without its time clause, threshold in micro-dollars; the highest threshold first
    watches: dict[float | None, list[tuple[int, Watch, int]]]


_NO_WATCHES = _CeilingAndWatches(-1.0, {})


class WatchIndex:
    """Watches indexed by provider, GPU and count. Not thread-safe."""

    def __init__(self, watches: Sequence[Watch], commissions: Mapping[str, Commission]) -> None:
        self._watches = tuple(watches)
        self._commissions = dict(commissions)
        self._least_disk_gb = min((w.disk_gb for w in watches if w.disk_gb is not None), default=inf)
        self._by_provider = _ByProvider(self._watches, self._commissions)
        self._matched: dict[str, tuple[Offer, tuple[_PricedMatch, ...]]] = {}  # our copies of offers, and their hits

    def update(self, offers: Sequence[Offer], now: datetime) -> Mapping[str, tuple[Match, ...]]:
        """Return the accepted offers by watch name, cheapest GPU price first.

        Args:
            offers: all offers on sale now, not only new ones.
            now: aware; decides which hosts stay long enough.
        """
        found: list[list[tuple[tuple[Any, ...], Match]]] = [[] for _ in self._watches]
        before, after = self._matched, {}
        set_field = msgspec.structs.force_setattr
        for offer in self._affordable(offers):
            offer_id = offer.offer_id
            seen = before.get(offer_id)
            if seen is not None:  # our copy takes the time of the poll, which does not count as a difference
                set_field(seen[0], "observed_at", offer.observed_at)
            if seen is None or seen[0] != offer:
                seen = copy_of(offer), self._matches_of(offer, now)
            after[offer_id] = seen
            for number, price, job, order in seen[1]:
                found[number].append((order, Match(offer, price, job)))
        self._matched = after
        pairs = zip(self._watches, found, strict=True)
        return {watch.name: _in_order(watch, matched, now) for watch, matched in pairs}

    def _affordable(self, offers: Iterable[Offer]) -> list[Offer]:
        """Skip offers that are too expensive for every watch, even without the disk if a watch wants less disk."""
        wanted, least_disk_gb = self._by_provider, self._least_disk_gb
        return [
            offer
            for offer in offers
            if offer.quoted_usd_hour <= (ceiling := wanted[offer.provider][offer.gpu][offer.gpu_count].ceiling_usd)
            # a watch with a smaller disk saves at most the price of the disk
            or (offer.quoted_disk_gb > least_disk_gb and offer.quoted_usd_hour - disk_usd_hour(offer) <= ceiling)
        ]

    def _matches_of(self, offer: Offer, now: datetime) -> tuple[_PricedMatch, ...]:
        matches: list[_PricedMatch] = []
        for watches in self._by_provider[offer.provider][offer.gpu][offer.gpu_count].watches.values():
            price = price_for(watches[0][1], offer, self._commissions)
            for number, watch, threshold in watches:
                if price.price_microusd_hour > threshold:
                    break
                if accepts(watch, offer, price, now):
                    match = match_of(watch, offer, price)
                    matches.append((number, price, match.job_microusd, rank(match)))
        return tuple(matches)


class _ByProvider(dict[str, "_ByGpu"]):
    """Provider → its table, created on first use."""

    def __init__(self, watches: Sequence[Watch], commissions: Mapping[str, Commission]) -> None:
        super().__init__()
        self._watches = watches
        self._commissions = commissions

    def __missing__(self, provider: str) -> _ByGpu:
        watches = [(n, w) for n, w in enumerate(self._watches) if w.providers is None or provider in w.providers]
        timeless = [(n, msgspec.structs.replace(w, available_for_s=None)) for n, w in watches]
        self[provider] = _ByGpu(timeless, self._commissions.get(provider, NO_COMMISSION))
        return self[provider]


class _ByGpu(dict[str, "_ByCount"]):
    """GPU → its table."""

    def __init__(self, watches: Sequence[tuple[int, Watch]], commission: Commission) -> None:
        super().__init__()
        self._watches = watches
        self._commission = commission

    def __missing__(self, gpu: str) -> _ByCount:
        if len(self) >= _MAX_ENTRIES:
            self.clear()
        self[gpu] = _ByCount([(n, w) for n, w in self._watches if gpu in w.gpu_names], self._commission)
        return self[gpu]


class _ByCount(dict[int, _CeilingAndWatches]):
    """Number of GPUs → the watches for that number."""

    def __init__(self, watches: Sequence[tuple[int, Watch]], commission: Commission) -> None:
        super().__init__()
        self._watches = watches
        self._commission = commission

    def __missing__(self, count: int) -> _CeilingAndWatches:
        if len(self) >= _MAX_ENTRIES:
            self.clear()
        wanting = [(n, w) for n, w in self._watches if w.gpu_count_min <= count <= w.gpu_count_max]
        self[count] = self._of(wanting, count) if wanting else _NO_WATCHES
        return self[count]

    def _of(self, wanting: Sequence[tuple[int, Watch]], count: int) -> _CeilingAndWatches:
        ceilings = [listed_ceiling_usd(w.max_price_usd_gpu_hour, count, self._commission) for _, w in wanting]
        watches: dict[float | None, list[tuple[int, Watch, int]]] = {}
        for n, w in sorted(wanting, key=lambda one: one[1].max_price_usd_gpu_hour, reverse=True):
            watches.setdefault(w.disk_gb, []).append((n, w, threshold_microusd(w.max_price_usd_gpu_hour, count)))
        return _CeilingAndWatches(float(max(ceilings)) + _ROUNDING_USD, watches)


def _in_order(watch: Watch, found: list[tuple[tuple[Any, ...], Match]], now: datetime) -> tuple[Match, ...]:
    found.sort(key=_RANK)
    if watch.available_for_s is None:
        return tuple([match for _, match in found])
    return tuple([match for _, match in found if accepts(watch, match.offer, match.price, now)])
