"""A poll by hand: http.client, a typed decode, only changes and an hourly sum stored, limits by GPU."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from gpuwatch.storage.setup.sqlite_driver import configure_connection, sqlite_driver

_TABLES = """
CREATE TABLE offer (key INTEGER PRIMARY KEY, id INTEGER NOT NULL, machine INTEGER NOT NULL, gpu TEXT NOT NULL,
 gpus INTEGER NOT NULL, reliability REAL, verification TEXT, region TEXT);
CREATE TABLE price (offer INTEGER NOT NULL, minute INTEGER NOT NULL, total INTEGER, disk INTEGER);
CREATE TABLE hourly (gpu TEXT, gpus INTEGER, hour INTEGER, low INTEGER, high INTEGER, total INTEGER, offers INTEGER,
 PRIMARY KEY (gpu, gpus, hour)) WITHOUT ROWID;
"""
_HOURLY = """INSERT INTO hourly VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET low = min(low, excluded.low),
 high = max(high, excluded.high), total = total + excluded.total, offers = offers + excluded.offers"""


class Offer(msgspec.Struct, gc=False):
    id: int
    machine_id: int
    gpu_name: str
    num_gpus: int
    dph_total: float
    storage_cost: float
    reliability2: float
    verification: str
    geolocation: str | None


class Answer(msgspec.Struct, gc=False):
    offers: list[Offer]


class Floor:
    """`bars`: GPU name at the marketplace → the maximum price of each watch."""

    def __init__(self, url: str, folder: Path, bars: Mapping[str, Sequence[float]]) -> None:
        _, _, host, prefix = url.split("/")
        self._connection = http.client.HTTPConnection(host)
        self._path = f"/{prefix}/api/v0/bundles/"
        self._bars = bars
        self._decode = msgspec.json.Decoder(Answer).decode
        self._database = sqlite_driver().connect(str(folder / "floor.db"))
        configure_connection(self._database)
        self._database.executescript(_TABLES)
        self._keys: dict[int, int] = {}
        self._last: dict[int, tuple[int, int]] = {}

    def poll(self) -> int:
        self._connection.request("GET", self._path)
        with closing(self._connection.getresponse()) as answer:
            offers = self._decode(answer.read()).offers
        self._store(int(time.time()) // 60, offers)
        none: Sequence[float] = ()
        return sum(o.dph_total / o.num_gpus <= bar for o in offers for bar in self._bars.get(o.gpu_name, none))

    def _store(self, minute: int, offers: Sequence[Offer]) -> None:
        keys, last, fresh, rows, seen = self._keys, self._last, [], [], {}
        groups: dict[tuple[str, int], list[float]] = {}
        for o in offers:
            state = (round(o.dph_total * 1e6), round(o.storage_cost * 1e6))
            seen[o.id] = state
            groups.setdefault((o.gpu_name, o.num_gpus), []).append(o.dph_total)
            if last.get(o.id) != state:
                key = keys.get(o.id)
                if key is None:
                    key = keys[o.id] = len(keys) + 1
                    facts = (o.machine_id, o.gpu_name, o.num_gpus, o.reliability2, o.verification, o.geolocation)
                    fresh.append((key, o.id, *facts))
                rows.append((key, minute, *state))
        rows.extend((keys[gone], minute, None, None) for gone in last.keys() - seen.keys())
        self._last = seen
        sums = [
            (*group, minute // 60, round(min(p) * 1e6), round(max(p) * 1e6), round(sum(p) * 1e6), len(p))
            for group, p in groups.items()
        ]
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO offer VALUES (?, ?, ?, ?, ?, ?, ?, ?)", fresh)
        self._database.executemany("INSERT INTO price VALUES (?, ?, ?, ?)", rows)
        self._database.executemany(_HOURLY, sums)
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
        self._database.close()
