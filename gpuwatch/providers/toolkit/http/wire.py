"""Sockets below httpx: one deadline limits every wait, and the exchange records whether a request was sent.

Neither httpx nor httpcore has an overall timeout: a server that sends one byte every 0.2 s never trips a read timeout,
in headers or in bodies. The deadline is therefore enforced at the socket, where all waiting happens.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import httpcore
import httpx

READ_BYTES = 512 * 1024  # per read; httpcore reads 64 KB at a time, which costs 50 ms instead of 15
_WRITE_BYTES = 16 * 1024  # per write: a slow reader restarts httpcore's timeout with each part that it takes
_FALLBACK_S = 3.0  # after this silence of an address (IPv6 without a route), try the next one
# More than all threads of gpuwatch request at once: to make room, httpcore's pool may close a connection that another
# thread has just been given. Its request would then be a `NoReply`.
MAX_CONNECTIONS = 100
_LIMITS = httpx.Limits(
    max_connections=MAX_CONNECTIONS,
    max_keepalive_connections=MAX_CONNECTIONS,
    keepalive_expiry=120.0,  # longer than the poll interval, so that a hunt finds its connection open
)
Resolve = Callable[[str, int], list[str]]  # (host, port) → its addresses, in the order to try; raises OSError


class Exchange:
    """One request and its answer: its deadline, whether its first byte went to the network, and whether it is over."""

    def __init__(self, deadline_s: float, monotonic: Callable[[], float]) -> None:
        self._deadline_s = deadline_s
        self._monotonic = monotonic
        self.is_sent = False
        self.is_over = False

    def remaining_s(self) -> float:
        """Return seconds until the deadline; 0 or less: it has passed."""
        return self._deadline_s - self._monotonic()


class _ThreadState(threading.local):
    exchange: Exchange | None = None


_current = _ThreadState()


@contextmanager
def bind_deadline(exchange: Exchange) -> Iterator[None]:
    """Bind all network waits of this thread to `exchange`; nests, for a request made while another one arrives."""
    previous, _current.exchange = _current.exchange, exchange
    try:
        yield
    finally:
        _current.exchange = previous


def resolve_host(host: str, port: int) -> list[str]:
    """Return a host's addresses, as the system resolves them."""
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def open_transport(
    context: ssl.SSLContext | None, proxy: str | None = None, resolve: Resolve = resolve_host
) -> httpx.HTTPTransport:
    """Return httpx's transport over sockets that obey `bind_deadline`.

    Args:
        context: the trusted certificates; None: nothing is encrypted, and no certificate would be trusted.

    Raises:
        httpx.InvalidURL, ValueError, ImportError: the proxy cannot be used; the text says why.
    """
    through = None
    context = context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if proxy is not None:
        through = httpx.Proxy(proxy, ssl_context=context if proxy.startswith("https:") else None)
    transport = httpx.HTTPTransport(verify=context, limits=_LIMITS, proxy=through, trust_env=False)
    # HTTPTransport takes no network backend, httpcore's pools do: test_wire.py fails if a release renames one of these.
    transport._pool._network_backend = _Backend(resolve)
    return transport


def _bounded_timeout(timeout: float | None, timeout_error: type[Exception]) -> float | None:
    exchange = _current.exchange
    if exchange is None:
        return timeout
    remaining = exchange.remaining_s()
    if remaining <= 0:
        raise timeout_error("the deadline has passed")
    return remaining if timeout is None else min(timeout, remaining)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner
        self._exchange: Exchange | None = None  # the last one that wrote to it

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max(max_bytes, READ_BYTES), _bounded_timeout(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._exchange = _current.exchange
        for start in range(0, len(buffer), _WRITE_BYTES):
            timeout_s = _bounded_timeout(timeout, httpcore.WriteTimeout)
            if _current.exchange is not None and not buffer.startswith(b"CONNECT "):  # that asks a proxy for a tunnel
                _current.exchange.is_sent = True
            self._inner.write(buffer[start : start + _WRITE_BYTES], timeout_s)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        timeout_s = _bounded_timeout(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, timeout_s))

    def get_extra_info(self, info: str) -> object:
        last = self._exchange
        value = self._inner.get_extra_info(info)
        if info == "is_readable":
            # A pool closes an idle connection that has become readable: its server has hung up. It asks without a lock,
            # so another thread may have sent a request meanwhile, and what is readable is its answer.
            return value and last is self._exchange and (last is None or last.is_over)
        return value


class _Backend(httpcore.NetworkBackend):
    """Opens connections: name resolution is subject to the deadline, and a silent address cannot use up all of it."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = self._addresses(host, port, _bounded_timeout(timeout, httpcore.ConnectTimeout))
        for attempt, address in enumerate(addresses, 1):
            timeout_s = _bounded_timeout(timeout, httpcore.ConnectTimeout)
            if attempt < len(addresses):
                timeout_s = _FALLBACK_S if timeout_s is None else min(timeout_s, _FALLBACK_S)
            try:
                return _Stream(self._inner.connect_tcp(address, port, timeout_s, local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if attempt == len(addresses):
                    raise
        raise httpcore.ConnectError(f"{host} has no address")

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError("nothing is retried at this level")

    def _addresses(self, host: str, port: int, timeout: float | None) -> list[str]:
        """Return the addresses to try. Resolving has no timeout of its own, so a thread does it."""
        if _is_address(host):
            return [host]
        resolved: list[str] = []
        errors: list[OSError] = []

        def resolve() -> None:
            try:
                resolved.extend(self._resolve(host, port))
            except (OSError, UnicodeError) as error:
                errors.append(error if isinstance(error, OSError) else OSError(str(error)))

        thread = threading.Thread(target=resolve, name="gpuwatch-resolve", daemon=True)
        thread.start()
        thread.join(timeout)
        if errors:
            raise httpcore.ConnectError(f"no such host {host}: {errors[0].strerror or errors[0]}") from errors[0]
        if not resolved:
            raise httpcore.ConnectTimeout(f"the name service does not answer for {host}")
        return list(dict.fromkeys(resolved))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
