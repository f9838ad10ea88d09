"""The price of a part of the market over time, from the store or from a file of price rows; as JSON and as a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.history.past_prices import (
    commission_rates,
    gc_paused,
    gpu_names_in,
    gpu_names_of,
    load_prices,
    narrow_to_scope,
    pricer,
)
from gpuwatch.app.history.period_view import PeriodView, period_fields
from gpuwatch.app.history.svg_axes import LARGE, ChartSize
from gpuwatch.app.history.svg_charts import SvgChart, SvgLine, step_chart
from gpuwatch.bootstrap import open_history, open_store_read_only
from gpuwatch.domain.history.market_history import COVERAGE_S, MarketPoll
from gpuwatch.domain.history.price_periods import price_periods_of, time_under
from gpuwatch.domain.history.price_series import PeriodLength, cut_series, hours_under, period_spans, unobserved_gaps
from gpuwatch.domain.market.json_view import rfc3339, usd_number
from gpuwatch.domain.market.money import REFERENCE_DISK_GB
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.language import translate as _
from gpuwatch.storage.history.queries.history_queries import (
    first_poll_at,
    kept_from,
    known_gpu_names,
    read_price_periods,
)

if TYPE_CHECKING:
    from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory, OfferInterval
    from gpuwatch.domain.history.price_series import PricePeriods, TimeShare
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


_BY_HOUR_UP_TO = timedelta(days=3)
_BY_DAY_UP_TO = timedelta(days=120)
_DAY = timedelta(days=1)


class PriceHistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result; without points, there was no poll."""

    gpus: tuple[str, ...]
    track: PricePeriods
    every: PeriodLength
    under: Sequence[tuple[float, TimeShare]]  # dollars per GPU-hour → share of the time
    source: str
    until: datetime  # nothing is known from then on

    @property
    def ends_at(self) -> datetime | None:
        """The end of the last hour, or the end of what is known; None: there was no poll."""
        series = self.track.series
        return min(series.starts_at(len(series.polled)), self.until) if series.polled else None


class PriceHistoryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request.

    Attributes:
        scope: without GPUs; they come from `gpu`.
        every: length of one period; None: an hour for programs, and for people a length that gives a readable table.
    """

    gpu: str
    scope: MarketFilter
    since: datetime
    until: datetime
    data: Path | None
    every: str | None
    is_for_programs: bool
    zone: tzinfo
    under_usd: Sequence[float]


def price_history(settings: Settings, request: PriceHistoryRequest) -> PriceHistoryResult:
    """The price per period.

    Raises:
        UsageError: no GPU has this name, or the file cannot be used.
        StoreError: the store cannot be read.
    """
    return _history_of_file(settings, request) if request.data else _history_of_store(settings, request)


def _history_of_file(settings: Settings, request: PriceHistoryRequest) -> PriceHistoryResult:
    full_history = load_prices(settings, request.scope, request.since, request.until, request.data)
    gpus = gpu_names_of(request.gpu, gpu_names_in(full_history))
    market_history = narrow_to_scope(full_history, msgspec.structs.replace(request.scope, gpus=gpus))
    length = timedelta(seconds=(market_history.ends_s or 0) - (market_history.starts_s or 0))
    every = _period_length(request, length, _poll_spacing(market_history))
    priced, listed = _pricers(settings, market_history)
    periods = price_periods_of(market_history, listed, priced, every, request.zone, int(request.until.timestamp()))
    return PriceHistoryResult(
        gpus=gpus,
        track=periods,
        every=every,
        under=_time_under(settings, market_history, request),
        source=clean(request.data.name) if request.data else "",
        until=request.until,
    )


@gc_paused()
def _history_of_store(settings: Settings, request: PriceHistoryRequest) -> PriceHistoryResult:
    with open_store_read_only(settings) as database:
        gpus = gpu_names_of(request.gpu, known_gpu_names(database))
    scope = msgspec.structs.replace(request.scope, gpus=gpus)
    by_price = bool(request.under_usd) or request.every == PeriodLength.TEN_MINUTES or request.scope.verified
    needs_prices = by_price or _splits_hours(request)
    with open_history(settings, scope, request.since, request.until, needs_prices=needs_prices) as database:
        since = max(request.since, first_poll_at(database) or request.until)
        if scope.verified:  # aggregates that are left without their prices do not know who was
            since = max(since, kept_from(database) or since)
        request = msgspec.structs.replace(request, scope=scope, since=since)
        every, periods = _stored_periods(settings, database, request)
        under = _stored_under(settings, database, request, periods)
    return PriceHistoryResult(
        gpus=gpus, track=periods, every=every, under=under, source="the store", until=request.until
    )


def _stored_periods(
    settings: Settings, database: Database, request: PriceHistoryRequest
) -> tuple[PeriodLength, PricePeriods]:
    """The periods, and their length: hours instead of ten minutes where only the aggregates are still stored."""
    from gpuwatch.storage.history.queries.stored_prices import read_market_history

    every = _period_length(request, request.until - request.since, timedelta())
    if every is PeriodLength.TEN_MINUTES and _is_exact(database, request.since):
        covered_from = request.since - timedelta(seconds=COVERAGE_S)  # an earlier poll still counts
        market_history = read_market_history(database, request.scope, covered_from, request.until)
        priced, listed = _pricers(settings, market_history)
        until_s = int(request.until.timestamp())
        found = price_periods_of(market_history, listed, priced, every, request.zone, until_s)
        points = [point for point in found.points if point.starts_at >= request.since]
        series = cut_series(found.series, int(request.since.timestamp()) // HOUR_S)
        return every, msgspec.structs.replace(found, points=points, series=series)
    every = PeriodLength.HOUR if every is PeriodLength.TEN_MINUTES else every
    rates = {name: 1 + rate for name, rate in commission_rates(settings).items()}
    span = request.since, request.until
    return every, read_price_periods(database, request.scope, span, spans=(every, request.zone), rates=rates, trim=True)


def _is_exact(database: Database, since: datetime) -> bool:
    """Whether the prices themselves are still stored, not only their aggregates."""
    exact_from = kept_from(database)
    return exact_from is None or exact_from <= since


def _splits_hours(request: PriceHistoryRequest) -> bool:
    """Whether a midnight of the zone lies within an hour of UTC: the hourly prices are not enough."""
    first_hour, end_hour = (int(at.timestamp()) // HOUR_S for at in (request.since, request.until))
    days = period_spans(first_hour, end_hour + 1, PeriodLength.DAY, request.zone)
    return any(day.start_s % HOUR_S for day in days)


def _period_length(request: PriceHistoryRequest, length: timedelta, poll_spacing: timedelta) -> PeriodLength:
    """The length of a period, from the length of the whole and the spacing of the polls."""
    if request.every:
        return PeriodLength(request.every)
    if request.is_for_programs or length <= _BY_HOUR_UP_TO:
        return PeriodLength.HOUR
    return PeriodLength.DAY if length <= _BY_DAY_UP_TO and poll_spacing <= _DAY else PeriodLength.WEEK


def _stored_under(
    settings: Settings, database: Database, request: PriceHistoryRequest, periods: PricePeriods
) -> Sequence[tuple[float, TimeShare]]:
    """To the second if the exact prices are still stored, otherwise by the hour."""
    from gpuwatch.storage.history.queries.stored_prices import polls_by_time, read_covering_polls, read_market_history

    if not request.under_usd:
        return ()
    if not _is_exact(database, request.since):
        return [(usd, hours_under(periods.series, usd * 1e6)) for usd in request.under_usd]
    part = (database, request.scope, request.since, request.until)
    counted_polls = polls_by_time(read_covering_polls(*part), covering=True)
    return _time_under(settings, read_market_history(*part), request, counted_polls)


def _time_under(
    settings: Settings,
    market_history: MarketHistory,
    request: PriceHistoryRequest,
    counted_polls: Sequence[MarketPoll] | None = None,
) -> Sequence[tuple[float, TimeShare]]:
    priced, _ = _pricers(settings, market_history)
    until_s = int(request.until.timestamp())
    return [
        (usd, time_under(market_history, round(usd * 1e6), priced, until_s, counted_polls)) for usd in request.under_usd
    ]


def _pricers(
    settings: Settings, market_history: MarketHistory
) -> tuple[Callable[[int, OfferInterval], float], Callable[[int, OfferInterval], float]]:
    """Price functions per GPU-hour: with commission, and as listed."""

    def listed(listing: int, interval: OfferInterval) -> float:
        return interval.listed_microusd_hour(REFERENCE_DISK_GB) / market_history.listings[listing].gpu_count

    return pricer(settings, market_history), listed


def _poll_spacing(market_history: MarketHistory) -> timedelta:
    """The usual interval between polls."""
    times = sorted({poll.at_s for poll in market_history.polls})
    return timedelta(seconds=median(later - at for at, later in pairwise(times)) if len(times) > 1 else 0)


# --- JSON -------------------------------------------------------------------------------------------------------------

METHOD = (
    # word-check: allow - a value of the JSON
    "prices weighted by the time they were on offer; a look vouches for what it showed until the next one, at most 3 h"
)


def period_views(history: PriceHistoryResult) -> list[PeriodView]:
    """The periods as other programs see them."""
    return [PeriodView.of(point, **period_fields(point)) for point in history.track.points]


def price_history_json(history: PriceHistoryResult) -> dict[str, Any]:
    """JSON of a history that is not a list of its periods alone."""
    series = history.track.series
    return {
        "gpus": history.gpus,
        "every": history.every.value,
        "source": history.source,
        "method": METHOD,
        "samples": series.known,  # hours with a poll
        "since": rfc3339(series.starts_at(0)) if series.polled else None,
        "until": rfc3339(history.ends_at),
        "hours": len(series.polled),
        "known_hours": series.known,
        "gaps": [{"starts_at": rfc3339(gap.starts_at), "hours": gap.hours} for gap in unobserved_gaps(series)],
        "under": [
            {
                "price_usd_gpu_hour": usd,
                "share": share.share,
                "under_hours": share.under_s / 3600,
                "known_hours": share.known_s / 3600,
                "method": share.method,
            }
            for usd, share in history.under
        ],
        "points": period_views(history),
    }


def price_chart(history: PriceHistoryResult, title: str, zone: tzinfo, size: ChartSize = LARGE) -> SvgChart | None:
    """The lowest price and the median, the middle half of the prices, hatched where the market was not polled."""
    points = history.track.points

    def usd(quantile: str) -> list[float | None]:  # the last price extends to the end
        return [usd_number(getattr(point, f"{quantile}_with_commission_microusd")) for point in (*points, points[-1])]

    ends_at = max(history.ends_at or points[-1].starts_at, points[-1].starts_at)
    return step_chart(
        title,
        [at.astimezone(zone) for at in (*(point.starts_at for point in points), ends_at)],
        [SvgLine(_("lowest"), usd("min")), SvgLine(_("median"), usd("median"), (usd("q1"), usd("q3")))],
        [not point.polled for point in points],
        size=size,
    )
