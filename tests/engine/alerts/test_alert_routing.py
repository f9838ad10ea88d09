"""Which channels get an alert, when, and with or without a sound; and that each is logged once, completely."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.bootstrap import log_alert
from gpuwatch.domain.alerts.alert import outbox_alert
from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.engine.alerts.alert_routing import AlertRouting
from gpuwatch.errors import StoreError
from gpuwatch.ports import Alert, AlertKind, Severity, UnroutedAlert
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database
from tests.engine.scripted_channels import Scripted

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)  # a Saturday


def an_alert(
    alert_id: str = "a1",
    kind: AlertKind = AlertKind.MATCH,
    watch: str | None = "h100",
    severity: Severity | None = None,
    at: datetime = NOON,
) -> Alert:
    return Alert(
        alert_id=alert_id,
        kind=kind,
        created_at=at,
        headline=f"headline of {alert_id}",
        watch=watch,
        severity=severity or kind.rules.severity,
        facts=(("GPU", "H100 SXM"), ("Place", "Norway")),
        can_do=("Look: gpuwatch check",),
    )


class Silent(Scripted):
    """A channel that can deliver silently."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.silent: list[str] = []

    def send_silently(self, alert: Alert, taken: Sequence[str] = ()) -> None:
        self.silent.append(alert.alert_id)


# --- one place for decisions ------------------------------------------------------------------------------------------
ROUTING = AlertRouting(
    channels=("telegram", "email"),
    watch_channels={"h100": ("email",), "none": ()},
    min_severity={"email": Severity.WARNING},
    silent_channels={"telegram"},
)


@pytest.mark.parametrize(
    ("alert", "silenced", "channels"),
    [
        (an_alert(watch=None), False, ("telegram",)),  # silently; a mail always has a sound
        (an_alert(watch=None, kind=AlertKind.BLIND), False, ("telegram", "email")),
        (an_alert(kind=AlertKind.HELD), False, ("email",)),
        (an_alert(watch="removed", kind=AlertKind.HELD), False, ("telegram", "email")),
        (an_alert(watch="none", kind=AlertKind.HELD), False, ()),
        (an_alert(watch="a100"), True, ()),
        (an_alert(watch="a100", kind=AlertKind.APPROVAL), True, ()),
        (an_alert(watch="a100", kind=AlertKind.RENT), True, ("telegram",)),
        (an_alert(watch="a100", kind=AlertKind.BUDGET), True, ("telegram", "email")),
        (an_alert(watch="a100", kind=AlertKind.HELD), True, ("telegram", "email")),
    ],
)
def test_who_gets_it(alert: Alert, silenced: bool, channels: tuple[str, ...]) -> None:
    assert ROUTING.channels_for(UnroutedAlert(alert=alert, silenced=silenced)) == channels


def test_every_kind_has_a_severity_and_the_alert_may_state_another() -> None:
    assert {kind for kind in AlertKind if kind.rules.severity is Severity.CRITICAL} == {
        AlertKind.HELD,
        AlertKind.ORPHAN,
    }
    assert an_alert(kind=AlertKind.END, severity=Severity.CRITICAL).severity is Severity.CRITICAL
    assert Alert(alert_id="a", kind=AlertKind.DRIFT, created_at=NOON, headline="h").severity is Severity.WARNING


# --- logged, then routed ----------------------------------------------------------------------------------------------
class Failing(Outbox):
    """An outbox that cannot be written while it is broken."""

    broken = False

    def route(self, channels: Mapping[str, Sequence[str]], now: datetime) -> None:
        if self.broken:
            raise StoreError("disk full")
        super().route(channels, now)


class Bench:
    def __init__(self, store: Database, *channels: Scripted, **wishes: object) -> None:
        self.outbox = Failing(store)
        self.logged: list[str] = []
        names = tuple(channel.name for channel in channels)
        self.deliverer = AlertDelivery(
            self.outbox,
            {channel.name: channel for channel in channels},
            routing=AlertRouting(channels=names, **wishes),  # type: ignore[arg-type]
            log_alert=lambda alert: self.logged.append(alert.alert_id),
            monotonic=lambda: 0.0,
            patience_s=10,
        )

    def put(self, *alerts: Alert) -> None:
        for alert in alerts:
            self.outbox.enqueue(outbox_alert(alert))


def test_an_alert_is_logged_once_with_and_without_channels(sqlite_database: Database) -> None:
    bench = Bench(sqlite_database)
    bench.put(an_alert("a1"), an_alert("a2", AlertKind.BLIND, watch=None))
    for second in range(3):
        bench.deliverer.send_due(NOON + timedelta(seconds=second))
    assert bench.logged == ["a1", "a2"]


def test_after_a_restart_it_is_not_logged_again(sqlite_database: Database) -> None:
    Bench(sqlite_database).put(an_alert("a1"))
    Bench(sqlite_database).deliverer.send_due(NOON)
    again = Bench(sqlite_database)
    again.deliverer.send_due(NOON)
    assert again.logged == []


def test_a_store_that_fails_between_the_log_and_the_channels_costs_no_second_line(sqlite_database: Database) -> None:
    channel = Scripted("telegram")
    bench = Bench(sqlite_database, channel)
    bench.put(an_alert("a1"))

    bench.outbox.broken = True
    for _ in range(2):
        with pytest.raises(StoreError):
            bench.deliverer.send_due(NOON)
    bench.outbox.broken = False
    bench.deliverer.send_due(NOON)
    assert (bench.logged, channel.tries) == (["a1"], ["a1"])


def test_the_log_gets_the_whole_alert_at_its_severity(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for kind in (AlertKind.MATCH, AlertKind.DRIFT, AlertKind.HELD):
            log_alert(an_alert(kind=kind))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "CRITICAL"]
    first = caplog.records[0].__dict__
    assert first["message"] == "headline of a1"
    assert "GPU: H100 SXM" in first["details"]
    assert any("gpuwatch check" in line for line in first["details"])


# --- quiet hours and sound, on a controlled clock ---------------------------------------------------------------------
NIGHT = ("22:00-08:00",)
TEN_PM = datetime(2026, 11, 20, 22, tzinfo=UTC)
EIGHT_AM = TEN_PM + timedelta(hours=10)
SECOND = timedelta(seconds=1)


def test_in_quiet_hours_only_what_is_critical_arrives_and_the_rest_after_them(sqlite_database: Database) -> None:
    channel = Scripted("telegram")
    bench = Bench(sqlite_database, channel, quiet_hours=NIGHT)
    bench.put(an_alert("blind", AlertKind.BLIND, at=TEN_PM), an_alert("held", AlertKind.HELD, at=TEN_PM))
    bench.deliverer.send_due(TEN_PM)
    bench.deliverer.send_due(EIGHT_AM - SECOND)
    assert channel.tries == ["held"]
    bench.deliverer.send_due(EIGHT_AM)
    assert channel.tries == ["held", "blind"]
    assert bench.logged == ["blind", "held"]


def test_what_expired_in_quiet_hours_is_mentioned_in_the_next_message(sqlite_database: Database) -> None:
    channel = Scripted("telegram")
    bench = Bench(sqlite_database, channel, quiet_hours=NIGHT)
    bench.put(an_alert("match", at=TEN_PM), an_alert("blind", AlertKind.BLIND, at=TEN_PM))
    for hour in range(11):
        bench.deliverer.send_due(TEN_PM + timedelta(hours=hour))
    (sent,) = channel.sent
    assert sent.alert_id == "blind"
    assert "headline of match" in dict(sent.facts)["Not sent here"]


def test_a_whole_night_of_matches_ends_in_one_message(sqlite_database: Database) -> None:
    channel = Scripted("telegram")
    bench = Bench(sqlite_database, channel, quiet_hours=NIGHT)
    for hour in range(10):
        bench.put(an_alert(f"match{hour}", at=TEN_PM + timedelta(hours=hour, minutes=1)))
        bench.deliverer.send_due(TEN_PM + timedelta(hours=hour, minutes=2))
    assert channel.sent == []
    assert len(bench.logged) == 10  # the matches; a held alert is not reported as late
    for minute in range(90):
        bench.deliverer.send_due(EIGHT_AM + timedelta(minutes=minute))
    assert len(channel.sent) == 1
    assert "9 earlier alerts" in dict(channel.sent[0].facts)["Not sent here"]


def test_quiet_hours_follow_the_wall_clock_of_the_zone(sqlite_database: Database) -> None:
    channel = Scripted("telegram")
    bench = Bench(sqlite_database, channel, quiet_hours=NIGHT, zone=ZoneInfo("Europe/Berlin"))
    nine_pm = TEN_PM - timedelta(hours=1)  # ten in Berlin
    bench.put(an_alert("blind", AlertKind.BLIND, at=nine_pm))
    bench.deliverer.send_due(nine_pm)
    assert channel.tries == []
    bench.deliverer.send_due(EIGHT_AM - timedelta(hours=1))
    assert channel.tries == ["blind"]


def test_below_its_min_severity_a_channel_is_silent_or_left_out(sqlite_database: Database) -> None:
    silent, loud = Silent("telegram"), Scripted("email")
    floor = {"telegram": Severity.WARNING, "email": Severity.WARNING}
    bench = Bench(sqlite_database, silent, loud, min_severity=floor, silent_channels={"telegram"})
    bench.put(an_alert("match"), an_alert("blind", AlertKind.BLIND))
    bench.deliverer.send_due(NOON)
    assert (silent.silent, silent.tries, loud.tries) == (["match"], ["blind"], ["blind"])
