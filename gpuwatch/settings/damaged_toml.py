"""The readable part of a file that is not valid TOML: unreadable lines are skipped and counted."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from typing import Any, NamedTuple

_AT = re.compile(r"\(at line (\d+), column \d+\)")
_HEADER = re.compile(r"\s*\[+\s*([^\[\]#=]*)")
_OPEN_HEADER = re.compile(r"\s*(\[{1,2})([\w.\-]+)(\]?)\s*")
_OPENS = re.compile(r"=\s*[\[{]")
_TRIES = 300


class ReadablePart(NamedTuple):
    """Tables without the unreadable lines.

    Attributes:
        damaged: tables that lost a line, such as ("providers", "vastai"); () is the part above the first table.
        lines: line numbers of the skipped lines, from 1.
    """

    tree: dict[str, Any]
    damaged: frozenset[tuple[str, ...]]
    lines: tuple[int, ...]


def readable_part(text: str) -> ReadablePart:
    """Parse the readable lines. A header without its closing bracket is repaired; for any other broken header the whole
    table is skipped, because its keys would join another table.
    """
    lines = text.splitlines()
    tables = _tables(lines)
    gone: set[int] = set()
    repaired = _repair_headers(lines)
    for _ in range(_TRIES):
        try:
            tree = tomllib.loads(_without(lines, gone), parse_float=Decimal)
        except (tomllib.TOMLDecodeError, ValueError, ArithmeticError, RecursionError) as error:
            found = _broken(lines, gone, str(error))
            if found is None:
                break
            gone |= _whole_table(lines, found) if _HEADER.match(lines[found]) else {found}
        else:
            bad = gone | repaired
            return ReadablePart(tree, frozenset(tables[i] for i in bad), tuple(i + 1 for i in sorted(bad)))
    return ReadablePart({}, frozenset(tables), tuple(range(1, len(lines) + 1)))


def _repair_headers(lines: list[str]) -> set[int]:
    """Close unclosed header brackets; returns the line numbers."""
    found = set()
    for i, line in enumerate(lines):
        header = _OPEN_HEADER.fullmatch(line)
        if header and header[1].count("[") > header[3].count("]"):
            lines[i] = header[1] + header[2] + "]" * header[1].count("[")
            found.add(i)
    return found


def _without(lines: list[str], gone: set[int]) -> str:
    """Blank these lines, so that the line numbers do not change."""
    return "\n".join("" if i in gone else line for i, line in enumerate(lines))


def _broken(lines: list[str], gone: set[int], error: str) -> int | None:
    """The line to skip; the parser names the line where it noticed the error, which may be below an open bracket."""
    at = _AT.search(error)
    noticed = int(at[1]) - 1 if at else len(lines) - 1
    left = [i for i in range(min(noticed, len(lines) - 1), -1, -1) if i not in gone and lines[i].strip()]
    if error.startswith("Unclosed"):
        return next((i for i in left if _OPENS.search(lines[i])), None)
    if at is None:  # an unterminated multi-line text
        opening = [i for i in left if lines[i].count('"""') % 2 or lines[i].count("'''") % 2]
        left = opening or left
    return left[0] if left else None


def _whole_table(lines: list[str], header: int) -> set[int]:
    end = next((i for i in range(header + 1, len(lines)) if _HEADER.match(lines[i])), len(lines))
    return set(range(header, end))


def _tables(lines: list[str]) -> list[tuple[str, ...]]:
    """The table of each line; for a watch and its subtables: ("watch",)."""
    found: list[tuple[str, ...]] = []
    table: tuple[str, ...] = ()
    for line in lines:
        header = _HEADER.match(line)
        if header:
            parts = tuple(part.strip(" \"'") for part in header[1].split("."))
            table = ("watch",) if parts[0] == "watch" else parts[:2]
        found.append(table)
    return found
