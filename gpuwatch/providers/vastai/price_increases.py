"""Higher prices that hosts propose for running contracts. Pure.

A row has a price "per second" without the number of GPUs; the vendor's client heads the column "$/GPU/hr". So the
instance's own price decides: a row whose old price is the price of all its GPUs applies to all of them, others to one.
The new price applies from the end of the contract's present term, never earlier.
source: the vendor's client 1.9 and its tests, and the documents of the endpoint, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpuwatch.domain.market.money import HOURS_A_MONTH, MAX_USD_HOUR
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Instance, PriceIncrease
from gpuwatch.providers.toolkit.error_mapping import display_sentence
from gpuwatch.providers.toolkit.validation import UNREADABLE, time_from_unix

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
