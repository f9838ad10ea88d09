"""The offers that a watch knows during a replay, by query. The cost depends only on the number of changes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from decimal import Decimal
from heapq import heappop, heappush
from typing import Any

from gpuwatch.domain.forecasts.backtest.replayed_candidates import PRICE_TOLERANCE, BacktestCandidate, QueryKey
from gpuwatch.domain.history.market_history import MarketPoll
from gpuwatch.domain.market.pricing import MICRO, microusd, threshold_microusd
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Watch

HUNT = "hunt"
_MAX_MISSED_POLLS = 3  # with more, the query's result is no longer known
_RankedOffer = tuple[tuple[Any, ...], int]  # rank, number of the candidate


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
        limit = watch.max_price_usd_gpu_hour
        rearm = Decimal(repr(max(watch.rearm, 1.0)))
        most_job = None if watch.max_job_cost_usd is None else microusd(watch.max_job_cost_usd * rearm)
        self._is_under = bytearray(len(found))
        far = float(limit * rearm) * MICRO * (1 + PRICE_TOLERANCE)
        for number, candidate in enumerate(found):
            if candidate.delisted_s is not None and candidate.delisted_s <= candidate.from_s:
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
        self._has_changed = self._has_changed or query.is_fresh is poll.failed
        every_s = 0 if query.seen_s is None else poll.at_s - query.seen_s
        query.age_s = max(self._age_s(poll.provider), _MAX_MISSED_POLLS * every_s)
        query.seen_s, query.is_fresh = poll.at_s, not poll.failed
        self._advance(query, poll.at_s)

    def note_complete(self, key: QueryKey, at_s: int) -> None:
        """Record a complete answer: offers that it did not show are gone."""
        self._query(key).complete_s = at_s

    def drop_older(self, at_s: int) -> None:
        """Drop answers that are too old."""
        for query in self._queries.values():
            if query.is_fresh and query.seen_s is not None and query.seen_s < at_s - query.age_s:
                query.is_fresh = False
                self._has_changed = True

    def recent_queries(self, at_s: int) -> frozenset[QueryKey]:
        """The queries that were sent recently, answered or not."""
        queries = self._queries.items()
        return frozenset(
            key for key, query in queries if query.seen_s is not None and query.seen_s >= at_s - query.age_s
        )

    def known(self, at_s: int) -> frozenset[QueryKey]:
        """The queries with a recent complete answer."""
        queries = self._queries.items()
        return frozenset(
            key
            for key, query in queries
            if query.is_fresh and query.complete_s is not None and query.complete_s >= at_s - query.age_s
        )

    @property
    def under(self) -> tuple[Match, ...]:
        """Known offers at or under the threshold, cheapest first."""
        if self._has_changed:
            seen = [query for query in self._queries.values() if query.is_fresh and query.under]
            self._under = tuple(seen[0].matches) if len(seen) == 1 else self._merged(seen)
            self._has_changed = False
        return self._under

    @property
    def near(self) -> bool:
        """Is a fitting offer at or under threshold × rearm?"""
        return any(query.is_fresh and query.near for query in self._queries.values())

    @property
    def cheapest(self) -> float | None:
        """The lowest GPU price of fitting offers, in micro-dollars."""
        lowest = [self._lowest(query) for query in self._queries.values() if query.is_fresh]
        return min((price for price in lowest if price is not None), default=None)

    def _merged(self, queries: Sequence[_QueryOffers]) -> tuple[Match, ...]:
        places = sorted(
            (place, match) for query in queries for place, match in zip(query.under, query.matches, strict=True)
        )
        return tuple([match for _, match in places])

    def _lowest(self, query: _QueryOffers) -> float | None:
        assert query.seen_s is not None
        while query.fitting:
            delisted_s = self._found[query.fitting[0][1]].delisted_s
            if delisted_s is None or delisted_s > query.seen_s:
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
        match = self._found[number].match
        if not self._is_under[number] or match is None:
            return
        self._has_changed = True
        place = (self._found[number].rank, number)
        at = bisect_left(query.under, place)
        if appears:
            query.under.insert(at, place)
            query.matches.insert(at, match)
        else:
            del query.under[at], query.matches[at]


def _expect(query: _QueryOffers, number: int, one: BacktestCandidate) -> None:
    query.changes.append((one.from_s, True, number))
    if one.delisted_s is not None:
        query.changes.append((one.delisted_s, False, number))


def _at_most(limit: Decimal, match: Match, most_job: int | None = None) -> bool:
    if match.price.price_microusd_hour > threshold_microusd(limit, match.offer.gpu_count):
        return False
    return most_job is None or (match.job_microusd is not None and match.job_microusd <= most_job)
