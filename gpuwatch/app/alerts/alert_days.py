"""The alerts as a person reads them: by day, newest first, repeats folded, each with its way to each channel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime
from itertools import groupby
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch import notifiers
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.alerts.alert import alert_for_reading, without_numbers
from gpuwatch.domain.watches.owner_names import Purpose, plain_name
from gpuwatch.engine.alerts.page_links import page_path, with_page_links
from gpuwatch.language import translate as _
from gpuwatch.ports import Alert, AlertKind, Severity
from gpuwatch.settings import Settings
from gpuwatch.storage.alerts import alert_rows
from gpuwatch.storage.alerts.alert_rows import EventFilter, Outcome, StoredEvent

ON_A_PAGE = 100  # events, before repeats are folded
_ALL_ALERTS = "/alerts"  # the page itself: no link
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kind_word(kind: AlertKind) -> str:
    """What such an alert is about, for a person; several kinds may have one word."""
    words = {
        AlertKind.MATCH: _("Price"),
        AlertKind.APPROVAL: _("Asked you"),
        AlertKind.RENT: _("Rented"),
        AlertKind.END: _("Ended"),
        AlertKind.HELD: _("Needs your check"),
        AlertKind.ORPHAN: _("Unknown machine"),
        AlertKind.BUDGET: _("Budget"),
        AlertKind.REFUSED: _("Not rented"),
        AlertKind.BLIND: _("Provider"),
        AlertKind.RECOVERED: _("Provider"),
        AlertKind.DRIFT: _("Provider"),
        AlertKind.CHANNEL: _("Channel"),
        AlertKind.DAEMON: _("gpuwatch"),
        AlertKind.AUDIT: _("Changed by you"),
        AlertKind.TEST: _("Channel"),
    }
    return words[kind]


def event_text(alert: Alert) -> str:
    """What happened, in the language of the context; whose it is stands beside it, by `event_owner`."""
    text = alert_for_reading(alert).headline
    if alert.watch is not None:
        text = text.removeprefix(f"{event_owner(alert)}: ")
    return text[:1].upper() + text[1:]


def event_owner(alert: Alert) -> str:
    """Whose event it is: "h100-night", "job llama-ft"; empty: nobody's."""
    if alert.watch is None:
        return ""
    job = Purpose.of(alert.watch).job
    return plain_name(alert.watch) if job is None else _("job {name}").format(name=plain_name(job))


def kinds_like(kind: AlertKind) -> tuple[AlertKind, ...]:
    """The kinds with the same word."""
    return tuple(one for one in AlertKind if kind_word(one) == kind_word(kind))


class ChannelDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """The way of an alert to one channel. `after_s`: from the event to its delivery; None: not delivered."""

    channel: str  # its title
    state: str  # pending | sent | expired | refused
    after_s: float | None


class AlertLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event, with those of the same day that say the same.

    Attributes:
        path: of the page that it is about; empty: none.
        repeats: earlier ones like it, newest first.
    """

    event: StoredEvent
    word: str
    path: str
    deliveries: tuple[ChannelDelivery, ...]
    repeats: tuple[AlertLine, ...] = ()


class AlertDay(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one day in the configured zone."""

    day: date
    lines: tuple[AlertLine, ...]


class AlertPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of days. `has_older`: whether there is another page after it."""

    days: tuple[AlertDay, ...]
    count: int
    has_older: bool


def alert_page(
    settings: Settings,
    *,
    number: int = 1,
    kinds: Collection[AlertKind] = (),
    severity: Severity = Severity.INFO,
    watch: str | None = None,
) -> AlertPage:
    """A page of alerts; the first has the newest. Raises StoreError."""
    wanted = EventFilter(since=_EPOCH, kinds=tuple(kinds), severity=severity, watch=watch)
    with open_store_read_only(settings) as store:
        events = alert_rows.newest_events(store, wanted, (number - 1) * ON_A_PAGE, ON_A_PAGE + 1)
    shown = events[:ON_A_PAGE]
    return AlertPage(
        days=alert_days(shown, ZoneInfo(settings.timezone)), count=len(shown), has_older=len(events) > len(shown)
    )


def newest_events(settings: Settings, count: int) -> list[StoredEvent]:
    """The newest events, newest first, with the addresses of their pages. Raises StoreError."""
    with open_store_read_only(settings) as store:
        events = alert_rows.newest_events(store, EventFilter(since=_EPOCH), 0, count)
    url = settings.web.public_url
    return [msgspec.structs.replace(event, alert=with_page_links(event.alert, url)) for event in events]


def alert_days(events: Iterable[StoredEvent], zone: ZoneInfo) -> tuple[AlertDay, ...]:
    """Group events, newest first, by day, and fold those that repeat."""
    days = groupby(events, key=lambda event: event.alert.created_at.astimezone(zone).date())
    return tuple(AlertDay(day=day, lines=_folded(list(found))) for day, found in days)


def _folded(events: Sequence[StoredEvent]) -> tuple[AlertLine, ...]:
    alike: dict[tuple[str, ...], list[AlertLine]] = {}
    for event in events:
        alert = event.alert
        said = without_numbers(alert.headline)
        alike.setdefault((alert.kind, alert.severity, event.subject, said), []).append(_line(event))
    return tuple(msgspec.structs.replace(first, repeats=tuple(rest)) for first, *rest in alike.values())


def _line(event: StoredEvent) -> AlertLine:
    path = page_path(event.alert)
    return AlertLine(
        event=event,
        word=kind_word(event.alert.kind),
        path="" if path == _ALL_ALERTS else path,
        deliveries=tuple(_delivery(event, outcome) for outcome in event.outcomes),
    )


def _delivery(event: StoredEvent, outcome: Outcome) -> ChannelDelivery:
    after = None if outcome.at is None else max(0.0, (outcome.at - event.alert.created_at).total_seconds())
    known = outcome.channel in notifiers.names()
    title = notifiers.info(outcome.channel).title if known else outcome.channel
    return ChannelDelivery(channel=title, state=outcome.state, after_s=after)
