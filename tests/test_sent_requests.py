"""Unit tests that answer with respx reach no network, and say what was sent."""

from __future__ import annotations

import pytest
import respx

from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url="https://api.acme.example")


def test_a_request_without_a_route_fails_the_test_even_where_no_route_is_named(http: PooledHttpClient) -> None:
    with pytest.raises(respx.models.AllMockedAssertionError):
        http.ask("GET", "https://api.acme.example/")


def test_method_path_query_and_body_are_what_was_sent(http: PooledHttpClient, respx_mock: respx.MockRouter) -> None:
    respx_mock.route().respond(204)
    http.ask("GET", "https://api.acme.example/pods", params={"q": "a b"})
    http.ask("PUT", "https://api.acme.example/pods/7", json={"name": "x"})
    assert sent(respx_mock.calls) == [("GET", "/pods?q=a+b", None), ("PUT", "/pods/7", {"name": "x"})]
