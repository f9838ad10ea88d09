"""The HTTP client of a provider: its address, its key, its rate limit. Reads are repeated, changes never."""

from __future__ import annotations

import threading
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
    ProviderMoved,
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
from gpuwatch.providers.toolkit.rate_limiter import SEARCH, Holds, RateLimiter, RequestHeld, WaitStopped
from gpuwatch.providers.toolkit.validation import decode_json
from gpuwatch.redaction import register_secret

if TYPE_CHECKING:
    from tenacity import Retrying

    from gpuwatch.ports.http import RequestOptions

ANY: Final = "any"  # a class whose interval every request keeps, beside that of its own class
_MIN_ATTEMPT_S: Final = 1.0
_MAX_ATTEMPTS: Final = 3
_MAX_WAIT_S: Final = 60.0  # leave a longer Retry-After to the next poll
_MAX_ERROR_BYTES: Final = 2**20
_RENEW_EARLY_S: Final = 60.0  # renew a token this long before it expires
T = TypeVar("T")
LogIn = Callable[["ApiClient"], tuple[str, float]]


class PacedClient:
    """Rate limits and retries of one provider, all within its timeout. Also the base of clients of vendor SDKs."""

    def __init__(self, settings: ProviderSettings, tools: Tools, intervals_s: Mapping[str, float]) -> None:
        self.name = settings.name
        self.tools = tools
        self._timeout_s = settings.timeout_s
        intervals_s = {SEARCH: settings.search_interval_s, **intervals_s}
        self._paces_all = ANY in intervals_s
        turns = tools.turns.get(self.name)
        self._limiter = RateLimiter(intervals_s, tools.monotonic, tools.sleep, tools.stop, turns)
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
        if self._paces_all and kind != ANY:
            self.acquire(ANY, urgent)

    @contextmanager
    def preparing_order(self) -> Iterator[None]:
        """Run what must succeed before a vendor's SDK sends an order. Raises OrderRefused: nothing was sent."""
        try:
            yield
        except WaitStopped as error:
            raise OrderRefused(f"{self.name}: not sent, gpuwatch is stopping", RefusalKind.NOT_SENT) from error
        except KeyRejected as error:
            raise OrderRefused(str(error), RefusalKind.KEY) from error
        except ProviderError as error:
            raise OrderRefused(f"not sent: {error}", RefusalKind.NOT_SENT) from error

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

        return _retrying(self.tools, lambda: elapsed_s + _MIN_ATTEMPT_S > self._timeout_s)(attempt_once)

    def _acquire_to_read(self, kind: str, urgent: bool) -> None:
        try:
            try:
                self.acquire(kind, urgent)
            except WaitStopped as error:
                raise ProviderDown(f"{self.name}: no request sent, gpuwatch is stopping") from error
        except ProviderError as error:
            error.was_sent = False
            raise


def _retrying(tools: Tools, is_timed_out: Callable[[], bool]) -> Retrying:
    """Return a loop of up to three attempts, which ends with `tools.stop`; it raises the last failure."""
    # not for start-up: declarations of providers are read at every start
    from tenacity import Retrying, retry_if_exception, wait_exception, wait_random_exponential  # noqa: PLC0415

    def may_help(error: BaseException) -> bool:
        return _is_retryable(error) and (tools.is_patient or not isinstance(error, ProviderUnreachable))

    return Retrying(
        retry=retry_if_exception(may_help),
        stop=lambda state: state.attempt_number >= _MAX_ATTEMPTS or tools.stop.is_set() or is_timed_out(),
        wait=wait_random_exponential(multiplier=1.0, max=8.0, min=0.3) + wait_exception(_requested_wait_s),
        sleep=tools.sleep,
        reraise=True,
    )


def _is_retryable(error: BaseException) -> bool:
    """Whether another attempt may help: not after a wrong key, or an unknown format."""
    if isinstance(error, RateLimited):
        return error.was_sent and (error.retry_after_s is None or error.retry_after_s <= _MAX_WAIT_S)
    return isinstance(error, ProviderDown) and not isinstance(error, ProviderMoved)


def _requested_wait_s(error: BaseException) -> float:
    requested_wait_s = error.retry_after_s if isinstance(error, RateLimited) else None
    return requested_wait_s or 0.0


class ApiClient(PacedClient):
    """A provider that speaks JSON over HTTP. Every 2xx is an answer; `reading` and `ordering` name all other errors.

    Args:
        headers: sent only to the provider's own host, as they may hold the key; None: `Authorization: Bearer KEY`.
        log_in: gets a token with this client, by `request_token`; returns it and the seconds for which it is valid. It
            then authenticates every request, and is replaced early when it is rejected.
        intervals_s: seconds between two requests of a class; "search" is the setting `search_interval`.
    """

    def __init__(  # noqa: PLR0913 each is named
        self,
        settings: ProviderSettings,
        tools: Tools,
        *,
        headers: Mapping[str, str] | None = None,
        log_in: LogIn | None = None,
        intervals_s: Mapping[str, float] | None = None,
        reading: ReadErrorMapper = reading_error,
        ordering: OrderErrorMapper = ordering_error,
    ) -> None:
        super().__init__(settings, tools, intervals_s or {})
        self.has_key = bool(settings.api_key)
        if headers is None:
            headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._headers = {} if log_in else dict(headers)
        self._log_in, self._log_in_lock = log_in, threading.Lock()  # searching and renting are two threads
        self._logged_in_until_s = 0.0
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
        is_new_token = self._ensure_login()
        try:
            return self._read_reply(method, path, kind, urgent, options)
        except KeyRejected:
            if self._log_in is None or is_new_token:
                raise
            self._logged_in_until_s = 0.0
        self._ensure_login()
        return self._read_reply(method, path, kind, urgent, options)

    def request_token(self, path: str, credentials: object) -> Any:
        """Return the decoded answer to the POST that `log_in` sends. Raises ProviderError."""
        return decode_json(self._read_reply("POST", path, "token", False, {"json": credentials}).body, self.name)

    def _read_reply(self, method: str, path: str, kind: str, urgent: bool, options: Mapping[str, Any]) -> HttpReply:
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
            OrderRefused: NOT_SENT, nothing was sent; KEY, the login was rejected.
            OutcomeUnknown: no answer came.
        """
        self._ensure_login_to_order()
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
        if reply.status == 401:
            self._logged_in_until_s = 0.0
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

    def _ensure_login(self) -> bool:
        """Get a token unless there is a valid one; return whether it is new. Raises ProviderError."""
        if self._log_in is None:
            return False
        with self._log_in_lock:
            now_s = self.tools.monotonic()
            if now_s < self._logged_in_until_s:
                return False
            token, valid_s = self._log_in(self)
            register_secret(token)
            self._headers = {"Authorization": f"Bearer {token}"}
            self._logged_in_until_s = now_s + max(valid_s - _RENEW_EARLY_S, 0.0)
            return True

    def _ensure_login_to_order(self) -> None:
        try:
            self._ensure_login()
        except KeyRejected as error:
            raise OrderRefused(f"{error}; nothing was sent", RefusalKind.KEY) from error
        except ProviderError as error:
            raise OrderRefused(f"{self.name}: not sent, no token: {error}", RefusalKind.NOT_SENT) from error

    def _headers_for(self, url: str) -> Mapping[str, str]:
        """Send the key only to the provider's own host: a link in a page may lead anywhere."""
        is_own_host = url.startswith(f"{self._base_url}/") or _origin(url) == _origin(self._base_url)
        return self._headers if is_own_host else {}

    def _url(self, path: str) -> str:
        return path if path.startswith(("http://", "https://")) else self._base_url + path


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]


def rebase_url(url: str, name: str, base_url: str | None) -> str:
    """Return the URL of a source, or of its stand-in below another `base_url`: base/NAME/path.

    Args:
        base_url: None: the default; each source is then requested at its own URL.
    """
    if base_url is None:
        return url
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{base_url.rstrip('/')}/{name}{parts.path}{query}"


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
