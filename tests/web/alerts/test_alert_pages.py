"""The page Alerts: by day, repeats folded, delivery per channel, filters in words, silences with End."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.app.alerts.alerts import silence, silences
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.alerts.alert import Alert, AlertKind, outbox_alert
from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database
from tests.web.served import PAGE, WATCH, Served, page, served

_HOSTILE = "<script>alert(1)</script> \u202e\x00 it's"


class _Accepting:
    """A channel that accepts everything."""

    name = "telegram"

    def send(self, alert: Alert) -> None:
        """Accept it."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, "", WATCH) as found:
        yield found


@pytest.fixture
def store(web: Served) -> Iterator[Database]:
    with open_store(web.context.settings) as opened:
        yield opened


def put(store: Database, alert_id: str, headline: str, kind: AlertKind = AlertKind.MATCH, **more: object) -> None:
    ago = more.pop("ago", timedelta(minutes=5))
    assert isinstance(ago, timedelta)
    watch = "cheap" if kind.rules.is_offer else None
    alert = Alert(alert_id=alert_id, kind=kind, created_at=real_now() - ago, headline=headline, watch=watch, **more)  # type: ignore[arg-type]
    Outbox(store).enqueue(outbox_alert(alert))


def test_repeats_of_a_day_are_folded_and_prices_do_not_tell_them_apart(web: Served, store: Database) -> None:
    for number in range(4):
        put(store, f"a{number}", f"H100 at $1.{number}8/GPU-h", ago=timedelta(seconds=number))
    put(store, "other", "H100 is gone")
    put(store, "old", "H100 at $1.08/GPU-h", ago=timedelta(days=3))
    shown = page(web, "/alerts")
    assert "and 3 more like this" in shown
    assert shown.count("more like this") == 1  # not with that of another day
    assert shown.count('<section class="panel" aria-labelledby="day-') == 2
    assert "Today" in shown or "Yesterday" in shown


def test_the_way_to_each_channel_is_shown_with_its_delay(web: Served, store: Database) -> None:
    put(store, "a1", "H100 at $1.48/GPU-h")
    assert "Telegram" not in page(web, "/alerts")
    AlertDelivery(Outbox(store), {"telegram": _Accepting()}, patience_s=10).send_due(real_now())
    assert "Telegram 5\N{NO-BREAK SPACE}min" in page(web, "/alerts")


def test_filters_are_in_words_and_each_can_be_removed(web: Served, store: Database) -> None:
    put(store, "match", "a price")
    put(store, "blind", "no answer", AlertKind.BLIND)
    put(store, "over", "it answers again", AlertKind.RECOVERED)
    put(store, "held", "check it", AlertKind.HELD)
    everything = page(web, "/alerts")
    for word in ("Price", "Asked you", "Needs your check", "Unknown machine", "Not rented", "Changed by you"):
        assert f">{word}</option>" in everything, word
    for enum in ("orphan", "blind", "drift"):
        assert f">{enum}<" not in everything, enum
    provider = page(web, "/alerts?kind=blind")
    assert ">No answer" in provider
    assert "It answers again" in provider  # the same word
    assert "A price" not in provider
    assert "remove this filter" in provider
    assert ">No answer" not in page(web, "/alerts?severity=critical")
    assert "Check it" in page(web, "/alerts?severity=critical")
    assert ">No answer" not in page(web, "/alerts?watch=cheap")
    assert "A price" in page(web, "/alerts?watch=cheap")
    assert "1 alert of today asks you to act." in everything
    for wrong in ("kind=x", "severity=loud", "page=0", "page=-1", "page=x", "page=9999999"):
        assert web.client.get(f"/alerts?{wrong}", headers=PAGE).status_code == 422, wrong


def test_more_than_a_page_is_reached_by_a_link(web: Served, store: Database) -> None:
    for number in range(101):
        put(store, f"a{number}", "word " + "x" * number, ago=timedelta(seconds=number), kind=AlertKind.DAEMON)
    first, second = page(web, "/alerts"), page(web, "/alerts?page=2")
    assert "/alerts?page=2" in first
    assert "Older" not in second
    assert "x" * 100 in second
    assert "x" * 100 not in first


def test_texts_of_hosts_stay_texts(web: Served, store: Database) -> None:
    put(store, "a1", _HOSTILE, facts=((_HOSTILE, _HOSTILE),), why=_HOSTILE, can_do=(_HOSTILE,))
    shown = web.client.get("/alerts", headers=PAGE).text
    assert "<script>alert" not in shown
    assert "&lt;script&gt;" in shown
    assert "\u202e" not in shown


def test_a_silence_ends_by_its_button_and_only_with_a_login(web: Served, store: Database) -> None:
    settings = web.context.settings
    silence(settings, "cheap", 3600.0, actor="a test")
    assert "cheap sends no alerts about offers until" in page(web, "/alerts")
    assert web.client.post("/alerts/unsilence", data={"watch": "cheap"}).status_code == 401
    csrf = web.log_in()
    assert web.client.post("/alerts/unsilence", data={"watch": "cheap"}).status_code == 403
    assert len(silences(settings)) == 1
    done = web.client.post("/alerts/unsilence", data={"watch": "cheap", "csrf_token": csrf}, follow_redirects=True)
    assert "Alerts of cheap are sent again." in done.text
    assert silences(settings) == []


def test_an_empty_store_says_so(web: Served) -> None:
    assert "Nothing has happened yet." in page(web, "/alerts")
