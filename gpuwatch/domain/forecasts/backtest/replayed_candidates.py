"""Every recorded price that a watch could have paid, evaluated once, and the price series of the fitting offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from gpuwatch.domain.forecasts.backtest.replayed_offers import quoted_offer, without_unrecorded_clauses
from gpuwatch.domain.history.market_history import ListedOffer, MarketHistory, OfferInterval
from gpuwatch.domain.history.price_series import PriceSeries, gpu_pricer, series_of
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import HOURS_A_MONTH, MICRO, Commission, OfferPrice, threshold_microusd
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.match import NO_COMMISSION, accepts, match_of, price_for, rank
from gpuwatch.domain.watches.watch import Watch

QueryKey = tuple[str, str, bool]  # provider, GPU, spot: one query of a sweep
BacktestProgress = Callable[[int, int], None]  # done, total
_ANY_PRICE_USD = Decimal(1_000_000)
_PROGRESS_EVERY = 4096
PRICE_TOLERANCE = 1e-6  # more than floating-point error
_AT = datetime.fromtimestamp(0, UTC)  # no recorded clause depends on the time
_ANY_INTERVAL = OfferInterval(0, 0, 0, None, 1, None)


class BacktestCandidate(NamedTuple):
    """One interval of an offer that fits the watch, apart from its price."""

    from_s: int
    delisted_s: int | None
    key: QueryKey
    microusd_gpu_hour: float
    match: Match | None  # None: too expensive to be taken or to re-arm the watch
    rank: tuple[Any, ...] = ()
    accepted: bool = False  # the watch accepts it as is


def find_candidates(
    watch: Watch,
    market_history: MarketHistory,
    commissions: Mapping[str, Commission],
    reference_disk_gb: float,
    progress: BacktestProgress | None = None,
) -> list[BacktestCandidate]:
    """The candidates of a market history, in order of `from_s`.

    Args:
        watch: without the clauses that the history cannot check.
        reference_disk_gb: the disk size in a quote without a requested disk.
    """
    judge = _CandidateFinder(watch, commissions, reference_disk_gb)
    found = []
    for number, interval in enumerate(market_history.intervals):
        if progress is not None and number % _PROGRESS_EVERY == 0:
            progress(number, len(market_history.intervals))
        fit = judge.fit(interval.listing, market_history.listings[interval.listing])
        if fit is not None:
            found.append(judge.candidate(interval, fit))
    return found


class _Fit(NamedTuple):
    """A listing that fits at some price."""

    listing: ListedOffer
    key: QueryKey
    factor: float  # GPU price ÷ listed price of the whole offer


class _CandidateFinder:
    """Evaluates each listing once, because its facts do not change, and skips prices that are far too high."""

    def __init__(self, watch: Watch, commissions: Mapping[str, Commission], reference_disk_gb: float) -> None:
        self._watch = watch
        self._at_any_price = at_any_price(watch)
        self._commissions = commissions
        self._reference_gb = reference_disk_gb
        self._disk_gb = reference_disk_gb if watch.disk_gb is None else watch.disk_gb
        self._most = float(watch.max_price_usd_gpu_hour) * max(watch.rearm, 1.0) * MICRO * (1 + PRICE_TOLERANCE) + 1
        self._known: dict[int, _Fit | None] = {}
        self._factors: dict[str, float] = {}
        self._judged_facts: dict[tuple[Any, ...], bool] = {}

    def fit(self, number: int, listing: ListedOffer) -> _Fit | None:
        """The listing, if it fits at some price; otherwise None."""
        if number not in self._known:
            self._known[number] = self._judged(listing) if listing.identity.gpu in self._watch.gpu_names else None
        return self._known[number]

    def candidate(self, interval: OfferInterval, fit: _Fit) -> BacktestCandidate:
        """The candidate for one price; exact near and below the threshold, within floating-point error above it."""
        listed = interval.machine_microusd_hour + (interval.disk_microusd_gb_month or 0) * self._disk_gb / HOURS_A_MONTH
        near = listed * fit.factor
        if near > self._most:
            return BacktestCandidate(interval.from_s, interval.delisted_s, fit.key, near, None)
        watch, offer = self._watch, quoted_offer(fit.listing, interval, self._reference_gb)
        price = price_for(watch, offer, self._commissions)
        match = match_of(watch, offer, price)
        is_accepted = self._is_cheap(offer, price) and (watch.job is None or accepts(watch, offer, price, _AT))
        gpu_price = match.price_microusd_gpu_hour
        return BacktestCandidate(
            interval.from_s, interval.delisted_s, fit.key, gpu_price, match, rank(match), is_accepted
        )

    def _is_cheap(self, offer: Offer, price: OfferPrice) -> bool:
        """Is the price at or under the threshold? Only this clause and that of the job depend on the price."""
        return price.price_microusd_hour <= threshold_microusd(self._watch.max_price_usd_gpu_hour, offer.gpu_count)

    def _judged(self, listing: ListedOffer) -> _Fit | None:
        facts = self._facts(listing)
        if facts not in self._judged_facts:
            self._judged_facts[facts] = self._accepts(listing)
        if not self._judged_facts[facts]:
            return None
        who = listing.identity
        return _Fit(listing, (who.provider, who.gpu, who.spot), self._factor(who.provider) / who.gpu_count)

    def _factor(self, provider: str) -> float:
        known = self._factors.get(provider)
        if known is None:
            rate = self._commissions.get(provider, NO_COMMISSION).on_top_rate(None)
            known = self._factors[provider] = 1 + float(rate)
        return known

    def _accepts(self, listing: ListedOffer) -> bool:
        watch, offer = self._at_any_price, quoted_offer(listing, _ANY_INTERVAL, self._reference_gb)
        return accepts(watch, offer, price_for(watch, offer, self._commissions), _AT)

    def _facts(self, listing: ListedOffer) -> tuple[Any, ...]:
        """All facts that a clause may depend on; thousands of machines share the same facts."""
        who, watch = listing.identity, self._watch
        place = (listing.region, listing.country) if watch.regions else None
        reliability = listing.reliability if watch.min_reliability is not None else None
        what = (who.provider, who.gpu, who.gpu_count, who.spot, listing.gpu_memory_gib, listing.kind)
        return (*what, listing.verification, place, reliability)


def at_any_price(watch: Watch) -> Watch:
    """The same watch without a price limit."""
    return msgspec.structs.replace(
        watch, max_price_usd_gpu_hour=_ANY_PRICE_USD, auto=None, max_job_cost_usd=None, job=None, past=None
    )


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
        providers: only these providers; None: all.
    """
    wide = at_any_price(without_unrecorded_clauses(watch, market_history.listings)[0])

    def fits(listing: ListedOffer) -> bool:
        offer = quoted_offer(listing, _ANY_INTERVAL, reference_disk_gb)
        is_asked = providers is None or offer.provider in providers
        return is_asked and accepts(wide, offer, price_for(wide, offer, commissions), offer.observed_at)

    fitting = [fits(listing) for listing in market_history.listings]
    intervals = [interval for interval in market_history.intervals if fitting[interval.listing]]
    gpu_price = gpu_pricer(market_history, commissions, reference_disk_gb if watch.disk_gb is None else watch.disk_gb)
    return msgspec.structs.replace(market_history, intervals=intervals), gpu_price
