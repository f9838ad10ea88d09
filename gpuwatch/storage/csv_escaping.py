"""Cells of a CSV file that no spreadsheet takes for a formula, and the way back."""

from __future__ import annotations

import re

_DANGEROUS = re.compile(r"'*[=+\-@|%\t\r\n]")


def escape_formula(cell: str) -> str:
    """With a ' before what a spreadsheet would run; before what looks neutralised already, too: so it can be undone."""
    return "'" + cell if _DANGEROUS.match(cell) else cell


def unescape_formula(cell: str) -> str:
    """As it was."""
    return cell[1:] if cell.startswith("'") and _DANGEROUS.match(cell, 1) else cell
