"""The chart of a machine's GPU use: percent over time, the threshold below which it ends, times without samples."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from gpuwatch.app.reader_text import percent, reader_clock, span
from gpuwatch.language import translate as _
from gpuwatch.web.chart_axes import time_ticks
from gpuwatch.web.page import PERCENT

if TYPE_CHECKING:
    from gpuwatch.app.launches.launches import LaunchDetails

_GAP_LEAST_S, _GAP_STEPS = 120, 3  # a longer silence than this many usual steps is a gap
LEVELS = [0, 25, 50, 75, 100]


def use_chart(details: LaunchDetails, now: datetime) -> dict[str, Any] | None:
    """Return what `charts.js` reads; None: nothing was sampled."""
    points = [(int(one.at.timestamp()), one.percent) for one in details.utilisation]
    if not any(value is not None for _at, value in points):
        return None
    points, gaps = with_gaps(points)
    start, end = details.utilisation[0].at, details.launch.ended_at or now
    spec = None if details.watch is None else details.watch.launch
    limits = []
    if spec is not None and spec.idle_below is not None and spec.idle_for_s is not None:
        text = _("ends after {time} under {percent}")
        label = text.format(time=span(spec.idle_for_s), percent=percent(spec.idle_below / 100))
        limits.append({"value": spec.idle_below, "label": label, "quiet": True, "at": "left"})
    return {
        "x": [at for at, _value in points], "zone": reader_clock().zone.key, "format": "percent",
        "range": [points[0][0], max(int(end.timestamp()), points[0][0] + 60)], "y": list(PERCENT), "yticks": LEVELS,
        "ticks": time_ticks(start, end), "gaps": gaps, "limits": limits, "pad": 20,
        "series": [{"label": _("GPU use"), "look": "area", "values": [value for _at, value in points]}],
    }  # fmt: skip


def with_gaps(
    points: Sequence[tuple[int, float | None]],
) -> tuple[list[tuple[int, float | None]], list[tuple[int, int]]]:
    """Return the points with a hole at each silence, and from and to of each time without a value."""
    steps = [after - before for (before, _b), (after, _a) in pairwise(points)]
    silent_s = max(_GAP_LEAST_S, _GAP_STEPS * median(steps)) if steps else _GAP_LEAST_S
    found: list[tuple[int, float | None]] = list(points[:1])
    gaps: list[tuple[int, int]] = []
    known_s = points[0][0] if points else 0
    for at, value in points[1:]:
        if value is None:
            found.append((at, None))
            continue
        if at - known_s > silent_s:
            gaps.append((known_s, at))
            if found[-1][1] is not None:
                found.append((known_s + 1, None))
        found.append((at, value))
        known_s = at
    return found, gaps
