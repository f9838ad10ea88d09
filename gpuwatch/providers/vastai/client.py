"""Asking vast.ai: the address, the key, the pace, and repeating what only reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.api_client import PacedClient
from gpuwatch.providers.vastai.error_mapping import reading_error

if TYPE_CHECKING:
    from gpuwatch.ports.http import RequestOptions, StreamingReply

# Seconds between two calls of a class.
# source: the vendor's generated specification (x-rateLimit), 2026-08; searches have their own setting
INTERVALS_S: Final[Mapping[str, float]] = {
    "instances": 1.0, "create": 4.5, "destroy": 3.0, "label": 1.0, "user": 1.0, "bid": 5.5, "charges": 1.0,
    "increases": 2.0, "accept": 2.0, "reject": 2.0,
}  # fmt: skip

_SMALL_BYTES: Final = 2**20
_LEAST_S: Final = 1.0
T = TypeVar("T")


class VastClient(PacedClient):
    """One `[providers.vastai]`: where, with which key, how fast."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools, INTERVALS_S)
        self.has_key = bool(settings.api_key)
        self._base = settings.base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}

    def send(self, method: str, path: str, body: object, deadline_s: float | None = None) -> HttpReply:
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
    ) -> HttpReply:
        """A small answer with status 200, asked for up to three times.

        Raises:
            ProviderError: there is none.
        """

        def attempt(deadline_s: float) -> HttpReply:
            options: RequestOptions = {"headers": self._headers, "deadline_s": deadline_s, "max_bytes": max_bytes}
            with self._asked(path, options | {"params": params or {}}) as arriving:
                return HttpReply(arriving.status, arriving.headers, arriving.read())

        return self.read(kind, attempt)

    @contextmanager
    def search(self, params: Mapping[str, str], deadline_s: float) -> Iterator[StreamingReply]:
        """A search's answer as it arrives. One attempt, to be used under `read`."""
        options: RequestOptions = {"headers": self._headers, "params": params, "deadline_s": deadline_s}
        with self._asked("/api/v0/bundles/", options) as arriving:
            yield arriving

    @contextmanager
    def _asked(self, path: str, options: RequestOptions) -> Iterator[StreamingReply]:
        with self.tools.http.stream("GET", self._base + path, **options) as arriving:
            if arriving.status != 200:
                reply = HttpReply(arriving.status, arriving.headers, arriving.read(_SMALL_BYTES))
                raise reading_error(reply, self.tools.now())
            yield arriving
