"""Telegram's HTML: an alert's lines as a message, with all foreign text escaped. Pure.

source: core.telegram.org/bots/api#html-style, read 2026-11.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from gpuwatch.notifiers.toolkit import Line, Piece, Role, custom_text, footer, lines
from gpuwatch.ports import Alert

MAX_UNITS = 4096  # UTF-16 code units, counted after parsing the entities
_MORE = Line(Role.ITEM, (Piece("… truncated; full alert: gpuwatch alerts"),))


def render(alert: Alert, templates: Mapping[str, str] | None = None) -> str:
    """Return the message as Telegram's HTML, at most 4096 displayed characters; truncated between two lines.

    Args:
        templates: the owner's texts by kind; one that Telegram would not accept completely is not used.
    """
    custom = custom_text(templates, alert, line_html)
    if custom and len(custom.encode("utf-16-le")) // 2 <= MAX_UNITS:
        return custom
    ending = footer(alert)
    room_units = MAX_UNITS - sum(_units(line) for line in (_MORE, *ending))
    shown_lines: list[Line] = []
    all_lines = lines(alert)
    for line in all_lines:
        room_units -= _units(line)
        if room_units < 0:
            shown_lines.append(_MORE)
            break
        shown_lines.append(line)
    return "\n".join(line_html(line) for line in (*shown_lines, *ending))


def _units(line: Line) -> int:
    return sum(len(piece.text.encode("utf-16-le")) // 2 for piece in line.pieces) + 1


def line_html(line: Line) -> str:
    """Render one line as HTML."""
    return "".join(map(_mark_up, line.pieces))


def _mark_up(piece: Piece) -> str:
    if piece.url:
        link = f'<a href="{html.escape(piece.url)}">{_escaped(piece.text)}</a>'
        return f"<b>{link}</b>" if piece.bold else link
    if piece.code:
        return f"<code>{_escaped(piece.text)}</code>"
    segments = _AUTO_LINKED.split(piece.text)  # every second one would become a link
    return "".join(
        f"<code>{_escaped(text)}</code>" if index % 2 else _emphasised(text, piece.bold)
        for index, text in enumerate(segments)
        if text
    )


# Telegram makes links of bare domains, @names, #tags, $TICKERS and /commands, except inside <code>.
_AUTO_LINKED = re.compile(r"(\S*(?:(?<!\w)[@#/]\w|\$[^\W\d]|\w\.[^\W\d_]{2}|://|\d\.\d+\.\d+\.\d)\S*)")


def _emphasised(text: str, bold: bool) -> str:
    return f"<b>{_escaped(text)}</b>" if bold and text.strip() else _escaped(text)


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def truncate_text(text: str) -> str:
    """Return as much as one message may contain."""
    units = text.encode("utf-16-le")[: (MAX_UNITS - 1) * 2]
    cut = units.decode("utf-16-le", "ignore")
    return cut if cut == text else cut + "…"
