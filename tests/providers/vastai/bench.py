"""What the contract suites need to try the vast.ai adapter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from gpuwatch import providers
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.net import Http
from gpuwatch.ports import ProviderSettings

GPU = "RTX 4090"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class _Clock:
    """Passes only while the adapter waits for its turn, so that nobody really waits."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds


@contextmanager
def pointed_at(url: str, key: str | None = "demo-key", timeout_s: float = 2.0) -> Iterator[providers.Adapter]:
    """The adapter, asking whatever serves there."""
    http, clock = Http(secrets=[key] if key else []), _Clock()
    settings = ProviderSettings(name="vastai", base_url=url, api_key=key, search_interval_s=0.0, timeout_s=timeout_s)
    try:
        yield providers.build(settings, http, lambda: NOW, clock, clock.sleep)
    finally:
        http.close()


@contextmanager
def marketplace() -> Iterator[Marketplace]:
    """A marketplace with offers, some of them odd, that rents at once."""
    quick = Delays(created_s=0.0, ssh_s=0.0, loading_s=0.0, running_s=0.0)
    with Marketplace(size=150, delays=quick) as place:
        yield place
