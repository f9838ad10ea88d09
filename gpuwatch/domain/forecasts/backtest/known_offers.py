"""Which of its candidates a watch knows at each time of a replay, by query. The cost is that of the changes. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from heapq import heappop, heappush, merge
from typing import Any, NamedTuple

from gpuwatch.domain.forecasts.backtest.replayed_candidates import (
    NEVER_S,
    QueryCandidates,
    QueryKey,
    ReplayedMatch,
    WatchCandidates,
)
from gpuwatch.domain.market.money import microusd, threshold_microusd
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Watch

_MAX_MISSED_POLLS = 3  # with more, the query's result is no longer known
_RankedOffer = tuple[tuple[Any, ...], int]  # rank, place of the candidate
_NearEnd = tuple[int, int, tuple[Any, ...] | None]  # when, place of the candidate, its rank if under the threshold


class WatchPoll(NamedTuple):
    """What polls of one kind are to a watch."""

    queries: Sequence[QueryOffers]  # those of the watch that it answers
    age_s: int  # the maximum age of the provider's answers
    is_own: bool  # a hunt for this watch
    proves_absence: bool
    failed: bool


class QueryOffers:
    """The newest result of one query."""

    def __init__(self, key: QueryKey, candidates: QueryCandidates) -> None:
        self.key = key
        self.candidates = candidates
        self.under: list[_RankedOffer] = []  # at or under the threshold, cheapest first …
        self.matches: list[Match] = []  # … and their matches
        self.near = 0  # how many are at or under threshold × rearm
        # GPU prices and ends of the fitting offers, both rising: without offers that never are the cheapest, because a
        # cheaper one stays as long
        self.cheapest: list[tuple[float, int]] = []
        self.ends: list[_NearEnd] = []  # a heap
        self.seen_s: int | None = None  # the newest query
        self.hunted_s = -NEVER_S  # the newest hunt for the watch
        self.complete_s = -NEVER_S  # the newest complete answer
        self.is_recent = False  # was it sent recently, answered or not?
        self.is_known = False  # is there a recent complete answer?
        self.is_fresh = False  # is the answer recent enough?
        self.age_s = 0  # the maximum age of an answer
        self.appeared = 0  # how many candidates have
        self.changes_s = candidates.from_s[0] if candidates.from_s else NEVER_S  # when the next one appears or ends

    @property
    def lowest(self) -> float | None:
        """The lowest GPU price of the fitting offers."""
        return self.cheapest[0][0] if self.cheapest else None

    def add_price(self, microusd_gpu_hour: float, ended_s: int) -> None:
        """Add the price of a fitting offer that is on sale until then."""
        cheapest = self.cheapest
        after = at = bisect_left(cheapest, (microusd_gpu_hour, ended_s))
        if at and cheapest[at - 1][1] >= ended_s:
            return
        while after < len(cheapest) and cheapest[after][1] <= ended_s:
            after += 1
        cheapest[at:after] = [(microusd_gpu_hour, ended_s)]

    def note_next_change(self) -> None:
        """Note when the next candidate appears or ends."""
        starts_s = self.candidates.from_s
        changes_s = starts_s[self.appeared] if self.appeared < len(starts_s) else NEVER_S
        if self.cheapest:
            changes_s = min(changes_s, self.cheapest[0][1])
        self.changes_s = min(changes_s, self.ends[0][0]) if self.ends else changes_s


class KnownOffers:
    """Steps through a watch's candidates. An offer is known from the first poll that saw it until one misses it.

    Attributes:
        changes: grows with every change of what a decision depends on.
        valid_until_s: until then, time alone changes nothing.
    """

    def __init__(self, watch: Watch, found: WatchCandidates) -> None:
        self._found = found
        self._queries: dict[QueryKey, QueryOffers] = {}
        self._cheapest: float | None = None
        self._is_repriced = True
        self._under: tuple[Match, ...] = ()
        self._merged_at = -1
        self._recent: frozenset[QueryKey] = frozenset()
        self._known: frozenset[QueryKey] = frozenset()
        self.valid_until_s = -1
        self.changes = 0
        self._has_job = watch.job is not None
        self._limit = watch.max_price_usd_gpu_hour
        rearm = Decimal(repr(max(watch.rearm, 1.0)))
        self._near_limit = self._limit * rearm
        self._most_job = None if watch.max_job_cost_usd is None else microusd(watch.max_job_cost_usd * rearm)
        for key in found.by_query:
            self.query(key)

    def query(self, key: QueryKey) -> QueryOffers:
        """Return the result of a query."""
        query = self._queries.get(key)
        if query is None:
            query = self._queries[key] = QueryOffers(key, self._found.by_query.get(key, QueryCandidates()))
        return query

    def apply(self, poll: WatchPoll, at_s: int) -> list[QueryKey]:
        """Apply a poll; return the queries to decide on.

        If the daemon hunted for this watch, it decided on hunts and not on sweeps. A failed query leaves no data; a
        partial answer or a hunt shows offers but proves no absence.
        """
        decided = []
        for query in poll.queries:
            if poll.proves_absence:  # offers that it did not show are gone
                query.complete_s = at_s
                if not query.is_known:
                    self.valid_until_s = -1
            if poll.is_own:
                query.hunted_s = at_s
            elif query.hunted_s >= at_s - poll.age_s:
                continue
            if query.is_fresh is poll.failed:
                query.is_fresh = not poll.failed
                self._is_repriced, self.valid_until_s = True, -1
                self.changes += 1
            self._set_age(query, poll.age_s, at_s)
            if at_s >= query.changes_s:
                self._advance(query, at_s)
            decided.append(query.key)
        return decided

    def _set_age(self, query: QueryOffers, age_s: int, at_s: int) -> None:
        """Note when the query was sent; its answers may be so old, or three times the interval of the queries."""
        missed_s = 0 if query.seen_s is None else _MAX_MISSED_POLLS * (at_s - query.seen_s)
        query.seen_s = at_s
        age_s = missed_s if missed_s > age_s else age_s
        if query.is_known:
            if age_s != query.age_s:
                self.valid_until_s = min(self.valid_until_s, query.complete_s + age_s)
        elif age_s != query.age_s or not query.is_recent:
            self.valid_until_s = -1
        query.age_s = age_s

    def drop_older(self, at_s: int) -> None:
        """Drop answers that are too old at this time, to which all results belong from then on."""
        if at_s <= self.valid_until_s:
            return
        ends_s = [at_s + 86_400]
        for query in self._queries.values():
            oldest_s = at_s - query.age_s
            query.is_recent = query.seen_s is not None and query.seen_s >= oldest_s
            query.is_known = False
            if query.seen_s is None or not query.is_recent:
                if query.is_fresh:
                    query.is_fresh, self._is_repriced = False, True
                    self.changes += 1
                continue
            ends_s.append(query.seen_s + query.age_s)
            if query.is_fresh and query.complete_s >= oldest_s:
                query.is_known = True
                ends_s.append(query.complete_s + query.age_s)
        self.valid_until_s = min(ends_s)
        recent = frozenset([key for key, query in self._queries.items() if query.is_recent])
        known = frozenset([key for key, query in self._queries.items() if query.is_known])
        if (recent, known) != (self._recent, self._known):
            self._known = known
            self._recent = self._recent if recent == self._recent else recent
            self.changes += 1

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
        if self._merged_at != self.changes:
            self._under, self._merged_at = tuple([match for _, match in self._ranked()]), self.changes
        return self._under

    def best_under(self, limit: Decimal) -> tuple[Match, ...]:
        """The first of them at or under a limit, too."""
        for _, match in self._ranked():
            if is_at_most(limit, match):
                return (match,)
            if not self._has_job:  # they are in the order of their prices
                break
        return ()

    @property
    def near(self) -> bool:
        """Is a fitting offer at or under threshold × rearm?"""
        return any(query.near for query in self._queries.values() if query.is_fresh)

    @property
    def cheapest(self) -> float | None:
        """The lowest GPU price of fitting offers, in micro-dollars."""
        if self._is_repriced:
            fresh = (query.lowest for query in self._queries.values() if query.is_fresh)
            self._cheapest = min((lowest for lowest in fresh if lowest is not None), default=None)
            self._is_repriced = False
        return self._cheapest

    def _ranked(self) -> Iterator[tuple[_RankedOffer, Match]]:
        fresh = [query for query in self._queries.values() if query.is_fresh and query.under]
        return merge(*(zip(query.under, query.matches, strict=True) for query in fresh))

    def _advance(self, query: QueryOffers, at_s: int) -> None:
        """Add the candidates that have appeared, and remove those that have ended."""
        lowest, near = query.lowest, False
        from_s, ended_s, prices, places = query.candidates
        first, query.appeared = query.appeared, bisect_right(from_s, at_s, query.appeared)
        for number in range(first, query.appeared):
            until_s, price, place = ended_s[number], prices[number], places[number]
            if until_s <= from_s[number]:
                continue
            if place >= 0:
                one = self._found.match(place)
                price = one.match.price_microusd_gpu_hour
                near = self._begin(query, one, place, until_s) or near
            query.add_price(price, until_s)
        cheapest = query.cheapest
        while cheapest and cheapest[0][1] <= at_s:
            del cheapest[0]
        while query.ends and query.ends[0][0] <= at_s:
            self._end(query)
            near = True
        query.note_next_change()
        self.changes += near
        self._is_repriced = self._is_repriced or query.lowest != lowest

    def _begin(self, query: QueryOffers, one: ReplayedMatch, place: int, ended_s: int) -> bool:
        """Begin a candidate that may be near the threshold; return whether it is."""
        is_under = one.accepted and is_at_most(self._limit, one.match)
        if not is_under and not self._is_near(one.match):
            return False
        query.near += 1
        if ended_s != NEVER_S:
            heappush(query.ends, (ended_s, place, one.rank if is_under else None))
        if is_under:
            at = bisect_left(query.under, (one.rank, place))
            query.under.insert(at, (one.rank, place))
            query.matches.insert(at, one.match)
        return True

    def _end(self, query: QueryOffers) -> None:
        _, place, rank = heappop(query.ends)
        query.near -= 1
        if rank is not None:
            at = bisect_left(query.under, (rank, place))
            del query.under[at], query.matches[at]

    def _is_near(self, match: Match) -> bool:
        if not is_at_most(self._near_limit, match):
            return False
        return self._most_job is None or (match.job_microusd is not None and match.job_microusd <= self._most_job)


def is_at_most(limit: Decimal, match: Match) -> bool:
    """Whether its price is at or under a limit per GPU-hour."""
    return match.price.price_microusd_hour <= threshold_microusd(limit, match.offer.gpu_count)
