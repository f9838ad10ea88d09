"""For every failure it is known whether the request was sent: a rent depends on that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gpuwatch.ports.http import NoReply, NotSent
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving
from tests.providers.toolkit.http.faulty_sockets import closed_port

KEY = "0123456789abcdef-secret"


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    http = PooledHttpClient(secrets=[KEY])
    yield http
    http.close()


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        (f"http://127.0.0.1:{closed_port()}/", "/: Connection refused$"),
        ("http://no-such-host.invalid/", "no such host"),
    ],
    ids=["closed port", "unknown host"],
)
def test_what_cannot_be_reached_was_not_sent(http: PooledHttpClient, url: str, reported: str) -> None:
    with pytest.raises(NotSent, match=reported):
        http.ask("PUT", url, json={}, deadline_s=5)


def test_a_closed_client_sends_nothing(http: PooledHttpClient) -> None:
    """A thread of the daemon may still be at work when it closes."""
    http.close()
    with serving(lambda request, wire: wire.answer()) as server:
        with pytest.raises(NotSent, match="closed"):
            http.ask("PUT", server.url + "/", json={})
        assert server.requests == []


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
        b"HTTP/1.1 200 x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 x\r\ncontent-length: -1\r\n\r\nok",
        b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n",
        b"HTTP/1.1 200 x\r\nx-long: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 101 x\r\nupgrade: y\r\nconnection: upgrade\r\n\r\nzzzz",
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


@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_request_on_a_kept_connection_that_the_server_closes_meanwhile_is_not_repeated(
    http: PooledHttpClient, ending: str
) -> None:
    """The server may have carried it out: only the caller knows whether that matters."""

    def answer_once(request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.answer() if request.method == "GET" else getattr(wire, ending)()

    with serving(answer_once) as server:
        http.ask("GET", server.url + "/")
        with pytest.raises(NoReply):
            http.ask("PUT", server.url + "/", json={})
        assert ([request.method for request in server.requests], server.connections) == (["GET", "PUT"], 1)
        assert http.ask("GET", server.url + "/").status == 200


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


def test_a_slash_keeps_the_query_and_the_credentials(http: PooledHttpClient) -> None:
    def slash(request: ReceivedRequest, wire: ReplyWriter) -> None:
        target = "x/?other=1#part"
        wire.answer() if request.path.endswith("/") else wire.answer(308, location=target)

    with serving(slash) as server:
        url = server.url.replace("//", "//me:pass@") + "/x?q=a%2Bb"
        assert http.ask("GET", url, headers={"X-Key": KEY}).status == 200
        first, second = server.requests
        assert second.target == "/x/?q=a%2Bb"
        assert (second.headers, second.headers["x-key"]) == (first.headers, KEY)
        assert second.headers["authorization"].startswith("Basic ")


def test_a_slash_elsewhere_is_not_followed(http: PooledHttpClient) -> None:
    """Another port or scheme of the same host is another server."""
    with serving(lambda request, wire: wire.answer()) as other:
        for target in (f"{other.url}/x/", "https://127.0.0.1/x/", "/x//", "/x", "/y/", "?/"):
            with serving(lambda request, wire, target=target: wire.answer(301, location=target)) as server:
                assert http.ask("GET", server.url + "/x").status == 301
                assert len(server.requests) == 1
        assert other.requests == []


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "location",
    ["http://[::1/", "//\u00ff:x/", "http://xn--zzzzzzzz99/", "http://a\u2100b/", "http://\x01/", "http://[", "//"],
)
def test_a_redirect_to_no_address_is_no_answer(http: PooledHttpClient, location: str, method: str) -> None:
    """httpx reads it although nobody follows it; its exceptions must not get past the client."""
    with serving(lambda request, wire: wire.answer(302, location=location)) as server:
        with suppress(NoReply):
            assert http.ask(method, server.url + "/x").status == 302
        assert len(server.requests) == 1


def test_a_redirect_to_itself_is_followed_no_further(http: PooledHttpClient) -> None:
    with serving(lambda request, wire: wire.answer(301, {}, location=request.path + "/")) as server:
        assert http.ask("GET", server.url + "/x").status == 301
        assert len(server.requests) == 2


def test_no_cookie_is_kept(http: PooledHttpClient) -> None:
    with serving(lambda request, wire: wire.answer(body={}, set_cookie="id=1; Path=/")) as server:
        for _ in range(2):
            http.ask("GET", server.url + "/")
        assert "cookie" not in server.requests[1].headers
