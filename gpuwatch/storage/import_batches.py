"""A part of a file as the history knows it: by GPU, machine and moment; and the names and numbers of its offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from gpuwatch.domain.analysis.history_from_rows import PriceSource, RowSurvey, poll_of_row
from gpuwatch.domain.analysis.market_history import ListedOffer
from gpuwatch.domain.analysis.offer_intervals import CompletePoll
from gpuwatch.domain.analysis.price_rows import SAW_NOTHING_MICROUSD, PriceRow, listing_of
from gpuwatch.storage.open_prices import OpenPrices
from gpuwatch.storage.price_sources import imported_source_name
from gpuwatch.storage.rows import AnyRow
from gpuwatch.storage.tables import place, price_interval, segment, series

MarketPart = tuple[str, bool]  # GPU ("": all, of polls), spot
MachineKey = tuple[str, int]  # machine, GPUs
ObservedPrices = dict[int, int]  # moment → price


class ImportBatch:
    """Rows of one source."""

    def __init__(self, rows: Iterable[PriceRow], survey: RowSurvey, source: PriceSource) -> None:
        self.name = imported_source_name(*source)
        self.observations: dict[MarketPart, dict[MachineKey, ObservedPrices]] = {}
        self.listings: dict[
            tuple[MarketPart, MachineKey], tuple[int, ListedOffer]
        ] = {}  # the newest row, and what it says
        self.polls: dict[MarketPart, set[CompletePoll]] = {}
        self.twice = 0
        self._seen: dict[tuple[int, str, bool], int] = {}
        for row in rows:
            if not row.is_poll:
                self._add(row, survey)
            elif row.listed_microusd_hour != SAW_NOTHING_MICROUSD:
                gpu, poll = poll_of_row(row)
                self.polls.setdefault((gpu, row.spot), set()).add(poll)
        about = survey.sources[source]
        for at_s in sorted({at_s for at_s, _, _ in self._seen}):
            for spot in about.implied_polls_at(at_s):
                for gpu in sorted(about.gpus):  # not of "all": another file of this source may be about others
                    self.polls.setdefault((gpu, spot), set()).add(CompletePoll(at_s))

    def seen_at(self, at_s: int, gpu: str, spot: bool) -> int:
        """How many offers a poll shows."""
        return self._seen.get((at_s, gpu, spot), 0)

    def _add(self, row: PriceRow, survey: RowSurvey) -> None:
        listing = listing_of(row, survey.kinds)
        who = listing.identity
        part, key = (who.gpu, who.spot), (who.machine_id, who.gpu_count)
        seen = self.observations.setdefault(part, {}).setdefault(key, {})
        if row.at_s in seen:
            self.twice += 1
        else:
            for gpu in (who.gpu, ""):
                self._seen[(row.at_s, gpu, who.spot)] = self.seen_at(row.at_s, gpu, who.spot) + 1
        seen[row.at_s] = min(row.listed_microusd_hour, seen.get(row.at_s, row.listed_microusd_hour))
        if self.listings.get((part, key), (-1,))[0] <= row.at_s:
            self.listings[(part, key)] = (row.at_s, listing)


class ImportIds:
    """Numbers of segments, places and series of one source; new ones are made where they are missing."""

    def __init__(self, connection: Connection, ids: OpenPrices, batch: ImportBatch) -> None:
        self._connection = connection
        self._ids = ids
        self._batch = batch
        self._segments: dict[MarketPart, dict[int, int]] = {}
        for (name, gpu, gpu_count, spot), number in ids.segments.items():
            if name == batch.name:
                self._segments.setdefault((gpu, bool(spot)), {})[gpu_count] = number

    def segments(self, part: MarketPart) -> Iterator[tuple[int, int]]:
        """Those that there are: (GPUs, number)."""
        yield from self._segments.get(part, {}).items()

    def series(self, part: MarketPart, keys: Iterable[MachineKey]) -> Mapping[MachineKey, int]:
        """The numbers of offers that the batch holds; what is known of them follows the newest row."""
        by_count: dict[int, list[MachineKey]] = {}
        for key in keys:
            by_count.setdefault(key[1], []).append(key)
        found: dict[MachineKey, int] = {}
        for gpu_count, some in by_count.items():
            segment_id = self._segment(part, some[0])
            rows = self._connection.execute(select(series).where(series.c.segment_id == segment_id))
            stored = {(row.machine_id, gpu_count): row for row in rows}
            self._add([key for key in some if key not in stored], part, segment_id, found)
            for key in some:
                if key in stored:
                    found[key] = stored[key].id
                    self._follow(stored[key], *self._batch.listings[(part, key)])
        return found

    def _add(self, keys: Iterable[MachineKey], part: MarketPart, segment_id: int, found: dict[MachineKey, int]) -> None:
        made = []
        for key in keys:
            listing = self._batch.listings[(part, key)][1]
            found[key] = self._ids.next_series_id
            self._ids.next_series_id += 1
            row = {"id": found[key], "segment_id": segment_id, "machine_id": key[0], "on_offer": 0}
            made.append(row | self._facts(listing))
        if made:
            self._connection.execute(insert(series), made)

    def _facts(self, listing: ListedOffer) -> dict[str, Any]:
        return {"offer_id": listing.offer_id, "place_id": self._place(listing)}

    def _follow(self, stored: AnyRow, at_s: int, listing: ListedOffer) -> None:
        facts = self._facts(listing)
        if facts == {"offer_id": stored.offer_id, "place_id": stored.place_id}:
            return
        newest = select(func.max(price_interval.c.seen_to_s)).where(price_interval.c.series_id == stored.id)
        if at_s > (self._connection.execute(newest).scalar_one() or 0):
            self._connection.execute(update(series).where(series.c.id == stored.id).values(facts))

    def _segment(self, part: MarketPart, key: MachineKey) -> int:
        known = self._segments.setdefault(part, {})
        if key[1] not in known:
            number = 1 + max(self._ids.segments.values(), default=0)
            listing = self._batch.listings[(part, key)][1]
            row = {"provider": self._batch.name, "gpu": part[0], "gpu_count": key[1], "spot": int(part[1])}
            family = {"gpu_family": listing.gpu_family, "gpu_memory_gib": listing.gpu_memory_gib}
            self._connection.execute(insert(segment), {"id": number} | row | family)
            self._ids.segments[(self._batch.name, part[0], key[1], int(part[1]))] = known[key[1]] = number
        return known[key[1]]

    def _place(self, listing: ListedOffer) -> int:
        region, country = listing.region or "", listing.country or ""
        if (region, country) not in self._ids.places:
            number = 1 + max(self._ids.places.values(), default=0)
            self._connection.execute(insert(place), {"id": number, "region": region, "country": country})
            self._ids.places[(region, country)] = number
        return self._ids.places[(region, country)]
