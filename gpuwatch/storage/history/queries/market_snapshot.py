"""The exact market at any moment, from the intervals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

import msgspec
from sqlalchemy import Connection, func, or_, select

from gpuwatch.domain.history.hourly_rollup import COVERAGE_S, CoverScope
from gpuwatch.domain.history.market_history import SnapshotOffer
from gpuwatch.storage.history.recording.price_sources import kind_of_source
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.machine_facts import MACHINE_FACTS, fact_fields
from gpuwatch.storage.setup.stored_values import AnyRow
from gpuwatch.storage.setup.tables import IS_COVERING, history_state, place, poll, price_interval, segment, series

_NOT_ENDED = -1
_INTERVALS = (
    select(
        price_interval.c.series_id, segment.c.provider, segment.c.gpu, segment.c.gpu_count, segment.c.spot,
        series.c.machine_id, price_interval.c.seen_from_s, price_interval.c.seen_to_s,
        price_interval.c.machine_microusd_hour, price_interval.c.disk_microusd_gb_month, segment.c.gpu_family,
        series.c.offer_id, place.c.region, place.c.country, *(series.c[fact.column] for fact in MACHINE_FACTS),
    )
    .join(series, series.c.id == price_interval.c.series_id)
    .join(segment, segment.c.id == series.c.segment_id)
    .join(place, place.c.id == series.c.place_id)
    .order_by(price_interval.c.series_id, price_interval.c.seen_from_s)
)  # fmt: skip


class MarketSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The market at a moment, as far as known: without `known`, an empty list does not mean "no offers"."""

    offers: tuple[SnapshotOffer, ...]
    known: bool  # whether a complete poll was recent enough


def market_at(database: Database, at: datetime) -> MarketSnapshot:
    """Return the offers at a moment.

    Raises:
        StoreError: the database cannot be read.
    """
    at_s = seconds_since_1970(at)
    with database.read() as connection:
        covers = newest_covers(connection, at_s)
        rows = _intervals(connection, at_s, _oldest_cover(connection, covers))
        kept_from_s = connection.execute(select(history_state.c.kept_from_s)).scalar_one()
    newest = [list(same)[-1] for _, same in groupby(rows, key=itemgetter(0))]
    offers = tuple(
        _snapshot_offer(row)
        for row in newest
        if row[7] is None or row[7] >= newest_cover(covers, row[1], row[2], row[4])
    )
    covered_s = max(covers.values(), default=None)
    is_fresh = covered_s is not None and at_s - covered_s < COVERAGE_S
    return MarketSnapshot(offers=offers, known=is_fresh and (kept_from_s is None or at_s >= kept_from_s))


def newest_covers(connection: Connection, at_s: int) -> dict[CoverScope, int]:
    """Return when each GPU and rental type was last covered until then."""
    scope = (poll.c.provider, poll.c.gpu, poll.c.spot)
    newest = select(*scope, func.max(poll.c.at_s)).where(IS_COVERING, poll.c.at_s <= at_s).group_by(*scope)
    return {(provider, gpu, spot): covered_at_s for provider, gpu, spot, covered_at_s in connection.execute(newest)}


def newest_cover(covers: dict[CoverScope, int], provider: str, gpu: str, spot: int) -> int:
    """Return when a poll of this GPU, or of all, was last made; the earliest possible time if never."""
    return max(covers.get((provider, "", spot), _NOT_ENDED), covers.get((provider, gpu, spot), _NOT_ENDED))


def _intervals(connection: Connection, at_s: int, oldest_cover_s: int) -> Sequence[AnyRow]:
    """Return possible offers at that time, each identity's newest price last."""
    to_s = price_interval.c.seen_to_s
    query = _INTERVALS.where(price_interval.c.seen_from_s <= at_s, or_(to_s.is_(None), to_s >= oldest_cover_s))
    return connection.execute(query).all()


def _oldest_cover(connection: Connection, covers: dict[CoverScope, int]) -> int:
    """Return the time before which an offer last seen cannot have been on offer any more."""
    scopes = select(segment.c.provider, segment.c.gpu, segment.c.spot).where(segment.c.provider != "").distinct()
    return min((newest_cover(covers, *scope) for scope in connection.execute(scopes)), default=_NOT_ENDED)


def _snapshot_offer(row: AnyRow) -> SnapshotOffer:
    # by position: attribute access would double the time for a big market
    _, name, gpu, count, spot, machine, from_s, _, price, disk, family, offer_id, region, country, *cells = row
    return SnapshotOffer(
        provider=name,
        machine_id=machine,
        gpu=gpu,
        gpu_family=family,
        gpu_count=count,
        spot=bool(spot),
        kind=kind_of_source(name),
        offer_id=offer_id,
        region=region or None,
        country=country or None,
        machine_microusd_hour=price,
        disk_microusd_gb_month=disk,
        since=datetime.fromtimestamp(from_s, UTC),
        **fact_fields(cells),
    )
