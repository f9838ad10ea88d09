"""Asking vast.ai: the address, the key, the pace, and repeating what only reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from gpuwatch.errors import PayloadChanged, ProviderDown, ProviderError, RateLimited
from gpuwatch.net import NetError, Reply, UnusableAnswer
from gpuwatch.ports import ProviderSettings
from gpuwatch.providers import Tools
from gpuwatch.providers._pace import Pace, Stopped
from gpuwatch.providers.vastai.refusals import reading_error

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from gpuwatch.net import Arriving, Options

# Seconds between two calls of a class.
# source: the vendor's generated specification (x-rateLimit), 2026-08; searches have their own setting
INTERVALS_S: Final[Mapping[str, float]] = {
    "instances": 1.0, "create": 4.5, "destroy": 3.0, "label": 1.0, "user": 1.0, "bid": 5.5, "charges": 1.0,
    "increases": 2.0, "accept": 2.0, "reject": 2.0,
}  # fmt: skip

_ATTEMPTS: Final = 3
_LONGEST_WAIT_S: Final = 60.0  # a longer Retry-After is the next poll's business
_SMALL_BYTES: Final = 2**20
_LEAST_S: Final = 1.0
T = TypeVar("T")


class Account:
    """One `[providers.vastai]`: where, with which key, how fast."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        self.tools = tools
        self.has_key = bool(settings.api_key)
        self._base = settings.base_url.rstrip("/")
        self._timeout_s = settings.timeout_s
        self._headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        intervals = {**INTERVALS_S, "search": settings.search_interval_s}
        self._pace = Pace(intervals, tools.monotonic, tools.sleep, tools.stop)

    def take_turn(self, kind: str, urgent: bool = False) -> None:
        """Wait for the next call of a class to be allowed. Raises `Stopped`."""
        self._pace.wait(kind, urgent)

    def send(self, method: str, path: str, body: object, deadline_s: float | None = None) -> Reply:
        """Send once, whatever comes. Raises NotSent, NoAnswer."""
        return self.tools.http.ask(
            method,
            self._base + path,
            headers=self._headers,
            json=body,
            deadline_s=deadline_s or self._timeout_s,
            max_bytes=_SMALL_BYTES,
        )

    def get(
        self, kind: str, path: str, params: Mapping[str, str] | None = None, max_bytes: int = _SMALL_BYTES
    ) -> Reply:
        """A small answer with status 200, asked for up to three times.

        Raises:
            ProviderError: there is none.
        """

        def attempt(deadline_s: float) -> Reply:
            options: Options = {"headers": self._headers, "deadline_s": deadline_s, "max_bytes": max_bytes}
            with self._asked(path, options | {"params": params or {}}) as arriving:
                return Reply(arriving.status, arriving.headers, arriving.read())

        return self.read(kind, attempt)

    @contextmanager
    def search(self, params: Mapping[str, str], deadline_s: float) -> Iterator[Arriving]:
        """A search's answer as it arrives. One attempt, to be used under `read`."""
        options: Options = {"headers": self._headers, "params": params, "deadline_s": deadline_s}
        with self._asked("/api/v0/bundles/", options) as arriving:
            yield arriving

    def read(self, kind: str, attempt: Callable[[float], T], urgent: bool = False) -> T:
        """Do what only reads, again if that may help: not for a wrong key, a spent quota, an unknown format.

        Args:
            attempt: gets the seconds it may take; all attempts together get the provider's timeout.
        """
        spent_s = 0.0

        def once() -> T:
            nonlocal spent_s
            self._wait(kind, urgent)
            began = self.tools.monotonic()
            try:
                return attempt(max(self._timeout_s - spent_s, _LEAST_S))
            except UnusableAnswer as error:
                raise PayloadChanged(f"vastai: {error}") from error
            except NetError as error:
                raise ProviderDown(f"vastai: {error}") from error
            finally:
                spent_s += self.tools.monotonic() - began

        try:
            return once()
        except ProviderError as error:
            if not _may_help(error) or self._is_over(spent_s):
                raise
            first = error
        return _again(once, first, self.tools.sleep, lambda: self._is_over(spent_s))

    def _is_over(self, spent_s: float) -> bool:
        return self.tools.stop.is_set() or spent_s + _LEAST_S > self._timeout_s

    def _wait(self, kind: str, urgent: bool) -> None:
        try:
            self.take_turn(kind, urgent)
        except Stopped as stopped:
            raise ProviderDown("vastai: not asked, gpuwatch is stopping") from stopped

    @contextmanager
    def _asked(self, path: str, options: Options) -> Iterator[Arriving]:
        with self.tools.http.stream("GET", self._base + path, **options) as arriving:
            if arriving.status != 200:
                reply = Reply(arriving.status, arriving.headers, arriving.read(_SMALL_BYTES))
                raise reading_error(reply, self.tools.now())
            yield arriving


def _may_help(error: BaseException) -> bool:
    if isinstance(error, RateLimited):
        return error.retry_after_s is None or error.retry_after_s <= _LONGEST_WAIT_S
    return isinstance(error, ProviderDown)


def _again(once: Callable[[], T], first: ProviderError, sleep: Callable[[float], None], spent: Callable[[], bool]) -> T:
    """The second and third attempt. tenacity is imported only now: it costs 25 ms, and most answers come at once."""
    import tenacity  # noqa: PLC0415

    backoff = tenacity.wait_random_exponential(multiplier=1.0, max=8.0, min=0.3)

    def wait_s(state: RetryCallState) -> float:
        failed = state.outcome.exception() if state.outcome is not None else None
        told_s = failed.retry_after_s if isinstance(failed, RateLimited) else None
        return backoff(state) + (told_s or 0.0)

    def attempt(failed: list[ProviderError] = [first]) -> T:  # noqa: B006 - the first attempt's failure, used once
        if failed:
            raise failed.pop()
        return once()

    retrying = tenacity.Retrying(
        stop=lambda state: state.attempt_number >= _ATTEMPTS or spent(),
        wait=wait_s,
        retry=tenacity.retry_if_exception(_may_help),
        sleep=sleep,
        reraise=True,
    )
    return retrying(attempt)
