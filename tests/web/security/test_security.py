"""The security of the web page, line by line."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwatch.errors import SettingsError
from gpuwatch.web.request_guard import HEADERS, MAX_BODY_BYTES
from gpuwatch.web.security.credentials import COOKIE, MAX_FAILURES_PER_CLIENT, hash_password
from tests import loopback_client
from tests.web.served import PAGE, TOKEN, Served, served, settings_in

PASSWORD = "correct horse battery"
LISTS = ("offers", "watches", "launches", "approvals", "alerts", "providers", "costs", "history", "jobs")
READ, APPROVE, MANAGE = (f"{scope}-{TOKEN}" for scope in ("read", "approve", "manage"))
TOKENS = (
    "tokens = ["
    + ", ".join(
        f'{{ name = "{scope}", token = "{scope}-{TOKEN}", scopes = ["{scope}"] }}'
        for scope in ("read", "approve", "manage")
    )
    + "]"
)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = dict(answer.json())
    assert found["status"] == status
    assert found["detail"]
    return found


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found


@cache
def _hashed() -> str:
    """A hash takes 0.1 s."""
    return hash_password(PASSWORD)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Served]:
    """With a password and tokens."""
    with served(tmp_path, f'password_hash = "{_hashed()}"\n{TOKENS}') as found:
        yield found


# --- read and change access -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_on_loopback_reading_is_open(plain: Served, name: str) -> None:
    answer = plain.client.get(f"/api/v1/{name}")
    assert answer.status_code == 200
    assert set(answer.json()) >= {"items", "next"}


def test_changing_needs_the_one_time_code_and_its_csrf_token(plain: Served) -> None:
    assert_problem(plain.client.post("/api/v1/pause"), 401)
    csrf = plain.log_in()
    assert_problem(plain.client.post("/api/v1/pause"), 403)
    assert_problem(plain.client.post("/api/v1/pause", headers={"X-CSRF-Token": "wrong"}), 403)
    assert plain.client.post("/api/v1/pause", headers={"X-CSRF-Token": csrf}).status_code == 200


def test_a_code_is_taken_once(plain: Served) -> None:
    (first,) = plain.codes
    plain.log_in()
    assert len(plain.codes) == 2
    assert_problem(loopback_client.request("POST", f"{plain.url}/api/v1/session", json={"code": first}), 401)
    plain.log_in()


@pytest.mark.parametrize(
    "path", ["/", "/login/x", "/static", "/metrics", "/api/v1/openapi.json", "/api/v1/events", "/x"]
)
def test_with_a_password_everything_but_the_health_needs_it(locked: Served, path: str) -> None:
    assert_problem(locked.client.get(path), 401)
    assert locked.client.get("/healthz").status_code == 200


@pytest.mark.parametrize("name", LISTS)
def test_with_a_password_every_list_needs_it(locked: Served, name: str) -> None:
    answer = locked.client.get(f"/api/v1/{name}")
    assert_problem(answer, 401)
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert locked.client.get(f"/api/v1/{name}", headers=bearer(READ)).status_code == 200


def test_a_browser_gets_the_page_to_log_in(locked: Served) -> None:
    answer = locked.client.get("/", headers=PAGE)
    assert answer.status_code == 401
    assert 'name="password"' in answer.text
    assert "error" not in answer.text, "a first visit is no error"
    assert "Bearer" not in answer.text
    wrong = locked.client.post("/login", data={"password": "wrong"}, headers=PAGE)
    assert "Wrong password; 4 tries left in 5\N{NO-BREAK SPACE}min." in wrong.text
    assert 'aria-invalid="true"' in wrong.text
    ended = locked.client.get("/", headers=PAGE | {"Cookie": f"{COOKIE}=of-a-session-that-is-over"})
    assert "Your session has ended" in ended.text
    assert "error" not in ended.text
    linked = locked.client.get("/market?gpu=H100&offer=%22x", headers=PAGE)
    assert 'name="next" value="/market?gpu=H100&amp;offer=%22x"' in linked.text, "an alert links to this page"
    mistyped = locked.client.post("/login", data={"password": "x", "next": "/market?gpu=H100"}, headers=PAGE)
    assert 'name="next" value="/market?gpu=H100"' in mistyped.text
    went = locked.client.post("/login", data={"password": PASSWORD, "next": "//evil.example/"}, headers=PAGE)
    assert (went.status_code, went.headers["location"]) == (303, "/")
    assert locked.client.get("/", headers=PAGE).status_code == 200


def test_a_token_does_what_its_scopes_say_and_no_more(locked: Served) -> None:
    for token, path, status in (
        (READ, "/api/v1/pause", 403),
        (APPROVE, "/api/v1/pause", 403),
        (MANAGE, "/api/v1/pause", 200),
        (READ, "/api/v1/approvals/aaaaaaaaaaaa/deny", 403),
        (MANAGE, "/api/v1/approvals/aaaaaaaaaaaa/deny", 403),
        (APPROVE, "/api/v1/approvals/aaaaaaaaaaaa/deny", 404),
        ("unknown-token-of-length", "/api/v1/pause", 401),
    ):
        assert locked.client.post(path, headers=bearer(token)).status_code == status, (token, path)
    assert_problem(locked.client.get("/api/v1/offers", headers=bearer("unknown")), 401)
    for token in (MANAGE, APPROVE):
        for path in ("/api/v1/offers", "/api/v1/approvals", "/metrics", "/", "/api/v1/events"):
            refused = locked.client.get(path, headers=bearer(token))
            assert_problem(refused, 403)
            assert "no scope includes another" in refused.json()["detail"]


def test_a_token_in_an_address_is_refused(plain: Served, tmp_path: Path) -> None:
    assert_problem(plain.client.get("/api/v1/offers", params={"token": "x"}), 400)
    (tmp_path / "locked").mkdir()
    with served(tmp_path / "locked", TOKENS) as locked:
        assert_problem(locked.client.get("/api/v1/offers", params={"token": READ}), 401)


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{READ}\n")
    line = f'tokens = [{{ name = "grafana", token_file = "{tmp_path}/token", scopes = ["read"] }}]'
    with served(tmp_path, line) as found:
        assert found.client.get("/api/v1/offers", headers=bearer(READ)).status_code == 200
    (tmp_path / "token").unlink()
    with pytest.raises(SettingsError, match=r"grafana: cannot read token_file"), served(tmp_path, line):
        pass


# --- sessions and logging in ------------------------------------------------------------------------------------------


def test_the_cookie_is_httponly_and_strict(plain: Served) -> None:
    answer = plain.client.post("/login", data={"code": plain.codes[-1]})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie


def test_wrong_passwords_end_in_429_and_then_the_right_one_waits_too(locked: Served) -> None:
    for _ in range(MAX_FAILURES_PER_CLIENT):
        assert_problem(locked.client.post("/login", data={"password": "wrong"}), 401)
    answer = locked.client.post("/login", data={"password": PASSWORD})
    assert_problem(answer, 429)
    assert int(answer.headers["retry-after"]) > 0
    assert locked.client.get("/api/v1/offers", headers=bearer(READ)).status_code == 200


def test_logging_out_ends_the_session(plain: Served) -> None:
    csrf = plain.log_in()
    assert plain.client.delete("/api/v1/session", headers={"X-CSRF-Token": csrf}).status_code == 204
    assert_problem(plain.client.post("/api/v1/pause", headers={"X-CSRF-Token": csrf}), 401)


def test_another_site_changes_nothing(plain: Served) -> None:
    csrf = plain.log_in()
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": f"{plain.url}.evil.example"},
        {"Referer": f"https://evil.example/{plain.url}"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert_problem(plain.client.post("/api/v1/pause", headers={"X-CSRF-Token": csrf, **headers}), 403)
        assert_problem(plain.client.post("/login", data={"code": "x"}, headers=headers), 403)
    for page in ({"Origin": plain.url, "Sec-Fetch-Site": "same-origin"}, {"Referer": f"{plain.url}/watches"}):
        assert plain.client.post("/api/v1/pause", headers={"X-CSRF-Token": csrf, **page}).status_code == 200


# --- hosts, proxies, sizes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "192.0.2.1", "", "[::2]:80", "localhost:x"]
)
@pytest.mark.parametrize("path", ["/", "/api/v1/offers", "/healthz"])
def test_a_host_that_is_not_trusted_is_421(plain: Served, host: str, path: str) -> None:
    assert_problem(plain.client.get(path, headers={"Host": host, **PAGE}), 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8642", "[::1]", "[::1]:8642", "localhost."])
def test_loopback_is_trusted(plain: Served, host: str) -> None:
    assert plain.client.get("/api/v1/jobs", headers={"Host": host}).status_code == 200


def test_a_trusted_host_is_answered(tmp_path: Path) -> None:
    with served(tmp_path, 'trusted_hosts = ["gpu.example"]') as found:
        assert found.client.get("/api/v1/jobs", headers={"Host": "gpu.example:443"}).status_code == 200


def test_behind_a_proxy_others_get_nothing_without_credentials(tmp_path: Path) -> None:
    with served(tmp_path, 'trusted_proxies = ["127.0.0.1"]') as found:
        headers = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
        assert_problem(found.client.get("/api/v1/jobs", headers=headers), 401)
        assert_problem(found.client.get("/api/v1/jobs", headers={"X-Forwarded-For": "203.0.113.9"}), 403)
        assert found.client.get("/api/v1/jobs").status_code == 200


def test_a_forwarded_header_of_no_proxy_counts_for_nothing(locked: Served) -> None:
    for number in range(MAX_FAILURES_PER_CLIENT):
        headers = {"X-Forwarded-For": f"203.0.113.{number}"}
        assert_problem(locked.client.post("/login", data={"password": "wrong"}, headers=headers), 401)
    assert_problem(locked.client.post("/login", data={"password": "x"}, headers={"X-Forwarded-For": "9.9.9.9"}), 429)


def test_a_large_body_is_413_with_and_without_its_length(plain: Served) -> None:
    csrf = plain.log_in()
    body = b"x" * (MAX_BODY_BYTES + 1)
    assert_problem(plain.client.post("/api/v1/pause", content=body, headers={"X-CSRF-Token": csrf}), 413)
    parts = (body[at : at + 65536] for at in range(0, len(body), 65536))
    assert_problem(plain.client.post("/api/v1/pause", content=parts, headers={"X-CSRF-Token": csrf}), 413)


def test_every_answer_bears_the_policy(plain: Served) -> None:
    for path in ("/", "/x", "/static/gpuwatch.css", "/api/v1/offers", "/healthz", "/login"):
        headers = plain.client.get(path, headers=PAGE).headers
        assert {name: headers.get(name) for name in HEADERS} == HEADERS, path
    assert "default-src 'self'" in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert "server" not in plain.client.get("/").headers


# --- listening addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["0.0.0.0:8642", "192.0.2.1:80", "[::]:8642", "gpu.example:80"])
def test_another_address_needs_credentials(tmp_path: Path, listen: str) -> None:
    with pytest.raises(SettingsError, match=r"web\.listen: .*password_hash"):
        settings_in(tmp_path, f'[web]\nlisten = "{listen}"\n')
    settings_in(tmp_path, f'[web]\nlisten = "{listen}"\n{TOKENS}\n')


@pytest.mark.parametrize("listen", ["8642", "127.0.0.1", "::1:8642", "127.0.0.1:99999", "127.0.0.1:x", ""])
def test_what_is_no_address_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(SettingsError, match=r"web\.listen: expected an address and a port"):
        settings_in(tmp_path, f'[web]\nlisten = "{listen}"\n')


def test_no_answer_holds_a_secret(tmp_path: Path) -> None:
    secrets = ["vast-secret-key-0123456789", READ, "123456:telegram-secret-abcdefghijk", "hook-secret-0123456789"]
    more = f"""
[providers.vastai]
api_key = "{secrets[0]}"
[notify.telegram]
bot_token = "{secrets[2]}"
chat_id = "1"
[notify.webhook]
url = "https://example.org/{secrets[3]}"
secret = "{secrets[3]}"
"""
    with served(tmp_path, TOKENS, more) as found:
        paths = [f"/api/v1/{name}" for name in (*LISTS, "openapi.json")] + ["/", "/x", "/login"]
        for path in paths:
            for headers in (bearer(READ), {**bearer(READ), **PAGE}):
                text = found.client.get(path, headers=headers).text
                assert not [secret for secret in secrets if secret in text], path


def test_another_machine_over_plain_http_is_refused() -> None:
    from starlette.requests import HTTPConnection

    from gpuwatch.settings.model import WebSettings
    from gpuwatch.web.problems import HttpProblem
    from gpuwatch.web.security.access import request_origin, require_encryption

    def origin(client: str, scheme: str = "http", **headers: str) -> Any:
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "client": (client, 5), "server": ("192.0.2.7", 80), "scheme": scheme, "headers": raw}
        return request_origin(HTTPConnection(scope), WebSettings(trusted_proxies=("10.0.0.0/8",)))

    with pytest.raises(HttpProblem, match="tls_certificate"):
        require_encryption(origin("203.0.113.9"))
    for fine in (
        origin("203.0.113.9", "https"),
        origin("192.0.2.7"),
        origin("127.0.0.1"),
        origin("10.0.0.1", x_forwarded_for="203.0.113.9", x_forwarded_proto="https"),
    ):
        require_encryption(fine)
    assert origin("10.0.0.1", x_forwarded_for="1.1.1.1, 203.0.113.9, 10.0.0.2").client == "203.0.113.9"
    assert not origin("10.0.0.1", x_forwarded_for="127.0.0.1", x_forwarded_proto="https").is_local


def test_tls(tmp_path: Path) -> None:
    import trustme

    authority = trustme.CA()
    leaf = authority.issue_cert("localhost")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "web.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "web.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with served(tmp_path, f'tls_certificate = "{tmp_path}/web.pem"\ntls_key = "{tmp_path}/web.key"') as found:
        port = found.url.rpartition(":")[2]
        import ssl

        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpx.Client(base_url=f"https://localhost:{port}", verify=context, timeout=60) as client:
            answer = client.post("/login", data={"code": found.codes[-1]})
            assert "secure" in answer.headers["set-cookie"].lower()
            assert answer.headers["strict-transport-security"]


def test_what_is_no_http_does_no_harm(plain: Served) -> None:
    port = int(plain.url.rpartition(":")[2])
    for garbage in (
        b"\x16\x03\x01\x00\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
            line.sendall(garbage)
            assert b" 200 " not in line.recv(4096)
    assert plain.client.get("/healthz").status_code == 200
