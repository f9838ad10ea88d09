"""The readable part of a file that is not valid TOML: unreadable lines are skipped and counted."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from typing import Any, NamedTuple

_POSITION = re.compile(r"\(at line (\d+), column \d+\)")
_HEADER = re.compile(r"\s*\[+\s*([^\[\]#=]*)")
_OPEN_HEADER = re.compile(r"\s*(\[{1,2})([\w.\-]+)(\]?)\s*")
_OPENING_BRACKET = re.compile(r"=\s*[\[{]")
_MAX_ATTEMPTS = 300


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
    skipped: set[int] = set()
    repaired = _repair_headers(lines)
    for _ in range(_MAX_ATTEMPTS):
        try:
            tree = tomllib.loads(_blank_lines(lines, skipped), parse_float=Decimal)
        except (tomllib.TOMLDecodeError, ValueError, ArithmeticError, RecursionError) as error:
            broken = _broken_line(lines, skipped, str(error))
            if broken is None:
                break
            skipped |= _table_lines(lines, broken) if _HEADER.match(lines[broken]) else {broken}
        else:
            damaged = skipped | repaired
            return ReadablePart(tree, frozenset(tables[i] for i in damaged), tuple(i + 1 for i in sorted(damaged)))
    return ReadablePart({}, frozenset(tables), tuple(range(1, len(lines) + 1)))


def _repair_headers(lines: list[str]) -> set[int]:
    """Close unclosed header brackets; returns the line numbers."""
    repaired = set()
    for i, line in enumerate(lines):
        header = _OPEN_HEADER.fullmatch(line)
        if header and header[1].count("[") > header[3].count("]"):
            lines[i] = header[1] + header[2] + "]" * header[1].count("[")
            repaired.add(i)
    return repaired


def _blank_lines(lines: list[str], skipped: set[int]) -> str:
    """Blank these lines, so that the line numbers do not change."""
    return "\n".join("" if i in skipped else line for i, line in enumerate(lines))


def _broken_line(lines: list[str], skipped: set[int], error: str) -> int | None:
    """The line to skip; the parser names the line where it noticed the error, which may be below an open bracket."""
    position = _POSITION.search(error)
    error_line = int(position[1]) - 1 if position else len(lines) - 1
    candidates = [i for i in range(min(error_line, len(lines) - 1), -1, -1) if i not in skipped and lines[i].strip()]
    if error.startswith("Unclosed"):
        return next((i for i in candidates if _OPENING_BRACKET.search(lines[i])), None)
    if position is None:  # an unterminated multi-line text
        unclosed = [i for i in candidates if lines[i].count('"""') % 2 or lines[i].count("'''") % 2]
        candidates = unclosed or candidates
    return candidates[0] if candidates else None


def _table_lines(lines: list[str], header: int) -> set[int]:
    end = next((i for i in range(header + 1, len(lines)) if _HEADER.match(lines[i])), len(lines))
    return set(range(header, end))


def _tables(lines: list[str]) -> list[tuple[str, ...]]:
    """The table of each line; for a watch and its subtables: ("watch",)."""
    tables: list[tuple[str, ...]] = []
    table: tuple[str, ...] = ()
    for line in lines:
        header = _HEADER.match(line)
        if header:
            parts = tuple(part.strip(" \"'") for part in header[1].split("."))
            table = ("watch",) if parts[0] == "watch" else parts[:2]
        tables.append(table)
    return tables
