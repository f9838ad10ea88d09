"""What a writer of the history reads first: the version of the history, which it locks, and the open prices."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from gpuwatch.storage.market.open_prices import NEVER, OpenPrice, OpenPrices
from gpuwatch.storage.setup.machine_facts import verification_from
from gpuwatch.storage.setup.tables import IS_COVERING, history_state, place, poll, price_interval, segment, series

_VERSION = select(history_state.c.version).with_for_update()  # SQLite's writing transactions are exclusive anyway
_STATE = select(history_state.c.version, history_state.c.next_hour)
_SEGMENTS = select(segment.c.id, segment.c.provider, segment.c.gpu, segment.c.gpu_count, segment.c.spot)
_PLACES = select(place.c.id, place.c.region, place.c.country)
_COVERS = (
    select(poll.c.provider, poll.c.gpu, poll.c.spot, func.max(poll.c.at_s))
    .where(IS_COVERING)
    .group_by(poll.c.provider, poll.c.gpu, poll.c.spot)
)
_newer = price_interval.alias()
_NEWEST_S = select(func.max(_newer.c.seen_from_s)).where(_newer.c.series_id == series.c.id).scalar_subquery()
_OPEN_PRICES = (
    select(
        series.c.segment_id,
        series.c.machine_id,
        series.c.id,
        series.c.verification,
        price_interval.c.seen_from_s,
        price_interval.c.machine_microusd_hour,
        price_interval.c.disk_microusd_gb_month,
    )
    .join(price_interval, price_interval.c.series_id == series.c.id)
    .where(series.c.on_offer == 1, price_interval.c.seen_from_s == _NEWEST_S)
)


def lock_history(connection: Connection) -> int:
    """Serialise recorders, imports and prunes of all processes; return the version of the history."""
    return int(connection.execute(_VERSION).scalar_one())


def load_open_prices(connection: Connection) -> OpenPrices:
    """Load everything that is on offer from the database."""
    prices = OpenPrices()
    prices.version, prices.next_hour = connection.execute(_STATE).one()
    load_ids(connection, prices)
    for provider, gpu, spot, at_s in connection.execute(_COVERS):
        prices.prices_of(provider, spot).covered_s[gpu] = at_s
    _load_open(connection, prices)
    return prices


def load_ids(connection: Connection, prices: OpenPrices) -> None:
    """Load segments, places and the next free id of a series."""
    for segment_id, provider, gpu, count, spot in connection.execute(_SEGMENTS):
        prices.segments[(provider, gpu, count, spot)] = segment_id
    for place_id, region, country in connection.execute(_PLACES):
        prices.places[(region, country)] = place_id
    prices.next_series_id = 1 + (connection.execute(select(func.max(series.c.id))).scalar() or 0)


def _load_open(connection: Connection, prices: OpenPrices) -> None:
    """Load the open prices; the segments must be loaded."""
    scopes = {
        number: (prices.prices_of(provider, spot), gpu, count)
        for (provider, gpu, count, spot), number in prices.segments.items()
    }
    for segment_id, machine, series_id, verification, from_s, price, disk in connection.execute(_OPEN_PRICES):
        provider_prices, gpu, count = scopes[segment_id]
        verified = verification_from(verification)
        provider_prices.add(OpenPrice(series_id, segment_id, gpu, (machine, count), from_s, price, disk, verified))
        if from_s > provider_prices.changed_s.get(gpu, NEVER):
            provider_prices.changed_s[gpu] = from_s
