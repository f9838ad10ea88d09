"""An EC2 on loopback and its adapters, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event
from typing import Any

from gpuwatch import providers
from gpuwatch.ports import Instance, Launcher, Order, ProviderSettings
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.clocks import Clock
from tests.clouds.aws import Ec2

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEY = "demo-key:demo-secret"
LABEL = "gpuwatch-abcdefgh2345"
SPOT_ID = "us-east-1/us-east-1a/g5.xlarge/spot"
DISK_USD_HOUR = 100 * 0.08 / 720
BOTH = ("us-east-1", "us-west-2")


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
    """Return the adapter; `options` in addition to the defaults."""
    clock = clock or Clock()
    given = {spec.name: spec.default for spec in providers.info("aws").options} | {"regions": BOTH} | options
    settings = ProviderSettings(
        name="aws", base_url=url, api_key=key, search_interval_s=0.0, timeout_s=timeout_s, options=given
    )
    http = PooledHttpClient(secrets=[])
    try:
        yield providers.build(settings, http, now, clock, clock.sleep, stop)
    finally:
        http.close()


def order(offer_id: str = "us-east-1/us-east-1a/g5.xlarge/on-demand", **values: Any) -> Order:
    plain: dict[str, Any] = {"label": "gpuwatch-abcdefgh2345", "image": "x/y", "disk_gb": 100.0}
    return Order(**(plain | {"offer_id": offer_id} | values))


def launcher_of(adapter: providers.Adapter) -> Launcher:
    assert adapter.launcher is not None
    return adapter.launcher


def sent_to(place: Ec2, action: str = "RunInstances") -> dict[str, str]:
    return [request.params for request in place.requests if request.path == f"/{action}"][-1]


def only(launcher: Launcher) -> Instance:
    [found] = launcher.list_instances()
    return found


def refusal(code: str, message: str = "words") -> bytes:
    return (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>".encode()
    )
