"""The fast path of `check`: the same rows as the history's, without SQLAlchemy."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.market.offer import Verification
from gpuwatch.errors import StoreError
from gpuwatch.ports import Answer, Query
from gpuwatch.storage.database import Database, open_database
from gpuwatch.storage.history_recorder import RecordedCounts, SqlHistoryRecorder
from gpuwatch.storage.light_writer import record_answers
from gpuwatch.storage.market_snapshot import market_at
from gpuwatch.storage.migrate import revision, upgrade
from tests.builders import changed
from tests.storage.market import NOON, an_answer, an_offer, machines
from tests.upgraded_store import open_upgraded


def record(url: str, *answers: Answer) -> None:
    record_answers(url, [(Query(gpus=("H100 SXM",)), answer) for answer in answers], answers[-1].observed_at)


def test_a_check_is_recorded_like_a_hunt(database: Database, database_url: str) -> None:
    SqlHistoryRecorder(database).record(an_answer(an_offer("a"), an_offer("b")), lane="sweep")
    record(database_url, an_answer(an_offer("a", 2.0), an_offer("c"), after_s=60, rows=5))
    now = market_at(database, NOON + timedelta(seconds=61))
    assert machines(now.offers) == {"a": 2_000_000, "b": 3_000_000, "c": 3_000_000}
    assert SqlHistoryRecorder(database).rows_used("vastai", NOON) == 7


@pytest.mark.parametrize("offers", [3, 500])  # looked up individually, or all at once
def test_the_daemon_goes_on_where_a_check_left_off(database: Database, database_url: str, offers: int) -> None:
    daemon = SqlHistoryRecorder(database)
    before = [an_offer(f"m{number}", 1.0) for number in range(offers)]
    daemon.record(an_answer(*before), lane="sweep")
    after = [an_offer(f"m{number}", 1.0 if number else 2.0) for number in range(offers)]
    record(database_url, an_answer(*after, after_s=30))
    assert daemon.record(an_answer(*after, after_s=60), lane="sweep") == RecordedCounts()


_STORED = """SELECT g.gpu, g.gpu_count, g.spot, s.machine_id, s.verification, p.seen_from_s, p.seen_to_s,
 p.machine_microusd_hour, p.disk_microusd_gb_month
 FROM price_interval p JOIN series s ON s.id = p.series_id JOIN segment g ON g.id = s.segment_id
 ORDER BY 1, 2, 3, 4, 6"""
_CHANGES: list[dict[str, Any]] = [
    {"quoted_usd_hour": 2.0},
    *({"quoted_usd_hour": 1.0 + step * 1e-7} for step in range(-12, 13)),
    *({"verification": state} for state in (None, *Verification)),
    *({"disk_usd_gb_month": rate} for rate in (None, 0.0, 0.2, 0.2000004, 0.3)),
    *({"quoted_disk_gb": size} for size in (0.0, 8.0, 8.1, 100.0)),
    {"gpu_count": 2}, {"gpu": "H200 SXM"}, {"gpu": "new"}, {"machine_id": None}, {"machine_id": "None"},
]  # fmt: skip


@pytest.mark.parametrize("first", [{}, *_CHANGES[::5]], ids=str)
def test_a_big_answer_is_stored_as_the_daemon_stores_it(tmp_path: Path, first: dict[str, Any]) -> None:
    """It recognises unchanged offers by lines of text. A machine may also appear twice, or with a strange name."""
    names = [f"m{number}" for number in range(410)] + ["None", "1 2", "a\n1 1998333 150000  m0", "ü", "x" * 70]
    twins = [an_offer("m9", 2.0), an_offer("m9", 1.5)]
    before = [*(changed(an_offer(name, 1.0), **first) for name in names), *twins]
    changes = dict(enumerate(_CHANGES))
    after = [changed(an_offer(name, 1.0), **(first | changes.get(place, {}))) for place, name in enumerate(names)]
    stored = []
    for name in ("check", "daemon"):
        url = f"sqlite:///{tmp_path / name}.db"
        with closing(open_upgraded(url)) as database:
            SqlHistoryRecorder(database).record(an_answer(*before), lane="sweep")
            if name == "check":
                record(url, an_answer(*after, *twins, after_s=30))
            else:
                SqlHistoryRecorder(database).record(an_answer(*after, *twins, after_s=30), lane="check")
            with database.read() as reader:
                stored.append(reader.exec_driver_sql(_STORED).fetchall())
    assert stored[0] == stored[1]


def test_a_new_database_is_made(empty_database_url: str) -> None:
    record(empty_database_url, an_answer(an_offer()))
    database = open_database(empty_database_url)
    assert machines(market_at(database, NOON).offers) == {"m1": 3_000_000}
    assert revision(database)
    database.close()


def test_several_answers_of_one_check_are_all_kept(sqlite_url: str, sqlite_database: Database) -> None:
    record(sqlite_url, an_answer(an_offer("a")), an_answer(an_offer("a", 2.0), an_offer("b"), after_s=1))
    assert machines(market_at(sqlite_database, NOON + timedelta(seconds=2)).offers) == {"a": 2_000_000, "b": 3_000_000}


def test_a_clock_that_stepped_back_is_left_to_the_slow_way(sqlite_url: str, sqlite_database: Database) -> None:
    SqlHistoryRecorder(sqlite_database).record(an_answer(an_offer("a"), after_s=5000), lane="sweep")
    record(sqlite_url, an_answer(an_offer("a", 2.0)))
    assert machines(market_at(sqlite_database, NOON + timedelta(seconds=1)).offers) == {"a": 2_000_000}


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"dear diary, " * 1000)
    with pytest.raises(StoreError, match="is not a database"):
        record(f"sqlite:///{tmp_path / 'x.db'}", an_answer(an_offer()))


def test_nothing_heavy_is_imported(sqlite_url: str) -> None:
    code = (
        "import sys; from tests.storage.market import an_answer, an_offer; from gpuwatch.ports import Query\n"
        "from gpuwatch.storage.light_writer import record_answers\n"
        f"answer = an_answer(an_offer()); record_answers('{sqlite_url}', [(Query(), answer)], answer.observed_at)\n"
        "print([name for name in ('sqlalchemy', 'alembic', 'pydantic', 'rich', 'apscheduler') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


def test_the_fixture_is_at_the_newest_schema(sqlite_database: Database) -> None:
    assert upgrade(sqlite_database) == []
