"""A signed message to a receiver, verified as docs/hooks.md explains: sent once, whatever the answer."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime

import httpx
import pytest
import respx

from gpuwatch.domain.watches.launch_spec import HookSpec
from gpuwatch.hooks.owner_hooks import post_signed
from gpuwatch.ports.hooks import HookCall, signature
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.secret import Secret

URL = "https://hooks.example.org/hook"
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SECRET = "a long shared secret"
BODY = '{"event":"on_running","launch_id":"abcdefghijkl","watch":"größe"}'


@pytest.fixture
def posted(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.post(URL).respond(204)


def call(secret: str | None = SECRET) -> HookCall:
    spec = HookSpec(url=Secret(URL), secret=Secret(secret) if secret else None)
    return HookCall(spec=spec, event="on_running", body=BODY, at=NOON, timeout_s=10.0)


def test_a_receiver_can_verify_who_sent_it_and_what_and_when(http: PooledHttpClient, posted: respx.Route) -> None:
    assert post_signed(http, call()) is None
    (request,) = (one.request for one in posted.calls)
    timestamp = request.headers["x-gpuwatch-timestamp"]
    expected = hmac.new(SECRET.encode(), timestamp.encode() + b"." + request.content, hashlib.sha256).hexdigest()
    assert request.headers["x-gpuwatch-signature-256"] == f"sha256={expected}"
    assert (request.content.decode(), timestamp) == (BODY, str(int(NOON.timestamp())))
    assert (request.headers["x-gpuwatch-event"], request.headers["content-type"]) == ("on_running", "application/json")


def test_the_signature_is_the_one_that_the_documents_show() -> None:
    """Computed with: printf '1700000000.{}' | openssl dgst -sha256 -hmac secret"""
    worked_out = "b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163"
    assert signature("secret", "1700000000", b"{}") == f"sha256={worked_out}"
    assert signature("secret", "1700000001", b"{}") != signature("secret", "1700000000", b"{}")


def test_without_a_secret_nothing_is_signed(http: PooledHttpClient, posted: respx.Route) -> None:
    assert post_signed(http, call(secret=None)) is None
    assert "x-gpuwatch-signature-256" not in posted.calls[0].request.headers


@pytest.mark.parametrize("status", [400, 403, 500, 503])
def test_a_refusal_is_reported_with_its_last_line(http: PooledHttpClient, posted: respx.Route, status: int) -> None:
    posted.respond(status, content=b"long story\nthe disk is full\n")
    assert post_signed(http, call()) == f"the receiver answered {status}: the disk is full"
    assert posted.call_count == 1


def test_a_redirect_is_not_followed(http: PooledHttpClient, posted: respx.Route) -> None:
    posted.respond(307, headers={"location": "/elsewhere"})
    assert "redirects are not followed" in (post_signed(http, call()) or "")
    assert posted.call_count == 1


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (httpx.ReadTimeout, "no complete answer in time"),
        (httpx.ConnectTimeout, "no connection in time"),
        (httpx.ConnectError, "refused"),
        (httpx.RemoteProtocolError, "refused"),
    ],
)
def test_no_answer_is_one_line_after_one_request(
    http: PooledHttpClient, posted: respx.Route, error: type[httpx.TransportError], text: str
) -> None:
    posted.side_effect = error("refused")
    assert post_signed(http, call()) == f"POST {URL}: {text}"
    assert posted.call_count == 1


def test_secrets_that_a_receiver_echoes_are_blanked(posted: respx.Route) -> None:
    http = PooledHttpClient(secrets=[SECRET])
    posted.respond(500, text=f"bad secret {SECRET}")
    assert post_signed(http, call()) == "the receiver answered 500: bad secret ***"
    http.close()


def test_an_endless_refusal_is_cut(http: PooledHttpClient, posted: respx.Route) -> None:
    posted.respond(500, content=b"x" * 5_000_000)
    assert len(post_signed(http, call()) or "") < 70_000
