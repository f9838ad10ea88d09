"""`gpuwatch alerts` and `gpuwatch alerts silence`: list, filter, follow, silence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta

import pytest

from gpuwatch.app.alerts.alerts import event_view, follow_events
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.alerts.alert import outbox_alert
from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.ports import Alert, AlertKind, Severity
from gpuwatch.storage.alerts.alert_rows import EventFilter
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database
from tests.cli.conftest import Shell
from tests.engine.scripted_channels import Scripted
from tests.upgraded_store import open_upgraded

NOW = real_now()
HOUR = timedelta(hours=1)
SOON = timedelta(minutes=10)  # ago
WATCHES = """
[[watch]]
name = "h100"
gpu = ["H100"]
max_price = 3.6
[[watch]]
name = "cheap"
gpu = "A100"
max_price = 1
"""


@pytest.fixture
def store(shell: Shell) -> Iterator[Database]:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    shell.settings(f'timezone = "UTC"\ndatabase_url = "{url}"\n' + WATCHES)
    opened = open_upgraded(url)
    yield opened
    opened.close()


def put(store: Database, alert_id: str, kind: AlertKind = AlertKind.MATCH, ago: timedelta = SOON, **more: str) -> None:
    alert = Alert(
        alert_id=alert_id,
        kind=kind,
        created_at=real_now() - ago,
        headline=more.get("headline", f"headline of {alert_id}"),
        watch=more.get("watch", "h100"),
        severity=kind.rules.severity,
        facts=(("GPU", "H100 SXM"),),
    )
    Outbox(store).enqueue(outbox_alert(alert))


def deliver(store: Database, *channels: Scripted) -> None:
    AlertDelivery(Outbox(store), {channel.name: channel for channel in channels}, patience_s=10).send_due(real_now())


def listed(shell: Shell, *argv: str) -> list[str]:
    ran = shell("alerts", *argv, "--json")
    assert ran.code == 0, ran.err
    return [event["alert_id"] for event in ran.json]


def test_newest_last_with_what_the_channels_did(shell: Shell, store: Database) -> None:
    put(store, "new", AlertKind.BLIND, timedelta(minutes=1))
    put(store, "old")
    deliver(store, Scripted("telegram"))
    old, new = shell("alerts", "--json").json
    assert old.keys() >= {"at", "kind", "severity", "subject", "headline", "facts", "delivered"}
    assert (old["kind"], old["severity"], old["subject"]) == ("match", "info", "h100")
    assert (old["headline"], old["facts"]) == ("headline of old", {"GPU": "H100 SXM"})
    assert new["severity"] == "warning"
    assert old["delivered"]["telegram"]["state"] == "sent"
    assert old["delivered"]["telegram"]["at"].endswith("Z")


def test_filters(shell: Shell, store: Database) -> None:
    put(store, "match", ago=HOUR)
    put(store, "blind", AlertKind.BLIND, timedelta(minutes=50))
    put(store, "held", AlertKind.HELD, timedelta(minutes=40))
    put(store, "ancient", AlertKind.HELD, timedelta(days=2))
    assert listed(shell) == ["match", "blind", "held"]
    assert listed(shell, "--since", "3d") == ["ancient", "match", "blind", "held"]
    assert listed(shell, "--kind", "match", "--kind", "held") == ["match", "held"]
    assert listed(shell, "--severity", "warning") == ["blind", "held"]
    assert listed(shell, "--severity", "critical") == ["held"]
    assert shell("alerts", "--kind", "nonsense").code == 2


def test_a_screen_shows_time_severity_kind_headline_and_no_control_characters(shell: Shell, store: Database) -> None:
    put(store, "a1", AlertKind.HELD, headline="h100: \x1b[31mheld")
    deliver(store, Scripted("telegram"))
    ran = shell("alerts")
    first, second = ran.out.splitlines()
    assert "critical  held       h100: [31mheld" in first
    assert second.strip().startswith("telegram ")


def test_without_a_database_it_cannot_tell(shell: Shell) -> None:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/none.db"\n' + WATCHES)
    assert shell("alerts").code == 3
    assert shell("silence", "--list").code == 3
    assert not (shell.folder / "none.db").exists()


def test_followed_events_come_once_each_as_they_are_stored(shell: Shell, store: Database) -> None:
    put(store, "before")
    settings = load_settings(str(shell.folder / "gpuwatch.toml"))
    numbers = itertools.count()

    def something_happens(_seconds: float) -> None:
        number = next(numbers)
        late = timedelta(minutes=number % 3)  # some are older than alerts that were already shown
        put(store, f"new{number}", ago=late)

    events = follow_events(settings, EventFilter(since=NOW - 2 * HOUR, severity=Severity.INFO), something_happens)
    found = [event_view(next(events)).alert_id for _ in range(6)]
    assert found == ["before", *(f"new{n}" for n in range(5))]


# --- silence ----------------------------------------------------------------------------------------------------------
def test_a_silenced_watch_is_stored_and_not_sent_until_it_ends(shell: Shell, store: Database) -> None:
    channel = Scripted("telegram")
    assert shell("silence", "h100", "--for", "6h").code == 0
    put(store, "silenced", ago=-timedelta(seconds=1))
    put(store, "other", watch="cheap")
    put(store, "launch", AlertKind.RENT)
    put(store, "money", AlertKind.BUDGET)
    put(store, "held", AlertKind.HELD)
    deliver(store, channel)
    sent = {one.alert_id for alert in channel.sent for one in (alert, *alert.parts)}
    assert sent == {"other", "launch", "money", "held"}
    assert "silenced" in listed(shell)
    assert shell("silence", "--end", "h100").code == 0
    put(store, "again", ago=-timedelta(seconds=2))
    deliver(store, channel)
    assert channel.sent[-1].alert_id == "again"


def test_a_silence_is_over_by_itself(shell: Shell, store: Database) -> None:
    channel = Scripted("telegram")
    shell("silence", "h100", "--for", "6h")
    put(store, "after", ago=-timedelta(hours=6, minutes=1))
    AlertDelivery(Outbox(store), {"telegram": channel}, patience_s=10).send_due(real_now() + timedelta(hours=6.5))
    assert channel.tries == ["after"]


def test_silences_are_listed(shell: Shell, store: Database) -> None:
    assert shell("silence", "--list").out == "no watch is silenced\n"
    (one,) = shell("silence", "h100", "--for", "6h", "--json").json
    assert one["watch"] == "h100"
    assert one["until"] > one["since"]
    assert "h100" in shell("silence", "--list").out
    assert shell("silence", "--end", "h100", "--json").json == []
    assert "was not silenced" in shell("silence", "--end", "h100").out


def test_a_watch_that_does_not_exist_is_an_error_with_the_nearest_name(shell: Shell, store: Database) -> None:
    ran = shell("silence", "h10", "--for", "6h")
    assert (ran.code, ran.err) == (2, "there is no watch 'h10'; did you mean h100? watches: h100, cheap\n")
    assert shell("silence", "--end", "nobody").code == 2


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("h100",),
        ("--for", "6h"),
        ("h100", "--for", "0s"),
        ("h100", "--for", "6h", "--list"),
        ("--list", "--for", "1h"),
    ],
)
def test_half_a_question_is_refused(shell: Shell, store: Database, argv: tuple[str, ...]) -> None:
    assert shell("silence", *argv).code == 2


def test_json_of_a_followed_event_is_one_line(store: Database, shell: Shell) -> None:
    put(store, "a1")
    settings = load_settings(str(shell.folder / "gpuwatch.toml"))
    event = next(follow_events(settings, EventFilter(since=NOW - 2 * HOUR)))
    assert event_view(event).alert_id == "a1"
