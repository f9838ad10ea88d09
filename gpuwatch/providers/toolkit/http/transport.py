"""The network transport: pooled connections over `wire`, proxies from the environment, TLS on demand."""

from __future__ import annotations

import os
import ssl
import sys
import threading
from pathlib import Path
from typing import Final, Protocol

import httpcore

from gpuwatch.providers.toolkit.http.address import Address
from gpuwatch.providers.toolkit.http.wire import Backend

_KEEPALIVE_S: Final = 120.0  # longer than the poll interval, so that a hunt finds its connection open
_MAX_CONNECTIONS: Final = 32


class Transport(Protocol):
    """Carries one request to a server and its answer back; raises httpcore's errors."""

    def send(self, request: httpcore.Request, address: Address) -> httpcore.Response:
        """Send a request once. The answer's body may still be arriving."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


class PooledTransport:
    """Pools by scheme and proxy, created on demand: a TLS context alone costs 30 ms."""

    def __init__(self, verify: str | ssl.SSLContext | None = None) -> None:
        self._verify = verify
        self._lock = threading.Lock()
        self._pools: dict[tuple[bool, str | None], httpcore.ConnectionPool] = {}
        self._proxies = _environment_proxies()

    def send(self, request: httpcore.Request, address: Address) -> httpcore.Response:
        """Send a request once, on an open connection if there is one."""
        return self._pool_for(address).handle_request(request)

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close()

    def _pool_for(self, address: Address) -> httpcore.ConnectionPool:
        key = (address.scheme == "https", self._proxy_for(address))
        pool = self._pools.get(key)
        if pool is None:
            with self._lock:
                pool = self._pools.get(key)
                if pool is None:
                    pool = self._pools[key] = self._new_pool(*key)
        return pool

    def _new_pool(self, encrypted: bool, proxy: str | None) -> httpcore.ConnectionPool:
        return httpcore.ConnectionPool(
            ssl_context=self._ssl_context() if encrypted else None,
            proxy=httpcore.Proxy(proxy) if proxy else None,
            max_connections=_MAX_CONNECTIONS,
            max_keepalive_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_KEEPALIVE_S,
            http1=True,
            http2=False,
            network_backend=Backend(),
        )

    def _proxy_for(self, address: Address) -> str | None:
        if not self._proxies or address.is_loopback:
            return None
        from urllib.request import proxy_bypass  # noqa: PLC0415 see `_environment_proxies`

        if proxy_bypass(address.host):
            return None
        proxy = self._proxies.get(address.scheme) or self._proxies.get("all")
        return proxy if proxy is None or "://" in proxy else f"http://{proxy}"

    def _ssl_context(self) -> ssl.SSLContext:
        if isinstance(self._verify, ssl.SSLContext):
            return self._verify
        return ssl.create_default_context(cafile=self._verify or _certifi_if_needed())


def _certifi_if_needed() -> str | None:
    """Return certifi's file; None if the system or the environment has certificates. Slim containers have none."""
    paths = ssl.get_default_verify_paths()
    if "SSL_CERT_FILE" in os.environ or "SSL_CERT_DIR" in os.environ or paths.cafile:
        return None
    if paths.capath and any(Path(paths.capath).iterdir()):
        return None
    import certifi  # noqa: PLC0415 - only if the system has no certificates

    return certifi.where()


def _environment_proxies() -> dict[str, str]:
    """Return proxies by scheme, as urllib finds them. Skips its import (6 ms) if nothing can configure a proxy."""
    if sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    from urllib.request import getproxies  # noqa: PLC0415

    return getproxies()
