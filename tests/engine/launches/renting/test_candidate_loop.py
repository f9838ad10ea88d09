"""The candidates of a launch, the last check before money is spent, and the orders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import BidSpec, LaunchSpec, RegistrySpec, VolumeSpec
from gpuwatch.engine.launches.renting.launch_orders import build_order
from gpuwatch.engine.launches.renting.requoter import STALE_S, BalanceCache
from gpuwatch.errors import OfferGone, PayloadChanged, ProviderDown, ProviderError, RateLimited, StoreError
from gpuwatch.ports import Created, InstanceState, Order
from gpuwatch.secret import Secret
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_match, an_offer, changed
from tests.engine.launch_world import RENTS, World, match_on
from tests.engine.lying_provider import LyingProvider
from tests.engine.uow_fakes import an_answer

S = LaunchState


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    return World(sqlite_database)


def reserved(world: World) -> Launch:
    launch = world.reserve()
    assert isinstance(launch, Launch)
    return launch


# --- candidates -------------------------------------------------------------------------------------------------------
def test_the_way_down_the_ladder_is_bounded_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each offer is gone after a minute: with two minutes, the third is not requested."""
    world.watch = changed(RENTS, launch=LaunchSpec(max_runtime_s=3600.0, try_for_s=120.0, quote_ttl_s=1e9))
    world.start_process()
    asked: list[str] = []

    def gone(order: Order) -> Created:
        asked.append(order.offer_id)
        world.pass_s(60.0)
        raise OfferGone("no_such_ask")

    monkeypatch.setattr(world.provider, "create", gone)
    launch = world.rent(match_on("1", "11"), match_on("2", "22"), match_on("3", "33"))
    assert asked == ["11", "22"]
    assert (launch.state, launch.ended_because(EndReason.OFFERS_GONE)) == (S.FAILED, True)


def stock(place: str, listed: float = 3.0) -> Match:
    """Stock of a place."""
    offer = an_offer(machine_id=place, offer_id=place, quoted_usd_hour=listed, terms=OfferTerms(fungible=True))
    return a_match(offer)


def test_a_launch_under_way_goes_to_a_place_that_failed_lately_last(world: World) -> None:
    """The reserved place is gone meanwhile: the dearer third one comes before the one that failed."""
    places = stock("FIN-01"), stock("FIN-02"), stock("FIN-03", 3.2)
    world.watch = changed(world.watch, launch=LaunchSpec(max_total=0, quote_ttl_s=1e9))
    world.start_process()
    world.rent(places[0])
    world.provider.turns(InstanceState.FAILED, "error")
    world.look(6)
    assert [launch.state for launch in world.repository.alive("vastai")] == []
    world.provider.on_create = [OfferGone("sold out"), OfferGone("sold out")]
    reserved = world.reserve(*places)
    assert isinstance(reserved, Launch)
    assert reserved.offer_id == "FIN-02"
    launch = world.execute(reserved, places[1], places[0], places[2])
    assert [order.offer_id for order in world.provider.orders] == ["FIN-01", "FIN-02", "FIN-03", "FIN-01"]
    assert (launch.state, launch.offer_id) == (S.STARTING, "FIN-01")


@pytest.mark.parametrize("error", [PayloadChanged("no JSON"), ProviderDown("timeout"), RateLimited("slow down")])
def test_an_order_that_fails_like_a_question_may_have_been_carried_out(world: World, error: ProviderError) -> None:
    """A plugin may fail to read the answer to its order: that causes no second order."""
    world.provider.on_create = [error]
    launch = world.rent(match_on("1", "11"), match_on("2", "22"))
    assert world.state(launch) is S.UNKNOWN
    assert len(world.provider.orders) == 1


def test_a_pause_between_intent_and_order_holds_the_order_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = LaunchRefusal(RefusalReason.PAUSED, "renting is paused until you resume it")
    monkeypatch.setattr(world.repository, "may_send", lambda launch, now: refusal)
    launch = world.execute(reserved(world), a_match())
    assert world.provider.orders == []
    assert launch.end_reason == "renting is paused: renting is paused until you resume it"


@pytest.mark.parametrize("step", ["may_send", "retarget"])
def test_a_store_that_fails_before_the_order_ends_the_launch_instead_of_blocking_its_slot(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Nothing was sent, so nobody has to look for an instance before the watch may rent again."""
    launch = reserved(world)
    world.market.script = [an_answer(an_offer(offer_id="2002"))]
    world.pass_s(30)  # the offer is quoted again, and its new id is stored

    def fails(*args: object, **named: object) -> None:
        raise StoreError("the server closed the connection")

    with monkeypatch.context() as patch:
        patch.setattr(world.repository, step, fails)
        launch = world.execute(launch, a_match(), seen_s_ago=30)
    assert world.provider.orders == []
    assert launch.end_reason == EndReason.NOT_SENT.text("the server closed the connection")
    assert world.state(launch) is S.FAILED
    assert world.rent().state is S.STARTING


# --- the balance ------------------------------------------------------------------------------------------------------
class Purseful(LyingProvider):
    def __init__(self, *credits_usd: float | None) -> None:
        super().__init__()
        self.credits = list(credits_usd)

    def credit_usd(self) -> float | None:
        if not self.credits:
            raise ProviderDown("502")
        return self.credits.pop(0)


def test_less_than_one_hour_on_the_account_is_too_little() -> None:
    balance = BalanceCache(Purseful(3.59), lambda: 0.0)
    assert balance.why_unaffordable(3_600_000) is None  # unknown so far
    balance.refresh()
    assert balance.why_unaffordable(3_600_000) == "the balance of $3.59 at vastai is less than one hour at $3.60"
    assert balance.why_unaffordable(3_590_000) is None


def test_a_balance_that_the_provider_does_not_tell_refuses_nothing() -> None:
    balance = BalanceCache(Purseful(None), lambda: 0.0)
    balance.refresh()
    assert balance.why_unaffordable(10**9) is None


def test_an_old_balance_says_nothing_and_a_failed_look_keeps_the_last() -> None:
    ticks = [0.0]
    balance = BalanceCache(Purseful(1.0), lambda: ticks[0])
    balance.refresh()
    balance.refresh()  # the provider is down now
    assert balance.why_unaffordable(3_600_000) is not None
    ticks[0] = STALE_S + 1
    assert balance.why_unaffordable(3_600_000) is None


def test_a_rent_that_cannot_be_paid_for_an_hour_is_not_sent(world: World) -> None:
    balance = BalanceCache(Purseful(0.4), lambda: 0.0)
    balance.refresh()
    contexts = world.executor._contexts
    world.executor._contexts = {name: changed(context, balance=balance) for name, context in contexts.items()}
    launch = world.execute(reserved(world), a_match())
    assert world.provider.orders == []
    assert (launch.state, launch.ended_because(EndReason.NO_CREDIT)) == (S.FAILED, True)


# --- orders -----------------------------------------------------------------------------------------------------------
def test_all_that_the_owner_set_is_ordered(world: World) -> None:
    spec = LaunchSpec(
        image="me/train:1",
        onstart="run",
        env={"A": "b", "GPUWATCH_WATCH": "forged"},
        ports=("8000", "53/udp"),
        runtype="jupyter",
        template="abc",
        registry=RegistrySpec(server="ghcr.io", username="me", password=Secret("secret-word")),
        volume=VolumeSpec(mount="/data", volume_id="9"),
        label_extra="night run",
        max_runtime_s=3600.0,
        ready_within_s=900.0,
        self_destruct=True,
    )
    world.watch = changed(RENTS, launch=spec)
    launch = reserved(world)
    order = build_order(launch, a_match(), world.watch)
    assert order.label == f"gpuwatch-{launch.launch_id}-{launch.install_id}-{launch.watch_id} night run"
    assert order.self_destruct_at == NOON + timedelta(seconds=4500)
    assert dict(order.env) == {
        "A": "b",
        "GPUWATCH_WATCH": "h100",
        "GPUWATCH_LAUNCH_ID": launch.launch_id,
        "GPUWATCH_DEADLINE": "2026-11-21T13:15:00Z",
    }
    assert (order.ports, order.runtype, order.template, order.onstart) == (("8000", "53/udp"), "jupyter", "abc", "run")
    assert order.registry is not None
    assert order.volume is not None
    assert (order.registry.server, order.volume.mount) == ("ghcr.io", "/data")
    assert "secret-word" not in repr(order) + repr(world.watch)


def test_without_self_destruct_the_instance_does_not_end_itself(world: World) -> None:
    assert build_order(reserved(world), a_match(), world.watch).self_destruct_at is None


def test_by_itself_it_does_so_only_where_that_time_can_be_moved(world: World) -> None:
    watch = changed(world.watch, launch=LaunchSpec(self_destruct="auto", max_runtime_s=3600.0))
    launch = reserved(world)
    assert build_order(launch, a_match(), watch).self_destruct_at is None
    assert build_order(launch, a_match(), watch, moves_ends=True).self_destruct_at == launch.deadline is not None


def test_the_label_of_an_owner_is_found_again(world: World) -> None:
    world.watch = changed(RENTS, launch=LaunchSpec(max_runtime_s=3600.0, label_extra="night run"))
    world.start_process()
    world.provider.on_create = ["lost"]
    launch = world.rent()
    assert launch.state is S.UNKNOWN
    world.look()
    assert world.state(launch) is S.STARTING


# --- bids -------------------------------------------------------------------------------------------------------------
def spot(quoted: float = 2.0, least: float = 2.0) -> Offer:
    return an_offer(spot=True, quoted_usd_hour=quoted, min_bid_usd_hour=least, disk_usd_gb_month=None)


@pytest.mark.parametrize(
    ("most", "step", "bid"), [("3.60", "0.10", 2.1), ("2.46", "0.10", 2.05), ("3.60", "0", 2.0), ("9", "5", 7.0)]
)
def test_the_first_bid_is_a_step_above_the_least_and_never_above_its_maximum(
    world: World, most: str, step: str, bid: float
) -> None:
    spec = LaunchSpec(max_runtime_s=3600.0, bid=bid_spec(most, step))
    world.watch = changed(RENTS, launch=spec)
    world.start_process()
    launch = world.rent(a_match(spot()))
    assert world.provider.orders[0].bid_usd_hour == pytest.approx(bid)
    assert launch.bid_microusd_hour == round(bid * 1e6)
    assert launch.price_microusd_hour == round(bid * 1.2e6)
    assert launch.bound_microusd_hour == max(round(Decimal(most) * 10**6), launch.price_microusd_hour)


def bid_spec(most: str, step: str) -> BidSpec:
    return BidSpec(max_usd_gpu_hour=Decimal(most), step_usd_gpu_hour=Decimal(step))


def test_a_least_bid_above_the_owners_maximum_is_not_bid(world: World) -> None:
    world.watch = changed(RENTS, launch=LaunchSpec(max_runtime_s=3600.0, bid=bid_spec("2.00", "0.10")))
    world.start_process()
    launch = world.rent(a_match(spot(1.0, 2.0)))
    assert world.provider.orders == []
    assert launch.ended_because(EndReason.PRICE_ROSE)


def test_the_disk_that_is_ordered_is_the_one_that_was_priced(world: World) -> None:
    launch = reserved(world)
    without = a_match(an_offer(quoted_disk_gb=0.0, disk_usd_gb_month=None))
    assert build_order(launch, without, world.watch).disk_gb == 0.0
    assert build_order(launch, without, changed(world.watch, disk_gb=5.0)).disk_gb == 5.0


def test_the_key_of_a_job_lets_in_root_and_the_user_of_a_virtual_machine_s_image(world: World, tmp_path: Path) -> None:
    """Lambda, AWS and Hyperstack accept the login `ubuntu`, and run the first script as root."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPleaseLetMeIn gpuwatch"
    for folder in ("root", "home/ubuntu/.ssh", "home/user"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home/ubuntu/.ssh/authorized_keys").write_text("ssh-ed25519 AAAA owner\n")
    script = build_order(reserved(world), a_match(), world.watch, key).onstart
    assert script is not None
    assert len(script) < 600  # vast.ai accepts 4,048 characters, including the owner's script
    here = script.replace("/root", f"{tmp_path}/root").replace("/home/", f"{tmp_path}/home/")
    for _ in range(2):
        path_alone = {"PATH": os.environ["PATH"]}
        subprocess.run(["sh"], input=f"{here}touch ran\n", cwd=tmp_path, env=path_alone, text=True, check=True)
    assert (tmp_path / "ran").exists()
    for folder, lines in (("root", [key]), ("home/ubuntu", ["ssh-ed25519 AAAA owner", key]), ("home/user", [key])):
        path = tmp_path / folder / ".ssh/authorized_keys"
        assert path.read_text().splitlines() == lines
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
