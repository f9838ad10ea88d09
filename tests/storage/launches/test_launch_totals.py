"""Totals from the rows equal those of all launches, also of launches that ended before their cost was stored."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import insert, update

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, PriceSpan, new_launch
from gpuwatch.domain.launches.money.charge_comparison import InvoiceRow, invoice_lines
from gpuwatch.domain.launches.money.launch_costs import cost_microusd, predicted_cost, total_cost
from gpuwatch.domain.launches.money.month_forecast import forecast_costs, spent_since
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.launch_totals import SqlLaunchTotals
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import NOON, a_match, a_watch

_OVER = (LaunchState.ENDED, LaunchState.FAILED)


def a_random_launch(draw: random.Random, number: int) -> Launch:
    intent = Intent(
        watch=a_watch(name=f"w{number}"), match=a_match(), launch_id=f"l{number:011}", dry_run=draw.random() < 0.2
    )
    requested = NOON - timedelta(hours=draw.uniform(1, 4000))
    running = requested + timedelta(minutes=3) if draw.random() < 0.8 else None
    state = draw.choice((*_OVER, *_OVER, LaunchState.RUNNING))
    changes: dict[str, Any] = {
        "state": state,
        "provider": draw.choice(("vastai", "runpod")),
        "offer_id": str(number),
        "instance_id": draw.choice((None, f"i{number}")),
        "requested_at": requested,
        "running_at": running,
        "ended_at": requested + timedelta(seconds=draw.randint(400, 99_999)) if state in _OVER else None,
    }
    if running is not None and draw.random() < 0.5:
        changes["spans"] = (PriceSpan(running, 900_000, 1_100_000), PriceSpan(running + timedelta(hours=1), 5, 7))
    return msgspec.structs.replace(new_launch(intent, 0, NOON), **changes)


def test_they_are_those_of_all_launches(database: Database) -> None:
    draw = random.Random(7)
    with database.write() as connection:
        connection.execute(insert(launches), [launch_row_of(a_random_launch(draw, number)) for number in range(80)])
    everything, totals = SqlLaunchRepository(database).all(), SqlLaunchTotals(database)
    over = [launch for launch in everything if launch.is_over]
    spent = Counter[str]()
    for launch in over:
        spent[launch.provider] += 0 if launch.dry_run else cost_microusd(launch, NOON)
    assert totals.counts() == Counter(launch.state for launch in everything)
    assert totals.spent_on_ended(NOON) == spent
    since = NOON - timedelta(days=20)
    recent = totals.billed_since(since)
    assert len(recent) < len(everything)
    of_each = total_cost(predicted_cost(launch, NOON, since) for launch in everything)
    assert spent_since(recent, since, NOON) == spent_since(everything, since, NOON) == of_each
    with database.write() as connection:
        connection.execute(update(launches).where(launches.c.launch_id < "l00000000040").values(spent_microusd=None))
    assert totals.spent_on_ended(NOON) == spent


def test_a_month_needs_only_its_launches(database: Database) -> None:
    """Forecasts and invoices of a month from the launches that are read for it equal those from all launches."""
    draw = random.Random(8)
    with database.write() as connection:
        found = [a_random_launch(draw, number) for number in range(80)]
        connection.execute(insert(launches), [launch_row_of(launch) for launch in found])
    since = NOON.replace(day=1, hour=0)
    SqlInvoiceRepository(database).save(
        [
            InvoiceRow(provider="vastai", instance_id=f"i{number}", day=day.date(), kind="gpu", microusd=9, final=True)
            for number in range(0, 80, 3)
            for day in (since - timedelta(days=1), since, NOON)
        ]
    )
    everything, totals = SqlLaunchRepository(database).all(), SqlLaunchTotals(database)
    recent, began = totals.billed_or_charged_since(since), totals.first_orders()
    assert len(recent) < len(everything)
    assert forecast_costs(recent, NOON, min(began.values())) == forecast_costs(everything, NOON)
    charges = SqlInvoiceRepository(database).between(since.date(), NOON.date() + timedelta(days=1))
    lines = invoice_lines(recent, charges, NOON, since.date(), NOON.date())
    assert lines == invoice_lines(everything, SqlInvoiceRepository(database).all(), NOON, since.date(), NOON.date())
    ordered = [one for one in everything if one.requested_at is not None and not one.dry_run]
    assert began == {one.watch: one.requested_at for one in ordered}  # one launch each
