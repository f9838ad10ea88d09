"""Charts on the terminal: 2×4 dots per character; gaps are open, and shaded where the market was not polled."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import click

from gpuwatch.cli.terminal_tables import uses_colour

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column within a character
_BRAILLE = 0x2800
_UNKNOWN = "░"
_STRIDES = (1, 2, 4)  # the first line is solid, the second draws every other dot, the third every fourth
_KEYS = ("━", "╍", "┄")
_COLOURS = ("cyan", "yellow", "magenta")
_MAX_WIDTH = 100
_HEIGHT = 12
_TICK_EVERY = 16  # characters
Text = Callable[[float], str]
_Cells = dict[tuple[int, int], tuple[int, int]]  # row, column → dots, the line they belong to


class _Frame(NamedTuple):
    """Maps values to positions: x from the left in characters, y from the top."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: int

    def dot(self, x: float, y: float) -> tuple[int, int]:
        """Column and row of a dot."""
        across = (x - self.x_low) / (self.x_high - self.x_low)
        down = (self.y_high - y) / (self.y_high - self.y_low)
        return round(across * (2 * self.width - 1)), round(down * (4 * _HEIGHT - 1))

    def x_of(self, column: int) -> float:
        """The value at a character; the first and last characters hold the ends."""
        return self.x_low + column / (self.width - 1) * (self.x_high - self.x_low)


def line_chart(
    xs: Sequence[float],
    series: Mapping[str, Sequence[float | None]],
    title: str,
    *,
    unknown: Sequence[bool] = (),
    x_text: Text = "{:.4g}".format,
    width: int | None = None,
) -> str:
    """Up to three step lines over the same xs, as text; coloured on a terminal unless NO_COLOR is set.

    Args:
        xs: rising.
        series: label → a value for each x; None leaves a gap.
        unknown: for each x, whether the market is unknown there; shaded.
        x_text: axis label.
        width: total width in characters; None: the terminal's width, at most 100.
    """
    series = {label: [y if y is not None and math.isfinite(y) else None for y in ys] for label, ys in series.items()}
    all_ys = [y for ys in series.values() for y in ys if y is not None]
    if not all_ys:
        return f"{title}: nothing to draw"
    steps = _steps(min(all_ys), max(all_ys))
    y_label = f"{{:.{_digits(steps)}f}}".format
    margin = max(len(y_label(y)) for y in steps) + 2
    inside = max(10, (width or _screen_width()) - margin)
    frame = _Frame(xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] + 1, steps[0], steps[-1], inside)
    cells = _shaded(xs, unknown, frame)
    for number, ys in reversed(list(enumerate(series.values()))):
        _draw(cells, _dots(xs, ys, frame), number)
    labels = {frame.dot(frame.x_low, y)[1] // 4: y_label(y) for y in steps}
    lines = [
        f"{labels.get(row, ''):>{margin - 2}} {'┤' if row in labels else '│'}{_row(cells, row, frame)}"
        for row in range(_HEIGHT)
    ]
    return "\n".join([title, *lines, *_x_axis(frame, margin, x_text), _key(series, any(unknown))])


def _shaded(xs: Sequence[float], unknown: Sequence[bool], frame: _Frame) -> _Cells:
    """Shade each character whose whole range is unknown."""
    if not any(unknown):
        return {}
    step = (frame.x_high - frame.x_low) / frame.width
    cells: _Cells = {}
    for column in range(frame.width):
        middle = frame.x_of(column)
        first, after = bisect_left(xs, middle - step / 2), bisect_left(xs, middle + step / 2)
        first = min(first, len(xs) - 1) if after > first else max(0, bisect_left(xs, middle) - 1)
        if all(unknown[first : max(after, first + 1)]):
            cells.update({(row, column): (0, -1) for row in range(_HEIGHT)})
    return cells


def _dots(xs: Sequence[float], ys: Sequence[float | None], frame: _Frame) -> list[tuple[int, int]]:
    """The dots of a line, in order."""
    dots: list[tuple[int, int]] = []
    before: tuple[int, int] | None = None
    for x, y in zip(xs, ys, strict=True):
        dot = None if y is None else frame.dot(x, y)
        if dot is not None:
            dots += [dot] if before is None else _line_cells(before, dot)
        before = dot
    return dots


def _line_cells(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots between two points, without the first. A step, because a value holds until the next one is seen."""
    (x, y), (end_x, end_y) = start, end
    down = 1 if end_y > y else -1
    return [(each, y) for each in range(x + 1, end_x + 1)] + [
        (end_x, each) for each in range(y + down, end_y + down, down)
    ]


def _draw(cells: _Cells, dots: Sequence[tuple[int, int]], number: int) -> None:
    stride = _STRIDES[number % len(_STRIDES)]
    for at, (x, y) in enumerate(dots):
        if at % stride == 0:
            position = (y // 4, x // 2)
            cells[position] = (cells.get(position, (0, number))[0] | _DOTS[y % 4][x % 2], number)


def _row(cells: _Cells, row: int, frame: _Frame) -> str:
    letters = [_braille(cells.get((row, column))) for column in range(frame.width)]
    if not uses_colour():
        return "".join(character for character, _ in letters).rstrip()
    runs = (
        (number, "".join(character for character, _ in run))
        for number, run in groupby(letters, key=lambda styled: styled[1])
    )
    return "".join(text if number is None else _styled(text, number) for number, text in runs).rstrip()


def _braille(cell: tuple[int, int] | None) -> tuple[str, int | None]:
    """The character of a cell, and the line it belongs to."""
    if cell is None:
        return " ", None
    bits, number = cell
    return (chr(_BRAILLE + bits), number) if bits else (_UNKNOWN, -1)


def _styled(text: str, number: int) -> str:
    return click.style(text, dim=True) if number < 0 else click.style(text, fg=_COLOURS[number % len(_COLOURS)])


def _x_axis(frame: _Frame, margin: int, x_text: Text) -> list[str]:
    """The axis with ticks and labels."""
    line, words = list("─" * frame.width), [" "] * frame.width
    free_from = 0
    for column in range(0, frame.width, _TICK_EVERY):
        label = x_text(frame.x_of(column))
        if column >= free_from and column + len(label) <= frame.width:
            line[column] = "┬"
            words[column : column + len(label)] = label
            free_from = column + len(label) + 1
    return [" " * (margin - 1) + "└" + "".join(line), (" " * margin + "".join(words)).rstrip()]


def _key(series: Mapping[str, object], has_unknown: bool) -> str:
    series_labels = [(f"{_KEYS[number % len(_KEYS)]} {label}", number) for number, label in enumerate(series)]
    labels = [_styled(text, number) if uses_colour() else text for text, number in series_labels]
    return "  ".join([*labels, *([f"{_UNKNOWN} not polled"] if has_unknown else [])])


def _steps(low: float, high: float) -> list[float]:
    """Round numbers in steps of 1, 2 or 5, from below the lowest to above the highest."""
    span = (high - low) or abs(high) / 10 or 1.0
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def _digits(steps: Sequence[float]) -> int:
    return max(0, -math.floor(math.log10(steps[1] - steps[0]) + 1e-9))


def _screen_width() -> int:
    import shutil

    return min(_MAX_WIDTH, shutil.get_terminal_size((80, 24)).columns)
