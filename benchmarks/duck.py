"""The peer of the history's questions: every observation as a row in DuckDB's own columnar file."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from gpuwatch.storage.sqlite_driver import sqlite_driver

_INTERVALS = """SELECT g.gpu, p.seen_from_s, coalesce(p.seen_to_s, 2147483647), p.machine_microusd_hour / g.gpu_count
 FROM price_interval p JOIN series s ON s.id = p.series_id JOIN segment g ON g.id = s.segment_id"""
_EXPAND = """CREATE TABLE price AS SELECT (a.at_s // 60)::INTEGER AS minute, i.gpu, i."each"::INTEGER AS "each"
 FROM read_csv('{folder}/polls.csv', header = false, names = ['at_s']) a
 JOIN read_csv('{folder}/intervals.csv', header = false, names = ['gpu', 'from_s', 'to_s', 'each']) i
 ON a.at_s >= i.from_s AND a.at_s <= i.to_s ORDER BY minute"""
_WEEK = """SELECT (minute // 60) % 168 AS h, quantile_disc("each", 0.5) FROM price
 WHERE gpu = ? AND minute >= ? GROUP BY h"""


def week_in_duckdb(history: Path, folder: Path, gpu: str, since_s: int) -> tuple[int, Callable[[], Any]] | None:
    """How many observations were loaded, and the question; None: DuckDB is not installed (`make bench` installs it)."""
    try:
        import duckdb
    except ImportError:
        return None
    with closing(sqlite_driver().connect(str(history))) as raw:
        _write(folder / "intervals.csv", raw.execute(_INTERVALS))
        _write(folder / "polls.csv", raw.execute("SELECT at_s FROM poll WHERE covers = 1"))
    database = duckdb.connect(str(folder / "peer.duckdb"))
    database.execute("SET threads = 2")
    database.execute(_EXPAND.format(folder=folder))
    rows = database.execute("SELECT count(*) FROM price").fetchall()[0][0]
    return rows, lambda: database.execute(_WEEK, [gpu, since_s // 60]).fetchall()


def _write(path: Path, rows: Any) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
