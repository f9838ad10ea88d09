"""Answers questions about spans that the store has dropped: from a copy of the store, with what the lake has.

The copy is a temporary SQLite file of the same schema, with the asked GPUs alone. So every query of the history reads
it as it reads the store, and has the same answer as over a store that was never pruned. Where a row is in both, that of
the store counts. Machines keep the order in which they were first recorded.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, Table, bindparam, func, insert, select
from sqlalchemy.dialects import sqlite

from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.packed_polls import COMPLETENESS, COVERS_FLAG, LANE_SHIFT, LANES, PollColumns
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_notes import LakePart, LakeState, lake_parts, lake_state
from gpuwatch.storage.history.lake.lake_place import LakePlace, open_place
from gpuwatch.storage.history.lake.lake_query import LakeQuery, selected
from gpuwatch.storage.history.recording.hourly_aggregates import read_hours_of
from gpuwatch.storage.history.recording.poll_writer import packed_day
from gpuwatch.storage.history.recording.recorded_polls import known_scopes, packed_to_day
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.machine_facts import LAKE_FACTS, MACHINE_FACTS
from gpuwatch.storage.setup.tables import (
    history_state,
    hourly,
    metadata,
    place,
    poll,
    poll_day,
    poll_total,
    price_interval,
    segment,
    series,
)

_MARGIN_S = DAY_S  # queries also read what still counts at the start of a span
# nobody else sees the copy before it is filled, and nobody keeps it
_FAST = tuple(
    f"PRAGMA {one}" for one in ("journal_mode=OFF", "synchronous=OFF", "foreign_keys=OFF", "cache_size=-32000")
)
_SQLITE = sqlite.dialect(paramstyle="qmark")
_CHUNK_ROWS = 5000
_POLL_FILES = 8  # read at once: the lists of more take a hundred MB
_RETRIES = 2  # a run of the lake replaces files once a day
_FACTS = [fact.column for fact in LAKE_FACTS]
_NOT_IN_LAKE = dict.fromkeys(fact.column for fact in MACHINE_FACTS if not fact.in_lake)
_LAST_FACTS = ", ".join(f"arg_max({name}, ended_utc)" for name in ("offer_id", "region", "country", *_FACTS))
_INTERVAL_CELLS = (
    "seen_from_utc", "seen_to_utc", "machine_microusd_hour", "disk_microusd_gb_month", "ended_utc",
)  # fmt: skip
_SCOPE_AND_DAY = "source, gpu, spot, epoch_ms(at_utc) // 86400000"
_IN_ORDER = "ORDER BY at_utc, poll_number"
_FLAGS = (  # as `PollColumns` has them: three lists of words would take most of the time
    f"list_position({list(COMPLETENESS)}, completeness) - 1 + covers::INT * {COVERS_FLAG}"
    f" + ((coalesce(list_position({list(LANES)}, lane), {len(LANES)}) - 1) << {LANE_SHIFT})"
)
_DAYS_OF_POLLS = f"{_SCOPE_AND_DAY}, " + ", ".join(
    f"list({cell} {_IN_ORDER})"
    for cell in (
        "epoch_ms(at_utc) // 1000",
        "poll_number",
        _FLAGS,
        "coalesce(complete_to_microusd_hour, -1)",
    )
)
_INTERVALS = (
    select(price_interval)
    .join(series, series.c.id == price_interval.c.series_id)
    .where(series.c.segment_id == bindparam("segment"))
)
_SERIES = select(series).where(series.c.segment_id == bindparam("segment"))
_HOURLY = select(hourly).where(hourly.c.segment_id == bindparam("segment"), hourly.c.hour >= bindparam("first_hour"))
_HOURS = select(func.count()).where(
    hourly.c.segment_id == bindparam("segment"),
    hourly.c.hour >= bindparam("first_hour"),
    hourly.c.hour < bindparam("end_hour"),
)
_is_polled = [table.c[name] == bindparam(name) for table in (poll_day, poll) for name in ("provider", "gpu", "spot")]
_POLL_DAYS = select(poll_day).where(*_is_polled[:3], poll_day.c.day >= bindparam("since_s") // DAY_S)
_POLL_ROWS = select(poll).where(*_is_polled[3:], poll.c.at_s >= bindparam("since_s"))


class LakeQuestion(NamedTuple):
    """What is asked.

    Attributes:
        needs_prices: not only hourly prices and polls.
    """

    scope: MarketFilter
    since_s: int
    until_s: int
    needs_prices: bool


class LakeSpan(NamedTuple):
    """Which time is copied, in seconds since 1970, and from when on the store has it."""

    since_s: int
    until_s: int
    kept_from_s: int

    @property
    def kept_day(self) -> int:
        """The first day of which the store has all polls: earlier ones are taken from the lake."""
        return -(-self.kept_from_s // DAY_S)


@contextmanager
def open_with_lake(
    store: Database, lake: str, scope: MarketFilter, since: datetime, until: datetime, *, needs_prices: bool = True
) -> Iterator[Database]:
    """Yield the store, or a copy with what it has dropped of this part of the market.

    Args:
        lake: as in the settings; "": none.
        scope: only its GPUs are copied.
        needs_prices: False: the question is about hourly prices and polls alone.

    Raises:
        StoreError: the store or a file of the lake cannot be read.
        UsageError: the extra is not installed.
    """
    if not lake:
        yield store
        return
    question = LakeQuestion(scope, seconds_since_1970(since), seconds_since_1970(until) + 1, needs_prices)
    with TemporaryDirectory(prefix="gpuwatch-lake-") as folder, ExitStack() as opened:
        yield _copy_of(store, open_place(lake), question, Path(folder), opened) or store


def _copy_of(
    store: Database, where: LakePlace, question: LakeQuestion, folder: Path, opened: ExitStack
) -> Database | None:
    """Fill a copy; begin anew where a run of the lake has meanwhile replaced files that are read."""
    for number in range(_RETRIES):
        before = _parts_of(store, where)
        try:
            return _filled_copy(store, where, question, folder / str(number), opened)
        except StoreError:
            if _parts_of(store, where) == before:
                raise
    return _filled_copy(store, where, question, folder / "last", opened)


def _parts_of(store: Database, where: LakePlace) -> Sequence[LakePart]:
    with store.read() as connection:
        return lake_parts(connection, where.url)


def _filled_copy(
    store: Database, where: LakePlace, question: LakeQuestion, folder: Path, opened: ExitStack
) -> Database | None:
    """Return a filled copy, open until `opened` ends; None: the store has all that is asked, or there is no lake."""
    with ExitStack() as stack:
        source = stack.enter_context(store.read())  # one snapshot: what is pruned meanwhile is in it
        kept_s = source.execute(select(history_state.c.kept_from_s)).scalar_one()
        state = lake_state(source, where.url)
        span = LakeSpan(max(0, question.since_s - _MARGIN_S), question.until_s, kept_s or 0)
        if state is None or span.since_s >= span.kept_from_s:
            return None
        folder.mkdir()
        url = f"sqlite:///{folder / 'copy.db'}"
        with closing(open_database(url)) as empty, closing(LakeQuery(where, folder)) as query:
            metadata.create_all(empty.engine)
            with empty.engine.connect() as target:
                for fast in (*_FAST, "BEGIN"):
                    target.exec_driver_sql(fast)
                has_hours = _HistoryCopy(source, target, query, question, span).fill(where, state)
                target.exec_driver_sql("COMMIT")
        copy = stack.enter_context(closing(open_database(url)))
        if not has_hours:
            read_hours_of(copy.engine, source)
        opened.enter_context(stack.pop_all())
        return copy


class _HistoryCopy:
    """Fills an empty database from a store and a lake."""

    def __init__(
        self, source: Connection, target: Connection, query: LakeQuery, question: LakeQuestion, span: LakeSpan
    ) -> None:
        self._source = source
        self._query = query
        self._needs_prices = question.needs_prices
        self._span = span
        self._target = target
        self._statements: dict[Table, str] = {}
        scope = question.scope
        rows = source.execute(select(segment)).all()
        models = frozenset(row.gpu for row in rows)
        families = {row.gpu: row.gpu_family for row in rows}
        self._all_segments = rows
        self._segments = [row for row in rows if row.gpu_count > 0 and scope.has_gpu(row.gpu, row.gpu_family, models)]
        self._numbers: dict[Any, int] = {
            (row.provider, row.gpu, row.gpu_count, row.spot): row.id for row in self._segments
        }
        self._scopes = [
            polled
            for polled in known_scopes(source)
            if not polled[1]
            or scope.has_gpu(polled[1], families.get(polled[1]) or catalog().resolve(polled[1]).family, models)
        ]
        self._places: dict[tuple[str, str], int] = {}
        self._ranks: dict[tuple[int, str], int] = {}  # segment and machine → id of the series

    def fill(self, lake: LakePlace, state: LakeState) -> bool:
        """Copy what is asked; return whether the hourly prices are in it: those of a store that has all are not."""
        parts = lake_parts(self._source, lake.url)
        kept_s = self._span.kept_from_s
        intervals = self._parts(parts, "intervals", kept_s + 1) if self._needs_prices else []
        self._insert(segment, map(tuple, self._all_segments))
        self._copy_places()
        self._copy_series(intervals)
        self._copy_intervals(intervals)
        has_hours = self._copy_hours(self._parts(parts, "hourly", self._span.until_s))
        self._copy_polls(self._parts(parts, "polls", self._span.kept_day * DAY_S))
        old = self._source.execute(select(history_state)).one()._asdict()
        packed_to = max(old["packed_to_day"] or 0, self._span.kept_day)
        kept_from_s = state.complete_from_s if self._needs_prices else kept_s
        new = old | {"kept_from_s": kept_from_s, "packed_to_day": packed_to}
        self._insert(history_state, [_cells(history_state, new)])
        return has_hours

    def _parts(self, parts: Iterable[LakePart], dataset: str, before_s: int) -> list[LakePart]:
        span = self._span
        return [
            part for part in parts if part.dataset == dataset and part.until_s > span.since_s and part.from_s < before_s
        ]

    def _copy_places(self) -> None:
        rows = self._source.execute(select(place)).all()
        self._places = {(row.region, row.country): row.id for row in rows}
        self._insert(place, map(tuple, rows))

    def _place_id(self, region: str, country: str) -> int:
        if (region, country) not in self._places:
            number = self._places[region, country] = 1 + max(self._places.values(), default=0)
            self._insert(place, [(number, region, country)])
        return self._places[region, country]

    def _copy_series(self, parts: list[LakePart]) -> None:
        """The ids are ranks: a series that the store dropped and recorded again keeps its first place."""
        known: dict[tuple[int, str], dict[str, Any]] = {}
        for of_segment in self._segments:
            for row in self._source.execute(_SERIES, {"segment": of_segment.id}):
                known[row.segment_id, row.machine_id] = row._asdict()
        stored = set(known)
        columns = (
            "source, gpu, gpu_count, spot, machine_id, min(series_id), max(epoch_ms(ended_utc)) AS newest_ms, "
            + _LAST_FACTS
        )
        newest: dict[tuple[int, str], int] = {}
        for name, gpu, count, spot, machine, number, ended, *facts in self._lake_rows(
            parts, "ended_utc <= make_timestamp($kept_us)", columns, "GROUP BY source, gpu, gpu_count, spot, machine_id"
        ):
            key = self._numbers[name, gpu, count, int(spot)], machine
            if key in known:
                known[key]["id"] = min(number, known[key]["id"])
            if key not in stored and ended >= newest.get(key, ended):
                newest[key] = ended
                known[key] = known.get(key, {"id": number, "on_offer": 0}) | self._facts(key, facts)
        order = sorted(known, key=lambda key: (known[key]["id"], key in stored))
        self._ranks = {key: rank for rank, key in enumerate(order, 1)}
        self._insert(series, (_cells(series, known[key] | {"id": rank}) for key, rank in self._ranks.items()))

    def _facts(self, key: tuple[int, str], cells: list[Any]) -> dict[str, Any]:
        offer_id, region, country, *facts = cells
        return {
            "segment_id": key[0],
            "machine_id": key[1],
            "offer_id": offer_id,
            "place_id": self._place_id(region, country),
            **_NOT_IN_LAKE,
            **dict(zip(_FACTS, facts, strict=True)),
        }

    def _copy_intervals(self, parts: list[LakePart]) -> None:
        for of_segment in self._segments:
            own_series = self._source.execute(_SERIES, {"segment": of_segment.id})
            rank_of = {row.id: self._ranks[row.segment_id, row.machine_id] for row in own_series}
            own_rows = self._stored(_INTERVALS, {"segment": of_segment.id})
            self._insert(price_interval, ((rank_of[one[0]], *one[1:]) for one in own_rows))
        where = (
            "ended_utc <= make_timestamp($kept_us) AND ended_utc >= make_timestamp($since_us)"
            " AND seen_from_utc < make_timestamp($until_us)"
        )
        # in the order of the table: most of the file need not be read
        columns = f"gpu, source, gpu_count, spot, machine_id, {selected('intervals', _INTERVAL_CELLS)}"
        ranks, numbers = self._ranks, self._numbers
        self._insert(
            price_interval,
            (
                (ranks[numbers[name, gpu, count, int(spot)], machine], *cells)
                for gpu, name, count, spot, machine, *cells in self._lake_rows(parts, where, columns)
            ),
        )

    def _copy_hours(self, parts: list[LakePart]) -> bool:
        """Copy those of the store and of the lake, unless the store has all."""
        where = "hour_utc >= make_timestamp($since_us) AND hour_utc < make_timestamp($until_us)"
        dropped = self._segments_without_hours(parts, where)
        if not dropped:
            return False
        first_hour = self._span.since_s // HOUR_S
        for of_segment in self._segments:
            self._insert(hourly, self._stored(_HOURLY, {"segment": of_segment.id, "first_hour": first_hour}))
        self._insert(
            hourly,
            (
                (self._segment_of(row), row[7] // HOUR_S, *row[8:])
                for row in self._lake_rows(parts, where)
                if self._segment_of(row) in dropped
            ),
        )
        return True

    def _segments_without_hours(self, parts: list[LakePart], where: str) -> set[int]:
        """Segments of which the lake has other hours than the store: hourly figures may be kept longer than prices."""
        end_s = min(max((part.until_s for part in parts), default=0), self._span.until_s)
        span = {"first_hour": -(-self._span.since_s // HOUR_S), "end_hour": -(-end_s // HOUR_S)}
        columns = "gpu, '', gpu_count, 0, spot, source, count(*)"
        counts: dict[int, int] = {}
        for row in self._lake_rows(parts, where, columns, "GROUP BY source, gpu, gpu_count, spot"):
            counts[self._segment_of(row)] = counts.get(self._segment_of(row), 0) + row[6]
        return {
            number
            for number, count in counts.items()
            if count != self._source.execute(_HOURS, span | {"segment": number}).scalar_one()
        }

    def _segment_of(self, row: tuple[Any, ...]) -> int:
        """The id of a row's segment; it begins with the columns that all datasets of prices share."""
        return self._numbers[row[5], row[0], row[2], int(row[4])]

    def _copy_polls(self, parts: list[LakePart]) -> None:
        """Those of the lake as packed days: whole days are in it, and in the store."""
        self._insert(poll_total, map(tuple, self._source.execute(select(poll_total))))
        packed_s = (packed_to_day(self._source) or 0) * DAY_S  # rows of packed days say nothing more
        for name, gpu, spot in self._scopes:
            scope = {"provider": name, "gpu": gpu, "spot": spot, "since_s": self._span.since_s}
            self._insert(poll_day, self._stored(_POLL_DAYS, scope))
            self._insert(poll, self._stored(_POLL_ROWS, scope | {"since_s": max(self._span.since_s, packed_s)}))
        self._insert(poll_day, self._polls_of_lake(parts, set(self._scopes)))

    def _polls_of_lake(self, parts: list[LakePart], wanted: set[CoverScope]) -> Iterator[tuple[Any, ...]]:
        where = "at_utc >= make_timestamp($since_us) AND at_utc < make_timestamp($kept_us)"
        first_us, end_us = (day * DAY_S * 1_000_000 for day in (self._span.since_s // DAY_S, self._span.kept_day))
        values = {"since_us": first_us, "kept_us": end_us, "gpus": sorted({gpu for _, gpu, _ in wanted})}
        condition = f"{where} AND gpu IN (SELECT unnest($gpus)) GROUP BY {_SCOPE_AND_DAY}"
        for start in range(0, len(parts), _POLL_FILES):
            rows = self._query.rows(parts[start : start + _POLL_FILES], condition, values, _DAYS_OF_POLLS)
            for name, gpu, spot, day, times, numbers, flags, bounds in rows:
                if (scope := (name, gpu, int(spot))) in wanted:
                    polls = PollColumns(array("q", times), array("q", numbers), bytearray(flags), array("q", bounds))
                    yield _cells(poll_day, packed_day(scope, day, polls))

    def _stored(self, query: Select[Any], values: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        """Rows of the store as the driver has them: SQLAlchemy's take twice as long, and are not needed here."""
        cursor: Any = self._source.execute(query, values).cursor
        rows: Iterable[tuple[Any, ...]] = iter(cursor)
        return rows

    def _lake_rows(
        self, parts: list[LakePart], where: str, columns: str | None = None, tail: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        gpus = sorted({gpu for _, gpu, *_ in self._numbers})
        condition = f"{where} AND gpu IN (SELECT unnest($gpus)) {tail}"
        return self._query.rows(parts, condition, self._values(where) | {"gpus": gpus}, columns)

    def _values(self, where: str) -> dict[str, int]:
        span = {"since_us": self._span.since_s, "until_us": self._span.until_s, "kept_us": self._span.kept_from_s}
        return {name: at_s * 1_000_000 for name, at_s in span.items() if f"${name}" in where}

    def _insert(self, table: Table, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows that are there already stay. By the driver: SQLAlchemy takes twice as long for each row."""
        if table not in self._statements:
            self._statements[table] = str(insert(table).prefix_with("OR IGNORE").compile(dialect=_SQLITE))
        remaining = iter(rows)
        while chunk := list(islice(remaining, _CHUNK_ROWS)):
            self._target.exec_driver_sql(self._statements[table], chunk)


def _cells(table: Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in table.columns)
