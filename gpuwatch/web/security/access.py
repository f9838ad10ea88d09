"""Determines who sends a request, from where, and what it may do."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

import msgspec
from starlette.requests import HTTPConnection

from gpuwatch.settings.model import WebSettings, is_loopback, split_listen
from gpuwatch.web.problems import HttpProblem, LoginRequired
from gpuwatch.web.security.credentials import COOKIE, Credentials, SessionStore, WebSession

CSRF_HEADERS = ("X-CSRF-Token", "X-CSRFToken", "X-XSRF-Token")  # as common clients name it
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="gpuwatch"'}
_WILDCARDS = {"0.0.0.0", "::"}  # noqa: S104 for comparison, not bound to


class RequestOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a request. `is_local`: from this machine; `is_encrypted`: by TLS, here or at a proxy."""

    client: str
    is_local: bool
    is_encrypted: bool


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may do. `name` None: not logged in."""

    name: str | None
    scopes: frozenset[str]
    session: WebSession | None = None


def require_trusted_host(connection: HTTPConnection, web: WebSettings, also: str | None = None) -> None:
    """Reject a foreign name that resolves to this server (DNS rebinding).

    Args:
        also: another trusted name for this request.

    Raises:
        HttpProblem: 421.
    """
    host = _host_of(connection.headers.get("host", ""))
    listening = split_listen(web.listen)[0]
    own = {*map(str.lower, web.trusted_hosts), *({listening.lower()} - _WILDCARDS), web.public_host, also}
    server = connection.scope.get("server") or ("",)
    if host and (is_loopback(host) or host in own or (host == server[0] and _is_address(host))):
        return
    raise HttpProblem(421, "this Host is not trusted; add it to web.trusted_hosts")


def request_origin(connection: HTTPConnection, web: WebSettings) -> RequestOrigin:
    """Return the origin, from the connection and the headers of a trusted proxy."""
    peer = connection.client.host if connection.client else ""
    is_encrypted = connection.scope.get("scheme") == "https"
    server = (connection.scope.get("server") or ("",))[0]
    if not _is_in(peer, web.trusted_proxies):
        return RequestOrigin(client=peer, is_local=is_loopback(peer) or peer == server, is_encrypted=is_encrypted)
    hops = [hop.strip() for hop in connection.headers.get("x-forwarded-for", "").split(",") if hop.strip()]
    client = next((hop for hop in reversed(hops) if not _is_in(hop, web.trusted_proxies)), peer)
    forwarded = connection.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
    return RequestOrigin(client=client, is_local=not hops and is_loopback(peer), is_encrypted=forwarded == "https")


def require_encryption(origin: RequestOrigin) -> None:
    """Reject plain HTTP from other machines: it would expose passwords and tokens. Raises HttpProblem: 403."""
    if not origin.is_local and not origin.is_encrypted:
        raise HttpProblem(
            403,
            "plain HTTP is accepted from this machine only: set web.tls_certificate and web.tls_key, or "
            "web.trusted_proxies with a proxy that sends X-Forwarded-Proto: https",
        )


def access_of(
    connection: HTTPConnection, credentials: Credentials, sessions: SessionStore, origin: RequestOrigin
) -> Access:
    """Return what the request may do. Raises HttpProblem: 401, its token is unknown."""
    if (header := connection.headers.get("authorization")) is not None:
        kind, _, text = header.partition(" ")
        identity = credentials.token(text.strip()) if kind.lower() == "bearer" and text.strip() else None
        if identity is None:
            raise HttpProblem(401, "unknown token", CHALLENGE)
        return Access(name=f"token {identity[0]}", scopes=identity[1])
    session = sessions.get(connection.cookies.get(COOKIE))
    if session is not None:
        return Access(name=session.name, scopes=session.scopes, session=session)
    if credentials.is_open and origin.is_local:
        return Access(name=None, scopes=frozenset({"read"}))
    return Access(name=None, scopes=frozenset())


def require_scope(access: Access, scope: str) -> None:
    """Raise HttpProblem without this scope: 401 (not logged in), 403 (another token)."""
    if scope in access.scopes:
        return
    if access.name is None:
        raise LoginRequired(401, "log in first, or send Authorization: Bearer TOKEN", CHALLENGE)
    has = ", ".join(sorted(access.scopes))
    raise HttpProblem(403, f"this requires the scope {scope!r}; the token has {has}, and no scope includes another")


def require_own_page(connection: HTTPConnection) -> None:
    """Reject forms of other sites. Raises HttpProblem: 403."""
    headers = connection.headers
    page, site = headers.get("origin", headers.get("referer")), headers.get("sec-fetch-site")
    host = None if page is None else page.partition("://")[2].partition("/")[0].lower()
    if host not in {None, headers.get("host", "").lower()} or site in {"cross-site", "same-site"}:
        raise HttpProblem(403, "this request comes from another site")


def require_csrf_token(access: Access, tokens: Iterable[str | None]) -> None:
    """Require the session's token, in a header or a form, for a change. Raises HttpProblem: 403."""
    if access.session is not None and not any(token and access.session.accepts(token) for token in tokens):
        raise HttpProblem(403, f"the CSRF token is missing or wrong: send it as {CSRF_HEADERS[0]} or csrf_token")


def _host_of(header: str) -> str:
    """Return the name in a Host header, in lower case, without port and brackets; empty: invalid."""
    text = header.strip().lower()
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        return host if closed and (not port or _is_port(port)) else ""
    host, colon, port = text.partition(":")
    return host.rstrip(".") if not colon or _is_port(f":{port}") else ""


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and (text[1:].isdigit() or text == ":")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_in(host: str, networks: Sequence[str]) -> bool:
    if not networks:
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(network, strict=False) for network in networks)
