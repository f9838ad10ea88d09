"""From an offer to its rent, by hand: httpx, a typed decode, one filter, a committed intent, the request."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import msgspec

from gpuwatch.storage.setup.sqlite_driver import configure_connection, sqlite_driver

ORDER = {"client_id": "me", "image": "vastai/pytorch", "disk": 8, "label": "floor", "runtype": "ssh"}


class Offer(msgspec.Struct, gc=False):
    id: int
    machine_id: int
    gpu_name: str
    num_gpus: int
    dph_total: float
    reliability2: float
    verification: str
    rentable: bool
    geolocation: str | None


class Answer(msgspec.Struct):
    offers: list[Offer]


class Floor:
    """The same driver, journal and sync as gpuwatch, so that the disk costs both the same."""

    def __init__(self, url: str, folder: Path, gpu: str, most_usd: float) -> None:
        self._url, self._gpu, self._most_usd = url, gpu, most_usd
        self._client = httpx.Client(timeout=60)
        self._decode = msgspec.json.Decoder(Answer).decode
        self._database = sqlite_driver().connect(str(folder / "floor.db"))
        configure_connection(self._database)
        self._database.execute("CREATE TABLE intent (id INTEGER PRIMARY KEY, offer INTEGER, at REAL, state TEXT)")

    def look(self) -> None:
        offers = self._decode(self._client.get(self._url + "/api/v0/bundles/").content).offers
        found = [
            o
            for o in offers
            if o.gpu_name == self._gpu
            and o.num_gpus == 1
            and o.dph_total <= self._most_usd
            and o.reliability2 > 0.99
            and o.rentable
        ]
        if found:
            best = min(found, key=lambda o: o.dph_total)
            intent = (best.id, time.time(), "asked")
            self._database.execute("INSERT INTO intent (offer, at, state) VALUES (?, ?, ?)", intent)  # commits
            self._client.put(f"{self._url}/api/v0/asks/{best.id}/", json=ORDER).raise_for_status()

    def close(self) -> None:
        self._client.close()
        self._database.close()
