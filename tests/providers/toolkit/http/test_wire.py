"""The sockets below httpx: our backend is in its place, and every wait there ends at the deadline."""

from __future__ import annotations

import ssl
from contextlib import closing

import pytest

from gpuwatch.providers.toolkit.http.wire import open_transport

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:9"])
@pytest.mark.parametrize("scheme", [b"http", b"https"])
def test_every_connection_of_httpx_is_opened_by_our_backend(proxy: str | None, scheme: bytes) -> None:
    """httpx has no parameter for it: this fails when httpx or httpcore keeps its backend elsewhere."""
    import httpcore

    with closing(open_transport(NO_CERTIFICATES, proxy)) as transport:
        connection = transport._pool.create_connection(httpcore.Origin(scheme, b"market.example", 443))
        opener = getattr(connection, "_connection", None) or connection  # a proxy's wraps the connection to the proxy
        assert type(opener._network_backend).__module__ == "gpuwatch.providers.toolkit.http.wire"
