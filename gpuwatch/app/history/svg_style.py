"""Colours, labels and keys of SVG charts: the same on the web page, in `--html` pages, in pictures and in the chat.

Colours are names that a palette fills in, so that one drawing is light or dark as its reader's screen is. Colours and
classes have the names of the page's stylesheet, so that every chart can stand in a page, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final, NamedTuple

LIGHT: Final = {
    "text": "#131920", "muted": "#545f6b", "surface": "#ffffff", "sunken": "#edf0f3", "line": "#dfe3e8",
    "hatch": "#87919c", "accent": "#1756bf", "median": "#64707d", "band": "#cfdff8", "limit": "#ad4a08",
    "good": "#0b6b4e", "cheap-a": "#e3edfb", "cheap-b": "#bcd5f6", "cheap-c": "#8fb9f0", "dear-a": "#fbeadb",
    "dear-b": "#f6cfa6", "dear-c": "#eeaf70", "win": "#d5efe4", "series-a": "#2a66d1", "series-b": "#c4660c",
    "series-c": "#0c8a72", "series-d": "#4b1d66", "series-e": "#8b959f",
}  # fmt: skip
DARK: Final = {
    "text": "#e7ecf1", "muted": "#9fabb7", "surface": "#151a21", "sunken": "#1f262e", "line": "#29313b",
    "hatch": "#69747f", "accent": "#82b4ff", "median": "#8d99a6", "band": "#21385c", "limit": "#f5a05f",
    "good": "#53cda4", "cheap-a": "#17263b", "cheap-b": "#1d3d68", "cheap-c": "#25549a", "dear-a": "#33261a",
    "dear-b": "#553618", "dear-c": "#7d4a14", "win": "#143a2d", "series-a": "#6ea8ff", "series-b": "#eda04f",
    "series-c": "#43c2a6", "series-d": "#efe9a6", "series-e": "#6d7782",
}  # fmt: skip
STYLE: Final = """
svg text{fill:var(--muted);font-size:12px}svg .strong{fill:var(--text)}svg .a-note{fill:var(--text)}
svg .halo{paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round}
.a-grid{stroke:var(--line)}.hatch-line{stroke:var(--hatch)}.p-gap,.s-next{fill:url(#hatch)}
.p-line,.dots,.m-half{fill:none;stroke-width:2}.p-line{stroke:var(--accent)}
.dots{stroke:var(--median);stroke-dasharray:2 3}.m-half{stroke:var(--muted);stroke-dasharray:2 3}
.p-dot{stroke:var(--accent);stroke-width:6;stroke-linecap:round}.p-win{fill:var(--win)}
.thin{fill:none;stroke:var(--median);stroke-dasharray:4 3}.dot{fill:var(--good);stroke:var(--surface)}
.a-lim,.p-lim,.s-lim{fill:none;stroke:var(--limit);stroke-width:2;stroke-dasharray:6 4}
svg .a-limtext{fill:var(--limit)}.none{fill:var(--sunken)}
.s-rail{stroke:var(--line);stroke-width:2}.s-box{fill:var(--band)}.s-med{stroke:var(--median);stroke-width:2}
.s-now{fill:var(--accent);stroke:var(--surface);stroke-width:2}.s-now.good{fill:var(--good)}
.s-now.dear{fill:var(--limit)}.s-next{stroke:var(--hatch);stroke-dasharray:3 2}
.s-a{fill:var(--series-a)}.s-b{fill:var(--series-b)}.s-c{fill:var(--series-c)}.s-d{fill:var(--series-d)}
.s-e{fill:var(--series-e)}.s-f{fill:none;stroke:var(--median)}
.ca{fill:var(--cheap-a)}.cb{fill:var(--cheap-b)}.cc{fill:var(--cheap-c)}
.da{fill:var(--dear-a)}.db{fill:var(--dear-b)}.dc{fill:var(--dear-c)}.z{fill:var(--surface)}
"""
# The pattern of a time in which the market was not polled. Every chart brings it: it may stand alone in a page.
# Its tile is not turned: with `rotate(45)`, a picture takes four times as long and is six times as large
HATCH: Final = (
    '<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse">'
    '<path class="hatch-line" stroke-width=".6" d="M0 8 8 0M-1 1 1-1M7 9 9 7"/></pattern></defs>'
)
_CHARACTER: Final = 7.3  # units that a character of 12 px takes at most, on average
_SWATCH: Final = 22


class LegendEntry(NamedTuple):
    """What a line, an area or a mark means."""

    kind: str  # class of the line; "s-box", "p-gap" and "dot" are drawn as an area and a mark
    text: str


class Box(NamedTuple):
    """Where a label lies."""

    left: float
    right: float
    top: float
    bottom: float

    def meets(self, others: Iterable[Box]) -> bool:
        """Whether it covers a part of one of them."""
        return any(
            self.left < one.right and one.left < self.right and self.top < one.bottom and one.top < self.bottom
            for one in others
        )


def text_width(text: str) -> float:
    """Units that a label takes."""
    return len(text) * _CHARACTER


def box_of(x: float, y: float, text: str, anchor: str) -> Box:
    """The place of a label."""
    width = text_width(text)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Box(left, left + width, y - 11, y + 3)


def label(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    """A text of 12 px."""
    kind = f'class="{kind}" ' if kind else ""
    return f'<text {kind}x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def keys_width(keys: Iterable[LegendEntry]) -> float:
    """Units that the keys take beside each other."""
    return sum(_SWATCH + 6 + text_width(key.text) + 18 for key in keys)


def key_row(keys: Iterable[LegendEntry], x: float, y: float) -> str:
    """The keys beside each other, from `x` on; `y` is the line of their texts."""
    parts = []
    for key in keys:
        parts += [_swatch(key.kind, x, y), label(x + _SWATCH + 6, y, key.text)]
        x += _SWATCH + 6 + text_width(key.text) + 18
    return "".join(parts)


def _swatch(kind: str, x: float, y: float) -> str:
    if kind == "dot":
        return f'<circle class="dot" cx="{x + _SWATCH / 2:.1f}" cy="{y - 4:.1f}" r="4"/>'
    if kind in {"s-box", "p-gap"}:
        return f'<rect class="{kind}" x="{x:.1f}" y="{y - 10:.1f}" width="{_SWATCH}" height="12"/>'
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x + _SWATCH:.1f}" y1="{y - 4:.1f}" y2="{y - 4:.1f}"/>'


def filled_in(style: str, palette: Mapping[str, str]) -> str:
    """The style with a palette's colours, for readers without variables."""
    return re.sub(r"var\(--([\w-]+)\)", lambda name: palette[name[1]], style)
