"""No secret in any text that passes `redact`."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import closing

import pytest

from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.redaction import redact, register_secret
from gpuwatch.testing.loopback import serving

SECRET = "s3cr3t-Value/with=odd+chars"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdef.ghijkl-123",
        "https://api.telegram.org/bot123456789:AAEabcdefghijklmnopqrstuvwxyz0123456/sendMessage",
        "https://console.vast.ai/api/v0/bundles/?api_key=abcdef.ghijkl-123&q=1",
        '{"instance_api_key": "abcdef.ghijkl-123"}',
        "jupyter_token='abcdef.ghijkl-123'",
        "password: abcdef.ghijkl-123",
        "--refresh-token=abcdef.ghijkl-123",
        "PUT /v1/token=abcdef.ghijkl-123",
        "{'x-token': 'abcdef.ghijkl-123'}",
        "postgresql+psycopg://user:abcdef.ghijkl-123@db/gpuwatch",
        "key 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef was refused",
    ],
)
def test_what_looks_like_a_secret_is_blanked(text: str) -> None:
    shown = redact(text)
    assert "***" in shown
    assert not any(part in shown for part in ("abcdef.ghijkl-123", "AAEabcdef", "0123456789abcdef0123"))


def test_a_known_secret_is_blanked_in_every_spelling() -> None:
    register_secret(SECRET)
    assert "s3cr3t" not in redact(f"plain {SECRET} quoted s3cr3t-Value%2Fwith%3Dodd%2Bchars")


@pytest.mark.parametrize("short", ["train", "secret1", "H100"])
def test_words_under_eight_characters_stay_even_if_somebody_uses_one_as_a_secret(short: str) -> None:
    register_secret(short)
    assert redact(f"watch {short} is active, password={short}") == f"watch {short} is active, password={short}"


def test_a_private_key_is_blanked() -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----"
    assert redact(f"ssh: {key} is no key") == "ssh: *** is no key"


def test_ordinary_text_stays() -> None:
    for text in (
        "vastai: 429 API requests too frequent: endpoint threshold=4.5, H100 SXM ×8 in Washington, US",
        "https://api.example.com/oauth2/token: Server disconnected",
        "/run/keys/refresh-token: No such file or directory",
        'Set ssh_key = "NAME" in [watch.launch]',
        "launch.ssh_key = ~/.ssh/id_ed25519 does not exist",
        'expected a command in quotes, or { url = "https://…", secret = "…" }',
        'set api_key = "${VAST_API_KEY}", or token_file = "/run/keys/t0k3n-file"',
        "send Authorization: Bearer TOKEN",
        "runpod: 401 missing bearer auth",
        "Bearer authentication is required; Basic authentication is not",
        "api_key: rejected by the provider, see https://console.vast.ai/manage-keys/",
        "the API key: not configured",
        "password: required",
    ):
        assert redact(text) == text


def test_a_reply_does_not_show_its_body_or_headers() -> None:
    assert repr(HttpReply(200, {"set-cookie": "x"}, b"secret")) == "HttpReply(200, 6 bytes)"


def test_the_http_package_alone_loads_no_httpx() -> None:
    code = (
        "import sys, gpuwatch.providers.toolkit.http, gpuwatch.providers as p; p.info('vastai');"
        "assert not {'httpx', 'httpcore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("logger", ["httpx", "httpcore", "httpcore.http11"])
def test_httpx_logs_no_addresses_and_headers(logger: str, caplog: pytest.LogCaptureFixture) -> None:
    """At INFO and DEBUG they contain keys, even where a program sets the root logger to DEBUG."""
    caplog.set_level(logging.DEBUG)
    with serving(lambda request, wire: wire.answer(body={})) as server, closing(PooledHttpClient()) as http:
        http.ask("GET", f"{server.url}/?api_key=k1", headers={"Authorization": "Bearer k2"})
    assert caplog.records == []
    assert not logging.getLogger(logger).isEnabledFor(logging.INFO)
