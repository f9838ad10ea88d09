"""The webhook: signed as documented, sent once for each event, and nowhere else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.webhook import INFO, WebhookChannel, WebhookSettings
from gpuwatch.ports.event_json import event_json
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, Server, serving
from tests.notifiers.alerts import an_alert

SECRET = "a long shared secret"
NOW_S = 1_795_262_400.0
ALERTS_MD = Path(__file__).parents[2] / "docs" / "alerts.md"


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    opened = PooledHttpClient()
    yield opened
    opened.close()


def channel(server: Server, http: PooledHttpClient, unix: Callable[[], float] = lambda: NOW_S) -> WebhookChannel:
    return WebhookChannel(WebhookSettings(url=server.url + "/in?key=1", secret=SECRET), http, unix=unix)


def answering(status: int, body: bytes = b"", **headers: str) -> Callable[[ReceivedRequest, ReplyWriter], None]:
    return lambda _, wire: wire.answer(status, body, **headers)


def test_an_event_is_posted_whole_with_its_id_and_kind(http: PooledHttpClient) -> None:
    with serving(answering(204)) as server:
        channel(server, http).send(an_alert())
        (got,) = server.requests
    assert (got.method, got.path, got.params) == ("POST", "/in", {"key": "1"})
    assert json.loads(got.body) == json.loads(json.dumps(event_json(an_alert())))
    assert json.loads(got.body)["facts"]["Threshold"] == "$3.50 per GPU-hour"
    assert got.headers["x-gpuwatch-id"] == "abcdefgh2345"
    assert got.headers["x-gpuwatch-event"] == an_alert().kind.value
    assert got.headers["content-type"] == "application/json"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl judges the signature")
def test_openssl_computes_the_same_signature(http: PooledHttpClient) -> None:
    with serving(answering(204)) as server:
        channel(server, http).send(an_alert(headline="größer 😀"))
        (got,) = server.requests
    timestamp = got.headers["x-gpuwatch-timestamp"]
    assert timestamp == str(int(NOW_S))
    ran = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", SECRET],
        input=timestamp.encode() + b"." + got.body,
        capture_output=True,
        check=True,
    )
    assert got.headers["x-gpuwatch-signature-256"] == "sha256=" + ran.stdout.decode().split()[-1]


def test_a_second_try_has_the_same_id_and_its_own_time(http: PooledHttpClient) -> None:
    moments = iter((NOW_S, NOW_S + 60))
    with serving(answering(204)) as server:
        sending = channel(server, http, lambda: next(moments))
        sending.send(an_alert())
        sending.send(an_alert())
        first, second = (request.headers for request in server.requests)
    assert first["x-gpuwatch-id"] == second["x-gpuwatch-id"]
    assert int(second["x-gpuwatch-timestamp"]) - int(first["x-gpuwatch-timestamp"]) == 60
    assert first["x-gpuwatch-signature-256"] != second["x-gpuwatch-signature-256"]


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_is_a_refusal_and_is_not_followed(http: PooledHttpClient, status: int) -> None:
    with serving(answering(status, location="/elsewhere")) as server:
        with pytest.raises(DeliveryRefused, match="redirects are not followed"):
            channel(server, http).send(an_alert())
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
def test_an_address_that_is_gone_or_locked_is_a_refusal(http: PooledHttpClient, status: int) -> None:
    with serving(answering(status)) as server, pytest.raises(DeliveryRefused, match=str(status)):
        channel(server, http).send(an_alert())


@pytest.mark.parametrize("status", [400, 408, 409, 422, 429, 500, 503])
def test_whatever_may_pass_is_tried_again(http: PooledHttpClient, status: int) -> None:
    with (
        serving(answering(status, b"long story\nthe disk is full\n")) as server,
        pytest.raises(DeliverLater, match=f"answered {status}: the disk is full") as caught,
    ):
        channel(server, http).send(an_alert())
    assert caught.value.retry_after_s is None


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("120", 120.0), (formatdate(NOW_S + 90, usegmt=True), 90.0), (formatdate(NOW_S - 90), 0.0), ("soon", None)],
)
def test_retry_after_is_honoured_as_seconds_and_as_a_date(
    http: PooledHttpClient, header: str, wait_s: float | None
) -> None:
    with serving(answering(429, **{"Retry-After": header})) as server, pytest.raises(DeliverLater) as caught:
        channel(server, http).send(an_alert())
    assert caught.value.retry_after_s == wait_s


def test_an_endless_answer_is_cut(http: PooledHttpClient) -> None:
    with serving(answering(500, b"x" * 5_000_000)) as server, pytest.raises(DeliverLater) as caught:
        channel(server, http).send(an_alert())
    assert len(str(caught.value)) < 400


def test_a_check_sends_no_event(http: PooledHttpClient) -> None:
    with serving(answering(405)) as server:
        assert channel(server, http).check() == "127.0.0.1 answers"
        assert [request.method for request in server.requests] == ["HEAD"]
    with serving(answering(410)) as server, pytest.raises(DeliveryRefused):
        channel(server, http).check()
    with serving(answering(502)) as server, pytest.raises(DeliverLater):
        channel(server, http).check()


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
    assert printed.count("h100-night: H100 SXM × 2 at $3.48 per GPU-hour") == 1
