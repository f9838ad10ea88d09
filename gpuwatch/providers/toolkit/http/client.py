"""`PooledHttpClient`: limits time and size of a request; every error says whether the request was sent."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from typing import Any, Final, Unpack

import httpx

from gpuwatch import __version__
from gpuwatch.ports.http import HttpReply, NetError, NoReply, NotSent, RequestOptions, StreamingReply, UnusableReply
from gpuwatch.providers.toolkit.http.environment import EnvironmentTransport
from gpuwatch.providers.toolkit.http.inflate import UnreadableBody, decode_bounded
from gpuwatch.providers.toolkit.http.wire import Exchange, bind_deadline
from gpuwatch.redaction import register_secret

for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # at INFO and DEBUG they log addresses and headers, with keys

_NOT_SENT_ERRORS = (
    httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol,
    httpx.LocalProtocolError, RuntimeError,
)  # fmt: skip
_NETWORK_ERRORS = (
    httpx.TransportError, UnreadableBody, OSError,
    RuntimeError,  # the client is closed
    httpx.InvalidURL, ValueError,  # a redirect to something that is no URL: httpx reads it even if nobody follows it
)  # fmt: skip
_SLASH_REDIRECTS = frozenset({301, 302, 307, 308})
_DEADLINE_S: Final = 30.0
_HEADERS: Final = {
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",  # what `inflate` can decode within bounds
    "user-agent": f"gpuwatch/{__version__}",
}


class PooledHttpClient:
    """A connection pool for all threads. Never repeats a request; follows only a redirect that adds a trailing slash.

    Args:
        secrets: keys and tokens to redact in every text.
        max_bytes: the largest answer, after decompression.
        verify: the trusted certificates; None: the environment's, or the system's, or else certifi's.
        transport: replaces the network and the proxies of the environment.
        monotonic: seconds, for deadlines.
    """

    def __init__(
        self,
        *,
        secrets: Iterable[str] = (),
        max_bytes: int = 64 * 2**20,
        verify: ssl.SSLContext | None = None,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        register_secret(*secrets)
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._client = httpx.Client(
            transport=transport or EnvironmentTransport(verify),
            headers=_HEADERS,
            cookies=_NoCookies(),
            follow_redirects=False,
            trust_env=False,  # EnvironmentTransport reads it
        )

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
        exchange = Exchange(self._monotonic() + options.get("deadline_s", _DEADLINE_S), self._monotonic)
        request = self._request(method, url, options)
        response = self._send(request, exchange)
        try:
            redirected = _with_trailing_slash(request, response)
            if redirected is not None:
                response.close()
                response = self._send(redirected, exchange)
            chunks = _chunks(response, exchange, options.get("max_bytes", self._max_bytes))
            yield StreamingReply(response.status_code, dict(response.headers.items()), chunks)
        finally:
            response.close()
            exchange.is_over = True

    def close(self) -> None:
        """Close every connection; later requests are not sent."""
        self._client.close()

    def _request(self, method: str, url: str, options: RequestOptions) -> httpx.Request:
        try:
            request = self._client.build_request(
                method,
                url,
                params=options.get("params") or None,  # httpx would drop the query of the URL for an empty one
                headers=options.get("headers"),
                timeout=options.get("deadline_s", _DEADLINE_S),
                **_body(options),
            )
            _check_address(request.url)
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            raise NotSent(f"{url}: not a usable address ({error})") from error
        return request

    def _send(self, request: httpx.Request, exchange: Exchange) -> httpx.Response:
        try:
            with bind_deadline(exchange):
                response = self._client.send(request, stream=True)
        except _NETWORK_ERRORS as error:
            raise _net_error(request, exchange, error) from error
        exchange.is_sent = True
        return response


def _check_address(url: httpx.URL) -> None:
    if url.scheme not in {"http", "https"}:
        raise ValueError("it does not begin with http:// or https://")
    if not url.raw_host or not 0 <= (url.port or 0) < 2**16:  # the system would connect to the port modulo 65536
        raise ValueError("it has no host, or no such port exists")


class _NoCookies(CookieJar):
    def extract_cookies(self, *_: object) -> None:
        """Keep none, and parse none: the answers are hostile."""


def _body(options: RequestOptions) -> dict[str, Any]:
    if "json" in options:
        return {"json": options["json"]}
    return {"content": options["content"]} if "content" in options else {}


def _with_trailing_slash(request: httpx.Request, response: httpx.Response) -> httpx.Request | None:
    """Return the same request to the same address with a trailing slash, if a redirect leads there."""
    if request.method != "GET" or response.status_code not in _SLASH_REDIRECTS or response.next_request is None:
        return None
    path, mark, query = request.url.raw_path.partition(b"?")
    url = request.url.copy_with(raw_path=path + b"/" + mark + query)
    target = response.next_request.url
    if (target.scheme, target.netloc, target.path) != (url.scheme, url.netloc, url.path):
        return None
    return httpx.Request("GET", url, headers=request.headers, stream=request.stream, extensions=request.extensions)


def _chunks(response: httpx.Response, exchange: Exchange, max_bytes: int) -> Iterator[bytes]:
    encoding = response.headers.get("content-encoding", "")
    try:
        yield from decode_bounded(_raw(response, exchange), encoding, max_bytes)
    except _NETWORK_ERRORS as error:
        raise _net_error(response.request, exchange, error) from error


def _raw(response: httpx.Response, exchange: Exchange) -> Iterator[bytes]:
    raw = response.iter_raw()
    while True:
        if exchange.remaining_s() <= 0:
            raise httpx.ReadTimeout("the deadline has passed")
        with bind_deadline(exchange):
            chunk = next(raw, None)
        if chunk is None:
            return
        yield chunk


def _net_error(request: httpx.Request, exchange: Exchange, error: Exception) -> NetError:
    if isinstance(error, UnreadableBody):
        kind: type[NetError] = UnusableReply
    elif isinstance(error, httpx.ProxyError):  # it refused the tunnel
        kind = NotSent
    else:
        kind = NotSent if isinstance(error, _NOT_SENT_ERRORS) and not exchange.is_sent else NoReply
    url = request.url
    path = url.raw_path.partition(b"?")[0]  # neither the query nor the user of the address: they may be keys
    return kind(f"{request.method} {url.scheme}://{url.netloc.decode()}{path.decode()}: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return "no connection in time"
    if isinstance(error, httpx.TimeoutException):
        return "no complete answer in time"
    if isinstance(error, httpx.LocalProtocolError):  # its own text shows the value, which may be a key
        return "a header or the address contains characters that HTTP forbids"
    system_error = _system_error(error)
    if isinstance(system_error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {system_error.verify_message}"
    if isinstance(system_error, ssl.SSLError):
        return f"TLS failed: {system_error.reason or system_error}"
    if system_error is not None and system_error.strerror:
        return system_error.strerror  # its text begins with a number
    text = str(error) or type(error).__name__
    return " ".join(text.split())[:200]


def _system_error(error: BaseException) -> OSError | None:
    """Return the operating system's error whose text `error` repeats. httpcore keeps some only as a context."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and str(inner) == str(error):
            return inner
        inner = inner.__cause__ or inner.__context__
    return None
