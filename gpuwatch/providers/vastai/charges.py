"""Parses vast.ai's invoices, and the higher prices that hosts propose for running contracts. Pure.

Each day of invoices is requested separately, so that an amount belongs to that day. An item that covers more days is
spread evenly over those of its days that were requested. The marketplace rounds amounts to a tenth of a cent.
A proposal has a price "per second" without the number of GPUs; the vendor's client heads the column "$/GPU/hr". So the
instance's own price decides: a row whose old price is the price of all its GPUs applies to all of them, others to one.
The new price applies from the end of the contract's present term, never earlier.
source: the vendor's client 1.9 and its tests, and the documents of both endpoints, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.money import HOURS_A_MONTH, MAX_USD_HOUR
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Instance, PriceIncrease, ProviderCharge
from gpuwatch.providers.toolkit.error_mapping import display_sentence
from gpuwatch.providers.toolkit.validation import UNREADABLE, time_from_unix

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


_SECONDS_AN_HOUR: Final = 3600.0
_SECONDS_A_MONTH: Final = HOURS_A_MONTH * _SECONDS_AN_HOUR
_TOLERANCE: Final = 0.01  # two prices within one per cent are the same
# What else may rise: its key without "old_" and "new_", its name, the factor to the displayed unit, the unit.
_OTHER_PRICES: Final = (
    ("disk_ram_costpersec", "disk", _SECONDS_A_MONTH, "$/GB/month"),
    ("bwd_cost", "download", 1.0, "$/GB"),
    ("bwu_cost", "upload", 1.0, "$/GB"),
    ("platform_fee", "platform fee", 100.0, "%"),
)


class IncreaseRow(msgspec.Struct):
    """One proposal; null in a new field: this value does not change."""

    pending_price_increase_id: int
    contract_id: int
    new_gpu_costpersec: float | None = None
    old_gpu_costpersec: float | None = None
    new_disk_ram_costpersec: float | None = None
    old_disk_ram_costpersec: float | None = None
    new_bwu_cost: float | None = None
    old_bwu_cost: float | None = None
    new_bwd_cost: float | None = None
    old_bwd_cost: float | None = None
    new_platform_fee: float | None = None
    old_platform_fee: float | None = None
    contract_end_date: float | None = None


class _IncreasesAnswer(msgspec.Struct):
    success: bool
    pending_price_increases: list[IncreaseRow]


def increase_rows(body: bytes) -> list[IncreaseRow]:
    """Parse the answer. Raises PayloadChanged: unexpected format, or an impossible price."""
    try:
        answer = msgspec.json.decode(body, type=_IncreasesAnswer)
    except UNREADABLE as error:
        reason = display_sentence(str(error))
        raise PayloadChanged(f"vastai: the price increases have an unexpected format: {reason}") from error
    if not answer.success:
        raise PayloadChanged("vastai: the price increases say success: false")
    for row in answer.pending_price_increases:
        _check(row)
    return answer.pending_price_increases


def increases_of(rows: Sequence[IncreaseRow], instances: Sequence[Instance]) -> list[PriceIncrease]:
    """Return the proposals, each for all GPUs of its instance.

    If the instance is not listed, or has no GPU count, only `words` contains the prices.
    """
    instances_by_id = {instance.instance_id: instance for instance in instances}
    return [_increase(row, instances_by_id) for row in rows]


def _increase(row: IncreaseRow, instances_by_id: Mapping[str, Instance]) -> PriceIncrease:
    instance_id = str(row.contract_id)
    instance = instances_by_id.get(instance_id)
    old, new = _hourly(row.old_gpu_costpersec), _hourly(row.new_gpu_costpersec)
    gpus = None if instance is None else _gpus(old, instance)
    texts = _change_texts(row)
    if gpus is None and new is not None:
        texts.insert(0, f"GPU {_format_price(old)} -> {_format_price(new)} $/GPU/h")
    return PriceIncrease(
        increase_id=str(row.pending_price_increase_id),
        instance_id=instance_id,
        new_usd_hour=None if new is None or gpus is None else round(new * gpus, 9),
        effective_at=time_from_unix(row.contract_end_date),
        words="; ".join(texts),
    )


def _gpus(old_usd_hour: float | None, instance: Instance) -> int | None:
    """Return the factor by which to multiply a row's price; None: unknown."""
    count, listed, disk = instance.gpu_count, instance.listed_usd_hour, instance.stopped_usd_hour
    if count is None or count < 1:
        return None
    if old_usd_hour is None or listed is None or disk is None:
        return count
    gpus_usd_hour = listed - disk
    return 1 if abs(gpus_usd_hour - old_usd_hour) <= _TOLERANCE * gpus_usd_hour else count


def _change_texts(row: IncreaseRow) -> list[str]:
    texts = []
    for key, name, factor, unit in _OTHER_PRICES:
        old, new = getattr(row, f"old_{key}"), getattr(row, f"new_{key}")
        if new is not None and new != old:
            texts.append(f"{name} {_format_price(old, factor)} -> {_format_price(new, factor)} {unit}")
    return texts


def _format_price(value: float | None, factor: float = 1.0) -> str:
    return "?" if value is None else f"{value * factor:.4g}"


def _hourly(usd_second: float | None) -> float | None:
    return None if usd_second is None else usd_second * _SECONDS_AN_HOUR


def _check(row: IncreaseRow) -> None:
    prices = [getattr(row, name) for name in row.__struct_fields__ if name.startswith(("old_", "new_"))]
    if any(price is not None and not 0 <= price <= MAX_USD_HOUR for price in prices):
        raise PayloadChanged("vastai: a price increase has an impossible price")
    if row.new_gpu_costpersec is not None and row.new_gpu_costpersec * _SECONDS_AN_HOUR > MAX_USD_HOUR:
        raise PayloadChanged("vastai: a price increase has an impossible price")
