"""Writes polls: their rows, their totals, and, once a UTC day is over, all of that day in packed form (`poll_day`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Select, bindparam, case, delete, func, insert, select, update

from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.domain.history.packed_polls import PackedPoll, PollColumns, pack_polls, poll_columns
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.storage.history.recording.open_prices import lock_history
from gpuwatch.storage.history.recording.recorded_polls import (
    LAST_S,
    known_scopes,
    packed_to_day,
    polls_of_day,
    read_polls,
)
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import dialect_insert, upsert
from gpuwatch.storage.setup.tables import history_state, poll, poll_day, poll_total

_ANSWERS = ("complete", "truncated")
_TOTAL_KEY = ("provider", "gpu", "spot", "lane")
PollRow = Mapping[str, Any]


def write_polls(connection: Connection, rows: Sequence[PollRow], packed_to: int | None) -> None:
    """Insert polls and count them. One of a packed day is added there, too.

    Args:
        packed_to: as `packed_to_day`, read in a transaction that has locked the history.
    """
    late: dict[tuple[CoverScope, int], list[PackedPoll]] = {}
    result = connection.execute(insert(poll), rows[0] if len(rows) == 1 else rows) if rows else None
    # an import's polls have no order within a second
    number = (result.inserted_primary_key or (0,))[0] if result is not None and len(rows) == 1 else 0
    for row in rows:
        day = row["at_s"] // DAY_S
        if packed_to is not None and day < packed_to:
            scope = row["provider"], row["gpu"], row["spot"]
            late.setdefault((scope, day), []).append(_packed_poll(number, row))
    for (scope, day), polls in late.items():
        _add_to_day(connection, scope, day, polls)
    _count(connection, rows)


@cache
def _day_rows() -> Select[Any]:
    names = ("gpu", "spot", "at_s", "id", "completeness", "covers", "complete_to_microusd", "lane")
    is_of_day = poll.c.at_s >= bindparam("since_s"), poll.c.at_s < bindparam("until_s")
    return select(*(poll.c[name] for name in names)).where(poll.c.provider == bindparam("provider"), *is_of_day)


def _packed_poll(number: int, row: PollRow) -> PackedPoll:
    bound = row.get("complete_to_microusd")
    return PackedPoll(row["at_s"], number, row["completeness"], bool(row["covers"]), bound, row["lane"])


def _add_to_day(connection: Connection, scope: CoverScope, day: int, polls: Iterable[PackedPoll]) -> None:
    key = dict(zip(("provider", "gpu", "spot"), scope, strict=True)) | {"day": day}
    stored = connection.execute(select(poll_day.c.polls).filter_by(**key)).scalar()
    upsert(
        connection, poll_day, poll_day_row(scope, day, [*(polls_of_day(scope, day, stored) if stored else ()), *polls])
    )


def poll_day_row(scope: CoverScope, day: int, polls: Iterable[PackedPoll]) -> dict[str, Any]:
    """Return the row of `poll_day` for all polls of a scope on a day."""
    return packed_day(scope, day, poll_columns(polls))


def packed_day(scope: CoverScope, day: int, columns: PollColumns) -> dict[str, Any]:
    """The same of columns."""
    covering = columns.covering().at_s
    key = dict(zip(("provider", "gpu", "spot"), scope, strict=True)) | {"day": day}
    return key | {"covered_s": covering[-1] if covering else None, "polls": pack_polls(columns, day)}


def pack_next_day(connection: Connection, at_s: int) -> int | None:
    """Pack the polls of the first day that is over and not packed yet; return the first day that is not.

    The history must be locked. None: there is no such day.
    """
    providers = connection.execute(select(poll_total.c.provider).distinct()).scalars().all()
    since_s = (packed_to_day(connection) or 0) * DAY_S
    next_row = select(func.min(poll.c.at_s)).where(
        poll.c.provider == bindparam("provider"), poll.c.at_s >= bindparam("since_s")
    )
    next_rows = [connection.execute(next_row, {"provider": one, "since_s": since_s}).scalar() for one in providers]
    day: int | None = min((row_s // DAY_S for row_s in next_rows if row_s is not None), default=None)
    if day is None or day >= at_s // DAY_S:
        return None
    for provider in providers:
        polls: dict[CoverScope, list[PackedPoll]] = {}
        span = {"provider": provider, "since_s": day * DAY_S, "until_s": (day + 1) * DAY_S}
        for gpu, spot, poll_s, number, completeness, covers, bound, lane in connection.execute(_day_rows(), span):
            one = PackedPoll(poll_s, number, completeness, bool(covers), bound, lane)
            polls.setdefault((provider, gpu, spot), []).append(one)
        upsert(connection, poll_day, [poll_day_row(scope, day, of_scope) for scope, of_scope in polls.items()])
    new_version = history_state.c.version + 1  # other recorders must know the day
    connection.execute(update(history_state).values(packed_to_day=day + 1, version=new_version))
    return day + 1


def pack_days(database: Database, at_s: int) -> None:
    """Pack the polls of all days that are over at a time, each day in a transaction of its own. Raises StoreError."""
    while True:
        with database.write() as connection:
            lock_history(connection)
            if pack_next_day(connection, at_s) is None:
                return


def move_polls_back(connection: Connection, provider: str, at_s: int) -> None:
    """Move the polls of a provider after a time to that time: they were recorded by a clock that was wrong."""
    day = at_s // DAY_S
    if day < (packed_to_day(connection) or 0):
        scopes = [scope for scope in known_scopes(connection) if scope[0] == provider]
        later = read_polls(connection, scopes, day * DAY_S, LAST_S)
        connection.execute(delete(poll_day).where(poll_day.c.provider == provider, poll_day.c.day >= day))
        moved = {scope: [one._replace(at_s=min(one.at_s, at_s)) for one in polls] for scope, polls in later.items()}
        upsert(connection, poll_day, [poll_day_row(scope, day, polls) for scope, polls in moved.items()])
    connection.execute(update(poll).where(poll.c.provider == provider, poll.c.at_s > at_s).values(at_s=at_s))
    for newest in (poll_total.c.answered_s, poll_total.c.complete_s):
        connection.execute(
            update(poll_total).where(poll_total.c.provider == provider, newest > at_s).values({newest: at_s})
        )


def _count(connection: Connection, rows: Iterable[PollRow]) -> None:
    totals: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in _TOTAL_KEY)
        total = totals.get(key)
        if total is None:
            total = totals[key] = dict(zip(_TOTAL_KEY, key, strict=True)) | {"searches": 0, "rows": 0}
            total |= dict.fromkeys(("answered_s", "answered_rows", "answered_skipped", "complete_s", "complete_rows"))
        total["searches"] += 1
        total["rows"] += row["rows"]
        if row["completeness"] in _ANSWERS and row["at_s"] >= (total["answered_s"] or 0):
            total |= {"answered_s": row["at_s"], "answered_rows": row["rows"], "answered_skipped": row["skipped"]}
        if row["completeness"] == "complete" and row["at_s"] >= (total["complete_s"] or 0):
            total |= {"complete_s": row["at_s"], "complete_rows": row["rows"]}
    if totals:
        connection.execute(_add_totals(connection.dialect.name), list(totals.values()))


@cache
def _add_totals(dialect: str) -> Insert:
    statement = dialect_insert(dialect)(poll_total)
    new = statement.excluded
    changed: dict[str, Any] = {name: poll_total.c[name] + new[name] for name in ("searches", "rows")}
    for newest, names in (
        ("answered_s", ("answered_s", "answered_rows", "answered_skipped")),
        ("complete_s", ("complete_s", "complete_rows")),
    ):
        is_newer = new[newest] >= func.coalesce(poll_total.c[newest], -1)  # NULL, hence not newer, without an answer
        changed |= {name: case((is_newer, new[name]), else_=poll_total.c[name]) for name in names}
    on_conflict: Insert = statement.on_conflict_do_update(index_elements=_TOTAL_KEY, set_=changed)
    return on_conflict
