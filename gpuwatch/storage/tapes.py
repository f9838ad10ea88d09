"""A stretch of the stored market as a tape: every price from when it was first seen until it was gone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby

from gpuwatch.analysis.scope import Scope
from gpuwatch.analysis.tape import Listing, Poll, Spell, Tape
from gpuwatch.market.offer import Identity
from gpuwatch.storage.changes import verification_from
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor, Row
from gpuwatch.storage.hours import covers_between
from gpuwatch.storage.kinds import is_meant, kind_in, provider_in
from gpuwatch.storage.recording import seconds
from gpuwatch.storage.rollup import COVER_LASTS_S, Segment, ended_at
from gpuwatch.storage.rollup import Scope as Covered

_SEGMENTS = """SELECT id, provider, gpu, gpu_count, spot, gpu_family, gpu_memory_gib FROM segment
 WHERE gpu_count > 0 AND provider <> ''"""
_SPELLS = """SELECT s.id, p.seen_from_s, p.seen_to_s, p.machine_microusd_hour, p.disk_microusd_gb_month
 FROM price_interval p JOIN series s ON s.id = p.series_id
 WHERE s.segment_id = ? AND p.seen_from_s < ? AND (p.seen_to_s IS NULL OR p.seen_to_s >= ?)
 ORDER BY s.id, p.seen_from_s"""
_LISTINGS = """SELECT s.id, s.machine_id, s.offer_id, w.region, w.country, s.reliability_ppm, s.verification
 FROM series s JOIN place w ON w.id = s.place_id WHERE s.segment_id = ?"""
_POLLS = """SELECT at_s, provider, gpu, spot, completeness FROM poll WHERE at_s >= ? AND at_s < ? ORDER BY at_s, id"""


def read_tape(database: Database, scope: Scope, since: datetime, until: datetime) -> Tape:
    """What was seen of a part of the market in [since, until).

    Raises:
        StoreError: the database cannot be read.
    """
    start_s, end_s = seconds(since), seconds(until)
    with database.read() as connection:
        executor = CoreExecutor(connection)
        rows = _meant(executor, scope)
        segments: dict[int, Segment] = {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}
        covers = {
            covered: [cover.at_s for cover in found]
            for covered, found in covers_between(executor, start_s, end_s, segments).items()
        }
        listings: list[Listing] = []
        spells: list[Spell] = []
        for row in rows:
            _add_segment(executor, row, (start_s, end_s), covers, (listings, spells))
        polls = list(_polls(executor, start_s, end_s, segments))
    spells.sort(key=lambda spell: (spell.from_s, spell.listing))
    return Tape(listings=tuple(listings), spells=spells, polls=polls, source="the store")


def _meant(executor: Executor, scope: Scope) -> list[Row]:
    rows = executor.rows(_SEGMENTS)
    models = frozenset(row[2] for row in rows)
    return [
        row
        for row in rows
        if is_meant(row[1], scope.provider)
        and scope.has_gpu(row[2], row[5], models)
        and scope.has_count(row[3])
        and scope.has_spot(bool(row[4]))
    ]


def _add_segment(
    executor: Executor,
    segment: Row,
    span: tuple[int, int],
    covers: dict[Covered, list[int]],
    found: tuple[list[Listing], list[Spell]],
) -> None:
    number, name, gpu, _, spot, *_ = segment
    start_s, end_s = span
    looks = covers.get((name, gpu, spot), [])
    listings, spells = found
    rows = executor.rows(_SPELLS, (number, end_s, start_s - COVER_LASTS_S))
    facts = {row[0]: row for row in executor.rows(_LISTINGS, (number,))} if rows else {}
    for series, group in groupby(rows, key=lambda row: row[0]):
        mine = list(_spells_of(list(group), len(listings), looks, span))
        if mine:
            listings.append(_listing(segment, facts[series]))
            spells += mine


def _spells_of(rows: Sequence[Row], listing: int, looks: list[int], span: tuple[int, int]) -> Iterator[Spell]:
    start_s, end_s = span
    seen = [(row[1], row[2]) for row in rows]
    for at, (_, from_s, to_s, machine, disk) in enumerate(rows):
        gone_s = ended_at(seen, at, looks)
        if gone_s is not None and gone_s <= start_s:
            continue
        last = to_s if to_s is not None else looks[bisect_right(looks, end_s - 1) - 1] if looks else from_s
        is_gone = gone_s is not None and gone_s < end_s
        yield Spell(listing, from_s, max(from_s, min(last, end_s - 1)), gone_s if is_gone else None, machine, disk)


def _listing(segment: Row, facts: Row) -> Listing:
    _, name, gpu, gpu_count, spot, family, memory_gib = segment
    _, machine_id, offer_id, region, country, reliability_ppm, verification = facts
    return Listing(
        identity=Identity(provider_in(name), machine_id, gpu, gpu_count, bool(spot)),
        gpu_family=family,
        offer_id=offer_id,
        gpu_memory_gib=memory_gib,
        kind=kind_in(name),
        region=region or None,
        country=country or None,
        reliability=None if reliability_ppm is None else reliability_ppm / 1e6,
        verification=verification_from(verification),
    )


def _polls(executor: Executor, start_s: int, end_s: int, segments: dict[int, Segment]) -> Iterator[Poll]:
    about = {(name, gpu, spot) for name, gpu, _, spot in segments.values()}
    about |= {(name, "", spot) for name, _, spot in about}
    for at_s, name, gpu, spot, completeness in executor.rows(_POLLS, (start_s, end_s)):
        if (name, gpu, spot) in about:
            yield Poll(at_s, provider_in(name), gpu, bool(spot), completeness == "complete")
