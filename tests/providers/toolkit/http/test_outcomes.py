"""For every failure it is known whether the request was sent: a rent depends on that."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator

import httpx
import pytest
import respx
import trustme

from gpuwatch import __version__
from gpuwatch.ports.http import NetError, NoReply, NotSent
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving

KEY = "0123456789abcdef-secret"


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    http = PooledHttpClient(secrets=[KEY])
    yield http
    http.close()


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:{_closed_port()}/",
        "http://no-such-host.invalid/",
        "ftp://127.0.0.1/",
        "not an address",
        "http://[::1/",
        "",
    ],
    ids=["closed port", "unknown host", "other scheme", "no address", "half an address", "nothing"],
)
def test_what_cannot_be_reached_was_not_sent(http: PooledHttpClient, url: str) -> None:
    with pytest.raises(NotSent):
        http.ask("PUT", url, json={}, deadline_s=5)


@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_connection_lost_after_the_request_is_no_answer(http: PooledHttpClient, ending: str) -> None:
    with serving(lambda request, wire: getattr(wire, ending)()) as server:
        with pytest.raises(NoReply):
            http.ask("PUT", server.url + "/", json={})
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 banana\r\n\r\n",
    ],
)
def test_a_cut_or_garbled_answer_is_no_answer(http: PooledHttpClient, data: bytes) -> None:
    def cut(request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.raw(data)
        wire.close()

    with serving(cut) as server, pytest.raises(NoReply):
        http.ask("PUT", server.url + "/", json={})


def test_every_status_is_an_answer(http: PooledHttpClient) -> None:
    with serving(lambda request, wire: wire.answer(503, b"<html>", retry_after="7")) as server:
        reply = http.ask("GET", server.url + "/")
    assert (reply.status, reply.headers["retry-after"], reply.body) == (503, "7", b"<html>")


def test_a_kept_connection_that_the_server_closed_is_replaced_before_sending(http: PooledHttpClient) -> None:
    closed = threading.Semaphore(0)

    def answer_and_close(request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.answer(body={})
        wire.close()
        closed.release()

    with serving(answer_and_close) as server:
        for _ in range(3):
            assert http.ask("PUT", server.url + "/", json={}).status == 200
            assert closed.acquire(timeout=30)  # before that it is unknown
        assert (len(server.requests), server.connections) == (3, 3)


def test_a_connection_is_kept(http: PooledHttpClient) -> None:
    with serving(lambda request, wire: wire.answer(body={})) as server:
        for _ in range(3):
            http.ask("GET", server.url + "/")
        assert server.connections == 1


def test_a_request_inside_an_arriving_answer_keeps_both_deadlines(http: PooledHttpClient) -> None:
    """A hunt rents while the rest of the list is still arriving."""
    answered = serving(lambda request, wire: wire.answer(body=b"x" * 500_000))
    with answered as server, http.stream("GET", server.url + "/list") as arriving:
        first = next(arriving.chunks)
        assert http.ask("PUT", server.url + "/rent", json={}).status == 200
        assert len(first) + len(arriving.read()) == 500_000


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:9/x/", "http://169.254.169.254/x/", "/other/", "https://127.0.0.1/x/"]
)
def test_a_redirect_elsewhere_is_not_followed(http: PooledHttpClient, target: str) -> None:
    with serving(lambda request, wire: wire.answer(301, {"offers": []}, location=target)) as server:
        assert http.ask("GET", server.url + "/x").status == 301
        assert len(server.requests) == 1


def test_a_missing_slash_is_added_once_for_a_get(http: PooledHttpClient) -> None:
    def slash(request: ReceivedRequest, wire: ReplyWriter) -> None:
        if request.path.endswith("//") or not request.path.endswith("/"):
            wire.answer(301, {}, location=request.path + "/")
        else:
            wire.answer(body={"asked": request.params})

    with serving(slash) as server:
        assert http.ask("GET", server.url + "/x", params={"q": "1"}).body == b'{"asked": {"q": "1"}}'
        assert http.ask("PUT", server.url + "/x", json={}).status == 301
        assert [request.method for request in server.requests] == ["GET", "GET", "PUT"]


def test_a_redirect_to_itself_is_followed_no_further(http: PooledHttpClient) -> None:
    with serving(lambda request, wire: wire.answer(301, {}, location=request.path + "/")) as server:
        assert http.ask("GET", server.url + "/x").status == 301
        assert len(server.requests) == 2


def test_it_says_who_it_is_and_keeps_no_cookies(http: PooledHttpClient) -> None:
    with serving(lambda request, wire: wire.answer(body={}, set_cookie="id=1; Path=/")) as server:
        for _ in range(2):
            http.ask("GET", server.url + "/")
        assert server.requests[0].headers["user-agent"] == f"gpuwatch/{__version__}"
        assert "cookie" not in server.requests[1].headers


def test_no_error_shows_a_secret(http: PooledHttpClient) -> None:
    with pytest.raises(NetError) as caught:
        http.ask("GET", f"http://127.0.0.1:{_closed_port()}/bot123456:{KEY}/getMe?api_key={KEY}")
    assert KEY not in str(caught.value)


# --- TLS ---------------------------------------------------------------------------------------------------------


def _tls(ca: trustme.CA, name: str, not_after: datetime.datetime | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name, not_after=not_after).configure_cert(context)
    return context


def test_a_trusted_certificate_is_accepted() -> None:
    ca = trustme.CA()
    trusting = ssl.create_default_context()
    ca.configure_trust(trusting)
    http = PooledHttpClient(verify=trusting)
    with serving(lambda request, wire: wire.answer(body={}), tls=_tls(ca, "127.0.0.1")) as server:
        assert http.ask("GET", server.url + "/").status == 200
    http.close()


@pytest.mark.parametrize(
    ("fault", "reported"),
    [("untrusted", "unable to get local issuer"), ("expired", "expired"), ("wrong name", "IP address mismatch")],
)
def test_a_bad_certificate_gets_no_key_and_is_named(fault: str, reported: str) -> None:
    ca = trustme.CA()
    trusting = ssl.create_default_context()
    if fault != "untrusted":
        ca.configure_trust(trusting)
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    context = _tls(ca, "10.9.8.7" if fault == "wrong name" else "127.0.0.1", past if fault == "expired" else None)
    http = PooledHttpClient(verify=trusting)
    with serving(lambda request, wire: wire.answer(body={}), tls=context) as server:
        with pytest.raises(NotSent, match=reported):
            http.ask("PUT", server.url + "/", headers={"Authorization": f"Bearer {KEY}"}, json={})
        assert server.requests == []
    http.close()


# --- the environment ---------------------------------------------------------------------------------------------


def test_a_proxy_of_the_environment_is_obeyed_but_not_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda request, wire: wire.answer(body={"by": "proxy"})) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        http = PooledHttpClient()
        assert http.ask("GET", "http://market.example/list").body == b'{"by": "proxy"}'
        assert proxy.requests[0].target == "http://market.example/list"
        with serving(lambda request, wire: wire.answer(body={"by": "itself"})) as server:
            assert http.ask("GET", server.url + "/").body == b'{"by": "itself"}'
        http.close()


def test_no_proxy_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{_closed_port()}")
    monkeypatch.setenv("no_proxy", "market.invalid")
    http = PooledHttpClient()
    with pytest.raises(NotSent, match="no such host"):
        http.ask("GET", "http://market.invalid/")
    http.close()


# --- respx -------------------------------------------------------------------------------------------------------


@respx.mock
def test_respx_can_stand_in(http: PooledHttpClient) -> None:
    """No special transport: respx replaces the pools of httpcore, below httpx. Errors are httpx's classes."""
    listed = respx.get("https://console.example/x/", params={"q": "1"}).respond(json={"a": 1}, headers={"x-Q": "2"})
    respx.put("https://console.example/x/").mock(side_effect=httpx.ConnectTimeout)
    respx.delete("https://console.example/x/").mock(side_effect=httpx.ReadTimeout)
    reply = http.ask("GET", "https://console.example/x/", params={"q": "1"}, headers={"Authorization": "Bearer k"})
    assert (reply.status, reply.body, reply.headers["x-q"]) == (200, b'{"a":1}', "2")
    assert listed.calls.last.request.headers["authorization"] == "Bearer k"
    with pytest.raises(NotSent, match="no connection in time"):
        http.ask("PUT", "https://console.example/x/", json={})
    with pytest.raises(NoReply, match="no complete answer in time"):
        http.ask("DELETE", "https://console.example/x/", json={})


@respx.mock
def test_respx_refuses_what_no_route_answers(http: PooledHttpClient) -> None:
    with pytest.raises(AssertionError, match="not mocked"):
        http.ask("GET", "https://console.example/y/")
