"""The sockets below httpx: our backend is in its place, and finds the address of a host that answers."""

from __future__ import annotations

import select
import sys
import time
from contextlib import closing

import httpx
import pytest

from gpuwatch.ports.http import NotSent
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.toolkit.http.wire import Exchange, bind_deadline, open_transport
from gpuwatch.testing.loopback import serving
from tests.loopback_client import NO_CERTIFICATES
from tests.providers.toolkit.http.faulty_sockets import black_hole


@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:9"])
@pytest.mark.parametrize("scheme", [b"http", b"https"])
def test_every_connection_of_httpx_is_opened_by_our_backend(proxy: str | None, scheme: bytes) -> None:
    """httpx has no parameter for it: this fails when httpx or httpcore keeps its backend elsewhere."""
    import httpcore

    with closing(open_transport(NO_CERTIFICATES, proxy)) as transport:
        connection = transport._pool.create_connection(httpcore.Origin(scheme, b"market.example", 443))
        opener = getattr(connection, "_connection", None) or connection  # a proxy's wraps the connection to the proxy
        assert type(opener._network_backend).__module__ == "gpuwatch.providers.toolkit.http.wire"


def _client(*addresses: str) -> PooledHttpClient:
    return PooledHttpClient(transport=open_transport(NO_CERTIFICATES, resolve=lambda host, port: list(addresses)))


@pytest.mark.parametrize("first", ["100::1", "::1", "127.0.0.2"])
def test_the_next_address_is_tried_where_the_first_refuses(first: str) -> None:
    """Such as IPv6 without a route."""
    with serving(lambda request, wire: wire.answer()) as server, closing(_client(first, "127.0.0.1")) as http:
        assert http.ask("PUT", server.url.replace("127.0.0.1", "market.example") + "/", json={}).status == 200


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems queue connections differently")
def test_an_address_that_stays_silent_cannot_use_up_the_deadline() -> None:
    with serving(lambda request, wire: wire.answer()) as server:
        port = int(server.url.rpartition(":")[2])
        with black_hole("127.0.0.2", port), closing(_client("127.0.0.2", "127.0.0.1")) as http:
            assert http.ask("PUT", f"http://market.example:{port}/", json={}, deadline_s=60).status == 200


def test_the_error_of_the_last_address_is_reported() -> None:
    with closing(_client("127.0.0.2", "127.0.0.1")) as http, pytest.raises(NotSent, match="refused"):
        http.ask("PUT", "http://market.example:9/", json={})


def test_an_answer_that_arrives_is_not_taken_for_the_end_of_an_idle_connection() -> None:
    """httpcore's pool asks without a lock: it would close a connection on which another thread waits for its answer."""
    exchange = Exchange(time.monotonic() + 60, time.monotonic)
    with (
        serving(lambda request, wire: (wire.answer(), wire.close())) as server,
        closing(httpx.Client(transport=open_transport(NO_CERTIFICATES))) as client,
        bind_deadline(exchange),
        client.stream("GET", server.url + "/") as response,
    ):
        connection = response.extensions["network_stream"]
        assert select.select([connection.get_extra_info("socket")], [], [], 60)[0]
        assert not connection.get_extra_info("is_readable")
        exchange.is_over = True
        assert connection.get_extra_info("is_readable")
