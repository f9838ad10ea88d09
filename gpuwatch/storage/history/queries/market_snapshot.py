"""The exact market at any moment, from the intervals."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import or_, select

from gpuwatch.domain.history.market_history import SnapshotOffer
from gpuwatch.storage.history.recording.price_sources import kind_of_source
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.machine_facts import MACHINE_FACTS, fact_fields
from gpuwatch.storage.setup.stored_values import AnyRow
from gpuwatch.storage.setup.tables import place, price_interval, segment, series

_NOT_ENDED = -1
_INTERVALS = (
    select(
        segment.c.provider, segment.c.gpu, segment.c.gpu_count, segment.c.spot, series.c.machine_id,
        price_interval.c.seen_from_s, price_interval.c.machine_microusd_hour, price_interval.c.disk_microusd_gb_month,
        segment.c.gpu_family,
        series.c.offer_id, place.c.region, place.c.country, *(series.c[fact.column] for fact in MACHINE_FACTS),
    )
    .join(series, series.c.id == price_interval.c.series_id)
    .join(segment, segment.c.id == series.c.segment_id)
    .join(place, place.c.id == series.c.place_id)
    .order_by(price_interval.c.series_id, price_interval.c.seen_from_s)
)  # fmt: skip


def market_at(database: Database, at: datetime) -> tuple[SnapshotOffer, ...]:
    """Return the offers at a moment. Raises StoreError."""
    at_s = seconds_since_1970(at)
    ended_s = price_interval.c.ended_s
    query = _INTERVALS.where(price_interval.c.seen_from_s <= at_s, or_(ended_s.is_(None), ended_s > at_s))
    with database.read() as connection:
        return tuple(map(_snapshot_offer, connection.execute(query)))


def _snapshot_offer(row: AnyRow) -> SnapshotOffer:
    # by position: attribute access would double the time for a big market
    name, gpu, count, spot, machine, from_s, price, disk, family, offer_id, region, country, *cells = row
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
