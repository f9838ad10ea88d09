"""What a command prints: JSON alone on standard output, or a table on a terminal; text from outside cleaned first."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

_LONG = 24  # letters: a wider column may be cut on a terminal, whatever is in it; piped output and JSON hold all of it
_LONG_TEXT = 16  # and so may a wider one of text
_CUT = 10  # so many stay
_CUT_FIRST = 22  # and of the first column, which says what a row is: "1× A100 PCIe 80GB spot"


def json_out(value: Any) -> None:
    """One JSON document on standard output."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value, enc_hook=_plain), indent=2).decode() + "\n")


def rfc3339(moment: datetime | None) -> str | None:
    """UTC with `Z`, as every time in JSON."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def local(moment: datetime | None, timezone: str) -> str:
    """A time on a screen, in the zone of the settings, to the second; "–" if there is none."""
    from zoneinfo import ZoneInfo

    return "–" if moment is None else moment.astimezone(ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M:%S %Z")


def number(amount: Decimal | float | int | None) -> float | None:
    """Money or a measure as a JSON number."""
    return None if amount is None else float(amount)


def table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table on standard output; `columns` are (heading, "left" | "right"). Cells are plain text, never markup."""
    if not sys.stdout.isatty():
        _plain_table(columns, list(rows), title)
        return
    from rich.console import Console

    Console().print(rich_table(columns, list(rows), title))


def rich_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """The same for a terminal, to be printed or shown while it grows."""
    from rich.table import Table
    from rich.text import Text

    cells = [[_printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip([heading for heading, _ in columns], *cells, strict=True)]
    # where the terminal is too narrow, the widest text is cut, never a number or a short id; and what is very long
    longest = max(((width, i) for i, width in enumerate(widths) if columns[i][1] == "left"), default=(0, -1))[1]
    most = {"left": _LONG_TEXT, "right": _LONG}
    gives_way = {longest} | {i for i, width in enumerate(widths) if width > most[columns[i][1]]}
    shown = Table(title=Text(title) if title else None, box=None, header_style="bold", pad_edge=False)
    for i, (heading, side) in enumerate(columns):
        shown.add_column(
            heading,
            justify="right" if side == "right" else "left",
            min_width=min(widths[i], _CUT if i else _CUT_FIRST) if i in gives_way else widths[i],
            no_wrap=i not in gives_way,  # rich makes room in columns that may wrap; the cells themselves do not
        )
    for row in cells:
        shown.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    return shown


def _plain_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], title: str | None) -> None:
    """The same for a pipe or a file, nothing cut off: rich would take 40 ms to come, for no colour."""
    if title:
        sys.stdout.write(f"{title}\n")
    cells = [[heading for heading, _ in columns], *([_printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        aligned = (
            cell.rjust(width) if side == "right" else cell.ljust(width)
            for cell, width, (_, side) in zip(row, widths, columns, strict=True)
        )
        sys.stdout.write("  ".join(aligned).rstrip() + "\n")


def _printable(cell: str) -> str:
    return cell if cell.isprintable() else "".join(letter for letter in cell if letter.isprintable())


def note(line: str) -> None:
    """A line for a person, on standard error: it never mixes with the answer."""
    click.echo(line, err=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
