"""The recorded prices that a watch could have paid, and which of them it knows at each time of a replay. Pure.

- `find_candidates`: every price of a history that fits the watch, evaluated once;
- `fitting_offers`, `fitting_series`: the same part of the history, and its lowest price of each hour;
- `KnownOffers`: the offers that the watch knows, by query. The cost depends only on the number of changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from heapq import heappop, heappush
from typing import Any, NamedTuple

import msgspec

from gpuwatch.domain.forecasts.backtest.replayed_offers import replayed_offer, without_unrecorded_clauses
from gpuwatch.domain.history.market_history import MarketHistory, MarketPoll, OfferInterval, interval_columns
from gpuwatch.domain.history.price_series import PriceSeries, gpu_pricer, series_of
from gpuwatch.domain.market.money import HOURS_A_MONTH, MICRO, Commission, OfferPrice, microusd, threshold_microusd
from gpuwatch.domain.market.offer import ListedOffer, Offer
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

HUNT = "hunt"
_MAX_MISSED_POLLS = 3  # with more, the query's result is no longer known
_RankedOffer = tuple[tuple[Any, ...], int]  # rank, number of the candidate


class BacktestCandidate(NamedTuple):
    """One interval of an offer that fits the watch, apart from its price."""

    from_s: int
    ended_s: int | None
    key: QueryKey
    microusd_gpu_hour: float
    match: Match | None  # None: too expensive to be taken or to re-arm the watch
    rank: tuple[Any, ...] = ()
    accepted: bool = False  # the watch accepts it as is


class _Fit(NamedTuple):
    """A listing that fits at some price."""

    listing: ListedOffer
    key: QueryKey
    factor: float  # GPU price ÷ listed price of the whole offer


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


def at_any_price(watch: Watch) -> Watch:
    """The same watch without a price limit."""
    return msgspec.structs.replace(
        watch, max_price_usd_gpu_hour=_ANY_PRICE_USD, auto=None, max_job_cost_usd=None, job=None, past=None
    )


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
            self._known[number] = self._judged(listing) if listing.gpu in self._watch.gpu_names else None
        return self._known[number]

    def candidate(self, interval: OfferInterval, fit: _Fit) -> BacktestCandidate:
        """The candidate for one price; exact near and below the threshold, within floating-point error above it."""
        listed = interval.machine_microusd_hour + (interval.disk_microusd_gb_month or 0) * self._disk_gb / HOURS_A_MONTH
        near = listed * fit.factor
        if near > self._most:
            return BacktestCandidate(interval.from_s, interval.ended_s, fit.key, near, None)
        watch, offer = self._watch, replayed_offer(fit.listing, interval, self._reference_gb)
        price = price_for(watch, offer, self._commissions)
        match = match_of(watch, offer, price)
        is_accepted = self._is_cheap(offer, price) and (watch.job is None or accepts(watch, offer, price, _AT))
        gpu_price = match.price_microusd_gpu_hour
        return BacktestCandidate(interval.from_s, interval.ended_s, fit.key, gpu_price, match, rank(match), is_accepted)

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
        return _Fit(listing, key, self._factor(listing.provider) / listing.gpu_count)

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
        providers: only these providers; None: all.
    """
    wide = at_any_price(without_unrecorded_clauses(watch, market_history.listings)[0])

    def fits(listing: ListedOffer) -> bool:
        is_asked = providers is None or listing.provider in providers
        return is_asked and is_accepted(wide, listing, commissions, reference_disk_gb)

    fitting = [fits(listing) for listing in market_history.listings]
    intervals = interval_columns(market_history.intervals).of_listings(fitting)
    gpu_price = gpu_pricer(market_history, commissions, reference_disk_gb if watch.disk_gb is None else watch.disk_gb)
    return msgspec.structs.replace(market_history, intervals=intervals), gpu_price


class _QueryOffers:
    """The newest result of one query."""

    def __init__(self) -> None:
        self.under: list[_RankedOffer] = []  # at or under the threshold, cheapest first …
        self.matches: list[Match] = []  # … and their matches
        self.near = 0  # how many are at or under threshold × rearm
        self.fitting: list[tuple[float, int]] = []  # a heap of GPU prices; gone offers are popped at the top
        self.seen_s: int | None = None  # the newest query
        self.complete_s: int | None = None  # the newest complete answer
        self.is_fresh = False  # is the answer recent enough?
        self.age_s = 0  # the maximum age of an answer
        self.lowest: float | None = None  # the lowest GPU price of its fitting offers
        self.appearing: list[int] = []  # candidates, by the time they appear
        self.appears = 0  # how many of them have appeared
        self.changes: list[tuple[int, bool, int]] = []  # (time, appears?, candidate) near the threshold
        self.done = 0  # how many of them were applied


class KnownOffers:
    """Steps through a watch's candidates. An offer is known from the first poll that saw it until one misses it."""

    def __init__(self, watch: Watch, found: Sequence[BacktestCandidate], age_s: Callable[[str], int]) -> None:
        self._found = found
        self._age_s = age_s
        self._queries: dict[QueryKey, _QueryOffers] = {}
        self._has_changed = True
        self._under: tuple[Match, ...] = ()
        self._near = False
        self._cheapest: float | None = None
        self._recent: frozenset[QueryKey] = frozenset()
        self._known: frozenset[QueryKey] = frozenset()
        self._valid_until_s = -1  # until then, time alone changes neither of them
        limit = watch.max_price_usd_gpu_hour
        rearm = Decimal(repr(max(watch.rearm, 1.0)))
        most_job = None if watch.max_job_cost_usd is None else microusd(watch.max_job_cost_usd * rearm)
        self._is_under = bytearray(len(found))
        far = float(limit * rearm) * MICRO * (1 + PRICE_TOLERANCE)
        for number, candidate in enumerate(found):
            if candidate.ended_s is not None and candidate.ended_s <= candidate.from_s:
                continue
            query = self._query(candidate.key)
            query.appearing.append(number)
            if candidate.microusd_gpu_hour <= far and candidate.match is not None:
                self._is_under[number] = candidate.accepted and _at_most(limit, candidate.match)
                if self._is_under[number] or _at_most(limit * rearm, candidate.match, most_job):
                    _expect(query, number, candidate)
        for query in self._queries.values():
            query.changes.sort()  # at the same time, removals come before additions

    def apply_query(self, key: QueryKey, poll: MarketPoll) -> None:
        """Apply a query. A failed one leaves no data; a partial answer or a hunt shows offers but proves no absence."""
        query = self._query(key)
        every_s = 0 if query.seen_s is None else poll.at_s - query.seen_s
        age_s, is_fresh = max(self._age_s(poll.provider), _MAX_MISSED_POLLS * every_s), not poll.failed
        if query.is_fresh is not is_fresh or query.age_s != age_s or key not in self._recent:
            self._has_changed = self._has_changed or query.is_fresh is not is_fresh
            self._valid_until_s = -1
        query.age_s, query.seen_s, query.is_fresh = age_s, poll.at_s, is_fresh
        self._advance(query, poll.at_s)
        lowest = self._lowest(query)
        self._has_changed = self._has_changed or lowest != query.lowest
        query.lowest = lowest

    def note_complete(self, key: QueryKey, at_s: int) -> None:
        """Record a complete answer: offers that it did not show are gone."""
        self._query(key).complete_s = at_s
        if key not in self._known:
            self._valid_until_s = -1

    def drop_older(self, at_s: int) -> None:
        """Drop answers that are too old at this time, to which all results belong from then on."""
        if at_s <= self._valid_until_s:
            return
        recent, known, ends_s = [], [], [at_s + 86_400]
        for key, query in self._queries.items():
            oldest_s = at_s - query.age_s
            if query.seen_s is None or query.seen_s < oldest_s:
                self._has_changed = self._has_changed or query.is_fresh
                query.is_fresh = False
                continue
            recent.append(key)
            ends_s.append(query.seen_s + query.age_s)
            if query.is_fresh and query.complete_s is not None and query.complete_s >= oldest_s:
                known.append(key)
                ends_s.append(query.complete_s + query.age_s)
        self._valid_until_s = min(ends_s)
        if self._recent != set(recent):
            self._recent = frozenset(recent)
        self._known = frozenset(known)

    @property
    def recent_queries(self) -> frozenset[QueryKey]:
        """The queries that were sent recently, answered or not; the same object while they stay the same."""
        return self._recent

    @property
    def known(self) -> frozenset[QueryKey]:
        """The queries with a recent complete answer."""
        return self._known

    @property
    def under(self) -> tuple[Match, ...]:
        """Known offers at or under the threshold, cheapest first."""
        self._renew()
        return self._under

    @property
    def near(self) -> bool:
        """Is a fitting offer at or under threshold × rearm?"""
        self._renew()
        return self._near

    @property
    def cheapest(self) -> float | None:
        """The lowest GPU price of fitting offers, in micro-dollars."""
        self._renew()
        return self._cheapest

    def _renew(self) -> None:
        if not self._has_changed:
            return
        fresh = [query for query in self._queries.values() if query.is_fresh]
        under = [query for query in fresh if query.under]
        self._under = tuple(under[0].matches) if len(under) == 1 else self._merged(under)
        self._near = any(query.near for query in fresh)
        self._cheapest = min((query.lowest for query in fresh if query.lowest is not None), default=None)
        self._has_changed = False

    def _merged(self, queries: Sequence[_QueryOffers]) -> tuple[Match, ...]:
        places = sorted(
            (place, match) for query in queries for place, match in zip(query.under, query.matches, strict=True)
        )
        return tuple([match for _, match in places])

    def _lowest(self, query: _QueryOffers) -> float | None:
        assert query.seen_s is not None
        while query.fitting:
            ended_s = self._found[query.fitting[0][1]].ended_s
            if ended_s is None or ended_s > query.seen_s:
                return query.fitting[0][0]
            heappop(query.fitting)
        return None

    def _query(self, key: QueryKey) -> _QueryOffers:
        query = self._queries.get(key)
        if query is None:
            query = self._queries[key] = _QueryOffers()
        return query

    def _advance(self, query: _QueryOffers, at_s: int) -> None:
        found, appearing, changes = self._found, query.appearing, query.changes
        while query.appears < len(appearing) and found[appearing[query.appears]].from_s <= at_s:
            number = appearing[query.appears]
            heappush(query.fitting, (found[number].microusd_gpu_hour, number))
            query.appears += 1
        while query.done < len(changes) and changes[query.done][0] <= at_s:
            _, appears, number = changes[query.done]
            self._put(query, number, appears)
            query.done += 1

    def _put(self, query: _QueryOffers, number: int, appears: bool) -> None:
        query.near += 1 if appears else -1
        self._has_changed = True
        match = self._found[number].match
        if not self._is_under[number] or match is None:
            return
        place = (self._found[number].rank, number)
        at = bisect_left(query.under, place)
        if appears:
            query.under.insert(at, place)
            query.matches.insert(at, match)
        else:
            del query.under[at], query.matches[at]


def _expect(query: _QueryOffers, number: int, one: BacktestCandidate) -> None:
    query.changes.append((one.from_s, True, number))
    if one.ended_s is not None:
        query.changes.append((one.ended_s, False, number))


def _at_most(limit: Decimal, match: Match, most_job: int | None = None) -> bool:
    if match.price.price_microusd_hour > threshold_microusd(limit, match.offer.gpu_count):
        return False
    return most_job is None or (match.job_microusd is not None and match.job_microusd <= most_job)
