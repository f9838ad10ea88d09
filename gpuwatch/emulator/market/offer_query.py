"""The search language: `{column: {operator: value}}` and a few special keys, as the marketplace interprets them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuwatch.emulator.answers import bad_query
from gpuwatch.emulator.market.hardware import GPUS
from gpuwatch.emulator.market.machines import (
    DEFAULT_STORAGE_GB,
    EmulatedListing,
    PriceView,
    machine_fields,
    price_fields,
)

TYPES = {"on-demand": False, "ondemand": False, "ask": False, "reserved": False, "bid": True, "interruptible": True}
# Helpers of the web pages and of the SLA programme: accepted, but without effect here.
IGNORED = frozenset({
    "target_reliability", "disable_bundling", "sort_option", "gpu_option", "show_incompatible", "template_id",
    "has_sla", "extra_ids",
})  # fmt: skip
ALIASES = {
    "ask_contract_id": "id",
    "reliability": "reliability2",
    "dphtotal": "dph_total",
    "gpu_totalram": "gpu_total_ram",
    "driver_version": "driver_vers",
    "ubuntu_version": "os_version",
}
_SAMPLE_ROW = machine_fields(GPUS[0], 0.0, 1)
PRICE_COLUMNS = frozenset(price_fields(_SAMPLE_ROW, 1.0, 1.0)) - {"search", "instance"}
COMPUTED: dict[str, type] = {
    "verified": bool,
    "datacenter": bool,
    "external": bool,
    "rented": bool,
    "geolocation": str,
    "duration": float,
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, choices: value in choices,
    "notin": lambda value, choices: value not in choices,
}


@dataclass(frozen=True, slots=True)
class QueryCondition:
    """One operator on one column."""

    column: str
    operator: str
    operand: Any

    def accepts(self, value: Any) -> bool:
        """Whether a value passes; a missing value never passes, as in SQL."""
        return value is not None and OPERATORS[self.operator](value, self.operand)


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """A parsed search."""

    view: PriceView
    conditions: tuple[QueryCondition, ...]
    order: tuple[tuple[str, bool], ...]  # column, descending
    limit: int | None

    @property
    def is_time_independent(self) -> bool:
        """Whether the same market gives the same rows at any time."""
        columns = {condition.column for condition in self.conditions} | {column for column, _ in self.order}
        return not columns & {"duration", "rented"}

    def accepts(self, listing: EmulatedListing, now: float) -> bool:
        """Whether an offer passes all conditions."""
        return all(
            condition.accepts(column_value(listing, condition.column, self.view, now)) for condition in self.conditions
        )

    def sort(self, listings: list[EmulatedListing], now: float) -> None:
        """Sort offers in the requested order; offers without a value come last."""
        for column, descending in reversed(self.order):

            def key(listing: EmulatedListing, column: str = column, descending: bool = descending) -> tuple[bool, Any]:
                value = column_value(listing, column, self.view, now)
                return (value is None) != descending, 0 if value is None else value

            listings.sort(key=key, reverse=descending)

    @property
    def gpu_names(self) -> tuple[str, ...] | None:
        """Return the only GPU names that can pass, or None: lets a search skip the rest of the market."""
        for condition in self.conditions:
            if condition.column == "gpu_name" and condition.operator in ("eq", "in"):
                return (condition.operand,) if condition.operator == "eq" else tuple(condition.operand)
        return None


def column_value(listing: EmulatedListing, column: str, view: PriceView, now: float) -> Any:
    """Return the value of a column for an offer; several columns are not fields of the answer."""
    if column in PRICE_COLUMNS:
        return listing.prices(view)[column]
    row = listing.slice.row
    reader = _READERS.get(column)
    if reader is not None:
        return reader(listing)
    if column == "duration":
        return row["end_date"] - now
    return row.get(column)


_READERS: dict[str, Callable[[EmulatedListing], Any]] = {
    "id": lambda listing: listing.id,
    "verified": lambda listing: listing.slice.row["verification"] == "verified",
    "datacenter": lambda listing: listing.slice.row["hosting_type"] == 1,
    "external": lambda listing: False,  # null in every row, although `{"eq": false}` keeps them all
    "rented": lambda listing: any(isinstance(holder, int) for holder in listing.machine.holders.values()),
    "geolocation": lambda listing: country_of(listing.slice.row["geolocation"]),
}


def country_of(place: str | None) -> str | None:
    """Return the two letters after the last comma of a place."""
    return place.rpartition(",")[2].strip() if place else None


def parse_query(raw: Any) -> OfferQuery:
    """Parse a decoded search object.

    Raises:
        RefusedRequest: the marketplace's 400 for anything that is not `{column: {operator: value}}`.
    """
    if not isinstance(raw, dict):
        raise bad_query("Invalid query: must be dict of conditions")
    kind = raw.get("type", "on-demand")
    if kind not in TYPES:
        raise bad_query(f"Invalid type: {kind!r:.40}")
    storage = number(raw.get("allocated_storage", DEFAULT_STORAGE_GB), "allocated_storage")
    limit = raw.get("limit")
    special = {"type", "order", "limit", "allocated_storage"} | IGNORED
    conditions = [
        condition for key, value in raw.items() if key not in special for condition in parse_column(key, value)
    ]
    return OfferQuery(
        view=PriceView(TYPES[kind], storage),
        conditions=tuple(conditions),
        order=parse_order(raw.get("order", [["score", "desc"]])),
        limit=None if limit is None else parse_limit(limit),
    )


def parse_column(column: str, operations: Any) -> list[QueryCondition]:
    """Parse `{operator: value, …}` of one column; all conditions must hold."""
    if not isinstance(operations, dict):
        raise bad_query("Input should be a valid dictionary")
    if column == "id":
        return [QueryCondition("id", "in", ())]  # reported by clients: a filter on `id` matches nothing
    target_type = column_type(column)
    return [parse_condition(ALIASES.get(column, column), target_type, op, value) for op, value in operations.items()]


def parse_condition(column: str, target_type: type, op: str, value: Any) -> QueryCondition:
    """Parse one operator with its operand."""
    if op not in OPERATORS:
        raise bad_query(f"Invalid operator: {op:.40}")
    if op in ("in", "notin"):
        if not isinstance(value, list):
            raise bad_query(f"Invalid value for {column} {op}: must be a list")
        return QueryCondition(column, op, tuple(convert(one, target_type, column) for one in value))
    return QueryCondition(column, op, convert(value, target_type, column))


def column_type(column: str) -> type:
    """Return the type for comparing a column."""
    if column in COMPUTED:
        return COMPUTED[column]
    name = ALIASES.get(column, column)
    sample = 0 if name == "id" else _SAMPLE_ROW.get(name, KeyError)
    if sample is KeyError or isinstance(sample, dict | list):
        raise bad_query(f"Invalid query: {column:.60} is not a valid search key")
    if isinstance(sample, bool | str):
        return type(sample)
    return float


def convert(value: Any, target_type: type, column: str) -> Any:
    """Convert an operand to the column's type; the official command line sends its numbers as text."""
    if target_type is float:
        return driver_number(value) if ALIASES.get(column, column) == "driver_vers" else number(value, column)
    if target_type is bool:
        boolean = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
        if boolean is None:
            raise bad_query(f"Invalid value for {column}: must be a boolean")
        return boolean
    return str(value)


def driver_number(value: Any) -> float:
    """Convert "535.86.05" to 535086005; a number stays as it is."""
    parts = str(value).split(".")
    if len(parts) == 3 and all(part.isdigit() for part in parts):
        return float("".join(part.zfill(3) for part in parts))
    return number(value, "driver_version")


def number(value: Any, column: str) -> float:
    """Convert a JSON number, or a text with one, to a float."""
    try:
        result = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        result = float("nan")
    if math.isnan(result):
        raise bad_query(f"Invalid value for {column}: must be a number")
    return result


def parse_limit(value: Any) -> int:
    """Parse `limit`: a whole number of at least one."""
    limit = number(value, "limit")
    if limit < 1 or limit != int(limit):
        raise bad_query("Invalid limit: must be a positive integer")
    return int(limit)


def parse_order(value: Any) -> tuple[tuple[str, bool], ...]:
    """Parse `[["dph_total", "asc"], …]`."""
    try:
        pairs = [(str(column), str(direction)) for column, direction in value]
    except (TypeError, ValueError):
        raise bad_query("Invalid order: must be a list of [column, direction]") from None
    if any(direction not in ("asc", "desc") for _, direction in pairs):
        raise bad_query("Invalid order: direction must be asc or desc")
    for column, _ in pairs:
        column_type(column)
    return tuple((ALIASES.get(column, column), direction == "desc") for column, direction in pairs)
