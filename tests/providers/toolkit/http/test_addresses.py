"""What a request says on the wire, and which addresses and headers are refused before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from gpuwatch import __version__
from gpuwatch.ports.http import NetError, NotSent
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.toolkit.http.wire import open_transport
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, Server, serving
from tests.loopback_client import NO_CERTIFICATES
from tests.providers.toolkit.http.faulty_sockets import closed_port

KEY = "0123456789abcdef-secret"


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    http = PooledHttpClient(secrets=[KEY])
    yield http
    http.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(lambda request, wire: wire.answer(body=b"")) as server:
        yield server


def test_it_says_who_it_is_and_what_it_reads(http: PooledHttpClient, server: Server) -> None:
    http.ask("PUT", server.url + "/a", json={"n": None, "text": "ü"})
    request = server.requests[0]
    assert request.headers == {
        "host": server.url.removeprefix("http://"),
        "user-agent": f"gpuwatch/{__version__}",
        "accept": "application/json",
        "accept-encoding": "gzip, deflate",
        "connection": "keep-alive",
        "content-type": "application/json",
        "content-length": str(len(request.body)),
    }
    assert request.json == {"n": None, "text": "ü"}


@pytest.mark.parametrize(("method", "length"), [("GET", None), ("DELETE", None), ("POST", "0"), ("PUT", "0")])
def test_a_request_without_a_body_says_so(http: PooledHttpClient, server: Server, method: str, length: str) -> None:
    http.ask(method, server.url + "/")
    assert server.requests[0].headers.get("content-length") == length


def test_content_is_sent_unchanged_with_its_own_type(http: PooledHttpClient, server: Server) -> None:
    http.ask("POST", server.url + "/", content=b"\x00\xff", headers={"Content-Type": "image/png"})
    assert (server.requests[0].body, server.requests[0].headers["content-type"]) == (b"\x00\xff", "image/png")


def test_params_are_the_query_and_empty_ones_keep_the_query_of_the_address(
    http: PooledHttpClient, server: Server
) -> None:
    http.ask("GET", server.url + "/a b/ü?x=1#part", params={"q": "a b+c", "ü": "é&"})
    http.ask("GET", server.url + "/a?x=1", params={})
    http.ask("GET", server.url + "?api_key=a%2Bb")
    assert [request.target for request in server.requests] == [
        "/a%20b/%C3%BC?q=a+b%2Bc&%C3%BC=%C3%A9%26",
        "/a?x=1",
        "/?api_key=a%2Bb",
    ]


def test_the_user_of_an_address_is_sent_and_never_shown(http: PooledHttpClient, server: Server) -> None:
    http.ask("GET", server.url.replace("//", "//me:t%C3%B6p@") + "/x")
    assert server.requests[0].headers["authorization"] == "Basic bWU6dMO2cA=="
    with pytest.raises(NotSent) as caught:
        http.ask("GET", f"http://me:t%C3%B6p@127.0.0.1:{closed_port()}/x?key=geheim")
    assert not [part for part in ("me", "t%C3", "töp", "geheim", "?") if part in str(caught.value).partition("]")[0]]


def test_no_error_shows_a_secret(http: PooledHttpClient) -> None:
    with pytest.raises(NetError) as caught:
        http.ask("GET", f"http://127.0.0.1:{closed_port()}/bot123456:{KEY}/getMe?api_key={KEY}")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "HTTP"])
def test_an_ipv6_address_is_reached(http: PooledHttpClient, scheme: str) -> None:
    with serving(lambda request, wire: wire.answer(body=b"v6"), host="::1") as server:
        assert http.ask("GET", server.url.replace("http", scheme) + "/").body == b"v6"
        assert server.requests[0].headers["host"] == server.url.removeprefix("http://")


@pytest.mark.parametrize(
    ("host", "wired"),
    [
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("stra\u00dfe.example", "xn--strae-oqa.example"),  # IDNA 2008; that of 2003 would ask for strasse.example
        ("\u30c9\u30e1\u30a4\u30f3.example", "xn--eckwd4c7c.example"),
        ("MARKET.example", "market.example"),
    ],
)
def test_a_host_is_resolved_and_named_in_ascii(server: Server, host: str, wired: str) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    port = server.url.rpartition(":")[2]
    transport = open_transport(NO_CERTIFICATES, resolve=resolve)
    with closing(PooledHttpClient(transport=transport)) as http:
        assert http.ask("GET", f"http://{host}:{port}/").status == 200
    assert (asked, server.requests[0].headers["host"]) == ([wired], f"{wired}:{port}")


@pytest.mark.parametrize(
    "url",
    [
        "", "not an address", "market.example", "//market.example/", "ftp://127.0.0.1/", "http://", "http:///x",
        "http://[::1/", "http://[fe80::zz]/", "http://a:x/", "http://127.0.0.1:65536/", "http://127.0.0.1:-1/",
        "http://999.1.1.1/", "http://\u2100.example/", "http://xn--zzzzzzzz99/", "http://a\x00b/", "http://a/\r\nx: y",
        "http://127.0.0.1/\t", "http://127.0.0.1/" + "x" * 70_000,
    ],
)  # fmt: skip
def test_what_is_no_address_is_not_sent(http: PooledHttpClient, url: str) -> None:
    with pytest.raises(NotSent, match="not a usable address"):
        http.ask("PUT", url, json={})


@pytest.mark.parametrize(
    ("name", "value"),
    [("x", f"{KEY}\n"), ("x", f"a\r\nb: {KEY}"), ("x", f" {KEY}"), ("x", "a\x00b"), ("x y", KEY), ("x", f"ü{KEY}")],
)
def test_a_header_that_http_forbids_is_not_sent_and_not_shown(
    http: PooledHttpClient, server: Server, name: str, value: str
) -> None:
    with pytest.raises(NotSent) as caught:
        http.ask("PUT", server.url + "/", headers={name: value}, json={})
    assert (server.requests, KEY in str(caught.value)) == ([], False)
    assert http.ask("PUT", server.url + "/", json={}).status == 200


def test_a_body_that_json_does_not_know_is_not_sent(http: PooledHttpClient, server: Server) -> None:
    for body in (object(), {"a": float("nan")}, "\ud800"):
        with pytest.raises(NotSent):
            http.ask("PUT", server.url + "/", json=body)
    assert server.requests == []


# --- what an answer may look like -------------------------------------------------------------------------------------


@contextmanager
def _answering(data: bytes) -> Iterator[Server]:
    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.raw(data)
        wire.close()

    with serving(answer) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "data", "status", "body"),
    [
        ("GET", b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nlink: x\r\n\r\nHTTP/1.1 200 x\r\n\r\nok", 200, b"ok"),
        ("GET", b"HTTP/1.1 204 x\r\n\r\n", 204, b""),
        ("GET", b"HTTP/1.1 304 x\r\ncontent-length: 5\r\n\r\n", 304, b""),
        ("HEAD", b"HTTP/1.1 200 x\r\ncontent-length: 5\r\n\r\n", 200, b""),
        ("GET", b"HTTP/1.0 200 x\r\n\r\nuntil the end", 200, b"until the end"),
        ("GET", b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-t: 1\r\n\r\n", 200, b"ok"),
        ("GET", b"HTTP/1.1 599\r\ncontent-length: 0\r\n\r\n", 599, b""),
    ],
    ids=["interim answers", "204", "304", "HEAD", "HTTP/1.0", "trailers", "no reason"],
)
def test_an_answer_of_another_form_is_read(
    http: PooledHttpClient, method: str, data: bytes, status: int, body: bytes
) -> None:
    with _answering(data) as server:
        reply = http.ask(method, server.url + "/")
        assert (reply.status, reply.body) == (status, body)


def test_repeated_headers_are_joined_and_others_than_ascii_are_read(http: PooledHttpClient) -> None:
    head = "HTTP/1.1 200 x\r\nX-A: b\u00fccher\r\nx-a: c\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\r\n"
    for encoding in ("utf-8", "latin-1"):
        with _answering(head.encode(encoding)) as server:
            headers = http.ask("GET", server.url + "/").headers
            assert headers == {"x-a": "b\u00fccher, c", "set-cookie": "a=1, b=2"}
