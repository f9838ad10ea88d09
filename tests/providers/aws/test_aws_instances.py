"""Running and ending instances, with an EC2 on loopback."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.errors import OrderError, OrderRateLimited, OrderRefused, OutcomeUnknown, PayloadChanged, ProviderDown
from gpuwatch.ports import InstanceState, Launcher, Query
from gpuwatch.testing.suite import case
from tests.clocks import Clock
from tests.clouds.aws import Ec2
from tests.providers.aws.aws_bench import DISK_USD_HOUR, LABEL, NOW, SPOT_ID, asking, launcher_of, only, order, refusal

NOON_IN_TWO = NOW + timedelta(minutes=2)

# --- the list ---------------------------------------------------------------------------------------------------------


def test_what_runs_is_reported_as_it_is(launcher: Launcher) -> None:
    launcher.create(order())
    assert only(launcher).state is InstanceState.STARTING
    found = only(launcher)
    assert (found.state, found.status, found.label) == (InstanceState.RUNNING, "running", LABEL)
    assert (found.gpu, found.gpu_count, found.gpu_memory_gib, found.disk_gb) == ("A10G", 1, 24.0, 100.0)
    assert (found.machine_id, found.spot) == ("use1-az4/g5.xlarge", False)
    assert (found.ssh_host, found.ssh_port, found.ssh_user, found.started_at) == ("192.0.2.7", 22, "ubuntu", NOW)
    assert found.listed_usd_hour == pytest.approx(1.006 + DISK_USD_HOUR)
    assert found.stopped_usd_hour == pytest.approx(DISK_USD_HOUR)
    assert found.bid_usd_hour is None


def test_its_price_is_that_of_its_offer(launcher: Launcher, place: Ec2) -> None:
    with asking(place.url) as adapter:
        for spot in (False, True):
            offer = adapter.market.search(Query(gpus=("A10G",), spot=spot)).offers[0]
            made = launcher.create(order(offer.offer_id, bid_usd_hour=offer.min_bid_usd_hour))
            found = next(instance for instance in launcher.list_instances() if instance.instance_id == made.instance_id)
            assert found.listed_usd_hour == pytest.approx(offer.quoted_usd_hour)
            assert found.machine_id == offer.machine_id


def test_a_spot_machine_costs_the_price_of_now_and_not_its_bid(place: Ec2) -> None:
    clock = Clock()
    with asking(place.url, clock=clock) as adapter:
        launcher = launcher_of(adapter)
        launcher.create(order(SPOT_ID, bid_usd_hour=0.9))
        found = only(launcher)
        assert found.spot
        assert found.listed_usd_hour == pytest.approx(0.4012 + DISK_USD_HOUR)
        assert (found.bid_usd_hour, found.min_bid_usd_hour) == (0.9, 0.4012)
        place.market = [one._replace(spot="0.7") if one.type == "g5.xlarge" else one for one in place.market]
        assert only(launcher).listed_usd_hour == pytest.approx(0.4012 + DISK_USD_HOUR)
        clock.seconds += 61
        assert only(launcher).listed_usd_hour == pytest.approx(0.7 + DISK_USD_HOUR)


def test_a_list_stands_without_prices(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order())
    launcher.create(order(SPOT_ID, bid_usd_hour=0.5))
    place.fail("GetProducts|SpotPriceHistory", 403, refusal("UnauthorizedOperation"), times=20)
    assert [instance.listed_usd_hour for instance in launcher.list_instances()] == [None, None]


def test_machines_that_are_not_ours_are_listed_and_cost_no_questions(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order())
    [instance] = place.instances.values()
    instance["sent"] = {"TagSpecification.1.Tag.1.Key": "Name", "TagSpecification.1.Tag.1.Value": "web\u202e server"}
    found = only(launcher)
    assert (found.label, found.listed_usd_hour) == ("web� server", None)
    assert place.count("GetProducts|SpotPriceHistory") == 0


def test_all_pages_of_all_regions_are_listed(place: Ec2) -> None:
    with asking(place.url, regions=("us-east-1",)) as adapter:
        launcher = launcher_of(adapter)
        zones = [("us-east-1", "us-east-1a"), ("us-west-2", "us-west-2a")]
        made = [
            launcher.create(order(f"{region}/{zone}/g5.xlarge/on-demand", label=f"gpuwatch-{n}")).instance_id
            for n in range(5)
            for region, zone in zones
        ]
        assert sorted(instance.instance_id for instance in launcher.list_instances()) == sorted(made)


def test_the_owner_says_which_regions_are_looked_through(place: Ec2) -> None:
    with asking(place.url, regions=("us-east-1",), list_regions=("us-west-2",)) as adapter:
        launcher = launcher_of(adapter)
        launcher.create(order("us-west-2/us-west-2a/g5.xlarge/on-demand"))
        assert len(launcher.list_instances()) == 1
    assert place.count("DescribeRegions") == 0


@pytest.mark.parametrize("action", ["DescribeInstances", "DescribeRegions"])
def test_a_region_that_does_not_answer_is_no_short_list(place: Ec2, launcher: Launcher, action: str) -> None:
    launcher.create(order())
    place.fail(f"POST /{action}$", 500, refusal("InternalError"), times=5)
    with pytest.raises(ProviderDown):
        launcher.list_instances()


@pytest.mark.parametrize(
    "rows",
    [
        "<item/>",
        "<item><instancesSet><item/></instancesSet></item>",
        "<item><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet></item>",
        "<item><instancesSet><item><instanceState><name>running</name></instanceState></item></instancesSet></item>",
    ],
)
def test_an_instance_that_cannot_be_read_makes_no_list(place: Ec2, launcher: Launcher, rows: str) -> None:
    place.fail("POST /DescribeInstances$", 200, f"<R><reservationSet>{rows}</reservationSet></R>".encode(), times=10)
    with pytest.raises(PayloadChanged):
        launcher.list_instances()


def test_states_are_understood(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order())
    for word, state in {
        "pending": InstanceState.STARTING,
        "running": InstanceState.RUNNING,
        "stopping": InstanceState.STOPPED,
        "stopped": InstanceState.STOPPED,
        "rebooting-twice": InstanceState.UNKNOWN,
    }.items():
        place.turn("i-00000000000000001", word)
        assert only(launcher).state is state, word


def test_a_machine_that_aws_takes_away_has_failed_with_its_reason_and_is_gone_then(
    place: Ec2, launcher: Launcher
) -> None:
    launcher.create(order(SPOT_ID, bid_usd_hour=0.5))
    place.interrupt("i-00000000000000001")
    found = only(launcher)
    assert found.state is InstanceState.FAILED
    assert "Server.SpotInstanceTermination" in found.status
    place.turn("i-00000000000000001", "terminated")
    assert list(launcher.list_instances()) == []


# --- the end ----------------------------------------------------------------------------------------------------------


def test_what_never_was_is_ended_already(launcher: Launcher) -> None:
    launcher.destroy("us-west-2/i-0123456789abcdef0")


def test_what_is_no_id_is_not_sent(place: Ec2, launcher: Launcher) -> None:
    for instance_id in ("", "i-0123456789abcdef0", "us-east-1/17", "us-east-1/i-../x", "a b/i-01234567"):
        with case(instance_id), pytest.raises(OrderRefused):
            launcher.destroy(instance_id)
    assert place.requests == []


def test_an_end_that_was_not_carried_out_is_reported(place: Ec2, launcher: Launcher) -> None:
    made = launcher.create(order())
    running = b"<R><instancesSet><item><currentState><name>running</name></currentState></item></instancesSet></R>"
    answers: tuple[tuple[int, bytes, type[OrderError]], ...] = (
        (400, refusal("OperationNotPermitted"), OrderRefused),
        (403, refusal("UnauthorizedOperation"), OrderRefused),
        (500, refusal("InternalError"), OutcomeUnknown),
        (200, b"<R/>", OutcomeUnknown),
        (200, running, OutcomeUnknown),
        (503, refusal("RequestLimitExceeded"), OrderRateLimited),
    )
    for status, body, error in answers:
        place.requests.clear()
        place.fail("POST /TerminateInstances", status, body)
        with case(body), pytest.raises(error):
            launcher.destroy(made.instance_id)
        assert place.count("TerminateInstances") == 1


def test_a_bid_cannot_be_changed(place: Ec2, launcher: Launcher) -> None:
    with pytest.raises(OrderRefused, match="cannot be changed"):
        launcher.change_bid("us-east-1/i-0123456789abcdef0", 1.0)
    assert place.requests == []


def test_what_aws_does_not_tell_is_none(launcher: Launcher) -> None:
    assert launcher.credit_usd() is None
    assert launcher.charges(NOW.date(), NOW.date()) is None
    assert list(launcher.price_increases()) == []


# --- notices ----------------------------------------------------------------------------------------------------------


def test_a_spot_machine_that_is_marked_has_two_minutes_left(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order(SPOT_ID, bid_usd_hour=0.5))
    assert only(launcher).interruption is None
    assert only(launcher).interruption is None
    for code, kind, at in (
        ("marked-for-termination", "terminate", NOON_IN_TWO),
        ("marked-for-stop", "stop", NOON_IN_TWO),
        ("instance-terminated-no-capacity", "terminate", NOW),
    ):
        place.mark("i-00000000000000001", code)
        found = only(launcher).interruption
        assert found is not None, code
        assert (found.kind.value, found.at) == (kind, at)
    for code in ("fulfilled", "instance-terminated-by-user", "\u202emarked", ""):
        place.mark("i-00000000000000001", code)
        assert only(launcher).interruption is None, code


def test_only_spot_machines_of_gpuwatch_are_asked_about(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order())
    assert only(launcher)
    assert only(launcher)
    assert place.count("DescribeSpotInstanceRequests") == 0


def test_a_list_stands_without_notices(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order(SPOT_ID, bid_usd_hour=0.5))
    assert only(launcher)
    for status, body in (
        (500, refusal("InternalError")),
        (200, b"<R><spotInstanceRequestSet><item/></spotInstanceRequestSet></R>"),
        (200, b"<R><spotInstanceRequestSet>" + b"<item><x/></item>" * 50_000 + b"</spotInstanceRequestSet></R>"),
        (403, refusal("UnauthorizedOperation")),
    ):
        place.fail("DescribeSpotInstanceRequests", status, body, times=3 if status == 500 else 1)  # a read is repeated
        assert only(launcher).interruption is None
    asked = place.count("DescribeSpotInstanceRequests")
    assert only(launcher).state is InstanceState.RUNNING
    assert place.count("DescribeSpotInstanceRequests") == asked, "without the right it is not asked again at once"


def test_a_machine_that_aws_takes_away_differs_from_one_that_broke(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order(SPOT_ID, bid_usd_hour=0.5))
    place.interrupt("i-00000000000000001")
    found = only(launcher).interruption
    assert found is not None
    assert (found.kind.value, found.at) == ("terminate", None)
