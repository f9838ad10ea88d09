"""Two weeks of ended launches, with what was charged, for the story: a month has bars, a watch has a past."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import insert

from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchState, PriceSpan, new_launch
from gpuwatch.domain.launches.money.charge_comparison import InvoiceRow
from gpuwatch.domain.launches.money.launch_costs import midnight, predicted_cost
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import a_match, a_watch, an_offer, changed

_DAYS = 14
_CHARGED = 0.987  # of what was predicted


class _Habit(NamedTuple):
    """What was rented again and again: every so many days, from this hour (UTC) on, for these hours."""

    watch: str
    gpu: str
    usd_hour: float
    every_days: int
    hour: int
    hours: tuple[float, ...]
    ends: EndReason


_HABITS = (
    _Habit("h100-night", "H100 SXM", 1.78, 2, 1, (6.5, 4.2, 7.9, 5.1), EndReason.IDLE),
    _Habit("render", "RTX 4090", 0.31, 3, 9, (9.0, 11.5), EndReason.MAX_RUNTIME),
    _Habit("job:llama-ft", "H100 PCIe", 1.89, 4, 13, (5.4, 3.1, 6.6), EndReason.STOPPED),
    _Habit("a100-ask", "A100 SXM 80GB", 0.89, 5, 18, (4.5, 3.5), EndReason.STOPPED),
)


def record_past_launches(store: Database, now: datetime) -> None:
    """Write launches of the last two weeks, the newest of the day before yesterday, and the invoices of all but two."""
    made = list(_launches(now))
    with store.write() as connection:
        for launch in made:
            connection.execute(insert(launches), launch_row_of(launch))
    SqlInvoiceRepository(store).save([row for launch in made for row in _invoice(launch, now)])


def _launches(now: datetime) -> Iterator[Launch]:
    today, number = midnight(now.date()), 0
    for habit in _HABITS:
        watch = a_watch(name=habit.watch, action=Action.LAUNCH, launch=LaunchSpec())
        match = a_match(an_offer(gpu=habit.gpu, gpu_wire=habit.gpu, quoted_usd_hour=habit.usd_hour / 1.2))
        for turn, days_ago in enumerate(range(_DAYS, 1, -habit.every_days)):
            began = today - timedelta(days=days_ago) + timedelta(hours=habit.hour)
            hours = habit.hours[turn % len(habit.hours)]
            intent = Intent(watch=watch, match=match, launch_id=f"past{number:a>8}", dry_run=False)
            plain = new_launch(intent, 0, began)
            price, listed = round(habit.usd_hour * MICRO), plain.listed_microusd_hour
            yield changed(
                plain, state=LaunchState.ENDED, instance_id=f"447{number:05}", offer_id=str(number), slot=number,
                requested_at=began, running_at=began, ended_at=began + timedelta(hours=hours),
                spans=(PriceSpan(began, listed, price),), price_microusd_hour=price, end_reason=habit.ends.text(),
            )  # fmt: skip
            number += 1


def _invoice(launch: Launch, now: datetime) -> Iterator[InvoiceRow]:
    assert launch.running_at is not None
    assert launch.ended_at is not None
    day = launch.running_at.date()
    while midnight(day) < launch.ended_at:
        cost = predicted_cost(launch, now, midnight(day), midnight(day + timedelta(days=1)))
        yield InvoiceRow(
            provider=launch.provider, instance_id=launch.instance_id or "", day=day, kind="gpu",
            microusd=round(cost.effective * _CHARGED), final=True,
        )  # fmt: skip
        day += timedelta(days=1)
