"""The stored market: a period, with every price from when it was first seen until it was gone; and one moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, or_, select

from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.domain.history.market_history import (
    COVERAGE_S,
    MarketFilter,
    MarketHistory,
    MarketIntervals,
    OfferInterval,
    SnapshotOffer,
)
from gpuwatch.domain.history.market_polls import MarketPolls, market_polls
from gpuwatch.domain.history.packed_polls import PollColumns
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import NO_GPU, ListedOffer, Verification
from gpuwatch.storage.history.recording.hourly_aggregates import COUNTS_IN_SPAN
from gpuwatch.storage.history.recording.open_prices import BY_SERIES
from gpuwatch.storage.history.recording.price_sources import kind_of_source, matches_source, provider_of_source
from gpuwatch.storage.history.recording.recorded_polls import LAST_S, known_scopes, read_polls
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.machine_facts import MACHINE_FACTS, fact_fields, stored_verification
from gpuwatch.storage.setup.stored_values import AnyRow
from gpuwatch.storage.setup.tables import place, price_interval, segment, series

Names = Callable[[str], bool]
_AT_ONCE = 4096  # prices held as rows

_SEGMENTS = select(segment).where(segment.c.gpu_count > 0, segment.c.provider != "").order_by(segment.c.id)
_INTERVALS = (
    select(
        series.c.id,
        price_interval.c.seen_from_s,
        price_interval.c.seen_to_s,
        price_interval.c.ended_s,
        price_interval.c.machine_microusd_hour,
        price_interval.c.disk_microusd_gb_month,
    )
    .join(series, series.c.id == price_interval.c.series_id)
    .where(series.c.segment_id == bindparam("segment"), COUNTS_IN_SPAN)
    .order_by(series.c.id)
    .execution_options(yield_per=_AT_ONCE)
)
_INTERVALS_OF_VERIFIED = _INTERVALS.where(series.c.verification == stored_verification(Verification.VERIFIED))
_LISTINGS = (
    select(
        series.c.id,
        series.c.machine_id,
        series.c.offer_id,
        place.c.region,
        place.c.country,
        *(series.c[fact.column] for fact in MACHINE_FACTS),
    )
    .join(place, place.c.id == series.c.place_id)
    .where(series.c.segment_id == bindparam("segment"))
)
# Of a machine only the price that began last can be on sale: looked up, as the prices of a year are read slowly.
_begun = price_interval.alias()
_BEGUN_S = (
    select(func.max(_begun.c.seen_from_s))
    .where(_begun.c.series_id == series.c.id, _begun.c.seen_from_s <= bindparam("at_s"))
    .scalar_subquery()
)
_SNAPSHOT = (
    select(
        segment.c.provider, segment.c.gpu, segment.c.gpu_count, segment.c.spot, series.c.machine_id,
        price_interval.c.seen_from_s, price_interval.c.machine_microusd_hour, price_interval.c.disk_microusd_gb_month,
        segment.c.gpu_family,
        series.c.offer_id, place.c.region, place.c.country, *(series.c[fact.column] for fact in MACHINE_FACTS),
    )
    .join_from(series, price_interval, BY_SERIES)
    .join(segment, segment.c.id == series.c.segment_id)
    .join(place, place.c.id == series.c.place_id)
    .where(price_interval.c.seen_from_s == _BEGUN_S)
    .order_by(price_interval.c.series_id, price_interval.c.seen_from_s)
)  # fmt: skip

_ON_SALE = _SNAPSHOT.where(or_(price_interval.c.ended_s.is_(None), price_interval.c.ended_s > bindparam("at_s")))
_LAST_PRICES = (
    select(segment.c.gpu, segment.c.gpu_count, price_interval.c.machine_microusd_hour)
    .join_from(series, segment, segment.c.id == series.c.segment_id)
    .join(price_interval, price_interval.c.series_id == series.c.id)
)
_IS_ON_OFFER = series.c.on_offer == 1
_ON_SALE_NOW = _ON_SALE.where(_IS_ON_OFFER)
_SOURCES_ON_SALE = (
    select(segment.c.provider, segment.c.spot)
    .distinct()
    .where(segment.c.id.in_(select(series.c.segment_id).where(_IS_ON_OFFER)))
)


def read_market_history(
    database: Database, scope: MarketFilter, since: datetime, until: datetime, *, names: Names | None = None
) -> MarketHistory:
    """Read a part of the market in [since, until).

    Args:
        names: selects the names in the history (`price_sources`); None: those that match the scope.

    Raises:
        StoreError: the database cannot be read.
    """
    span = seconds_since_1970(since), seconds_since_1970(until)
    listings: list[ListedOffer] = []
    intervals = MarketIntervals()
    with database.read() as connection:
        market_filter = _MarketFilter(connection, scope, names)
        polls, newest = _polls_and_covers(market_filter.polls(connection, span[0] - COVERAGE_S, span[1]), span[0])
        for row in market_filter.segments:
            newest_s = max(newest.get((row.provider, gpu, row.spot), 0) for gpu in (row.gpu, ""))
            _add_segment(connection, row, span, newest_s, (listings, intervals), verified=scope.verified)
    intervals.order_by_time()
    return MarketHistory(
        listings=tuple(listings), intervals=intervals, polls=polls, source="the store", until_s=span[1]
    )


def _polls_and_covers(
    read: Mapping[CoverScope, PollColumns], since_s: int
) -> tuple[MarketPolls, Mapping[CoverScope, int]]:
    """Return the polls from then on, and the newest covering one of each scope."""
    newest = {scope: at_s for scope, polls in read.items() if (at_s := polls.newest_cover_s()) is not None}
    return polls_by_time({scope: polls.between(since_s, LAST_S) for scope, polls in read.items()}), newest


def read_covering_polls(
    database: Database, scope: MarketFilter, since: datetime, until: datetime, *, names: Names | None = None
) -> dict[CoverScope, PollColumns]:
    """Return the covering polls in [since, until) of each scope. Arguments and errors as `read_market_history`."""
    span = seconds_since_1970(since), seconds_since_1970(until)
    with database.read() as connection:
        return _MarketFilter(connection, scope, names).polls(connection, *span, covering=True)


def polls_by_time(polls: Mapping[CoverScope, PollColumns], *, covering: bool = False) -> MarketPolls:
    """Return polls of any scopes by time; `covering` as in `market_polls`."""
    scopes = ((provider_of_source(name), gpu, bool(spot), own) for (name, gpu, spot), own in polls.items())
    return market_polls(scopes, covering=covering)


class _MarketFilter:
    """The segments and polls that match a query."""

    def __init__(self, connection: Connection, scope: MarketFilter, names: Names | None) -> None:
        rows = connection.execute(_SEGMENTS).all()
        self._scope = scope
        self._matches_name = names or (lambda name: matches_source(name, scope.provider))
        self._models = frozenset(row.gpu for row in rows)
        self._families = {row.gpu: row.gpu_family for row in rows}
        self._matches_scope: dict[CoverScope, bool] = {}
        self.segments = [
            row
            for row in rows
            if scope.has_count(row.gpu_count)
            and self._names(row.provider, row.spot)
            and self._has_gpu(row.gpu, row.gpu_family)
        ]

    def polls(
        self, connection: Connection, since_s: int, until_s: int, *, covering: bool = False
    ) -> dict[CoverScope, PollColumns]:
        """Return the matching polls in [since_s, until_s)."""
        scopes = filter(self._is_about, known_scopes(connection))
        return read_polls(connection, scopes, since_s, until_s, covering=covering)

    def _is_about(self, scope: CoverScope) -> bool:
        """Whether it is a poll of all GPUs, or of a matching one, even if that was never on offer."""
        if scope not in self._matches_scope:
            name, gpu, spot = scope
            is_wanted = self._names(name, spot)
            if is_wanted and gpu:
                is_wanted = self._has_gpu(gpu, self._families.get(gpu) or catalog().resolve(gpu).family)
            self._matches_scope[scope] = is_wanted
        return self._matches_scope[scope]

    def _names(self, name: str, spot: int) -> bool:
        return self._matches_name(name) and self._scope.has_spot(bool(spot))

    def _has_gpu(self, gpu: str, family: str) -> bool:
        return self._scope.has_gpu(gpu, family, self._models)


def _add_segment(
    connection: Connection,
    segment: AnyRow,
    span: tuple[int, int],
    newest_s: int,
    result: tuple[list[ListedOffer], MarketIntervals],
    *,
    verified: bool,
) -> None:
    """Add the prices of a part of the market in a span, and their offers; `newest_s`: the last poll that covers it."""
    end_s = span[1]
    listings, intervals = result
    parameters = {"segment": segment.id, "until_s": end_s, "since_s": span[0]}
    places: dict[int, int] = {}  # series → listing
    first = len(listings)

    def interval(number: int, from_s: int, to_s: int | None, ended_s: int | None, *price: int) -> OfferInterval:
        seen_s = to_s if to_s is not None and to_s < end_s else max(from_s, newest_s)
        known_end_s = ended_s if ended_s is not None and ended_s < end_s else None
        return OfferInterval(places.setdefault(number, first + len(places)), from_s, seen_s, known_end_s, *price)

    query = _INTERVALS_OF_VERIFIED if verified else _INTERVALS
    for part in connection.execute(query, parameters).partitions():
        intervals.extend([interval(*row) for row in part])
    if places:
        facts = {row[0]: row for row in connection.execute(_LISTINGS, {"segment": segment.id})}
        listings.extend(_listing(segment, facts[number]) for number in places)


def _listing(segment: AnyRow, facts: AnyRow) -> ListedOffer:
    _, name, gpu, gpu_count, spot, family, memory_gib = segment
    _, machine_id, offer_id, region, country, *cells = facts
    return ListedOffer(
        provider=provider_of_source(name),
        machine_id=machine_id,
        gpu=gpu,
        gpu_count=gpu_count,
        spot=bool(spot),
        gpu_family=family,
        offer_id=offer_id,
        gpu_memory_gib=memory_gib,
        kind=kind_of_source(name),
        region=region or None,
        country=country or None,
        **fact_fields(cells),
    )


def market_at(
    database: Database, at: datetime, *, is_now: bool = False, gpus: Collection[str] | None = None
) -> tuple[SnapshotOffer, ...]:
    """Return the offers at a moment.

    Args:
        is_now: that moment is not over: only what is still on offer is read, without imported prices.
        gpus: only offers of these models; None: all. Machines without GPUs only if `NO_GPU` is one of them.

    Raises:
        StoreError: the database cannot be read.
    """
    at_s, query = seconds_since_1970(at), _ON_SALE_NOW if is_now else _ON_SALE
    if gpus is not None:
        query = query.where(segment.c.gpu.in_(list(gpus)))
    if gpus is None or NO_GPU not in gpus:
        query = query.where(segment.c.gpu_count > 0)
    with database.read() as connection:
        return tuple(map(_snapshot_offer, connection.execute(query, {"at_s": at_s}).all()))


class LastListing(NamedTuple):
    """What an offer was when it was last seen; the price is listed, without its disk."""

    gpu: str
    gpu_count: int
    microusd_hour: int


def last_listing(database: Database, provider: str, offer_id: str, *, spot: bool) -> LastListing | None:
    """Return what an offer with this id was; None: it was never seen. Raises StoreError."""
    is_of = (segment.c.provider == provider, segment.c.spot == int(spot), series.c.offer_id == offer_id)
    query = _LAST_PRICES.where(*is_of).order_by(price_interval.c.seen_from_s.desc()).limit(1)
    with database.read() as connection:
        row = connection.execute(query).first()
    return None if row is None else LastListing(*row)


def sources_on_sale(database: Database) -> list[tuple[str, bool]]:
    """Return each name in the history with offers of a rental type that are on sale now. Raises StoreError."""
    with database.read() as connection:
        return [(name, bool(spot)) for name, spot in connection.execute(_SOURCES_ON_SALE)]


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
