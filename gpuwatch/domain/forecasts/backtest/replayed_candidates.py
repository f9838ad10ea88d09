"""The recorded prices that a watch could have paid. Pure.

- `find_candidates`: every price of a history that fits the watch;
- `fitting_offers`, `fitting_series`: the same part of the history, and its lowest price of each hour.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuwatch.domain.forecasts.backtest.replayed_offers import replayed_offer, without_unrecorded_clauses
from gpuwatch.domain.history.market_history import MarketHistory, MarketIntervals, OfferInterval, interval_columns
from gpuwatch.domain.history.price_series import PriceSeries, gpu_pricer, series_of
from gpuwatch.domain.market.money import HOURS_A_MONTH, MICRO, Commission, OfferPrice, threshold_microusd
from gpuwatch.domain.market.offer import ListedOffer, Offer
from gpuwatch.domain.watches.computed_limits import traffic_microusd_hour
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.match import NO_COMMISSION, accepts, match_of, price_for, rank
from gpuwatch.domain.watches.watch import Watch

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.wait_outcomes import Numbers
    from gpuwatch.domain.history.poll_timeline import Flags

QueryKey = tuple[str, str, bool]  # provider, GPU, spot: one query of a sweep
_ANY_PRICE_USD = Decimal(1_000_000)
PRICE_TOLERANCE = 1e-6  # more than floating-point error
NEVER_S = 2**62
_AT = datetime.fromtimestamp(0, UTC)  # no recorded clause depends on the time
_ANY_INTERVAL = OfferInterval(0, 0, 0, None, 1, None)


class ReplayedMatch(NamedTuple):
    """A candidate that may be taken, or re-arms the watch."""

    match: Match
    rank: tuple[Any, ...]
    accepted: bool  # the watch accepts it as is


class _Fit(NamedTuple):
    """A listing that fits at some price."""

    listing: ListedOffer
    key: QueryKey
    factor: float  # GPU price ÷ listed price of the whole offer
    traffic: float  # part of the GPU price: of the watch's traffic, in micro-dollars


def find_candidates(
    watch: Watch, market_history: MarketHistory, commissions: Mapping[str, Commission], reference_disk_gb: float
) -> WatchCandidates:
    """The candidates of a market history.

    Args:
        watch: without the clauses that the history cannot check.
        reference_disk_gb: the disk size in a quote without a requested disk.
    """
    return WatchCandidates(_CandidateFinder(watch, commissions, reference_disk_gb), market_history)


class QueryCandidates(NamedTuple):
    """The candidates of one query, in order of `from_s`."""

    from_s: Sequence[int] = ()
    ended_s: Sequence[int] = ()  # `NEVER_S`: still on offer
    microusd_gpu_hour: Sequence[float] = ()  # within floating-point error
    place: Sequence[int] = ()  # among the matches of the watch; -1: too expensive to be taken or to re-arm it


class WatchCandidates:
    """The candidates of one watch, by query. What is needed of most is only how long they cost how much."""

    def __init__(self, finder: _CandidateFinder, market_history: MarketHistory) -> None:
        import numpy as np  # noqa: PLC0415 most daemons read no history

        intervals = interval_columns(market_history.intervals)
        self._finder = finder
        self._fits = [finder.fit(listing) for listing in market_history.listings]
        listing, prices = np.asarray(intervals.listing), finder.gpu_prices(intervals, self._fits)
        is_near = finder.is_near(prices)
        self._near = intervals.at(np.flatnonzero(is_near))
        place = np.where(is_near, np.cumsum(is_near) - 1, -1)
        from_s, ended_s = np.asarray(intervals.from_s), np.asarray(intervals.ended_s)
        ended_s = np.where(ended_s < 0, NEVER_S, ended_s)
        columns = (from_s, ended_s, prices, place.astype(np.int32))
        numbers: dict[QueryKey | None, int] = {None: -1}
        query = np.array([numbers.setdefault(fit and fit.key, len(numbers)) for fit in self._fits], int)[listing]
        self.by_query = {
            key: QueryCandidates(*(array(one.dtype.char, one[query == number].tobytes()) for one in columns))
            for key, number in numbers.items()
            if key is not None
        }

    def match(self, place: int) -> ReplayedMatch:
        """Return a candidate that is not too expensive, exactly priced."""
        interval = self._near[place]
        fit = self._fits[interval.listing]
        if fit is None:
            raise ValueError(f"listing {interval.listing} does not fit")
        return self._finder.match(interval, fit)


def at_any_price(watch: Watch) -> Watch:
    """The same watch without a price limit."""
    wide = msgspec.structs.replace(
        watch, max_price_usd_gpu_hour=_ANY_PRICE_USD, auto=None, max_job_cost_usd=None, job=None, past=None
    )
    if watch.max_job_cost_usd is None:
        return wide
    return msgspec.structs.replace(wide, download_gb=0.0, upload_gb=0.0)  # its prices contain no traffic


class _CandidateFinder:
    """Evaluates each listing once, because its facts do not change, and skips prices that are far too high."""

    def __init__(self, watch: Watch, commissions: Mapping[str, Commission], reference_disk_gb: float) -> None:
        self._watch = watch
        self._at_any_price = at_any_price(watch)
        self._commissions = commissions
        self._reference_gb = reference_disk_gb
        self._disk_gb = reference_disk_gb if watch.disk_gb is None else watch.disk_gb
        self._most = float(watch.max_price_usd_gpu_hour) * max(watch.rearm, 1.0) * MICRO * (1 + PRICE_TOLERANCE) + 1
        self._factors: dict[str, float] = {}
        self._judged_facts: dict[tuple[Any, ...], bool] = {}

    def fit(self, listing: ListedOffer) -> _Fit | None:
        """The listing, if it fits at some price; otherwise None."""
        return self._judged(listing) if listing.gpu in self._watch.gpu_names else None

    def gpu_prices(self, intervals: MarketIntervals, fits: Sequence[_Fit | None]) -> Numbers:
        """The GPU price of each interval, within floating-point error; NaN: it does not fit."""
        import numpy as np  # noqa: PLC0415 most daemons read no history

        machine, disk = np.asarray(intervals.machine_microusd_hour), np.asarray(intervals.disk_microusd_gb_month)
        factors = np.array([np.nan if fit is None else fit.factor for fit in fits], float)
        listed = machine + np.where(disk < 0, 0, disk) * self._disk_gb / HOURS_A_MONTH
        traffic = np.array([np.nan if fit is None else fit.traffic for fit in fits], float)
        place = np.asarray(intervals.listing)
        prices: Numbers = listed * factors[place] + traffic[place]
        return prices

    def is_near(self, prices: Numbers) -> Flags:
        """Whether a price may be taken or may re-arm the watch."""
        return prices <= self._most

    def match(self, interval: OfferInterval, fit: _Fit) -> ReplayedMatch:
        """The candidate for one price, exact."""
        watch, offer = self._watch, replayed_offer(fit.listing, interval, self._reference_gb)
        price = price_for(watch, offer, self._commissions)
        match = match_of(watch, offer, price)
        is_accepted = self._is_cheap(offer, price) and (watch.job is None or accepts(watch, offer, price, _AT))
        return ReplayedMatch(match, rank(match), is_accepted)

    def _is_cheap(self, offer: Offer, price: OfferPrice) -> bool:
        """Is the price at or under the threshold? Only this clause and that of the job depend on the price."""
        return price.price_microusd_hour <= threshold_microusd(self._watch.max_price_usd_gpu_hour, offer.gpu_count)

    def _judged(self, listing: ListedOffer) -> _Fit | None:
        facts = self._facts(listing)
        if facts not in self._judged_facts:
            self._judged_facts[facts] = self._accepts(listing)
        if not self._judged_facts[facts]:
            return None
        key = (listing.provider, listing.gpu, listing.spot)
        traffic = traffic_microusd_hour(self._watch, listing) / listing.gpu_count
        return _Fit(listing, key, self._factor(listing.provider) / listing.gpu_count, traffic)

    def _factor(self, provider: str) -> float:
        known = self._factors.get(provider)
        if known is None:
            rate = self._commissions.get(provider, NO_COMMISSION).on_top_rate(None)
            known = self._factors[provider] = 1 + float(rate)
        return known

    def _accepts(self, listing: ListedOffer) -> bool:
        watch, offer = self._at_any_price, replayed_offer(listing, _ANY_INTERVAL, self._reference_gb)
        return accepts(watch, offer, price_for(watch, offer, self._commissions), _AT)

    def _facts(self, listing: ListedOffer) -> tuple[Any, ...]:
        """All facts that a clause may depend on; thousands of machines share the same facts."""
        place = (listing.region, listing.country) if self._watch.regions else None
        reliability = listing.reliability if self._watch.min_reliability is not None else None
        fixed = (listing.provider, listing.gpu, listing.gpu_count, listing.spot, listing.gpu_memory_gib, listing.kind)
        return (*fixed, listing.verification, place, reliability)


def is_accepted(
    wide: Watch, listing: ListedOffer, commissions: Mapping[str, Commission], reference_disk_gb: float
) -> bool:
    """Whether a watch for any price (`at_any_price`) accepts a listing."""
    offer = replayed_offer(listing, _ANY_INTERVAL, reference_disk_gb)
    return accepts(wide, offer, price_for(wide, offer, commissions), offer.observed_at)


def fitting_series(
    watch: Watch,
    market_history: MarketHistory,
    commissions: Mapping[str, Commission],
    reference_disk_gb: float,
    providers: Collection[str] | None = None,
) -> PriceSeries:
    """The lowest GPU price per hour of the offers of `fitting_offers`."""
    return series_of(*fitting_offers(watch, market_history, commissions, reference_disk_gb, providers))


def fitting_offers(
    watch: Watch,
    market_history: MarketHistory,
    commissions: Mapping[str, Commission],
    reference_disk_gb: float,
    providers: Collection[str] | None = None,
) -> tuple[MarketHistory, Callable[[int, OfferInterval], float]]:
    """The offers that fit the watch at any price, and their GPU prices with its disk and the commission.

    Ignores clauses that the history cannot check.

    Args:
        reference_disk_gb: the disk size in a quote without a requested disk.
        providers: only these providers and their polls; None: all.
    """
    wide = at_any_price(without_unrecorded_clauses(watch, market_history.listings)[0])

    def fits(listing: ListedOffer) -> bool:
        is_asked = providers is None or listing.provider in providers
        return is_asked and is_accepted(wide, listing, commissions, reference_disk_gb)

    fitting = [fits(listing) for listing in market_history.listings]
    intervals = interval_columns(market_history.intervals).of_listings(fitting)
    gpu_price = gpu_pricer(market_history, commissions, reference_disk_gb if watch.disk_gb is None else watch.disk_gb)
    polls = [poll for poll in market_history.polls if providers is None or poll.provider in providers]
    fitting_history = msgspec.structs.replace(market_history, intervals=intervals, polls=polls)
    if watch.traffic is None:
        return fitting_history, gpu_price
    traffic = [traffic_microusd_hour(watch, one) / one.gpu_count for one in market_history.listings]
    return fitting_history, lambda number, interval: gpu_price(number, interval) + traffic[number]
