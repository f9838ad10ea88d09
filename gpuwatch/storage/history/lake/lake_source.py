"""Rows of the store for a lake: what was over in whole days, by provider; each GPU in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from gpuwatch.domain.setup.durations import DAY_S, HOUR_S
from gpuwatch.storage.history.lake.lake_schema import DATASETS, HOURLY_CELLS, PartSpan, month_start_s
from gpuwatch.storage.history.recording.price_sources import kind_of_source, provider_of_source
from gpuwatch.storage.history.recording.recorded_polls import first_poll_s, known_scopes, read_polls
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.machine_facts import LAKE_FACTS
from gpuwatch.storage.setup.side_tables import installation
from gpuwatch.storage.setup.tables import history_state, hourly, place, price_interval, segment, series

Rows = list[tuple[Any, ...]]
SLACK_S = HOUR_S  # after midnight: a slow answer may still belong to the day before

_SEGMENT = (
    segment.c.gpu,
    segment.c.gpu_family,
    segment.c.gpu_count,
    segment.c.gpu_memory_gib,
    segment.c.spot,
    segment.c.provider,
)
_SEGMENTS = select(segment.c.id, segment.c.gpu, segment.c.provider).where(segment.c.gpu_count > 0)
_INTERVALS = (
    select(
        *_SEGMENT,
        series.c.machine_id,
        series.c.offer_id,
        place.c.region,
        place.c.country,
        *(series.c[fact.column] for fact in LAKE_FACTS),
        series.c.id,
        price_interval.c.seen_from_s,
        price_interval.c.seen_to_s,
        price_interval.c.ended_s,
        price_interval.c.machine_microusd_hour,
        price_interval.c.disk_microusd_gb_month,
    )
    .join_from(series, price_interval, price_interval.c.series_id == series.c.id)
    .join(segment, segment.c.id == series.c.segment_id)
    .join(place, place.c.id == series.c.place_id)
    .where(series.c.segment_id.in_(bindparam("segments", expanding=True)))
    .where(price_interval.c.ended_s >= bindparam("from_s"), price_interval.c.ended_s < bindparam("until_s"))
    .order_by(series.c.id, price_interval.c.seen_from_s)
)
_HOURLY = (
    select(*_SEGMENT, hourly.c.hour * HOUR_S, *HOURLY_CELLS)
    .join_from(segment, hourly, hourly.c.segment_id == segment.c.id)
    .where(segment.c.id.in_(bindparam("segments", expanding=True)))
    .where(hourly.c.hour >= bindparam("from_s") // HOUR_S, hourly.c.hour < bindparam("until_s") // HOUR_S)
    .order_by(segment.c.provider, segment.c.gpu_count, segment.c.spot, hourly.c.hour)
)
_FIRST_HOUR = select(func.min(hourly.c.hour)).where(hourly.c.segment_id == bindparam("segment"))
ROW_ORDER = {
    "intervals": ("gpu", "series_id", "seen_from_utc"),
    "hourly": ("gpu", "source", "gpu_count", "spot", "hour_utc"),
    "polls": ("gpu", "spot", "source", "at_utc", "poll_number"),
}


def over_until_s(connection: Connection, now_s: int) -> int:
    """The end of the last day whose prices, hours and polls do not change any more: its hours are aggregated, too."""
    next_hour = connection.execute(select(history_state.c.next_hour)).scalar_one()
    aggregated_s = now_s if next_hour is None else next_hour * HOUR_S
    return min(now_s - SLACK_S, aggregated_s) // DAY_S * DAY_S


class LakeSource:
    """What the store has for a lake."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._segments: dict[str, dict[str, list[int]]] = {}  # provider → GPU → ids
        with database.read() as connection:
            for number, gpu, name in connection.execute(_SEGMENTS):
                gpus = self._segments.setdefault(provider_of_source(name), {})
                gpus.setdefault(gpu, []).append(number)
            self._scopes = known_scopes(connection)
            self.providers = sorted({*self._segments, *(provider_of_source(name) for name, _, _ in self._scopes)})
            self.install_id = connection.execute(select(installation.c.install_id)).scalar() or ""
            self.kept_from_s: int | None = connection.execute(select(history_state.c.kept_from_s)).scalar_one()

    def over_until_s(self, now_s: int) -> int:
        """See the function."""
        with self._database.read() as connection:
            return over_until_s(connection, now_s)

    def first_s(self) -> int | None:
        """The start of the month of the first row; None: there is none."""
        numbers = [number for gpus in self._segments.values() for ids in gpus.values() for number in ids]
        with self._database.read() as connection:
            hours = [connection.execute(_FIRST_HOUR, {"segment": number}).scalar() for number in numbers]
            known = [hour * HOUR_S for hour in hours if hour is not None] + [first_poll_s(connection)]
        first_s = min((at_s for at_s in known if at_s is not None), default=None)
        return None if first_s is None else month_start_s(first_s)

    def rows(self, dataset: str, provider: str, span: PartSpan) -> Iterator[Rows]:
        """Yield the rows of a part in their order, some at a time. Raises StoreError."""
        if dataset == "polls":
            yield from self._polls(provider, span)
            return
        query = {"intervals": _INTERVALS, "hourly": _HOURLY}[dataset]
        for _, numbers in sorted(self._segments.get(provider, {}).items()):
            with self._database.read() as connection:
                found = connection.execute(query, {"segments": numbers, **span._asdict()}).all()
            yield [(*row[:4], bool(row[4]), row[5], _kind(row[5]), *row[6:]) for row in found]

    def _polls(self, provider: str, span: PartSpan) -> Iterator[Rows]:
        scopes = [scope for scope in self._scopes if provider_of_source(scope[0]) == provider]
        for scope in sorted(scopes, key=lambda scope: (scope[1], scope[2], scope[0])):
            with self._database.read() as connection:
                polls = read_polls(connection, [scope], *span).get(scope, ())
            name, gpu, spot = scope
            yield [
                (gpu, bool(spot), name, _kind(name), poll.at_s, poll.number, poll.lane, poll.completeness, poll.covers,
                 poll.complete_to_microusd)
                for poll in polls
            ]  # fmt: skip


def _kind(name: str) -> str:
    return kind_of_source(name).value


def sort_key(dataset: str) -> Any:
    """The order of rows within a part, for rows of different origin."""
    chosen = [DATASETS[dataset].place(name) for name in ROW_ORDER[dataset]]
    return lambda row: tuple(row[index] for index in chosen)
