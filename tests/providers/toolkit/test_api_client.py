"""Requests over HTTP: reads are retried within their time, changes are sent once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import httpx
import pytest
import respx

from gpuwatch.errors import (
    KeyRejected,
    OrderRateLimited,
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
from gpuwatch.redaction import register_secret
from gpuwatch.testing.faults import STATUSES, UNREADABLE, ServerFault
from gpuwatch.testing.suite import case
from tests.clocks import Clock
from tests.sent_requests import sent

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEY = "a-key-of-acme-4711"
URL = "https://api.acme.example/v1"
pytestmark = pytest.mark.respx(base_url=URL)
MakeClient = Callable[..., ApiClient]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(http: PooledHttpClient, clock: Clock) -> MakeClient:
    """Build the client of an account; `options`: of `ApiClient`."""

    def make(
        key: str | None = KEY,
        interval_s: float = 0.0,
        is_patient: bool = True,
        stop: threading.Event | None = None,
        **options: Any,
    ) -> ApiClient:
        settings = ProviderSettings(
            name="acme",
            base_url=f"{URL}/",
            api_key=key,
            search_interval_s=interval_s,
            timeout_s=30.0,
        )
        tools = Tools(
            http=http, now=lambda: NOW, monotonic=clock, sleep=clock.sleep, stop=stop or threading.Event(),
            is_patient=is_patient,
        )  # fmt: skip
        return ApiClient(settings, tools, **options)

    return make


def statuses(*codes: int) -> list[httpx.Response]:
    return [httpx.Response(code, json={}) for code in codes]


def test_a_question_carries_the_key_its_parameters_and_asks_for_json(
    respx_mock: respx.MockRouter, client: MakeClient
) -> None:
    respx_mock.get("/things").respond(json={"a": 1})
    respx_mock.post("/graph").respond(json={"a": 2})
    asked = client()
    assert asked.get("/things", {"q": "x y"}) == {"a": 1}
    assert asked.query("/graph", {"query": "{ me }"}) == {"a": 2}
    assert sent(respx_mock.calls) == [
        ("GET", "/v1/things?q=x+y", None),
        ("POST", "/v1/graph", {"query": "{ me }"}),
    ]
    for call in respx_mock.calls:
        assert call.request.headers["authorization"] == f"Bearer {KEY}"
        assert call.request.headers["accept"] == "application/json"


def test_other_headers_stand_instead_of_the_bearer(respx_mock: respx.MockRouter, client: MakeClient) -> None:
    route = respx_mock.get("/").respond(json={})
    client(headers={"X-Key": "1"}).get("/")
    assert route.calls.last.request.headers["x-key"] == "1"
    assert "authorization" not in route.calls.last.request.headers


@pytest.mark.respx
@pytest.mark.parametrize(("headers", "name"), [(None, "authorization"), ({"X-Key": KEY}, "x-key")])
def test_the_key_does_not_follow_a_link_to_another_host(
    respx_mock: respx.MockRouter, client: MakeClient, headers: Mapping[str, str] | None, name: str
) -> None:
    home = respx_mock.get(f"{URL}/next").respond(json={})
    elsewhere = respx_mock.route(host="elsewhere.example").respond(json={})
    asked = client(headers=headers)
    asked.get(f"{URL}/next")
    asked.get("https://elsewhere.example/next")
    asked.order("POST", "https://elsewhere.example/order")
    assert KEY in home.calls.last.request.headers[name]
    assert [name in call.request.headers for call in elsewhere.calls] == [False, False]


@pytest.mark.parametrize("url", ["{home}.evil.example/x", "{home}@evil.example/x"])
def test_what_only_begins_like_home_is_not_home(client: MakeClient, url: str) -> None:
    assert client()._headers_for(url.format(home="https://api.acme.example")) == {}


def test_what_reads_is_asked_up_to_three_times(respx_mock: respx.MockRouter, client: MakeClient, clock: Clock) -> None:
    respx_mock.get("/a").mock(side_effect=statuses(500, 503, 200))
    down = respx_mock.get("/b").respond(500)
    assert client().get("/a") == {}
    assert len(clock.slept) == 2
    with pytest.raises(ProviderDown):
        client().get("/b")
    assert down.call_count == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(401), KeyRejected),
        (httpx.Response(404), PayloadChanged),
        (httpx.Response(200, html="<p>maintenance</p>"), PayloadChanged),
        (httpx.Response(200, content=b'{"a": [1, 2'), PayloadChanged),
        (httpx.Response(200), PayloadChanged),
    ],
    ids=["key", "path", "html", "cut", "empty"],
)
def test_what_asking_again_does_not_help_is_asked_once(
    respx_mock: respx.MockRouter, client: MakeClient, answer: httpx.Response, error: type[Exception]
) -> None:
    route = respx_mock.get("/").mock(return_value=answer)
    with pytest.raises(error):
        client().get("/")
    assert route.call_count == 1


LOST = (
    (httpx.ConnectError("refused"), ProviderUnreachable, OrderRefused),  # nothing was sent
    (httpx.ConnectTimeout("silent"), ProviderUnreachable, OrderRefused),
    (httpx.ReadTimeout("silent"), ProviderDown, OutcomeUnknown),  # it may have been carried out
    (httpx.ReadError("reset"), ProviderDown, OutcomeUnknown),
    (httpx.RemoteProtocolError("no HTTP"), ProviderDown, OutcomeUnknown),
)


def answer_of(fault: ServerFault) -> httpx.Response:
    return httpx.Response(fault.status, content=fault.body, headers={"retry-after": "7"})


def test_a_question_without_a_usable_answer_says_what_is_wrong(
    respx_mock: respx.MockRouter, client: MakeClient
) -> None:
    no_json = [fault for fault in UNREADABLE if fault.name.endswith(("nothing", "page", "half an object", "no UTF-8"))]
    cases = [(answer_of(fault), fault.reading) for fault in (*STATUSES, *no_json)]
    for answer, error in (*cases, *((lost, reading) for lost, reading, _ in LOST)):
        respx_mock.get("/").mock(side_effect=repeat(answer))
        with case(repr(answer)), pytest.raises(error) as raised:
            client().get("/")
        assert len(str(raised.value).splitlines()) == 1
        assert getattr(raised.value, "retry_after_s", 7.0) == 7.0


def test_the_wait_that_the_provider_asks_for_is_kept(
    respx_mock: respx.MockRouter, client: MakeClient, clock: Clock
) -> None:
    respx_mock.get("/").mock(side_effect=[httpx.Response(429, headers={"retry-after": "20"}), *statuses(200)])
    assert client().get("/") == {}
    assert 20 <= clock.slept[0] <= 29


def test_a_long_wait_is_the_next_polls_business(respx_mock: respx.MockRouter, client: MakeClient) -> None:
    route = respx_mock.get("/").respond(429, headers={"retry-after": "600"})
    with pytest.raises(RateLimited) as limited:
        client().get("/")
    assert (limited.value.retry_after_s, route.call_count) == (600.0, 1)


def test_time_that_answers_took_is_taken_from_the_next_attempt(
    respx_mock: respx.MockRouter, client: MakeClient, clock: Clock
) -> None:
    def slow(_: httpx.Request) -> httpx.Response:
        clock.seconds += 29.5
        return httpx.Response(500)

    route = respx_mock.get("/").mock(side_effect=slow)
    with pytest.raises(ProviderDown):
        client().get("/")
    assert route.call_count == 1


def test_questions_of_a_class_keep_their_distance_and_others_do_not_wait(
    respx_mock: respx.MockRouter, client: MakeClient, clock: Clock
) -> None:
    respx_mock.get("/").respond(json={})
    asked, began_s = client(interval_s=6.0, intervals_s={"list": 1.0}), clock()
    asked.get("/")
    asked.get("/", kind="list")
    assert clock() == began_s
    asked.get("/")
    assert clock() == pytest.approx(began_s + 6.0)


def test_an_own_reading_says_what_a_status_means(respx_mock: respx.MockRouter, client: MakeClient) -> None:
    def reading(name: str, reported: Any, reply: Any, now: datetime) -> ProviderError:
        return KeyRejected(f"{name}: {reported.status} at {now:%H}")

    respx_mock.get("/").respond(418)
    with pytest.raises(KeyRejected, match="418 at 12"):
        client(reading=reading).get("/")


def test_every_answer_is_heard_whatever_its_status(respx_mock: respx.MockRouter, client: MakeClient) -> None:
    respx_mock.get("/").mock(side_effect=statuses(500, 200))
    respx_mock.post("/").respond(409)
    on_reply: list[tuple[int, str]] = []
    asked = client()
    asked.on_reply = lambda reply, kind: on_reply.append((reply.status, kind))  # type: ignore[method-assign]
    asked.get("/")
    with pytest.raises(OrderRefused):
        asked.order("POST", "/")
    assert on_reply == [(500, "search"), (200, "search"), (409, "order")]


@pytest.mark.parametrize(("is_patient", "attempts"), [(False, 1), (True, 3)])
def test_a_server_without_a_connection_is_tried_again_by_the_daemon_and_not_by_a_command(
    respx_mock: respx.MockRouter, client: MakeClient, is_patient: bool, attempts: int
) -> None:
    route = respx_mock.get("/").mock(side_effect=httpx.ConnectError("refused"))
    with pytest.raises(ProviderUnreachable):
        client(is_patient=is_patient).get("/")
    assert route.call_count == attempts


@pytest.mark.parametrize(
    "failure", [httpx.Response(502), httpx.ReadTimeout("silent"), httpx.RemoteProtocolError("cut")], ids=repr
)
def test_an_answer_that_breaks_off_is_asked_for_again_by_commands_too(
    respx_mock: respx.MockRouter, client: MakeClient, failure: httpx.Response | Exception
) -> None:
    respx_mock.get("/").mock(side_effect=[failure, httpx.Response(200, json=[])])
    assert client(is_patient=False).get("/") == []


def test_a_redirect_is_not_asked_for_again(respx_mock: respx.MockRouter, client: MakeClient) -> None:
    route = respx_mock.get("/things").respond(302, json=[])
    with pytest.raises(ProviderDown, match="a redirect, not followed"):
        client().get("/things")
    assert route.call_count == 1


# --- orders ----------------------------------------------------------------------------------------------------------


def test_an_order_is_sent_with_its_body_and_answered(respx_mock: respx.MockRouter, client: MakeClient) -> None:
    respx_mock.post("/pods").respond(201, json={"id": "7"})
    respx_mock.delete("/pods/7").respond(204)
    assert client().order("POST", "/pods", {"name": "x"}).status == 201
    assert client().order("DELETE", "/pods/7").status == 204
    assert sent(respx_mock.calls) == [("POST", "/v1/pods", {"name": "x"}), ("DELETE", "/v1/pods/7", None)]
    assert respx_mock.calls[0].request.headers["content-type"] == "application/json"


def test_an_order_is_sent_once_and_its_error_says_whether_it_may_have_been_carried_out(
    respx_mock: respx.MockRouter, client: MakeClient
) -> None:
    for answer, error in (
        *((answer_of(fault), fault.ordering) for fault in STATUSES),
        *((lost, ordering) for lost, _, ordering in LOST),
    ):
        respx_mock.reset()
        route = respx_mock.post("/pods").mock(side_effect=repeat(answer))
        with case(repr(answer)), pytest.raises(error) as raised:
            client().order("POST", "/pods", {})
        assert (route.call_count, len(str(raised.value).splitlines())) == (1, 1)
        assert getattr(raised.value, "retry_after_s", 7.0) == 7.0
        is_not_sent = getattr(raised.value, "kind", None) is RefusalKind.NOT_SENT
        assert is_not_sent == isinstance(answer, httpx.ConnectError | httpx.ConnectTimeout)


def test_orders_of_a_class_that_was_refused_wait_as_long_as_the_answer_says(
    respx_mock: respx.MockRouter, client: MakeClient, clock: Clock
) -> None:
    respx_mock.post("/pods").mock(side_effect=[httpx.Response(429, headers={"retry-after": "7"}), *statuses(201)])
    asked = client(intervals_s={"order": 1.0})
    with pytest.raises(OrderRateLimited) as limited:
        asked.order("POST", "/pods", {})
    assert limited.value.retry_after_s == 7.0
    began_s = clock()
    asked.order("POST", "/pods", {})
    assert clock() - began_s >= 7.0


@pytest.mark.parametrize("changes", [True, False])
def test_whoever_is_stopping_waits_for_no_turn_and_sends_nothing(
    respx_mock: respx.MockRouter, client: MakeClient, changes: bool
) -> None:
    route, stop = respx_mock.get("/").respond(json={}), threading.Event()
    asked = client(interval_s=5.0, stop=stop)
    asked.get("/")
    stop.set()
    with pytest.raises(OrderRefused if changes else ProviderDown, match="stopping") as refused:
        asked.order("POST", "/pods", {}, kind="search") if changes else asked.get("/")
    assert getattr(refused.value, "kind", RefusalKind.NOT_SENT) is RefusalKind.NOT_SENT
    assert route.call_count == 1


def test_without_a_key_nothing_is_sent_that_needs_one(respx_mock: respx.MockRouter, client: MakeClient) -> None:
    route, asked = respx_mock.get("/").respond(json={}), client(key=None)
    with pytest.raises(KeyRejected, match=r"\[providers.acme\]"):
        asked.require_key()
    asked.get("/")
    assert "authorization" not in route.calls.last.request.headers


def test_no_error_shows_the_key(respx_mock: respx.MockRouter, client: MakeClient) -> None:
    register_secret(KEY)
    for method in ("GET", "POST"):
        respx_mock.request(method, "/").respond(400, json={"error": f"no such key {KEY}"})
    with pytest.raises(ProviderError) as asking:
        client().get("/")
    with pytest.raises(OrderRefused) as ordering:
        client().order("POST", "/")
    assert KEY not in f"{asking.value} {ordering.value}"


# --- shared state of several queries ----------------------------------------------------------------------------------


def test_what_was_fetched_is_shared_until_it_is_old() -> None:
    clock, fetched = Clock(0.0), list[int]()
    kept = TtlCache[int](5.0, clock)

    def fetch() -> int:
        fetched.append(len(fetched))
        return fetched[-1]

    assert [kept.get(fetch), kept.get(fetch)] == [0, 0]
    assert kept.get(fetch, key="other") == 1
    clock.seconds = 5.1
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
