"""The large chart of a watch: the lowest matching price, its limit, alerts, rentals, time that was not polled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gpuwatch.app.reader_text import reader_clock
from gpuwatch.domain.market.money import MICRO, rate_text
from gpuwatch.language import translate as _
from gpuwatch.web.chart_axes import time_ticks, value_ticks

if TYPE_CHECKING:
    from gpuwatch.app.watches.matching_prices import MatchingPrices

_MOST_POINTS = 400


def watch_chart(
    prices: MatchingPrices, limit: int | None, marks: Sequence[tuple[datetime, str]], now: datetime
) -> dict[str, Any] | None:
    """What `charts.js` reads, in dollars; None: nothing is recorded.

    Args:
        limit: in micro-dollars per GPU-hour.
        marks: times of alerts ("alert") and rentals ("rent").
    """
    if not prices.known:
        return None
    steps = -(-len(prices.lows) // _MOST_POINTS)
    start = prices.starts_at(0)
    x = [int(prices.starts_at(index).timestamp()) for index in range(0, len(prices.lows), steps)]
    values = [_lowest(prices.lows[index : index + steps]) for index in range(0, len(prices.lows), steps)]
    x.append(int(now.timestamp()))  # the last price holds until now
    values.append(values[-1])
    shown = [low / MICRO for low in prices.known]
    if limit is not None and min(shown) / 3 <= limit / MICRO <= max(shown) * 3:
        shown.append(limit / MICRO)
    (low, high), levels = value_ticks(shown)
    label = "" if limit is None else _("your limit {limit}").format(limit=rate_text(limit))
    return {
        "x": x, "zone": reader_clock().zone.key, "format": "usd", "steps": True, "range": [x[0], x[-1]],
        "y": [low, high], "yticks": levels, "ticks": time_ticks(start, now), "gaps": _gaps(prices, x[-1]), "pad": 12,
        "limits": [] if limit is None else [{"value": limit / MICRO, "label": label, "at": "left", "below": True}],
        "marks": sorted((int(at.timestamp()), kind) for at, kind in marks if start <= at <= now),
        "series": [{"label": _("Lowest matching offer"), "look": "low", "values": values}],
    }  # fmt: skip


def _lowest(lows: Sequence[int | None]) -> float | None:
    known = [low for low in lows if low is not None]
    return min(known) / MICRO if known else None


def _gaps(prices: MatchingPrices, end_s: int) -> list[tuple[int, int]]:
    """From and to of each time without a poll."""
    gaps, index, first = [], 0, int(prices.starts_at(0).timestamp())
    for is_polled, run in groupby(prices.polled):
        length = len(list(run))
        if not is_polled:
            gaps.append((first + index * prices.step_s, min(end_s, first + (index + length) * prices.step_s)))
        index += length
    return gaps
