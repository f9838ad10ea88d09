"""Charts as SVG: of `--html` pages, of `--png` pictures and of the chat's. Every text is escaped.

The colours come from classes, so that a page may be dark; a picture is the same chart in light colours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from html import escape
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

from gpuwatch.domain.market.figure_text import decimal_text
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint

LIGHT: Final = {
    "ink": "#1b1f24", "dim": "#57606a", "page": "#fff", "line": "#d0d7de", "a": "#0b57d0", "b": "#b35900",
    "c": "#1a7f37", "shade": "#eaeef2", "mark": "#fff8c5",
}  # fmt: skip
DARK: Final = {
    "ink": "#e6edf3", "dim": "#9aa4af", "page": "#0d1117", "line": "#30363d", "a": "#6cb0ff", "b": "#f0a35e",
    "c": "#56d364", "shade": "#1c232b", "mark": "#2d2a12",
}  # fmt: skip
STYLE: Final = """
svg text{fill:var(--dim);font-size:12px}svg .cell{fill:var(--ink)}
.grid{stroke:var(--line)}
.s0,.s1,.s2{fill:none;stroke-width:2}.s0{stroke:var(--a)}.s1{stroke:var(--b)}.s2{stroke:var(--c)}
.thin{stroke-width:1;stroke-dasharray:4 3}.dot{fill:var(--c)}.bar,.low{fill:var(--a)}.high{fill:var(--b)}
.band{fill:var(--b);fill-opacity:.15}.none,.unknown{fill:var(--shade)}.none{fill-opacity:1!important}
.limit{stroke:var(--b);stroke-width:2;stroke-dasharray:6 4}
"""
_WIDTH: Final = 900
_HEIGHT: Final = 320
_LEFT: Final = 64
_BOTTOM: Final = 36
_TICKS: Final = 5
_MAX_OPACITY: Final = 0.55  # opacity limit of a cell: its number must stay legible
_MARGIN: Final = 24  # of a picture
_LINE_HEIGHT: Final = 18
_PICTURE_WIDTH: Final = 1200  # pixels
_FONT: Final = Path(__file__).with_name("DejaVuSans.ttf")  # a server may have no fonts
Label = Callable[[float], str]


class SvgChart(NamedTuple):
    """One chart, 900 units wide."""

    title: str
    height: int
    body: str

    def svg(self, attributes: str = "") -> str:
        """The element, to stand in a page or in another SVG."""
        return (
            f'<svg {attributes} viewBox="0 0 {_WIDTH} {self.height}" role="img" aria-label="{escape(self.title)}">'
            f"<title>{escape(self.title)}</title>{self.body}</svg>"
        )


class SvgLine(NamedTuple):
    """Prices over time: each holds until the next; None: unknown."""

    label: str
    ys: Sequence[float | None]
    band: tuple[Sequence[float | None], Sequence[float | None]] | None = None  # lower and upper end of the area behind


def picture(title: str, charts: Iterable[SvgChart | None], notes: Iterable[str] = ()) -> bytes:
    """Charts below each other as PNG; the same data gives the same bytes. Raises UsageError: no library for it."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError as fault:
        raise UsageError(f"a picture requires resvg: {install_hint('analysis')}") from fault
    y = _MARGIN + 16
    parts = [f'<text class="cell" style="font-size:16px" x="{_MARGIN}" y="{y}">{escape(title)}</text>']
    for note in notes:
        y += _LINE_HEIGHT
        parts.append(_label(_MARGIN, y, note))
    y += _LINE_HEIGHT
    for chart in filter(None, charts):
        if chart.title != title:
            y += _LINE_HEIGHT
            parts.append(_label(_MARGIN, y - 4, chart.title, kind="cell"))
        parts.append(chart.svg(f'x="{_MARGIN}" y="{y}" width="{_WIDTH}" height="{chart.height}"'))
        y += chart.height + _LINE_HEIGHT
    style = re.sub(r"var\(--(\w+)\)", lambda colour: LIGHT[colour[1]], STYLE)
    whole = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 2 * _MARGIN} {y}"'
        f' font-family="DejaVu Sans"><style>{style}</style>{"".join(parts)}</svg>'
    )
    return svg_to_bytes(
        svg_string=whole,
        width=_PICTURE_WIDTH,
        background=LIGHT["page"],
        font_files=[str(_FONT)],
        font_family="DejaVu Sans",
        skip_system_fonts=True,
    )


class _Plane:
    """Maps data to the picture. Widens an empty range."""

    def __init__(self, xs: Iterable[float], ys: Iterable[float]) -> None:
        x, y = list(xs), list(ys)
        self.x0, self.x1 = min(x), max(x) if max(x) > min(x) else min(x) + 1
        padding = (max(y) - min(y)) * 0.06 or abs(max(y)) * 0.1 or 1.0
        self.y0, self.y1 = min(y) - padding, max(y) + padding

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x0) / (self.x1 - self.x0) * (_WIDTH - _LEFT - 12)

    def y(self, value: float) -> float:
        return 10 + (self.y1 - value) / (self.y1 - self.y0) * (_HEIGHT - _BOTTOM - 10)

    def axes(self, x_text: Label, y_text: Label) -> Iterator[str]:
        for step in range(_TICKS):
            share = step / (_TICKS - 1)
            x, y = self.x0 + share * (self.x1 - self.x0), self.y0 + share * (self.y1 - self.y0)
            at = self.y(y)
            anchor = "start" if step == 0 else "end" if step == _TICKS - 1 else "middle"
            yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{at:.1f}" y2="{at:.1f}"/>'
            yield _label(_LEFT - 6, at + 4, y_text(y), "end")
            yield _label(self.x(x), _HEIGHT - _BOTTOM + 18, x_text(x), anchor)


def step_chart(
    title: str,
    times: Sequence[datetime],
    lines: Sequence[SvgLine],
    unknown: Sequence[bool] = (),
    *,
    points: Sequence[tuple[datetime, float]] = (),
    limit: float | None = None,
) -> SvgChart | None:
    """Step lines over time, shaded where the price is unknown; None if there is nothing to draw.

    Args:
        times: rising, time-zone aware; labels use that zone.
        unknown: for each time, whether the price is unknown until the next.
        points: events to mark.
        limit: a dashed line across, such as the highest price to rent at.
    """
    drawn = _known(y for line in lines for y in line.ys)
    if len(times) < 2 or not drawn:
        return None
    around = _known(y for line in lines for ends in line.band or () for y in ends)
    xs = [at.timestamp() for at in times]
    plane = _Plane(xs, [*drawn, *around, *(price for _, price in points), *([] if limit is None else [limit])])
    zone = times[0].tzinfo
    parts = [_shade(plane, xs, unknown)]
    parts += plane.axes(lambda x: f"{datetime.fromtimestamp(x, zone):%Y-%m-%d %H:%M}", "{:.3f}".format)
    parts += [f'<path class="band" d="{_area(plane, xs, *line.band)}"/>' for line in lines if line.band]
    if limit is not None:
        at = plane.y(limit)
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_label(_WIDTH - 16, at - 5, f"limit {limit:.3f}", "end"))
    for number, line in enumerate(lines):
        parts.append(f'<path class="s{number}" d="{_steps(plane, xs, line.ys)}"/>')
        parts.append(_key(number, line.label))
    parts += [
        f'<circle class="dot" cx="{plane.x(at.timestamp()):.1f}" cy="{plane.y(y):.1f}" r="4"/>' for at, y in points
    ]
    return SvgChart(title, _HEIGHT, "".join(parts))


def point_chart(title: str, points: Sequence[tuple[float, float, str]], x_label: str, y_label: str) -> SvgChart | None:
    """Labelled points joined in order, such as price paid against wait; None if there are none."""
    if not points:
        return None
    xs = [x for x, _, _ in points]
    plane = _Plane([*xs, max(xs) + 0.08 * (max(xs) - min(xs))], [y for _, y, _ in points])  # space for a label
    parts = list(plane.axes("{:.4g}".format, "{:.4g}".format))
    path = "L".join(f"{plane.x(x):.1f},{plane.y(y):.1f}" for x, y, _ in points)
    parts.append(f'<path class="s1 thin" d="M{path}"/>')
    for x, y, label in points:
        at, is_left = plane.x(x), plane.x(x) < _WIDTH * 0.75
        parts.append(f'<circle class="dot" cx="{at:.1f}" cy="{plane.y(y):.1f}" r="4"/>')
        parts.append(_label(at + (6 if is_left else -6), plane.y(y) - 6, label, "start" if is_left else "end"))
    parts += [
        _label(_LEFT, _HEIGHT - 2, f"up: {y_label}"),
        _label(_WIDTH - 12, _HEIGHT - 2, f"across: {x_label}", "end"),
    ]
    return SvgChart(title, _HEIGHT, "".join(parts))


def range_chart(title: str, rows: Sequence[tuple[str, float, float]], limit: float | None = None) -> SvgChart | None:
    """One bar per row, from the lowest to the highest figure, on an axis from 0; None if there are no rows."""
    if not rows:
        return None
    height, max_value, left = 22 * len(rows) + 30, max([high for _, _, high in rows] + [limit or 0.0]) or 1.0, 210

    def at(value: float) -> float:
        return left + value / max_value * (_WIDTH - left - 90)

    parts = []
    for number, (label, low, high) in enumerate(rows):
        y, wide = 22 * number + 6, max(2.0, at(high) - at(low))
        parts.append(_label(left - 8, y + 11, label, "end"))
        parts.append(f'<rect class="bar" x="{at(low):.1f}" y="{y}" width="{wide:.1f}" height="14"/>')
        value_text = f"{high:,.2f}" if low == high else f"{low:,.2f}–{high:,.2f}"
        parts.append(_label(at(high) + 6, y + 11, value_text))
    if limit is not None:
        x = at(limit)
        parts.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 24}"/>')
        parts.append(_label(x, height - 8, f"limit {limit:,.2f}", "middle"))
    return SvgChart(title, height, "".join(parts))


def week_map(title: str, percents: Sequence[float | None], days: Sequence[str], max_percent: float) -> SvgChart:
    """168 hours of the week: blue is cheaper, orange more expensive, empty unknown; `max_percent` has full colour."""
    parts = []
    for number, percent in enumerate(percents):
        day, hour = divmod(number, 24)
        x, y = 50 + hour * 34, 6 + day * 30
        text = f"{days[day]} {hour:02}:00: " + ("no price" if percent is None else f"{decimal_text(percent, 1, '+')} %")
        kind = "none" if percent is None else "low" if percent < 0 else "high"
        strength = 0.0 if percent is None else min(1.0, abs(percent) / max_percent) * _MAX_OPACITY
        parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="33" height="29" fill-opacity="{strength:.2f}">'
            f"<title>{escape(text)}</title></rect>"
        )
        if percent is not None:
            parts.append(_label(x + 16.5, y + 19, decimal_text(percent, 0, "+"), "middle", "cell"))
    parts += [_label(42, 25 + 30 * number, day, "end") for number, day in enumerate(days)]
    parts += [_label(66.5 + 34 * hour, 232, str(hour), "middle") for hour in range(24)]
    return SvgChart(title, 240, "".join(parts))


def _known(ys: Iterable[float | None]) -> list[float]:
    return [y for y in ys if y is not None and isfinite(y)]


def _label(x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _key(number: int, label: str) -> str:
    x = _LEFT + 10 + number * 220
    line = f'<line class="s{number}" x1="{x}" x2="{x + 22}" y1="{_HEIGHT - 6}" y2="{_HEIGHT - 6}"/>'
    return line + _label(x + 28, _HEIGHT - 2, label)


def _spans(xs: Sequence[float]) -> Iterator[tuple[float, float]]:
    """The time that each value holds for: until the next."""
    return zip(xs, [*xs[1:], xs[-1]], strict=True)


def _steps(plane: _Plane, xs: Sequence[float], ys: Sequence[float | None]) -> str:
    """Horizontal, then vertical: a price holds until the next; a gap starts a new line."""
    path, has_point = [], False
    for (x, until), y in zip(_spans(xs), ys, strict=True):
        if y is None or not isfinite(y):
            has_point = False
            continue
        path.append(f"V{plane.y(y):.1f}" if has_point else f"M{plane.x(x):.1f},{plane.y(y):.1f}")
        path.append(f"H{plane.x(until):.1f}")
        has_point = True
    return "".join(path)


def _area(plane: _Plane, xs: Sequence[float], lows: Sequence[float | None], highs: Sequence[float | None]) -> str:
    return "".join(
        f"M{plane.x(x):.1f},{plane.y(high):.1f}H{plane.x(until):.1f}V{plane.y(low):.1f}H{plane.x(x):.1f}Z"
        for (x, until), low, high in zip(_spans(xs), lows, highs, strict=True)
        if low is not None and high is not None and isfinite(low) and isfinite(high)
    )


def _shade(plane: _Plane, xs: Sequence[float], unknown: Sequence[bool]) -> str:
    return "".join(
        f'<rect class="unknown" x="{plane.x(x):.1f}" y="10" width="{plane.x(until) - plane.x(x):.1f}"'
        f' height="{_HEIGHT - _BOTTOM - 10}"/>'
        for (x, until), is_unknown in zip(_spans(xs), unknown, strict=False)
        if is_unknown
    )
