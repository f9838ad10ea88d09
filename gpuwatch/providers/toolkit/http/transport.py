"""httpx's transport: connections kept open over `wire`, proxies from the environment, TLS when it is needed."""

from __future__ import annotations

import ipaddress
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from gpuwatch.providers.toolkit.http.wire import Backend

_KEPT_FOR_S: Final = 120.0  # longer than the interval of polls, so that a hunt finds its connection open
_CONNECTIONS: Final = 32


class Transport(httpx.BaseTransport):
    """Pools by scheme and proxy, made when they are first needed: a TLS context alone costs 30 ms."""

    def __init__(self, verify: str | ssl.SSLContext | None = None) -> None:
        self._verify = verify
        self._lock = threading.Lock()
        self._pools: dict[tuple[bool, str | None], httpcore.ConnectionPool] = {}
        self._proxies = getproxies()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it once; errors are httpcore's own."""
        url = request.url
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        answer = self._pool_for(url).handle_request(asked)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer), extensions=dict(answer.extensions)
        )

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close()

    def _pool_for(self, url: httpx.URL) -> httpcore.ConnectionPool:
        key = (url.scheme == "https", self._proxy_for(url))
        pool = self._pools.get(key)
        if pool is None:
            with self._lock:
                pool = self._pools.get(key)
                if pool is None:
                    pool = self._pools[key] = self._new_pool(*key)
        return pool

    def _new_pool(self, encrypted: bool, proxy: str | None) -> httpcore.ConnectionPool:
        return httpcore.ConnectionPool(
            ssl_context=self._context() if encrypted else None,
            proxy=httpcore.Proxy(proxy) if proxy else None,
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_CONNECTIONS,
            keepalive_expiry=_KEPT_FOR_S,
            http1=True,
            http2=False,
            network_backend=Backend(),
        )

    def _proxy_for(self, url: httpx.URL) -> str | None:
        if not self._proxies or is_loopback(url.host) or proxy_bypass(url.host):
            return None
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        return proxy if proxy is None or "://" in proxy else f"http://{proxy}"

    def _context(self) -> ssl.SSLContext:
        if isinstance(self._verify, ssl.SSLContext):
            return self._verify
        return ssl.create_default_context(cafile=self._verify or _certifi_if_needed())


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        yield from self._answer.stream  # type: ignore[misc]  # it is Iterable[bytes] on the synchronous side

    def close(self) -> None:
        self._answer.close()


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _certifi_if_needed() -> str | None:
    """None where the system or the environment has certificates; slim containers have none."""
    paths = ssl.get_default_verify_paths()
    if "SSL_CERT_FILE" in os.environ or "SSL_CERT_DIR" in os.environ or paths.cafile:
        return None
    if paths.capath and any(Path(paths.capath).iterdir()):
        return None
    import certifi  # noqa: PLC0415 - only where the system has nothing

    return certifi.where()
