"""The owner's hooks as rows: written with the transition that triggers them, leased to be run.

A lease raises `attempts`, which invalidates the previous holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, or_, select, update

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.life.launch_record import launch_view
from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.ports import OutboxAlert
from gpuwatch.ports.hooks import BEFORE_STOP, HookRun
from gpuwatch.storage.alerts.alert_rows import enqueue
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import QueryCache, insert_if_absent, to_ms
from gpuwatch.storage.setup.tables import hook_run
from gpuwatch.storage.setup.tables import launch as launches

_MAX_WAIT_MS = 3_600_000  # a time later than this from now was written before the clock was set back
_PENDING = select(hook_run.c.event).where(hook_run.c.state == "pending").limit(1)  # built once: it runs all the time


def schedule_hook(
    connection: Connection, launch: Launch, event: str, now: datetime, lease_s: float | None = None
) -> bool:
    """Write a hook into the caller's transaction; False: this launch already has it.

    Args:
        launch: its state after the transition.
        lease_s: the caller runs the hook, with a lease of this length; None: it waits for a runner.
    """
    now_ms = to_ms(now)
    row = {
        "launch_id": launch.launch_id,
        "event": event,
        "state": "pending",
        "body": msgspec.json.encode({"event": event, **launch_view(launch, now).json()}).decode(),
        "attempts": 0 if lease_s is None else 1,
        "next_try_at_ms": now_ms,
        "leased_until_ms": None if lease_s is None else now_ms + round(lease_s * 1000),
    }
    return insert_if_absent(connection, hook_run, row)


class SqlHookQueue:
    """The stored hook runs. All methods raise StoreError; rows leased by another process are left unchanged."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_pending = QueryCache(database, lambda connection: connection.execute(_PENDING).first() is not None)

    def lease(self, now: datetime, limit: int, lease_s: float) -> Sequence[HookRun]:
        """Claim due hooks, oldest first, never `before_stop`. Checks without a lock first: usually nothing is due."""
        if not self._is_pending.get():
            return ()
        with self._database.read() as connection:
            if not self._own_due(connection, now):
                return ()
        with self._database.write() as connection:
            due_runs = self._own_due(connection, now)[:limit]
            return [claimed for run in due_runs if (claimed := _claim(connection, run, now, lease_s)) is not None]

    def _own_due(self, connection: Connection, now: datetime) -> list[HookRun]:
        """Return the due hooks of this owner: only its settings have them."""
        return [run for run in _due(connection, to_ms(now)) if owner_of(run.watch) == self._database.owner]

    def begin(self, launch: Launch, event: str, now: datetime, lease_s: float) -> HookRun | None:
        """Claim a hook that must run now; None: it was started before."""
        with self._database.write() as connection:
            if not schedule_hook(connection, launch, event, now, lease_s):
                return None
            body = connection.execute(select(hook_run.c.body).where(_is_run(launch.launch_id, event))).scalar_one()
        return HookRun(launch_id=launch.launch_id, watch=launch.watch, event=event, body=body, attempts=1)

    def is_running(self, launch_id: str, event: str, now: datetime) -> bool:
        """Whether it is being run at this moment."""
        is_leased = and_(_is_run(launch_id, event), hook_run.c.state == "pending", _is_leased(to_ms(now)))
        with self._database.read() as connection:
            return connection.execute(select(hook_run.c.event).where(is_leased)).first() is not None

    def mark_done(self, run: HookRun) -> None:
        """Note that it ran, or that there is nothing to run."""
        self._update_leased(run, state="done", last_error=None)

    def postpone(self, run: HookRun, next_try_at: datetime, error: str) -> None:
        """Note that it failed; retry at that time."""
        self._update_leased(run, next_try_at_ms=to_ms(next_try_at), last_error=error)

    def release(self, run: HookRun) -> None:
        """Note that it was not run."""
        self._update_leased(run, attempts=run.attempts - 1)

    def mark_failed(self, launch_id: str, event: str, error: str, outbox_alert: OutboxAlert) -> bool:
        """Give up, and alert the owner; False: it was already over."""
        is_pending = and_(_is_run(launch_id, event), hook_run.c.state == "pending")
        failure = {"state": "failed", "leased_until_ms": None, "last_error": error}
        with self._database.write() as connection:
            if connection.execute(update(hook_run).where(is_pending).values(**failure)).rowcount != 1:
                return False
            enqueue(connection, outbox_alert)
            return True

    def _update_leased(self, run: HookRun, **values: Any) -> None:
        is_leased = and_(
            _is_run(run.launch_id, run.event), hook_run.c.attempts == run.attempts, hook_run.c.state == "pending"
        )
        with self._database.write() as connection:
            connection.execute(update(hook_run).where(is_leased).values(leased_until_ms=None, **values))


def _due(connection: Connection, now_ms: int) -> list[HookRun]:
    is_waited = or_(hook_run.c.next_try_at_ms <= now_ms, hook_run.c.next_try_at_ms > now_ms + _MAX_WAIT_MS)
    is_due = and_(hook_run.c.state == "pending", hook_run.c.event != BEFORE_STOP, is_waited, ~_is_leased(now_ms))
    query = (
        select(
            *(hook_run.c.launch_id, hook_run.c.event, hook_run.c.body, hook_run.c.attempts),
            *(launches.c.watch, launches.c.terms),
        )
        .join(launches, launches.c.launch_id == hook_run.c.launch_id)
        .where(is_due)
        .order_by(hook_run.c.next_try_at_ms, hook_run.c.launch_id, hook_run.c.event.desc())
    )
    return [HookRun(**row._mapping) for row in connection.execute(query)]


def _claim(connection: Connection, run: HookRun, now: datetime, lease_s: float) -> HookRun | None:
    is_unchanged = and_(_is_run(run.launch_id, run.event), hook_run.c.attempts == run.attempts, ~_is_leased(to_ms(now)))
    values = {"attempts": run.attempts + 1, "leased_until_ms": to_ms(now) + round(lease_s * 1000)}
    if connection.execute(update(hook_run).where(is_unchanged).values(**values)).rowcount != 1:
        return None
    return msgspec.structs.replace(run, attempts=run.attempts + 1)


def _is_leased(now_ms: int) -> ColumnElement[bool]:
    leased_until = hook_run.c.leased_until_ms
    return and_(leased_until.is_not(None), leased_until.between(now_ms + 1, now_ms + _MAX_WAIT_MS))


def _is_run(launch_id: str, event: str) -> ColumnElement[bool]:
    return and_(hook_run.c.launch_id == launch_id, hook_run.c.event == event)
