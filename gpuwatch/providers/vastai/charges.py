"""Parses vast.ai's invoices. Pure.

Each day is requested separately, so that an amount belongs to that day. An item that covers more days is spread evenly
over those of its days that were requested. The marketplace rounds amounts to a tenth of a cent.
source: the vendor's documents of `show charges`, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

import msgspec

from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import ProviderCharge
from gpuwatch.providers.toolkit.error_mapping import display_sentence
from gpuwatch.providers.toolkit.validation import UNREADABLE

_ROWS: Final = 500  # the maximum page size
_DAY_S: Final = 86_400
_MAX_UNIX_S: Final = 32_503_680_000.0  # the year 3000
_MAX_USD: Final = 1e6
_ROUNDING_USD: Final = 0.0005  # the largest rounding error of one amount
_MAX_DEPTH: Final = 4
_KINDS: Final = {"gpu": "gpu", "disk": "disk", "bwd": "download", "bwu": "upload"}
_MAY_BE_NEGATIVE: Final = frozenset({"sla"})  # the fee minus what the host owes for downtime
_SOURCE: Final = "instance-"


class ChargeItem(msgspec.Struct):
    """One charge and its items."""

    start: float
    end: float
    type: str
    amount: float
    source: str | None = None
    items: list[ChargeItem] = []


class ChargesPage(msgspec.Struct):
    """One page: one row per contract."""

    success: bool
    results: list[ChargeItem]
    total: int | None = None
    next_token: str | None = None


def charges_params(day: date) -> dict[str, str]:
    """Return the URL parameters for one day (UTC)."""
    start = int(datetime.combine(day, time(), UTC).timestamp())
    filters: dict[str, Any] = {"day": {"gte": start, "lte": start + _DAY_S - 1}, "type": {"in": ["instance"]}}
    return {"select_filters": msgspec.json.encode(filters).decode(), "latest_first": "false", "limit": str(_ROWS)}


def charges_page(body: bytes) -> ChargesPage:
    """Parse one page. Raises PayloadChanged: it has an unexpected format."""
    try:
        page = msgspec.json.decode(body, type=ChargesPage)
    except UNREADABLE as error:
        raise PayloadChanged(
            f"vastai: the charges have an unexpected format: {display_sentence(str(error))}"
        ) from error
    if not page.success:
        raise PayloadChanged("vastai: the charges say success: false")
    return page


def charges_of(rows: Sequence[ChargeItem], since: date, until: date, now: datetime) -> list[ProviderCharge]:
    """Return charges of instances by day and kind. The part of an amount that its items do not explain is `other`.

    Args:
        since, until: the requested days, both inclusive.
        now: a day is final once it is over.

    Raises:
        PayloadChanged: an amount or a date is impossible.
    """
    sums: dict[tuple[str, date, str], float] = {}
    for row in rows:
        instance_id = _instance_id(row)
        if instance_id is None:
            continue
        for day, kind, usd in _daily_amounts(row, since, until):
            key = (instance_id, day, kind)
            sums[key] = sums.get(key, 0.0) + usd
    today = now.astimezone(UTC).date()
    return [
        ProviderCharge(instance_id=instance_id, day=day, kind=kind, usd=round(usd, 6), final=day < today)
        for (instance_id, day, kind), usd in sorted(sums.items())
    ]


def _instance_id(row: ChargeItem) -> str | None:
    """Return the instance of a row; None: it is about a volume or something else."""
    source = row.source or ""
    if not source.startswith(_SOURCE):
        return None
    instance_id = source.removeprefix(_SOURCE)
    if not (instance_id.isascii() and instance_id.isdigit() and len(instance_id) <= 20):
        raise PayloadChanged("vastai: a charge has no instance id")
    return instance_id


def _daily_amounts(row: ChargeItem, since: date, until: date) -> Iterator[tuple[date, str, float]]:
    items = list(_leaf_items(row.items))
    unexplained_usd = _amount(row) - sum(_amount(item) for item in items)
    if abs(unexplained_usd) > _ROUNDING_USD * (len(items) + 1):
        items.append(ChargeItem(row.start, row.end, "other", unexplained_usd))
    for item in items:
        days = _days(item, since, until)
        for day in days:
            yield day, _KINDS.get(item.type, "other"), item.amount / len(days)


def _leaf_items(items: Sequence[ChargeItem], depth: int = 0) -> Iterator[ChargeItem]:
    if depth > _MAX_DEPTH:
        raise PayloadChanged("vastai: the charges are nested too deeply")
    for item in items:
        if item.items and item.type not in _KINDS:
            yield from _leaf_items(item.items, depth + 1)
        else:
            yield item


def _amount(item: ChargeItem) -> float:
    min_usd = -_MAX_USD if item.type in _MAY_BE_NEGATIVE or item.items else 0.0
    if not min_usd <= item.amount <= _MAX_USD:
        raise PayloadChanged("vastai: an impossible amount was charged")
    return item.amount


def _days(item: ChargeItem, since: date, until: date) -> list[date]:
    """Return the days of an item that were requested; `end` is within the last day."""
    if not 0 <= item.start <= item.end < _MAX_UNIX_S:
        raise PayloadChanged("vastai: a charge has no dates")
    first = max(datetime.fromtimestamp(item.start, UTC).date(), since)
    last = min(datetime.fromtimestamp(item.end, UTC).date(), until)
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]
