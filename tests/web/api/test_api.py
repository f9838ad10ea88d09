"""The API for a client: formats, pages, ETag, errors, idempotent actions, events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.launches.launch import Intent
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from gpuwatch.web.api.resources import RESOURCES
from tests import loopback_client
from tests.builders import a_match, an_offer
from tests.process.daemon_child import wait_for
from tests.upgraded_store import open_upgraded
from tests.web.security.test_security import assert_problem
from tests.web.served import PAGE, Served, served, serving_settings, settings_in


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found


def changed(web: Served) -> dict[str, str]:
    return {"X-CSRF-Token": web.log_in()}


def test_health_needs_nothing_and_names_the_task_that_fails(web: Served) -> None:
    assert web.client.get("/healthz").json() == {"status": "ok"}
    web.context.failing_task = lambda: "hunt vastai"
    answer = web.client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "failing", "task": "hunt vastai"})


def test_jobs_are_an_empty_list(web: Served) -> None:
    assert web.client.get("/api/v1/jobs").json() == {"items": [], "next": None}


def test_pausing_twice_changes_nothing(web: Served) -> None:
    headers = changed(web)
    first = web.client.post("/api/v1/pause", headers=headers, json={"why": "holiday"}).json()
    again = web.client.post("/api/v1/pause", headers=headers).json()
    assert (first["changed"], again["changed"], again["items"]) == (True, False, first["items"])
    assert [web.client.post("/api/v1/resume", headers=headers).json()["changed"] for _ in range(2)] == [True, False]


def test_every_change_leaves_an_audit_event(web: Served) -> None:
    headers = changed(web)
    for name, body in (("pause", {"watch": "cheap"}), ("resume", {"watch": "cheap"})):
        for _ in range(2):  # what is repeated changes nothing
            web.client.post(f"/api/v1/{name}", headers=headers, json=body)
    events = web.client.get("/api/v1/alerts", params={"kind": "audit"}).json()["items"]
    assert [event["headline"] for event in events] == ["watch cheap paused", "watch cheap resumed"]
    assert events[0]["facts"] == {"By": "API (one-time code)"}
    assert events[0]["delivered"] == {}


def test_lists_come_in_pages(web: Served) -> None:
    headers = changed(web)
    for name in ("pause", "resume") * 3:
        web.client.post(f"/api/v1/{name}", headers=headers)
    whole = web.client.get("/api/v1/alerts").json()["items"]
    found, address = [], "/api/v1/alerts?limit=4"
    while address:
        page = web.client.get(address).json()
        found += page["items"]
        address = page["next"]
    assert found == whole
    assert len(whole) == 6


def test_an_etag_saves_the_body(web: Served) -> None:
    first = web.client.get("/api/v1/launches")
    again = web.client.get("/api/v1/launches", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 422), ("limit=x", 422), ("limit=1001", 422), ("offset=-1", 422), ("unknown=1", 422),
        ("limit=1&limit=2", 422), ("gpu=nonsense-gpu", 404), ("spot=maybe", 422), ("count=8-1", 404), ("token=x", 400),
    ],
)  # fmt: skip
def test_wrong_parameters_are_named(web: Served, query: str, status: int) -> None:
    assert_problem(web.client.get(f"/api/v1/offers?{query}"), status)


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("offers?provider=vast", 404, "there is no provider 'vast'"),
        ("offers?gpu=ZZZ9", 404, "gpu: no GPU is called 'ZZZ9'"),
        ("alerts?since=soon", 422, 'since: expected a duration, such as "24h" or "7d"'),
        ("offers?count=many", 422, 'count: expected a number of GPUs, or a range such as "1-8"'),
        ("costs?month=May", 422, 'month: expected a month, such as "2026-11"'),
    ],
)
def test_a_wrong_value_is_explained_in_words(web: Served, path: str, status: int, detail: str) -> None:
    answer = web.client.get(f"/api/v1/{path}")
    assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (status, detail)


@pytest.mark.parametrize("query", ["since=x", "kind=nonsense", "severity=loud"])
def test_wrong_filters_of_alerts_are_named(web: Served, query: str) -> None:
    assert_problem(web.client.get(f"/api/v1/alerts?{query}"), 422)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api/v1/nothing",
        "/api/v2/offers",
        "/api/v1/launches/x",
        "/static/nothing.js",
        "/static/../server.py",
    ],
)
def test_an_unknown_path_is_404(web: Served, path: str) -> None:
    assert_problem(web.client.get(path), 404)


def test_a_wrong_method_is_405_and_names_the_right_ones(web: Served) -> None:
    answer = web.client.post("/api/v1/offers", headers=changed(web))
    assert_problem(answer, 405)
    assert "GET" in answer.headers["allow"]
    assert_problem(web.client.get("/api/v1/pause"), 405)


def test_head_is_get_without_a_body(web: Served) -> None:
    for path in ("/", "/api/v1/offers", "/healthz"):
        answer = web.client.head(path, headers=PAGE)
        assert (answer.status_code, answer.content) == (200, b"")


def test_a_trailing_slash_leads_to_the_same(web: Served) -> None:
    assert web.client.get("/api/v1/jobs/", follow_redirects=True).json() == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"\xff", 400), (b"[]", 422), (b'{"watch": 3}', 422), (b'{"nothing": 1}', 422),
     (b'{"watch": "no-such"}', 404), (b'{"for": "x"}', 422),
     (b'{"for": "0s"}', 422), (b'{"for": "0.0h00m"}', 422)],
)  # fmt: skip
def test_a_wrong_body_is_400_or_422(web: Served, body: bytes, status: int) -> None:
    headers = changed(web) | {"Content-Type": "application/json"}
    assert_problem(web.client.post("/api/v1/pause", headers=headers, content=body), status)


@pytest.mark.parametrize("lasts", ["0h30m", "0.5h", " 10m "])
def test_a_pause_of_some_time_is_taken(web: Served, lasts: str) -> None:
    answer = web.client.post("/api/v1/pause", headers=changed(web), json={"for": lasts})
    assert (answer.status_code, len(answer.json()["items"])) == (200, 1)


def test_another_content_type_is_refused(web: Served) -> None:
    headers = changed(web) | {"Content-Type": "text/plain"}
    assert_problem(web.client.post("/api/v1/pause", headers=headers, content=b"{}"), 422)


@pytest.mark.parametrize(
    "path", ["/approvals/aaaaaaaaaaaa/approve", "/approvals/x/deny", "/launches/aaaaaaaaaaaa/stop"]
)
def test_what_does_not_exist_is_404(web: Served, path: str) -> None:
    assert_problem(web.client.post(f"/api/v1{path}", headers=changed(web)), 404)


ASKS = """
dry_run = false
[web]
listen = "127.0.0.1:0"
[budget]
max_usd_hour = 100.0
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 20.0
action = "ask"
[watch.launch]
image = "alpine"
max_runtime = "1h"
"""


def test_an_approval_that_exists_is_never_404(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, ASKS)
    intent = Intent(watch=settings.watches[0], match=a_match(an_offer()), launch_id="a" * 12, dry_run=False)
    with serving_settings(settings, tmp_path) as web:
        now = real_now()
        with open_store(settings) as store, SqlDecisionStore(store).open() as uow:
            uow.request_approval(intent, Budget(), now + timedelta(minutes=15), now, False)
        found = assert_problem(web.client.post(f"/api/v1/approvals/{'a' * 12}/approve", headers=changed(web)), 409)
        assert "there is no key for vastai" in found["detail"]
        (approval,) = web.client.get("/api/v1/approvals").json()["items"]
        assert approval["state"] == "open"


def test_without_a_store_it_says_what_to_run(tmp_path: Path) -> None:
    with served(tmp_path, has_store=False) as web:
        for resource in RESOURCES:
            assert "gpuwatch run" in assert_problem(web.client.get(f"/api/v1/{resource.name}"), 503)["detail"]
        page = web.client.get("/", headers=PAGE)
        assert page.status_code == 503
        assert "gpuwatch run" in page.text
        assert web.client.get("/healthz").status_code == 200
    assert not (tmp_path / "gpuwatch.db").exists()


def test_a_form_is_taken_too(web: Served) -> None:
    """A client without JSON posts form fields, including the CSRF token."""
    csrf = web.log_in()
    answer = web.client.post("/api/v1/pause", data={"csrf_token": csrf, "watch": "cheap"})
    assert (answer.status_code, answer.json()["items"][0]["watch"]) == (200, "cheap")
    assert_problem(web.client.post("/api/v1/pause", data={"csrf_token": "x"}), 403)


def test_logging_in_takes_json(web: Served) -> None:
    assert "csrf_token" in web.client.post("/login", json={"code": web.codes[-1]}).json()


def test_the_stream_answers_head_at_once(web: Served) -> None:
    answer = web.client.head("/api/v1/events")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


class Listener:
    """A client of the stream, on a thread."""

    def __init__(self, url: str, last: str | None = None) -> None:
        self.events: list[tuple[str, str, dict[str, object]]] = []
        self.is_open = threading.Event()
        self._stop = threading.Event()
        self._url, self._headers = url, {} if last is None else {"Last-Event-ID": last}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self.is_open.wait(20)

    def _listen(self) -> None:
        with (
            loopback_client.client() as http,
            http.stream("GET", f"{self._url}/api/v1/events", headers=self._headers) as answer,
        ):
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                self.is_open.set()
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    self.events.append((fields["id"], fields["event"], json.loads(fields["data"])))
                    fields = {}
                if self._stop.is_set():
                    return

    def wait(self, count: int) -> list[tuple[str, str, dict[str, object]]]:
        ends_at = time.monotonic() + 60
        while len(self.events) < count and time.monotonic() < ends_at:
            time.sleep(0.02)
        return self.events


def test_events_are_sent_to_all_and_resume_after_the_last(web: Served) -> None:
    headers = changed(web)
    web.client.post("/api/v1/pause", headers=headers)  # before any client listens: not sent
    listeners = [Listener(web.url), Listener(web.url)]
    web.client.post("/api/v1/resume", headers=headers)
    web.client.post("/api/v1/pause", headers=headers)
    for listener in listeners:
        found = listener.wait(2)
        assert [(kind, body["headline"]) for _, kind, body in found] == [
            ("audit", "renting resumed"), ("audit", "renting paused"),
        ]  # fmt: skip
    stored = web.client.get("/api/v1/alerts").json()["items"]
    assert [body for _, _, body in listeners[0].events] == stored[1:]
    late = Listener(web.url, last=listeners[0].events[0][0])
    assert [event_id for event_id, _, _ in late.wait(1)] == [listeners[0].events[1][0]]


@pytest.mark.slow
def test_the_stream_continues_once_the_store_can_be_read(tmp_path: Path) -> None:
    with served(tmp_path, has_store=False) as web:
        headers, listener = changed(web), Listener(web.url)
        open_upgraded(f"sqlite:///{tmp_path}/gpuwatch.db").close()

        def is_read() -> bool:
            for action in ("pause", "resume"):
                web.client.post(f"/api/v1/{action}", headers=headers)
            return bool(listener.events)

        wait_for(is_read)
