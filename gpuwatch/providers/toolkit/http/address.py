"""Where a request goes: a URL taken apart, its query filled in, everything quoted as HTTP wants it."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

import httpcore

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_KEPT_IN_PATH: Final = "/%:@!$&'()*+,;=~[]"
_KEPT_IN_QUERY: Final = f"{_KEPT_IN_PATH}?"


class Address:
    """One http or https URL; `str()` of it has neither query nor password, and may stand in an error.

    Args:
        params: the query; empty: the URL's own.

    Raises:
        ValueError: it is no such URL; the text says why.
    """

    def __init__(self, url: str, params: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS:
            raise ValueError("it does not begin with http:// or https://")
        if not parts.hostname or not url.isprintable():
            raise ValueError("it names no host" if url.isprintable() else "it holds control characters")
        self.scheme = parts.scheme
        self.host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode("ascii")
        self.port = None if parts.port == _DEFAULT_PORTS[parts.scheme] else parts.port
        self.path = quote(parts.path, safe=_KEPT_IN_PATH) or "/"
        self.query = urlencode(params) if params else quote(parts.query, safe=_KEPT_IN_QUERY)
        self._user = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @cached_property
    def authority(self) -> str:
        """Host and port, as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @cached_property
    def url(self) -> httpcore.URL:
        """As httpcore takes it."""
        target = f"{self.path}?{self.query}" if self.query else self.path
        return httpcore.URL(scheme=self.scheme, host=self.host, port=self.port, target=target)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """What the address asks for: its host, and the user that it names."""
        if self._user is None:
            return {"host": self.authority}
        return {"host": self.authority, "authorization": f"Basic {base64.b64encode(self._user.encode()).decode()}"}

    @cached_property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")

    def with_slash(self, location: str) -> Address | None:
        """The same address with a slash after its path, if that is where a redirect leads."""
        try:
            target = Address(urljoin(str(self), location))
        except ValueError:
            return None
        if (target.scheme, target.authority, target.path) != (self.scheme, self.authority, f"{self.path}/"):
            return None
        target.query, target._user = self.query, self._user
        return target


def address_of(url: str, params: Mapping[str, str] | None = None) -> Address:
    """The address of a URL, taken apart once: a poll asks the same long question again and again.

    Raises:
        ValueError: it is no http or https URL.
    """
    return _address_of(url, tuple(params.items()) if params else ())


@lru_cache(maxsize=64)
def _address_of(url: str, params: tuple[tuple[str, str], ...]) -> Address:
    return Address(url, dict(params))
