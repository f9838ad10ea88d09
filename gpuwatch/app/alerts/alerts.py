"""Alerts: the events in the store, the watches whose alerts are silenced, and test messages."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch import notifiers
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.app.watches.watch_selection import require_watch, require_watches
from gpuwatch.bootstrap import build_channels, http_client, new_id, open_store, open_store_read_only, real_now
from gpuwatch.domain.alerts.alert import AlertView, view_fields
from gpuwatch.domain.alerts.service_texts import TEST
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.watches.owner_names import Purpose, owned_name
from gpuwatch.engine.alerts.page_links import with_page_links
from gpuwatch.errors import DeliveryError, UsageError
from gpuwatch.ports import AlertKind, MovableChannel, Severity
from gpuwatch.storage.alerts.alert_rows import EventFilter, Silence, SqlSilences, StoredEvent, events

if TYPE_CHECKING:
    from gpuwatch.ports import Alert, Channel, OutboxAlert
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
        return [_with_link(event, settings) for event in events(store, event_filter)]


def follow_events(
    settings: Settings, event_filter: EventFilter, sleep: Callable[[float], None] = time.sleep
) -> Iterator[StoredEvent]:
    """Past events, then new ones as they occur, each once, until the caller stops. Raises StoreError."""
    with open_store_read_only(settings) as store:
        for event in _follow(store, event_filter, sleep):
            yield _with_link(event, settings)


def _with_link(event: StoredEvent, settings: Settings) -> StoredEvent:
    return msgspec.structs.replace(event, alert=with_page_links(event.alert, settings.web.public_url))


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


class DeliveryView(JsonView, frozen=True, kw_only=True):
    """The delivery of an event on one channel."""

    state: str
    at: Moment | None


class EventView(AlertView, frozen=True, kw_only=True):
    """One event, with its delivery on each channel."""

    delivered: dict[str, DeliveryView]


def event_view(event: StoredEvent) -> EventView:
    """An event as other programs see it."""
    delivered = {outcome.channel: DeliveryView.of(outcome) for outcome in event.outcomes}
    return EventView.of(event, event.alert, **view_fields(event.alert), delivered=delivered)


# --- silences ---------------------------------------------------------------------------------------------------------


def silence(
    settings: Settings, watch: str | None, for_s: float, *, actor: str, group: str | None = None
) -> Sequence[Silence]:
    """Silence the alerts about offers of a watch for a while, or of each watch of a group.

    Raises:
        UsageError: no such watch or group; or a job, which sends no alerts about offers.
        StoreError: nothing was written, or not all watches of a group are silenced.
    """
    if watch is not None and Purpose.of(watch).job is not None:
        pause = f"gpuwatch watches pause {shlex.quote(watch)}"
        raise UsageError(f"{watch} sends no alerts about offers, so there is nothing to silence; to pause it: {pause}")
    now = real_now()
    until = now + timedelta(seconds=for_s)
    new = [Silence(watch=name, at=now, until=until) for name in require_watches(settings, watch, group)]
    with open_store(settings) as store:
        for one in new:
            audit = audit_event(actor, f"watch {one.watch} silenced", subject=one.watch, watch=one.watch)
            SqlSilences(store).silence(one, audit)
    return new


def end_silence(settings: Settings, watch: str | None, *, actor: str, group: str | None = None) -> bool:
    """Send its alerts again, or those of each watch of a group; False: none was silenced.

    Raises:
        UsageError: no such watch or group.
        StoreError: nothing was written, or not all of a group.
    """
    names = require_watches(settings, None, group) if watch is None else [owned_name(settings.owner, watch)]
    with open_store(settings) as store:
        done = [SqlSilences(store).end(name, real_now(), _end_audit(actor, name)) for name in names]
    if watch is not None and not any(done):
        require_watch(settings, watch)
    return any(done)


def _end_audit(actor: str, watch: str) -> OutboxAlert:
    return audit_event(actor, f"silence of watch {watch} ended", subject=watch, watch=watch)


def silences(settings: Settings) -> list[Silence]:
    """The watches that are silenced now. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return list(SqlSilences(store).in_force(real_now()))


class SilenceView(JsonView, frozen=True, kw_only=True):
    """One silenced watch."""

    watch: str
    since: Moment
    until: Moment


def silence_view(silence: Silence) -> SilenceView:
    """A silence as other programs see it."""
    return SilenceView.of(silence, since=silence.at)


# --- test messages ----------------------------------------------------------------------------------------------------


class ChannelTestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one channel. `in_part`: some of its recipients have the message, but not all."""

    channel: str
    arrived: bool
    in_part: bool = False
    error: str | None = None
    outdated: tuple[str, str] | None = None  # the key of [notify.NAME] that needs a new value, and the value


class ChannelTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test message that is being sent; iterating over `results` sends it."""

    alert_id: str
    results: Iterator[ChannelTestResult]


def send_test_message(settings: Settings) -> ChannelTest:
    """Send a test message through every channel. Raises UsageError: no channel is configured."""
    if not settings.channels:
        raise UsageError(f"no channel is configured: add one of {notify_sections()}")
    alert = TEST.alert(new_id(), real_now())
    return ChannelTest(alert_id=alert.alert_id, results=_send(settings, alert))


def notify_sections() -> str:
    """The sections that configure a channel: "[notify.email], [notify.telegram]"."""
    return ", ".join(f"[notify.{name}]" for name in notifiers.names())


def _send(settings: Settings, alert: Alert) -> Iterator[ChannelTestResult]:
    with http_client(settings) as http:
        yield from send_to_all(build_channels(settings, http).values(), alert)


def send_to_all(channels: Iterable[Channel], alert: Alert) -> Iterator[ChannelTestResult]:
    """Try each channel once, regardless of the others' results."""
    for channel in channels:
        error, in_part = None, False
        try:
            channel.send(alert)
        except DeliveryError as fault:
            refused = f" (not by {fault.refused})" if fault.refused and fault.refused not in str(fault) else ""
            error = f"{fault}{refused}"
            in_part = not all(key.startswith("!") for key in fault.taken)
        outdated = None
        if isinstance(channel, MovableChannel) and channel.new_address is not None:
            outdated = (channel.address_option, channel.new_address)
        yield ChannelTestResult(
            channel=channel.name, arrived=error is None, in_part=in_part, error=error, outdated=outdated
        )


def channel_test_json(alert_id: str, results: Sequence[ChannelTestResult]) -> dict[str, Any]:
    """JSON of `gpuwatch alerts test`."""
    channels = [
        {
            "channel": result.channel,
            "arrived": result.arrived,
            "in_part": result.in_part,
            "error": result.error,
            "chat_id": None if result.outdated is None else result.outdated[1],  # the channel's new address
        }
        for result in results
    ]
    return {"alert_id": alert_id, "channels": channels}
