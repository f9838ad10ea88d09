"""What a provider's tests tell the conformance suites about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from gpuwatch import providers
from gpuwatch.net import Http
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.settings import Option

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Place(Protocol):
    """A stand-in for the provider, serving on loopback."""

    url: str


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """One provider and its stand-in. `tests/providers/NAME/bench.py` holds one as `BENCH`.

    Args:
        place: a new stand-in with a small market of at least three offers on demand, two of them of `gpu`.
        gpu: canonical name of that GPU.
        key: accepted by the stand-in; None: it wants none.
        options: of `[providers.NAME.options]`, beside the defaults.
        sell_out: (place, offer id) → that offer can no longer be rented, though a search may still show it.
        renders: statuses that mean something else here: status → the error's class name, for the suites' table.
        order: values for the orders of the suite, such as its image.
    """

    name: str
    place: Callable[[], AbstractContextManager[Any]]
    gpu: str
    key: str | None = "demo-key"
    options: Mapping[str, Option] = {}
    sell_out: Callable[[Any, str], None] | None = None
    renders: Mapping[int, str] = {}
    order: Mapping[str, Any] = {}

    @contextmanager
    def pointed_at(self, url: str, key: str | None = "", timeout_s: float = 2.0) -> Iterator[providers.Adapter]:
        """The adapter, asking whatever serves there. Nobody really waits: its clock passes only while it waits.

        Args:
            key: "": the bench's own.
        """
        info, clock = providers.info(self.name), _Clock()
        secret = self.key if key == "" else key
        settings = ProviderSettings(
            name=self.name,
            base_url=url,
            api_key=secret,
            search_interval_s=0.0,
            timeout_s=timeout_s,
            options={spec.name: spec.default for spec in info.options} | dict(self.options),
        )
        http = Http(secrets=[secret] if secret else [])
        try:
            yield providers.build(settings, http, lambda: NOW, clock, clock.sleep)
        finally:
            http.close()


class _Clock:
    """Passes only while the adapter waits for its turn."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds
