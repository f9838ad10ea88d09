"""Print tables: complete in a pipe or file, fitted to a terminal by dropping whole columns.

A narrow terminal first shortens free text, then drops columns by priority, and finally prints each row as a block of
lines. An id, a price, a date or a GPU is never cut.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from unicodedata import combining, east_asian_width

from gpuwatch.cli.output import RecordedTable, displayable, echo, json_out, local, record
from gpuwatch.domain.market.offer import escape_formula

_GAP = "  "
_TEXT_MIN = 12  # minimum width of shortened text
_EMPTY = frozenset({"", "–", "-"})

Cells = Sequence[str]


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        of: its value in a row: the name of an attribute, or a function; None: the row has a cell in this place.
        form: how a number is formatted, such as ".2f".
        drop: 0: never dropped on a narrow terminal; else the highest is dropped first.
        text: free text: may be shortened, with an ellipsis.
        optional: left out if no row has a value.
    """

    heading: str
    of: str | Callable[[Any], object] | None = None
    form: str = ""
    right: bool = False
    drop: int = 0
    text: bool = False
    optional: bool = False


Value = str | Callable[[Any], object] | None


def left(heading: str, of: Value = None, *, drop: int = 0, optional: bool = False) -> Column:
    """A column of names, ids or dates."""
    return Column(heading, of, drop=drop, optional=optional)


def right(heading: str, of: Value = None, form: str = "", *, drop: int = 0, optional: bool = False) -> Column:
    """A column of numbers."""
    return Column(heading, of, form, right=True, drop=drop, optional=optional)


def text(heading: str, of: Value = None, *, drop: int = 0, optional: bool = False) -> Column:
    """A column of free text, such as a reason."""
    return Column(heading, of, drop=drop, text=True, optional=optional)


def table(columns: Sequence[Column], rows: Iterable[Any], title: str | None = None, timezone: str = "UTC") -> None:
    """Print a table on standard output. Cells are plain text, never markup.

    Args:
        rows: what the columns are about, or cells.
        timezone: of times.
    """
    width = terminal_width()
    columns, cells = table_cells(columns, rows, timezone)
    record(
        RecordedTable(title or "", [column.heading for column in columns], [column.right for column in columns], cells)
    )
    if title:
        sys.stdout.write(f"{displayable(title)}\n")
    for line in table_lines(columns, cells, width, bold=_bold if width and uses_colour() else str):
        sys.stdout.write(f"{line}\n")


def print_list(
    views: Sequence[object],
    columns: Sequence[Column],
    empty: str,
    *,
    as_json: bool,
    timezone: str = "UTC",
    rows: Sequence[Any] | None = None,
) -> None:
    """Print a list as JSON or as a table.

    Args:
        empty: the sentence instead of an empty table.
        rows: of the table, where its columns are not about the views.
    """
    if as_json:
        json_out(views)
    elif views:
        table(columns, views if rows is None else rows, timezone=timezone)
    else:
        echo(empty)


def table_cells(
    columns: Sequence[Column], rows: Iterable[Any], timezone: str = "UTC"
) -> tuple[Sequence[Column], list[Cells]]:
    """The columns without the empty optional ones, and the cells of each row."""
    cells = [[_cell(column, number, row, timezone) for number, column in enumerate(columns)] for row in rows]
    visible = [
        number
        for number, column in enumerate(columns)
        if not column.optional or any(row[number] not in _EMPTY for row in cells)
    ]
    return [columns[number] for number in visible], [[row[number] for number in visible] for row in cells]


def _cell(column: Column, number: int, row: Any, timezone: str) -> str:
    """The text of a value; "–": there is none."""
    of = column.of
    value = row[number] if of is None else getattr(row, of) if isinstance(of, str) else of(row)
    if value is None or isinstance(value, datetime):
        return local(value, timezone)
    return value if isinstance(value, str) else format(value, column.form)


def table_lines(
    columns: Sequence[Column], rows: Sequence[Cells], width: int | None, bold: Callable[[str], str] = str
) -> list[str]:
    """The lines of a table.

    Args:
        width: columns of the terminal; None prints everything, as for a pipe.
        bold: styles the headings.
    """
    cells = [[displayable(cell) for cell in row] for row in rows]
    widths = [
        max(map(cell_width, column)) for column in zip([column.heading for column in columns], *cells, strict=True)
    ]
    visible, fitted = _fit(columns, widths, width)
    if not visible:
        return _stacked_lines(columns, cells, bold)
    lines = [bold(_line([columns[i] for i in visible], [columns[i].heading for i in visible], fitted))]
    lines += [_line([columns[i] for i in visible], [row[i] for i in visible], fitted) for row in cells]
    hidden = [column.heading for i, column in enumerate(columns) if i not in visible and column.heading]
    return [*lines, f"({displayable('…')} hidden at this width: {', '.join(hidden)})"] if hidden else lines


def _fit(columns: Sequence[Column], widths: Sequence[int], width: int | None) -> tuple[list[int], list[int]]:
    """The columns to show and their widths; none if even the required columns do not fit."""
    visible = list(range(len(columns)))
    if width is None:
        return visible, list(widths)
    min_widths = [min(wide, max(_TEXT_MIN, len(column.heading))) if column.text else wide
             for column, wide in zip(columns, widths, strict=True)]  # fmt: skip
    while sum(min_widths[i] for i in visible) + len(_GAP) * (len(visible) - 1) > width:
        first_out = max(visible, key=lambda i: (columns[i].drop, i))
        if not columns[first_out].drop:
            return [], []
        visible.remove(first_out)
    spare = width - sum(min_widths[i] for i in visible) - len(_GAP) * (len(visible) - 1)
    fitted = []
    for i in visible:
        more = min(spare, widths[i] - min_widths[i])
        spare -= more
        fitted.append(min_widths[i] + more)
    return visible, fitted


def _line(columns: Sequence[Column], cells: Cells, widths: Sequence[int]) -> str:
    padded_cells = (_padded(column, cell, wide) for column, cell, wide in zip(columns, cells, widths, strict=True))
    return _GAP.join(padded_cells).rstrip()


def _padded(column: Column, cell: str, width: int) -> str:
    if cell_width(cell) > width:  # only text: no other column is narrower than its widest cell
        ellipsis = displayable("…")
        while cell_width(cell) + len(ellipsis) > width:
            cell = cell[:-1]
        cell += ellipsis
    padding = " " * (width - cell_width(cell))
    return padding + cell if column.right else cell + padding


def _stacked_lines(columns: Sequence[Column], rows: Sequence[Cells], bold: Callable[[str], str]) -> list[str]:
    """Each row as a block of lines, without empty cells."""
    wide = max(len(column.heading) for column in columns)
    lines: list[str] = []
    for row in rows:
        if lines:
            lines.append("")
        for column, cell in zip(columns, row, strict=True):
            if cell not in _EMPTY:
                lines.append(f"{bold(column.heading.ljust(wide))}{_GAP}{cell}".rstrip())
    return lines


def cell_width(cell: str) -> int:
    """Display width of a text."""
    if cell.isascii():
        return len(cell)
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in cell)


def terminal_width() -> int | None:
    """Width of the terminal on standard output; None for a pipe or a file."""
    if not sys.stdout.isatty():
        return None
    import shutil  # slow to import; not needed for a pipe

    return shutil.get_terminal_size((80, 24)).columns


def uses_colour() -> bool:
    """Is standard output a terminal with colours enabled?"""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _bold(cells: str) -> str:
    return f"\x1b[1m{cells}\x1b[0m"


def csv_out(rows: Sequence[Mapping[str, Any]], headings: Iterable[str] = ()) -> None:
    """Print CSV on standard output; escape cells that a spreadsheet would evaluate as a formula.

    Args:
        headings: printed even without rows.
    """
    import csv

    names = list(rows[0] if rows else headings)
    if not names:
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([escape_formula(value) if isinstance(value, str) else value for value in row.values()])
