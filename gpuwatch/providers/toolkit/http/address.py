"""The destination of a request: a parsed URL with its query, quoted as HTTP requires."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

import httpcore

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SAFE_IN_PATH: Final = "/%:@!$&'()*+,;=~[]"
_SAFE_IN_QUERY: Final = f"{_SAFE_IN_PATH}?"


class Address:
    """One http or https URL; `str()` omits query and password, so it may appear in an error.

    Args:
        params: the query; empty: the query of the URL.

    Raises:
        ValueError: it is not such a URL; the text says why.
    """

    def __init__(self, url: str, params: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS:
            raise ValueError("it does not begin with http:// or https://")
        if not parts.hostname or not url.isprintable():
            raise ValueError("it has no host" if url.isprintable() else "it contains control characters")
        self.scheme = parts.scheme
        self.host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode("ascii")
        self.port = None if parts.port == _DEFAULT_PORTS[parts.scheme] else parts.port
        self.path = quote(parts.path, safe=_SAFE_IN_PATH) or "/"
        self.query = urlencode(params) if params else quote(parts.query, safe=_SAFE_IN_QUERY)
        self._credentials = (
            None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        )

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @cached_property
    def authority(self) -> str:
        """Host and port as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @cached_property
    def url(self) -> httpcore.URL:
        """The form that httpcore takes."""
        target = f"{self.path}?{self.query}" if self.query else self.path
        return httpcore.URL(scheme=self.scheme, host=self.host, port=self.port, target=target)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The headers that follow from the address: Host, and Authorization if it contains a user."""
        if self._credentials is None:
            return {"host": self.authority}
        return {
            "host": self.authority,
            "authorization": f"Basic {base64.b64encode(self._credentials.encode()).decode()}",
        }

    @cached_property
    def is_loopback(self) -> bool:
        """Whether the host is this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")

    def with_trailing_slash(self, location: str) -> Address | None:
        """Return the same address with a trailing slash, if a redirect leads there."""
        try:
            target = Address(urljoin(str(self), location))
        except ValueError:
            return None
        if (target.scheme, target.authority, target.path) != (self.scheme, self.authority, f"{self.path}/"):
            return None
        target.query, target._credentials = self.query, self._credentials
        return target


def parse_address(url: str, params: Mapping[str, str] | None = None) -> Address:
    """Parse the address of a URL; cached, because polls repeat the same long URL.

    Raises:
        ValueError: it is not an http or https URL.
    """
    return _parse_address(url, tuple(params.items()) if params else ())


@lru_cache(maxsize=64)
def _parse_address(url: str, params: tuple[tuple[str, str], ...]) -> Address:
    return Address(url, dict(params))
