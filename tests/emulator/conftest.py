"""A marketplace and a plain HTTP client for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from gpuwatch.emulator import Delays, ManualClock, Marketplace
from tests import loopback_client

QUICK = Delays(created_s=1, ssh_s=3, loading_s=5, running_s=60, measured_s=10, reboot_s=5, start_s=20)
Open = Callable[..., "Opened"]


class Opened:
    """A marketplace with its clock and a client that has the key."""

    def __init__(self, market: Marketplace, clock: ManualClock, http: httpx.Client) -> None:
        self.market = market
        self.clock = clock
        self.http = http

    def search(self, **query: Any) -> list[dict[str, Any]]:
        """POST a query and return the offers."""
        answer = self.http.post("/api/v0/bundles/", json=query)
        assert answer.status_code == 200, answer.text
        offers: list[dict[str, Any]] = answer.json()["offers"]
        return offers

    def rent(self, offer_id: int, **body: Any) -> httpx.Response:
        """Send a create with the usual body."""
        usual = {"client_id": "me", "image": "pytorch/pytorch", "disk": 10, "label": "gpuwatch-1"}
        return self.http.put(f"/api/v0/asks/{offer_id}/", json=usual | body)

    def rented(self, offer_id: int, **body: Any) -> int:
        """Rent, and return the contract's number."""
        answer = self.rent(offer_id, **body)
        assert answer.status_code == 200, answer.text
        contract: int = answer.json()["new_contract"]
        return contract

    def show(self, contract: int) -> dict[str, Any]:
        """Return one instance."""
        found: dict[str, Any] = self.http.get(f"/api/v0/instances/{contract}/").json()["instances"]
        return found

    def list(self, **params: str) -> dict[str, Any]:
        """Return one page of instances."""
        answer: dict[str, Any] = self.http.get("/api/v1/instances/", params=params).json()
        return answer


@pytest.fixture
def opened() -> Iterator[Open]:
    """Open marketplaces, empty and on a manual clock by default, and close them after the test."""
    with ExitStack() as stack:

        def make(**options: Any) -> Opened:
            clock = ManualClock()
            chosen = {"seed": 7, "size": 0, "clock": clock, "delays": QUICK} | options
            market = stack.enter_context(Marketplace(**chosen))
            headers = {"Authorization": f"Bearer {market.key}"}
            http = stack.enter_context(loopback_client.client(base_url=market.url, headers=headers))
            return Opened(market, clock, http)

        yield make
