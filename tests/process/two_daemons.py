"""Two daemons on one database, and a marketplace that shows both an offer at the same moment."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpuwatch.emulator import Marketplace
from tests.process.daemon_child import Home

KEY = "vast-key-of-two-daemons-77c1"
HEAD = """
dry_run = false
database_url = "{database_url}"

[budget]
max_usd_hour = 100000
max_instances = 10000

[providers.vastai]
base_url = "{url}"
api_key = "{key}"
poll_every = "1s"
search_interval = "0.01s"
sweep_every = "1h"
rows_per_day = 0
"""
BOTH_LEAD: Final = {"GPUWATCH_TEST_LEADS": "1"}  # so that unique rows decide, not the lease
WATCH = """
[[watch]]
name = "{name}"
gpu = ["{gpu}"]
max_price = 2.40
action = "launch"

[watch.launch]
max_runtime = "{max_runtime}"
ready_within = "6h"
max_active = {max_active}
max_total = {max_total}
"""


def home_of(folder: Path, url: str, database_url: str, gpus: Mapping[str, str], **launch: Any) -> Home:
    """A daemon's folder. `gpus`: by the name of their watch."""
    folder.mkdir()
    home = Home(folder, url, database_url=database_url)
    plain = {"max_runtime": "48h", "max_active": 1, "max_total": 1} | launch
    text = HEAD.format(url=url, key=KEY, database_url=database_url)
    text += "".join(WATCH.format(name=name, gpu=gpu, **plain) for name, gpu in gpus.items())
    (folder / "gpuwatch.toml").write_text(text)
    return home


class Crossing(Marketplace):
    """Holds a search until the other daemon sends the same one, and answers both at once.

    At the first model the two wait for each other; from there they go through the others in parallel.

    Args:
        gpus: models, in the order in which each daemon queries them.
        races: how often each of them is offered.
    """

    def __init__(self, gpus: tuple[str, ...], races: int, **options: Any) -> None:
        super().__init__(**options)
        self.gpus = gpus
        self.races = races
        self.raced: dict[str, set[int]] = {gpu: set() for gpu in gpus}  # offers that both saw at once
        self.offered: dict[str, int] = {}
        self._turns = threading.Condition()
        self._waiting: dict[tuple[str, str], list[str]] = {}

    def answer(self, request: Any) -> Any:
        gpu = self._gpu(request)
        if gpu is None:
            return super().answer(request)
        if not self._meet((gpu, "in"), 6.0 if gpu == self.gpus[0] else 0.4):
            return super().answer(request)
        answer = super().answer(request)
        shown = gpu in self.offered and f'"id":{self.offered[gpu]},'.encode() in answer.body.replace(b" ", b"")
        if self._meet((gpu, "out"), 1.0) and shown:
            self.raced[gpu].add(self.offered[gpu])
        return answer

    def _gpu(self, request: Any) -> str | None:
        if not request.path.startswith("/api/v0/bundles"):
            return None
        text = str(request.params) + request.raw.decode()
        return next((gpu for gpu in self.gpus if f'"{gpu}"' in text.replace("_", " ")), None)

    def _meet(self, place: tuple[str, str], patience_s: float) -> bool:
        """Wait for the other; return True for both if it came in time."""
        with self._turns:
            other = self._waiting.pop(place, None)
            if other is not None:
                other.append("met")
                self._turns.notify_all()
                return True
            mine: list[str] = []
            self._waiting[place] = mine
            self._turns.wait_for(lambda: bool(mine), patience_s)
            if not mine:
                self._waiting.pop(place, None)
            return bool(mine)

    def offer(self) -> None:
        """Offer each model again after its last offer was raced for and rented."""
        rented = {entry.offer_id for entry in self.ledger.creates}
        for gpu in self.gpus:
            last = self.offered.get(gpu)
            if (last is None or last in rented) and len(self.raced[gpu]) < self.races:
                self.offered[gpu] = self.publish(gpu=gpu, count=1, usd_hour=1.0)


def orders(market: Marketplace) -> Counter[str]:
    """Return how often each offer was ordered, whatever the result."""
    asked = (seen for seen in market.requests if seen.method == "PUT" and seen.path.startswith("/api/v0/asks/"))
    return Counter(seen.path.split("/")[4] for seen in asked)


def until(market: Crossing, stalled_s: float) -> None:
    """Offer repeatedly, until every model was raced for often enough, or until no race was added for that long."""
    count, ends_at = 0, time.monotonic() + stalled_s
    while time.monotonic() < ends_at and any(len(raced) < market.races for raced in market.raced.values()):
        market.offer()
        time.sleep(0.02)
        raced_for = sum(len(raced) for raced in market.raced.values())
        if raced_for > count:
            count, ends_at = raced_for, time.monotonic() + stalled_s
