"""The price of a GPU over time, as the chart draws it and as a table; ticks are in the configured zone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from gpuwatch.app.history.price_history import PriceHistoryRequest, PriceHistoryResult, price_history
from gpuwatch.app.history.svg_axes import dollars_tick, figure_ticks, time_ticks
from gpuwatch.app.history.svg_small import NOTHING_ON_SALE
from gpuwatch.app.reader_text import day, weekday, with_unit
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.market.money import MICRO, rate_text
from gpuwatch.language import translate as _

if TYPE_CHECKING:
    from gpuwatch.domain.history.price_series import PricePeriod
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.web.page import View

PERIODS: Mapping[str, tuple[int, str]] = {"1d": (1, "10m"), "7d": (7, "1h"), "30d": (30, "2h"), "90d": (90, "6h")}
_LIMITS = 4  # shown; more would hide the price
_PLAIN = 180  # points of the line without JavaScript


class ChartRow(NamedTuple):
    """A part of the period in the table of figures; None: nothing on sale, or not polled."""

    text: str
    lowest: float | None
    medians: tuple[float, float] | None
    offers: int
    is_known: bool


class PriceChart(NamedTuple):
    """What the page shows of the price over time.

    Attributes:
        data: what `charts.js` reads.
        plain: the lowest price for the line without JavaScript, in micro-dollars.
        rows: the figures.
    """

    data: Mapping[str, Any]
    plain: Sequence[float | None]
    rows: Sequence[ChartRow]
    label: str


def price_chart_of(
    view: View, gpu: str, since: str, scope: MarketFilter, watches: Sequence[Watch]
) -> PriceChart | None:
    """The chart, at most a minute old; None: there was no poll. Raises UsageError (no such GPU), StoreError."""
    days, every = PERIODS[since]
    zone = ZoneInfo(view.settings.timezone)
    request = PriceHistoryRequest(
        gpu=gpu,
        scope=scope,
        since=view.now - timedelta(days=days),
        until=view.now.replace(microsecond=0) + timedelta(seconds=1),
        data=None,
        every=every,
        is_for_programs=False,
        zone=zone,
        under_usd=(),
    )
    key = (gpu, scope, since)
    history: PriceHistoryResult = view.owner.gpu_pasts.reading(
        key, view.settings, view.now, lambda: price_history(view.settings, request)
    )
    points = history.track.points
    while points and not points[0].polled:
        points = points[1:]
    if not points:
        return None
    ends_at = min(history.ends_at or view.now, view.now)
    lows = [_shown(point) for point in points]
    return PriceChart(
        data=_data(points, ends_at, zone, watches),
        plain=lows[:: max(1, len(lows) // _PLAIN)],
        rows=list(_rows(points, since, zone)),
        label=_label(gpu, days, points),
    )


def _data(points: Sequence[PricePeriod], ends_at: datetime, zone: ZoneInfo, watches: Sequence[Watch]) -> dict[str, Any]:
    x = [*(int(point.starts_at.timestamp()) for point in points), int(ends_at.timestamp())]
    columns = {name: _column(points, name) for name in ("min", "q1", "median", "q3")}
    limits = [(watch.name, float(watch.max_price_usd_gpu_hour)) for watch in watches[:_LIMITS]]
    drawn = [usd for column in columns.values() for usd in column if usd is not None]
    low, high = min(drawn, default=0.0), max(drawn, default=1.0)
    near = [usd for _name, usd in limits if low / 2 <= usd <= 2 * high]
    low, high = min([low, *near]), max([high, *near])
    pad = (high - low) * 0.06 or high * 0.1
    y = [max(0.0, low - pad), high + pad]
    return {
        "x": x,
        "zone": zone.key,
        "format": "usd",
        "steps": True,
        "band": [2, 1],
        "range": [x[0], x[-1]],
        "y": y,
        "yticks": [tick.at for tick in figure_ticks(y[0], y[1], dollars_tick)],
        "ticks": [[int(tick.at), _tick_text(tick.at, zone)] for tick in time_ticks(x[0], x[-1], zone)],
        "gaps": [[x[start], x[end]] for start, end in _gaps(points)],
        "limits": [
            {
                "value": usd,
                "label": _("{watch} limit {limit}").format(watch=name, limit=rate_text(usd * MICRO)),
                "at": "left",
                "below": True,
            }
            for name, usd in limits
            if y[0] <= usd <= y[1]
        ],
        "series": [
            {"label": _("Cheaper quarter up to"), "look": "edge", "values": columns["q1"]},
            {"label": _("Dearer quarter from"), "look": "edge", "values": columns["q3"]},
            {"label": _("Median"), "look": "median", "values": columns["median"]},
            {"label": _("Lowest"), "look": "low", "values": columns["min"]},
        ],
    }


def _column(points: Sequence[PricePeriod], name: str) -> list[float | None]:
    """Dollars of each point; the last one extends to the end."""
    values = [getattr(point, f"{name}_with_commission_microusd") for point in (*points, points[-1])]
    return [None if value is None else round(value / MICRO, 3) for value in values]


def _shown(point: PricePeriod) -> float | None:
    if not point.polled:
        return None
    low = point.min_with_commission_microusd
    return NOTHING_ON_SALE if low is None else float(low)


def _gaps(points: Sequence[PricePeriod]) -> Iterator[tuple[int, int]]:
    at = 0
    for is_polled, run in groupby(points, key=lambda point: point.polled):
        length = len(list(run))
        if not is_polled:
            yield at, at + length
        at += length


def _tick_text(at_s: float, zone: ZoneInfo) -> str:
    at = datetime.fromtimestamp(at_s, zone)
    return day(at) if (at.hour, at.minute) == (0, 0) else f"{at:%H:%M}"


def _label(gpu: str, days: int, points: Sequence[PricePeriod]) -> str:
    known = [point.min_with_commission_microusd for point in points if point.min_with_commission_microusd is not None]
    if not known:
        return _("Price of {gpu}: nothing was on sale").format(gpu=gpu)
    text = _("Price of {gpu} over {days} d: lowest from {first} to {last}. A table with the figures follows.")
    return text.format(gpu=gpu, days=days, first=rate_text(known[0]), last=rate_text(known[-1]))


_ROW_OF: Mapping[str, Callable[[datetime], tuple[int, ...]]] = {
    "1d": lambda at: (at.toordinal(), at.hour),
    "7d": lambda at: (at.toordinal(), at.hour // 6),
    "30d": lambda at: (at.toordinal(),),
    "90d": lambda at: at.isocalendar()[:2],
}


def _rows(points: Sequence[PricePeriod], since: str, zone: ZoneInfo) -> Iterator[ChartRow]:
    """The newest first; at most 60: hours of a day, quarters of the days of a week, days, weeks."""
    local = [(point.starts_at.astimezone(zone), point) for point in points]
    parts = [list(run) for _key, run in groupby(local, key=lambda one: _ROW_OF[since](one[0]))]
    for part in reversed(parts):
        at, of_part = part[0][0], [point for _at, point in part]
        lows = [one.min_with_commission_microusd for one in of_part if one.min_with_commission_microusd is not None]
        medians = [
            one.median_with_commission_microusd for one in of_part if one.median_with_commission_microusd is not None
        ]
        text = day(at) if since in {"30d", "90d"} else with_unit(f"{weekday(at)} {at:%H:%M}")
        yield ChartRow(
            text=text,
            lowest=min(lows, default=None),
            medians=(min(medians), max(medians)) if medians else None,
            offers=max(one.offers for one in of_part),
            is_known=any(one.polled for one in of_part),
        )
