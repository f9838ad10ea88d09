"""A period of the stored market: every price from when it was first seen until it was gone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from gpuwatch.domain.analysis.market_history import ListedOffer, MarketFilter, MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.analysis.offer_intervals import CompletePoll
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Identity, OfferKind
from gpuwatch.storage.answer_changes import verification_from
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor, Row
from gpuwatch.storage.hourly_aggregates import covers_between
from gpuwatch.storage.hourly_rollup import COVER_LASTS_S, Segment
from gpuwatch.storage.hourly_rollup import CoverScope as Covered
from gpuwatch.storage.price_sources import kind_of_source, matches_source, provider_of_source
from gpuwatch.storage.recording import seconds

Names = Callable[[str], bool]

_SEGMENTS = """SELECT id, provider, gpu, gpu_count, spot, gpu_family, gpu_memory_gib FROM segment
 WHERE gpu_count > 0 AND provider <> '' ORDER BY id"""
_SPELLS = """SELECT s.id, p.seen_from_s, p.seen_to_s, p.machine_microusd_hour, p.disk_microusd_gb_month
 FROM price_interval p JOIN series s ON s.id = p.series_id
 WHERE s.segment_id = ? AND p.seen_from_s < ? AND (p.seen_to_s IS NULL OR p.seen_to_s >= ?)
 ORDER BY s.id, p.seen_from_s"""
_LISTINGS = """SELECT s.id, s.machine_id, s.offer_id, w.region, w.country, s.reliability_ppm, s.verification
 FROM series s JOIN place w ON w.id = s.place_id WHERE s.segment_id = ?"""
_POLLS = """SELECT at_s, provider, gpu, spot, completeness, covers, complete_to_microusd, lane FROM poll
 WHERE at_s >= ? AND at_s < ? ORDER BY at_s, id"""


class StoredPoll(NamedTuple):
    """A poll that covers: an offer that it does not show is gone."""

    poll: CompletePoll
    provider: str
    kind: OfferKind
    gpu: str
    spot: bool


def read_market_history(
    database: Database, scope: MarketFilter, since: datetime, until: datetime, *, names: Names | None = None
) -> MarketHistory:
    """What was seen of a part of the market in [since, until).

    Args:
        names: which names in the history (`kinds`) are meant; None: those that the scope means.

    Raises:
        StoreError: the database cannot be read.
    """
    start_s, end_s = seconds(since), seconds(until)
    with database.read() as connection:
        executor = CoreExecutor(connection)
        meant = _MarketFilter(executor, scope, names)
        covers = {
            covered: [cover.at_s for cover in found]
            for covered, found in covers_between(executor, start_s, end_s, meant.scopes).items()
        }
        listings: list[ListedOffer] = []
        intervals: list[OfferInterval] = []
        for row in meant.segments:
            _add_segment(executor, row, (start_s, end_s), covers, (listings, intervals))
        polls = [
            MarketPoll(
                row[0],
                provider_of_source(row[1]),
                row[2],
                bool(row[3]),
                row[4] == "complete",
                "sweep" if row[5] else row[7],
                row[4] == "failed",
            )
            for row in executor.rows(_POLLS, (start_s, end_s))
            if meant.speaks(row[1], row[2], row[3])
        ]
    intervals.sort(key=lambda interval: (interval.from_s, interval.listing))
    return MarketHistory(listings=tuple(listings), intervals=intervals, polls=polls, source="the store")


def read_polls(
    database: Database, scope: MarketFilter, since: datetime, until: datetime, *, names: Names | None = None
) -> list[StoredPoll]:
    """The covering polls in [since, until), by time. Arguments and errors as `read_market_history`."""
    with database.read() as connection:
        executor = CoreExecutor(connection)
        meant = _MarketFilter(executor, scope, names)
        return [
            StoredPoll(CompletePoll(at_s, bound), provider_of_source(name), kind_of_source(name), gpu, bool(spot))
            for at_s, name, gpu, spot, _, covers, bound, _ in executor.rows(_POLLS, (seconds(since), seconds(until)))
            if covers and meant.speaks(name, gpu, spot)
        ]


class _MarketFilter:
    """Which segments and polls a question is about."""

    def __init__(self, executor: Executor, scope: MarketFilter, names: Names | None) -> None:
        rows = executor.rows(_SEGMENTS)
        self._scope = scope
        self._is_meant = names or (lambda name: matches_source(name, scope.provider))
        self._models = frozenset(row[2] for row in rows)
        self._known: dict[tuple[str, str, int], bool] = {}
        self.segments = [
            row
            for row in rows
            if scope.has_count(row[3]) and self._names(row[1], row[4]) and self._has_gpu(*row[2:6:3])
        ]
        self.scopes: dict[int, Segment] = {row[0]: (row[1], row[2], row[3], row[4]) for row in self.segments}
        self._families = {row[2]: row[5] for row in rows}

    def speaks(self, name: str, gpu: str, spot: int) -> bool:
        """Is this a question about some of it? Of all GPUs, or of one that is meant, if it never was on offer, too."""
        key = (name, gpu, spot)
        if key not in self._known:
            self._known[key] = self._names(name, spot) and (not gpu or self._has_gpu(gpu, self._family(gpu)))
        return self._known[key]

    def _family(self, gpu: str) -> str:
        return self._families.get(gpu) or catalog().resolve(gpu).family

    def _names(self, name: str, spot: int) -> bool:
        return self._is_meant(name) and self._scope.has_spot(bool(spot))

    def _has_gpu(self, gpu: str, family: str) -> bool:
        return self._scope.has_gpu(gpu, family, self._models)


def _add_segment(
    executor: Executor,
    segment: Row,
    span: tuple[int, int],
    covers: dict[Covered, list[int]],
    found: tuple[list[ListedOffer], list[OfferInterval]],
) -> None:
    number, name, gpu, _, spot, *_ = segment
    start_s, end_s = span
    polls = covers.get((name, gpu, spot), [])
    listings, intervals = found
    rows = executor.rows(_SPELLS, (number, end_s, start_s - COVER_LASTS_S))
    facts = {row[0]: row for row in executor.rows(_LISTINGS, (number,))} if rows else {}
    for series, group in groupby(rows, key=lambda row: row[0]):
        mine = list(_intervals_of(list(group), len(listings), polls, span))
        if mine:
            listings.append(_listing(segment, facts[series]))
            intervals += mine


def _intervals_of(
    rows: Sequence[Row], listing: int, polls: list[int], span: tuple[int, int]
) -> Iterator[OfferInterval]:
    start_s, end_s = span
    for at, (_, from_s, to_s, machine, disk) in enumerate(rows):
        next_s = rows[at + 1][1] if at + 1 < len(rows) else end_s
        gone_s = min(next_s, end_s if to_s is None else _first_after(polls, to_s, end_s))
        if gone_s > start_s:
            seen_s = to_s if to_s is not None and to_s < end_s else _last_before(polls, end_s, from_s)
            yield OfferInterval(listing, from_s, seen_s, gone_s if gone_s < end_s else None, machine, disk)


def _first_after(polls: list[int], after_s: int, else_s: int) -> int:
    at = bisect_right(polls, after_s)
    return polls[at] if at < len(polls) else else_s


def _last_before(polls: list[int], before_s: int, least_s: int) -> int:
    at = bisect_left(polls, before_s)
    return max(least_s, polls[at - 1]) if at else least_s


def _listing(segment: Row, facts: Row) -> ListedOffer:
    _, name, gpu, gpu_count, spot, family, memory_gib = segment
    _, machine_id, offer_id, region, country, reliability_ppm, verification = facts
    return ListedOffer(
        identity=Identity(provider_of_source(name), machine_id, gpu, gpu_count, bool(spot)),
        gpu_family=family,
        offer_id=offer_id,
        gpu_memory_gib=memory_gib,
        kind=kind_of_source(name),
        region=region or None,
        country=country or None,
        reliability=None if reliability_ppm is None else reliability_ppm / 1e6,
        verification=verification_from(verification),
    )
