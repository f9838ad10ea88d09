"""A signed message to a receiver on loopback, verified as docs/hooks.md explains."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpuwatch.domain.watches.watch import HookSpec
from gpuwatch.hooks.signed_post import post_signed
from gpuwatch.ports.hooks import HookCall
from gpuwatch.ports.signing import signature
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.secret import Secret
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, Server, serving

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SECRET = "a long shared secret"
BODY = '{"event":"on_running","launch_id":"abcdefghijkl","watch":"größe"}'


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    opened = PooledHttpClient(secrets=[SECRET])
    yield opened
    opened.close()


def call(server: Server, secret: str | None = SECRET, timeout_s: float = 10.0, path: str = "/hook") -> HookCall:
    spec = HookSpec(url=Secret(server.url + path), secret=Secret(secret) if secret else None)
    return HookCall(spec=spec, event="on_running", body=BODY, at=NOON, timeout_s=timeout_s)


def test_a_receiver_can_verify_who_sent_it_and_what_and_when(http: PooledHttpClient) -> None:
    with serving(lambda _, wire: wire.answer(204)) as server:
        assert post_signed(http, call(server)) is None
        (got,) = server.requests
    timestamp = got.headers["x-gpuwatch-timestamp"]
    expected = hmac.new(SECRET.encode(), timestamp.encode() + b"." + got.body, hashlib.sha256).hexdigest()
    assert got.headers["x-gpuwatch-signature-256"] == f"sha256={expected}"
    assert (got.method, got.body.decode(), timestamp) == ("POST", BODY, str(int(NOON.timestamp())))
    assert (got.headers["x-gpuwatch-event"], got.headers["content-type"]) == ("on_running", "application/json")


def test_the_signature_is_the_one_that_the_documents_show() -> None:
    """Computed with: printf '1700000000.{}' | openssl dgst -sha256 -hmac secret"""
    worked_out = "b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163"
    assert signature("secret", "1700000000", b"{}") == f"sha256={worked_out}"
    assert signature("secret", "1700000001", b"{}") != signature("secret", "1700000000", b"{}")


def test_without_a_secret_nothing_is_signed(http: PooledHttpClient) -> None:
    with serving(lambda _, wire: wire.answer(200)) as server:
        assert post_signed(http, call(server, secret=None)) is None
        assert "x-gpuwatch-signature-256" not in server.requests[0].headers


@pytest.mark.parametrize("status", [400, 403, 500, 503])
def test_a_refusal_is_reported_with_its_last_line(http: PooledHttpClient, status: int) -> None:
    with serving(lambda _, wire: wire.answer(status, b"long story\nthe disk is full\n")) as server:
        error = post_signed(http, call(server))
    assert error == f"the receiver answered {status}: the disk is full"


def test_a_redirect_is_not_followed(http: PooledHttpClient) -> None:
    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.answer(307, location="/elsewhere")

    with serving(answer) as server:
        error = post_signed(http, call(server))
        assert [request.path for request in server.requests] == ["/hook"]
    assert "redirects are not followed" in (error or "")


def test_silence_ends_after_its_time(http: PooledHttpClient) -> None:
    with serving(lambda _, wire: None) as server:
        error = post_signed(http, call(server, timeout_s=0.5))
    assert "no complete answer in time" in (error or "")


def test_nobody_there_is_an_error_and_no_exception(http: PooledHttpClient) -> None:
    with serving(lambda _, wire: wire.answer(200)) as server:
        gone = call(server)
    assert post_signed(http, gone)


def test_secrets_that_a_receiver_echoes_are_blanked(http: PooledHttpClient) -> None:
    with serving(lambda _, wire: wire.answer(500, f"bad secret {SECRET}".encode())) as server:
        assert SECRET not in (post_signed(http, call(server)) or "")


def test_an_endless_refusal_is_cut(http: PooledHttpClient) -> None:
    with serving(lambda _, wire: wire.answer(500, b"x" * 5_000_000)) as server:
        error = post_signed(http, call(server))
    assert len(error or "") < 70_000
