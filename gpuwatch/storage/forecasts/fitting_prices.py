"""The lowest price of each hour of the offers that fit a watch, streamed from the store.

The answer is that of `fitting_series` over `read_market_history`. The store selects what counts, one part of the market
at a time, and of a price only its hours are kept: memory does not grow with the history. `KeptPrices` also keeps the
hours that are over, so that the next reading needs only what changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import BindParameter, Connection, bindparam, or_, select

from gpuwatch.domain.forecasts.backtest.replayed_candidates import at_any_price, is_accepted
from gpuwatch.domain.forecasts.backtest.replayed_offers import without_unrecorded_clauses
from gpuwatch.domain.forecasts.price_forecasts import scope_of
from gpuwatch.domain.history.hourly_record import HourlyRecord
from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.domain.history.market_history import COVERAGE_S, MarketFilter
from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import REFERENCE_DISK_GB, Commission, disk_microusd_hour
from gpuwatch.domain.market.offer import ListedOffer
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.domain.watches.computed_limits import traffic_microusd_hour
from gpuwatch.domain.watches.match import NO_COMMISSION
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.storage.history.recording.hourly_aggregates import COUNTS_IN_SPAN
from gpuwatch.storage.history.recording.price_sources import kind_of_source, matches_source, provider_of_source
from gpuwatch.storage.history.recording.recorded_polls import known_scopes, read_polls
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.machine_facts import MACHINE_FACTS, fact_fields
from gpuwatch.storage.setup.stored_values import AnyRow
from gpuwatch.storage.setup.tables import history_state, place, price_interval, segment, series

_SOURCE = "the store"
_STATE = select(
    history_state.c.version, history_state.c.rewritten, history_state.c.next_hour, history_state.c.kept_from_s
)
_GPUS: BindParameter[str] = bindparam("gpus", expanding=True)
_SEGMENTS = (
    select(segment)
    .where(segment.c.gpu_count > 0, segment.c.provider != "")
    .where(or_(segment.c.gpu.in_(_GPUS), segment.c.gpu_family.in_(_GPUS)))
    .order_by(segment.c.id)
)
_IN_SEGMENT = series.c.segment_id == bindparam("segment")
_COUNTS = select(price_interval.c.series_id).where(price_interval.c.series_id == series.c.id, COUNTS_IN_SPAN).exists()
_FACTS = (
    select(series.c.id, _COUNTS, place.c.region, place.c.country, *(series.c[fact.column] for fact in MACHINE_FACTS))
    .join(place, place.c.id == series.c.place_id)
    .where(_IN_SEGMENT)
)
_PRICES = (
    select(
        price_interval.c.series_id,
        price_interval.c.seen_from_s,
        price_interval.c.seen_to_s,
        price_interval.c.ended_s,
        price_interval.c.machine_microusd_hour,
        price_interval.c.disk_microusd_gb_month,
    )
    .join(series, series.c.id == price_interval.c.series_id)
    .where(_IN_SEGMENT, COUNTS_IN_SPAN)
    .where(or_(price_interval.c.ended_s.is_(None), price_interval.c.ended_s >= bindparam("settled_s")))
)
_HAS_PRICE = (
    select(price_interval.c.series_id)
    .join(series, series.c.id == price_interval.c.series_id)
    .where(_IN_SEGMENT, COUNTS_IN_SPAN)
    .limit(1)
)


class _Fitting(msgspec.Struct):
    """The offers of one part of the market that fit.

    Attributes:
        ids: their series; None: all of the part.
        newest: the highest id of a series at that time.
        traffic: the part of the price that is the watch's traffic, by series, in micro-dollars an hour; else 0.
    """

    ids: frozenset[int] | None
    newest: int = 0
    traffic: Mapping[int, int] = {}

    def is_continued_by(self, later: _Fitting) -> bool:
        """Whether what is known of it still holds: only new machines were added."""
        if self.ids is None or later.ids is None:
            return self.ids is later.ids
        if any(later.traffic.get(number, 0) != self.traffic.get(number, 0) for number in self.ids):
            return False
        return self.ids == {number for number in later.ids if number <= self.newest}


class _HoursKept(msgspec.Struct):
    """What is over: every poll before `settled_hour`, and every price that ended before it."""

    watch: Watch  # without its prices, and without the clauses that are not recorded
    state: tuple[int, ...]  # identifies the store and what was rewritten in it
    version: int
    settled_hour: int
    newest_segment: int
    parts: Mapping[int, _Fitting]
    record: HourlyRecord
    covers: dict[CoverScope, int]  # newest covering polls


class SqlFittingPrices:
    """Implements `ports.store.PastPriceReader` over the database; also for the limits of `max_price = "auto"`.

    Args:
        commissions: by provider.
        providers: only their offers; None: all with stored prices.
    """

    def __init__(
        self, database: Database, commissions: Mapping[str, Commission], providers: Collection[str] | None = None
    ) -> None:
        self._database = database
        self._commissions = commissions
        self._providers = providers
        self._kept: dict[str, _HoursKept] = {}

    def series(self, watch: Watch, since: datetime, now: datetime, scope: MarketFilter | None = None) -> PriceSeries:
        """Return the hourly lowest price of a watch's offers at any price, including imports. Raises StoreError.

        Args:
            scope: only these offers; None: all of the watch.
        """
        return self.series_and_unrecorded(watch, since, now, scope)[0]

    def series_and_unrecorded(
        self, watch: Watch, since: datetime, now: datetime, scope: MarketFilter | None = None
    ) -> tuple[PriceSeries, tuple[str, ...]]:
        """Return `series`, and the settings of the watch that the history does not record, and that select nothing."""
        span = int(since.timestamp()), int(now.timestamp()) + 1
        with self._database.read() as connection:
            reading = self._reading(connection, watch, span, scope)
            return reading.series(reading.nothing_kept()), reading.unrecorded

    def continued_series(self, watch: Watch, first_hour: int, now: datetime) -> PriceSeries:
        """Return the series from an hour on, and keep what is over for the next reading. Raises StoreError."""
        span = first_hour * HOUR_S, int(now.timestamp()) + 1
        with self._database.read() as connection:
            reading = self._reading(connection, watch, span)
            kept = self._kept.get(watch.name)
            if kept is None or not reading.continues(kept):
                kept = reading.nothing_kept()
            self._kept[watch.name] = kept
            return reading.series(kept)

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget what is kept of all other watches."""
        self._kept = {name: kept for name, kept in self._kept.items() if name in watches}

    def _reading(
        self, connection: Connection, watch: Watch, span: tuple[int, int], scope: MarketFilter | None = None
    ) -> _Reading:
        offers = _OffersOf(watch, scope or scope_of(watch), self._commissions, self._providers)
        return _Reading(connection, offers, span, self._database.generation)


class _OffersOf(NamedTuple):
    """Whose offers are read."""

    watch: Watch
    scope: MarketFilter
    commissions: Mapping[str, Commission]
    providers: Collection[str] | None


class _Reading:
    """One reading, in one transaction."""

    def __init__(
        self,
        connection: Connection,
        offers: _OffersOf,
        span: tuple[int, int],
        generation: int,
    ) -> None:
        self._connection = connection
        self._since_s, self._until_s = span
        watch, self._scope, self._commissions, self._providers = offers
        self._disk_gb = REFERENCE_DISK_GB if watch.disk_gb is None else watch.disk_gb
        self._version, rewritten, next_hour, kept_from_s = connection.execute(_STATE).one()
        self._kept_from_s: int = kept_from_s or 0
        self._state = generation, rewritten
        self._next_hour: int = next_hour or 0
        rows = connection.execute(_SEGMENTS, {"gpus": list(self._scope.gpus or ())}).all()
        models = frozenset(row.gpu for row in rows)
        self._segments = {
            row.id: row
            for row in rows
            if self._scope.has_count(row.gpu_count)
            and self._scope.has_spot(bool(row.spot))
            and matches_source(row.provider, None)
            and self._scope.has_gpu(row.gpu, row.gpu_family, models)
        }
        self._watch, self._parts = self._fitting(watch)
        families = {row.gpu: row.gpu_family for row in rows}
        self._scopes = [one for one in known_scopes(connection) if self._is_about(one, families, models)]

    # --- which offers -------------------------------------------------------------------------------------------------

    def _fitting(self, watch: Watch) -> tuple[Watch, Mapping[int, _Fitting]]:
        """Return the watch as far as the history can check it, and what fits of each part of the market."""
        if not _needs_facts(watch):
            wide = self._as_recorded(watch, map(_listing, self._on_offer(watch)))
            fitting = (row.id for row in self._segments.values() if self._fits(wide, _listing(row)))
            return wide, {number: _Fitting(None) for number in fitting}
        listings: dict[ListedOffer, None] = {}
        machines: dict[int, dict[ListedOffer, list[int]]] = {}
        for number, row in self._segments.items():
            by_facts = machines.setdefault(number, {})
            span = {"segment": number, "since_s": self._since_s, "until_s": self._until_s}
            for series_id, counts, *facts in self._connection.execute(_FACTS, span):
                listing = _listing(row, *facts)
                by_facts.setdefault(listing, []).append(series_id)
                if counts:
                    listings[listing] = None
        wide = self._as_recorded(watch, listings)
        return wide, {number: self._of_machines(wide, by_facts) for number, by_facts in machines.items()}

    def _as_recorded(self, watch: Watch, listings: Iterable[ListedOffer]) -> Watch:
        recorded, self.unrecorded = without_unrecorded_clauses(watch, listings)
        return at_any_price(recorded)

    def _on_offer(self, watch: Watch) -> list[AnyRow]:
        """Return the parts that had offers in the span, as far as a clause depends on that."""
        if watch.min_vram_gib is None and watch.max_usd_gib_hour is None:
            return list(self._segments.values())
        span = {"since_s": self._since_s, "until_s": self._until_s}
        return [
            row
            for number, row in self._segments.items()
            if self._connection.execute(_HAS_PRICE, span | {"segment": number}).first()
        ]

    def _of_machines(self, wide: Watch, by_facts: Mapping[ListedOffer, list[int]]) -> _Fitting:
        fitting = frozenset(number for listing, ids in by_facts.items() if self._fits(wide, listing) for number in ids)
        newest = max((number for ids in by_facts.values() for number in ids), default=0)
        if wide.traffic is None:
            return _Fitting(fitting, newest)
        costs = ((traffic_microusd_hour(wide, listing), ids) for listing, ids in by_facts.items())
        return _Fitting(fitting, newest, {number: cost for cost, ids in costs if cost for number in ids})

    def _fits(self, wide: Watch, listing: ListedOffer) -> bool:
        if self._providers is not None and listing.provider not in self._providers:
            return False
        return is_accepted(wide, listing, self._commissions, REFERENCE_DISK_GB)

    # --- what is kept -------------------------------------------------------------------------------------------------

    def nothing_kept(self) -> _HoursKept:
        """Return an empty state, with which everything is read."""
        return _HoursKept(
            watch=self._watch,
            state=self._state,
            version=0,
            settled_hour=0,
            newest_segment=max(self._segments, default=0),
            parts=self._parts,
            record=HourlyRecord(self._since_s // HOUR_S),
            covers={},
        )

    def continues(self, kept: _HoursKept) -> bool:
        """Whether nothing has changed before the hours that are read now."""
        if (kept.watch, kept.state) != (self._watch, self._state) or kept.version > self._version:
            return False
        if kept.record.first_hour > self._since_s // HOUR_S or kept.settled_hour > self._next_hour:
            return False  # the clock stepped back
        if self._kept_from_s > self._since_s:
            return False  # prices of the span are being pruned
        older = {number: part for number, part in self._parts.items() if number <= kept.newest_segment}
        return older.keys() == kept.parts.keys() and all(
            part.is_continued_by(older[number]) for number, part in kept.parts.items()
        )

    # --- the series ---------------------------------------------------------------------------------------------------

    def series(self, kept: _HoursKept) -> PriceSeries:
        """Return the series; what is over now is added to `kept`."""
        kept.record.drop_before(self._since_s // HOUR_S)
        from_s, settled_s = kept.settled_hour * HOUR_S, min(self._next_hour * HOUR_S, self._until_s)
        newer = HourlyRecord(kept.record.first_hour)
        covers = self._add_polls(kept, newer, settled_s)
        for number, part in self._parts.items():
            self._add_prices(number, part, covers, (from_s, settled_s), (kept.record, newer))
        kept.version, kept.parts, kept.settled_hour = self._version, self._parts, settled_s // HOUR_S
        kept.newest_segment = max(self._segments, default=0)
        newer.merge(kept.record)
        starts_s = self._first_poll(newer.first_poll_s(self._since_s) or self._until_s)
        if starts_s is None:
            return PriceSeries(first_hour=0, lows=(), polled=(), source=_SOURCE)
        return newer.series(starts_s, self._until_s, _SOURCE)

    def _is_about(self, scope: CoverScope, families: Mapping[str, str], models: frozenset[str]) -> bool:
        """Whether polls of a scope are of all GPUs, or of a matching one, even if that was never on offer."""
        source, gpu, spot = scope
        if self._providers is not None and provider_of_source(source) not in self._providers:
            return False  # what others polled says nothing about these
        if not self._scope.has_spot(bool(spot)) or not matches_source(source, None):
            return False
        return not gpu or self._scope.has_gpu(gpu, families.get(gpu) or catalog().resolve(gpu).family, models)

    def _add_polls(self, kept: _HoursKept, newer: HourlyRecord, settled_s: int) -> Mapping[CoverScope, int]:
        """Add the polls since the last reading; return the newest covering one of each scope."""
        covers = dict(kept.covers)
        since_s = max(kept.settled_hour * HOUR_S, self._since_s - COVERAGE_S)
        found = read_polls(self._connection, self._scopes, since_s, self._until_s, covering=True)
        for scope, polls in found.items():
            covers[scope] = max(polls.at_s[-1], covers.get(scope, 0))
            for poll in polls:
                if poll.at_s < settled_s:
                    kept.covers[scope] = max(poll.at_s, kept.covers.get(scope, 0))
                if poll.completeness == "complete" and poll.at_s >= self._since_s:
                    (kept.record if poll.at_s < settled_s else newer).add_poll(poll.at_s)
        return covers

    def _add_prices(
        self,
        number: int,
        part: _Fitting,
        covers: Mapping[CoverScope, int],
        settled: tuple[int, int],
        records: tuple[HourlyRecord, HourlyRecord],
    ) -> None:
        """Add the prices of a part that are new or still change; those that ended before `settled_s` are final."""
        (from_s, settled_s), (final, newer) = settled, records
        row, until_s = self._segments[number], self._until_s
        rate = float(self._commissions.get(provider_of_source(row.provider), NO_COMMISSION).on_top_rate(None))
        newest_s = max(covers.get((row.provider, gpu, row.spot), 0) for gpu in (row.gpu, ""))
        if newest_s < self._since_s - COVERAGE_S:
            newest_s = 0
        span = {"segment": number, "since_s": self._since_s, "until_s": until_s, "settled_s": from_s}
        for series_id, price_from_s, to_s, ended_s, machine, disk in self._connection.execute(_PRICES, span):
            if part.ids is not None and series_id not in part.ids:
                continue
            seen_s = to_s if to_s is not None and to_s < until_s else max(price_from_s, newest_s)
            last_s = seen_s + COVERAGE_S
            if ended_s is not None and ended_s < until_s:
                last_s = min(last_s, ended_s)
            listed = machine + disk_microusd_hour(disk, self._disk_gb)
            whole = listed * (1 + rate) + part.traffic.get(series_id, 0)
            price = max(1, round(whole / row.gpu_count))  # never 0: other code divides by prices
            record = final if ended_s is not None and ended_s < settled_s else newer
            record.add_price(price_from_s // HOUR_S, (last_s - 1) // HOUR_S, price)

    def _first_poll(self, known_s: int) -> int | None:
        """Return the first poll of any kind in the span, given one that may not be the first."""
        found = read_polls(self._connection, self._scopes, self._since_s, known_s)
        first_s = min((polls.at_s[0] for polls in found.values()), default=known_s)
        return first_s if first_s < self._until_s else None


def _needs_facts(watch: Watch) -> bool:
    """Whether a clause is about what only the machine's own row says."""
    return (
        bool(
            watch.verified
            or watch.regions
            or watch.min_reliability is not None
            or watch.when is not None
            or watch.any_of
        )
        or watch.traffic is not None
        or (watch.wants_no_gpu and (watch.min_vcpu or watch.min_ram_gib) is not None)
    )


def _listing(row: AnyRow, region: str = "", country: str = "", *cells: Any) -> ListedOffer:
    """Return an offer of a part of the market with these facts, without a name: no recorded clause depends on that."""
    return ListedOffer(
        provider=provider_of_source(row.provider),
        machine_id="",
        offer_id="",
        gpu=row.gpu,
        gpu_count=row.gpu_count,
        spot=bool(row.spot),
        gpu_family=row.gpu_family,
        gpu_memory_gib=row.gpu_memory_gib,
        kind=kind_of_source(row.provider),
        region=region or None,
        country=country or None,
        **fact_fields(cells or [None] * len(MACHINE_FACTS)),
    )
