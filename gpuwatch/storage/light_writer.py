"""Records what a `check` saw, for a process of a second: on SQLite without SQLAlchemy, whose import takes longer.

The recording itself is the one of `history`; only the way to the rows, and how much is read first, are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuwatch.ports import Answer, Query
from gpuwatch.storage.answer_changes import clean, machine_of
from gpuwatch.storage.database_errors import sqlite_error
from gpuwatch.storage.executor import Executor, Row, SqliteExecutor
from gpuwatch.storage.open_prices import OPEN_ROWS, OpenPrices, load_covers, load_ids, load_open
from gpuwatch.storage.price_sources import split_by_source
from gpuwatch.storage.recording import (
    apply_to_memory,
    clock_stepped_back,
    seconds,
    write_answer,
)
from gpuwatch.storage.schema_head import HEAD
from gpuwatch.storage.sqlite_driver import configure_connection, sqlite_driver

LANE = "check"
_ONE_BY_ONE = 400  # up to so many offers are looked up one by one; more are read with all that is open
_OPEN_OF = OPEN_ROWS + " AND s.segment_id = ? AND s.machine_id = ?"


def record_answers(database_url: str, answers: Sequence[tuple[Query, Answer]], now: datetime) -> None:
    """Store all answers of one check, which was made now. A database that is missing is created.

    Raises:
        StoreNotReady: the schema is older; nothing was stored.
        StoreError: nothing, or not everything, was stored.
    """
    path = plain_sqlite_path(database_url)
    if path is None or not _record_light(path, answers, seconds(now)):
        _record_with_sqlalchemy(database_url, answers)


def plain_sqlite_path(url: str) -> Path | None:
    """The file of a plain SQLite URL; None: SQLAlchemy must read it."""
    for prefix in ("sqlite:///", "sqlite+pysqlite:///"):
        if url.startswith(prefix) and "?" not in url and "%" not in url and "#" not in url:
            return Path(url.removeprefix(prefix))
    return None


def _record_with_sqlalchemy(database_url: str, answers: Sequence[tuple[Query, Answer]]) -> None:
    """With SQLAlchemy: PostgreSQL, a new database, or a clock that stepped back; an older schema is an error."""
    from gpuwatch.storage.database import open_database  # noqa: PLC0415 - 250 ms, only where it must be
    from gpuwatch.storage.history_recorder import SqlHistoryRecorder  # noqa: PLC0415
    from gpuwatch.storage.migrate import create_or_require_head  # noqa: PLC0415

    database = open_database(database_url)
    try:
        create_or_require_head(database)
        history = SqlHistoryRecorder(database)
        for query, answer in answers:
            history.record(answer, lane=LANE, gpu=_gpu(query), spot=query.spot)
    finally:
        database.close()


def _record_light(path: Path, answers: Sequence[tuple[Query, Answer]], now_s: int) -> bool:
    """On the driver alone; False: this database needs the other way. Nothing was written then."""
    if not path.is_file():
        return False
    with connect_sqlite(path) as connection:
        executor = SqliteExecutor(connection)
        if revision_of(executor) != HEAD:
            return False
        connection.execute("BEGIN IMMEDIATE")
        prices = OpenPrices()
        prices.version, prices.next_hour = executor.rows("SELECT version, next_hour FROM history_state WHERE id = 1")[0]
        load_ids(executor, prices)
        load_covers(executor, prices)
        # a check ends nothing: a kind of price that this answer does not show may wait
        parts = [(query, part) for query, answer in answers for part in split_by_source(answer, lambda name: False)]
        for _, answer in parts:
            _load_affected(executor, prices, answer)
        if any(clock_stepped_back(prices, answer.provider, now_s) for _, answer in answers):
            connection.execute("ROLLBACK")
            return False
        for query, answer in parts:
            apply_to_memory(write_answer(executor, prices, answer, LANE, _gpu(query), query.spot), prices)
        connection.execute("COMMIT")
        return True


@contextmanager
def connect_sqlite(path: Path) -> Iterator[Any]:
    """A connection of the driver; what is not committed is rolled back, and the driver's errors become ours."""
    driver = sqlite_driver()
    try:
        connection = driver.connect(str(path))
        try:
            configure_connection(connection)
            yield connection
        finally:
            connection.close()
    except driver.Error as error:
        raise sqlite_error(error, str(path)) from error


def revision_of(executor: Executor) -> str | None:
    """The schema of a database; None: it has none."""
    if not executor.rows("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"):
        return None
    found = executor.rows("SELECT version_num FROM alembic_version")
    return str(found[0][0]) if found else None


def _load_affected(executor: Executor, prices: OpenPrices, answer: Answer) -> None:
    """Only what an answer shows can change: a check covers nothing."""
    if len(answer.offers) > _ONE_BY_ONE:
        load_open(executor.rows(OPEN_ROWS), prices)
        return
    load_open(_open_rows(executor, prices, answer), prices)


def _open_rows(executor: Executor, prices: OpenPrices, answer: Answer) -> Iterable[Row]:
    for offer in answer.offers:
        segment = prices.segments.get((answer.provider, clean(offer.gpu, 200), offer.gpu_count, int(offer.spot)))
        if segment is not None:
            yield from executor.rows(_OPEN_OF, (segment, machine_of(offer)))


def _gpu(query: Query) -> str:
    return query.gpus[0] if len(query.gpus) == 1 else ""
