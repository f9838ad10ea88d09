"""Polls read from their packed days and from their rows: every answer stays what it was before the rows went."""

from __future__ import annotations

import random
import zlib
from datetime import UTC, timedelta
from typing import Any

import msgspec
import pytest
from alembic import command
from sqlalchemy import delete, func, select, update

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.packed_polls import PackedPoll, poll_columns
from gpuwatch.domain.history.price_series import PeriodLength
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.errors import StoreError
from gpuwatch.ports import Completeness
from gpuwatch.storage.history.queries.history_queries import first_poll_at, newest_prices, read_price_periods
from gpuwatch.storage.history.queries.market_overview import read_gpu_price_history
from gpuwatch.storage.history.queries.poll_queries import last_polls, last_polls_by_lane, last_sweeps, newest_covers
from gpuwatch.storage.history.queries.stored_prices import read_covering_polls, read_market_history
from gpuwatch.storage.history.recording import recorded_polls
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.poll_writer import pack_days
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.migrate import alembic_config
from gpuwatch.storage.setup.store_stats import newest_complete_polls, searches_recorded
from gpuwatch.storage.setup.tables import history_state, poll, poll_day, poll_total
from tests.storage.stored_answers import NOON, an_answer, an_offer

GPUS = ("H100 SXM", "A100 SXM 80GB")
DAYS = 5
LATER = NOON + timedelta(days=DAYS)


def fill(database: Database, seed: int = 0) -> SqlHistoryRecorder:
    """Record some days: sweeps, hunts, truncated and failed ones, of one GPU and of all."""
    draw, recorder, second = random.Random(seed), SqlHistoryRecorder(database), 0
    while second < DAYS * DAY_S:
        gpu, spot = draw.choice(("", *GPUS)), draw.random() < 0.3
        lane = draw.choice(("sweep", "sweep", "hunt"))
        at = NOON + timedelta(seconds=second)
        if draw.random() < 0.1:
            recorder.record_failure("vastai", lane=lane, gpu=gpu, spot=spot, at=at, error="503")
        else:
            how: dict[str, Any] = {}
            if draw.random() < 0.2:
                how = {"completeness": Completeness.TRUNCATED, "complete_to_usd_hour": draw.choice((None, 2.0))}
            offers = [
                an_offer(machine, price, gpu=name, gpu_family=name[:4], spot=spot)
                for name in GPUS
                if gpu in {"", name}
                for machine in "ab"
                if draw.random() < 0.7 and (price := draw.choice((1.0, 1.5, 2.0)))
            ]
            recorder.record(an_answer(*offers, after_s=second, **how), lane=lane, gpu=gpu, spot=spot)
        second += draw.choice((600, 1800, 7200, 20_000))
    return recorder


def unpack(database: Database) -> None:
    with database.write() as connection:
        connection.execute(delete(poll_day))
        connection.execute(history_state.update().values(packed_to_day=None))


def drop_rows(database: Database) -> int:
    """Delete the rows of packed days, as retention does; return how many."""
    with database.write() as connection:
        packed_to = recorded_polls.packed_to_day(connection) or 0
        return connection.execute(delete(poll).where(poll.c.at_s < packed_to * DAY_S)).rowcount


def rows_as_columns(database: Database, since_s: int, until_s: int) -> dict[tuple[str, str, int], list[PackedPoll]]:
    found: dict[tuple[str, str, int], list[PackedPoll]] = {}
    with database.read() as connection:
        for row in connection.execute(select(poll).where(poll.c.at_s >= since_s, poll.c.at_s < until_s)):
            one = PackedPoll(row.at_s, row.id, row.completeness, bool(row.covers), row.complete_to_microusd, row.lane)
            found.setdefault((row.provider, row.gpu, row.spot), []).append(one)
    return {scope: list(poll_columns(polls)) for scope, polls in found.items()}


def answers(database: Database) -> list[Any]:
    """What every reader of polls says, over the whole time and parts of it."""
    found: list[Any] = [
        first_poll_at(database),
        sorted(newest_prices(database)),
        last_sweeps(database),
        last_polls(database),
        last_polls_by_lane(database),
        searches_recorded(database),
        newest_complete_polls(database, ["vastai"]),
    ]
    for scope in (MarketFilter(), MarketFilter(gpus=(GPUS[0],), spot=False)):
        for since, until in ((NOON, LATER), (NOON + timedelta(hours=5), NOON + timedelta(days=2, hours=1))):
            market_history = read_market_history(database, scope, since, until)
            found += [
                msgspec.structs.replace(
                    market_history, polls=list(market_history.polls), intervals=list(market_history.intervals)
                ),
                {scope: list(polls) for scope, polls in read_covering_polls(database, scope, since, until).items()},
                read_price_periods(
                    database,
                    scope,
                    (since, until),
                    spans=(PeriodLength.HOUR, UTC),
                    rates={},
                ),
                [str(one) for one in read_gpu_price_history(database, scope, since, until, {})],
            ]
    for at in (NOON, NOON + timedelta(days=1, hours=7), LATER):
        at_s = int(at.timestamp())
        found.append(newest_covers(database, at_s))
        with database.read() as connection:
            scopes = sorted(recorded_polls.known_scopes(connection))  # PostgreSQL gives them in any order
            found += [
                find(connection, [scope], at_s)
                for scope in scopes
                for find in (recorded_polls.complete_poll_before, recorded_polls.complete_poll_after)
            ]
    return found


@pytest.mark.parametrize("seed", range(2))
def test_every_answer_is_the_same_from_rows_from_packed_days_and_without_the_rows(
    database: Database, seed: int
) -> None:
    fill(database, seed)
    unpack(database)
    expected = answers(database)
    pack_days(database, int(LATER.timestamp()))
    assert answers(database) == expected
    assert drop_rows(database) > 20
    assert answers(database) == expected


def test_the_recorder_packs_each_day_that_is_over_and_adds_what_comes_late(database: Database) -> None:
    recorder = fill(database)
    with database.read() as connection:
        today = int(LATER.timestamp()) // DAY_S
        assert today - 1 <= (recorded_polls.packed_to_day(connection) or 0) <= today
        days = connection.execute(select(func.count(poll_day.c.day.distinct()))).scalar_one()
    assert days >= DAYS - 1
    early = NOON + timedelta(hours=30, seconds=7)
    recorder.record_failure("vastai", lane="hunt", gpu=GPUS[0], at=early, error="503")
    recorder.record_failure("runpod", lane="hunt", at=early, error="503")
    drop_rows(database)
    with database.read() as connection:
        at_s = int(early.timestamp())
        found = recorded_polls.read_polls(connection, recorded_polls.known_scopes(connection), at_s, at_s + 1)
    assert {(scope[0], one.completeness) for scope, polls in found.items() for one in polls} == {
        ("vastai", "failed"),
        ("runpod", "failed"),
    }


@pytest.mark.parametrize("damage", [b"", b"no packed polls", zlib.compress(b"no columns")])
def test_damaged_polls_are_named(sqlite_database: Database, damage: bytes) -> None:
    history = SqlHistoryRecorder(sqlite_database)
    for day in range(3):
        history.record(an_answer(an_offer(), after_s=day * DAY_S), lane="sweep")
    now = NOON + timedelta(days=3)
    pack_days(sqlite_database, int(now.timestamp()))
    with sqlite_database.write() as connection:
        connection.execute(update(poll_day).values(polls=damage))
    with pytest.raises(StoreError, match=rf"on {NOON:%Y-%m-%d} are damaged .* `gpuwatch store backup`"):
        read_covering_polls(sqlite_database, MarketFilter(), NOON, now)


def test_a_clock_that_was_set_back_takes_packed_polls_with_it(sqlite_database: Database) -> None:
    recorder = fill(sqlite_database)
    recorder.record(an_answer(an_offer(), after_s=DAYS * DAY_S + DAY_S), lane="sweep")  # packs what was not packed yet
    back = LATER - timedelta(hours=40)
    recorder.record(an_answer(an_offer(), observed_at=back), lane="sweep", gpu="H100 SXM")
    with sqlite_database.read() as connection:
        scopes = recorded_polls.known_scopes(connection)
        newest = max(polls.at_s[-1] for polls in recorded_polls.read_polls(connection, scopes, 0, 2**31 - 1).values())
        totals = connection.execute(select(func.max(poll_total.c.answered_s))).scalar_one()
    assert int(back.timestamp()) <= newest < int(back.timestamp()) + 5
    assert totals == newest


def test_counters_are_kept_by_the_recorder_and_filled_by_the_migration(database: Database) -> None:
    fill(database)
    with database.read() as connection:
        kept = connection.execute(select(poll_total)).all()
        rows = connection.execute(select(poll)).all()
    assert sum(total.searches for total in kept) == len(rows)
    assert sum(total.rows for total in kept) == sum(row.rows for row in rows)
    with database.write() as connection:
        command.downgrade(alembic_config(connection), "0017")
    with database.write() as connection:
        command.upgrade(alembic_config(connection), "head")
    with database.read() as connection:
        assert set(connection.execute(select(poll_total)).all()) == set(kept)
