"""Pruning: which rows end, in which steps, and whether the file stays as large as it is."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, func, insert, select, update

from gpuwatch.domain.alerts.service_texts import TEST
from gpuwatch.domain.launches.launch import Intent
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import StoreError
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.history import prune as prune_module
from gpuwatch.storage.history.imports.price_import import import_file
from gpuwatch.storage.history.lake.lake_notes import begin_lake, note_verified
from gpuwatch.storage.history.prune import ROWS_PER_STEP, SqlPruner, mark_undecided
from gpuwatch.storage.history.pruned_totals import alerts_stored
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.store_growth import read_growth, undecided_keep
from gpuwatch.storage.history.table_ends import TABLE_ENDS, WHY_ROWS_STAY, Horizons
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.schema.job_tables import job, job_event
from gpuwatch.storage.setup.schema.launch_side_tables import approval
from gpuwatch.storage.setup.side_tables import alert, chat_update, forecast, provider_hold, silence, skipped_scope
from gpuwatch.storage.setup.store_stats import read_store_stats
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.setup.tables import (
    history_state,
    hook_run,
    hourly,
    launch,
    metadata,
    poll,
    price_interval,
    series,
)
from tests.builders import a_match, a_watch
from tests.builders_jobs import a_job
from tests.checkout import ROOT
from tests.reserving import launch_or_refusal
from tests.storage.stored_answers import NOON, an_answer, an_offer

DAY = timedelta(days=1)
WEEK = HistoryKeep(polls_s=2.0 * DAY_S, intervals_s=7.0 * DAY_S, hourly_s=30.0 * DAY_S)


def record_days(history: SqlHistoryRecorder, first: int, end: int) -> datetime:
    """A sweep each two hours: one machine stays, one has a new price each time, one is new each day."""
    for step in range(first * 12, end * 12):
        offers = (an_offer("stays"), an_offer("moves", 1.0 + step % 7), an_offer(f"day {step // 12}", 2.0))
        history.record(an_answer(*offers, after_s=step * 7200), lane="sweep")
    return NOON + end * DAY


def poll_yesterday(database: Database, now: datetime) -> None:
    """Only then does the daemon believe its clock."""
    after_s = int((now - 1.5 * DAY - NOON).total_seconds())
    SqlHistoryRecorder(database).record(an_answer(an_offer("stays"), after_s=after_s), lane="sweep")


def run_all(pruner: SqlPruner, now: datetime) -> int:
    """As the daemon does it in many runs: a pass of the day."""
    return sum(pruner.run(now) for _ in range(50))


def count(database: Database, table: object) -> int:
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())  # type: ignore[arg-type]


def pages(database: Database) -> int:
    with database.read() as connection:
        return int(connection.exec_driver_sql("PRAGMA page_count").scalar_one()) if database.is_sqlite else 0


def test_each_table_has_an_end_or_a_reason_to_stay() -> None:
    ends = [end.table.name for end in TABLE_ENDS]
    assert len(ends) == len(set(ends))
    assert not set(ends) & set(WHY_ROWS_STAY)
    assert {*ends, *WHY_ROWS_STAY} == set(metadata.tables)
    assert {"launch", "launch_event", "invoice_line"} <= set(WHY_ROWS_STAY)


def test_forever_ends_nothing() -> None:
    nothing = Horizons(to_ms(NOON))
    lasting = {end.table.name for end in TABLE_ENDS if not isinstance(end.kept, int)}
    assert {end.table.name for end in TABLE_ENDS if end.is_over(nothing) is None} == lasting


def test_the_store_stays_as_large_as_its_window(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    pruner = SqlPruner(database, WEEK)
    sizes = []
    for day in range(0, 45, 3):
        now = record_days(history, day, day + 3)
        run_all(pruner, now)
        sizes.append({table.name: count(database, table) for table in (price_interval, series, poll, hourly)})
        sizes[-1]["pages"] = pages(database)
    assert sizes[-1]["price_interval"] == sizes[5]["price_interval"]
    assert sizes[-1]["series"] == sizes[5]["series"]
    assert sizes[-1]["hourly"] == sizes[-3]["hourly"]
    assert sizes[-1]["poll"] <= sizes[5]["poll"]
    assert sizes[-1]["pages"] <= 1.05 * sizes[-5]["pages"]
    with database.read() as connection:
        kept_from_s = connection.execute(select(history_state.c.kept_from_s)).scalar_one()
        oldest_end = connection.execute(select(func.min(price_interval.c.ended_s))).scalar_one()
    assert kept_from_s == (NOON + 38 * DAY).timestamp()
    assert oldest_end > kept_from_s


def test_no_transaction_of_the_daemon_deletes_many_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_module, "ROWS_PER_STEP", 10)
    now = record_days(SqlHistoryRecorder(database), 0, 20)
    deleted = [step for step in SqlPruner(database, WEEK).steps(now) if step[1]]
    assert max(rows for _, rows in deleted) <= 11
    assert sum(rows for table, rows in deleted if table == "price_interval") > 100
    assert sum(rows for table, rows in deleted if table == "series") == 13
    assert ROWS_PER_STEP <= 5000


def test_a_run_takes_a_few_steps_and_the_next_goes_on(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_module, "ROWS_PER_STEP", 10)
    monkeypatch.setattr(prune_module, "STEPS_PER_RUN", 3)
    now = record_days(SqlHistoryRecorder(database), 0, 20)
    pruner = SqlPruner(database, WEEK)
    assert pruner.run(now) <= 33
    assert run_all(pruner, now) > 100
    assert run_all(pruner, now) == 0


def test_a_clock_that_jumps_by_years_deletes_nothing(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    now = record_days(history, 0, 3)
    before = count(database, price_interval), count(database, poll)
    jumped_s = 3 * 365 * DAY_S
    history.record(an_answer(an_offer("stays"), after_s=jumped_s), lane="sweep")
    assert run_all(SqlPruner(database, WEEK), NOON + timedelta(seconds=jumped_s + 60)) == 0
    assert count(database, price_interval) >= before[0]
    assert count(database, poll) == before[1] + 1
    assert run_all(SqlPruner(database, HistoryKeep(polls_s=DAY_S, intervals_s=2 * DAY_S, hourly_s=math.inf)), now) > 0


def test_an_older_store_loses_nothing_until_its_owner_has_decided(database: Database) -> None:
    now = record_days(SqlHistoryRecorder(database), 0, 3) + 500 * DAY
    SqlHistoryRecorder(database).roll_up(now)
    with database.write() as connection:
        connection.execute(update(history_state).values(kept_by_default=0))
    before = count(database, price_interval), count(database, poll)
    pruner = SqlPruner(database, None)
    assert pruner.is_undecided()
    assert run_all(pruner, now) == 0
    assert (count(database, price_interval), count(database, poll)) == before
    undecided = undecided_keep(database, now)
    assert undecided is not None
    text = undecided.line
    assert f"{before[0] - 3:,} rows of price_interval" in text
    assert "store backup" in text
    assert not read_growth(database, None, now, read_store_stats(database).rows).is_in_force
    decided = SqlPruner(database, HistoryKeep())
    assert not decided.is_undecided()
    poll_yesterday(database, now)
    assert run_all(decided, now) > 0


def test_a_new_store_is_pruned_by_default(database: Database) -> None:
    now = record_days(SqlHistoryRecorder(database), 0, 3) + 500 * DAY
    SqlHistoryRecorder(database).roll_up(now)
    assert undecided_keep(database, now) is None
    poll_yesterday(database, now)
    assert run_all(SqlPruner(database, None), now) > 0


def test_an_import_of_old_prices_leaves_it_to_the_owner(database: Database) -> None:
    now = record_days(SqlHistoryRecorder(database), 0, 1)
    now_s = to_ms(now) // 1000
    mark_undecided(database, now_s - 399 * DAY_S, now_s)
    assert not SqlPruner(database, None).is_undecided()
    mark_undecided(database, now_s - 401 * DAY_S, now_s)
    assert SqlPruner(database, None).is_undecided()


def test_an_import_of_old_prices_stops_a_pass_that_goes_on(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_module, "ROWS_PER_STEP", 10)
    now = record_days(SqlHistoryRecorder(database), 0, 3) + 500 * DAY
    SqlHistoryRecorder(database).roll_up(now)
    steps = SqlPruner(database, None).steps(now)
    assert next(steps)[1] > 0
    mark_undecided(database, 0, to_ms(now) // 1000)
    before = count(database, price_interval), count(database, series)
    list(steps)
    assert (count(database, price_interval), count(database, series)) == before


def test_an_import_that_was_interrupted_leaves_it_to_the_owner(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(
        "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour\n"
        "2020-01-01T06:00:00Z,vastai,m,,H100 SXM,1,80,false,2.5\n"
    )

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "importing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_file(database, path, (None, {}), to_ms(NOON) // 1000, on_progress=interrupt)
    assert count(database, price_interval) == 1
    assert SqlPruner(database, None).is_undecided()


def test_with_a_lake_only_what_is_verified_there_goes(database: Database) -> None:
    now = record_days(SqlHistoryRecorder(database), 0, 20)
    verified_s = int((NOON + 5 * DAY).timestamp())
    pruner = SqlPruner(database, WEEK, "/srv/lake")
    first = [step for step in pruner.steps(now) if step[1]]
    assert {table for table, _ in first} == {"poll"}  # nothing is in it yet; what polls showed is packed
    with database.write() as connection:
        begin_lake(connection, "/srv/lake")
        note_verified(connection, "/srv/lake", verified_s)
    assert sum(rows for _, rows in pruner.steps(now)) > 0
    with database.read() as connection:
        assert connection.execute(select(history_state.c.kept_from_s)).scalar_one() == verified_s - 1
        assert connection.execute(select(func.min(price_interval.c.ended_s))).scalar_one() == verified_s


def test_what_is_settled_or_lapsed_ends_and_the_rest_stays(database: Database) -> None:
    now = NOON + 500 * DAY
    long_ago, lately = to_ms(NOON), to_ms(now - timedelta(hours=1))
    with database.write() as connection:
        _put_settled(connection, long_ago, "old")
        _put_settled(connection, lately, "new")
        connection.execute(
            insert(forecast),
            {
                "forecast_id": "open",
                "source": "advise",
                "made_at_ms": long_ago,
                "due_at_ms": long_ago,
                "statement": "{}",
            },
        )
    gone: dict[str, int] = {}
    for table, rows in SqlPruner(database, HistoryKeep()).steps(now):
        gone[table] = gone.get(table, 0) + rows
    tables = (approval, chat_update, forecast, provider_hold, silence, skipped_scope)
    assert {name: rows for name, rows in gone.items() if rows} == {table.name: 1 for table in tables}
    assert [count(database, table) for table in tables] == [1, 1, 2, 1, 1, 1]


def test_no_counter_falls_when_its_rows_go(database: Database) -> None:
    outbox, jobs = Outbox(database), SqlJobRepository(database)

    def fill(at: datetime, name: str, spent: int) -> None:
        outbox.enqueue(TEST.outbox(name, at))
        outbox.route({name: []}, at)
        jobs.submit([a_job(job_id=f"jobs{name}", name=name)])
        ended = {"state": "done", "ended_at_ms": to_ms(at), "spent_microusd": spent}
        with database.write() as connection:
            connection.execute(delete(job_event))
            connection.execute(update(job).where(job.c.name == name).values(ended))

    for number in range(4):
        now = NOON + number * 500 * DAY
        fill(now, f"one{number}", 1_000_000)
        fill(now, f"two{number}", 500_000)
        rows = sum(deleted for table, deleted in SqlPruner(database, HistoryKeep()).steps(now) if table == "job")
        assert rows == (2 if number else 0)
        assert alerts_stored(database) == {("test", "info"): 2 * number + 2}
        assert jobs.spent_microusd() == 1_500_000 * (number + 1)
    assert count(database, alert) == count(database, job) == 2


def _put_settled(connection: Connection, at_ms: int, name: str) -> None:
    number = int(at_ms // 1000)
    connection.execute(insert(silence), {"watch": name, "created_at_ms": at_ms, "until_ms": at_ms})
    hold = {"provider": name, "kind": "search", "set_at_ms": at_ms, "until_ms": at_ms, "reason": "busy"}
    connection.execute(insert(provider_hold), hold)
    scope = {"provider": name, "scope": "offer", "key": "1", "watch": "", "why": "gone"}
    connection.execute(insert(skipped_scope), scope | {"since_ms": at_ms, "until_ms": at_ms})
    connection.execute(insert(chat_update), {"bot": "b", "update_id": number, "received_at_ms": at_ms})
    made = {"forecast_id": name, "source": "advise", "made_at_ms": at_ms, "due_at_ms": at_ms, "statement": "{}"}
    connection.execute(insert(forecast), made | {"score": "{}"})
    asked = {"approval_id": name, "watch": "w", "provider": "vastai", "created_at_ms": at_ms, "deadline_ms": at_ms}
    prices = {"offer": "{}", "listed_microusd_hour": 1, "price_microusd_hour": 1}
    connection.execute(insert(approval), asked | prices | {"state": "denied"})


@pytest.mark.parametrize(("state", "left"), [("ended", 1), ("running", 2)])
def test_a_hook_goes_long_after_its_launch(database: Database, state: str, left: int) -> None:
    intent = Intent(
        watch=a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0)),
        match=a_match(),
        launch_id="a" * 12,
        dry_run=False,
    )
    with database.write() as connection:
        launch_or_refusal(connection, intent, Budget(), NOON)
        connection.execute(update(launch).values(state=state, ended_at_ms=to_ms(NOON)))
        for event, of_hook in (("running", "done"), ("ended", "pending")):
            row = {"launch_id": "a" * 12, "event": event, "state": of_hook, "body": "{}", "next_try_at_ms": 0}
            connection.execute(insert(hook_run), row)
    run_all(SqlPruner(database, HistoryKeep()), NOON + 399 * DAY)
    assert count(database, hook_run) == 2
    run_all(SqlPruner(database, HistoryKeep()), NOON + 401 * DAY)
    assert count(database, hook_run) == left  # one that waits still runs
    assert count(database, launch) == 1


def test_after_a_fault_the_pass_begins_anew(sqlite_database: Database) -> None:
    now = record_days(SqlHistoryRecorder(sqlite_database), 0, 20)
    pruner = SqlPruner(sqlite_database, WEEK)
    path = sqlite_database.path
    assert path is not None
    path.rename(path.with_suffix(".away"))
    with pytest.raises(StoreError):
        pruner.run(now)
    path.with_suffix(".away").rename(path)
    assert run_all(pruner, now) > 100


def test_growth_is_reported_by_table(database: Database) -> None:
    now = record_days(SqlHistoryRecorder(database), 0, 20)
    growth = read_growth(database, WEEK, now, read_store_stats(database).rows)
    by_name = {one.table: one for one in growth.tables}
    assert set(by_name) == set(metadata.tables)
    assert growth.is_in_force
    assert growth.keep == {"polls": "2d", "intervals": "7d", "hourly": "30d"}
    prices = by_name["price_interval"]
    assert prices.rows_over == sum(
        rows for table, rows in SqlPruner(database, WEEK).steps(now) if table == prices.table
    )
    assert prices.rows_a_month == pytest.approx(prices.rows * 30 / 20, rel=0.02)
    hours = by_name["hourly"]
    assert hours.bytes_in_a_year == pytest.approx(hours.bytes * 30 / 20, rel=0.02)  # 30 days are kept
    endless = read_growth(database, HistoryKeep(hourly_s=math.inf), now, read_store_stats(database).rows)
    hours = next(one for one in endless.tables if one.table == "hourly")
    assert hours.bytes_in_a_year == pytest.approx(hours.bytes * 385 / 20, rel=0.02)


def test_a_new_file_gives_free_pages_back(sqlite_database: Database) -> None:
    with sqlite_database.write() as connection:
        row = {"provider": "p", "lane": "sweep", "gpu": "g", "spot": 0, "completeness": "failed", "error": "x" * 500}
        row |= dict.fromkeys(("covers", "rows", "skipped", "elapsed_ms"), 0)
        connection.execute(insert(poll), [row | {"at_s": number} for number in range(20_000)])
    assert sqlite_database.path is not None
    full = sqlite_database.path.stat().st_size
    with sqlite_database.write() as connection:
        connection.execute(poll.delete())
    for _ in range(10):
        prune_module.release_pages(sqlite_database)
    with sqlite_database.read() as connection:
        pages, free = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("page_count", "freelist_count")
        )
    assert pages * 4096 < full / 3
    assert free <= 500


def test_the_page_of_the_history_lists_all_tables() -> None:
    page = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    lines = [f"| `{end.table.name}` | {end.words} |" for end in TABLE_ENDS]
    lines += [f"| `{name}` | stays: {why} |" for name, why in WHY_ROWS_STAY.items()]
    for line in lines:
        assert line in page
