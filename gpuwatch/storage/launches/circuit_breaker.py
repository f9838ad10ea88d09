"""The circuit breaker of a watch: opened in the transaction of a failure, closed in that of a successful start."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, select

from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.circuit_breaker import (
    FAILURE_THRESHOLD,
    CircuitBreaker,
    after_failure,
    after_run,
    is_counted_failure,
    newest_by_place,
)
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.ports import Alert, AlertKind, OutboxAlert
from gpuwatch.redaction import redact
from gpuwatch.storage.alerts import new_alerts
from gpuwatch.storage.alerts.pauses import load_pauses, save_breaker
from gpuwatch.storage.setup.launch_rows import launch_of
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.setup.tables import OVER_STATES
from gpuwatch.storage.setup.tables import launch as launches

_FAILURE_WINDOW = timedelta(days=1)
_ALERT_LIFETIME = timedelta(days=1)  # of the alert; the watch stays paused that long unless somebody resumes it
_ENDED_LAUNCHES = select(launches).where(
    launches.c.watch == bindparam("of_watch"),
    launches.c.state.in_(OVER_STATES),
    launches.c.ended_at_ms >= bindparam("since"),
    launches.c.dry_run.is_(False),
)


def update_breaker(connection: Connection, launch: Launch, now: datetime) -> None:
    """Update the breaker of a launch's watch after a transition was written."""
    if launch.state is LaunchState.RUNNING:
        breaker = after_run(load_pauses(connection).breaker_of(launch.watch), launch, now)
        if breaker is not None:
            save_breaker(connection, breaker)
    elif is_counted_failure(launch):
        _note_failure(connection, launch, now)


def _note_failure(connection: Connection, launch: Launch, now: datetime) -> None:
    rows = connection.execute(_ENDED_LAUNCHES, {"of_watch": launch.watch, "since": to_ms(now - _FAILURE_WINDOW)})
    failed = [launch_of(row) for row in rows]
    breaker = after_failure(load_pauses(connection).breaker_of(launch.watch), failed, launch, now)
    if breaker is None:
        return
    save_breaker(connection, breaker)
    key = f"breaker:{launch.watch[:150]}:{to_ms(breaker.at)}"  # one alert per episode, however often it trips again
    alert = _alert(breaker, failed, key, now)
    new_alerts.enqueue(connection, OutboxAlert(alert=alert, expires_at=now + _ALERT_LIFETIME, once_key=key))


def _alert(breaker: CircuitBreaker, failed: Sequence[Launch], key: str, now: datetime) -> Alert:
    counted = sorted(filter(is_counted_failure, failed), key=lambda launch: launch.ended_at or now)
    newest = newest_by_place(counted)[-FAILURE_THRESHOLD:]
    return Alert(
        alert_id=hashlib.sha256(key.encode()).hexdigest()[:12],
        kind=AlertKind.REFUSED,
        created_at=now,
        headline=f"{breaker.watch}: paused after failed launches",
        watch=breaker.watch,
        facts=tuple((f"Launch {one.launch_id}", redact(one.end_reason or "")) for one in newest),
        why=f"{breaker.why}. {FAILURE_THRESHOLD} failures in a row are not the fault of a single machine.",
        did=f"This watch does not rent before {format_moment(breaker.until)}; then gpuwatch tries one launch. If it"
        " fails as well, gpuwatch tries again an hour later; if it runs, the watch continues normally.",
        can_do=("See what failed: gpuwatch launches", f"Resume now: gpuwatch resume {shlex.quote(breaker.watch)}"),
    )
