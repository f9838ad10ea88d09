"""Parses RunPod's invoices. Pure.

source: REST v2 specification 2.0.0, `GET /v2/billing/pods`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import ProviderCharge
from gpuwatch.providers.runpod.catalogue import PROVIDER
from gpuwatch.providers.runpod.create import POD_ID
from gpuwatch.providers.toolkit.validation import at, number, whole

_MAX_USD: Final = 1e6
_ROUNDING_USD: Final = 0.0005
_DAY: Final = timedelta(days=1)
_KINDS: Final = {"gpuAmount": "gpu", "diskAmount": "disk", "cpuAmount": "other"}


def charges_params(since: date, until: date) -> dict[str, str]:
    """Return the URL parameters for these days (UTC), both inclusive, day by day."""
    end = until + _DAY
    return {"bucketSize": "day", "startTime": f"{since}T00:00:00Z", "endTime": f"{end}T00:00:00Z"}


def charges_of(value: Any, since: date, until: date, now: datetime) -> list[ProviderCharge]:
    """Return charges by pod, day and kind; the part of a total that its items do not explain is `other`.

    Args:
        now: a day is final once it is over.

    Raises:
        ProviderError: the list is incomplete.
        PayloadChanged: it has an unexpected format.
    """
    records = value.get("records") if isinstance(value, dict) else None
    if not isinstance(records, list):
        raise PayloadChanged(f"{PROVIDER}: the answer contains no charge records")
    if (whole(at(value, "metadata", "recordCount")) or 0) > len(records):
        raise ProviderError(f"{PROVIDER}: the list of charges is incomplete")
    sums: dict[tuple[str, date, str], float] = {}
    for record in records:
        for pod_id, day, kind, usd in _amounts(record):
            if since <= day <= until:  # RunPod extends the range to whole buckets
                sums[pod_id, day, kind] = sums.get((pod_id, day, kind), 0.0) + usd
    today = now.astimezone(UTC).date()
    return [
        ProviderCharge(instance_id=pod_id, day=day, kind=kind, usd=round(usd, 6), final=day < today)
        for (pod_id, day, kind), usd in sorted(sums.items())
    ]


def _amounts(record: Any) -> Iterator[tuple[str, date, str, float]]:
    pod_id, day = at(record, "podId"), _day(record)
    if not isinstance(pod_id, str) or not POD_ID.fullmatch(pod_id):
        raise PayloadChanged(f"{PROVIDER}: a charge has no pod id")
    total = _amount(record, "totalAmount")
    unexplained_usd = total
    for field, kind in _KINDS.items():
        usd = _amount(record, field) if record.get(field) is not None else 0.0
        unexplained_usd -= usd
        if usd:
            yield pod_id, day, kind, usd
    if abs(unexplained_usd) > _ROUNDING_USD:
        yield pod_id, day, "other", unexplained_usd


def _day(record: Any) -> date:
    """Return the one day of a record."""
    try:
        start = msgspec.convert(at(record, "startTime"), datetime)
        end = msgspec.convert(at(record, "endTime"), datetime)
        if start.tzinfo is not None and end.tzinfo is not None and timedelta(0) < end - start <= _DAY:
            return start.astimezone(UTC).date()
    except (msgspec.ValidationError, OverflowError):
        pass
    raise PayloadChanged(f"{PROVIDER}: a charge does not cover one day")


def _amount(record: Mapping[str, Any], field: str) -> float:
    usd = number(record.get(field), 0.0, _MAX_USD)
    if usd is None:
        raise PayloadChanged(f"{PROVIDER}: an impossible amount was charged")
    return usd
