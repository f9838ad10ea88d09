"""The values of `[web]` for the rest of gpuwatch: plain, frozen, already validated."""

from __future__ import annotations

import ipaddress

import msgspec

from gpuwatch.secret import Secret

DEFAULT_LISTEN = "127.0.0.1:8642"
SCOPES = ("read", "approve", "manage")


class WebToken(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token: its text, or the file that holds it."""

    name: str
    token: Secret | None = None
    token_file: str | None = None
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"WebToken({self.name!r}, {self.scopes})"


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[web]`."""

    enabled: bool = False
    listen: str = DEFAULT_LISTEN
    password_hash: Secret | None = None
    tokens: tuple[WebToken, ...] = ()
    trusted_hosts: tuple[str, ...] = ("localhost",)
    trusted_proxies: tuple[str, ...] = ()  # addresses or networks
    tls_certificate: str | None = None  # PEM file
    tls_key: str | None = None  # PEM file

    def __repr__(self) -> str:
        return f"WebSettings({self.enabled}, {self.listen!r})"

    @property
    def has_credentials(self) -> bool:
        """Whether a password or a token is configured, so that everything but /healthz requires one."""
        return bool(self.password_hash or self.tokens)


def split_listen(text: str) -> tuple[str, int]:
    """Parse `127.0.0.1:8642`, `localhost:8642` or `[::1]:8642` into host and port. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without its brackets: the port is ambiguous
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError('expected an address and a port, such as "127.0.0.1:8642" or "[::1]:8642"')
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen_fault(web: WebSettings) -> str | None:
    """Why the server may not listen there; None: it may."""
    if is_loopback(split_listen(web.listen)[0]) or web.has_credentials:
        return None
    return (
        f"{web.listen} is reachable from other machines: expected a loopback address, such as "
        f'"{DEFAULT_LISTEN}", or web.password_hash (gpuwatch web --hash-password) or web.tokens'
    )
