"""Requests over HTTP: reads are retried within their time, changes are sent once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.errors import (
    KeyRejected,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    ProviderUnreachable,
    RateLimited,
    RefusalKind,
)
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.secret import Secret
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, Server, serving

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEY = "a-key-of-acme-4711"


class World:
    """A clock that advances only while somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waits: list[float] = []
        self.stop = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds


NOWHERE = "http://127.0.0.1:1"


@contextmanager
def rest(url: str, world: World | None = None, key: str | None = KEY, **options: Any) -> Iterator[ApiClient]:
    world = world or World()
    settings = ProviderSettings(
        name="acme",
        base_url=url,
        api_key=Secret(key) if key else None,
        search_interval_s=options.pop("interval_s", 0.0),
        timeout_s=30.0,
    )
    http = PooledHttpClient(secrets=[KEY])
    tools = Tools(
        http=http, now=lambda: NOW, monotonic=lambda: world.seconds, sleep=world.sleep, stop=world.stop,
        is_patient=options.pop("is_patient", True),
    )  # fmt: skip
    try:
        yield ApiClient(settings, tools, **options)
    finally:
        http.close()


@contextmanager
def answering(*statuses: int, body: object = None, headers: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Answers with one status after the other; the last one repeats."""
    left = list(statuses)

    def answer(_: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.answer(left.pop(0) if len(left) > 1 else left[0], body if body is not None else {}, **(headers or {}))

    with serving(answer) as server:
        yield server


def test_a_question_carries_the_key_its_parameters_and_asks_for_json() -> None:
    with answering(200, body={"a": 1}) as server, rest(f"{server.url}/v1/") as asked:
        assert asked.get("/things", {"q": "x y"}) == {"a": 1}
        assert asked.query("/graph", {"query": "{ me }"}) == {"a": 1}
    got, posted = server.requests
    assert (got.method, got.path, got.params) == ("GET", "/v1/things", {"q": "x y"})
    assert got.headers["authorization"] == f"Bearer {KEY}"
    assert (posted.method, posted.json) == ("POST", {"query": "{ me }"})


def test_other_headers_stand_instead_of_the_bearer() -> None:
    with answering(200) as server, rest(server.url, headers={"X-Key": "1"}) as asked:
        asked.get("/")
    assert server.requests[0].headers["x-key"] == "1"
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(("headers", "name"), [(None, "authorization"), ({"X-Key": KEY}, "x-key")])
def test_the_key_does_not_follow_a_link_to_another_host(headers: Mapping[str, str] | None, name: str) -> None:
    with answering(200) as home, answering(200) as elsewhere, rest(home.url, headers=headers) as asked:
        asked.get(f"{home.url}/next")
        asked.get(f"{elsewhere.url}/next")
        asked.order("POST", f"{elsewhere.url}/order")
    assert KEY in home.requests[0].headers[name]
    assert [name in request.headers for request in elsewhere.requests] == [False, False]


@pytest.mark.parametrize("url", ["{home}.evil.example/x", "{home}@evil.example/x"])
def test_what_only_begins_like_home_is_not_home(url: str) -> None:
    with rest("https://api.acme.example") as asked:
        assert asked._headers_for(url.format(home="https://api.acme.example")) == {}


def test_what_reads_is_asked_up_to_three_times() -> None:
    world = World()
    with answering(500, 503, 200) as server, rest(server.url, world) as asked:
        assert asked.get("/") == {}
        assert len(server.requests) == 3
    with answering(500) as server, rest(server.url) as asked:
        with pytest.raises(ProviderDown):
            asked.get("/")
        assert len(server.requests) == 3
    assert len(world.waits) == 2


@pytest.mark.parametrize(("status", "error"), [(401, KeyRejected), (404, PayloadChanged)])
def test_what_asking_again_does_not_help_is_asked_once(status: int, error: type[Exception]) -> None:
    with answering(status) as server, rest(server.url) as asked:
        with pytest.raises(error):
            asked.get("/")
        assert len(server.requests) == 1


def test_the_wait_that_the_provider_asks_for_is_kept() -> None:
    world = World()
    with answering(429, 200, headers={"retry-after": "20"}) as server, rest(server.url, world) as asked:
        assert asked.get("/") == {}
    assert 20 <= world.waits[0] <= 29


def test_a_long_wait_is_the_next_polls_business() -> None:
    with answering(429, headers={"retry-after": "600"}) as server, rest(server.url) as asked:
        with pytest.raises(RateLimited) as limited:
            asked.get("/")
        assert (limited.value.retry_after_s, len(server.requests)) == (600.0, 1)


def test_time_that_answers_took_is_taken_from_the_next_attempt() -> None:
    world = World()

    def slow(_: ReceivedRequest, wire: ReplyWriter) -> None:
        world.seconds += 29.5
        wire.answer(500)

    with serving(slow) as server, rest(server.url, world) as asked:
        with pytest.raises(ProviderDown):
            asked.get("/")
        assert len(server.requests) == 1


def test_questions_of_a_class_keep_their_distance_and_others_do_not_wait() -> None:
    world = World()
    with answering(200) as server, rest(server.url, world, interval_s=6.0, intervals_s={"list": 1.0}) as asked:
        asked.get("/")
        asked.get("/", kind="list")
        assert world.seconds == 0.0
        asked.get("/")
        assert world.seconds == pytest.approx(6.0)


def test_an_own_reading_says_what_a_status_means() -> None:
    def reading(name: str, reported: Any, reply: Any, now: datetime) -> ProviderError:
        return KeyRejected(f"{name}: {reported.status} at {now:%H}")

    with (
        answering(418) as server,
        rest(server.url, reading=reading) as asked,
        pytest.raises(KeyRejected, match="418 at 12"),
    ):
        asked.get("/")


def test_every_answer_is_heard_whatever_its_status() -> None:
    on_reply: list[tuple[int, str]] = []
    with answering(500, 200, 409) as server, rest(server.url) as asked:
        asked.on_reply = lambda reply, kind: on_reply.append((reply.status, kind))  # type: ignore[method-assign]
        asked.get("/")
        with pytest.raises(OrderRefused):
            asked.order("POST", "/")
    assert on_reply == [(500, "search"), (200, "search"), (409, "order")]


# --- orders ----------------------------------------------------------------------------------------------------------


def test_an_order_is_sent_with_its_body_and_answered() -> None:
    with answering(201, body={"id": "7"}) as server, rest(server.url) as asked:
        assert asked.order("POST", "/pods", {"name": "x"}).status == 201
        asked.order("DELETE", "/pods/7")
    assert [(request.method, request.body) for request in server.requests] == [
        ("POST", b'{"name":"x"}'),
        ("DELETE", b""),
    ]


@pytest.mark.parametrize("status", [500, 502, 408, 302])
def test_an_order_is_never_sent_twice(status: int) -> None:
    with answering(status) as server, rest(server.url) as asked:
        with pytest.raises(OutcomeUnknown):
            asked.order("POST", "/pods", {})
        assert len(server.requests) == 1


def test_an_order_whose_answer_is_lost_is_unknown_and_one_that_never_left_is_not() -> None:
    with serving(lambda _, wire: wire.close()) as server, rest(server.url) as asked:
        with pytest.raises(OutcomeUnknown):
            asked.order("POST", "/pods", {})
        assert len(server.requests) == 1
    with rest("http://127.0.0.1:1") as asked, pytest.raises(OrderRefused) as refused:
        asked.order("POST", "/pods", {})
    assert refused.value.kind is RefusalKind.NOT_SENT


@pytest.mark.parametrize("changes", [True, False])
def test_whoever_is_stopping_waits_for_no_turn_and_sends_nothing(changes: bool) -> None:
    world = World()
    with answering(200) as server, rest(server.url, world, interval_s=5.0) as asked:
        asked.get("/")
        world.stop.set()
        with pytest.raises(OrderRefused if changes else ProviderDown, match="stopping") as refused:
            asked.order("POST", "/pods", {}, kind="search") if changes else asked.get("/")
        assert getattr(refused.value, "kind", RefusalKind.NOT_SENT) is RefusalKind.NOT_SENT
        assert len(server.requests) == 1


def test_without_a_key_nothing_is_sent_that_needs_one() -> None:
    with answering(200) as server, rest(server.url, key=None) as asked:
        with pytest.raises(KeyRejected, match=r"\[providers.acme\]"):
            asked.require_key()
        asked.get("/")
    assert "authorization" not in server.requests[0].headers


def test_no_error_shows_the_key() -> None:
    with answering(400, body={"error": f"no such key {KEY}"}) as server, rest(server.url) as asked:
        with pytest.raises(ProviderError) as asking:
            asked.get("/")
        with pytest.raises(OrderRefused) as ordering:
            asked.order("POST", "/")
    assert KEY not in f"{asking.value} {ordering.value}"


# --- shared state of several queries ----------------------------------------------------------------------------------


def test_what_was_fetched_is_shared_until_it_is_old() -> None:
    world, fetched = World(), list[int]()
    kept = TtlCache[int](5.0, lambda: world.seconds)

    def fetch() -> int:
        fetched.append(len(fetched))
        return fetched[-1]

    assert [kept.get(fetch), kept.get(fetch)] == [0, 0]
    assert kept.get(fetch, key="other") == 1
    world.seconds = 5.1
    assert kept.get(fetch) == 2
    kept.invalidate()
    assert kept.get(fetch) == 3


def test_what_failed_is_not_kept() -> None:
    kept = TtlCache[int](5.0, lambda: 0.0)

    def fail() -> int:
        raise ProviderDown("acme: down")

    with pytest.raises(ProviderDown):
        kept.get(fail)
    assert kept.get(lambda: 7) == 7


def test_the_daemon_tries_a_server_without_a_connection_again_and_a_command_does_not() -> None:
    for is_patient, waited in ((True, True), (False, False)):
        world = World()
        with rest(NOWHERE, world, is_patient=is_patient) as asked, pytest.raises(ProviderUnreachable):
            asked.get("/things")
        assert bool(world.waits) is waited


def test_a_redirect_is_not_asked_for_again() -> None:
    world = World()
    with answering(302, 302, body=[]) as server, rest(server.url, world) as asked:
        with pytest.raises(ProviderDown, match="a redirect, not followed"):
            asked.get("/things")
        assert (len(server.requests), world.waits) == (1, [])


def test_an_answer_that_breaks_off_is_asked_for_again_by_commands_too() -> None:
    world = World()
    with answering(502, 200, body=[]) as server, rest(server.url, world, is_patient=False) as asked:
        assert asked.get("/things") == []
