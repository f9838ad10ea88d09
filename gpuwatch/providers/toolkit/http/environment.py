"""What the environment decides: which proxy carries a request, and which certificates are trusted."""

from __future__ import annotations

import ipaddress
import os
import ssl
import threading
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import httpx

from gpuwatch.providers.toolkit.http.wire import open_transport


class EnvironmentTransport(httpx.BaseTransport):
    """Sends each request directly or through the environment's proxy, and requests to loopback always directly.

    The standard library reads the environment, for httpx's `trust_env` differs: it sends requests for 127.0.0.2 to a
    proxy, does not know the exceptions of macOS and Windows, and fails at once on an ALL_PROXY that no request needs.

    Args:
        context: the trusted certificates; None: `trusted_certificates`, read by the first encrypted connection.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._proxies = getproxies()
        self._lock = threading.Lock()
        self._transports: dict[tuple[str | None, bool], httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request once, on an open connection if there is one."""
        proxy = self._proxy_for(request.url)
        is_encrypted = request.url.scheme == "https" or (proxy or "").startswith("https:")
        return self._transport_through(proxy, is_encrypted).handle_request(request)

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            for transport in self._transports.values():
                transport.close()

    def _proxy_for(self, url: httpx.URL) -> str | None:
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        host = url.raw_host.decode("ascii")
        if not proxy or _is_loopback(host) or proxy_bypass(host):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"

    def _transport_through(self, proxy: str | None, is_encrypted: bool) -> httpx.HTTPTransport:
        with self._lock:
            if (proxy, is_encrypted) not in self._transports:
                try:
                    if is_encrypted and self._context is None:
                        self._context = trusted_certificates()
                except OSError as error:
                    raise httpx.ConnectError(f"the trusted certificates cannot be read: {error}") from error
                context = self._context if is_encrypted else None
                try:
                    self._transports[proxy, is_encrypted] = open_transport(context, proxy)
                except (httpx.InvalidURL, ValueError, ImportError) as error:
                    raise httpx.ProxyError(f"the environment's proxy cannot be used: {error}") from error
            return self._transports[proxy, is_encrypted]


def trusted_certificates() -> ssl.SSLContext:
    """Return a context that trusts the certificates of the environment or the system; certifi's if there are none."""
    return ssl.create_default_context(cafile=_certifi_if_needed())


def _certifi_if_needed() -> str | None:
    paths = ssl.get_default_verify_paths()
    if "SSL_CERT_FILE" in os.environ or "SSL_CERT_DIR" in os.environ or paths.cafile:
        return None
    if paths.capath and any(Path(paths.capath).iterdir()):
        return None
    import certifi  # noqa: PLC0415 - only if the system has no certificates

    return certifi.where()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
