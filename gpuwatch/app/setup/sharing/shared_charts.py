"""The charts that links show: a GPU's or a watch's lowest price of seven days, light or dark as the reader's screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.app.history.price_history import PriceHistoryRequest, PriceHistoryResult, price_chart, price_history
from gpuwatch.app.history.svg_axes import COMPACT
from gpuwatch.app.history.svg_charts import SvgChart, SvgLine, picture, picture_svg, step_chart
from gpuwatch.app.reader_text import day
from gpuwatch.app.watches.current_limits import limits_in_force
from gpuwatch.app.watches.matching_prices import matching_prices
from gpuwatch.app.watches.watch_selection import require_watch
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PeriodLength
from gpuwatch.domain.market.figure_text import UNKNOWN
from gpuwatch.domain.market.money import MICRO, rate_text
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.errors import ResourceNotFound
from gpuwatch.language import translate as _
from gpuwatch.settings import Settings

CHART_DAYS = 7
_HourLow = tuple[datetime, int | None]  # its start; in micro-dollars per GPU-hour


class SharedChart(msgspec.Struct, frozen=True, kw_only=True):
    """One chart.

    Attributes:
        summary: the same in one sentence, for those who do not see it.
        days: the lowest price of each day, as text.
    """

    title: str
    summary: str
    notes: tuple[str, ...]
    chart: SvgChart | None
    days: tuple[tuple[str, str], ...] = ()

    def svg(self) -> str:
        """The picture, without a script and without an address."""
        return picture_svg(self.title, [self.chart], self.notes)

    def png(self) -> bytes:
        """The picture for mails. Raises UsageError: no library for it."""
        return picture(self.title, [self.chart], self.notes)


def gpu_chart(settings: Settings, gpu: str, now: datetime) -> SharedChart:
    """The chart of a GPU. Raises UsageError (no such GPU), StoreError."""
    zone = ZoneInfo(settings.timezone)
    request = PriceHistoryRequest(
        gpu=gpu,
        scope=MarketFilter(spot=False),
        since=now - timedelta(days=CHART_DAYS),
        until=now.replace(microsecond=0) + timedelta(seconds=1),
        data=None,
        every=PeriodLength.HOUR.value,
        is_for_programs=False,
        zone=zone,
        under_usd=(),
    )
    history = price_history(settings, request)
    return _of(gpu, _hours(history), price_chart(history, gpu, zone, COMPACT) if history.track.points else None, zone)


def watch_chart(settings: Settings, name: str, now: datetime) -> SharedChart:
    """The chart of a watch: the lowest price that it would have matched, and its limit. Raises as `gpu_chart`."""
    stored = require_watch(settings, name)
    watch = next((one for one in settings.watches if one.name in {stored, name}), None)
    if watch is None:
        raise ResourceNotFound(f"watch {name!r} cannot be used: its settings are wrong")
    zone = ZoneInfo(settings.timezone)
    prices = matching_prices(settings, watch, CHART_DAYS, now)
    limit = limits_in_force(settings, [watch]).watches[0].max_price_usd_gpu_hour if _has_limit(watch) else None
    lows = [None if low is None else low / MICRO for low in (*prices.lows, prices.lows[-1])]  # the last one holds now
    drawn = step_chart(
        name,
        [*(prices.starts_at(hour).astimezone(zone) for hour in range(len(prices.lows))), now.astimezone(zone)],
        [SvgLine(_("lowest matching offer"), lows)],
        [not is_polled for is_polled in prices.polled],
        limit=None if limit is None else float(limit),
        size=COMPACT,
    )
    return _of(name, [(prices.starts_at(hour), low) for hour, low in enumerate(prices.lows)], drawn, zone)


def _has_limit(watch: Watch) -> bool:
    return not watch.unlimited and watch.max_job_cost_usd is None


def _hours(history: PriceHistoryResult) -> list[_HourLow]:
    return [(point.starts_at, point.min_with_commission_microusd) for point in history.track.points]


def _days(hours: Sequence[_HourLow], zone: ZoneInfo) -> Iterator[tuple[str, str]]:
    for _day, of_day in groupby(hours, key=lambda hour: hour[0].astimezone(zone).date()):
        (at, first), *rest = of_day
        known = [low for low in (first, *(low for _at, low in rest)) if low is not None]
        yield day(at.astimezone(zone)), rate_text(min(known)) if known else UNKNOWN


def _of(name: str, hours: Sequence[_HourLow], chart: SvgChart | None, zone: ZoneInfo) -> SharedChart:
    lowest = [price for _at, price in hours]
    known = [price for price in lowest if price is not None]
    if chart is None or not known:
        text = _("No price was recorded in the last 7 days.")
        return SharedChart(title=name, summary=text, notes=(text,), chart=None)
    now = lowest[-1]
    title = (
        f"{name}: {rate_text(now)}{_('/GPU-h')}" if now is not None else _("{name}: nothing on sale").format(name=name)
    )
    summary = _("In 7 days the lowest price was between {low} and {high}.").format(
        low=rate_text(min(known)), high=rate_text(max(known))
    )
    notes = (summary, _("Times in {zone}").format(zone=zone.key))
    days = tuple(_days(hours, zone))
    return SharedChart(title=title, summary=summary, notes=notes, chart=chart._replace(title=title), days=days)
