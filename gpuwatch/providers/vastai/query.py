"""From what is wanted to vast.ai's query object. Pure.

source: the vendor's client 1.9 and documents; names and filters as live clients report them, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.ports import Query

ROWS_AT_MOST: Final = 1000  # requested when all are wanted
SILENT_CAP: Final = 64  # sent back for larger requests too: without a key always, with one at times
DEFAULT_DISK_GB: Final = 8.0  # in a quote, if no disk is asked for
_HAIR: Final = 1.0 + 1e-9  # doubles: an offer exactly at the bound must not be lost to the last digit


def search_params(query: Query, from_usd_hour: float | None = None) -> dict[str, str]:
    """The URL parameters of one search. Filters that the server is known to get wrong are not sent.

    Args:
        from_usd_hour: only offers at or over this price, for the next page.
    """
    return {"q": _conditions_text(query, from_usd_hour)}


@lru_cache(maxsize=64)  # each hunt asks the same again and again
def _conditions_text(query: Query, from_usd_hour: float | None) -> str:
    return msgspec.json.encode(_conditions(query, from_usd_hour)).decode()


def rows_asked(query: Query) -> int:
    """The `limit` that is sent."""
    return min(query.limit, ROWS_AT_MOST) if query.limit is not None else ROWS_AT_MOST


def _conditions(query: Query, from_usd_hour: float | None) -> dict[str, Any]:
    asked: dict[str, Any] = {"rentable": {"eq": True}}
    if query.gpus:
        asked["gpu_name"] = {"in": list(wire_names(query.gpus))}
    if query.count_max is not None and query.count_min == query.count_max:
        asked["num_gpus"] = {"eq": query.count_min}
    else:
        counts = _between(query.count_min if query.count_min > 1 else None, query.count_max)
        asked |= {"num_gpus": counts} if counts else {}
    most = query.max_listed_usd_hour
    prices = _between(from_usd_hour, None if most is None else most * _HAIR)
    asked |= {"dph_total": prices} if prices else {}
    if query.verified is not None:
        asked["verified"] = {"eq": query.verified}
    if query.min_reliability is not None:
        asked["reliability2"] = {"gte": query.min_reliability}
    if query.disk_gb is not None:
        asked["allocated_storage"] = query.disk_gb
    return asked | {
        "order": [["dph_total", "asc"]],
        "type": "bid" if query.spot else "on-demand",
        "limit": rows_asked(query),
    }


def wire_names(gpus: tuple[str, ...]) -> tuple[str, ...]:
    """vast.ai's spellings of canonical names. vast.ai answers an unknown spelling with an empty list and no error.

    A GPU that has never been seen there is requested by every spelling that exists: it may be new there. Empty: vast.ai
    has no name for such a card alone.
    """
    names: dict[str, None] = {}
    for gpu in gpus:
        names.update(dict.fromkeys(_wire_names_of(gpu)))
    return tuple(names)


@cache
def _wire_names_of(gpu: str) -> tuple[str, ...]:
    row = catalog().get(gpu)
    if row is None:
        return (gpu,)
    meant = {name: catalog().resolve(name, row.memory_gib) for name in _known()}  # it always states the memory
    known = tuple(name for name, found in meant.items() if found.name == gpu)
    # A card that it offers under an ambiguous name ("Tesla V100") is requested by that name alone.
    if known or row.members or any(gpu in found.candidates for found in meant.values()):
        return known
    return row.spellings


@cache
def _known() -> tuple[str, ...]:
    """The marketplace's own list, and what has been seen live besides."""
    return tuple(Path(__file__).with_name("gpu-names.txt").read_text("ascii").splitlines())


def _between(least: float | None, most: float | None) -> Mapping[str, float]:
    bounds = {"gte": least, "lte": most}
    return {operator: value for operator, value in bounds.items() if value is not None}
