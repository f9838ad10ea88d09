"""`new_low` and `drop_by` from poll to alert: hunts, decisions and a store of prices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
import pytest

from gpuwatch.domain.market.money import REFERENCE_DISK_GB, Commission
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.watches.current_limits import PastLimits
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.errors import ProviderDown
from gpuwatch.ports import Answer, Completeness, Query
from gpuwatch.storage.forecasts.fitting_prices import SqlFittingPrices
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.builders import a_watch, an_offer
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import Bench

TWENTY = Commission("0.20")
LOW = a_watch(name="low", gpu_names=("H100 SXM",), unlimited=True, new_low_s=30 * 86_400.0)
DROP = a_watch(name="drop", gpu_names=("H100 SXM",), unlimited=True, drop_by=0.2)


class Polls:
    """One watch, polled every minute; every answer is stored after its decision, as in the daemon."""

    def __init__(self, database: Database, watch: Watch) -> None:
        self.database, self.now, self.spot = database, NOON, False
        self.history = SqlHistoryRecorder(database)
        self.bench = Bench(watch)
        self.market = ScriptedMarket(an_answer())
        past = PastLimits(SqlFittingPrices(database, {"vastai": TWENTY}), REFERENCE_DISK_GB)
        self.hunter = Hunter(
            self.market,
            [watch],
            TWENTY,
            self.bench.evaluator,
            self._keep,
            threading.Event(),
            current_limit=partial(past.with_past, provider="vastai"),
            started_at=NOON,
        )

    def _keep(self, _query: Query, answer: object, _now: datetime) -> None:
        if isinstance(answer, Answer):
            self._store(answer)

    def _store(self, answer: Answer) -> None:
        self.history.record(answer, lane="sweep", gpu="", spot=self.spot)

    def before(self, hours: int, usd: float, **facts: object) -> Polls:
        """Store this many hours of one price, up to now."""
        for hour in range(hours):
            at = NOON - timedelta(hours=hours - hour)
            self._store(an_answer(offer(usd, at, **facts), at=at, completeness=Completeness.COMPLETE))
        return self

    def see(self, *usd: float, **facts: object) -> Sequence[str]:
        """Poll these offers; return the reasons of the alerts."""
        self.now += timedelta(minutes=1)
        self.market.script = [an_answer(*(offer(one, self.now, **facts) for one in usd), at=self.now)]
        before = len(self.bench.uow_factory.alerts)
        self.hunter.run_round(lambda: self.now, 30.0, 30.0)
        return [alert.why for alert, _ in self.bench.uow_factory.alerts[before:]]

    def elsewhere(self, usd: float) -> None:
        """Store a price that another search of the daemon found since the last poll."""
        at = self.now + timedelta(seconds=20)
        self._store(an_answer(offer(usd, at, machine_id="77", offer_id="77"), at=at))

    def fail(self) -> None:
        """Poll without an answer."""
        self.now += timedelta(minutes=1)
        self.market.script = [ProviderDown("502")]
        self.hunter.run_round(lambda: self.now, 30.0, 30.0)

    def facts(self) -> dict[str, str]:
        return dict(self.bench.uow_factory.alerts[-1][0].facts)


def offer(usd: float, at: datetime, **facts: object) -> Offer:
    return an_offer(quoted_usd_hour=usd, observed_at=at, **({"disk_usd_gb_month": None} | facts))


def test_only_what_is_under_everything_stored_is_a_new_low(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, LOW).before(24 * 12, 2.0)
    assert not polls.see(2.5)
    assert not polls.see(2.0)  # equal to the lowest, not lower
    assert len(polls.see(1.9)) == 1
    assert polls.facts()["New low"].startswith("under $2.40, the lowest of 28")
    assert "since 2026-11-09 12:00 UTC" in polls.facts()["New low"]
    assert "Threshold" not in polls.facts()


def test_a_new_low_is_reported_once_and_while_it_stands_only_what_is_much_lower(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, LOW).before(24 * 12, 2.0)
    assert len(polls.see(1.9)) == 1
    assert not [why for _ in range(5) for why in polls.see(1.9)]
    assert not polls.see(1.89)  # under it, but not by improve_by
    assert "cheaper" in polls.see(1.7)[0]


def test_a_low_that_is_gone_again_stays_the_lowest(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, LOW).before(24 * 12, 2.0)
    assert len(polls.see(1.5)) == 1
    assert not [why for _ in range(4) for why in polls.see()]
    assert not polls.see(1.6)
    assert len(polls.see(1.4)) == 1


def test_a_low_that_another_search_stored_first_is_new_to_the_watch(sqlite_database: Database) -> None:
    """A sweep or another watch's search may see and store the price before this watch's next poll."""
    polls = Polls(sqlite_database, LOW).before(24 * 12, 2.0)
    assert not polls.see(2.0)
    polls.elsewhere(1.5)
    polls.fail()
    assert len(polls.see(1.5)) == 1
    assert not [why for _ in range(3) for why in polls.see(1.5)]


def test_a_low_that_the_first_sweep_stored_is_new_to_a_watch_that_was_not_answered_yet(
    sqlite_database: Database,
) -> None:
    polls = Polls(sqlite_database, LOW).before(24 * 12, 2.0)
    polls.elsewhere(1.5)
    assert len(polls.see(1.5)) == 1


def test_a_low_that_only_another_search_saw_counts_from_the_next_poll_on(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, LOW).before(24 * 12, 2.0)
    assert not polls.see(2.0)
    polls.elsewhere(1.5)
    assert not polls.see(2.0)
    assert not polls.see(1.6)
    assert len(polls.see(1.4)) == 1


def test_the_lowest_is_of_any_host_and_number_of_gpus(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, msgspec.structs.replace(LOW, min_reliability=0.9))
    polls.before(24 * 12, 8 * 1.8, gpu_count=8, reliability=0.5)
    assert not polls.see(1.9)
    assert len(polls.see(1.7)) == 1


@pytest.mark.parametrize("changes", [{"spot": True}, {"gpu": "A100 SXM4", "gpu_family": "A100"}])
def test_other_gpus_and_rental_types_are_other_histories(sqlite_database: Database, changes: dict[str, object]) -> None:
    polls = Polls(sqlite_database, LOW)
    polls.spot = "spot" in changes
    polls.before(24 * 12, 3.0, **changes)
    polls.spot = False
    assert not polls.see(1.0)  # cheap, but nothing to compare with


def test_less_than_a_third_of_the_span_does_not_fire_and_says_so_once(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    polls = Polls(sqlite_database, LOW).before(24 * 5, 2.0)
    assert not polls.see(0.5)
    assert not polls.see(0.4)
    said = [message for message in caplog.messages if "new_low" in message]
    assert said == [
        "watch low: new_low for H100 SXM does not fire: too little history: 6d of 30d is known, 10d required"
    ]


def test_a_list_price_is_not_compared_with_live_prices(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, LOW).before(24 * 12, 2.0)
    assert not polls.see(1.0, kind=OfferKind.LISTED)


def test_the_disk_of_the_quote_does_not_make_a_low(sqlite_database: Database) -> None:
    """The history prices every offer with the same disk; a quote may have another one."""
    disk = {"disk_usd_gb_month": 9.0}  # 0.0125 $ per GB and hour
    polls = Polls(sqlite_database, LOW).before(24 * 12, 2.0, quoted_disk_gb=8.0, **disk)
    assert not polls.see(1.9, quoted_disk_gb=0.0, **disk)  # the same machine, quoted without its disk
    assert len(polls.see(1.8, quoted_disk_gb=0.0, **disk)) == 1


# --- drop_by ----------------------------------------------------------------------------------------------------------


def test_a_drop_is_under_the_median_of_what_fits(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, DROP).before(24 * 7, 2.0)
    assert not polls.see(1.61)
    assert len(polls.see(1.6)) == 1
    assert polls.facts()["Drop"].startswith("at or under $1.92, 20 % below the median of $2.40 (n = 16")


def test_a_drop_is_reported_while_it_stands_as_any_limit_is(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, DROP).before(24 * 7, 2.0)
    assert len(polls.see(1.5)) == 1
    assert not polls.see(1.5)
    assert "cheaper" in polls.see(1.2)[0]


def test_two_days_of_seven_are_too_few_for_a_drop(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, DROP).before(40, 2.0)
    assert not polls.see(0.5)


def test_what_does_not_fit_has_no_part_in_the_median(sqlite_database: Database) -> None:
    polls = Polls(sqlite_database, msgspec.structs.replace(DROP, min_reliability=0.9))
    polls.before(24 * 7, 9.0, reliability=0.5)
    assert not polls.see(2.0)


def test_a_watch_without_such_clauses_reads_nothing(sqlite_database: Database) -> None:
    watch = a_watch()
    assert PastLimits(SqlFittingPrices(sqlite_database, {}), REFERENCE_DISK_GB).with_past(watch, NOON) is watch
