"""GET charges/: the cost of each contract, in whole UTC days, from the marketplace's own ledger.

source: the documentation of the endpoint (2026-08) and its example: `start` and `end` are the midnights of the first
and the last charged day; amounts have three decimals; `limit` is 100 by default, at most 500; the latest come first.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, NamedTuple

from gpuwatch.emulator.answers import EmulatorReply, refuse, reply
from gpuwatch.emulator.endpoints.orders import is_number
from gpuwatch.emulator.instances.contracts import make_token, read_token
from gpuwatch.emulator.instances.emulated_instance import EmulatedInstance
from gpuwatch.emulator.instances.ledger import BillingMeter
from gpuwatch.emulator.request import EmulatorRequest
from gpuwatch.emulator.simulation import Simulation

DAY_S = 86_400
DEFAULT_ROWS, MAX_ROWS = 100, 500
KINDS = ("gpu", "disk", "bwd", "bwu")


class MeteredCharge(NamedTuple):
    """A quantity at one price, on one day: hours at USD per hour, or GB at USD per GB."""

    day: int  # midnight, Unix seconds
    kind: str
    quantity: Decimal
    unit_usd: Decimal


def charges(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """Return one page; 400 unless `day` has both ends."""
    filters = request.param("select_filters")
    first, last = requested_days(filters if isinstance(filters, dict) else {"day": request.param("day")})
    booked_until = request.now - simulation.options.charges_lag_s
    if not simulation.options.charges_today:
        booked_until = min(booked_until, request.now // DAY_S * DAY_S)
    kinds = filters.get("type", {}).get("in", ["instance"]) if isinstance(filters, dict) else ["instance"]
    fleet = simulation.fleet
    rows = []
    for one in [*fleet.ended.values(), *fleet.alive.values()] if "instance" in kinds else []:
        found = list(metered_charges(simulation.ledger.meter(one.id), first, last, booked_until))
        if found:
            rows.append((one.id, row_of(one, found, simulation.options.charge_decimals)))
    latest_first = bool(request.param("latest_first", True))
    rows.sort(key=lambda pair: (pair[1]["end"], pair[0]), reverse=latest_first)
    return paginate(rows, request)


def requested_days(filters: dict[str, Any]) -> tuple[int, int]:
    """Return the midnights of the first and the last requested day.

    Raises:
        RefusedRequest: an end is missing or is not a number.
    """
    day = filters.get("day")
    bounds = [day.get(name) for name in ("gte", "lte")] if isinstance(day, dict) else []
    midnights = [int(float(end) // DAY_S * DAY_S) for end in bounds if is_number(end)]
    if len(midnights) < 2:
        raise refuse(400, None, "Must provide both 'day' gte and lte filters for instance charges")
    return midnights[0], midnights[1]


def metered_charges(meter: BillingMeter, first: int, last: int, booked_until: float) -> Iterable[MeteredCharge]:
    """Split what a meter counted from day `first` to `last`, and before `booked_until`, into charges."""
    spans = meter.spans_between(first, min(last + DAY_S, booked_until), booked_until)
    for span in spans:
        for day in range(int(span.since // DAY_S * DAY_S), int(span.until) + 1, DAY_S):
            part = span.clip(day, day + DAY_S)
            hours = part.seconds / 3600
            for kind, rate in (("gpu", span.gpu_usd_hour), ("disk", span.disk_usd_hour)):
                if hours and rate:
                    yield MeteredCharge(day, kind, hours, rate)
    for charge in meter.traffic(first, min(last + DAY_S, booked_until)):
        yield MeteredCharge(int(charge.at // DAY_S * DAY_S), charge.kind, charge.gb, charge.usd_gb)


def row_of(instance: EmulatedInstance, charges: list[MeteredCharge], decimals: int) -> dict[str, Any]:
    """Return one contract's row, with an item for each kind at each price."""
    start, end = min(charge.day for charge in charges), max(charge.day for charge in charges)
    count = (end - start) // DAY_S + 1
    description = f"Instance {instance.id} Charges"
    prices = sorted({(KINDS.index(charge.kind), charge.unit_usd) for charge in charges})
    groups = [
        [charge for charge in charges if (KINDS.index(charge.kind), charge.unit_usd) == price] for price in prices
    ]
    total = sum((charge.quantity * charge.unit_usd for charge in charges), Decimal(0))
    return {
        "start": start,
        "end": end,
        "type": "instance",
        "source": f"instance-{instance.id}",
        "description": description if count == 1 else f"{description} - {count} days",
        "amount": round_usd(total, decimals),
        "metadata": {} if instance.label is None else {"label": instance.label},
        "items": [item_of(group, decimals) for group in groups],
    }


def item_of(group: list[MeteredCharge], decimals: int) -> dict[str, Any]:
    """Return one item of a contract's row."""
    one, quantity = group[0], sum((charge.quantity for charge in group), Decimal(0))
    quantity_unit, price_unit = ("hours", "hour") if one.kind in ("gpu", "disk") else ("GB", "GB")
    return {
        "start": min(charge.day for charge in group),
        "end": max(charge.day for charge in group),
        "type": one.kind,
        "source": None,
        "description": f"{quantity:.3f} {quantity_unit} at ${one.unit_usd:.3f}/{price_unit}",
        "amount": round_usd(quantity * one.unit_usd, decimals),
        "metadata": {},
        "items": [],
    }


def round_usd(usd: Decimal, decimals: int) -> float:
    """Round like the marketplace."""
    return float(usd.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_EVEN))


def paginate(rows: list[tuple[int, dict[str, Any]]], request: EmulatorRequest) -> EmulatorReply:
    """Return one page of rows, each after its contract's number."""
    requested, token = request.param("limit", DEFAULT_ROWS), request.params.get("after_token")
    limit = min(requested, MAX_ROWS) if isinstance(requested, int) and requested > 0 else DEFAULT_ROWS
    ids = [contract for contract, _ in rows]
    last = read_token(token) if token else None
    start = ids.index(last) + 1 if last in ids else 0
    page_rows = rows[start : start + limit]
    more = make_token(page_rows[-1][0]) if start + limit < len(rows) else None
    body = {"success": True, "count": len(page_rows), "total": len(rows), "next_token": more}
    return reply(body | {"results": [row for _, row in page_rows]})
