"""The market at a glance: each GPU's price, changes and rank, from the store or from a file of price rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from gpuwatch.app.history.past_prices import (
    commission_rates,
    gpu_names_in,
    gpu_names_of,
    load_prices,
    narrow_to_scope,
    pricer,
)
from gpuwatch.app.market.current_offers import max_price_age
from gpuwatch.app.market.gpu_status_view import GpuStatusView
from gpuwatch.bootstrap import open_history, open_store_read_only
from gpuwatch.domain.history.gpu_status import METHOD, gpu_histories_of, gpu_status_of
from gpuwatch.domain.market.figure_text import duration_text, percent_text
from gpuwatch.domain.market.json_view import JsonView, Moment, usd_number
from gpuwatch.domain.market.money import MICRO, per_gpu_hour
from gpuwatch.domain.market.offer import clean
from gpuwatch.storage.history.queries.history_queries import first_poll_at, known_gpu_names
from gpuwatch.storage.history.queries.market_overview import read_gpu_price_history

if TYPE_CHECKING:
    from gpuwatch.domain.history.gpu_status import GpuHistory, GpuStatus
    from gpuwatch.domain.history.market_history import MarketFilter
    from gpuwatch.settings import Settings

CHEAP_SHARE = 0.1  # assumed: a price is cheap if it was lower in at most a tenth of the known hours
_NAMED = 3
_LOOKBACK = timedelta(days=30, hours=4)  # for the longest change, with some slack


class MarketOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The result; without rows, there was no poll."""

    rows: Sequence[GpuStatus]
    since: datetime  # the start, or the first poll if it is later
    polled_at: datetime | None  # the newest poll
    source: str


def age_text_of(settings: Settings, row: GpuStatus, now: datetime, newest: datetime | None = None) -> str:
    """The age of a price that is not that of now, such as "5.2 h old"; empty: it is.

    Args:
        newest: the end of a file, which counts as now.
    """
    polled_at = datetime.fromtimestamp(row.polled_s, UTC)
    if not row.is_imported and (newest or now) - polled_at <= max_price_age(settings, row.source):
        return ""
    age_text = duration_text(max(0.0, (now - polled_at).total_seconds()))
    return f"{age_text} old" + (", imported" if row.is_imported else "")


class MarketRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request. `scope` has no GPUs: they come from `gpus` (none: all)."""

    gpus: Sequence[str]
    scope: MarketFilter
    since: datetime
    until: datetime
    data: Path | None
    under_usd: float | None


def market_overview(settings: Settings, request: MarketRequest) -> MarketOverview:
    """The overview.

    Raises:
        UsageError: no GPU has this name, or the file cannot be used.
        StoreError: the store cannot be read.
    """
    pasts = (
        _histories_of_file(settings, request, request.data) if request.data else _histories_of_store(settings, request)
    )
    under = None if request.under_usd is None else round(request.under_usd * 1e6)
    rows, starts = [], []
    for past in pasts:
        rows.append(gpu_status_of(past, int(request.since.timestamp()), under))
        starts.append(past.series.starts_at(0))
    newest_s = max((row.polled_s for row in rows), default=None)
    first = min(starts, default=request.since)
    return MarketOverview(
        rows=rows,
        since=max(first, request.since),
        polled_at=None if newest_s is None else datetime.fromtimestamp(newest_s, UTC),
        source=clean(request.data.name) if request.data else "the store",
    )


def _histories_of_store(settings: Settings, request: MarketRequest) -> Iterator[GpuHistory]:
    rates = {name: 1 + rate for name, rate in commission_rates(settings).items()}
    with open_store_read_only(settings) as database:
        scope = _scope(request, known_gpu_names(database) if request.gpus else frozenset())
    if scope.verified:
        market_history = load_prices(settings, scope, _start(request), request.until, None)
        yield from gpu_histories_of(market_history, pricer(settings, market_history), int(request.until.timestamp()))
        return
    with open_history(settings, scope, _start(request), request.until) as database:
        since = max(_start(request), first_poll_at(database) or request.until)
        yield from read_gpu_price_history(database, scope, since, request.until, rates)


def _histories_of_file(settings: Settings, request: MarketRequest, data: Path) -> Iterator[GpuHistory]:
    full_history = load_prices(settings, request.scope, _start(request), request.until, data)
    market_history = narrow_to_scope(full_history, _scope(request, gpu_names_in(full_history)))
    yield from gpu_histories_of(market_history, pricer(settings, market_history), int(request.until.timestamp()))


def _start(request: MarketRequest) -> datetime:
    return min(request.since, request.until - _LOOKBACK)


def _scope(request: MarketRequest, seen: frozenset[str]) -> MarketFilter:
    if not request.gpus:
        return request.scope
    return msgspec.structs.replace(
        request.scope, gpus=tuple(gpu for text in request.gpus for gpu in gpu_names_of(text, seen))
    )


def market_sentence(page: MarketOverview) -> str:
    """Which GPUs are cheap now, in one plain sentence."""
    known = [
        (row.percentile, row.gpu, row.now) for row in page.rows if row.now is not None and row.percentile is not None
    ]
    cheap = sorted(entry for entry in known if entry[0] <= CHEAP_SHARE)
    if cheap:
        named = ", ".join(f"{gpu} at {per_gpu_hour(now / MICRO)}" for _, gpu, now in cheap[:_NAMED])
        more = f" and {len(cheap) - _NAMED} more" if len(cheap) > _NAMED else ""
        return f"Cheap now, by the price in their own history: {named}{more}."
    if not known:
        return "Too little history to tell what is cheap now."
    return f"No GPU is cheap now: each was cheaper in more than {percent_text(CHEAP_SHARE, 0)} of its known hours."


class MarketView(JsonView, frozen=True, kw_only=True):
    """The overview as other programs see it."""

    looked_at: Moment | None
    sentence: str
    source: str
    method: str
    samples: Annotated[int, Meta(description="Hours with a poll, over all GPUs.")]
    since: Moment
    until: Moment
    gpus: list[GpuStatusView]


def market_view(page: MarketOverview, request: MarketRequest) -> MarketView:
    """The overview as `gpuwatch market --json` prints it."""
    return MarketView.of(
        page,
        looked_at=page.polled_at,
        sentence=market_sentence(page),
        method=METHOD,
        samples=sum(row.known_hours for row in page.rows),
        until=request.until,
        gpus=list(map(_gpu_view, page.rows)),
    )


def _gpu_view(row: GpuStatus) -> GpuStatusView:
    is_known, life = row.is_lifetime_known, row.lifetime
    low_s, high_s = life.median_interval_s if is_known else (None, None)
    return GpuStatusView.of(
        row,
        looked_at=datetime.fromtimestamp(row.polled_s, UTC),
        imported=row.is_imported,
        price_usd_gpu_hour=usd_number(row.now),
        change_24h=row.changes[24],
        change_7d=row.changes[7 * 24],
        change_30d=row.changes[30 * 24],
        under_usd_gpu_hour=usd_number(row.under),
        life_median_seconds=life.median_s if is_known else None,
        life_median_low_seconds=low_s,
        life_median_high_seconds=high_s,
        life_samples=life.samples,
        life_ended=life.ended,
        seen_offers=row.turnover.offers,
        away_share=row.turnover.away,
        new_offers_per_day=row.turnover.new_a_day,
        gone_offers_per_day=row.turnover.gone_a_day,
    )
