"""Totals over all launches, from what each row says of itself: a store keeps its launches forever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, func, or_, select, union

from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.storage.launches.invoice_rows import days_since_1970
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import launch_of
from gpuwatch.storage.setup.schema.launch_side_tables import invoice_line
from gpuwatch.storage.setup.stored_values import from_ms, to_ms
from gpuwatch.storage.setup.tables import IS_ALIVE, OVER_STATES
from gpuwatch.storage.setup.tables import launch as launches

_BILLED_AHEAD = timedelta(days=62)  # a provider bills whole steps, of up to a month, which may begin before the span
_IS_OVER = launches.c.state.in_(OVER_STATES)
_SPENT = (
    select(launches.c.provider, func.sum(launches.c.spent_microusd))
    .where(_IS_OVER, launches.c.spent_microusd.is_not(None))
    .group_by(launches.c.provider)
)
_FIRST_ORDERS = (
    select(launches.c.watch, func.min(launches.c.requested_at_ms))
    .where(launches.c.dry_run.is_(False), launches.c.requested_at_ms.is_not(None))
    .group_by(launches.c.watch)
)
_NOT_SUMMED = select(launches).where(_IS_OVER, launches.c.spent_microusd.is_(None), launches.c.dry_run.is_(False))


class SqlLaunchTotals:
    """All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def counts(self) -> Mapping[LaunchState, int]:
        """Return the number of launches by state."""
        query = select(launches.c.state, func.count()).group_by(launches.c.state)
        with self._database.read() as connection:
            return {LaunchState(state): count for state, count in connection.execute(query)}

    def spent_on_ended(self, now: datetime) -> Counter[str]:
        """Return provider → micro-dollars that the launches that are over cost, with commission."""
        with self._database.read() as connection:
            spent = Counter({provider: int(microusd) for provider, microusd in connection.execute(_SPENT)})
            for row in connection.execute(_NOT_SUMMED):  # they ended before their cost was stored
                launch = launch_of(row)
                spent[launch.provider] += cost_microusd(launch, now)
        return spent

    def first_orders(self) -> Mapping[str, datetime]:
        """Return when each watch first ordered; dry runs do not count."""
        with self._database.read() as connection:
            return {watch: from_ms(at_ms) for watch, at_ms in connection.execute(_FIRST_ORDERS)}

    def count_on_machine(self, provider: str, machine_id: str | None) -> int:
        """Return how many launches ran on a machine; 0 if it is unknown."""
        if machine_id is None:
            return 0
        ran = launches.c.running_at_ms.is_not(None), launches.c.dry_run.is_(False)
        query = select(func.count()).where(launches.c.provider == provider, launches.c.machine_id == machine_id, *ran)
        with self._database.read() as connection:
            return int(connection.execute(query).scalar_one())

    def billed_since(self, since: datetime) -> list[Launch]:
        """Return the launches that may have been billed since then, newest first; also some that were not."""
        return self._read(_may_be_billed(since))

    def billed_or_charged_since(self, since: datetime) -> list[Launch]:
        """Return the same and those whose instance is on an invoice since then."""
        is_charged = and_(
            invoice_line.c.instance_id == launches.c.instance_id, invoice_line.c.day >= days_since_1970(since.date())
        )
        billed, charged = (select(launches.c.launch_id) for _ in range(2))
        both = union(billed.where(_may_be_billed(since)), charged.join(invoice_line, is_charged))  # an index for each
        return self._read(launches.c.launch_id.in_(both))

    def _read(self, condition: ColumnElement[bool]) -> list[Launch]:
        query = select(launches).where(condition).order_by(launches.c.intended_at_ms.desc(), launches.c.launch_id)
        with self._database.read() as connection:
            return [launch_of(row) for row in connection.execute(query)]


def _may_be_billed(since: datetime) -> ColumnElement[bool]:
    is_recent = launches.c.ended_at_ms >= to_ms(since - _BILLED_AHEAD)
    return or_(IS_ALIVE, and_(_IS_OVER, or_(is_recent, launches.c.ended_at_ms.is_(None))))
