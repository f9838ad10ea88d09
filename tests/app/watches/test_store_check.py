"""What a check stores: the same rows as the daemon, from a process that knows only what is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from gpuwatch.app.watches.check import MarketCheck, store_check
from gpuwatch.domain.market.offer import Verification
from gpuwatch.engine.watches.one_poll import ProviderCheck, ProviderReport
from gpuwatch.errors import StoreError
from gpuwatch.ports import Answer, Query
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.history.recording.history_recorder import RecordedCounts, SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.migrate import revision
from gpuwatch.storage.setup.tables import hourly
from tests.builders import changed
from tests.storage.stored_answers import NOON, an_answer, an_offer, machines, on_demand, price_track
from tests.web.served import settings_in

Store = Callable[..., None]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Stores the answers of one check in a database."""

    def store(url: str, *answers: Answer) -> None:
        report = ProviderReport(provider="vastai", ok=True, offers=1, skipped={}, elapsed_s=0.1)
        asked = [(Query(gpus=("H100 SXM",)), answer) for answer in answers]
        part = ProviderCheck(report=report, answers=asked, matches={})
        settings = settings_in(tmp_path, has_store=False, database_url=url)
        store_check(settings, MarketCheck(at=answers[-1].observed_at, providers=[part], matches={}))

    return store


def test_a_check_is_recorded_like_a_hunt(database: Database, database_url: str, store: Store) -> None:
    SqlHistoryRecorder(database).record(an_answer(an_offer("a"), an_offer("b")), lane="sweep")
    store(database_url, an_answer(an_offer("a", 2.0), an_offer("c"), after_s=60, rows=5))
    now = market_at(database, NOON + timedelta(seconds=61))
    assert machines(now) == {"a": 2_000_000, "b": 3_000_000, "c": 3_000_000}
    assert SqlHistoryRecorder(database).rows_used("vastai", NOON) == 7


def test_the_daemon_goes_on_where_a_check_left_off(database: Database, database_url: str, store: Store) -> None:
    daemon = SqlHistoryRecorder(database)
    daemon.record(an_answer(*(an_offer(f"m{number}", 1.0) for number in range(500))), lane="sweep")
    after = [an_offer(f"m{number}", 1.0 if number else 2.0) for number in range(500)]
    store(database_url, an_answer(*after, after_s=30))
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
def test_a_check_stores_what_the_daemon_would_store(
    database: Database, database_url: str, store: Store, first: dict[str, Any]
) -> None:
    """The daemon remembers the last quotes; a check has only rows. A machine may also appear twice, or oddly named."""
    names = [f"m{number}" for number in range(60)] + ["None", "1 2", "a\n1", "ü", "x" * 70]
    twins = [an_offer("m9", 2.0), an_offer("m9", 1.5)]
    changes = dict(enumerate(_CHANGES))
    before = [*(changed(an_offer(name, 1.0), **first) for name in names), *twins]
    after = [changed(an_offer(name, 1.0), **(first | changes.get(place, {}))) for place, name in enumerate(names)]
    stored = []
    for number, by in enumerate(("check", "daemon")):
        start_s = number * 1000
        daemon = SqlHistoryRecorder(database)
        daemon.record(an_answer(after_s=start_s), lane="sweep")  # ends what the other one stored
        daemon.record(an_answer(*before, after_s=start_s + 10), lane="sweep")
        answer = an_answer(*after, *twins, after_s=start_s + 40)
        if by == "check":
            store(database_url, answer)
        else:
            daemon.record(answer, lane="check")
        with database.read() as reader:
            rows = reader.exec_driver_sql(_STORED).fetchall()
        since_s = int(NOON.timestamp()) + start_s
        stored.append([
            (*row[:5], row[5] - since_s, row[6] and row[6] - since_s, *row[7:]) for row in rows if row[5] > since_s
        ])  # fmt: skip
    assert stored[0] == stored[1]
    assert len(stored[0]) > len(names)


def test_a_new_database_is_made(empty_database_url: str, store: Store) -> None:
    store(empty_database_url, an_answer(an_offer()))
    database = open_database(empty_database_url)
    assert machines(market_at(database, NOON)) == {"m1": 3_000_000}
    assert revision(database)
    database.close()


def test_several_answers_of_one_check_are_all_kept(database: Database, database_url: str, store: Store) -> None:
    store(database_url, an_answer(an_offer("a")), an_answer(an_offer("a", 2.0), an_offer("b"), after_s=1))
    assert machines(market_at(database, NOON + timedelta(seconds=2))) == {"a": 2_000_000, "b": 3_000_000}


def test_hours_are_aggregated_without_a_daemon(database: Database, database_url: str, store: Store) -> None:
    for hour in range(3):
        store(database_url, an_answer(an_offer("a"), after_s=hour * 3600))
    now = NOON + timedelta(hours=2)
    assert [point.min_microusd for point in price_track(database, on_demand("H100 SXM"), NOON, now)] == [3_000_000] * 2
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(hourly)).scalar_one() > 0


def test_an_answer_without_a_search_is_not_stored(database: Database, database_url: str, store: Store) -> None:
    store(database_url, an_answer(an_offer(), searches=0))
    assert not market_at(database, NOON)


def test_a_clock_that_stepped_back_is_followed(database: Database, database_url: str, store: Store) -> None:
    SqlHistoryRecorder(database).record(an_answer(an_offer("a"), after_s=5000), lane="sweep")
    store(database_url, an_answer(an_offer("a", 2.0)))
    assert machines(market_at(database, NOON + timedelta(seconds=1))) == {"a": 2_000_000}


def test_a_file_that_is_no_database_is_reported(tmp_path: Path, store: Store) -> None:
    (tmp_path / "x.db").write_bytes(b"dear diary, " * 1000)
    with pytest.raises(StoreError, match="is not a database"):
        store(f"sqlite:///{tmp_path / 'x.db'}", an_answer(an_offer()))
