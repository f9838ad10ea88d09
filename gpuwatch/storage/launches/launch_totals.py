"""Totals over all launches, from what each row says of itself: a store keeps its launches forever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import and_, func, or_, select

from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import launch_of
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.setup.tables import IS_ALIVE, OVER_STATES
from gpuwatch.storage.setup.tables import launch as launches

_BILLED_AHEAD = timedelta(days=62)  # a provider bills whole steps, of up to a month, which may begin before the span
_IS_OVER = launches.c.state.in_(OVER_STATES)
_SPENT = (
    select(launches.c.provider, func.sum(launches.c.spent_microusd))
    .where(_IS_OVER, launches.c.spent_microusd.is_not(None))
    .group_by(launches.c.provider)
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

    def billed_since(self, since: datetime) -> list[Launch]:
        """Return the launches that may have been billed since then, newest first; also some that were not."""
        is_recent = and_(_IS_OVER, launches.c.ended_at_ms >= to_ms(since - _BILLED_AHEAD))
        has_no_end = and_(_IS_OVER, launches.c.ended_at_ms.is_(None))
        query = select(launches).where(or_(IS_ALIVE, is_recent, has_no_end))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(launches.c.intended_at_ms.desc(), launches.c.launch_id))
            return [launch_of(row) for row in rows]
