"""`--html FILE`: a command's output as one HTML page with SVG charts; it loads nothing and needs no script.

The colours of the charts come from the page's style; every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from gpuwatch.atomic_file import atomic_file
from gpuwatch.cli.output import RecordedTable, Recording
from gpuwatch.domain.market.figure_text import decimal_text
from gpuwatch.domain.market.offer import clean
from gpuwatch.errors import UsageError

Command = Callable[..., Any]
_MAX_CHARACTERS: Final = 2_000  # characters of one text
_WIDTH: Final = 900
_HEIGHT: Final = 320
_LEFT: Final = 64
_BOTTOM: Final = 36
_TICKS: Final = 5
_MAX_OPACITY: Final = 0.55  # opacity limit of a cell: its number must stay legible
Label = Callable[[float], str]
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#57606a;--page:#fff;--line:#d0d7de;--a:#0b57d0;--b:#b35900;
--c:#1a7f37;--shade:#eaeef2;--mark:#fff8c5}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9aa4af;--page:#0d1117;--line:#30363d;--a:#6cb0ff;--b:#f0a35e;
--c:#56d364;--shade:#1c232b;--mark:#2d2a12}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.4rem;line-height:1.25}h2{font-size:1.1rem;margin-top:2rem}
.verdict{background:var(--mark);border-left:4px solid var(--b);padding:.6rem 1rem}.verdict p{margin:.2rem 0}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.2rem .7rem .2rem 0;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
.n{text-align:right}ul.notes{color:var(--dim);font-size:.9rem}
svg{width:100%;height:auto;margin:1rem 0}svg text{fill:var(--dim);font-size:12px}svg .cell{fill:var(--ink)}
.grid{stroke:var(--line)}
.s0,.s1,.s2{fill:none;stroke-width:2}.s0{stroke:var(--a)}.s1{stroke:var(--b)}.s2{stroke:var(--c)}
.thin{stroke-width:1;stroke-dasharray:4 3}.dot{fill:var(--c)}.bar,.low{fill:var(--a)}.high{fill:var(--b)}
.none,.unknown{fill:var(--shade)}.none{fill-opacity:1!important}
.limit{stroke:var(--b);stroke-width:2;stroke-dasharray:6 4}
"""


def html_option(command: Command) -> Command:
    """`--html FILE`; arrives as `html: Path | None`."""
    return click.option(
        "--html", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write an HTML page to this file."
    )(command)


def refuse_html_with(html: Path | None, *, as_data: bool) -> None:
    """Reject `--html` with `--json` or `--csv`. Raises UsageError."""
    if html is not None and as_data:
        raise UsageError("use either --html, or --json and --csv")


def save_page(path: Path, page: str) -> None:
    """Write a page atomically. Raises UsageError: the file cannot be written."""
    try:
        with atomic_file(path) as part:
            part.write_text(page, encoding="utf-8")
    except OSError as fault:
        raise UsageError(f"cannot write {path}: {fault.strerror or fault}") from fault


def recorded_page(title: str, verdict: Sequence[str], charts: Sequence[str], recording: Recording) -> str:
    """The page: the verdict, the charts, then everything that was printed.

    Args:
        charts: SVG, by the functions below; empty ones are left out.
    """
    parts = [
        answer
        for answer in recording.answers
        if not (isinstance(answer, str) and (answer in verdict or not answer.strip()))
    ]
    answers = "".join(
        _table(answer) if isinstance(answer, RecordedTable) else f"<p>{_escaped(answer)}</p>" for answer in parts
    )
    notes = "".join(f"<li>{_escaped(note)}</li>" for note in recording.notes if note not in verdict)
    first = "".join(f"<p>{_escaped(line)}</p>" for line in verdict)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_escaped(title)}</title><style>{_STYLE}</style></head><body><main><h1>{_escaped(title)}</h1>"
        f'<div class="verdict">{first}</div>{"".join(charts)}{answers}'
        f"{f'<h2>Notes</h2><ul class=notes>{notes}</ul>' if notes else ''}</main></body></html>\n"
    )


def _table(record_output: RecordedTable) -> str:
    head = "".join(
        _cell("th", text, right) for text, right in zip(record_output.headings, record_output.right, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(_cell('td', text, right) for text, right in zip(row, record_output.right, strict=True))}</tr>"
        for row in record_output.rows
    )
    title = f"<h2>{_escaped(record_output.title)}</h2>" if record_output.title else ""
    return f'{title}<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _cell(tag: str, text: str, right: bool) -> str:
    return f"<{tag}{' class=n' if right else ''}>{_escaped(text)}</{tag}>"


def _escaped(text: str) -> str:
    """Escape text: what a host wrote never becomes markup."""
    return escape(clean(text.strip(), _MAX_CHARACTERS))


class SvgLine(NamedTuple):
    """Prices over time: each holds until the next; None: unknown."""

    label: str
    ys: Sequence[float | None]


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
    points: Sequence[tuple[datetime, float]] = (),
) -> str:
    """Step lines over time, shaded where the price is unknown; empty if there is nothing to draw.

    Args:
        times: rising, time-zone aware; labels use that zone.
        unknown: for each time, whether the price is unknown until the next.
        points: events to mark.
    """
    all_ys = [y for line in lines for y in line.ys if y is not None and isfinite(y)]
    if len(times) < 2 or not all_ys:
        return ""
    xs = [at.timestamp() for at in times]
    plane, zone = _Plane(xs, [*all_ys, *(price for _, price in points)]), times[0].tzinfo
    parts = [_shade(plane, xs, unknown)]
    parts += plane.axes(lambda x: f"{datetime.fromtimestamp(x, zone):%Y-%m-%d %H:%M}", "{:.3f}".format)
    for number, line in enumerate(lines):
        parts.append(f'<path class="s{number}" d="{_steps(plane, xs, line.ys)}"/>')
        parts.append(_key(number, line.label))
    parts += [
        f'<circle class="dot" cx="{plane.x(at.timestamp()):.1f}" cy="{plane.y(y):.1f}" r="4"/>' for at, y in points
    ]
    return _svg(title, parts, _HEIGHT)


def point_chart(title: str, points: Sequence[tuple[float, float, str]], x_label: str, y_label: str) -> str:
    """Labelled points joined in order, such as price paid against wait; empty if there are none."""
    if not points:
        return ""
    xs = [x for x, _, _ in points]
    plane = _Plane([*xs, max(xs) + 0.08 * (max(xs) - min(xs))], [y for _, y, _ in points])  # space for a label
    parts = list(plane.axes("{:.4g}".format, "{:.4g}".format))
    path = "L".join(f"{plane.x(x):.1f},{plane.y(y):.1f}" for x, y, _ in points)
    parts.append(f'<path class="s1 thin" d="M{path}"/>')
    for x, y, label in points:
        parts.append(f'<circle class="dot" cx="{plane.x(x):.1f}" cy="{plane.y(y):.1f}" r="4"/>')
        parts.append(_label(plane.x(x) + 6, plane.y(y) - 6, label))
    parts += [
        _label(_LEFT, _HEIGHT - 2, f"up: {y_label}"),
        _label(_WIDTH - 12, _HEIGHT - 2, f"across: {x_label}", "end"),
    ]
    return _svg(title, parts, _HEIGHT)


def range_chart(title: str, rows: Sequence[tuple[str, float, float]], limit: float | None = None) -> str:
    """One bar per row, from the lowest to the highest figure, on an axis from 0; empty if there are no rows."""
    if not rows:
        return ""
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
    return _svg(title, parts, height)


def week_map(title: str, percents: Sequence[float | None], days: Sequence[str], max_percent: float) -> str:
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
    return _svg(title, parts, 240)


def _svg(title: str, parts: Iterable[str], height: int) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _label(x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _key(number: int, label: str) -> str:
    x = _LEFT + 10 + number * 220
    line = f'<line class="s{number}" x1="{x}" x2="{x + 22}" y1="{_HEIGHT - 6}" y2="{_HEIGHT - 6}"/>'
    return line + _label(x + 28, _HEIGHT - 2, label)


def _steps(plane: _Plane, xs: Sequence[float], ys: Sequence[float | None]) -> str:
    """Horizontal, then vertical: a price holds until the next; a gap starts a new line."""
    path, has_point = [], False
    for number, y in enumerate(ys):
        if y is None or not isfinite(y):
            has_point = False
            continue
        height, until = plane.y(y), xs[min(number + 1, len(xs) - 1)]
        path.append(f"V{height:.1f}" if has_point else f"M{plane.x(xs[number]):.1f},{height:.1f}")
        path.append(f"H{plane.x(until):.1f}")
        has_point = True
    return "".join(path)


def _shade(plane: _Plane, xs: Sequence[float], unknown: Sequence[bool]) -> str:
    return "".join(
        f'<rect class="unknown" x="{plane.x(x):.1f}" y="10" width="{plane.x(until) - plane.x(x):.1f}"'
        f' height="{_HEIGHT - _BOTTOM - 10}"/>'
        for x, until, is_unknown in zip(xs, xs[1:], unknown, strict=False)
        if is_unknown
    )
