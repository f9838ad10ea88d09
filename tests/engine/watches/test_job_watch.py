"""A watch by job cost through the daemon: decided, reported, requoted, rented."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.launches.launch import LaunchRefusal, LaunchState, RefusalReason, most_microusd_hour
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.plan.figures import exactly, parse_gpu_config
from gpuwatch.domain.plan.job_hours import GpuRate, JobSpec
from gpuwatch.domain.watches.computed_limits import job_microusd, max_job_microusd
from gpuwatch.domain.watches.decide import DecisionReason, Match
from gpuwatch.domain.watches.launch_spec import BidSpec, Budget, LaunchSpec
from gpuwatch.domain.watches.match import match_of, matches, price_for
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch
from gpuwatch.domain.watches.watch_job_schema import highest_usd_gpu_hour
from gpuwatch.engine.alerts import offer_alerts
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.launches.renting.requoter import Requoter, payable_match
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.engine.watches.one_poll import check_provider
from gpuwatch.ports import Completeness, UnitOfWorkFactory
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import a_watch, an_offer, seen_at
from tests.engine.launch_world import World
from tests.engine.uow_fakes import NOON, FakeExecutor, MemoryUnitOfWork, ScriptedMarket, an_answer, evaluate

VAST = {"vastai": Commission("0.20")}
GPUS = ("A100 SXM 80GB", "H100 SXM")
JOB = JobSpec(
    hours=exactly(72.0),
    on=parse_gpu_config("4x A100 SXM 80GB"),
    speedup=(GpuRate(parse_gpu_config("4x H100 SXM"), exactly(3.0)),),
)


def a_job_watch(most: str = "420", **changes: Any) -> Watch:
    plain: dict[str, Any] = {
        "name": "tune",
        "gpu": GPUS,
        "gpu_names": GPUS,
        "gpu_count_min": 4,
        "gpu_count_max": 4,
        "max_job_cost_usd": Decimal(most),
        "job": JOB,
        "max_price_usd_gpu_hour": highest_usd_gpu_hour(JOB, Decimal(most), GPUS, range(4, 5)),
    }
    return a_watch(**(plain | changes))


def a100(usd_hour: float = 4.80, **changes: Any) -> Offer:
    plain = {"gpu": "A100 SXM 80GB", "gpu_count": 4, "quoted_usd_hour": usd_hour, "offer_id": "a", "machine_id": "1"}
    return an_offer(**(plain | changes))


def h100(usd_hour: float = 14.00, **changes: Any) -> Offer:
    plain = {"gpu": "H100 SXM", "gpu_count": 4, "quoted_usd_hour": usd_hour, "offer_id": "h", "machine_id": "2"}
    return an_offer(**(plain | changes))


def matched(watch: Watch, offer: Offer) -> Match:
    return match_of(watch, offer, price_for(watch, offer, VAST))


def an_evaluator(watch: Watch, uow_factory: UnitOfWorkFactory, executor: FakeExecutor | None = None) -> Evaluator:
    rules = EvaluationRules(
        commissions=VAST,
        budget=Budget(),
        dry_run=False,
        zone=ZoneInfo("UTC"),
        expected_views={watch.name: frozenset({("vastai", False)})},
        max_age=timedelta(minutes=2),
        links={},
    )
    ids = iter(f"id{n:010d}" for n in range(100))
    return Evaluator(uow_factory, rules, executor or FakeExecutor(), LaunchSlots(), lambda: next(ids))


def test_the_daemon_tells_the_cheapest_job_first_with_what_it_costs() -> None:
    watch, uow_factory = a_job_watch(), MemoryUnitOfWork()
    (decision,) = evaluate(an_evaluator(watch, uow_factory), [watch], an_answer(a100(), h100()), False, NOON)
    assert decision.reason is DecisionReason.FIRST_MATCH
    ((alert, _),) = uow_factory.alerts
    assert alert.headline == "tune: H100 SXM × 4 at $4.20/GPU-h, job $403.20"
    facts = dict(alert.facts)
    assert facts["Threshold"] == "$420.00 for the whole job"
    assert facts["Job"] == "$403.20 in all: work $403.20"
    assert facts["Hours"] == "24.0, 3× as fast as 4x A100 SXM 80GB"
    assert [line.marks[0] for line in alert.offers] == ["job $403.20", "job $414.72"]


@pytest.mark.parametrize(("action", "asked"), [(Action.ALERT, 1), (Action.LAUNCH, 2)])
def test_before_a_job_is_rented_the_whole_list_is_read(action: Action, asked: int) -> None:
    """The first page has the cheapest hourly prices; that is enough to alert, but not to rent."""
    watch = a_job_watch(action=action, launch=LaunchSpec(max_runtime_s=360_000.0))
    uow = an_answer(a100(4.75), completeness=Completeness.TRUNCATED, complete_to=4.9)
    market = ScriptedMarket(uow, an_answer(a100(4.75), h100(13.50)))
    executor = FakeExecutor()
    evaluator = an_evaluator(watch, MemoryUnitOfWork(), executor)
    hunter = Hunter(market, [watch], VAST["vastai"], evaluator, lambda *_: None, threading.Event())
    hunter.run_round(lambda: NOON, 30.0, 30.0)
    assert len(market.asked) == asked
    assert [start.launch.gpu for start in executor.started[:1]] == ["H100 SXM"][: asked - 1]


@pytest.mark.parametrize("reason", [RefusalReason.PAUSED, RefusalReason.BREAKER, RefusalReason.MAX_USD_DAY])
def test_while_nothing_may_be_rented_the_whole_list_is_not_read_at_every_poll(reason: RefusalReason) -> None:
    """It would use up the day's rows, and blind all other watches until midnight."""
    watch = a_job_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=360_000.0))
    uow = an_answer(a100(4.75), completeness=Completeness.TRUNCATED, complete_to=4.9)
    market, uow_factory = ScriptedMarket(uow), MemoryUnitOfWork(LaunchRefusal(reason, "not now"))
    evaluator = an_evaluator(watch, uow_factory)
    hunter = Hunter(market, [watch], VAST["vastai"], evaluator, lambda *_: None, threading.Event())
    for poll in range(5):
        hunter.run_round(lambda at=NOON + timedelta(seconds=28 * poll): at, 30.0, 30.0)  # type: ignore[misc]
    assert [query.limit is None for query in market.asked] == [False, True, False, False, False, False]
    evaluator._slots.free(watch.name)
    assert evaluator.will_rent(watch)


def test_an_alert_names_the_parts_of_a_range_and_what_is_not_known() -> None:
    job = msgspec.structs.replace(JOB, load_s=exactly(3600.0), image_gb=10.0)
    watch = a_job_watch("600", job=job)
    match = matched(watch, a100(download_mbps=None))
    decision = evaluate(an_evaluator(watch, MemoryUnitOfWork()), [watch], an_answer(a100()), False, NOON)[0]
    alert = offer_alerts.offer_alert(
        watch, msgspec.structs.replace(decision, matches=(match,)), alert_id="a", zone=ZoneInfo("UTC"), did=""
    )
    facts = dict(alert.facts)
    assert facts["Job"] == "$420.48 in all: work $414.72, getting ready $5.76"
    assert facts["Excluded"] == "download time, download cost: unknown"


def test_a_watch_by_price_is_reported_as_ever() -> None:
    watch, uow_factory = a_watch(), MemoryUnitOfWork()
    evaluate(an_evaluator(watch, uow_factory), [watch], an_answer(an_offer(observed_at=NOON)), False, NOON)
    ((alert, _),) = uow_factory.alerts
    assert "job" not in alert.headline
    assert not {"Job", "Hours"} & set(dict(alert.facts))


def test_the_launch_takes_the_cheapest_job_and_the_others_behind_it() -> None:
    watch = a_job_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=360_000.0))
    executor = FakeExecutor()
    evaluate(an_evaluator(watch, MemoryUnitOfWork(), executor), [watch], an_answer(a100(), h100()), False, NOON)
    start = executor.started[0]
    assert start.launch.gpu == "H100 SXM"
    assert [match.offer.offer_id for match in start.candidates] == ["h", "a"]


def test_a_quote_at_which_the_job_is_too_dear_is_not_rented() -> None:
    """The H100's hourly price stays far below the allowed one; its job does not stay under the limit."""
    watch = a_job_watch("420", launch=LaunchSpec(quote_ttl_s=5.0))
    match = matched(watch, a100(4.80))
    for usd_hour, fits in ((4.86, True), (4.87, False)):
        market = ScriptedMarket(an_answer(a100(usd_hour), at=NOON))
        quotes = Requoter(market, VAST["vastai"], watch, lambda: NOON)
        quote = quotes.requote(seen_at(match, NOON - timedelta(minutes=1)))
        assert (quote is not None) is fits
        assert quote is None or quote.job_microusd == round(usd_hour * 1.2 * 72 * 1e6)


@pytest.mark.parametrize(("bid", "fits"), [(None, False), (BidSpec(max_usd_gpu_hour=Decimal(9)), False)])
def test_a_bid_is_never_begun_at_which_the_job_is_too_dear(bid: BidSpec | None, fits: bool) -> None:
    watch = a_job_watch("420", spot=SpotPolicy.ONLY, launch=LaunchSpec(bid=bid))
    cheap = a100(4.80, spot=True, min_bid_usd_hour=6.00)
    assert (payable_match(matched(watch, cheap), watch, VAST["vastai"]) is not None) is fits


def test_a_question_about_a_job_is_kept_with_its_cost(database: Database) -> None:
    """Requested, stored, read back, reported: it is the same job."""
    watch = a_job_watch(action=Action.ASK, launch=LaunchSpec(max_runtime_s=360_000.0))
    evaluator = an_evaluator(watch, SqlDecisionStore(database))
    evaluate(evaluator, [watch], an_answer(a100(), h100()), False, NOON)
    (ask,) = SqlApprovalRepository(database).recent(NOON)
    assert ask.match.offer.gpu == "H100 SXM"
    assert ask.match.job_microusd == 403_200_000


def test_a_bid_is_raised_no_further_than_the_job_allows() -> None:
    bid = BidSpec(max_usd_gpu_hour=Decimal(9))
    by_job = a_job_watch("420", spot=SpotPolicy.ONLY, launch=LaunchSpec(bid=bid))
    match = matched(by_job, a100(4.80, spot=True))
    assert most_microusd_hour(match, by_job) == int(420e6 / 72)
    assert most_microusd_hour(match, msgspec.structs.replace(by_job, max_job_cost_usd=None)) == 36_000_000
    assert most_microusd_hour(matched(by_job, a100(4.80)), by_job) == 5_760_000


@given(st.floats(0.5, 9), st.floats(0, 200), st.floats(0, 1), st.sampled_from([0.0, 3600.0]))
def test_at_its_dearest_the_job_costs_its_limit(
    usd_hour: float, download_gb: float, load_h: float, min_billing_s: float
) -> None:
    job = msgspec.structs.replace(JOB, load_s=exactly(load_h * 3600))
    watch = a_job_watch("420", job=job, download_gb=download_gb)
    offer = a100(usd_hour, download_usd_gb=0.02, download_mbps=800.0)
    price = msgspec.structs.replace(price_for(watch, offer, VAST), min_billing_s=min_billing_s)
    highest_priced = max_job_microusd(watch, offer, price)
    assert highest_priced is not None
    at_it = msgspec.structs.replace(price, price_microusd_hour=highest_priced)
    above = msgspec.structs.replace(price, price_microusd_hour=highest_priced + 2)
    assert (job_microusd(watch, offer, at_it) or 0) <= 420_000_000
    assert (job_microusd(watch, offer, above) or 0) > 420_000_000


def test_check_ranks_by_the_job_and_asks_for_the_whole_list() -> None:
    """A list truncated at 64 rows by price may contain the cheapest hour, but not the cheapest job."""
    watch = a_job_watch()
    cut = an_answer(a100(4.75), completeness=Completeness.TRUNCATED, complete_to=4.9)
    whole = an_answer(a100(4.75), h100(13.50))
    market = ScriptedMarket(cut, whole)
    found = check_provider(market, [watch], VAST["vastai"], lambda: NOON)
    assert [match.offer.offer_id for match in found.matches["tune"]] == ["h", "a"]
    assert [query.limit is None for query in market.asked] == [False, True]
    assert found.report.ok


def test_it_is_rented_through_the_ledger_as_any_other(database: Database) -> None:
    watch = a_job_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=360_000.0))
    world = World(database, watch)
    world.market = ScriptedMarket(an_answer(a100(), h100()))
    world.start_process()
    found = matches(watch, [a100(), h100()], VAST, NOON)
    launch = world.rent(*found)
    assert launch.gpu == "H100 SXM"
    assert launch.state in {LaunchState.REQUESTED, LaunchState.STARTING}
