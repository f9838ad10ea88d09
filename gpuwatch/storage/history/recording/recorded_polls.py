"""Reads recorded polls: packed ones of the days that are over (`poll_day`), then the rows of later days.

Every question about past polls goes through here, so that it has the same answer after the rows are deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, and_, bindparam, func, select

from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.domain.history.packed_polls import PackedPoll, PollColumns, packed_columns, poll_columns, unpack_polls
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.errors import StoreError
from gpuwatch.storage.setup.store_stats import POLL_ROWS_SPAN
from gpuwatch.storage.setup.tables import IS_COVERING, history_state, poll, poll_day, poll_total

if TYPE_CHECKING:
    from gpuwatch.domain.history.poll_timeline import Ints

_SCOPES = select(poll_total.c.provider, poll_total.c.gpu, poll_total.c.spot).distinct()
_PACKED_TO = select(history_state.c.packed_to_day)
_of_scope = _SCOPES.subquery()
_NEWEST_ROW = (
    select(poll.c.at_s)
    .where(IS_COVERING, poll.c.provider == _of_scope.c.provider, poll.c.gpu == _of_scope.c.gpu)
    .where(poll.c.spot == _of_scope.c.spot, poll.c.at_s <= bindparam("until_s"))
    .order_by(poll.c.at_s.desc())
    .limit(1)
    .scalar_subquery()
)
_NEWEST_DAY = (
    select(poll_day.c.covered_s)
    .where(poll_day.c.provider == _of_scope.c.provider, poll_day.c.gpu == _of_scope.c.gpu)
    .where(poll_day.c.spot == _of_scope.c.spot, poll_day.c.day < bindparam("day"), poll_day.c.covered_s.is_not(None))
    .order_by(poll_day.c.day.desc())
    .limit(1)
    .scalar_subquery()
)
_NEWEST = select(_of_scope, func.coalesce(_NEWEST_ROW, -1), func.coalesce(_NEWEST_DAY, -1))
LAST_S = 2**31 - 1


# Built when they are first needed: most processes record, and read no polls.
@cache
def _rows(*, covering: bool) -> Select[Any]:
    names = ("gpu", "spot", "at_s", "id", "completeness", "covers", "complete_to_microusd", "lane")
    query = select(*(poll.c[name] for name in names)).where(
        poll.c.provider == bindparam("provider"),
        poll.c.at_s >= bindparam("since_s"),
        poll.c.at_s < bindparam("until_s"),
        poll.c.gpu.in_(bindparam("gpus", expanding=True)),
    )
    return query.where(IS_COVERING) if covering else query


@cache
def _days(*, covering: bool) -> Select[Any]:
    query = (
        select(poll_day.c.day, poll_day.c.polls)
        .where(poll_day.c.provider == bindparam("provider"), poll_day.c.gpu == bindparam("gpu"))
        .where(poll_day.c.spot == bindparam("spot"))
        .where(poll_day.c.day >= bindparam("first_day"), poll_day.c.day < bindparam("end_day"))
        .order_by(poll_day.c.day)
    )
    return query.where(poll_day.c.covered_s.is_not(None)) if covering else query


@cache
def _complete_rows() -> Select[Any]:
    return select(poll.c.at_s).where(
        IS_COVERING,
        poll.c.provider == bindparam("provider"),
        poll.c.gpu == bindparam("gpu"),
        poll.c.spot == bindparam("spot"),
        poll.c.complete_to_microusd.is_(None),
        poll.c.at_s > bindparam("after_s"),
        poll.c.at_s < bindparam("before_s"),
    )


@cache
def _first_days() -> Select[Any]:
    first_day = (
        select(poll_day.c.day)
        .where(poll_day.c.provider == _of_scope.c.provider, poll_day.c.gpu == _of_scope.c.gpu)
        .where(poll_day.c.spot == _of_scope.c.spot)
        .order_by(poll_day.c.day)
        .limit(1)
        .scalar_subquery()
    )
    return select(_of_scope, first_day)


@cache
def _polls_of_one_day() -> Select[Any]:
    same_scope = (poll_day.c[name] == _of_scope.c[name] for name in ("provider", "gpu", "spot"))
    return select(_of_scope, poll_day.c.polls).join(poll_day, and_(*same_scope, poll_day.c.day == bindparam("day")))


def known_scopes(connection: Connection) -> list[CoverScope]:
    """Return every scope that was ever polled."""
    return [(provider, gpu, spot) for provider, gpu, spot in connection.execute(_SCOPES)]


def packed_to_day(connection: Connection) -> int | None:
    """Return the first day whose polls are rows; those of all earlier days are packed. None: nothing is packed."""
    return connection.execute(_PACKED_TO).scalar()


def read_polls(
    connection: Connection, scopes: Iterable[CoverScope], since_s: int, until_s: int, *, covering: bool = False
) -> dict[CoverScope, PollColumns]:
    """Return the polls in [since_s, until_s) of each scope that has any.

    Args:
        covering: only those that cover.
    """
    wanted, until_s = set(scopes), min(until_s, LAST_S)
    packed_to_s = (packed_to_day(connection) or 0) * DAY_S
    found: dict[CoverScope, PollColumns] = {}
    if since_s < packed_to_s:
        for scope in wanted:
            if len(polls := _packed(connection, scope, (since_s, min(until_s, packed_to_s)), covering)):
                found[scope] = polls
    if packed_to_s < until_s:
        rows = _rows(covering=covering)
        for scope, polls in _recent(connection, rows, wanted, max(since_s, packed_to_s), until_s).items():
            if scope in found:
                found[scope].extend(polls)
            else:
                found[scope] = polls
    return found


def read_covering_times(
    connection: Connection, scopes: Iterable[CoverScope], since_s: int, until_s: int
) -> dict[CoverScope, Ints]:
    """Return when each scope was covered in [since_s, until_s), in order: the times of `read_polls` as arrays."""
    import numpy as np  # noqa: PLC0415 a recorder needs no arrays

    from gpuwatch.domain.history.poll_timeline import covering_times  # noqa: PLC0415

    wanted, until_s = set(scopes), min(until_s, LAST_S)
    packed_to_s = (packed_to_day(connection) or 0) * DAY_S
    parts: dict[CoverScope, list[Ints]] = {}
    for scope in wanted if since_s < packed_to_s else ():
        rows = _packed_rows(connection, scope, (since_s, min(until_s, packed_to_s)), covering=True)
        parts[scope] = [covering_times([(day, _columns_of_day(scope, day, packed)) for day, packed in rows])]
    if packed_to_s < until_s:
        recent = _recent(connection, _rows(covering=True), wanted, max(since_s, packed_to_s), until_s)
        for scope, polls in recent.items():
            parts.setdefault(scope, []).append(np.frombuffer(polls.at_s, np.int64))
    times = {scope: np.concatenate(of_scope) for scope, of_scope in parts.items()}
    found = {scope: one[slice(*np.searchsorted(one, (since_s, until_s)))] for scope, one in times.items()}
    return {scope: one for scope, one in found.items() if len(one)}


def polls_of_day(scope: CoverScope, day: int, packed: bytes) -> PollColumns:
    """Return the polls of a row of `poll_day`. Raises StoreError: it is damaged."""
    try:
        return unpack_polls(packed, day)
    except ValueError as error:
        raise _damaged(scope, day, error) from error


def _columns_of_day(scope: CoverScope, day: int, packed: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    try:
        return packed_columns(packed)
    except ValueError as error:
        raise _damaged(scope, day, error) from error


def _damaged(scope: CoverScope, day: int, error: ValueError) -> StoreError:
    provider, gpu, _ = scope
    date = datetime.fromtimestamp(day * DAY_S, UTC).date()
    return StoreError(
        f"the polls of {provider} {gpu or '(all models)'} on {date} are damaged in the database ({error});"
        " restore it from `gpuwatch store backup`"
    )


def _packed(connection: Connection, scope: CoverScope, span: tuple[int, int], covering: bool) -> PollColumns:
    polls = poll_columns()
    for day, packed in _packed_rows(connection, scope, span, covering=covering):
        of_day = polls_of_day(scope, day, packed).between(*span)
        polls.extend(of_day.covering() if covering else of_day)
    return polls


def _packed_rows(
    connection: Connection, scope: CoverScope, span: tuple[int, int], *, covering: bool
) -> list[tuple[int, bytes]]:
    """Return the days of a span with their polls; a year of them takes a tenth of a megabyte."""
    parameters = dict(zip(("provider", "gpu", "spot"), scope, strict=True))
    days = {"first_day": span[0] // DAY_S, "end_day": -(-span[1] // DAY_S)}
    rows = connection.execute(_days(covering=covering), parameters | days)
    return [(day, packed) for day, packed in rows.all()]


def _recent(
    connection: Connection, query: Select[Any],
    scopes: Collection[CoverScope], since_s: int, until_s: int,
) -> Mapping[CoverScope, PollColumns]:  # fmt: skip
    gpus: dict[str, set[str]] = {}
    for provider, gpu, _ in scopes:
        gpus.setdefault(provider, set()).add(gpu)
    found: dict[CoverScope, list[PackedPoll]] = {}
    for provider, names in gpus.items():
        span = {"provider": provider, "gpus": list(names), "since_s": since_s, "until_s": until_s}
        for gpu, spot, at_s, number, completeness, covers, bound, lane in connection.execute(query, span):
            if (scope := (provider, gpu, spot)) in scopes:
                one = PackedPoll(at_s, number, completeness, bool(covers), bound, lane)
                found.setdefault(scope, []).append(one)
    return {scope: poll_columns(polls) for scope, polls in found.items()}


def newest_covers(connection: Connection, until_s: int = LAST_S) -> dict[CoverScope, int]:
    """Return when each scope was last covered, until then."""
    day = until_s // DAY_S
    newest = {
        (provider, gpu, spot): max(of_row, of_day)
        for provider, gpu, spot, of_row, of_day in connection.execute(_NEWEST, {"until_s": until_s, "day": day})
        if max(of_row, of_day) >= 0
    }
    if day < (packed_to_day(connection) or 0):  # a part of a packed day
        today = read_polls(connection, known_scopes(connection), day * DAY_S, until_s + 1, covering=True)
        newest |= {scope: polls.at_s[-1] for scope, polls in today.items()}
    return newest


def complete_poll_before(connection: Connection, scopes: Iterable[CoverScope], at_s: int) -> int | None:
    """Return the last poll before a time that shows every offer of one of these scopes, or None."""
    query = _complete_rows().order_by(poll.c.at_s.desc()).limit(1)
    days = _days(covering=True).order_by(None).order_by(poll_day.c.day.desc())
    found = (_complete_poll(connection, scope, (-1, at_s), (query, days), -1) for scope in scopes)
    return max((one for one in found if one is not None), default=None)


def complete_poll_after(connection: Connection, scopes: Iterable[CoverScope], at_s: int) -> int | None:
    """Return the first poll after a time that shows every offer of one of these scopes, or None."""
    query = _complete_rows().order_by(poll.c.at_s).limit(1)
    found = (_complete_poll(connection, scope, (at_s, LAST_S), (query, _days(covering=True)), 0) for scope in scopes)
    return min((one for one in found if one is not None), default=None)


def _complete_poll(
    connection: Connection,
    scope: CoverScope,
    between: tuple[int, int],
    queries: tuple[Select[Any], Select[Any]],
    place: int,
) -> int | None:
    """Return the last (place -1) or the first (0) complete poll between two times, without these."""
    after_s, before_s = between
    key = dict(zip(("provider", "gpu", "spot"), scope, strict=True))
    packed_to = packed_to_day(connection) or 0
    span = {"after_s": max(after_s, packed_to * DAY_S - 1), "before_s": before_s}
    of_row: int | None = connection.execute(queries[0], key | span).scalar()
    if of_row is not None and place == -1:
        return of_row
    days = {"first_day": (after_s + 1) // DAY_S, "end_day": min(packed_to, -(-before_s // DAY_S))}
    with connection.execute(queries[1], key | days) as packed_days:
        for day, packed in packed_days:
            polls = polls_of_day(scope, day, packed).between(after_s + 1, before_s).covering()
            if complete := [at_s for at_s, bound in zip(polls.at_s, polls.bounds, strict=True) if bound < 0]:
                return complete[place]
    return of_row


def first_poll_s(connection: Connection) -> int | None:
    """Return the time of the first stored poll, or None."""
    firsts = [connection.execute(POLL_ROWS_SPAN).one()[0]]
    days = {
        (provider, gpu, spot): day for provider, gpu, spot, day in connection.execute(_first_days()) if day is not None
    }
    if days and (first := min(days.values())) < (packed_to_day(connection) or 0):
        for provider, gpu, spot, packed in connection.execute(_polls_of_one_day(), {"day": first}):
            firsts += polls_of_day((provider, gpu, spot), first, packed).at_s[:1]
    return min((at_s for at_s in firsts if at_s is not None), default=None)
