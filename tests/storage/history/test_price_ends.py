"""The end of a price is stored once. The rules by which readers derived it before judge it here, and only here.

Each rule took the polls that cover an offer: the hourly roll-up, the import, the stored prices and the overview the
first one after the price was last seen, or the offer's next price; the snapshot asked whether the newest poll had seen
it. None of the five asked whether that poll could have shown the price at all; the timeline of a file did, and so does
the stored end: a poll that shows offers up to a price ends nothing dearer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pytest
from alembic import command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from gpuwatch.domain.history.price_rows import PriceRow
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.storage.history.imports.price_import import import_file
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.migrate import alembic_config
from tests.storage.history.imports.test_price_import import FILES, LATER_S, ROWS, a_look, a_row, brought_in
from tests.storage.history.recording.test_history_recorder_model import Poll, a_poll, emptied, reported
from tests.storage.stored_answers import NOON, an_answer, an_offer

NOON_S = int(NOON.timestamp())
fresh_each_time = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
LOOKS = st.lists(
    st.builds(a_look, st.sampled_from([0, 300, 5000, 9000, 30_000]), st.just(""), st.sampled_from([0, 0.5, 1.5])),
    max_size=4,
)


class Price(NamedTuple):
    """A stored interval, and the part of the market to which it belongs."""

    scope: tuple[str, str, int]
    series_id: int
    from_s: int
    to_s: int | None
    ended_s: int | None
    microusd: int


class Cover(NamedTuple):
    """A poll that covers a part of the market, up to a price."""

    at_s: int
    to_microusd: int | None


class Stored:
    """What the store holds."""

    def __init__(self, database: Database) -> None:
        prices = """SELECT g.provider, g.gpu, g.spot, p.series_id, p.seen_from_s, p.seen_to_s, p.ended_s,
 p.machine_microusd_hour FROM price_interval p JOIN series s ON s.id = p.series_id
 JOIN segment g ON g.id = s.segment_id ORDER BY p.series_id, p.seen_from_s"""
        covers = "SELECT provider, gpu, spot, at_s, complete_to_microusd FROM poll WHERE covers = 1 ORDER BY at_s"
        with database.read() as connection:
            self.prices = [Price((*row[:3],), *row[3:]) for row in connection.execute(text(prices))]
            polls = [((*row[:3],), Cover(*row[3:])) for row in connection.execute(text(covers))]
        scopes = {price.scope for price in self.prices}
        self.covers = {
            (name, gpu, spot): [cover for scope, cover in polls if scope in ((name, gpu, spot), (name, "", spot))]
            for name, gpu, spot in scopes
        }

    def by_offer(self) -> list[list[Price]]:
        """The prices of each offer, in order."""
        return [list(own) for _, own in groupby(self.prices, key=attrgetter("series_id"))]

    def newest_cover(self, scope: tuple[str, str, int], at_s: int) -> int:
        """The newest poll of a part at a moment."""
        return max((cover.at_s for cover in self.covers[scope] if cover.at_s <= at_s), default=-1)


def former_end(own: Sequence[Price], index: int, covers: Sequence[Cover]) -> int | None:
    """Roll-up, import, stored prices and overview: the first poll after it was last seen, or the next price."""
    seen_to = own[index].to_s
    if seen_to is None:
        return None
    times = [cover.at_s for cover in covers]
    nearest = bisect_right(times, seen_to)
    candidates = times[nearest : nearest + 1] + [one.from_s for one in own[index + 1 : index + 2]]
    return min(candidates, default=None)


def timeline_end(own: Sequence[Price], index: int, covers: Sequence[Cover]) -> int | None:
    """The timeline of a file: the first poll that would have shown it, or the next price."""
    price = own[index]
    showing = [cover for cover in covers if cover.to_microusd is None or cover.to_microusd >= price.microusd]
    return former_end(own, index, showing)


def former_snapshot(stored: Stored, at_s: int) -> set[int]:
    """The offers whose newest price at a moment is current, or was seen by the newest poll."""
    found = set()
    for own in stored.by_offer():
        begun = [price for price in own if price.from_s <= at_s]
        if begun and (begun[-1].to_s is None or begun[-1].to_s >= stored.newest_cover(begun[-1].scope, at_s)):
            found.add(begun[-1].series_id)
    return found


def moments(stored: Stored) -> list[int]:
    edges = {at_s for price in stored.prices for at_s in (price.from_s, price.to_s, price.ended_s) if at_s is not None}
    edges |= {cover.at_s for covers in stored.covers.values() for cover in covers}
    return sorted(edge + near for edge in edges for near in (-1, 0, 1))


def refilled(database: Database) -> list[Price]:
    """The prices after the column was dropped, and filled anew by the migration."""
    with database.write() as connection:
        command.downgrade(alembic_config(connection), "0013")
    with database.write() as connection:
        command.upgrade(alembic_config(connection), "head")
    return Stored(database).prices


@pytest.mark.slow
@fresh_each_time
@given(story=st.lists(a_poll(), min_size=1, max_size=14))
def test_a_recorded_price_ends_when_every_former_rule_says(database: Database, story: list[Poll]) -> None:
    """Sweeps, hunts, partial and truncated answers, restarts, clocks within a second."""
    emptied(database)
    for _ in reported(database, story):
        pass
    stored = Stored(database)
    for own in stored.by_offer():
        for index, price in enumerate(own):
            covers = stored.covers[price.scope]
            assert price.ended_s == former_end(own, index, covers) == timeline_end(own, index, covers)
    for at_s in moments(stored):
        assert {price.series_id for price in on_sale(stored, at_s)} == former_snapshot(stored, at_s)
        assert len(market_at(database, datetime.fromtimestamp(at_s, UTC))) == len(on_sale(stored, at_s))


def on_sale(stored: Stored, at_s: int) -> list[Price]:
    return [
        price for price in stored.prices if price.from_s <= at_s and (price.ended_s is None or price.ended_s > at_s)
    ]


@pytest.mark.slow
@fresh_each_time
@given(files=st.lists(st.tuples(ROWS, LOOKS), min_size=1, max_size=3))
def test_an_imported_price_ends_with_the_poll_that_would_have_shown_it(
    sqlite_database: Database,
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[list[PriceRow], list[PriceRow]]],
) -> None:
    """Where all polls show everything, the former rules say the same."""
    emptied(sqlite_database)
    for rows, looks in files:
        brought_in(sqlite_database, tmp_path_factory.mktemp("rows"), [*rows, *looks])
    stored = Stored(sqlite_database)
    for own in stored.by_offer():
        for index, price in enumerate(own):
            covers = stored.covers[price.scope]
            assert price.ended_s == timeline_end(own, index, covers)
            if all(cover.to_microusd is None for cover in covers):
                assert price.ended_s == former_end(own, index, covers)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition("-")[0])
def test_recorded_histories_end_as_before(sqlite_database: Database, path: Path) -> None:
    import_file(sqlite_database, path, (None, {"gcp": OfferKind.LISTED}), LATER_S)
    stored = Stored(sqlite_database)
    assert stored.prices
    for own in stored.by_offer():
        for index, price in enumerate(own):
            assert price.ended_s == former_end(own, index, stored.covers[price.scope])
    assert refilled(sqlite_database) == stored.prices


@pytest.mark.slow
@settings(fresh_each_time, max_examples=6)
@given(story=st.lists(a_poll(), min_size=4, max_size=14), rows=ROWS, looks=LOOKS)
def test_the_migration_fills_what_would_have_been_stored(
    database: Database,
    tmp_path_factory: pytest.TempPathFactory,
    story: list[Poll],
    rows: list[PriceRow],
    looks: list[PriceRow],
) -> None:
    emptied(database)
    for _ in reported(database, story):
        pass
    brought_in(database, tmp_path_factory.mktemp("rows"), [*rows, *looks])
    stored = Stored(database).prices
    assert refilled(database) == stored


def test_a_truncated_import_ends_nothing_dearer(database: Database, tmp_path: Path) -> None:
    """Before, the store ended it there, and a file did not."""
    looks = [a_look(0), a_look(600, usd=1.5), a_look(1200)]
    brought_in(database, tmp_path, [*looks, a_row(0, "a", 2.0), a_row(0, "b", 1.0)])
    assert [(price.microusd, price.ended_s) for price in Stored(database).prices] == [
        (2_000_000, NOON_S + 1200),
        (1_000_000, NOON_S + 600),
    ]


def test_a_price_that_a_set_back_clock_closed_has_ended(database: Database) -> None:
    """It was closed, and the poll that closed it is gone: the migration lets it count as long as any price."""
    SqlHistoryRecorder(database).record(an_answer(an_offer()), lane="sweep")
    with database.write() as connection:
        connection.exec_driver_sql(f"UPDATE price_interval SET seen_to_s = {NOON_S}")
    assert [price.ended_s for price in refilled(database)] == [NOON_S + 3 * 3600]


def test_a_clock_that_steps_back_moves_the_ends(database: Database) -> None:
    history = SqlHistoryRecorder(database)
    for after_s, usd in ((0, 3.0), (600, 4.0), (1200, 5.0)):
        history.record(an_answer(an_offer(usd_hour=usd), after_s=after_s), lane="sweep")
    history.record(an_answer(an_offer(usd_hour=6.0), after_s=300), lane="sweep")
    assert [(price.from_s - NOON_S, price.ended_s) for price in Stored(database).prices][:1] == [(0, NOON_S + 300)]
