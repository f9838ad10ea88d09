"""`PooledHttpClient`: limits time and size of a request; every error says whether the request was sent."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NoReturn, Unpack

import httpcore
import msgspec

from gpuwatch import __version__
from gpuwatch.ports.http import HttpReply, NetError, NoReply, NotSent, RequestOptions, StreamingReply, UnusableReply
from gpuwatch.providers.toolkit.http.address import Address, parse_address
from gpuwatch.providers.toolkit.http.inflate import UnreadableBody, decode_bounded
from gpuwatch.providers.toolkit.http.transport import PooledTransport, Transport
from gpuwatch.providers.toolkit.http.wire import RequestInFlight, bind_deadline
from gpuwatch.redaction import register_secret

logging.getLogger("httpcore").setLevel(logging.WARNING)  # at DEBUG it logs headers, including keys

_NOT_SENT_ERRORS = (
    httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout, httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)  # fmt: skip
_NETWORK_ERRORS = (
    httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, httpcore.TimeoutException,
    httpcore.UnsupportedProtocol, UnreadableBody, OSError,
)  # fmt: skip
_SLASH_REDIRECTS = frozenset({301, 302, 307, 308})
_DEADLINE_S: Final = 30.0
_HEADERS: Final = {"accept": "application/json", "connection": "keep-alive", "user-agent": f"gpuwatch/{__version__}"}
_METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class PooledHttpClient:
    """A connection pool for all threads. Never repeats a request; follows only a redirect that adds a trailing slash.

    Args:
        secrets: keys and tokens to redact in every text.
        max_bytes: the largest answer, after decompression.
        verify: a file of trusted certificates, or a context; None: the system's, or else certifi's.
        transport: replaces the network, in tests.
        monotonic: seconds, for deadlines.
    """

    def __init__(
        self,
        *,
        secrets: Iterable[str] = (),
        max_bytes: int = 64 * 2**20,
        verify: str | ssl.SSLContext | None = None,
        transport: Transport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        register_secret(*secrets)
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._transport = transport or PooledTransport(verify)

    def ask(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpReply:
        """Send one request and read the whole answer, whatever its status.

        Raises:
            NotSent: nothing was sent.
            NoReply: it may have arrived.
        """
        with self.stream(method, url, **options) as reply:
            return HttpReply(reply.status, reply.headers, reply.read())

    @contextmanager
    def stream(self, method: str, url: str, **options: Unpack[RequestOptions]) -> Iterator[StreamingReply]:
        """Like `ask`, with the body as it arrives; `chunks` raises NoReply if the body is incomplete."""
        try:
            address = parse_address(url, options.get("params"))
            request = _request(method, address, options)
        except (ValueError, TypeError) as error:
            raise NotSent(f"{url}: not a usable address ({error})") from error
        exchange = _Exchange(f"{method} {address}", self._monotonic, options.get("deadline_s", _DEADLINE_S))
        response = self._open(request, address, exchange)
        try:
            headers = _headers_of(response)
            if method == "GET" and response.status in _SLASH_REDIRECTS:
                redirected = address.with_trailing_slash(headers.get("location", ""))
                if redirected is not None:
                    response.close()
                    response = self._open(_request(method, redirected, options), redirected, exchange)
                    headers = _headers_of(response)
            limit = options.get("max_bytes", self._max_bytes)
            chunks = _chunks(response, headers.get("content-encoding", ""), exchange, limit)
            yield StreamingReply(response.status, headers, chunks)
        finally:
            response.close()

    def close(self) -> None:
        """Close every connection."""
        self._transport.close()

    def _open(self, request: httpcore.Request, address: Address, exchange: _Exchange) -> httpcore.Response:
        try:
            with bind_deadline(exchange):
                return self._transport.send(request, address)
        except _NETWORK_ERRORS as error:
            _raise_net_error(exchange, error)


class _Exchange(RequestInFlight):
    """One request and its answer; `description`: method and address, for errors."""

    def __init__(self, description: str, monotonic: Callable[[], float], deadline_s: float) -> None:
        super().__init__(monotonic() + deadline_s, monotonic)
        self.description = description


def _request(method: str, address: Address, options: RequestOptions) -> httpcore.Request:
    """Build the request headers. Raises ValueError, TypeError: a header cannot be sent."""
    headers = {**_HEADERS, **{name.lower(): value for name, value in options.get("headers", {}).items()}}
    # Decompressing 27 MB costs 90 ms: less than the transfer saves on a real link, but not on loopback.
    headers["accept-encoding"] = "identity" if address.is_loopback else "gzip, deflate"
    content = options.get("content")
    if "json" in options:
        content = msgspec.json.encode(options["json"])
        headers.setdefault("content-type", "application/json")
    if content is not None or method in _METHODS_WITH_BODY:
        headers["content-length"] = str(len(content or b""))
    headers.update(address.headers)
    wait_s = options.get("deadline_s", _DEADLINE_S)
    return httpcore.Request(
        method,
        address.url,
        headers=[(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()],
        content=content,
        extensions={"timeout": {"connect": wait_s, "read": wait_s, "write": wait_s, "pool": wait_s}},
    )


def _headers_of(response: httpcore.Response) -> Mapping[str, str]:
    """Return headers by lower-case name; repeated ones are joined with a comma."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _chunks(response: httpcore.Response, encoding: str, exchange: _Exchange, max_bytes: int) -> Iterator[bytes]:
    try:
        yield from decode_bounded(_raw(response, exchange), encoding, max_bytes)
    except _NETWORK_ERRORS as error:
        _raise_net_error(exchange, error, has_response=True)


def _raw(response: httpcore.Response, exchange: _Exchange) -> Iterator[bytes]:
    raw = iter(response.stream)  # type: ignore[arg-type]  # Iterable[bytes] on the synchronous side
    while True:
        if exchange.remaining_s() <= 0:
            raise httpcore.ReadTimeout("the deadline has passed")
        with bind_deadline(exchange):
            chunk = next(raw, None)
        if chunk is None:
            return
        yield chunk


def _raise_net_error(exchange: _Exchange, error: Exception, has_response: bool = False) -> NoReturn:
    is_not_sent = isinstance(error, _NOT_SENT_ERRORS) and not has_response
    kind: type[NetError] = NotSent if is_not_sent and not exchange.is_sent else NoReply
    if isinstance(error, UnreadableBody):
        kind = UnusableReply
    raise kind(f"{exchange.description}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or cause}"
    if isinstance(error, httpcore.TimeoutException):
        return f"no {'connection' if 'Connect' in type(error).__name__ else 'complete answer'} in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    text = str(error) or type(error).__name__
    return " ".join(text.split())[:200]
