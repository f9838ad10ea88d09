"""Makes text from outside safe to store: no control characters, no oversized values."""

from __future__ import annotations

import re
import unicodedata

MAX_TEXT_LENGTH = 200
_REMEMBERED_MAX = 20_000  # texts; hostile answers must not fill the memory
_SEPARATORS = ("\u2028", "\u2029")
_remembered: dict[str, str] = {}


def clean(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Replace every control, format, surrogate, private and unassigned character by "�", and cut the text to length.

    Args:
        max_length: characters; a cut text ends in "…".
    """
    if len(text) <= max_length and text.isascii() and text.isprintable():
        return text
    if len(text) > max_length:
        text = text[: max_length - 1] + "…"
    return "".join("�" if is_hostile(character) else character for character in text)


def clean_word(text: str) -> str:
    """`clean` for values that repeat from row to row (places, drivers): cached, and without surrounding spaces."""
    found = _remembered.get(text)
    if found is None:
        if len(_remembered) >= _REMEMBERED_MAX:
            _remembered.clear()
        found = clean(text).strip()
        if len(text) <= MAX_TEXT_LENGTH:
            _remembered[text] = found
    return found


def is_hostile(character: str) -> bool:
    """Whether it is a control, format, surrogate, private or unassigned character, or a line separator."""
    return character in _SEPARATORS or unicodedata.category(character).startswith("C")


_FORMULA = re.compile(r"'*[=+\-@|%\t\r\n]")


def escape_formula(cell: str) -> str:
    """A CSV cell that no spreadsheet executes: a ' precedes what looks like a formula, or like an escaped one."""
    return "'" + cell if _FORMULA.match(cell) else cell


def unescape_formula(cell: str) -> str:
    """The cell as it was before `escape_formula`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell, 1) else cell


def storable_text(text: str, length: int) -> str:
    """Return at most `length` characters that every database accepts; ordinary text is unchanged."""
    text = text[:length]
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode()
