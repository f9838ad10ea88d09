"""The HTTP client of a provider: its address, its key, its rate limit. Reads are repeated, changes never."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

from gpuwatch.errors import (
    KeyRejected,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    ProviderUnreachable,
    QuotaSpent,
    RateLimited,
    RefusalKind,
)
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply, NetError, NotSent, StreamingReply, UnusableReply
from gpuwatch.providers.toolkit.error_mapping import (
    OrderErrorMapper,
    ReadErrorMapper,
    ordering_error,
    read_error_body,
    reading_error,
    retry_after_s,
)
from gpuwatch.providers.toolkit.holds import SEARCH, Holds
from gpuwatch.providers.toolkit.rate_limiter import RateLimiter, RequestHeld, WaitStopped
from gpuwatch.providers.toolkit.retry import retrying
from gpuwatch.providers.toolkit.validation import decode_json

if TYPE_CHECKING:
    from gpuwatch.ports.http import RequestOptions

_MIN_ATTEMPT_S: Final = 1.0
_MAX_ERROR_BYTES: Final = 2**20
T = TypeVar("T")


class PacedClient:
    """Rate limits and retries of one provider, all within its timeout. Also the base of clients of vendor SDKs."""

    def __init__(self, settings: ProviderSettings, tools: Tools, intervals_s: Mapping[str, float]) -> None:
        self.name = settings.name
        self.tools = tools
        self._timeout_s = settings.timeout_s
        intervals_s = {SEARCH: settings.search_interval_s, **intervals_s}
        self._limiter = RateLimiter(intervals_s, tools.monotonic, tools.sleep, tools.stop)
        self._holds = Holds(self.name, tools, self._limiter, intervals_s)

    def acquire(self, kind: str, urgent: bool = False) -> None:
        """Wait until the next request of a class is allowed.

        Raises:
            WaitStopped: gpuwatch is stopping.
            RateLimited, QuotaSpent: the class is held back for longer than the timeout; nothing was sent.
        """
        self._holds.load()
        try:
            self._limiter.wait(kind, urgent, self._timeout_s)
        except RequestHeld as error:
            raise self._holds.error(kind, error.remaining_s) from None
        self._holds.on_send(kind)

    def read(self, kind: str, attempt: Callable[[float], T], urgent: bool = False) -> T:
        """Run a request that only reads, up to three times; stops at a wrong key, a used-up quota, an unknown format.

        A rate-limit refusal or a used-up quota holds back the whole class.

        Args:
            attempt: receives its time limit in seconds; all attempts together get the provider's timeout.

        Raises:
            ProviderError: no usable answer.
        """
        elapsed_s = 0.0

        def attempt_once() -> T:
            nonlocal elapsed_s
            self._acquire_to_read(kind, urgent)
            sent_at_s = self.tools.monotonic()
            try:
                return attempt(max(self._timeout_s - elapsed_s, _MIN_ATTEMPT_S))
            except (RateLimited, QuotaSpent) as error:
                self._holds.on_read_refused(kind, error)
                raise
            except UnusableReply as error:
                raise PayloadChanged(f"{self.name}: {error}") from error
            except NotSent as error:
                raise ProviderUnreachable(f"{self.name}: {error}") from error
            except NetError as error:
                raise ProviderDown(f"{self.name}: {error}") from error
            finally:
                elapsed_s += self.tools.monotonic() - sent_at_s
                self._holds.on_complete(kind, sent_at_s)

        return retrying(self.tools, lambda: elapsed_s + _MIN_ATTEMPT_S > self._timeout_s)(attempt_once)

    def _acquire_to_read(self, kind: str, urgent: bool) -> None:
        try:
            try:
                self.acquire(kind, urgent)
            except WaitStopped as error:
                raise ProviderDown(f"{self.name}: no request sent, gpuwatch is stopping") from error
        except ProviderError as error:
            error.was_sent = False
            raise


class ApiClient(PacedClient):
    """A provider that speaks JSON over HTTP. Every 2xx is an answer; `reading` and `ordering` name all other errors.

    Args:
        headers: sent only to the provider's own host, as they may hold the key; None: `Authorization: Bearer KEY`.
        intervals_s: seconds between two requests of a class; "search" is the setting `search_interval`.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        tools: Tools,
        *,
        headers: Mapping[str, str] | None = None,
        intervals_s: Mapping[str, float] | None = None,
        reading: ReadErrorMapper = reading_error,
        ordering: OrderErrorMapper = ordering_error,
    ) -> None:
        super().__init__(settings, tools, intervals_s or {})
        self.has_key = bool(settings.api_key)
        if headers is None:
            headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._headers = dict(headers)
        self._base_url = settings.base_url.rstrip("/")
        self._map_read_error = reading
        self._map_order_error = ordering

    def get(self, path: str, params: Mapping[str, str] | None = None, *, kind: str = "search") -> Any:
        """Return the decoded JSON of a GET, sent up to three times.

        Args:
            path: below `base_url`, or a whole URL.

        Raises:
            ProviderError: no usable answer.
        """
        return decode_json(self.request("GET", path, kind=kind, params=params or {}).body, self.name)

    def query(self, path: str, body: object, *, kind: str = "search") -> Any:
        """Return the decoded JSON of a POST that only reads, such as a GraphQL query. Raises ProviderError."""
        return decode_json(self.request("POST", path, kind=kind, json=body).body, self.name)

    def request(
        self, method: str, path: str, *, kind: str = "search", urgent: bool = False, **options: Any
    ) -> HttpReply:
        """Return the 2xx answer to a request that only reads. `options`: as `RequestOptions`. Raises ProviderError."""

        def attempt(deadline_s: float) -> HttpReply:
            with self.stream(method, path, kind=kind, deadline_s=deadline_s, **options) as reply:
                return HttpReply(reply.status, reply.headers, reply.read())

        return self.read(kind, attempt, urgent)

    @contextmanager
    def stream(self, method: str, path: str, *, kind: str = "search", **options: Any) -> Iterator[StreamingReply]:
        """Yield a 2xx answer as it arrives: one attempt, for use in `read`. `options`: as `RequestOptions`.

        Raises:
            ProviderError: the answer has another status.
            NetError: no answer.
        """
        url = self._url(path)
        request_options: RequestOptions = {"headers": self._headers_for(url), **options}  # type: ignore[typeddict-item]
        with self.tools.http.stream(method, url, **request_options) as streaming_reply:
            is_success = 200 <= streaming_reply.status < 300
            reply = HttpReply(
                streaming_reply.status,
                streaming_reply.headers,
                b"" if is_success else streaming_reply.read(_MAX_ERROR_BYTES),
            )
            self.on_reply(reply, kind)
            if not is_success:
                raise self._map_read_error(self.name, read_error_body(reply), reply, self.tools.now())
            yield streaming_reply

    def order(
        self, method: str, path: str, body: object = None, *, kind: str = "order", deadline_s: float | None = None
    ) -> HttpReply:
        """Return the 2xx answer to a request that changes something: sent once, whatever happens.

        Raises:
            OrderRefused: NOT_SENT, nothing was sent; or as `ordering` maps the answer.
            OrderError: as `ordering` maps the answer; OutcomeUnknown without an answer.
        """
        reply = self.send(method, path, body, kind=kind, deadline_s=deadline_s)
        if not 200 <= reply.status < 300:
            raise self._map_order_error(self.name, read_error_body(reply), reply, self.tools.now())
        return reply

    def send(
        self, method: str, path: str, body: object = None, *, kind: str = "order", deadline_s: float | None = None
    ) -> HttpReply:
        """Like `order`, but returns an answer of any status: for a provider whose errors depend on the request.

        Raises:
            OrderRefused: NOT_SENT, nothing was sent.
            OutcomeUnknown: no answer came.
        """
        url = self._url(path)
        options: RequestOptions = {"headers": self._headers_for(url), "deadline_s": deadline_s or self._timeout_s}
        if body is not None:
            options["json"] = body
        try:
            self.acquire(kind, urgent=True)
            reply = self.tools.http.ask(method, url, **options)
        except WaitStopped as error:
            raise OrderRefused(f"{self.name}: not sent, gpuwatch is stopping", RefusalKind.NOT_SENT) from error
        except NotSent as error:
            raise OrderRefused(f"{self.name}: not sent: {error}", RefusalKind.NOT_SENT) from error
        except NetError as error:
            raise OutcomeUnknown(f"{self.name}: {error}") from error
        self.on_reply(reply, kind)
        if reply.status == 429:
            self._holds.on_order_refused(kind, retry_after_s(reply, self.tools.now()))
        return reply

    def on_reply(self, reply: HttpReply, kind: str) -> None:
        """Called with every answer, before the body of a 2xx is read: for providers that send a quota in headers."""

    def require_key(self) -> None:
        """Check that a key is set, before a request that needs one. Raises KeyRejected."""
        if not self.has_key:
            raise KeyRejected(f"{self.name}: no key is set; set it in the environment, or in [providers.{self.name}]")

    def require_key_to_order(self) -> None:
        """Check that a key is set, before a change that needs one. Raises OrderRefused: KEY, nothing was sent."""
        try:
            self.require_key()
        except KeyRejected as error:
            raise OrderRefused(f"{error}; nothing was sent", RefusalKind.KEY) from error

    def _headers_for(self, url: str) -> Mapping[str, str]:
        """Send the key only to the provider's own host: a link in a page may lead anywhere."""
        is_own_host = url.startswith(f"{self._base_url}/") or _origin(url) == _origin(self._base_url)
        return self._headers if is_own_host else {}

    def _url(self, path: str) -> str:
        return path if path.startswith(("http://", "https://")) else self._base_url + path


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]


class TtlCache(Generic[T]):
    """Caches a whole answer that serves several queries; it is fetched again when it is older than `ttl_s`.

    For a catalogue that one request returns as a whole. Keep `ttl_s` at 5 s or less where gpuwatch can rent: the price
    must be current.
    """

    def __init__(self, ttl_s: float, monotonic: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._monotonic = monotonic
        self._entries: dict[object, tuple[float, T]] = {}

    def get(self, fetch: Callable[[], T], key: object = None) -> T:
        """Return the cached answer of `key`, or fetch it. Passes on an error of `fetch`, and then caches nothing."""
        entry = self._entries.get(key)
        if entry is not None and 0 <= self._monotonic() - entry[0] <= self._ttl_s:
            return entry[1]
        self._entries[key] = (self._monotonic(), value := fetch())
        return value

    def invalidate(self, key: object = None) -> None:
        """Discard the cached answer, because it is incomplete."""
        self._entries.pop(key, None)
