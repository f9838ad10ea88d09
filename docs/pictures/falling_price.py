"""Draws docs/pictures/falling-price.svg: a recorded price falls under a limit, and the alert that follows.

The prices are real: the lowest on-demand price of an H100 SXM in the public series of docs/data.md. The line draws
itself once, then the alert appears; without animation the picture shows the end.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PICTURE = HERE / "falling-price.svg"
SERIES = HERE.parents[1] / "tests/recorded/price-history/primeintellect-best-2025-10-19_11-03.csv.gz"
GPU = "H100_80GB_SXM5"
BEGIN, END = datetime(2025, 10, 26, 12, tzinfo=UTC), datetime(2025, 10, 29, 6, tzinfo=UTC)
LIMIT = 1.85
_WIDTH, _HEIGHT = 520, 352
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 506, 52, 310
_LOW, _HIGH = 1.70, 2.20
_STYLE = """
  svg { color-scheme: light dark }
  text { fill: #1f2328; font: 15px system-ui, -apple-system, "Segoe UI", sans-serif } .small { font-size: 13px }
  .title { font-weight: 600 } .quiet { fill: #59636e } .paper { fill: #ffffff } .grid { stroke: #e7eaee }
  .price { fill: none; stroke: #2f6fb5; stroke-width: 2.5; stroke-linejoin: round }
  .limit { stroke: #b3541e; stroke-width: 1.5; stroke-dasharray: 5 4 } .limit-text { fill: #b3541e }
  .alert { fill: #e9f4ec; stroke: #3d8b5f } .dot { fill: #3d8b5f; stroke: #ffffff; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .paper { fill: #0d1117 } .grid { stroke: #252b34 }
    .price { stroke: #5b9bdf } .limit { stroke: #e0884f } .limit-text { fill: #e0884f }
    .alert { fill: #12261b; stroke: #5fb488 } .dot { fill: #5fb488; stroke: #0d1117 }
  }
  @media (prefers-reduced-motion: no-preference) {
    .price { stroke-dasharray: 1; animation: draw 3s linear both } .found { animation: appear .5s 3s both }
  }
  @keyframes draw { from { stroke-dashoffset: 1 } to { stroke-dashoffset: 0 } }
  @keyframes appear { from { opacity: 0 } to { opacity: 1 } }
"""


class SeenPrice(NamedTuple):
    """The lowest price of one poll."""

    at: datetime
    usd_gpu_hour: float
    gpu_count: int


def seen_prices() -> list[SeenPrice]:
    """Return what each poll showed, oldest first."""
    lowest: dict[datetime, SeenPrice] = {}
    with gzip.open(SERIES, "rt", encoding="utf-8") as opened:
        for row in csv.DictReader(opened):
            at = datetime.fromisoformat(row["observed_at"])
            if row["gpu_name_raw"] == GPU and row["spot"] == "false" and BEGIN <= at < END:
                count = int(row["gpu_count"])
                seen = SeenPrice(at, float(row["price_usd_hour"]) / count, count)
                lowest[at] = min(lowest.get(at, seen), seen, key=lambda one: one.usd_gpu_hour)
    return [lowest[at] for at in sorted(lowest)]


def as_svg() -> str:
    """Draw the whole picture."""
    prices = seen_prices()
    first = next(number for number, one in enumerate(prices) if one.usd_gpu_hour <= LIMIT)
    found, gone = prices[first], prices[first + 1]
    label = f"The price of an H100 falls under a limit of ${LIMIT:.2f}, and an alert follows"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img"'
        f' aria-label="{label}">',
        f"<title>{label}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        '<text class="title" x="14" y="26">H100 SXM, lowest price per GPU-hour</text>',
        *_axes(),
        f'<path class="price" pathLength="1" d="{_path(prices)}"/>',
        *_alert(found, gone),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _axes() -> Iterator[str]:
    for cents in range(180, 221, 20):
        y = _y(cents / 100)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="small quiet" x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">${cents / 100:.2f}</text>'
    day = BEGIN.replace(hour=0) + timedelta(days=1)
    while _x(day) < _RIGHT - 80:  # room for its name
        yield f'<text class="small quiet" x="{_x(day)}" y="{_BOTTOM + 22}">{day:%a %d %b}</text>'
        day += timedelta(days=1)
    y = _y(LIMIT)
    yield f'<line class="limit" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>'
    yield f'<text class="limit-text small" x="{_LEFT + 4}" y="{y - 7}">your limit, ${LIMIT:.2f}</text>'


def _alert(found: SeenPrice, gone: SeenPrice) -> Iterator[str]:
    x, y = _x(found.at), _y(found.usd_gpu_hour)
    minutes = round((gone.at - found.at).total_seconds() / 60)
    yield '<g class="found">'
    yield f'<path class="alert" d="M{x - 7:.1f} {y} l-16 -8 v16 z"/>'
    yield f'<rect class="alert" x="{_LEFT + 10}" y="{y - 15:.1f}" width="{x - _LEFT - 33:.1f}" height="66" rx="8"/>'
    yield f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="6"/>'
    bold = f"{found.gpu_count}× H100 SXM at ${found.usd_gpu_hour:.2f}/GPU-h"
    yield f'<text class="title" x="{_LEFT + 24}" y="{y + 7:.1f}">{bold}</text>'
    total = f"${found.usd_gpu_hour * found.gpu_count:.2f}/h · {found.at:%d %b %H:%M} UTC"
    yield f'<text class="small" x="{_LEFT + 24}" y="{y + 25:.1f}">{total}</text>'
    yield f'<text class="small quiet" x="{_LEFT + 24}" y="{y + 42:.1f}">gone {minutes} minutes later</text>'
    yield "</g>"


def _path(prices: list[SeenPrice]) -> str:
    """Steps: a price holds until the next poll."""
    parts = [f"M{_x(prices[0].at):.1f} {_y(prices[0].usd_gpu_hour)}"]
    shown = prices[0].usd_gpu_hour
    for one in prices[1:]:
        if round(one.usd_gpu_hour, 2) != round(shown, 2):
            parts.append(f"H{_x(one.at):.1f}V{_y(one.usd_gpu_hour)}")
            shown = one.usd_gpu_hour
    return "".join([*parts, f"H{_RIGHT}"])


def _x(at: datetime) -> float:
    return round(_LEFT + (_RIGHT - _LEFT) * ((at - BEGIN) / (END - BEGIN)), 1)


def _y(usd: float) -> float:
    return round(_BOTTOM - (_BOTTOM - _TOP) * (usd - _LOW) / (_HIGH - _LOW), 1)


def draw() -> None:
    """Write the picture."""
    PICTURE.write_text(as_svg(), encoding="utf-8")
