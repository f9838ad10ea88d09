"""The intervals compared with the simplest model: a copy of the whole market after every poll."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.ports import Completeness
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.hourly_aggregates import aggregate_from_store
from gpuwatch.storage.history.recording.open_prices import load_open_prices
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import NOON, an_answer, an_offer

MACHINES = ("a", "b", "c")
GPUS = ("H100 SXM", "A100 SXM 80GB")
Market = dict[tuple[str, str], float]  # (machine, GPU) → quote

tables = ("hourly", "price_interval", "series", "segment", "place", "poll", "poll_day", "poll_total", "quota_day")


class Poll(msgspec.Struct, frozen=True):
    """One step of a sequence."""

    wait_s: int
    lane: str
    gpu: str
    market: Market
    completeness: Completeness
    to_usd: float | None
    restart: bool


@st.composite
def a_poll(draw: st.DrawFn) -> Poll:
    lane = draw(st.sampled_from(["sweep", "sweep", "hunt"]))
    gpu = draw(st.sampled_from(["", *GPUS]))
    names = [(machine, name) for machine in MACHINES for name in GPUS if gpu in {"", name}]
    shown = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
    market = {name: draw(st.sampled_from([1.0, 1.000001, 2.0, 3.0])) for name in shown}
    completeness = draw(st.sampled_from([Completeness.COMPLETE] * 3 + [Completeness.TRUNCATED, Completeness.PARTIAL]))
    to_usd = draw(st.sampled_from([None, 1.5, 2.0])) if completeness is Completeness.TRUNCATED else None
    if to_usd is not None:  # shown offers are within the stated limit
        market = {name: price for name, price in market.items() if price <= to_usd}
    wait_s = draw(st.sampled_from([0, 1, 60, 600, 2000, 4000, 40_000]))
    return Poll(wait_s, lane, gpu, market, completeness, to_usd, draw(st.booleans()))


def after(poll: Poll, market: Market) -> Market:
    """The known market after a poll: the documented rule in five lines."""
    covers = poll.lane == "sweep" and poll.completeness is not Completeness.PARTIAL
    if poll.completeness is Completeness.TRUNCATED and poll.to_usd is None:
        covers = False
    stays = {
        name: price
        for name, price in market.items()
        if not (covers and poll.gpu in {"", name[1]} and (poll.to_usd is None or price <= poll.to_usd))
    }
    # a hunt that differs by a micro-dollar or two saw the same price, rounded with another disk
    close = {n for n, p in poll.market.items() if poll.lane != "sweep" and n in market and abs(market[n] - p) < 3e-6}
    return stays | {name: market[name] if name in close else price for name, price in poll.market.items()}


def reported(database: Database, story: list[Poll]) -> Iterator[tuple[int, Market]]:
    """Record a sequence; return (moment, the model's market from then on)."""
    history, market, now = SqlHistoryRecorder(database), Market(), 0
    for poll in story:
        now += poll.wait_s
        if poll.restart:
            history = SqlHistoryRecorder(database)
        offers = [
            an_offer(machine, price, gpu=gpu, gpu_family=gpu[:4]) for (machine, gpu), price in poll.market.items()
        ]
        history.record(
            an_answer(*offers, after_s=now, completeness=poll.completeness, complete_to_usd_hour=poll.to_usd),
            lane=poll.lane,
            gpu=poll.gpu,
        )
        with database.read() as connection:
            newest = connection.execute(text("SELECT at_s FROM poll ORDER BY id DESC LIMIT 1")).scalar_one()
        now = max(now, newest - int(NOON.timestamp()))  # sweeps within one second are spread over the next ones
        market = after(poll, market)
        yield now, market


def emptied(database: Database) -> None:
    with database.write() as connection:
        for table in tables:
            connection.exec_driver_sql(f"DELETE FROM {table}")
        connection.exec_driver_sql(
            "UPDATE history_state SET version = version + 1, next_hour = NULL, packed_to_day = NULL"
        )


def shown(database: Database, second: int) -> Market:
    offers = market_at(database, NOON + timedelta(seconds=second))
    return {(offer.identity.machine_id, offer.identity.gpu): offer.listed_microusd_hour() / 1e6 for offer in offers}


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=st.lists(a_poll(), min_size=1, max_size=14))
def test_every_moment_is_reconstructed_exactly(database: Database, story: list[Poll]) -> None:
    emptied(database)
    steps = list(reported(database, story))
    for (start, market), (end, _) in zip(steps, [*steps[1:], (steps[-1][0] + 100, {})], strict=True):
        if end == start:  # several polls in one second: the last one counts
            continue
        assert shown(database, start) == market
        assert shown(database, end - 1) == market


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=st.lists(a_poll(), min_size=1, max_size=14))
def test_the_roll_up_of_the_running_process_equals_the_one_from_the_intervals(
    database: Database, story: list[Poll]
) -> None:
    emptied(database)
    for _ in reported(database, story):
        pass
    with database.read() as connection:
        sql = """SELECT g.provider, g.gpu, g.gpu_count, g.spot, h.hour, h.min_microusd, h.q1_microusd,
 h.median_microusd, h.q3_microusd, h.offers, h.offer_seconds FROM hourly h JOIN segment g ON g.id = h.segment_id"""
        stored = {(*row[:5],): tuple(row[5:]) for row in connection.execute(text(sql))}
        prices = load_open_prices(connection)
        assert prices.next_hour is not None
        first = int(NOON.timestamp()) // HOUR_S
        again = {
            (*segment, hour): tuple(row)[:6]
            for hour, made in aggregate_from_store(connection, first, prices.next_hour, prices)
            for segment, row in made.items()
        }
    assert stored == again


def test_the_roll_up_weighs_by_the_seconds_on_offer(database: Database) -> None:
    """Second by second, on a busy day: the model has the offers of each second."""
    rng = random.Random(7)
    history, market, now = SqlHistoryRecorder(database), dict[str, float](), 0
    by_second: list[dict[str, float]] = []
    while now < 5 * HOUR_S:
        machine = rng.choice("abcdefgh")
        if machine in market and rng.random() < 0.4:
            del market[machine]
        else:
            market[machine] = rng.choice([1.0, 1.5, 2.0, 2.5, 3.0])
        history.record(an_answer(*(an_offer(*item) for item in market.items()), after_s=now), lane="sweep")
        wait = rng.choice([60, 300, 700])
        by_second += [dict(market)] * wait
        now += wait
    first = int(NOON.timestamp()) // HOUR_S
    with database.read() as connection:
        sql = """SELECT hour, min_microusd, q1_microusd, median_microusd, q3_microusd, offers, offer_seconds FROM hourly
 WHERE segment_id = (SELECT id FROM segment WHERE provider = 'vastai') ORDER BY hour"""
        rows = connection.execute(text(sql)).all()
    assert len(rows) >= 4
    for hour, *figures in rows:
        seconds = by_second[(hour - first) * HOUR_S : (hour - first + 1) * HOUR_S]
        prices = sorted(price for second in seconds for price in second.values())
        quarter = [prices[-(-len(prices) * k // 4) - 1] for k in (1, 2, 3)]
        expected = [round(price * 1e6) for price in (prices[0], *quarter)]
        assert figures == [*expected, len({name for second in seconds for name in second}), len(prices)]


def test_time_that_nobody_looked_at_does_not_count(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    history.record(an_answer(an_offer()), lane="sweep")
    history.record(an_answer(an_offer(), after_s=20 * HOUR_S), lane="sweep")
    with database.read() as connection:
        counted = connection.execute(text("SELECT sum(offer_seconds) FROM hourly")).scalar_one()
        hours = connection.execute(text("SELECT DISTINCT hour FROM hourly")).all()
    assert counted == COVERAGE_S
    assert len(hours) == COVERAGE_S // HOUR_S
