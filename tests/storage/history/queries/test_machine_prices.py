"""The recorded prices of one machine, as the risk of being outbid counts them."""

from __future__ import annotations

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.market.offer import Identity
from gpuwatch.domain.market.outbid_risk import RecordedBid
from gpuwatch.storage.history.queries.machine_prices import recorded_bids
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import NOON, an_answer, an_offer

MACHINE = Identity("vastai", "m1", "H100 SXM", 1, True)
BEGIN = int(NOON.timestamp())


def record(database: Database, *polls: tuple[int, float | None]) -> None:
    """Record searches: seconds after noon, and the machine's price without its disk; None: it was not on sale."""
    recorder = SqlHistoryRecorder(database)
    for after_s, usd_hour in polls:
        mine = [] if usd_hour is None else [an_offer("m1", usd_hour, spot=True, disk_usd_gb_month=None)]
        recorder.record(an_answer(*mine, an_offer("m2", 9.0, spot=True), after_s=after_s), lane="sweep", spot=True)
        recorder.record(an_answer(an_offer("m1", 8.0), after_s=after_s), lane="sweep")


def bids(database: Database, machine: Identity, since_s: int, until_s: int) -> list[RecordedBid]:
    with database.read() as connection:
        return recorded_bids(connection, [machine], since_s, until_s).get(machine, [])


def read(database: Database, since_s: int = 0, until_s: int = 10**6) -> list[tuple[int, int, int, int | None]]:
    found = bids(database, MACHINE, BEGIN + since_s, BEGIN + until_s)
    return [
        (one.from_s - BEGIN, one.until_s - BEGIN, one.microusd_hour, None if one.gone_s is None else one.gone_s - BEGIN)
        for one in found
    ]


def test_prices_follow_each_other_and_say_when_the_machine_was_gone(database: Database) -> None:
    record(database, (0, 1.0), (600, 1.0), (1200, 2.0), (1800, None), (2400, 1.5), (3000, 1.5))
    assert read(database) == [
        (0, 1200, 1_000_000, None),
        (1200, 1800, 2_000_000, 1800),
        (2400, 3000, 1_500_000, None),
    ]
    assert read(database, since_s=1300, until_s=2600)[0][:2] == (1200, 1800)
    assert read(database, since_s=1300, until_s=2600)[-1][:2] == (2400, 2600)


def test_a_time_without_searches_is_not_watched(database: Database) -> None:
    record(database, (0, 1.0), (600, 1.0), (900_000, 2.0))
    first, second = read(database)
    assert first[:2] == (0, 600 + COVERAGE_S)
    assert second == (900_000, 900_000, 2_000_000, None)


def test_an_unknown_machine_has_none(database: Database) -> None:
    record(database, (0, 1.0))
    assert bids(database, Identity("vastai", "m3", "H100 SXM", 1, True), 0, BEGIN) == []
    assert bids(database, MACHINE, BEGIN - 9, BEGIN) == []
    assert isinstance(bids(database, MACHINE, BEGIN, BEGIN + 9)[0], RecordedBid)


def test_many_machines_are_read_by_one_query(database: Database) -> None:
    record(database, (0, 1.0), (600, 2.0))
    other = Identity("vastai", "m2", "H100 SXM", 1, True)
    with database.read() as connection:
        found = recorded_bids(connection, [MACHINE, other], BEGIN, BEGIN + 900)
        assert recorded_bids(connection, [], BEGIN, BEGIN + 900) == {}
    assert [one.microusd_hour for one in found[MACHINE]] == [1_000_000, 2_000_000]
    assert [one.microusd_hour for one in found[other]] == [8_998_333]  # its disk is priced apart
