"""How tests replace the network of `PooledHttpClient`: `respx`, without a special transport.

    @respx.mock
    def test_...() -> None:
        respx.get("https://market.example/list", params={"q": "1"}).respond(json={"offers": []})
        respx.put("https://market.example/rent").mock(side_effect=httpx.ReadTimeout)  # sent, no answer: NoReply
        respx.delete("https://market.example/rent").mock(side_effect=httpx.ConnectError)  # NotSent

respx's default mocker replaces the pools of httpcore, below httpx's transport, so everything above them runs: URLs,
headers, redirects, decompression, error classes. A request that no route answers fails the test. The deadline and the
sockets do not run: their tests use real ones (the other files here). The environment's proxies are read, and cannot
matter.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx
import pytest
import respx

from gpuwatch.ports.http import NoReply, NotSent, UnusableReply
from gpuwatch.providers.toolkit.http.client import PooledHttpClient

URL = "https://market.example/x/"


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    http = PooledHttpClient()
    yield http
    http.close()


@respx.mock
def test_a_route_answers_in_place_of_the_server(http: PooledHttpClient) -> None:
    listed = respx.get(URL, params={"q": "1"}).respond(json={"a": 1}, headers={"X-Q": "2"})
    reply = http.ask("GET", URL, params={"q": "1"}, headers={"Authorization": "Bearer k"})
    assert (reply.status, reply.body, reply.headers["x-q"]) == (200, b'{"a":1}', "2")
    assert listed.calls.last.request.headers["authorization"] == "Bearer k"


@respx.mock
def test_answers_come_in_turn_and_bodies_can_be_read(http: PooledHttpClient) -> None:
    route = respx.put(URL).mock(side_effect=[httpx.Response(429, headers={"Retry-After": "7"}), httpx.Response(200)])
    assert [http.ask("PUT", URL, json={"a": 1}).status for _ in range(2)] == [429, 200]
    assert route.calls.last.request.content == b'{"a":1}'


@respx.mock
@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError])
def test_an_error_before_sending_is_not_sent(http: PooledHttpClient, error: type[httpx.TransportError]) -> None:
    respx.put(URL).mock(side_effect=error)
    with pytest.raises(NotSent):
        http.ask("PUT", URL, json={})


@respx.mock
@pytest.mark.parametrize(
    "error", [httpx.ReadTimeout, httpx.ReadError, httpx.WriteTimeout, httpx.WriteError, httpx.RemoteProtocolError]
)
def test_an_error_after_sending_is_no_reply(http: PooledHttpClient, error: type[httpx.TransportError]) -> None:
    respx.put(URL).mock(side_effect=error)
    with pytest.raises(NoReply):
        http.ask("PUT", URL, json={})


@respx.mock
def test_bodies_are_decompressed_and_bounded(http: PooledHttpClient) -> None:
    respx.get(URL).respond(content=gzip.compress(b"x" * 1000), headers={"Content-Encoding": "gzip"})
    assert http.ask("GET", URL).body == b"x" * 1000
    with pytest.raises(UnusableReply):
        http.ask("GET", URL, max_bytes=999)


@respx.mock
def test_what_no_route_answers_fails_the_test(http: PooledHttpClient) -> None:
    with pytest.raises(AssertionError, match="not mocked"):
        http.ask("GET", "https://market.example/y/")


def test_a_transport_can_stand_in() -> None:
    """For a whole simulated day (benchmarks/polling_day.py)."""

    class Echo(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, stream=httpx.ByteStream(request.url.raw_path))

    http = PooledHttpClient(transport=Echo())
    assert http.ask("GET", "https://console.example/y/", params={"q": "1"}).body == b"/y/?q=1"
    http.close()
