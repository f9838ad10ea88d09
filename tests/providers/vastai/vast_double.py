"""Rows and searches of vast.ai: a marketplace that obeys the query: filters, order by price, the cap."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx

from gpuwatch import providers
from gpuwatch.ports import ProviderSettings
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.clocks import Clock

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
URL = "https://console.vast.ai"
KEY = "k" * 64


def a_row(**values: Any) -> dict[str, Any]:
    """A row with 8 GB of free disk in its quote."""
    number = values.get("id", 1)
    row = {
        "id": number, "machine_id": number, "gpu_name": "RTX 4090", "num_gpus": 1, "gpu_ram": 24564, "dph_total": 0.5,
        "storage_cost": 0.0, "storage_total_cost": 0.0, "min_bid": 0.3, "reliability2": 0.99, "rentable": True,
        "verification": "verified", "geolocation": "Washington, US",
    }  # fmt: skip
    return row | values


class Searches:
    """The side effect of the route of searches: answers from `rows`; `asked` has the query objects."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], cap: int = 64) -> None:
        self.rows = rows
        self.cap = cap
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        query = json.loads(request.url.params["q"])
        self.asked.append(query)
        low, high = query.get("dph_total", {}).get("gte", 0), query.get("dph_total", {}).get("lte", 1e9)
        names = query.get("gpu_name", {}).get("in")
        found = [r for r in self.rows if low <= r["dph_total"] <= high and (not names or r["gpu_name"] in names)]
        found.sort(key=lambda row: row["dph_total"])
        return httpx.Response(200, json={"offers": found[: min(query["limit"], self.cap)]})


def an_adapter(
    http: PooledHttpClient,
    clock: Clock,
    stop: threading.Event | None = None,
    now: Callable[[], datetime] = lambda: NOW,
    **settings: Any,
) -> providers.Adapter:
    """Return the adapter; its clock advances only while it waits."""
    defaults: dict[str, Any] = {"base_url": URL, "api_key": KEY, "search_interval_s": 0.0}
    return providers.build(
        ProviderSettings(name="vastai", **(defaults | settings)), http, now, clock, clock.sleep, stop
    )
