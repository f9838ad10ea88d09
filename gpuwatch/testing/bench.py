"""`Bench`: what the conformance suites need to know about a provider."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol, Unpack

import msgspec

from gpuwatch import providers
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.http import RequestOptions, StreamingReply
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.relay import Relay, relaying

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

PARTS: Final = {  # of the suites, for `Bench.leaves_out`
    "narrowing": "a query narrows the answer",
    "keyless": "the answer without a key",
    "statuses": "each HTTP status has its own error",
    "retry_after": "the wait that a 429 asks for",
    "garbage": "a 2xx answer without data",
    "whole": "a search lacks the answer to one of its requests",
    "losses": "a lost connection",
    "hostile": "answers with hostile values",
    "gone": "an offer that is gone is reported as such",
    "ordering": "the HTTP statuses of a create",
    "lost": "the answer to a create or a destroy is lost",
    "not_sent": "a request that was never sent",
    "lists": "odd lists of instances",
    "pages": "a missing page of the list",
    "bids": "a bid at a provider without bids",
    "disk": "the priced disk is the ordered disk",
    "image": "the configured image is ordered",
    "lag": "an instance list that lags behind",
}


class ProviderDouble(Protocol):
    """A stand-in for the provider on loopback."""

    url: str


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """One provider and its stand-in. `tests/providers/NAME/bench.py` holds one as `BENCH`.

    Args:
        place: starts a new stand-in with a small market of at least three offers on demand, two of them of `gpu`.
        gpu: canonical name of that GPU.
        key: accepted by the stand-in; None: it requires none.
        options: for `[providers.NAME.options]`, in addition to the defaults.
        sell_out: (place, offer id) → that offer can no longer be rented, although a search may still show it.
        renders: statuses with another meaning at this provider: status → the error's class name, for the suites'
            table. One name for reads and one for orders, with "|" between: "RateLimited|OfferGone".
        order: values for the orders of the suite, such as its image.
        leaves_out: parts of the suites (`PARTS`) that do not apply → why; they are skipped, with the reason shown.
        creates: a regular expression for "METHOD /target body": the request that rents.
        ends: the same for the request that destroys an instance.
        many: how many instances to rent so that their list has more than one page.
        disk_gb: disk of an order, in GB: a number that appears nowhere else in a request; 100 more are also ordered.
        later: (place) → lets time pass there, until a slow end is complete.
        relaying: (address of the stand-in) → a relay in front of it; override it if a provider does not use HTTP/1.
    """

    name: str
    place: Callable[[], AbstractContextManager[Any]]
    gpu: str
    key: str | None = "demo-key"
    options: Mapping[str, Option] = {}
    sell_out: Callable[[Any, str], None] | None = None
    renders: Mapping[int, str] = {}
    order: Mapping[str, Any] = {}
    leaves_out: Mapping[str, str] = {}
    creates: str = r"^(POST|PUT) "
    ends: str = r"^(DELETE|POST|PUT) "
    many: int = 3
    disk_gb: int = 137
    later: Callable[[Any], None] | None = None
    relaying: Callable[[str], AbstractContextManager[Relay]] = relaying

    def __post_init__(self) -> None:
        unknown = sorted(self.leaves_out.keys() - PARTS.keys())
        if unknown:
            raise ValueError(f"{self.name}: unknown part in leaves_out: {', '.join(unknown)}")

    @property
    def info(self) -> providers.ProviderInfo:
        """The provider's declaration. Raises LookupError: its package is not installed."""
        if self.name not in providers.names():
            raise LookupError(f"there is no provider {self.name!r} here: install its package first")
        return providers.info(self.name)

    @contextmanager
    def pointed_at(self, url: str, key: str | None = "", timeout_s: float = 20.0) -> Iterator[providers.Adapter]:
        """Build the adapter with another address. No real time passes: its clock advances only while it waits.

        Args:
            key: "": the bench's own.
            timeout_s: per request; long, so that a busy machine causes no failure. Tests of silence set their own.
        """
        clock = _BenchClock()
        secret = self.key if key == "" else key
        settings = ProviderSettings(
            name=self.name,
            base_url=url,
            api_key=secret,
            search_interval_s=0.0,
            timeout_s=timeout_s,
            options={spec.name: spec.default for spec in self.info.options} | dict(self.options),
        )
        http = _BoundedHttp(timeout_s, [secret] if secret else [])
        try:
            tools = providers.Tools(
                http=http, now=lambda: NOW, monotonic=clock, sleep=clock.sleep, stop=threading.Event()
            )
            yield providers.build_unisolated(settings, tools)
        finally:
            http.close()


class _BoundedHttp(PooledHttpClient):
    """Waits no longer than the test allows, whatever the adapter requests."""

    def __init__(self, max_wait_s: float, secrets: list[str]) -> None:
        # a stand-in is on loopback, or respx: to load the system's certificates takes 20 ms
        super().__init__(secrets=secrets, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self._max_wait_s = max_wait_s

    @contextmanager
    def stream(self, method: str, url: str, **options: Unpack[RequestOptions]) -> Iterator[StreamingReply]:
        options["deadline_s"] = min(options.get("deadline_s", self._max_wait_s), self._max_wait_s)
        with super().stream(method, url, **options) as reply:
            yield reply


class _BenchClock:
    """Advances only while the adapter waits."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds
