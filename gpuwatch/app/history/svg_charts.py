"""Charts as SVG: of `--html` pages, of `--png` pictures and of the chat's. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

from gpuwatch.app.history.svg_axes import (
    BOTTOM,
    LARGE,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    ChartSize,
    Plane,
    dollars_tick,
    figure_ticks,
    plain_tick,
    time_ticks,
)
from gpuwatch.app.history.svg_style import (
    DARK,
    HATCH,
    LIGHT,
    STYLE,
    Box,
    LegendEntry,
    box_of,
    filled_in,
    key_row,
    keys_width,
    label,
    text_width,
)
from gpuwatch.domain.market.figure_text import decimal_text
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint
from gpuwatch.language import translate as _

_MARGIN: Final = 24  # of a picture
_LINE_HEIGHT: Final = 18
_PICTURE_WIDTH: Final = 1200  # pixels
_FONT: Final = Path(__file__).with_name("DejaVuSans.ttf")  # a server may have no fonts
_KEY_Y: Final = 14
_COLOUR_STEPS: Final = ((7.0, "c"), (4.0, "b"), (2.0, "a"))  # percent from which on a cell has the colour
_LABEL_CHARACTERS: Final = 27  # of a row of bars


class SvgChart(NamedTuple):
    """One chart."""

    title: str
    height: int
    body: str
    width: int = WIDTH

    def svg(self, attributes: str = "") -> str:
        """The element, to stand in a page or in another SVG."""
        return (
            f'<svg {attributes} viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.title)}">'
            f"<title>{escape(self.title)}</title>{self.body}</svg>"
        )


class SvgLine(NamedTuple):
    """Prices over time: each holds until the next; None: unknown."""

    label: str
    ys: Sequence[float | None]
    band: tuple[Sequence[float | None], Sequence[float | None]] | None = None  # lower and upper end of the area behind


class SvgMarks(NamedTuple):
    """Events at a moment and a price, such as rentals."""

    label: str
    points: Sequence[tuple[datetime, float]]


def picture_svg(title: str, charts: Iterable[SvgChart | None], notes: Iterable[str] = ()) -> str:
    """Charts below each other as one SVG, light or dark as its reader's screen is."""
    palette = ";".join(f"--{name}:{colour}" for name, colour in LIGHT.items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in DARK.items())
    style = f":root{{{palette}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}.page{{fill:var(--surface)}}{STYLE}"
    return _stacked(title, charts, notes, style)


def picture(
    title: str, charts: Iterable[SvgChart | None], notes: Iterable[str] = (), palette: Mapping[str, str] = LIGHT
) -> bytes:
    """Charts below each other as PNG; the same data gives the same bytes. Raises UsageError: no library for it."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError as fault:
        raise UsageError(f"a picture requires resvg: {install_hint('analysis')}") from fault
    return svg_to_bytes(
        svg_string=_stacked(title, charts, notes, filled_in(f".page{{fill:var(--surface)}}{STYLE}", palette)),
        width=_PICTURE_WIDTH,
        font_files=[str(_FONT)],
        font_family="DejaVu Sans",
        skip_system_fonts=True,
    )


def _stacked(title: str, charts: Iterable[SvgChart | None], notes: Iterable[str], style: str) -> str:
    y = _MARGIN + 16
    shown = [chart for chart in charts if chart]
    parts = [f'<text class="strong" style="font-size:16px" x="{_MARGIN}" y="{y}">{escape(title)}</text>']
    for note in notes:
        y += _LINE_HEIGHT
        parts.append(label(_MARGIN, y, note))
    y += _LINE_HEIGHT
    for chart in shown:
        if chart.title != title:
            y += _LINE_HEIGHT
            parts.append(label(_MARGIN, y - 4, chart.title, kind="strong"))
        parts.append(chart.svg(f'x="{_MARGIN}" y="{y}" width="{chart.width}" height="{chart.height}"'))
        y += chart.height + _LINE_HEIGHT
    width = max((chart.width for chart in shown), default=WIDTH) + 2 * _MARGIN
    size = f'viewBox="0 0 {width} {y}" width="{width}" height="{y}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="DejaVu Sans, sans-serif">'
        f'<style>{style}</style><rect class="page" width="100%" height="100%"/>{"".join(parts)}</svg>'
    )


def step_chart(  # noqa: PLR0913 the data, and four things that may be left out
    title: str,
    times: Sequence[datetime],
    lines: Sequence[SvgLine],
    unknown: Sequence[bool] = (),
    *,
    marks: SvgMarks | None = None,
    limit: float | None = None,
    size: ChartSize = LARGE,
) -> SvgChart | None:
    """Step lines over time, in dollars, hatched where the price is unknown; None if there is nothing to draw.

    Args:
        times: rising, time-zone aware; labels use that zone.
        lines: the first one is the price, the second one a median.
        unknown: for each time, whether the price is unknown until the next.
        limit: a dashed line across, such as the highest price to rent at.
    """
    drawn = _known(y for line in lines for y in line.ys)
    if len(times) < 2 or not drawn:
        return None
    around = _known(y for line in lines for ends in line.band or () for y in ends)
    xs = [at.timestamp() for at in times]
    events = marks.points if marks else ()
    ys = [*drawn, *around, *(price for _, price in events), *([] if limit is None else [limit])]
    plane, right = Plane(xs, ys, size), size.width - RIGHT
    parts = [HATCH, *(f'<path class="s-box" d="{_area(plane, xs, *line.band)}"/>' for line in lines if line.band)]
    parts += plane.axes(time_ticks(plane.x0, plane.x1, times[0].tzinfo), dollars_tick)
    parts.append(_hatched(plane, xs, unknown))
    if limit is not None:
        at = plane.y(limit)
        parts.append(f'<line class="a-lim" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
    kinds = ("p-line", "dots", "thin")
    for kind, line in reversed(list(zip(kinds, lines, strict=False))):
        parts.append(f'<path class="{kind}" d="{_steps(plane, xs, line.ys)}"/>')
    parts += [
        f'<circle class="dot" cx="{plane.x(at.timestamp()):.1f}" cy="{plane.y(y):.1f}" r="4"/>' for at, y in events
    ]
    if limit is not None:
        y = at - 6 if (at := plane.y(limit)) > TOP + 16 else at + 16
        parts.append(
            label(right - 4, y, _("limit {limit}").format(limit=dollars_tick(limit, 2)), "end", "a-limtext halo")
        )
    keys = [LegendEntry(kind, line.label) for kind, line in zip(kinds, lines, strict=False)]
    keys += [LegendEntry("s-box", _("middle half of the prices"))] if any(line.band for line in lines) else []
    keys += [LegendEntry("dot", marks.label)] if marks and marks.points else []
    keys += [LegendEntry("p-gap", _("not polled"))] if any(unknown) else []
    begin = LEFT if LEFT + keys_width(keys) <= size.width else 4
    return SvgChart(title, size.height, "".join([*parts, key_row(keys, begin, _KEY_Y)]), size.width)


def point_chart(title: str, points: Sequence[tuple[float, float, str]], x_label: str, y_label: str) -> SvgChart | None:
    """Labelled points joined in order, such as price paid against wait; None if there are none.

    A label that would cover another one is left out; the point still says it where one points at it.

    Args:
        points: figure across, dollars, label.
    """
    if not points:
        return None
    xs = [x for x, _, _ in points]
    plane = Plane([*xs, max(xs) + 0.08 * (max(xs) - min(xs))], [y for _, y, _ in points])  # space for a label
    parts = list(plane.axes(figure_ticks(plane.x0, plane.x1, plain_tick), dollars_tick))
    path = "L".join(f"{plane.x(x):.1f},{plane.y(y):.1f}" for x, y, _ in points)
    parts.append(f'<path class="thin" d="M{path}"/>')
    taken: list[Box] = []
    for x, y, text in points:
        at, level = plane.x(x), plane.y(y)
        parts.append(f'<circle class="dot" cx="{at:.1f}" cy="{level:.1f}" r="4"><title>{escape(text)}</title></circle>')
        for left, up, anchor in ((7, -6, "start"), (7, 14, "start"), (-7, -6, "end"), (-7, 14, "end")):
            box = box_of(at + left, level + up, text, anchor)
            if box.left >= LEFT and box.right <= WIDTH and not box.meets(taken):
                taken.append(box)
                parts.append(label(at + left, level + up, text, anchor, "halo"))
                break
    parts.append(label(LEFT, _KEY_Y, f"up: {y_label} · across: {x_label}"))
    return SvgChart(title, LARGE.height, "".join(parts))


def range_chart(title: str, rows: Sequence[tuple[str, float, float]], limit: float | None = None) -> SvgChart | None:
    """One bar per row, from the lowest to the highest figure, on an axis from 0; None if there are no rows."""
    if not rows:
        return None
    texts = [f"{high:,.2f}" if low == high else f"{low:,.2f}–{high:,.2f}" for _, low, high in rows]
    height, max_value, left = 22 * len(rows) + 30, max([high for _, _, high in rows] + [limit or 0.0]) or 1.0, 210
    right = max(map(text_width, texts)) + 12

    def at(value: float) -> float:
        return left + value / max_value * (WIDTH - left - right)

    parts = []
    for number, ((name, low, high), text) in enumerate(zip(rows, texts, strict=True)):
        y, wide = 22 * number + 6, max(2.0, at(high) - at(low))
        short = name if len(name) <= _LABEL_CHARACTERS else f"{name[: _LABEL_CHARACTERS - 1]}…"
        parts.append(label(left - 8, y + 11, short, "end"))
        parts.append(f'<rect class="s-a" x="{at(low):.1f}" y="{y}" width="{wide:.1f}" height="14"/>')
        parts.append(label(at(high) + 6, y + 11, text))
    if limit is not None:
        x, text = at(limit), f"limit {limit:,.2f}"
        parts.append(f'<line class="a-lim" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 24}"/>')
        parts.append(label(min(x, WIDTH - text_width(text) / 2), height - 8, text, "middle", "a-limtext"))
    return SvgChart(title, height, "".join(parts))


def week_map(title: str, percents: Sequence[float | None], days: Sequence[str]) -> SvgChart:
    """168 hours of the week against the median: blue is cheaper, orange dearer, hatched unknown.

    The steps of the colours are the same in every map, so that two maps can be compared.
    """
    parts = [HATCH]
    for number, percent in enumerate(percents):
        day, hour = divmod(number, 24)
        x, y = 50 + hour * 34, 6 + day * 30
        text = f"{days[day]} {hour:02}:00: " + ("no price" if percent is None else f"{decimal_text(percent, 1, '+')} %")
        kind = "p-gap" if percent is None else shade_of(percent)
        parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="33" height="29"><title>{escape(text)}</title></rect>'
        )
        if percent is not None:
            parts.append(label(x + 16.5, y + 19, decimal_text(percent, 0, "+"), "middle", "strong"))
    parts += [label(42, 25 + 30 * number, day, "end") for number, day in enumerate(days)]
    parts += [label(66.5 + 34 * hour, 232, str(hour), "middle") for hour in range(24)]
    return SvgChart(title, 272, "".join([*parts, *_colour_key()]))


def shade_of(percent: float) -> str:
    """The class of an hour of a week map: of `ca`, a little cheaper, to `cc`, and `da` to `dc`; `z`: as usual."""
    step = next((name for least, name in _COLOUR_STEPS if abs(percent) >= least), None)
    return "z" if step is None else f"{'c' if percent < 0 else 'd'}{step}"


def _colour_key() -> Iterator[str]:
    x = 50.0
    for side, word in (("c", "cheaper"), ("d", "dearer")):
        for least, step in reversed(_COLOUR_STEPS):
            yield f'<rect class="{side}{step}" x="{x:.1f}" y="248" width="22" height="14"/>'
            text = f"{least:g} % {word}" if step == "a" else f"{least:g} %"
            yield label(x + 28, 260, text)
            x += 28 + text_width(text) + 14


def _known(ys: Iterable[float | None]) -> list[float]:
    return [y for y in ys if y is not None and isfinite(y)]


def _spans(xs: Sequence[float]) -> Iterator[tuple[float, float]]:
    """The time that each value holds for: until the next."""
    return zip(xs, [*xs[1:], xs[-1]], strict=True)


def _steps(plane: Plane, xs: Sequence[float], ys: Sequence[float | None]) -> str:
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


def _area(plane: Plane, xs: Sequence[float], lows: Sequence[float | None], highs: Sequence[float | None]) -> str:
    return "".join(
        f"M{plane.x(x):.1f},{plane.y(high):.1f}H{plane.x(until):.1f}V{plane.y(low):.1f}H{plane.x(x):.1f}Z"
        for (x, until), low, high in zip(_spans(xs), lows, highs, strict=True)
        if low is not None and high is not None and isfinite(low) and isfinite(high)
    )


def _hatched(plane: Plane, xs: Sequence[float], unknown: Sequence[bool]) -> str:
    """One shape for all of them: a picture draws the pattern anew for each, 168 times in a week without polls."""
    bottom = plane.size.height - BOTTOM
    parts = "".join(
        f"M{plane.x(x):.1f},{TOP}H{plane.x(until):.1f}V{bottom}H{plane.x(x):.1f}Z"
        for (x, until), is_unknown in zip(_spans(xs), unknown, strict=False)
        if is_unknown
    )
    return f'<path class="p-gap" d="{parts}"/>' if parts else ""
