"""The owner's answer to an approval: exactly the quoted offer is rented, once, or nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from decimal import Decimal

import msgspec
import pytest

from gpuwatch.domain.launches.launch import Intent, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import Approval, ApprovalState
from gpuwatch.domain.market.money import Commission, threshold_microusd
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch
from gpuwatch.engine.launches.renting.owner_decisions import (
    ApprovalHandler,
    ApprovalOutcome,
    ApprovalReply,
    ApprovalTerms,
    watch_bound_to_quote,
)
from gpuwatch.errors import OfferGone, OrderRefused, ProviderDown, ProviderError, RefusalKind, UsageError
from gpuwatch.ports import Answer, Completeness, Market, Query
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import a_match, a_watch, an_offer, changed
from tests.engine.launch_world import World
from tests.engine.uow_fakes import an_answer

S = LaunchState
SPEC = LaunchSpec(max_runtime_s=3600.0, ready_within_s=900.0)
ASKS = a_watch(action=Action.ASK, launch=SPEC)
ID = "quotedabcdef"
MINUTE_S = 60.0


class ShopWindow:
    """Returns the test's offers, in their current state."""

    name = "vastai"

    def __init__(self, world: World, *offers: Offer) -> None:
        self._world = world
        self.offers = list(offers)
        self.error: ProviderError | None = None
        self.completeness = Completeness.COMPLETE
        self.asked: list[Query] = []

    def search(self, query: Query) -> Answer:
        self.asked.append(query)
        if self.error is not None:
            raise self.error
        return an_answer(*self.offers, at=self._world.now, completeness=self.completeness)


class Office:
    """Return an open approval, a minute later."""

    def __init__(self, store: Database, watch: Watch = ASKS, match: Match | None = None, dry_run: bool = False) -> None:
        self.world = World(store, watch)
        self.store, self.watch, self.dry_run = store, watch, dry_run
        self.match = a_match() if match is None else match
        self.window = ShopWindow(self.world, self.match.offer)
        self.budget = Budget()
        self.ask()
        self.world.pass_s(MINUTE_S)

    def ask(self) -> None:
        intent = Intent(watch=self.watch, match=self.match, launch_id=ID, dry_run=self.dry_run)
        with SqlDecisionStore(self.store).open() as uow:
            got = uow.request_approval(intent, Budget(), self.world.now + timedelta(minutes=15), self.world.now, True)
        assert isinstance(got, Approval)

    def respondent(self, watch: Watch | None = None) -> ApprovalHandler:
        terms = ApprovalTerms(
            budget=self.budget, dry_run=self.dry_run, zone=UTC, commissions={"vastai": Commission("0.20")}
        )
        named = self.watch if watch is None else watch
        return ApprovalHandler(
            SqlApprovalRepository(self.store),
            {named.name: named},
            terms,
            self._market,
            lambda provider, watch: self.world.executor,
            lambda: self.world.now,
        )

    def _market(self, provider: str) -> Market:
        assert provider == "vastai"
        return self.window

    def approve(self, approval_id: str = ID) -> ApprovalReply:
        return self.respondent().approve(approval_id)

    @property
    def state(self) -> ApprovalState:
        found = SqlApprovalRepository(self.store).get(ID)
        assert found is not None
        return found.state_at(self.world.now)

    @property
    def orders(self) -> list[str]:
        return [order.offer_id for order in self.world.provider.orders]


@pytest.fixture
def office(database: Database) -> Iterator[Office]:
    return Office(database)


# --- successful rents -------------------------------------------------------------------------------------------------


def test_an_approval_rents_the_quoted_machine_and_waits_for_the_answer(office: Office) -> None:
    reply = office.approve()
    assert (reply.outcome, office.orders, office.state) == (ApprovalOutcome.RENTED, ["1001"], ApprovalState.APPROVED)
    assert reply.launch is not None
    assert (reply.launch.launch_id, reply.launch.state, reply.launch.instance_id) == (ID, S.STARTING, "9000")
    assert "instance 9000" in reply.text


def test_the_same_machine_is_found_under_its_new_offer_id(office: Office) -> None:
    office.window.offers = [changed(office.match.offer, offer_id="2002")]
    assert office.approve().outcome is ApprovalOutcome.RENTED
    assert office.orders == ["2002"]


def test_cheaper_is_fine_and_is_what_the_launch_costs(office: Office) -> None:
    office.window.offers = [changed(office.match.offer, quoted_usd_hour=2.5)]
    reply = office.approve()
    assert reply.outcome is ApprovalOutcome.RENTED
    assert reply.launch is not None
    assert reply.launch.price_microusd_hour == 3_000_000


def test_a_rise_of_a_micro_dollar_is_refused_with_the_new_price(database: Database) -> None:
    office = Office(database, match=a_match(an_offer(quoted_usd_hour=2.0)))  # far under the threshold
    office.window.offers = [an_offer(quoted_usd_hour=2.000001)]
    reply = office.approve()
    assert (reply.outcome, office.orders, office.state) == (ApprovalOutcome.REFUSED, [], ApprovalState.REFUSED)
    assert "it now costs $2.400001 an hour" in reply.text
    assert reply.text.endswith("$2.40")


def test_another_machine_is_never_rented_instead(office: Office) -> None:
    office.window.offers = [an_offer(machine_id="78", offer_id="2", quoted_usd_hour=1.0)]
    reply = office.approve()
    assert (reply.outcome, office.orders, office.state) == (ApprovalOutcome.REFUSED, [], ApprovalState.REFUSED)
    assert "machine 77" in reply.text


@pytest.mark.parametrize("change", [{"gpu_count": 2}, {"spot": True}, {"gpu": "H100 PCIe"}])
def test_another_gpu_count_or_rental_type_of_that_machine_is_not_it(office: Office, change: dict[str, object]) -> None:
    office.window.offers = [changed(office.match.offer, **change)]
    assert office.approve().outcome is ApprovalOutcome.REFUSED
    assert office.orders == []


def test_what_no_longer_fits_the_watch_is_refused(office: Office) -> None:
    stricter = msgspec.structs.replace(ASKS, min_reliability=0.999)
    reply = office.respondent(stricter).approve(ID)
    assert (reply.outcome, office.orders) == (ApprovalOutcome.REFUSED, [])
    assert "min_reliability" in reply.text


def test_the_price_is_looked_at_anew_whatever_quote_ttl_says(database: Database) -> None:
    watch = msgspec.structs.replace(ASKS, launch=msgspec.structs.replace(SPEC, quote_ttl_s=3600.0))
    office = Office(database, watch)
    office.window.offers = []
    assert office.approve().outcome is ApprovalOutcome.REFUSED
    assert len(office.window.asked) == 1


def test_when_the_offer_goes_at_the_last_moment_no_other_is_tried(office: Office) -> None:
    office.window.offers.append(an_offer(machine_id="78", offer_id="2", quoted_usd_hour=1.0))
    office.world.provider.on_create = [OfferGone("gone")]
    reply = office.approve()
    assert (reply.outcome, office.orders) == (ApprovalOutcome.REFUSED, ["1001"])
    assert reply.launch is not None
    assert office.world.state(reply.launch) is S.FAILED


@pytest.mark.parametrize("gpus", [1, 3, 7])
def test_bound_to_its_quote_a_watch_takes_that_price_and_not_a_micro_dollar_more(gpus: int) -> None:
    match = a_match(an_offer(gpu_count=gpus, quoted_usd_hour=8.333333))
    ask = Approval(
        approval_id=ID, watch="h100", match=match, created_at=match.offer.observed_at, deadline=match.offer.observed_at
    )
    wide = msgspec.structs.replace(ASKS, max_price_usd_gpu_hour=Decimal(100))
    most = watch_bound_to_quote(ask, wide).max_price_usd_gpu_hour
    assert threshold_microusd(most, gpus) == match.price.price_microusd_hour


def test_a_spot_quote_is_what_would_be_bid(database: Database) -> None:
    offer = an_offer(spot=True, quoted_usd_hour=1.0, min_bid_usd_hour=0.9)
    watch = msgspec.structs.replace(ASKS, spot=SpotPolicy.ANY)
    office = Office(database, watch, a_match(offer))
    assert office.approve().outcome is ApprovalOutcome.RENTED
    assert office.world.provider.orders[0].bid_usd_hour is not None
    assert all(query.spot for query in office.window.asked)


# --- no launch --------------------------------------------------------------------------------------------------------


def test_a_late_approval_never_launches(office: Office) -> None:
    office.world.pass_s(14 * 60)
    reply = office.approve()
    assert (reply.outcome, office.orders, office.window.asked) == (ApprovalOutcome.REFUSED, [], [])
    assert "12:15" in reply.text
    assert office.world.repository.all() == []


def test_an_approval_that_becomes_late_while_the_price_is_checked_never_launches(office: Office) -> None:
    search = office.window.search

    def slow(query: Query) -> Answer:
        office.world.pass_s(20 * 60)
        return search(query)

    office.window.search = slow  # type: ignore[method-assign]
    assert office.approve().outcome is ApprovalOutcome.REFUSED
    assert office.orders == []


def test_a_doubled_approval_says_what_came_of_the_first(office: Office) -> None:
    office.approve()
    again = office.approve()
    assert (again.outcome, again.changed, office.orders) == (ApprovalOutcome.REFUSED, False, ["1001"])
    assert f"launch {ID}" in again.text


@pytest.mark.parametrize("forged", ["zzzzzzzzzzzz", "", "1", "' OR 1=1 --", "A" * 12, "\x1b[31m" * 50, ID + "\n"])
def test_a_forged_id_is_unknown(office: Office, forged: str) -> None:
    with pytest.raises(UsageError) as error:
        office.approve(forged)
    assert "\x1b" not in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert (office.orders, office.state) == ([], ApprovalState.OPEN)


def test_a_denied_ask_never_launches(office: Office) -> None:
    assert office.respondent().deny(ID, "no").outcome is ApprovalOutcome.DENIED
    reply = office.approve()
    assert (reply.outcome, office.orders) == (ApprovalOutcome.REFUSED, [])
    assert "denied" in reply.text


def test_an_approved_ask_is_not_denied_any_more(office: Office) -> None:
    office.approve()
    reply = office.respondent().deny(ID)
    assert reply.outcome is ApprovalOutcome.REFUSED
    assert f"launch {ID}" in reply.text


def test_a_refused_ask_stays_refused_when_the_price_comes_back(office: Office) -> None:
    offers = office.window.offers
    office.window.offers = []
    office.approve()
    office.window.offers = offers
    assert office.approve().outcome is ApprovalOutcome.REFUSED
    assert office.orders == []


@pytest.mark.parametrize("action", [Action.ALERT, Action.LAUNCH])
def test_a_watch_that_does_not_ask_any_more_rents_nothing(office: Office, action: Action) -> None:
    with pytest.raises(UsageError, match="action"):
        office.respondent(msgspec.structs.replace(ASKS, action=action)).approve(ID)
    assert office.orders == []


def test_a_watch_that_left_the_settings_rents_nothing(office: Office) -> None:
    with pytest.raises(UsageError, match="no longer in the settings"):
        office.respondent(msgspec.structs.replace(ASKS, name="another")).approve(ID)
    assert office.orders == []


def test_outside_its_windows_a_watch_that_ends_there_rents_nothing(office: Office) -> None:
    closed = msgspec.structs.replace(ASKS, active=("02:00-03:00",))
    ends = msgspec.structs.replace(closed, launch=msgspec.structs.replace(SPEC, stop_outside=True))
    with pytest.raises(UsageError, match="stop_outside"):
        office.respondent(ends).approve(ID)
    assert office.respondent(closed).approve(ID).outcome is ApprovalOutcome.RENTED


# --- unreported outcomes, and binding ---------------------------------------------------------------------------------


def test_without_an_answer_the_question_stays_open(office: Office) -> None:
    office.window.error = ProviderDown("vastai: 502")
    reply = office.approve()
    assert (reply.outcome, office.state, office.orders) == (ApprovalOutcome.NO_ANSWER, ApprovalState.OPEN, [])
    office.window.error = None
    assert office.approve().outcome is ApprovalOutcome.RENTED


def test_half_an_answer_without_the_machine_proves_nothing(office: Office) -> None:
    office.window.offers, office.window.completeness = [], Completeness.PARTIAL
    assert (office.approve().outcome, office.state) == (ApprovalOutcome.NO_ANSWER, ApprovalState.OPEN)


def test_a_budget_that_forbids_it_leaves_the_question_open(office: Office) -> None:
    office.budget = Budget(max_usd_hour=Decimal("3.59"))
    reply = office.approve()
    assert (reply.outcome, office.state, office.orders) == (ApprovalOutcome.REFUSED, ApprovalState.OPEN, [])
    assert "max_usd_hour" in reply.text
    office.budget = Budget(max_usd_hour=Decimal("3.60"))
    assert office.approve().outcome is ApprovalOutcome.RENTED


def test_a_lost_answer_is_no_rent_and_is_never_sent_again(office: Office) -> None:
    office.world.provider.on_create = ["lost"]
    reply = office.approve()
    assert reply.outcome is ApprovalOutcome.NO_ANSWER
    assert reply.launch is not None
    office.world.start_process()
    office.world.look(3)
    assert (office.world.state(reply.launch), len(office.orders)) == (S.STARTING, 1)


def test_a_crash_between_the_approval_and_the_order_leaves_a_launch_that_is_looked_for(office: Office) -> None:
    """The store has `requested`, and the approval names its launch; nothing is sent afterwards."""
    ask = SqlApprovalRepository(office.store).get(ID)
    assert ask is not None
    intent = Intent(watch=office.watch, match=ask.match, launch_id=ID, dry_run=False)
    launch = SqlApprovalRepository(office.store).approve(ID, intent, Budget(), office.world.now)
    office.world.start_process()
    assert office.approve().outcome is ApprovalOutcome.REFUSED
    office.world.look(200)
    found = office.world.repository.get(ID)
    assert found is not None
    assert launch is not None
    assert (found.state in {S.FAILED, S.HELD}, office.orders) == (True, [])


def test_the_providers_refusal_is_reported(office: Office) -> None:
    office.world.provider.on_create = [OrderRefused("no credit left", RefusalKind.NO_CREDIT)]
    reply = office.approve()
    assert reply.outcome is ApprovalOutcome.REFUSED
    assert "credit" in reply.text


def test_an_order_that_never_left_is_no_answer(office: Office) -> None:
    office.world.provider.on_create = [OrderRefused("no route", RefusalKind.NOT_SENT)]
    assert office.approve().outcome is ApprovalOutcome.NO_ANSWER


def test_a_dry_run_says_what_it_would_rent_and_asks_for_no_key(database: Database) -> None:
    office = Office(database, dry_run=True)
    reply = office.approve()
    assert (reply.outcome, office.orders) == (ApprovalOutcome.WOULD_RENT, [])
    assert "machine 77" in reply.text
    assert reply.launch is not None
    assert (reply.launch.dry_run, reply.launch.state) == (True, S.ENDED)
