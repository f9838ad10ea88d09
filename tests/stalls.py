"""Providers of a single test, registered like another package's. The test sets their offers, waits and faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.errors import ProviderDown
from gpuwatch.ports import Answer, ProviderSettings, Query
from gpuwatch.ports.declarations import Adapter, ProviderInfo, Tools
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer
from tests.builders import an_offer


class Stall:
    """One provider: its entry point, its adapter's market, and the test's controls."""

    def __init__(self, name: str, **info: Any) -> None:
        plain = {"title": name.title(), "base_url": "https://stall.invalid", "searches_without_key": True}
        self.INFO = ProviderInfo(name=name, **(plain | info))
        self.name = name
        self.reset()

    def reset(self) -> None:
        """An empty market that answers at once."""
        self.offers: list[Offer] = []
        self.fails: Exception | None = None
        self.waits_for: threading.Event | threading.Barrier | None = None
        self.asked: list[Query] = []

    def sells(self, usd_hour: float, **changes: Any) -> Offer:
        """Add an offer: an H100 SXM without commission or disk."""
        n = len(self.offers)
        plain: dict[str, Any] = {
            "provider": self.name,
            "offer_id": f"{self.name}-{n}",
            "machine_id": f"{self.name}-{n}",
            "quoted_usd_hour": usd_hour,
            "disk_usd_gb_month": None,
            "kind": self.INFO.kinds[0],
        }
        self.offers.append(an_offer(**(plain | changes)))
        return self.offers[-1]

    def build(self, settings: ProviderSettings, tools: Tools) -> Adapter:
        """Build an adapter for this stall."""
        self._now = tools.now
        return Adapter(name=self.name, info=self.INFO, market=self)

    def search(self, query: Query) -> Answer:
        """Answer as the test has set."""
        self.asked.append(query)
        if self.waits_for is not None:
            self.waits_for.wait(60)
        if self.fails is not None:
            raise self.fails
        seen = ParseResult(offers=list(self.offers), rows=len(self.offers))
        return build_answer(seen, query, self.name, observed_at=self._now(), elapsed_s=0.0)


ONE = Stall("one_stall", on_by_default=True)
TWO = Stall("two_stall", on_by_default=True)
PRICES = Stall("prices_stall", on_by_default=True, kinds=(OfferKind.LISTED,), poll_every_s=21_600.0)
SHUT = Stall("shut_stall", launches=True, key_names=("SHUT_STALL_KEY",))
MACHINES = Stall("machines_stall", launches=True, runs_images=False)
NEEDY = Stall("needy_stall", extra="postgres")
STALLS = (ONE, TWO, PRICES, SHUT, MACHINES, NEEDY)


@contextmanager
def open_stalls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register them as providers of gpuwatch inside the block, and empty them."""
    points = "".join(f"{one.name} = tests.stalls:{name}\n" for name, one in globals().items() if isinstance(one, Stall))
    about = folder / "stalls-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stalls\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[gpuwatch.providers]\n{points}")
    monkeypatch.syspath_prepend(str(folder))
    for stall in STALLS:
        stall.reset()
    yield
    for stall in STALLS:  # release everything that waits
        if isinstance(stall.waits_for, threading.Event):
            stall.waits_for.set()
        stall.reset()


def down(name: str) -> ProviderDown:
    """The error of a provider that is down."""
    return ProviderDown(f"{name}: 502 bad gateway")
