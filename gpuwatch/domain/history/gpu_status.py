"""The status of a GPU on the market: the cheapest offer now, its changes, its rank in the history, offer lifetimes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import numpy as np

from gpuwatch.domain.history.market_history import COVERAGE_S, MarketHistory
from gpuwatch.domain.history.market_polls import complete_polls
from gpuwatch.domain.history.nonparametric import SurvivalCurve, kaplan_meier
from gpuwatch.domain.history.poll_timeline import Ints
from gpuwatch.domain.history.price_periods import GpuPriceOf, Windows, covered_s, poll_windows
from gpuwatch.domain.history.price_series import (
    PriceSeries,
    cut_series,
    lowest_before,
    percentile_rank,
    series_of,
)
from gpuwatch.domain.setup.durations import HOUR_S

CHANGE_HOURS = (24, 7 * 24, 30 * 24)
MIN_LIFETIMES = 5  # with fewer, there is no median
MIN_HOURS = 24  # with offers; with fewer, there is no percentile of the span that was asked for
NEVER = -1
_DAY_S = 24 * HOUR_S
_ROUNDED_APART = 1  # micro-dollars: the store rounds the price of an hour once more (docs/decisions/0022)
METHOD = (
    "now: the newest look of one's own, never an import; changes: against the lowest price of the hour so long before "
    "it; percentile: mid-rank among the lowest prices of the hours with offers; life: Kaplan-Meier median of the offers"
    " that were seen to come to or under the price, from the middle between two looks to the middle between two looks;"
    " away: of the covered time between the first and the last look at each offer"
)


class OfferIntervalColumns(NamedTuple):
    """Offer intervals as columns, sorted by offer and time."""

    listing: Ints
    from_s: Ints  # the first poll at this price
    before_s: Ints  # the poll before that; NEVER: there was none
    seen_s: Ints  # the last poll at this price
    ended_s: Ints  # the first poll without it; NEVER: it is still on offer
    polled_s: Ints  # the newest poll that could have seen it
    price: Ints  # micro-dollars per GPU-hour, commission included
    scope: Ints  # an index of `GpuHistory.covered`


class GpuHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one GPU, with at least one poll."""

    gpu: str
    series: PriceSeries  # starts 30 days before the period of the percentile
    intervals: OfferIntervalColumns
    covered: Sequence[Windows]  # the time that the polls of each provider and rental type cover
    polled_s: int  # the newest poll that counts for now
    source: str  # the name in the history of what was polled then
    current: Sequence[int] | None = None  # indices of `covered` that count for now; None: all
    is_imported: bool = False  # only imported prices are known


class Turnover(msgspec.Struct, frozen=True, kw_only=True):
    """How offers come and go, from one's own polls; only the time that polls cover counts.

    Attributes:
        offers: the different offers that were seen.
        away: share of the time between the first and the last sight of each offer in which it was not on offer, so
            rented or taken off the market. At least: one that has not come back yet does not count. None: too few.
        new_a_day, gone_a_day: offers that appeared, and that vanished, on a day; None: less than a day is covered.
    """

    offers: int
    away: float | None
    new_a_day: float | None
    gone_a_day: float | None


class GpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Prices are micro-dollars per GPU-hour, commission included. None: unknown."""

    gpu: str
    polled_s: int
    source: str  # the name in the history of what was polled then
    is_imported: bool  # nobody polled it here: these are the prices of an import
    now: int | None
    changes: Mapping[int, float | None]  # hours back → relative change; 0.1: now 10 % more expensive
    percentile: float | None  # 0: cheaper than ever
    known_hours: int  # the hours that the percentile compares with
    offers: int
    under: int | None  # the price of the lifetimes
    lifetime: SurvivalCurve
    turnover: Turnover

    @property
    def is_lifetime_known(self) -> bool:
        """Are there enough lifetimes for a median?"""
        return self.lifetime.samples >= MIN_LIFETIMES


def gpu_status_of(past: GpuHistory, since_s: int, under: int | None) -> GpuStatus:
    """The status of a GPU.

    Args:
        since_s: start of the history that the percentile and the lifetimes use.
        under: the price of the lifetimes; None: the median price, weighted by time on offer.
    """
    intervals, now_at = past.intervals, datetime.fromtimestamp(past.polled_s, UTC)
    stands = (intervals.ended_s == NEVER) & (intervals.polled_s > past.polled_s - COVERAGE_S)
    if past.current is not None:
        stands &= np.isin(intervals.scope, past.current)
    now = int(intervals.price[stands].min()) if stands.any() else None
    before = {hours: lowest_before(past.series, now_at, hours) for hours in CHANGE_HOURS}
    history = cut_series(past.series, since_s // HOUR_S)
    limit = median_price(past, since_s) if under is None else under
    return GpuStatus(
        gpu=past.gpu,
        polled_s=past.polled_s,
        source=past.source,
        is_imported=past.is_imported,
        now=now,
        changes={hours: None if low is None or now is None else now / low - 1 for hours, low in before.items()},
        percentile=None if now is None else _rank(history, now),
        known_hours=history.known,
        offers=int(np.unique(intervals.listing[stands]).size),
        under=limit,
        lifetime=kaplan_meier([], []) if limit is None else lifetime_curve_at(intervals, limit, since_s),
        turnover=turnover_of(past, since_s),
    )


def turnover_of(past: GpuHistory, since_s: int) -> Turnover:
    """How offers came and went since then."""
    stands = (past.intervals.ended_s == NEVER) & (past.intervals.seen_s >= since_s)
    mine = OfferIntervalColumns(*(column[stands | (past.intervals.ended_s > since_s)] for column in past.intervals))
    if not len(mine.listing):
        return Turnover(offers=0, away=None, new_a_day=None, gone_a_day=None)
    starts, ends = np.zeros(len(mine.listing)), np.zeros(len(mine.listing))
    known_days = np.zeros(len(past.covered))
    for scope, windows in enumerate(past.covered):
        own = mine.scope == scope
        starts[own] = covered_s(windows, np.maximum(mine.from_s[own], since_s))
        ends[own] = covered_s(windows, _ends(mine)[own])
        edges = covered_s(windows, np.array([since_s, windows[-1, -1]]))
        known_days[scope] = (edges[1] - edges[0]) / _DAY_S
    first, last = _stays(mine)
    of_offer = np.flatnonzero(np.concatenate(([True], mine.listing[1:] != mine.listing[:-1])))
    known_s = (ends[np.concatenate((of_offer[1:] - 1, [len(ends) - 1]))] - starts[of_offer]).sum()
    on_offer_s = (ends - starts).sum()
    new = mine.scope[first[(mine.before_s[first] != NEVER) & (mine.before_s[first] >= since_s)]]
    gone = mine.scope[last[mine.ended_s[last] != NEVER]]
    is_known = known_days >= 1
    rates = [
        float((np.bincount(scopes, minlength=len(known_days))[is_known] / known_days[is_known]).sum())
        if is_known.any()
        else None
        for scopes in (new, gone)
    ]
    return Turnover(
        offers=len(of_offer),
        away=float(max(0.0, 1 - on_offer_s / known_s)) if len(of_offer) >= MIN_LIFETIMES and known_s > 0 else None,
        new_a_day=rates[0],
        gone_a_day=rates[1],
    )


def _ends(intervals: OfferIntervalColumns) -> Ints:
    """The poll that no longer saw each, or the last that did."""
    return np.where(intervals.ended_s == NEVER, intervals.seen_s, intervals.ended_s)


def _stays(intervals: OfferIntervalColumns) -> tuple[Ints, Ints]:
    """The first and the last interval of each time in which an offer was there without a break."""
    other = intervals.listing[1:] != intervals.listing[:-1]
    apart = other | ((intervals.ended_s[:-1] != NEVER) & (intervals.from_s[1:] > intervals.ended_s[:-1]))
    first = np.flatnonzero(np.concatenate(([True], apart)))
    return first, np.concatenate((first[1:] - 1, [len(intervals.price) - 1]))


def median_price(past: GpuHistory, since_s: int) -> int | None:
    """The median price, weighted by time on offer; gaps between polls do not count."""
    intervals = past.intervals
    starts = np.maximum(intervals.from_s, since_s)
    ends = np.where(intervals.ended_s == NEVER, np.iinfo(np.int64).max, intervals.ended_s)
    lasted = np.zeros(len(starts), np.int64)
    for scope, windows in enumerate(past.covered):
        mine = intervals.scope == scope
        lasted[mine] = np.maximum(covered_s(windows, ends[mine]) - covered_s(windows, starts[mine]), 0)
    order = np.argsort(intervals.price, kind="stable")
    gone_by = np.cumsum(lasted[order])
    if not len(gone_by) or not gone_by[-1]:
        return None
    return int(intervals.price[order][np.searchsorted(gone_by, gone_by[-1] / 2)])


def lifetime_curve_at(intervals: OfferIntervalColumns, limit: int, since_s: int) -> SurvivalCurve:
    """How long offers stay at or under a price once they reach it; like `snipe.offer_lifetimes`, but on columns."""
    mine = OfferIntervalColumns(*(column[intervals.price <= limit] for column in intervals))
    if not len(mine.price):
        return kaplan_meier([], [])
    first, last = _stays(mine)
    seen_to_start = (mine.before_s[first] != NEVER) & (mine.before_s[first] >= since_s)
    first, last = first[seen_to_start], last[seen_to_start]
    shortest = mine.seen_s[last] - mine.from_s[first]
    observed = mine.ended_s[last] != NEVER
    durations = np.where(observed, (shortest + mine.ended_s[last] - mine.before_s[first]) / 2, shortest)
    return kaplan_meier(durations.tolist(), observed.tolist())


def _rank(history: PriceSeries, now: int) -> float | None:
    lows = [low for low in history.lows if low is not None]
    if len(lows) < MIN_HOURS:
        return None
    nearest = min(lows, key=lambda low: abs(low - now))
    return percentile_rank(history, nearest if abs(nearest - now) <= _ROUNDED_APART else now)


def gpu_histories_of(market_history: MarketHistory, priced: GpuPriceOf, until_s: int) -> list[GpuHistory]:
    """The history of each GPU; nothing is known from `until_s` on."""
    if market_history.starts_s is None:
        return []
    return [
        _history_of(_of_gpu(market_history, gpu), gpu, priced, until_s)
        for gpu in sorted({listing.gpu for listing in market_history.listings})
    ]


def _history_of(market_history: MarketHistory, gpu: str, priced: GpuPriceOf, until_s: int) -> GpuHistory:
    poll_times: dict[tuple[str, bool], list[int]] = {}
    for poll in complete_polls(market_history.polls):
        poll_times.setdefault((poll.provider, poll.spot), []).append(poll.at_s)
    scopes = list(poll_times)
    rows = []
    for interval in sorted(market_history.intervals, key=lambda one: (one.listing, one.from_s)):
        identity = market_history.listings[interval.listing].identity
        scope = identity.provider, identity.spot
        mine = poll_times.get(scope, [interval.seen_s])
        ended_s = NEVER if interval.ended_s is None else interval.ended_s
        price = round(priced(interval.listing, interval))
        rows.append(
            (
                interval.listing,
                interval.from_s,
                _before(mine, interval.from_s),
                interval.seen_s,
                ended_s,
                mine[-1],
                price,
                scopes.index(scope) if scope in scopes else -1,
            )
        )
    columns = np.array(rows, np.int64).reshape(-1, len(OfferIntervalColumns._fields)).T
    newest_s = max((times[-1] for times in poll_times.values()), default=market_history.ends_s or 0)
    return GpuHistory(
        gpu=gpu,
        series=series_of(market_history, priced),
        intervals=OfferIntervalColumns(*columns),
        covered=[poll_windows(np.array(times), until_s) for times in poll_times.values()],
        polled_s=newest_s,
        source=max(poll_times, key=lambda scope: poll_times[scope][-1], default=("", False))[0],
    )


def _before(poll_times: list[int], at_s: int) -> int:
    index = bisect_left(poll_times, at_s)
    return poll_times[index - 1] if index else NEVER


def _of_gpu(market_history: MarketHistory, gpu: str) -> MarketHistory:
    """The intervals and polls of one GPU; listings keep their indices."""
    mine = {number for number, listing in enumerate(market_history.listings) if listing.gpu == gpu}
    scopes = {(market_history.listings[number].provider, market_history.listings[number].spot) for number in mine}
    return msgspec.structs.replace(
        market_history,
        intervals=[interval for interval in market_history.intervals if interval.listing in mine],
        polls=[poll for poll in market_history.polls if poll.gpu in ("", gpu) and (poll.provider, poll.spot) in scopes],
    )
