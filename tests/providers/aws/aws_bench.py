"""An EC2 on loopback and adapters that ask it, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event
from typing import Any

from gpuwatch import providers
from gpuwatch.ports import Order, ProviderSettings
from gpuwatch.providers.toolkit.http.client import HttpxClient

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEY = "demo-key:demo-secret"
BOTH = ("us-east-1", "us-west-2")


class Clock:
    """Passes only while somebody waits, and when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@contextmanager
def asking(
    url: str,
    key: str | None = KEY,
    *,
    clock: Clock | None = None,
    now: Callable[[], datetime] = lambda: NOW,
    stop: Event | None = None,
    timeout_s: float = 5.0,
    **options: Any,
) -> Iterator[providers.Adapter]:
    """The adapter; `options` beside the defaults."""
    clock = clock or Clock()
    given = {spec.name: spec.default for spec in providers.info("aws").options} | {"regions": BOTH} | options
    settings = ProviderSettings(
        name="aws", base_url=url, api_key=key, search_interval_s=0.0, timeout_s=timeout_s, options=given
    )
    http = HttpxClient(secrets=[])
    try:
        yield providers.build(settings, http, now, clock, clock.sleep, stop)
    finally:
        http.close()


def order(offer_id: str = "us-east-1/us-east-1a/g5.xlarge/on-demand", **values: Any) -> Order:
    plain: dict[str, Any] = {"label": "gpuwatch-abcdefgh2345", "image": "x/y", "disk_gb": 100.0}
    return Order(**(plain | {"offer_id": offer_id} | values))
