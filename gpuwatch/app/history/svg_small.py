"""Small charts as SVG of attributes only: of rows on the web page, and in pictures.

The page's stylesheet colours the classes; in a picture `svg_style` does, under the same names. Prices may be in any
unit, as long as all of a chart's are in the same. A price is None where the market was not polled (hatched), and
`NOTHING_ON_SALE` where it was and there was none (blank).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import inf, isfinite
from typing import Final

from gpuwatch.app.history.svg_charts import SvgChart
from gpuwatch.app.history.svg_style import HATCH
from gpuwatch.domain.market.price_rank import PriceRange, Standing, standing_of

NOTHING_ON_SALE: Final = inf  # the lowest of no prices
SPARK_WIDTH: Final = 240
SPARK_HEIGHT: Final = 40
_FAR: Final = 1.2  # heights of the line away from it, a limit is drawn at the edge
_STRIP_Y: Final = 10
_TONES: Final = {Standing.CHEAP: " good", Standing.USUAL: "", Standing.DEAR: " dear"}


def sparkline(values: Sequence[float | None], limit: float | None, label: str, tall: bool = False) -> str:
    """One price per hour as a step line: the time at or under the limit is filled, what was not polled hatched."""
    return (
        f'<svg class="spark{" tall" if tall else ""}" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}"'
        f' preserveAspectRatio="none" role="img" aria-label="{escape(label)}">{spark_body(values, limit)}</svg>'
    )


def spark_chart(title: str, values: Sequence[float | None], limit: float | None) -> SvgChart:
    """As `sparkline`, for a picture."""
    return SvgChart(title, SPARK_HEIGHT, f"{HATCH}{spark_body(values, limit)}", SPARK_WIDTH)


def spark_body(values: Sequence[float | None], limit: float | None) -> str:
    """What a sparkline's element contains; it is 240 by 40."""
    scale = _SparkScale(values, limit)
    parts = [
        f'<rect class="p-gap" x="{scale.x(start)}" width="{scale.x(end - start)}" height="{SPARK_HEIGHT}"/>'
        for start, end in _runs([value is None for value in values])
    ]
    if limit is not None:
        level = scale.y(limit)
        under = [value is not None and value <= limit for value in values]
        parts += [
            f'<path class="p-win" d="M{scale.x(start)} {level}V{scale.steps(values, start, end)}V{level}Z"/>'
            for start, end in _runs(under)
        ]
        parts.append(f'<line class="p-lim" x2="{SPARK_WIDTH}" y1="{level}" y2="{level}"/>')
    known = [value is not None and isfinite(value) for value in values]
    path = "".join(f"M{scale.x(start)} {scale.steps(values, start, end)}" for start, end in _runs(known))
    if path:
        parts.append(f'<path class="p-line" d="{path}"/>')
    if known and known[-1]:
        parts.append(f'<path class="p-dot" d="M{SPARK_WIDTH} {scale.y(values[-1])}h.01"/>')
    return "".join(parts)


class _SparkScale:
    """Where hours and prices lie."""

    def __init__(self, values: Sequence[float | None], limit: float | None) -> None:
        self.step = SPARK_WIDTH / max(1, len(values))
        shown = [value for value in values if value is not None and isfinite(value)]
        if limit is not None and (not shown or self._is_near(shown, limit)):
            shown.append(limit)
        low, high = min(shown, default=0.0), max(shown, default=0.0)
        padding = (high - low) * 0.14 or abs(high) * 0.1 or 1.0
        self.low, self.high = low - padding, high + padding

    @staticmethod
    def _is_near(shown: Sequence[float], limit: float) -> bool:
        low, high = min(shown), max(shown)
        room = _FAR * (high - low + 0.02 * abs(high))
        return low - room <= limit <= high + room

    def x(self, index: int) -> str:
        """The start of an hour."""
        return number(index * self.step)

    def y(self, value: float | None) -> str:
        """A price; one outside lies at the edge."""
        share = ((value or 0.0) - self.low) / (self.high - self.low)
        return number(min(max(SPARK_HEIGHT * (1 - share), 1), SPARK_HEIGHT - 1))

    def steps(self, values: Sequence[float | None], start: int, end: int) -> str:
        """The line over hours that have a price: from the height of the first to the end of the last."""
        parts = [self.y(values[start])]
        for index in range(start + 1, end):
            if values[index] != values[index - 1]:
                parts.append(f"H{self.x(index)}V{self.y(values[index])}")
        return "".join([*parts, f"H{self.x(end)}"])


def rank_strip(  # noqa: PLR0913, PLR0917 the five figures of a range, and what is compared with them
    low: float,
    q1: float,
    median: float,
    q3: float,
    high: float,
    now: float | None,
    limit: float | None = None,
    label: str = "",
) -> str:
    """A price among those of its history: range, middle half, median, limit, now. Its width is that of its place."""
    if now is not None:
        spread, low, high = PriceRange(low, q1, median, q3, high), min(low, now), max(high, now)
    width = high - low

    def x(value: float) -> str:
        share = (value - low) / width if width else 0.5
        return f"{number(1 + 98 * min(max(share, 0), 1))}%"

    middle = 98 * (q3 - q1) / width if width else 0
    parts = [f'<line class="s-rail" x1="1%" x2="99%" y1="{_STRIP_Y}" y2="{_STRIP_Y}"/>']
    if middle:
        parts.append(f'<rect class="s-box" x="{x(q1)}" width="{number(middle)}%" y="5" height="10" rx="2"/>')
    parts.append(f'<line class="s-med" x1="{x(median)}" x2="{x(median)}" y1="5" y2="15"/>')
    if limit is not None and low <= limit <= high:
        parts.append(f'<line class="s-lim" x1="{x(limit)}" x2="{x(limit)}" y2="20"/>')
    if now is not None:
        tone = _TONES[standing_of(spread, now)]
        parts.append(f'<circle class="s-now{tone}" cx="{x(now)}" cy="{_STRIP_Y}" r="5.5"/>')
    return _strip(parts, f'role="img" aria-label="{escape(label)}"' if label else 'aria-hidden="true"')


def range_bar(low: float, high: float, top: float, limit: float | None = None, series: str = "a") -> str:
    """A bar from the best to the worst case on an axis from 0 to `top`. The text beside it has the figures.

    Args:
        series: the colour, "a" to "e".
    """

    def x(value: float) -> str:
        return f"{number(100 * min(max(value / top, 0), 1) if top > 0 else 0)}%"

    wide = max(0.5, 100 * (min(high, top) - min(low, top)) / top) if top > 0 else 0.5
    parts = [
        '<line class="a-grid" x2="100%" y1="19.5" y2="19.5"/>',
        f'<rect class="s-{series}" x="{x(low)}" width="{number(wide)}%" y="3" height="13" rx="3"/>',
    ]
    if limit is not None and limit <= top:
        parts.append(f'<line class="a-lim" x1="{x(limit)}" x2="{x(limit)}" y2="20"/>')
    return _strip(parts, 'aria-hidden="true"')


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def _strip(parts: Sequence[str], said: str) -> str:
    return f'<svg class="strip" height="20" {said}>{"".join(parts)}</svg>'


def _runs(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Where flags are set: from, and up to."""
    start = None
    for index, is_set in enumerate([*flags, False]):
        if is_set and start is None:
            start = index
        elif not is_set and start is not None:
            yield start, index
            start = None
