"""Rows of the store for a lake: what was over in whole days, by provider; each GPU in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S
from gpuwatch.storage.history.lake.lake_schema import DATASETS, HOURLY_CELLS, PartSpan, month_start_s
from gpuwatch.storage.history.recording.price_sources import kind_of_source, provider_of_source
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.machine_facts import MACHINE_FACTS
from gpuwatch.storage.setup.side_tables import installation
from gpuwatch.storage.setup.tables import history_state, hourly, place, poll, price_interval, segment, series

Rows = list[tuple[Any, ...]]
NEVER_S = 2**31 - 1
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
        *(series.c[fact.column] for fact in MACHINE_FACTS),
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
_SCOPES = select(poll.c.provider, poll.c.gpu, poll.c.spot).distinct()
_POLLS = (
    select(poll.c.at_s, poll.c.id, poll.c.lane, poll.c.completeness, poll.c.covers, poll.c.complete_to_microusd)
    .where(poll.c.provider == bindparam("provider"), poll.c.gpu == bindparam("gpu"), poll.c.spot == bindparam("spot"))
    .where(poll.c.at_s >= bindparam("from_s"), poll.c.at_s < bindparam("until_s"))
    .order_by(poll.c.at_s, poll.c.id)
)
_FIRST_HOUR = select(func.min(hourly.c.hour)).where(hourly.c.segment_id == bindparam("segment"))
_FIRST_POLL = select(func.min(poll.c.at_s)).where(poll.c.provider == bindparam("provider"))
_ORDER = {
    "intervals": ("gpu", "series_id", "seen_from_utc"),
    "hourly": ("gpu", "source", "gpu_count", "spot", "hour_utc"),
    "polls": ("gpu", "spot", "source", "at_utc", "poll_number"),
}
_NEXT_PROVIDER = select(func.min(poll.c.provider)).where(poll.c.provider > bindparam("after"))


class LakeSource:
    """What the store has for a lake."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.names: dict[str, list[str]] = {}  # provider → the names of its prices in the history
        self._segments: dict[str, dict[str, list[int]]] = {}  # provider → GPU → ids
        with database.read() as connection:
            for number, gpu, name in connection.execute(_SEGMENTS):
                gpus = self._segments.setdefault(provider_of_source(name), {})
                gpus.setdefault(gpu, []).append(number)
            for name in sorted(_source_names(connection)):
                self.names.setdefault(provider_of_source(name), []).append(name)
            self.install_id = connection.execute(select(installation.c.install_id)).scalar() or ""
            self.kept_from_s: int | None = connection.execute(select(history_state.c.kept_from_s)).scalar_one()
            self._next_hour: int | None = connection.execute(select(history_state.c.next_hour)).scalar_one()

    def over_until_s(self, now_s: int) -> int:
        """The end of the last day whose prices, hours and polls do not change any more."""
        aggregated_s = now_s if self._next_hour is None else self._next_hour * HOUR_S
        return min(now_s - SLACK_S, aggregated_s) // DAY_S * DAY_S

    def first_s(self) -> int | None:
        """The start of the month of the first row; None: there is none."""
        names = [name for names in self.names.values() for name in names]
        numbers = [number for gpus in self._segments.values() for ids in gpus.values() for number in ids]
        with self._database.read() as connection:
            polled_s = [connection.execute(_FIRST_POLL, {"provider": name}).scalar() for name in names]
            first_s = min((first_hour_s(connection, numbers), *(at_s for at_s in polled_s if at_s is not None)))
        return None if first_s == NEVER_S else month_start_s(first_s)

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
        with self._database.read() as connection:
            scopes = [scope for scope in poll_scopes(connection) if scope[0] in self.names[provider]]
        for scope in sorted(scopes, key=lambda scope: (scope[1], scope[2], scope[0])):
            with self._database.read() as connection:
                rows = list(polls_of(connection, [scope], *span))
            yield rows


def poll_scopes(connection: Connection) -> list[CoverScope]:
    """Every name in the history, GPU and rental type that was ever polled."""
    return [(name, gpu, spot) for name, gpu, spot in connection.execute(_SCOPES)]


def polls_of(
    connection: Connection, scopes: Iterable[CoverScope], since_s: int, until_s: int
) -> Iterator[tuple[Any, ...]]:
    """Yield the polls of scopes in [since_s, until_s), as rows of a file."""
    for name, gpu, spot in scopes:
        span = {"provider": name, "gpu": gpu, "spot": spot, "from_s": since_s, "until_s": until_s}
        for at_s, number, lane, completeness, covers, bound in connection.execute(_POLLS, span):
            yield gpu, bool(spot), name, _kind(name), at_s, number, lane, completeness, bool(covers), bound


def first_hour_s(connection: Connection, segments: Iterable[int]) -> int:
    """The first stored hour of some segments, in seconds; without any, the end of time."""
    hours = [connection.execute(_FIRST_HOUR, {"segment": number}).scalar() for number in segments]
    return min((hour * HOUR_S for hour in hours if hour is not None), default=NEVER_S)


def _source_names(connection: Connection) -> set[str]:
    names = set(connection.execute(select(segment.c.provider).distinct()).scalars()) - {""}
    name: str | None = ""
    while (name := connection.execute(_NEXT_PROVIDER, {"after": name}).scalar()) is not None:
        names.add(name)
    return names


def _kind(name: str) -> str:
    return kind_of_source(name).value


def sort_key(dataset: str) -> Any:
    """The order of rows within a part, for rows of different origin."""
    chosen = [DATASETS[dataset].place(name) for name in _ORDER[dataset]]
    return lambda row: tuple(row[index] for index in chosen)
