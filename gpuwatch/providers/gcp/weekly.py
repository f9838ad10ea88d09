"""The weekly pricing.yml of a public project: prices of whole machines, computed from Google's own list. Pure.

A program writes the file, always in the same form: two spaces per level, one key per line. This module reads only that
form and is not a YAML parser: anchors, tags and other features of an untrusted file have no effect here.

source: github.com/Cyclenerd/google-cloud-pricing-cost-calculator (Apache-2.0), its file of 2025-03-06, read 2026-11.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.toolkit.validation import number

_LINE: Final = re.compile(r"( *)([A-Za-z0-9_.-]{1,60}):(?: (.{1,100}))?$")
_PRICES: Final = {"hour": False, "hour_spot": True}
_MAX_UNIX_S: Final = 4_102_444_800.0  # 2100


class WeeklyPrices(NamedTuple):
    """When the prices were computed, and the prices by machine type, region and spot."""

    computed_at: datetime | None
    prices: dict[tuple[str, str, bool], str]


def read_weekly(body: bytes) -> WeeklyPrices:
    """Parse the machines of a pricing.yml. Raises PayloadChanged: there are none."""
    path: list[str] = []
    computed_at, prices = None, {}
    for raw in body.decode("utf-8", "replace").splitlines():
        line = _LINE.match(raw)
        if line is None:
            continue
        depth = len(line[1]) // 2
        if depth > len(path):
            continue
        path[depth:] = [line[2]]
        if line[3] is None:
            continue
        if path == ["about", "timestamp"]:
            computed_at = _parse_timestamp(line[3])
        elif path[:2] == ["compute", "instance"] and len(path) == 6 and path[3] == "cost" and path[5] in _PRICES:
            prices[path[2], path[4], _PRICES[path[5]]] = line[3]
    if not prices:
        raise PayloadChanged("gcp: pricing.yml has no machine prices")
    return WeeklyPrices(computed_at, prices)


def _parse_timestamp(text: str) -> datetime | None:
    seconds = number(text, 1.0, _MAX_UNIX_S)
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
