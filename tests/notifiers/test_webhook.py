"""The webhook: signed as documented, sent once for each event, and nowhere else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from http.server import HTTPServer
from typing import Any

import httpx
import pytest
import respx

from gpuwatch.domain.alerts.alert import event_json
from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.webhook import INFO, WebhookChannel, WebhookSettings
from gpuwatch.ports.hooks import signature
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.checkout import ROOT
from tests.notifiers.alerts import an_alert

URL = "https://hooks.example.org/in?key=1"
SECRET = "a long shared secret"
NOW_S = 1_795_262_400.0
ALERTS_MD = ROOT / "docs" / "alerts.md"
NO_ANSWER = (httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, httpx.ConnectError, httpx.ConnectTimeout)


@pytest.fixture
def channel(http: PooledHttpClient) -> WebhookChannel:
    return opened(http)


def opened(http: PooledHttpClient, unix: Callable[[], float] = lambda: NOW_S) -> WebhookChannel:
    return WebhookChannel(WebhookSettings(url=URL, secret=SECRET), http, unix=unix)


@pytest.fixture
def posted(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.post(URL).respond(204)


def test_an_event_is_one_signed_request_with_its_id_and_kind(channel: WebhookChannel, posted: respx.Route) -> None:
    channel.send(an_alert())
    (call,) = posted.calls
    body = call.request.content
    assert json.loads(body) == json.loads(json.dumps(event_json(an_alert())))
    assert json.loads(body)["facts"]["Threshold"] == "$3.50/GPU-h"
    headers = call.request.headers
    assert {name: text for name, text in headers.items() if name.startswith(("x-", "content-type"))} == {
        "content-type": "application/json",
        "x-gpuwatch-event": an_alert().kind.value,
        "x-gpuwatch-id": "abcdefgh2345",
        "x-gpuwatch-timestamp": "1795262400",
        "x-gpuwatch-signature-256": signature(SECRET, "1795262400", body),
    }


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl judges the signature")
def test_openssl_computes_the_same_signature(channel: WebhookChannel, posted: respx.Route) -> None:
    channel.send(an_alert(headline="größer 😀"))
    request = posted.calls[0].request
    ran = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", SECRET],
        input=request.headers["x-gpuwatch-timestamp"].encode() + b"." + request.content,
        capture_output=True,
        check=True,
    )
    assert request.headers["x-gpuwatch-signature-256"] == "sha256=" + ran.stdout.decode().split()[-1]


def test_a_second_try_has_the_same_id_and_its_own_time(http: PooledHttpClient, posted: respx.Route) -> None:
    moments = iter((NOW_S, NOW_S + 60))
    sending = opened(http, lambda: next(moments))
    sending.send(an_alert())
    sending.send(an_alert())
    first, second = (call.request.headers for call in posted.calls)
    assert first["x-gpuwatch-id"] == second["x-gpuwatch-id"]
    assert int(second["x-gpuwatch-timestamp"]) - int(first["x-gpuwatch-timestamp"]) == 60
    assert first["x-gpuwatch-signature-256"] != second["x-gpuwatch-signature-256"]


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_is_a_refusal_and_is_not_followed(channel: WebhookChannel, posted: respx.Route, status: int) -> None:
    posted.respond(status, headers={"location": "/elsewhere"})
    with pytest.raises(DeliveryRefused, match="redirects are not followed"):
        channel.send(an_alert())
    assert posted.call_count == 1


@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
def test_an_address_that_is_gone_or_locked_is_a_refusal(
    channel: WebhookChannel, posted: respx.Route, status: int
) -> None:
    posted.respond(status)
    with pytest.raises(DeliveryRefused, match=str(status)):
        channel.send(an_alert())


@pytest.mark.parametrize("status", [400, 408, 409, 422, 429, 500, 503])
def test_whatever_may_pass_is_tried_again(channel: WebhookChannel, posted: respx.Route, status: int) -> None:
    posted.respond(status, content=b"long story\nthe disk is full\n")
    with pytest.raises(DeliverLater, match=f"answered {status}: the disk is full") as caught:
        channel.send(an_alert())
    assert caught.value.retry_after_s is None
    assert posted.call_count == 1


@pytest.mark.parametrize("error", NO_ANSWER)
def test_without_an_answer_it_is_tried_later_and_the_address_stays_secret(
    channel: WebhookChannel, posted: respx.Route, error: type[httpx.TransportError]
) -> None:
    """Delivered at least once; one call sends one request."""
    posted.side_effect = error(f"nothing from {URL}")
    with pytest.raises(DeliverLater, match=r"^webhook: hooks\.example\.org: ") as caught:
        channel.send(an_alert())
    assert "key=1" not in str(caught.value)
    assert posted.call_count == 1


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("120", 120.0), (formatdate(NOW_S + 90, usegmt=True), 90.0), (formatdate(NOW_S - 90), 0.0), ("soon", None)],
)
def test_retry_after_is_honoured_as_seconds_and_as_a_date(
    channel: WebhookChannel, posted: respx.Route, header: str, wait_s: float | None
) -> None:
    posted.respond(429, headers={"Retry-After": header})
    with pytest.raises(DeliverLater) as caught:
        channel.send(an_alert())
    assert caught.value.retry_after_s == wait_s


def test_an_endless_answer_is_cut(channel: WebhookChannel, posted: respx.Route) -> None:
    posted.respond(500, content=b"x" * 5_000_000)
    with pytest.raises(DeliverLater) as caught:
        channel.send(an_alert())
    assert len(str(caught.value)) < 400


def test_a_check_sends_no_event(channel: WebhookChannel, respx_mock: respx.MockRouter) -> None:
    asked = respx_mock.head(URL).respond(405)
    assert channel.check() == "hooks.example.org answers"
    assert asked.calls[0].request.content == b""
    asked.respond(410)
    with pytest.raises(DeliveryRefused):
        channel.check()
    asked.respond(502)
    with pytest.raises(DeliverLater):
        channel.check()


@pytest.mark.parametrize(
    "url", ["ftp://h/x", "https://[", "https://h:x/", "https://me:pw@h/x", "hooks.example.org", "https://h/a b", 5]
)
def test_an_address_that_cannot_be_posted_to_is_a_settings_error(url: object) -> None:
    (option,) = (one for one in INFO.options if one.name == "url")
    assert option.parse is not None
    with pytest.raises(ValueError, match="expected an https:// address"):
        option.parse(url)


def test_the_receiver_in_the_documents_takes_what_is_genuine_and_nothing_else(
    http: PooledHttpClient, capsys: pytest.CaptureFixture[str]
) -> None:
    (source,) = re.findall(r"(?ms)^```python\n(.*?)^```$", ALERTS_MD.read_text(encoding="utf-8"))
    documented: dict[str, Any] = {}
    exec(compile(source, "alerts.md", "exec"), documented)
    server = HTTPServer(("127.0.0.1", 0), documented["Receiver"])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/"
    try:
        WebhookChannel(WebhookSettings(url=url, secret=SECRET), http).send(an_alert())
        for secret, age_s in (("another long secret", 0.0), (SECRET, 600.0)):
            sending = WebhookChannel(
                WebhookSettings(url=url, secret=secret), http, unix=lambda age_s=age_s: time.time() - age_s
            )
            with pytest.raises(DeliveryRefused, match="403"):
                sending.send(an_alert())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    printed = capsys.readouterr().out
    assert printed.count("h100-night: H100 SXM × 2 at $3.48/GPU-h") == 1
