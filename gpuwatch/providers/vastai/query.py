"""Converts a query into vast.ai's query object. Pure.

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

MAX_ROWS: Final = 1000  # sent if all rows are wanted
SILENT_CAP: Final = 64  # rows returned for larger requests, too: without a key always, with one sometimes
DEFAULT_DISK_GB: Final = 8.0  # in a quote, if the query has no disk
_ROUNDING: Final = 1.0 + 1e-9  # doubles: the last digit must not exclude an offer exactly at the bound


def search_params(query: Query, from_usd_hour: float | None = None) -> dict[str, str]:
    """Return the URL parameters of one search. Leaves out filters that the server is known to apply wrongly.

    Args:
        from_usd_hour: only offers at or above this price, for the next page.
    """
    return {"q": _conditions_text(query, from_usd_hour)}


@lru_cache(maxsize=64)  # each hunt repeats the same queries
def _conditions_text(query: Query, from_usd_hour: float | None) -> str:
    return msgspec.json.encode(_conditions(query, from_usd_hour)).decode()


def row_limit(query: Query) -> int:
    """Return the `limit` to send."""
    return min(query.limit, MAX_ROWS) if query.limit is not None else MAX_ROWS


def _conditions(query: Query, from_usd_hour: float | None) -> dict[str, Any]:
    conditions: dict[str, Any] = {"rentable": {"eq": True}}
    if query.gpus:
        conditions["gpu_name"] = {"in": list(wire_names(query.gpus))}
    if query.count_max is not None and query.count_min == query.count_max:
        conditions["num_gpus"] = {"eq": query.count_min}
    else:
        counts = _bounds(query.count_min if query.count_min > 1 else None, query.count_max)
        conditions |= {"num_gpus": counts} if counts else {}
    max_usd_hour = query.max_listed_usd_hour
    prices = _bounds(from_usd_hour, None if max_usd_hour is None else max_usd_hour * _ROUNDING)
    conditions |= {"dph_total": prices} if prices else {}
    if query.verified is not None:
        conditions["verified"] = {"eq": query.verified}
    if query.min_reliability is not None:
        conditions["reliability2"] = {"gte": query.min_reliability}
    if query.disk_gb is not None:
        conditions["allocated_storage"] = query.disk_gb
    return conditions | {
        "order": [["dph_total", "asc"]],
        "type": "bid" if query.spot else "on-demand",
        "limit": row_limit(query),
    }


def wire_names(gpus: tuple[str, ...]) -> tuple[str, ...]:
    """Return vast.ai's spellings of canonical names. Unknown spellings get an empty list from vast.ai, not an error.

    A GPU never seen there is requested by all known spellings: it may be new there. Empty: vast.ai has no name for
    this card alone.
    """
    names: dict[str, None] = {}
    for gpu in gpus:
        names.update(dict.fromkeys(_wire_names_of(gpu)))
    return tuple(names)


@cache
def _wire_names_of(gpu: str) -> tuple[str, ...]:
    row = catalog().get(gpu)
    if row is None:
        return _unlisted_wire_names(gpu)
    resolved = {name: catalog().resolve(name, row.memory_gib) for name in _known_names()}  # it always states the memory
    listed_names = tuple(name for name, found in resolved.items() if found.name == gpu)
    # A card that it offers under an ambiguous name ("Tesla V100") is requested only by that name.
    if listed_names or row.members or any(gpu in found.candidates for found in resolved.values()):
        return listed_names
    return row.spellings


def _unlisted_wire_names(gpu: str) -> tuple[str, ...]:
    """The spellings of a card that the catalogue lacks: vast.ai writes "RTX 4090D" where others write "RTX 4090 D"."""
    start, _, suffix = gpu.rpartition(" ")
    joined = (f"{start}{suffix}",) if len(suffix) == 1 and start else ()
    listed_names = (name for name in _known_names() if catalog().resolve(name).name == gpu)
    return tuple(dict.fromkeys((gpu, *joined, *listed_names)))


@cache
def _known_names() -> tuple[str, ...]:
    """Return the marketplace's own list, plus the spellings seen live."""
    return tuple(Path(__file__).with_name("gpu-names.txt").read_text("ascii").splitlines())


def _bounds(minimum: float | None, maximum: float | None) -> Mapping[str, float]:
    bounds = {"gte": minimum, "lte": maximum}
    return {operator: value for operator, value in bounds.items() if value is not None}
