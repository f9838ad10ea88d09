"""One launch over the candidates of several providers: which requests a refusal stops, and which it does not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchRefusal, LaunchState
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import OfferTerms
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launches.renting.candidate_loop import ProviderContext
from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.errors import (
    OfferGone,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    ProviderDown,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.ports import AlertKind, Instance, InstanceState
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.renting_blocks import SqlSkippedScopes
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_match, an_offer, seen_at
from tests.engine.launch_world import RENTS, AnyAccount
from tests.engine.lying_provider import LyingProvider
from tests.engine.uow_fakes import ScriptedMarket, an_answer
from tests.outbox import new_alerts
from tests.reserving import launch_or_refusal

QUOTA = OrderRefused("VcpuLimitExceeded: 0 vCPUs", RefusalKind.OTHER, RefusalScope.REGION_FAMILY)
NO_SUBNET = OrderRefused("No default subnet", RefusalKind.BAD_ORDER, RefusalScope.ZONE)
NO_CAPACITY = OfferGone("InsufficientInstanceCapacity", RefusalScope.OFFER)


class Clouds:
    """Three providers that can lie, one database, and one gpuwatch."""

    def __init__(self, store: Database, label_length: int = 64) -> None:
        self.store, self.now, self.tick_s = store, NOON, 0.0
        self.repository, self.scopes = SqlLaunchRepository(store), SqlSkippedScopes(store)
        self.places = {name: LyingProvider() for name in ("aws", "runpod", "vastai")}
        self.ids = (f"{'a' * 10}{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in itertools.count())
        alerts, slots = LaunchAlerts(lambda: next(self.ids)), LaunchSlots()
        self.contexts = {}
        self.reconcilers = {}
        for name, place in self.places.items():
            place.name = name
            self.reconcilers[name] = LaunchReconciler(
                self.repository,
                place,
                alerts,
                watches={RENTS.name: RENTS},
                in_flight=slots.in_flight,
                monotonic=lambda: self.tick_s,
                owner=AnyAccount(),  # type: ignore[arg-type]
            )
            self.reconcilers[name].reconcile(self.now)
            self.contexts[name] = ProviderContext(
                place,
                ScriptedMarket(an_answer()),
                Commission(),
                reconciler=self.reconcilers[name],
                scopes=self.scopes,
                label_length=label_length if name == "runpod" else 64,
                account_id=lambda name=name: f"{name}-account",  # type: ignore[misc]
            )
        self.executor = LaunchExecutor(self.repository, self.contexts, alerts, lambda: self.now, Budget(), slots)

    def reserve(self, *matches: Match) -> Launch | LaunchRefusal:
        first, *others = matches
        intent = Intent(watch=RENTS, match=first, launch_id=next(self.ids), dry_run=False, alternatives=tuple(others))
        with self.store.write() as connection:
            return launch_or_refusal(connection, intent, Budget(), self.now)

    def rent(self, *matches: Match) -> Launch:
        launch = self.reserve(*matches)
        assert isinstance(launch, Launch), launch
        start = next(i for i, match in enumerate(matches) if match.offer.offer_id == launch.offer_id)
        return self.executor.execute(launch, RENTS, [seen_at(match, self.now) for match in matches[start:]])

    def asked(self, name: str) -> list[str]:
        return [order.offer_id for order in self.places[name].orders]

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.tick_s += seconds


def offer(provider: str, offer_id: str, listed: float = 2.0, **changes: object) -> Match:
    return a_match(
        an_offer(provider=provider, offer_id=offer_id, machine_id=f"m-{offer_id}", quoted_usd_hour=listed, **changes)
    )


def ec2(zone: str, machine: str = "p5.48xlarge", quota: str = "P", spot: bool = False) -> Match:
    region = zone[:-1]
    terms = OfferTerms(fungible=True, zone=zone, quota=f"{region} {quota}", instance_type=machine)
    return offer("aws", f"{region}/{zone}/{machine}", region=region, terms=terms, spot=spot)


@pytest.fixture
def clouds(sqlite_database: Database) -> Iterator[Clouds]:
    return Clouds(sqlite_database)


def test_a_quota_skips_its_region_and_family_and_the_ladder_goes_on_to_the_next_zone(clouds: Clouds) -> None:
    clouds.places["aws"].on_create = [QUOTA]
    launch = clouds.rent(ec2("us-east-1a"), ec2("us-east-1b"), ec2("us-west-2a"))
    assert clouds.asked("aws") == ["us-east-1/us-east-1a/p5.48xlarge", "us-west-2/us-west-2a/p5.48xlarge"]
    assert launch.state is LaunchState.STARTING
    assert [one.name for one in clouds.scopes.in_force(clouds.now)] == ["us-east-1 P"]


def test_a_zone_without_a_subnet_says_nothing_of_the_next_zone(clouds: Clouds) -> None:
    clouds.places["aws"].on_create = [NO_SUBNET]
    launch = clouds.rent(ec2("us-east-1a"), ec2("us-east-1a", "g5.xlarge", "G"), ec2("us-east-1b"))
    assert clouds.asked("aws") == ["us-east-1/us-east-1a/p5.48xlarge", "us-east-1/us-east-1b/p5.48xlarge"]
    assert launch.state is LaunchState.STARTING


def test_no_capacity_skips_one_type_in_one_zone(clouds: Clouds) -> None:
    clouds.places["aws"].on_create = [NO_CAPACITY]
    clouds.rent(ec2("us-east-1a"), ec2("us-east-1a", "p4d.24xlarge"))
    assert clouds.asked("aws") == ["us-east-1/us-east-1a/p5.48xlarge", "us-east-1/us-east-1a/p4d.24xlarge"]


def test_the_next_provider_rents_it_under_its_own_account_and_label(sqlite_database: Database) -> None:
    clouds = Clouds(sqlite_database, label_length=30)
    clouds.places["aws"].on_create = [QUOTA, OrderRefused("Insufficient funds", RefusalKind.NO_CREDIT)]
    launch = clouds.rent(ec2("us-east-1a"), ec2("us-west-2a"), ec2("eu-west-1a"), offer("runpod", "r1"))
    assert (launch.provider, launch.account_id, launch.offer_id) == ("runpod", "runpod-account", "r1")
    assert len(clouds.asked("aws")) == 2, "the account is out of credit everywhere"
    (order,) = clouds.places["runpod"].orders
    assert order.label == launch.label
    assert len(order.label) <= 30
    assert clouds.places["runpod"].made == [(launch.label, launch.instance_id)]
    events = clouds.repository.events(launch.launch_id)
    moved = [(event.cause, event.provider_words) for event in events if event.cause.startswith("offer ")]
    assert moved[-1] == ("offer r1 at runpod", "no credit: Insufficient funds")


@pytest.mark.parametrize(
    "error",
    [
        OrderRefused("no key", RefusalKind.KEY),
        OrderRefused("wrong", RefusalKind.BAD_ORDER),
        OrderRefused("no", RefusalKind.OTHER),
        OrderRefused("not sent", RefusalKind.NOT_SENT),
        OrderRateLimited("slow down", 5.0),
    ],
)
def test_a_refusal_of_one_provider_never_stops_an_order_at_the_next(clouds: Clouds, error: Exception) -> None:
    clouds.places["runpod"].on_create = [error]
    launch = clouds.rent(offer("runpod", "r1"), offer("runpod", "r2"), offer("vastai", "v1"))
    assert (clouds.asked("runpod"), clouds.asked("vastai")) == (["r1"], ["v1"])
    assert (launch.provider, launch.state) == ("vastai", LaunchState.STARTING)


@pytest.mark.parametrize("error", [OutcomeUnknown("no answer"), ProviderDown("timeout")])
def test_an_unknown_outcome_still_stops_the_ladder(clouds: Clouds, error: Exception) -> None:
    clouds.places["runpod"].on_create = [error]
    launch = clouds.rent(offer("runpod", "r1"), offer("vastai", "v1"), ec2("us-east-1a"))
    assert (launch.state, launch.provider) == (LaunchState.UNKNOWN, "runpod")
    assert clouds.asked("vastai") == clouds.asked("aws") == []


def test_an_answer_lost_at_the_second_provider_is_looked_for_there(clouds: Clouds) -> None:
    clouds.places["aws"].on_create = [QUOTA]
    clouds.places["runpod"].on_create = ["lost"]
    launch = clouds.rent(ec2("us-east-1a"), offer("runpod", "r1"))
    assert (launch.state, launch.provider) == (LaunchState.UNKNOWN, "runpod")
    clouds.pass_s(5)
    for reconciler in clouds.reconcilers.values():
        reconciler.reconcile(clouds.now)
    found = clouds.repository.get(launch.launch_id)
    assert found is not None
    assert (found.state, found.instance_id) == (LaunchState.STARTING, "9000")


@pytest.mark.parametrize("over", [False, True])
def test_what_a_provider_made_after_all_that_had_refused_is_reported_and_holds_renting(
    clouds: Clouds, over: bool
) -> None:
    """Its label is searched at each requested provider, and never mistaken for the next one's instance."""
    clouds.places["aws"].on_create = [QUOTA]
    clouds.places["runpod"].on_create = [OfferGone("gone")] if over else []
    launch = clouds.rent(ec2("us-east-1a"), offer("runpod", "r1"))
    new_alerts(clouds.store)
    late = Instance(instance_id="i-1", label=launch.label, state=InstanceState.RUNNING, status="running", spot=False)
    clouds.places["aws"].alive["i-1"] = late
    clouds.reconcilers["aws"].reconcile(clouds.now)
    found = clouds.repository.get(launch.launch_id)
    assert found is not None
    assert (found.provider, found.state, found.instance_id) == ("runpod", launch.state, launch.instance_id)
    assert [alert.kind for alert in new_alerts(clouds.store)] == [AlertKind.ORPHAN]
    assert clouds.reconcilers["aws"].not_ready() is not None
    assert clouds.places["aws"].destroys == []


def test_a_skipped_scope_holds_for_the_next_launches_and_expires(clouds: Clouds) -> None:
    clouds.places["aws"].on_create = [QUOTA]
    first = clouds.rent(ec2("us-east-1a"))
    assert (first.state, first.ended_because(EndReason.REFUSED)) == (LaunchState.FAILED, True)
    refusal = clouds.reserve(ec2("us-east-1b"))
    assert isinstance(refusal, LaunchRefusal)
    assert refusal.text == ("aws: us-east-1 P is skipped until 2026-11-21 13:00:00 UTC (VcpuLimitExceeded: 0 vCPUs)")
    clouds.pass_s(3601)
    assert isinstance(clouds.reserve(ec2("us-east-1b")), Launch)


def test_resume_asks_again_at_once(clouds: Clouds) -> None:
    clouds.places["aws"].on_create = [QUOTA]
    clouds.rent(ec2("us-east-1a"))
    clouds.pass_s(1)
    SqlPauseRepository(clouds.store).resume(RENTS.name, clouds.now, "resumed")
    assert isinstance(clouds.reserve(ec2("us-east-1b")), Launch)


def test_a_wrong_order_is_the_watchs_own(clouds: Clouds) -> None:
    clouds.places["runpod"].on_create = [OrderRefused("no such image", RefusalKind.BAD_ORDER)]
    clouds.rent(offer("runpod", "r1"), offer("vastai", "v1"))
    (scope,) = clouds.scopes.in_force(clouds.now)
    assert (scope.watch, scope.covers(offer("runpod", "r2").offer, "another watch")) == (RENTS.name, False)


def test_a_provider_held_meanwhile_is_passed_over(clouds: Clouds) -> None:
    clouds.places["aws"].on_create = [QUOTA]
    clouds.contexts["runpod"] = msgspec.structs.replace(clouds.contexts["runpod"], renting_fault="rescue")
    launch = clouds.rent(ec2("us-east-1a"), offer("runpod", "r1"), offer("vastai", "v1"))
    assert (launch.provider, clouds.asked("runpod")) == ("vastai", [])
