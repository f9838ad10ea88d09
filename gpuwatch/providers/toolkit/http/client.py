"""`HttpxClient`: one request within a deadline and a size; every error says whether the request had left."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import NoReturn, Unpack

import httpcore
import httpx
import msgspec

from gpuwatch import __version__
from gpuwatch.ports.http import HttpReply, NetError, NoReply, NotSent, RequestOptions, StreamingReply, UnusableReply
from gpuwatch.providers.toolkit.http.inflate import UnreadableBody, decode_bounded
from gpuwatch.providers.toolkit.http.transport import Transport, is_loopback
from gpuwatch.providers.toolkit.http.wire import RequestInFlight, waits_bounded_by
from gpuwatch.redaction import register_secret

for _name in ("httpx", "httpcore"):  # httpx logs whole URLs at INFO, tokens included
    logging.getLogger(_name).setLevel(logging.WARNING)

_NEVER_SENT = (
    httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout, httpcore.ProxyError,
    httpcore.UnsupportedProtocol, httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError,
    httpx.UnsupportedProtocol, httpx.InvalidURL,
)  # fmt: skip
_TIMEOUTS = (httpcore.TimeoutException, httpx.TimeoutException)
_FAILURES = (
    httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, httpcore.TimeoutException,
    httpcore.UnsupportedProtocol, httpx.HTTPError, httpx.InvalidURL, UnreadableBody, OSError,
)  # fmt: skip
_SAME_PLACE_WITH_SLASH = frozenset({301, 302, 307, 308})


_DEADLINE_S = 30.0


class HttpxClient:
    """A pool of connections, for all threads. Never repeats a request; follows a redirect only to its missing slash.

    Args:
        secrets: keys and tokens that no text may show.
        max_bytes: the largest answer, decompressed.
        verify: a file of trusted certificates, or a context; None: the system's, else certifi's.
        transport: replaces the network, in tests.
        monotonic: seconds, for deadlines.
    """

    def __init__(
        self,
        *,
        secrets: Iterable[str] = (),
        max_bytes: int = 64 * 2**20,
        verify: str | ssl.SSLContext | None = None,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        register_secret(*secrets)
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._client = httpx.Client(
            transport=transport or Transport(verify),
            trust_env=False,  # `Transport` reads the settings that it honours from the environment
            follow_redirects=False,
            headers={"User-Agent": f"gpuwatch/{__version__}", "Accept": "application/json"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )

    def ask(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpReply:
        """Send one request and read the whole answer, whatever its status.

        Raises:
            NotSent: nothing has left.
            NoReply: it may have arrived.
        """
        with self.stream(method, url, **options) as arriving:
            return HttpReply(arriving.status, arriving.headers, arriving.read())

    @contextmanager
    def stream(self, method: str, url: str, **options: Unpack[RequestOptions]) -> Iterator[StreamingReply]:
        """Like `ask`, with the body as it arrives; `chunks` raises NoReply if it does not end well."""
        exchange = RequestInFlight(self._monotonic() + options.get("deadline_s", _DEADLINE_S), self._monotonic)
        request = self._request(method, url, options)
        response = self._open(request, exchange)
        try:
            slashed = _with_slash(request, response)
            if slashed is not None:
                response.close()
                request = httpx.Request("GET", slashed, headers=request.headers, extensions=request.extensions)
                response = self._open(request, exchange)
            limit = options.get("max_bytes", self._max_bytes)
            yield StreamingReply(response.status_code, dict(response.headers), _chunks(response, exchange, limit))
        finally:
            response.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def _request(self, method: str, url: str, options: RequestOptions) -> httpx.Request:
        headers = dict(options.get("headers", {}))
        content = options.get("content")
        if "json" in options:
            content = msgspec.json.encode(options["json"])
            headers.setdefault("Content-Type", "application/json")
        timeout_s = options.get("deadline_s", _DEADLINE_S)
        try:
            request = self._client.build_request(
                method, _parsed(url, options.get("params")), headers=headers, content=content, timeout=timeout_s
            )
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            raise NotSent(f"{url}: not a usable address ({error})") from error
        # Inflating 27 MB costs 90 ms: worth it on any real link, not on loopback.
        request.headers["Accept-Encoding"] = "identity" if is_loopback(request.url.host) else "gzip, deflate"
        return request

    def _open(self, request: httpx.Request, exchange: RequestInFlight) -> httpx.Response:
        try:
            with waits_bounded_by(exchange):
                return self._client.send(request, stream=True)
        except _FAILURES as error:
            _fail(request, exchange, error)


def _parsed(url: str, params: Mapping[str, str] | None) -> httpx.URL:
    return _parsed_once(url, tuple(params.items()) if params else ())


@lru_cache(maxsize=64)  # a poll sends the same query again and again, and httpx parses each letter of a long one
def _parsed_once(url: str, params: tuple[tuple[str, str], ...]) -> httpx.URL:
    return httpx.URL(url, params=dict(params)) if params else httpx.URL(url)


def _chunks(response: httpx.Response, exchange: RequestInFlight, max_bytes: int) -> Iterator[bytes]:
    if response.is_stream_consumed:  # a replaced network had the whole body ready
        yield response.content
        return
    encoding = response.headers.get("content-encoding", "")
    source = decode_bounded(_raw(response, exchange), encoding, max_bytes)
    try:
        yield from source
    except _FAILURES as error:
        _fail(response.request, exchange, error, answered=True)


def _raw(response: httpx.Response, exchange: RequestInFlight) -> Iterator[bytes]:
    raw = response.iter_raw()  # without a size: with one, httpx waits for a full chunk and no deadline is reached
    while True:
        if exchange.left_s() <= 0:
            raise httpcore.ReadTimeout("the deadline is over")
        with waits_bounded_by(exchange):
            chunk = next(raw, None)
        if chunk is None:
            return
        yield chunk


def _with_slash(request: httpx.Request, response: httpx.Response) -> httpx.URL | None:
    """The same URL with a slash after its path, if that is all that a redirect of a GET asks for."""
    if request.method != "GET" or response.status_code not in _SAME_PLACE_WITH_SLASH:
        return None
    try:
        target = request.url.join(response.headers.get("location", ""))
    except httpx.InvalidURL:
        return None
    wanted = request.url.copy_with(path=request.url.path + "/")
    same = (target.scheme, target.host, target.port, target.path) == (
        wanted.scheme, wanted.host, wanted.port, wanted.path,
    )  # fmt: skip
    return wanted if same else None


def _fail(request: httpx.Request, exchange: RequestInFlight, error: Exception, answered: bool = False) -> NoReturn:
    where = f"{request.method} {request.url.copy_with(query=None)}"
    never_sent = isinstance(error, _NEVER_SENT) and not answered
    kind: type[NetError] = NotSent if never_sent and not exchange.sent else NoReply
    if isinstance(error, UnreadableBody):
        kind = UnusableReply
    raise kind(f"{where}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or cause}"
    if isinstance(error, _TIMEOUTS):
        return f"no {'connection' if 'Connect' in type(error).__name__ else 'whole answer'} in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    text = str(error) or type(error).__name__
    return " ".join(text.split())[:200]
