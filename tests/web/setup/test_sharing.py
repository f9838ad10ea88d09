"""Signed links through a real server: what they show, to whom, until when; feed and calendar as readers read them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import feedparser  # type: ignore[import-untyped]
import httpx
import icalendar
import pytest

from gpuwatch.app.setup.sharing.share_links import LONGEST_S, SharedThing, ShareLink, make_link, revoke_links
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.alerts.alert import Alert, AlertKind, outbox_alert
from gpuwatch.errors import UsageError
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import PAGE, TOKEN, Served, served, serving_settings, settings_in

_HOUR = 3600.0
_WEB = f"""
public_url = "https://gpu.example.org"
tokens = [{{ name = "own", token = "{TOKEN}", scopes = ["read", "manage"] }}]
"""
_WATCH = """
[[watch]]
name = "cheap, at; night"
gpu = ["H100"]
max_price = 2.40
active = ["Mon-Fri 22:00-08:00", "Sat-Sun"]
"""
_HOSTILE = "cheap\r\nEND:VEVENT\r\nBEGIN:VEVENT\nSUMMARY:<script>alert(1)</script>&\x0b\x00\u2028"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Served]:
    """A server that asks for a login, with prices of an H100 in its store, and a client that has none."""
    with served(tmp_path, _WEB, _WATCH) as web:
        with open_store(web.context.settings) as store:
            now = real_now()
            for hours, price in ((30, 2.5), (20, 1.9), (10, 2.1), (0, 1.75)):
                offer = an_offer("m1", price, observed_at=now - timedelta(hours=hours))
                answer = an_answer(offer, observed_at=now - timedelta(hours=hours))
                SqlHistoryRecorder(store).record(answer, lane="sweep", gpu="H100 SXM", spot=False)
        yield web


def linked(
    web: Served, thing: SharedThing, name: str = "", for_s: float = _HOUR, at: datetime | None = None
) -> ShareLink:
    return make_link(web.context.settings, thing, name, for_s, at or real_now(), actor="a test")


def path_of(url: str | None, **changed: Any) -> str:
    """The path of an address, with parts of its query changed; None: without."""
    parts = urlsplit(url or "")
    query = {key: value for key, value in (dict(parse_qsl(parts.query)) | changed).items() if value is not None}
    return f"{parts.path}?{urlencode(query)}"


def answer_to(web: Served, path: str, **headers: str) -> httpx.Response:
    return web.client.get(path, headers=PAGE | headers)


def test_a_link_shows_the_chart_and_nothing_else_without_a_login(shared: Served) -> None:
    link = linked(shared, SharedThing.GPU, "H100 SXM")
    assert link.url.startswith("https://gpu.example.org/share/gpu?")
    assert answer_to(shared, "/gpu/H100%20SXM").status_code == 401
    page = answer_to(shared, path_of(link.url))
    assert page.status_code == 200
    assert "<nav" not in page.text
    assert "/watches" not in page.text
    assert "cheap" not in page.text  # the name of a watch
    assert page.headers["x-robots-tag"].startswith("noindex")
    assert 'name="robots" content="noindex' in page.text
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in page.headers
    assert "H100 SXM: $2.10/GPU-h" in page.text  # 1.75 and vast.ai's commission of 20 %
    assert '<td class="n">$2.10</td>' in page.text, "the figures behind it, by day"


def test_the_picture_may_stand_in_other_peoples_pages(shared: Served) -> None:
    link = linked(shared, SharedThing.GPU, "H100 SXM")
    picture = answer_to(shared, path_of(link.picture_url))
    assert picture.status_code == 200
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.headers["cross-origin-resource-policy"] == "cross-origin"
    assert picture.headers["content-security-policy"].startswith("default-src 'none'")
    assert picture.headers["cache-control"] == "public, max-age=300"
    assert "cookie" not in picture.headers.get("vary", "").lower()
    assert "prefers-color-scheme:dark" in picture.text
    assert "<script" not in picture.text
    again = answer_to(shared, path_of(link.picture_url), **{"If-None-Match": picture.headers["etag"]})
    assert again.status_code == 304


_CHANGES: list[dict[str, str | None]] = [
    {"key": "A" * 43}, {"key": ""}, {"key": None}, {"key": "é"}, {"until": "99999999999"}, {"until": None},
    {"until": "９"}, {"name": "RTX 4090"}, {"name": None}, {"name": "H100 SXM\x00"},
]  # fmt: skip


def test_a_changed_link_shows_one_sentence(shared: Served) -> None:
    link = linked(shared, SharedThing.GPU, "H100 SXM")
    for changed in _CHANGES:
        for url in (link.url, link.picture_url):
            refused = answer_to(shared, path_of(url, **changed))
            assert refused.status_code == 404, changed
            assert refused.text == "This link is not valid; it may be incomplete, or it was revoked.\n"


def test_a_link_ends_at_its_time_and_another_thing_needs_another_link(shared: Served) -> None:
    old = linked(shared, SharedThing.GPU, "H100 SXM", at=real_now() - timedelta(hours=2))
    expired = answer_to(shared, path_of(old.url))
    assert (expired.status_code, expired.text.count("\n")) == (410, 1)
    assert "expired" in expired.text
    query = urlsplit(linked(shared, SharedThing.ALERTS).url).query
    assert answer_to(shared, f"/alerts.atom?{query}").status_code == 200
    assert answer_to(shared, f"/calendar.ics?{query}").status_code == 404
    for path in ("/share/gpu", "/share/gpu.svg", "/alerts.atom", "/calendar.ics"):
        assert answer_to(shared, path).status_code == 404, path
    for longer in (LONGEST_S + 1, 0.0, -1.0):
        with pytest.raises(UsageError):
            linked(shared, SharedThing.GPU, "H100 SXM", longer)
    with pytest.raises(UsageError):
        linked(shared, SharedThing.GPU, "no such card")
    with pytest.raises(UsageError):
        linked(shared, SharedThing.WATCH, "no such watch")


def test_revoking_ends_every_link_and_a_new_one_works(shared: Served) -> None:
    link = linked(shared, SharedThing.ALERTS)
    revoke_links(shared.context.settings, real_now(), actor="a test")
    assert answer_to(shared, path_of(link.url)).status_code == 404
    assert answer_to(shared, path_of(linked(shared, SharedThing.ALERTS).url)).status_code == 200


def test_the_page_makes_links_for_who_may_manage_and_revokes_after_a_question(shared: Served) -> None:
    assert shared.client.post("/share?gpu=H100", data={"days": "7"}).status_code == 401
    csrf = shared.log_in(token=TOKEN)
    assert shared.client.post("/share?gpu=H100", data={"days": "7"}).status_code == 403  # without the CSRF token
    assert 'href="/share?gpu=H100%20SXM"' in shared.client.get("/gpu/H100%20SXM", headers=PAGE).text
    made = shared.client.post("/share?gpu=H100+SXM", data={"days": "7", "csrf_token": csrf}, headers=PAGE)
    assert made.status_code == 200
    found = made.text.partition("https://gpu.example.org/share/gpu?")[2].partition('"')[0].replace("&amp;", "&")
    anonymous = httpx.get(f"{shared.url}/share/gpu?{found}")
    assert anonymous.status_code == 200
    asked = shared.client.post("/share/revoke", data={"csrf_token": csrf}, headers=PAGE)
    assert "End every link" in asked.text
    assert httpx.get(f"{shared.url}/share/gpu?{found}").status_code == 200
    shared.client.post("/share/revoke", data={"csrf_token": csrf, "confirmed": "yes"}, headers=PAGE)
    assert httpx.get(f"{shared.url}/share/gpu?{found}").status_code == 404
    for days in ("3", "", "365"):
        refused = shared.client.post("/share?gpu=H100+SXM", data={"days": days, "csrf_token": csrf}, headers=PAGE)
        assert refused.status_code == 422, days
    assert shared.client.get("/share?nothing=1", headers=PAGE).status_code == 422


def test_a_feed_reader_reads_the_alerts(shared: Served) -> None:
    now = real_now()
    with open_store(shared.context.settings) as store:
        for number, headline in enumerate(("H100 SXM at $1.75/GPU-h", _HOSTILE)):
            alert = Alert(
                alert_id=f"a{number}",
                kind=AlertKind.MATCH,
                created_at=now - timedelta(minutes=2 - number),
                headline=headline,
                watch="cheap",
                why=_HOSTILE,
            )
            Outbox(store).enqueue(outbox_alert(alert))
    answer = answer_to(shared, path_of(linked(shared, SharedThing.ALERTS).url))
    assert answer.headers["content-type"] == "application/atom+xml"
    assert answer.headers["cache-control"] == "private, max-age=300"
    feed: Any = feedparser.parse(answer.content)
    assert not feed.bozo, feed.bozo_exception
    audit, hostile, plain = feed.entries
    assert plain.title == "H100 SXM at $1.75/GPU-h"
    assert plain.link == "https://gpu.example.org/alerts"
    assert plain.tags[0].label == "Price"
    assert "&lt;script&gt;" in hostile.title or "<script>" not in hostile.summary
    assert hostile.id == "urn:gpuwatch:alert:a1"
    assert "link to alerts made" in audit.title
    assert feed.feed.updated_parsed[:5] == audit.updated_parsed[:5]


def test_a_calendar_reader_reads_windows_whatever_a_name_contains(tmp_path: Path) -> None:
    name = 'cheap, at; night \\\\ "ß" ' + "x" * 90
    watch = _WATCH.replace("cheap, at; night", name.replace('"', '\\"'))
    with served(tmp_path, _WEB, watch) as web:
        answer = answer_to(web, path_of(linked(web, SharedThing.CALENDAR).url))
        stored = web.context.settings.watches[0].name
    assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
    assert all(len(line) <= 75 for line in answer.content.split(b"\r\n"))
    assert b"\n" not in answer.content.replace(b"\r\n", b"")
    events: list[Any] = icalendar.Calendar.from_ical(answer.content).walk("VEVENT")
    assert {str(event["SUMMARY"]) for event in events} == {f"Watch {stored} may act"}
    assert len(events) == 10 + 4  # of 14 days: working days and weekends
    assert len({str(event["UID"]) for event in events}) == len(events)
    night = next(event for event in events if event["DTSTART"].dt.astimezone(UTC).hour == 22)
    assert night["DTEND"].dt - night["DTSTART"].dt == timedelta(hours=10)


def test_no_text_begins_a_line_of_a_calendar() -> None:
    from gpuwatch.app.setup.sharing.calendar_file import CalendarEntry, calendar_text

    entry = CalendarEntry(uid=_HOSTILE, summary=_HOSTILE, starts_at=datetime(2026, 11, 29, tzinfo=UTC), path="/jobs/x")
    text = calendar_text([entry], "https://gpu.example.org", entry.starts_at)
    event: Any
    (event,) = icalendar.Calendar.from_ical(text).walk("VEVENT")
    assert "END:VEVENT" in str(event["SUMMARY"])
    assert text.count(b"\r\nBEGIN:VEVENT") == 1


def test_the_link_of_a_watch_shows_its_lowest_matching_price_and_its_limit(shared: Served) -> None:
    name = "cheap, at; night"
    link = linked(shared, SharedThing.WATCH, name)
    picture = answer_to(shared, path_of(link.picture_url))
    assert picture.status_code == 200
    assert "limit $2.40" in picture.text
    assert "lowest matching offer" in picture.text
    for wrong in ({"name": "cheap"}, {"name": None}):
        assert answer_to(shared, path_of(link.picture_url, **wrong)).status_code == 404
    shared.context.use(settings_in(shared.folder, f"[web]\n{_WEB}"))
    gone = answer_to(shared, path_of(link.url))
    assert (gone.status_code, gone.text) == (404, "What this link showed is no longer there.\n")


def test_what_is_shared_has_the_language_of_the_settings_or_of_the_page_around_it(tmp_path: Path) -> None:
    text = f'language = "auto"\n[web]\nlisten = "127.0.0.1:0"\n{_WEB}{_WATCH}'
    with serving_settings(settings_in(tmp_path, text), tmp_path) as web:
        with open_store(web.context.settings) as store:
            SqlHistoryRecorder(store).record(
                an_answer(an_offer("m1", 2.5, observed_at=real_now()), observed_at=real_now()), lane="sweep"
            )
        link = linked(web, SharedThing.GPU, "H100 SXM")
        page = answer_to(web, path_of(link.url), **{"Accept-Language": "ru"})
        assert '<html lang="ru">' in page.text
        picture = f"{path_of(link.picture_url)}&language=ru"
        assert picture.replace("&", "&amp;") in page.text
        assert "самая низкая" in web.client.get(picture).text
        assert "lowest" in web.client.get(path_of(link.picture_url), headers={"Accept-Language": "ru"}).text
