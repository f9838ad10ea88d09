"""Proxies and certificates: what the environment says is obeyed, and no key goes to a server that proves nothing."""

from __future__ import annotations

import datetime
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from gpuwatch.ports.http import NoReply, NotSent
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, Server, serving
from tests.providers.toolkit.http.faulty_sockets import closed_port, tunnel_to

KEY = "0123456789abcdef-secret"
PROXIED = "https://market.example/rent"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def _tls(ca: trustme.CA, name: str, not_after: datetime.datetime | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name, not_after=not_after).configure_cert(context)
    return context


def _trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


def _rent(http: PooledHttpClient, url: str) -> int:
    return http.ask("PUT", url, headers={"Authorization": f"Bearer {KEY}"}, json={}, deadline_s=20).status


# --- certificates -----------------------------------------------------------------------------------------------------


def test_a_trusted_certificate_is_accepted() -> None:
    ca = trustme.CA()
    tls = _tls(ca, "127.0.0.1")
    with serving(lambda request, wire: wire.answer(), tls=tls) as server, closing(_client(ca)) as http:
        assert _rent(http, server.url + "/") == 200


def _client(ca: trustme.CA) -> PooledHttpClient:
    return PooledHttpClient(secrets=[KEY], verify=_trusting(ca))


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ("untrusted", "unable to get local issuer"),
        ("self-signed", "self-signed"),
        ("expired", "expired"),
        ("wrong name", "IP address mismatch"),
    ],
)
def test_a_bad_certificate_gets_no_key_and_is_named(fault: str, reported: str, tmp_path: Path) -> None:
    ca, other = trustme.CA(), trustme.CA()
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    tls = _tls(
        other if fault == "untrusted" else ca,
        "10.9.8.7" if fault == "wrong name" else "127.0.0.1",
        past if fault == "expired" else None,
    )
    if fault == "self-signed":
        tls = _self_signed(tmp_path)
    with serving(lambda request, wire: wire.answer(), tls=tls) as server, closing(_client(ca)) as http:
        with pytest.raises(NotSent, match=reported):
            _rent(http, server.url + "/")
        assert server.requests == []


def _self_signed(folder: Path) -> ssl.SSLContext:
    key, certificate = str(folder / "key.pem"), str(folder / "cert.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run(
        [*made, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_of_the_environment_are_trusted(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = trustme.CA()
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    if variable == "SSL_CERT_DIR":
        hashed = subprocess.run(
            ["openssl", "x509", "-hash", "-noout", "-in", str(path)],
            check=True, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        path = path.rename(tmp_path / f"{hashed.stdout.strip()}.0").parent
    with serving(lambda request, wire: wire.answer(), tls=_tls(ca, "127.0.0.1")) as server:
        with (
            closing(PooledHttpClient()) as http,
            pytest.raises(NotSent, match="its certificate is not trusted: unable to get local issuer"),
        ):
            _rent(http, server.url + "/")
        monkeypatch.setenv(variable, str(path))
        with closing(PooledHttpClient()) as http:
            assert _rent(http, server.url + "/") == 200


def test_certificates_are_read_by_the_first_encrypted_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request to loopback needs none, and reading them takes as long as a third of the rest of the client."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with serving(lambda request, wire: wire.answer()) as plain, closing(PooledHttpClient()) as http:
        assert _rent(http, plain.url + "/") == 200
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        with serving(lambda request, wire: wire.answer(), tls=_tls(ca, "127.0.0.1")) as server:
            assert _rent(http, server.url + "/") == 200


# --- proxies ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A proxy for http that answers everything itself."""
    with serving(lambda request, wire: wire.answer(body=b"by the proxy")) as server:
        monkeypatch.setenv("http_proxy", server.url)
        yield server


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_request_for_http_is_handed_to_the_proxy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda request, wire: wire.answer(body=b"by the proxy")) as proxy:
        monkeypatch.setenv(variable, proxy.url.removeprefix("http://"))
        with closing(PooledHttpClient()) as http:
            assert http.ask("GET", "http://market.example/list?q=1").body == b"by the proxy"
        assert proxy.requests[0].target == "http://market.example/list?q=1"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "one.localhost", "[::1]"])
def test_loopback_is_never_handed_to_a_proxy(proxy: Server, host: str) -> None:
    with closing(PooledHttpClient()) as http, pytest.raises(NotSent):
        http.ask("GET", f"http://{host}:{closed_port()}/")
    assert proxy.requests == []


@pytest.mark.parametrize("listed", ["market.invalid", ".invalid", "invalid", "other, market.invalid", "*"])
def test_a_host_of_no_proxy_is_reached_directly(proxy: Server, listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", listed)
    with closing(PooledHttpClient()) as http, pytest.raises(NotSent, match="no such host"):
        http.ask("GET", "http://market.invalid/")
    assert proxy.requests == []


@pytest.mark.parametrize("listed", ["", "other.invalid", "arket.invalid", "10.0.0.0/8"])
def test_no_proxy_means_no_other_host(proxy: Server, listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of addresses means nothing, as in curl before 7.86 and in urllib."""
    monkeypatch.setenv("no_proxy", listed)
    with closing(PooledHttpClient()) as http:
        assert http.ask("GET", "http://market.invalid/").body == b"by the proxy"
        assert http.ask("GET", "http://10.1.2.3/").body == b"by the proxy"


def test_the_user_of_a_proxy_is_sent_to_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda request, wire: wire.answer()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//me:p%40ss@"))
        with closing(PooledHttpClient()) as http:
            http.ask("GET", "http://market.example/")
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic bWU6cEBzcw=="
        assert "authorization" not in proxy.requests[0].headers


def test_a_proxy_that_wants_a_user_for_http_answers_407(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda request, wire: wire.answer(407)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with closing(PooledHttpClient()) as http:
            assert _rent(http, "http://market.example/") == 407


def test_https_goes_through_a_tunnel_whose_end_proves_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    with (
        serving(lambda request, wire: wire.answer(body=b"{}"), tls=_tls(ca, "market.example")) as market,
        serving(tunnel_to(market.url)) as proxy,
    ):
        monkeypatch.setenv("https_proxy", proxy.url.replace("//", "//me:pass@"))
        with closing(_client(ca)) as http:
            assert [_rent(http, PROXIED) for _ in range(2)] == [200, 200]
        assert [(one.method, one.target) for one in proxy.requests] == [("CONNECT", "market.example:443")]
        assert (len(market.requests), "proxy-authorization" in market.requests[0].headers) == (2, False)
        assert KEY.encode() not in b"".join(request.raw for request in proxy.requests)


def test_a_proxy_that_is_reached_over_tls_must_prove_itself_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    with serving(lambda request, wire: wire.answer(body=b"{}"), tls=_tls(ca, "market.example")) as market:
        for proves, expected in ((ca, ["CONNECT"]), (trustme.CA(), [])):
            with serving(tunnel_to(market.url), tls=_tls(proves, "127.0.0.1")) as proxy:
                monkeypatch.setenv("https_proxy", proxy.url)
                with closing(_client(ca)) as http:
                    if expected:
                        assert _rent(http, PROXIED) == 200
                    else:
                        with pytest.raises(NotSent, match="its certificate is not trusted: unable to get local issuer"):
                            _rent(http, PROXIED)
                assert [request.method for request in proxy.requests] == expected
        assert len(market.requests) == 1


def test_a_tunnel_to_somebody_else_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    with (
        serving(lambda request, wire: wire.answer(), tls=_tls(trustme.CA(), "market.example")) as thief,
        serving(tunnel_to(thief.url)) as proxy,
    ):
        monkeypatch.setenv("https_proxy", proxy.url)
        with (
            closing(_client(ca)) as http,
            pytest.raises(NotSent, match="its certificate is not trusted: unable to get local issuer"),
        ):
            _rent(http, PROXIED)
        assert thief.requests == []


def _refuse(request: ReceivedRequest, wire: ReplyWriter) -> None:
    wire.answer(502)


def _want_a_user(request: ReceivedRequest, wire: ReplyWriter) -> None:
    wire.answer(407, proxy_authenticate="Basic")


def _open_and_close(request: ReceivedRequest, wire: ReplyWriter) -> None:
    wire.raw(b"HTTP/1.1 200 x\r\n\r\n")
    wire.close()


def _hang_up(request: ReceivedRequest, wire: ReplyWriter) -> None:
    wire.close()


@pytest.mark.parametrize(
    ("behaviour", "error", "reported"),
    [
        (_refuse, NotSent, "502"),
        (_want_a_user, NotSent, "407"),
        (_open_and_close, NotSent, "EOF"),
        (_hang_up, NoReply, "disconnected"),  # an order is then treated as possibly sent: the safe side
    ],
)
def test_a_tunnel_that_is_not_opened_gets_no_request(
    behaviour: object, error: type[Exception], reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(behaviour) as proxy:  # type: ignore[arg-type]  # each is an Answer
        monkeypatch.setenv("https_proxy", proxy.url)
        with closing(PooledHttpClient()) as http, pytest.raises(error, match=reported) as caught:
            _rent(http, PROXIED)
        assert type(caught.value) is error
        assert [request.method for request in proxy.requests] == ["CONNECT"]


def test_a_proxy_that_is_down_means_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", f"http://127.0.0.1:{closed_port()}")
    with closing(PooledHttpClient()) as http:
        for url in ("http://market.example/", PROXIED):
            with pytest.raises(NotSent, match="refused"):
                _rent(http, url)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "ftp://127.0.0.1:9", "http://127.0.0.1:x", "socks://u:pw@h"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with closing(PooledHttpClient()) as http, pytest.raises(NotSent, match="proxy cannot be used") as caught:
        _rent(http, PROXIED)
    assert "pw" not in str(caught.value)


def test_a_proxy_that_no_request_needs_harms_nothing(proxy: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Desktops set ALL_PROXY=socks://… beside the others."""
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9/")
    with closing(PooledHttpClient()) as http:
        assert http.ask("GET", "http://market.example/").body == b"by the proxy"


def test_a_netrc_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password pass\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with serving(lambda request, wire: wire.answer()) as server, closing(PooledHttpClient()) as http:
        http.ask("GET", server.url + "/")
        assert "authorization" not in server.requests[0].headers


def test_certificates_that_cannot_be_read_are_a_request_that_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> ssl.SSLContext:
        raise PermissionError(13, "Permission denied", "/etc/ssl/own.pem")

    monkeypatch.setattr("gpuwatch.providers.toolkit.http.environment.trusted_certificates", unreadable)
    with serving(lambda request, wire: wire.answer()) as server, closing(PooledHttpClient()) as http:
        with pytest.raises(NotSent, match=r"certificates cannot be read.*own\.pem"):
            _rent(http, server.url.replace("http:", "https:"))
        assert http.ask("GET", server.url + "/").status == 200  # nothing is encrypted there
