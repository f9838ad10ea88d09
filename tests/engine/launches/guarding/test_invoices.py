"""The task that fetches charges: which days it queries, what it stores, and that its errors stop nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, new_launch
from gpuwatch.domain.launches.money.charge_comparison import NO_CHARGE
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.launches.guarding.invoice_fetcher import (
    FETCH_EVERY_S,
    FIRST_AFTER_S,
    InvoiceFetcher,
    invoice_rows,
)
from gpuwatch.errors import ProviderDown, ProviderError
from gpuwatch.ports import ProviderCharge
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_match, a_watch, changed

DAY = timedelta(days=1)
TODAY = NOON.date()
YESTERDAY = TODAY - DAY


class Bookkeeper:
    """A provider's charges, and the queries."""

    def __init__(self, answer: Sequence[ProviderCharge] | ProviderError | None = ()) -> None:
        self.answer = answer
        self.asked: list[tuple[date, date]] = []

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        self.asked.append((since, until))
        if isinstance(self.answer, ProviderError):
            raise self.answer
        return self.answer


def a_launch(**changes: Any) -> Launch:
    """A launch running since yesterday's noon."""
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
    plain = new_launch(Intent(watch=watch, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON - DAY)
    since = {"state": LaunchState.RUNNING, "running_at": NOON - DAY, "instance_id": "1"}
    return changed(plain, **(since | changes))  # type: ignore[no-any-return]


def a_charge(usd: float = 1.0, day: date = YESTERDAY, **changes: Any) -> ProviderCharge:
    return ProviderCharge(**({"instance_id": "1", "day": day, "kind": "gpu", "usd": usd} | changes))


def collector(
    database: Database, keeper: Bookkeeper, launches: Iterable[Launch] | None = None, ticks: Sequence[float] = (0.0,)
) -> InvoiceFetcher:
    times = list(ticks)
    known = [a_launch()] if launches is None else list(launches)
    launcher: Any = keeper
    return InvoiceFetcher(
        "vastai",
        launcher,
        lambda: known,
        SqlInvoiceRepository(database),
        lambda: times.pop(0) if times[1:] else times[0],
    )


def test_open_days_are_asked_for_and_kept(sqlite_database: Database) -> None:
    keeper = Bookkeeper([a_charge(50.0), a_charge(0.25, kind="disk"), a_charge(9.0, TODAY, final=False)])
    assert collector(sqlite_database, keeper).collect(NOON) == 3
    assert keeper.asked == [(YESTERDAY, TODAY)]
    kept = {(row.day, row.kind): (row.microusd, row.final) for row in SqlInvoiceRepository(sqlite_database).all()}
    assert kept == {
        (YESTERDAY, "gpu"): (50_000_000, True),
        (YESTERDAY, "disk"): (250_000, True),
        (TODAY, "gpu"): (9_000_000, False),
    }


def test_final_days_are_not_asked_for_again(sqlite_database: Database) -> None:
    keeper = Bookkeeper([a_charge()])
    one = collector(sqlite_database, keeper)
    one.collect(NOON)
    one.collect(NOON)
    assert keeper.asked == [(YESTERDAY, TODAY), (TODAY, TODAY)]


def test_nothing_is_asked_where_nothing_was_rented(sqlite_database: Database) -> None:
    keeper = Bookkeeper()
    launches = [a_launch(dry_run=True), a_launch(provider="runpod"), a_launch(instance_id=None)]
    assert collector(sqlite_database, keeper, launches).collect(NOON) == 0
    assert keeper.asked == []


def test_it_asks_once_an_hour_at_most(sqlite_database: Database) -> None:
    keeper = Bookkeeper([])
    ticks = [0.0, FIRST_AFTER_S - 1]  # made, too early
    ticks += [FIRST_AFTER_S, FIRST_AFTER_S]  # the first query
    ticks += [FIRST_AFTER_S + FETCH_EVERY_S - 1, FIRST_AFTER_S + FETCH_EVERY_S, FIRST_AFTER_S + FETCH_EVERY_S]
    one = collector(sqlite_database, keeper, ticks=ticks)
    assert [one.run_if_due(NOON) for _ in range(4)] == [False, True, False, True]
    assert len(keeper.asked) == 2


@pytest.mark.parametrize("answer", [ProviderDown("503"), None])
def test_a_provider_that_does_not_tell_stops_nothing(
    sqlite_database: Database, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = collector(sqlite_database, Bookkeeper(answer), ticks=[0.0, FIRST_AFTER_S])
    with caplog.at_level(logging.INFO):
        assert one.run_if_due(NOON)
    assert len(caplog.records) == 1
    assert SqlInvoiceRepository(sqlite_database).all() == []


def test_collect_says_that_the_provider_does_not_tell(sqlite_database: Database) -> None:
    assert collector(sqlite_database, Bookkeeper(None)).collect(NOON) is None
    with pytest.raises(ProviderDown):
        collector(sqlite_database, Bookkeeper(ProviderDown("503"))).collect(NOON)


# --- stored parts of an answer ----------------------------------------------------------------------------------------

ASKED = {TODAY - 4 * DAY: frozenset({"1", "2"}), YESTERDAY: frozenset({"1"})}


def kept(*reported: ProviderCharge) -> dict[tuple[str, date, str], tuple[int, bool]]:
    rows = invoice_rows("vastai", reported, ASKED, ["1", "2"], NOON)
    return {(row.instance_id, row.day, row.kind): (row.microusd, row.final) for row in rows}


def test_charges_of_others_and_of_other_days_are_left() -> None:
    assert kept(a_charge(instance_id="99"), a_charge(day=TODAY - 9 * DAY)) == {}


def test_several_charges_of_a_kind_are_one_and_new_kinds_are_other() -> None:
    found = kept(a_charge(0.1), a_charge(0.2), a_charge(-0.05, kind="sla"))
    assert found["1", YESTERDAY, "gpu"] == (300_000, True)
    assert found["1", YESTERDAY, "other"] == (-50_000, True)


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), 1e7])
def test_a_day_with_an_impossible_amount_is_not_kept(usd: float) -> None:
    found = kept(a_charge(1.0), a_charge(usd, kind="disk"), a_charge(2.0, TODAY - 4 * DAY))
    assert [key for key in found if key[1] == YESTERDAY] == []
    assert found["1", TODAY - 4 * DAY, "gpu"] == (2_000_000, True)


def test_a_day_that_has_just_ended_is_not_final_whatever_the_provider_says() -> None:
    early = NOON.replace(hour=5)
    [row] = invoice_rows("vastai", [a_charge()], {YESTERDAY: frozenset({"1"})}, ["1"], early)
    assert not row.final


def test_silence_on_an_old_day_is_nothing_charged_where_the_answer_names_another() -> None:
    found = kept(a_charge())
    assert found["1", TODAY - 4 * DAY, NO_CHARGE] == (0, True)
    assert found["2", TODAY - 4 * DAY, NO_CHARGE] == (0, True)
    assert kept() == {}


def test_what_the_provider_calls_provisional_is_not_final() -> None:
    assert kept(a_charge(final=False))["1", YESTERDAY, "gpu"] == (1_000_000, False)


def test_an_impossible_amount_is_not_nothing() -> None:
    found = kept(a_charge(), a_charge(float("nan"), TODAY - 4 * DAY))
    assert [key for key in found if key[:2] == ("1", TODAY - 4 * DAY)] == []
