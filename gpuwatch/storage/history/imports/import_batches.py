"""A part of a file by GPU, machine and time, as the history stores it, and the ids of its offers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, insert, select, update

from gpuwatch.domain.history.poll_timeline import Ints
from gpuwatch.domain.history.price_columns import (
    NO_LISTING,
    OfferIndex,
    PriceColumns,
    PriceSource,
    SourceContents,
    StatedPolls,
    cheapest_at_once,
    stated_polls,
)
from gpuwatch.domain.market.offer import ListedOffer
from gpuwatch.storage.history.recording.open_prices import OpenPrices
from gpuwatch.storage.history.recording.price_sources import imported_source_name
from gpuwatch.storage.setup.machine_facts import MACHINE_FACTS
from gpuwatch.storage.setup.stored_values import AnyRow
from gpuwatch.storage.setup.tables import place, price_interval, segment, series

MarketPart = tuple[str, bool]  # GPU ("": all, of polls), spot
MachineKey = tuple[str, int]  # machine, GPUs


class Observations(NamedTuple):
    """The observations of one GPU and rental type in a file: by machine and time, with one price at a time."""

    keys: Sequence[MachineKey]
    machine: Ints  # index into `keys`
    at_s: Ints
    microusd: Ints


NO_OBSERVATIONS = Observations((), *(np.empty(0, np.int64) for _ in range(3)))


class ImportBatch:
    """Rows of one source."""

    def __init__(self, rows: PriceColumns, index: OfferIndex, source: PriceSource, about: SourceContents) -> None:
        self.name = imported_source_name(*source)
        self.observations: dict[MarketPart, Observations] = {}
        self.listings: dict[tuple[MarketPart, MachineKey], tuple[int, ListedOffer]] = {}  # newest row and its content
        self.polls: dict[MarketPart, StatedPolls] = {
            (gpu, spot): polls for (_, gpu, spot), polls in stated_polls(rows, index).items()
        }
        is_offer = index.listing[rows.offer] != NO_LISTING
        self._add_offers(rows.where(is_offer), index)
        self.duplicates = int(is_offer.sum()) - sum(len(seen.at_s) for seen in self.observations.values())
        for spot, at_s in about.implied_polls(np.unique(rows.at_s[is_offer])):
            for gpu in sorted(about.gpus):  # not for "all": another file of this source may cover other GPUs
                if len(at_s):
                    self.polls.setdefault((gpu, spot), StatedPolls()).add(at_s)

    def offer_counts(self, at_s: Ints, gpu: str, spot: bool) -> Ints:
        """Return the number of offers that the poll of each moment shows."""
        parts = [
            observations for part, observations in self.observations.items() if gpu in ("", part[0]) and part[1] == spot
        ]
        times, counts = np.unique(
            np.concatenate([at_s, *(observations.at_s for observations in parts)]), return_counts=True
        )
        return np.asarray(counts[np.searchsorted(times, at_s)] - 1)  # without the moment itself

    def _add_offers(self, rows: PriceColumns, index: OfferIndex) -> None:
        listing, at_s, microusd = cheapest_at_once(index.listing[rows.offer], rows.at_s, rows.microusd)
        by_part: dict[MarketPart, list[int]] = {}
        for number, newest in index.newest(rows).items():
            identity = newest[1].identity
            part, key = (identity.gpu, identity.spot), (identity.machine_id, identity.gpu_count)
            by_part.setdefault(part, []).append(number)
            self.listings[(part, key)] = newest
        for part, numbers in by_part.items():
            identities = [index.identities[number][0] for number in numbers]
            positions = np.full(len(index.identities), NO_LISTING, np.int64)
            positions[numbers] = np.arange(len(numbers))
            is_own = positions[listing] != NO_LISTING
            keys = [(identity.machine_id, identity.gpu_count) for identity in identities]
            self.observations[part] = Observations(keys, positions[listing[is_own]], at_s[is_own], microusd[is_own])


class ImportIds:
    """Ids of segments, places and series of one source; missing ones are created."""

    def __init__(self, connection: Connection, ids: OpenPrices, batch: ImportBatch) -> None:
        self._connection = connection
        self._ids = ids
        self._batch = batch
        self._segments: dict[MarketPart, dict[int, int]] = {}
        for (name, gpu, gpu_count, spot), number in ids.segments.items():
            if name == batch.name:
                self._segments.setdefault((gpu, bool(spot)), {})[gpu_count] = number

    def segments(self, part: MarketPart) -> Iterator[tuple[int, int]]:
        """Yield the existing segments: (GPUs, id)."""
        yield from self._segments.get(part, {}).items()

    def series(self, part: MarketPart, keys: Sequence[MachineKey]) -> Mapping[MachineKey, int]:
        """Return the ids of offers of the batch, created if missing; their facts are updated to the newest row."""
        by_count: dict[int, list[MachineKey]] = {}
        for key in keys:
            by_count.setdefault(key[1], []).append(key)
        ids: dict[MachineKey, int] = {}
        for gpu_count, group in by_count.items():
            segment_id = self._segment_id(part, group[0])
            rows = self._connection.execute(select(series).where(series.c.segment_id == segment_id))
            stored = {(row.machine_id, gpu_count): row for row in rows}
            self._add([key for key in group if key not in stored], part, segment_id, ids)
            for key in group:
                if key in stored:
                    ids[key] = stored[key].id
                    self._update_facts(stored[key], *self._batch.listings[(part, key)])
        return ids

    def _add(self, keys: Sequence[MachineKey], part: MarketPart, segment_id: int, ids: dict[MachineKey, int]) -> None:
        new_rows = []
        for key in keys:
            listing = self._batch.listings[(part, key)][1]
            ids[key] = self._ids.next_series_id
            self._ids.next_series_id += 1
            row = {"id": ids[key], "segment_id": segment_id, "machine_id": key[0], "on_offer": 0}
            new_rows.append(row | self._facts(listing))
        if new_rows:
            self._connection.execute(insert(series), new_rows)

    def _facts(self, listing: ListedOffer) -> dict[str, Any]:
        facts = {fact.column: fact.of(listing) for fact in MACHINE_FACTS}
        return {"offer_id": listing.offer_id, "place_id": self._place_id(listing), **facts}

    def _update_facts(self, stored: AnyRow, at_s: int, listing: ListedOffer) -> None:
        facts = self._facts(listing)
        if facts == {column: getattr(stored, column) for column in facts}:
            return
        newest = select(func.max(price_interval.c.seen_to_s)).where(price_interval.c.series_id == stored.id)
        if at_s > (self._connection.execute(newest).scalar_one() or 0):
            self._connection.execute(update(series).where(series.c.id == stored.id).values(facts))

    def _segment_id(self, part: MarketPart, key: MachineKey) -> int:
        ids = self._segments.setdefault(part, {})
        if key[1] not in ids:
            number = 1 + max(self._ids.segments.values(), default=0)
            listing = self._batch.listings[(part, key)][1]
            row = {"provider": self._batch.name, "gpu": part[0], "gpu_count": key[1], "spot": int(part[1])}
            family = {"gpu_family": listing.gpu_family, "gpu_memory_gib": listing.gpu_memory_gib}
            self._connection.execute(insert(segment), {"id": number} | row | family)
            self._ids.segments[(self._batch.name, part[0], key[1], int(part[1]))] = ids[key[1]] = number
        return ids[key[1]]

    def _place_id(self, listing: ListedOffer) -> int:
        region, country = listing.region or "", listing.country or ""
        if (region, country) not in self._ids.places:
            number = 1 + max(self._ids.places.values(), default=0)
            self._connection.execute(insert(place), {"id": number, "region": region, "country": country})
            self._ids.places[(region, country)] = number
        return self._ids.places[(region, country)]
