"""Plots with axes that a page and a picture share: money by day, and how long offers last. SVG of attributes only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Final, NamedTuple

from gpuwatch.app.history.svg_axes import Tick, figure_ticks
from gpuwatch.app.history.svg_charts import SvgChart
from gpuwatch.app.history.svg_small import number
from gpuwatch.app.history.svg_style import text_width
from gpuwatch.domain.market.money import dollars
from gpuwatch.language import translate as _

_LEFT: Final = 40
_TOP: Final = 10
_BOTTOM: Final = 24
_BAR: Final = 0.72  # of a day's width
_SERIES: Final = "abcdef"  # the last, outlined only: all others
_SURVIVAL_WIDTH: Final = 360
_SURVIVAL_HEIGHT: Final = 190
_HOUR_STEPS: Final = (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720)  # of an axis of hours
_MOST_HOURS: Final = 4  # ticks besides 0


class BarDay(NamedTuple):
    """One bar.

    Attributes:
        label: below it, such as "28".
        amounts: dollars of each series, in their order.
        title: what a pointer on it shows; empty: the label with every amount.
        ahead: dollars still to come, hatched on top.
    """

    label: str
    amounts: Sequence[float]
    title: str = ""
    ahead: float = 0.0


class SurvivalStep(NamedTuple):
    """From so many hours on, this share is still on sale, between `low` and `high`."""

    hours: float
    share: float
    low: float
    high: float


def stacked_bars(  # noqa: PLR0913 what a chart of money says, and its size
    days: Sequence[BarDay],
    names: Sequence[str],
    limit: float | None = None,
    limit_text: str = "",
    label: str = "",
    *,
    width: int = 760,
    height: int = 240,
) -> str:
    """Dollars by day, stacked from 0, with a budget as a dashed line."""
    return _plot(stacked_chart(days, names, limit, limit_text, label, width=width, height=height))


def stacked_chart(  # noqa: PLR0913 as `stacked_bars`
    days: Sequence[BarDay],
    names: Sequence[str],
    limit: float | None = None,
    limit_text: str = "",
    title: str = "",
    *,
    width: int = 760,
    height: int = 240,
) -> SvgChart:
    """As `stacked_bars`, for a picture."""
    most = max([sum(day.amounts) + day.ahead for day in days] + [limit or 0.0]) * 1.08 or 1.0
    floor, step = height - _BOTTOM, (width - _LEFT - 4) / max(1, len(days))

    def y(value: float) -> float:
        return floor - value / most * (floor - _TOP)

    parts = list(_levels(figure_ticks(0.0, most, _dollars_tick), y, width))
    ends = 0.0
    for index, day in enumerate(days):
        x = _LEFT + (index + (1 - _BAR) / 2) * step
        parts.append(f"<g><title>{escape(day.title or _bar_title(day, names))}</title>")
        parts += [*_bar(day, x, step * _BAR, y), "</g>"]
        middle, half = x + step * _BAR / 2, text_width(day.label) / 2
        if middle - half >= ends:
            parts.append(_text(middle, height - 6, day.label, "middle"))
            ends = middle + half + 8
    if limit is not None:
        level = number(y(limit))
        parts.append(f'<line class="a-lim" x1="{_LEFT}" x2="{width}" y1="{level}" y2="{level}"/>')
        parts.append(_text(width - 4, y(limit) - 6, limit_text, "end", "a-limtext"))
    return SvgChart(title, height, "".join(parts), width)


def _bar(day: BarDay, x: float, wide: float, y: Callable[[float], float]) -> Iterator[str]:
    kinds = [f"s-{_SERIES[min(index, len(_SERIES) - 1)]}" for index in range(len(day.amounts))]
    base = 0.0
    for kind, amount in zip([*kinds, "s-next"], [*day.amounts, day.ahead], strict=True):
        if amount > 0:
            top, tall = y(base + amount), y(base) - y(base + amount)
            seam = 1 if base and tall > 2 else 0  # series stay apart without their colours
            size = f'y="{number(top)}" height="{number(max(0.5, tall - seam))}"'
            yield f'<rect class="{kind}" x="{number(x)}" width="{number(wide)}" {size}/>'
            base += amount


def _bar_title(day: BarDay, names: Sequence[str]) -> str:
    amounts = [f"{name} {dollars(usd)}" for name, usd in zip(names, day.amounts, strict=False) if usd]
    return f"{day.label}: {', '.join(amounts) or dollars(0)}"


def survival_chart(
    steps: Sequence[SurvivalStep], until_hours: float, median_hours: float | None, note: str = "", label: str = ""
) -> str:
    """The share of offers still on sale by hours since they appeared, with its band and the median.

    Args:
        steps: rising; before the first, all are on sale.
        until_hours: the end of the axis.
        note: beside the median, such as "half are gone after 4 h 10 min".
    """
    return _plot(survival_plot(steps, until_hours, median_hours, note, label))


def survival_plot(
    steps: Sequence[SurvivalStep], until_hours: float, median_hours: float | None, note: str = "", title: str = ""
) -> SvgChart:
    """As `survival_chart`, for a picture."""
    right, floor = _SURVIVAL_WIDTH - 6, _SURVIVAL_HEIGHT - _BOTTOM
    until = until_hours if until_hours > 0 else 1.0

    def x(hours: float) -> float:
        return _LEFT + (right - _LEFT) * min(hours / until, 1.0)

    def y(share: float) -> float:
        return floor - (floor - _TOP) * min(max(share, 0.0), 1.0)

    shown = _apart([step for step in steps if step.hours <= until], x)

    def line(values: Iterable[float]) -> str:
        path = "".join(f"H{round(x(step.hours))}V{round(y(value))}" for step, value in zip(shown, values, strict=True))
        return f"M{_LEFT} {_TOP}{path}H{right}"

    parts = list(_levels([Tick(part / 4, f"{25 * part} %") for part in range(5)], y, right))
    ticks = _hour_ticks(until)
    parts += [
        _text(x(hours), _SURVIVAL_HEIGHT - 6, _("{hours} h").format(hours=hours), _anchor(hours, until))
        for hours in ticks
    ]
    if shown:
        # back along the lower edge: each value holds from its step to the next, which is where the path comes from
        lows = [(round(x(step.hours)), round(y(step.low))) for step in shown]
        ends = [*(at for at, _low in lows[1:]), right]
        back = "".join(f"L{end} {low}H{at}" for (at, low), end in zip(lows[::-1], ends[::-1], strict=True))
        parts.append(f'<path class="s-box" d="{line(step.high for step in shown)}{back}V{_TOP}Z"/>')
    parts.append(f'<path class="p-line" d="{line(step.share for step in shown)}"/>')
    if median_hours is not None and median_hours <= until:
        at, half = x(median_hours), number(y(0.5))
        parts.append(f'<path class="m-half" d="M{_LEFT} {half}H{number(at)}V{number(y(0))}"/>')
        parts.append(f'<circle class="s-now" cx="{number(at)}" cy="{half}" r="5"/>')
        if right - at - 9 >= text_width(note):
            parts.append(_text(at + 9, y(0.5) - 8, note, "start", "a-note halo"))
        else:  # the curve falls, so the corner is free
            parts.append(_text(right, y(1.0) + 14, note, "end", "a-note halo"))
    return SvgChart(title, _SURVIVAL_HEIGHT, "".join(parts), _SURVIVAL_WIDTH)


def _apart(steps: Sequence[SurvivalStep], x: Callable[[float], float]) -> list[SurvivalStep]:
    """One step in two units of the axis, the last one: more are drawn upon each other."""
    return [list(run)[-1] for _units, run in groupby(steps, key=lambda step: int(x(step.hours) / 2))]


def _hour_ticks(until: float) -> list[int]:
    step = next((step for step in _HOUR_STEPS if until / step <= _MOST_HOURS), _HOUR_STEPS[-1])
    return list(range(0, int(until) + 1, step))


def _anchor(hours: int, until: float) -> str:
    if not hours:
        return "start"
    return "end" if hours >= 0.95 * until else "middle"


def _levels(ticks: Iterable[Tick], y: Callable[[float], float], right: float) -> Iterator[str]:
    for tick in ticks:
        level = number(y(tick.at))
        yield f'<line class="a-grid" x1="{_LEFT}" x2="{number(right)}" y1="{level}" y2="{level}"/>'
        yield _text(_LEFT - 6, y(tick.at) + 4, tick.text, "end")


def _text(x: float, y: float, text: str, anchor: str, kind: str = "a-text") -> str:
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escape(text)}</text>'


def _dollars_tick(value: float, digits: int) -> str:
    """Whole dollars, unless the steps are smaller."""
    return f"${value:,.{2 if digits else 0}f}"


def _plot(chart: SvgChart) -> str:
    """The element for a page: it has a name, and no title that would cover those of its parts."""
    return (
        f'<svg class="plot" viewBox="0 0 {chart.width} {chart.height}" role="img" aria-label="{escape(chart.title)}">'
        f"{chart.body}</svg>"
    )
