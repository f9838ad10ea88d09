"""Alerts and events in the store, and the watches whose alerts are silenced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.watches.watch_selection import no_such_watch
from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.ports import AlertKind, Severity
from gpuwatch.ports.event_json import event_json
from gpuwatch.storage.alerts.events import EventFilter, StoredEvent, events
from gpuwatch.storage.alerts.silences import Silence, SqlSilences

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

FOLLOW_EVERY_S = 1.0
_LATE = timedelta(minutes=10)  # an event may be committed this long after its timestamp


def event_filter(since_s: float, kinds: Sequence[str] = (), severity: str = Severity.INFO) -> EventFilter:
    """Events of the last `since_s` seconds. `kinds` empty: all; `severity`: at least this one."""
    since = real_now() - timedelta(seconds=since_s)
    return EventFilter(since=since, kinds=tuple(map(AlertKind, kinds)), severity=Severity(severity))


def stored_events(settings: Settings, event_filter: EventFilter) -> list[StoredEvent]:
    """Past events, oldest first. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return list(events(store, event_filter))


def follow_events(
    settings: Settings, event_filter: EventFilter, sleep: Callable[[float], None] = time.sleep
) -> Iterator[StoredEvent]:
    """Past events, then new ones as they occur, each once, until the caller stops. Raises StoreError."""
    with open_store_read_only(settings) as store:
        yield from _follow(store, event_filter, sleep)


def _follow(store: Database, event_filter: EventFilter, sleep: Callable[[float], None]) -> Iterator[StoredEvent]:
    seen: dict[str, datetime] = {}
    since = event_filter.since
    while True:
        for event in events(store, msgspec.structs.replace(event_filter, since=since)):
            if event.alert.alert_id not in seen:
                seen[event.alert.alert_id] = event.alert.created_at
                yield event
        since = max((event_filter.since, *(at - _LATE for at in seen.values())))
        seen = {alert_id: at for alert_id, at in seen.items() if at >= since}
        sleep(FOLLOW_EVERY_S)


def event_with_delivery(event: StoredEvent) -> dict[str, Any]:
    """JSON of one event, with the delivery status per channel."""
    delivered = {outcome.channel: {"state": outcome.state, "at": rfc3339(outcome.at)} for outcome in event.outcomes}
    return event_json(event.alert) | {"subject": event.subject, "delivered": delivered}


# --- silences ---------------------------------------------------------------------------------------------------------


def silence(settings: Settings, watch: str, for_s: float) -> Silence:
    """Silence the alerts about offers of a watch for a while.

    Raises:
        UsageError: no such watch.
        StoreError: nothing was written and nothing is silenced.
    """
    watch_names = [*(watch.name for watch in settings.watches), *settings.left_out]
    if watch not in watch_names:
        raise no_such_watch(watch, watch_names)
    now = real_now()
    new_silence = Silence(watch=watch, at=now, until=now + timedelta(seconds=for_s))
    with open_store(settings) as store:
        SqlSilences(store).silence(new_silence)
    return new_silence


def end_silence(settings: Settings, watch: str) -> bool:
    """Send its alerts again; False: it was not silenced. Raises UsageError (no such watch), StoreError."""
    with open_store(settings) as store:
        if SqlSilences(store).end(watch, real_now()):
            return True
    watch_names = [watch.name for watch in settings.watches]
    if watch not in watch_names:
        raise no_such_watch(watch, watch_names)
    return False


def silences(settings: Settings) -> list[Silence]:
    """The watches that are silenced now. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return list(SqlSilences(store).in_force(real_now()))


def silence_json(silence: Silence) -> dict[str, Any]:
    """JSON of one silenced watch."""
    return {"watch": silence.watch, "since": rfc3339(silence.at), "until": rfc3339(silence.until)}
