"""One order, one machine: the requests to an EC2 on loopback, and the meaning of its refusals."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.ports import DiskKeeper, InstanceState, Launcher
from gpuwatch.providers.aws.client import ordering_error
from gpuwatch.testing.suite import case
from tests.clouds.aws import Ec2
from tests.providers.aws.aws_bench import LABEL, SPOT_ID, asking, launcher_of, only, order, refusal, sent_to

# --- the request ------------------------------------------------------------------------------------------------------


def test_on_demand_asks_for_one_machine_in_the_zone_of_the_offer(place: Ec2, launcher: Launcher) -> None:
    made = launcher.create(order())
    sent = sent_to(place)
    assert made.instance_id == "us-east-1/i-00000000000000001"
    assert (sent["InstanceType"], sent["Placement.AvailabilityZone"]) == ("g5.xlarge", "us-east-1a")
    assert (sent["MinCount"], sent["MaxCount"]) == ("1", "1")
    assert sent["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert sent["MetadataOptions.HttpTokens"] == "required"
    assert sent["BlockDeviceMapping.1.DeviceName"] == "/dev/sda1"
    assert (sent["BlockDeviceMapping.1.Ebs.VolumeSize"], sent["BlockDeviceMapping.1.Ebs.VolumeType"]) == ("100", "gp3")
    assert sent["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert sent["ImageId"].startswith("resolve:ssm:/aws/service/deeplearning/ami/x86_64/")
    assert not [name for name in sent if name.startswith(("InstanceMarketOptions", "UserData", "SubnetId", "KeyName"))]


def test_spot_asks_once_with_the_bid_as_the_most_and_is_taken_away_for_good(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order(SPOT_ID, bid_usd_hour=0.45))
    sent = sent_to(place)
    assert sent["InstanceMarketOptions.MarketType"] == "spot"
    assert sent["InstanceMarketOptions.SpotOptions.MaxPrice"] == "0.450000"
    assert sent["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert sent["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert "InstanceMarketOptions.SpotOptions.ValidUntil" not in sent


def test_the_machine_gets_the_script_the_environment_and_its_end(place: Ec2, launcher: Launcher) -> None:
    end = datetime(2026, 11, 21, 18, tzinfo=UTC)
    launcher.create(order(onstart="python train.py", env={"TOKEN": "a b"}, self_destruct_at=end))
    script = base64.b64decode(sent_to(place)["UserData"]).decode()
    assert script.startswith("#!/bin/bash\n")
    assert "export TOKEN='a b'\n" in script
    assert "\npython train.py\n" in script
    assert "OnCalendar=2026-11-21 18:00:00 UTC" in script


def test_the_label_is_on_the_machine_and_on_its_disk(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order())
    sent = sent_to(place)
    for number, kind in ((1, "instance"), (2, "volume")):
        tags = {
            sent[f"TagSpecification.{number}.Tag.{n}.Key"]: sent[f"TagSpecification.{number}.Tag.{n}.Value"]
            for n in (1, 2, 3)
        }
        assert sent[f"TagSpecification.{number}.ResourceType"] == kind
        assert tags == {"Name": LABEL, "gpuwatch-label": LABEL, "gpuwatch-disk-gb": "100"}


def test_options_decide_about_image_network_and_key(place: Ec2) -> None:
    options = {
        "image": "ami-0123456789abcdef0", "key_name": "mine", "instance_profile": "trainer",
        "subnets": ("us-east-1b=subnet-b", "us-east-1a=subnet-a"),
        "security_groups": ("us-west-2=sg-west", "us-east-1=sg-1", "us-east-1=sg-2"),
    }  # fmt: skip
    with asking(place.url, **options) as adapter:
        launcher_of(adapter).create(order())
    sent = sent_to(place)
    assert (sent["ImageId"], sent["KeyName"]) == ("ami-0123456789abcdef0", "mine")
    assert sent["IamInstanceProfile.Name"] == "trainer"
    assert (sent["SubnetId"], sent.get("Placement.AvailabilityZone")) == ("subnet-a", None)
    assert [sent[f"SecurityGroupId.{n}"] for n in (1, 2)] == ["sg-1", "sg-2"]


def test_an_arm_machine_gets_an_image_for_arm(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order("us-east-1/us-east-1a/g5g.xlarge/on-demand"))
    assert "/ami/arm64/" in sent_to(place)["ImageId"]


def test_without_a_size_the_disk_is_the_images(place: Ec2, launcher: Launcher) -> None:
    launcher.create(order(disk_gb=0.0))
    assert not [name for name in sent_to(place) if name.startswith("BlockDeviceMapping")]


# --- one machine ------------------------------------------------------------------------------------------------------


def test_the_same_order_sent_twice_makes_one_machine(place: Ec2, launcher: Launcher) -> None:
    first, second = launcher.create(order()), launcher.create(order())
    assert first == second
    assert len(place.instances) == 1


def test_another_offer_or_launch_has_another_token(place: Ec2, launcher: Launcher) -> None:
    other = order("us-east-1/us-east-1b/g5.xlarge/on-demand")
    made = {launcher.create(one).instance_id for one in (order(), other, order(label="gpuwatch-zzzzzzzz2345"))}
    assert len(made) == 3


def test_the_same_token_with_other_values_may_have_been_carried_out_before(launcher: Launcher) -> None:
    launcher.create(order(SPOT_ID, bid_usd_hour=0.45))
    with pytest.raises(OutcomeUnknown, match="IdempotentParameterMismatch"):
        launcher.create(order(SPOT_ID, bid_usd_hour=0.46))


def test_an_answer_that_was_lost_is_found_by_its_label_and_not_made_again(place: Ec2, launcher: Launcher) -> None:
    place.fail("POST /RunInstances", None, carried_out=True)
    with pytest.raises(OutcomeUnknown):
        launcher.create(order())
    assert (place.count("RunInstances"), only(launcher).label) == (1, LABEL)
    assert launcher.create(order()).instance_id == only(launcher).instance_id


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refusal_of_aws_says_what_it_is_about(place: Ec2, launcher: Launcher) -> None:
    for status, code, sentence, scope in (
        (500, "InsufficientInstanceCapacity", "", RefusalScope.OFFER),
        (400, "InsufficientFreeAddressesInSubnet", "", RefusalScope.ZONE),
        (400, "VcpuLimitExceeded", "", RefusalScope.REGION_FAMILY),
        (400, "MaxSpotInstanceCountExceeded", "", RefusalScope.REGION_FAMILY),
        (400, "MissingInput", "No default subnet for availability zone: 'us-east-1a'.", RefusalScope.ZONE),
        (400, "InvalidInput", "No default subnet for availability zone: 'us-east-1a'.", RefusalScope.ZONE),
        (400, "VPCIdNotSpecified", "No default VPC for this user.", RefusalScope.ZONE),
        (400, "InvalidSubnetID.NotFound", "", RefusalScope.ZONE),
        (400, "InvalidAMIID.NotFound", "", RefusalScope.REGION_FAMILY),
        (400, "InvalidKeyPair.NotFound", "", RefusalScope.REGION_FAMILY),
        (400, "InvalidGroup.NotFound", "", RefusalScope.REGION_FAMILY),
        (400, "InvalidParameterValue", "", None),
    ):
        place.fail("POST /RunInstances", status, refusal(code, sentence))
        with case(code), pytest.raises(OrderError) as caught:
            launcher.create(order())
        assert getattr(caught.value, "scope", None) is scope, code


REFUSALS: tuple[tuple[int, str, type[OrderError], RefusalKind | None], ...] = (
    (500, "InsufficientInstanceCapacity", OfferGone, None),
    (400, "Unsupported", OfferGone, None),
    (400, "InsufficientFreeAddressesInSubnet", OfferGone, None),
    (400, "SpotMaxPriceTooLow", OrderRefused, RefusalKind.BID_TOO_LOW),
    (400, "MaxSpotInstanceCountExceeded", OrderRefused, RefusalKind.OTHER),
    (400, "VcpuLimitExceeded", OrderRefused, RefusalKind.OTHER),
    (400, "InstanceLimitExceeded", OrderRefused, RefusalKind.OTHER),
    (403, "UnauthorizedOperation", OrderRefused, RefusalKind.KEY),
    (401, "AuthFailure", OrderRefused, RefusalKind.KEY),
    (403, "AuthFailure.ServiceLinkedRoleCreationNotPermitted", OrderRefused, RefusalKind.KEY),
    (400, "PendingVerification", OrderRefused, RefusalKind.KEY),
    (400, "OptInRequired", OrderRefused, RefusalKind.KEY),
    (400, "InvalidAMIID.NotFound", OrderRefused, RefusalKind.BAD_ORDER),
    (400, "InvalidKeyPair.NotFound", OrderRefused, RefusalKind.BAD_ORDER),
    (400, "InvalidBlockDeviceMapping", OrderRefused, RefusalKind.BAD_ORDER),
    (400, "VPCIdNotSpecified", OrderRefused, RefusalKind.BAD_ORDER),
    (503, "RequestLimitExceeded", OrderRateLimited, None),
    (400, "Throttling", OrderRateLimited, None),
    (500, "InternalError", OutcomeUnknown, None),
    (503, "Unavailable", OutcomeUnknown, None),
)


def test_every_refusal_of_aws_says_what_to_do_next(place: Ec2, launcher: Launcher) -> None:
    for status, code, error, kind in REFUSALS:
        place.requests.clear()
        place.fail("POST /RunInstances", status, refusal(code))
        with case(code), pytest.raises(error, match=code) as caught:
            launcher.create(order(env={"TOKEN": "hush-hush"}))
        assert (type(caught.value), getattr(caught.value, "kind", None)) == (error, kind), code
        assert "hush" not in str(caught.value)
        assert place.count("RunInstances") == 1


def test_without_capacity_a_stopped_machine_does_not_start_and_what_moves_is_no_refusal(
    place: Ec2, launcher: Launcher
) -> None:
    assert isinstance(launcher, DiskKeeper)
    made = launcher.create(order())
    with pytest.raises(OutcomeUnknown, match="present state"):
        launcher.stop_instance(made.instance_id)  # it is still pending
    assert only(launcher).state is InstanceState.STARTING
    launcher.stop_instance(made.instance_id)
    with pytest.raises(OutcomeUnknown, match="present state"):
        launcher.start_instance(made.instance_id)  # it is still stopping
    assert only(launcher).state is InstanceState.STOPPED
    place.sell_out("us-east-1a", "g5.xlarge")
    assert not launcher.start_instance(made.instance_id)
    assert only(launcher).state is InstanceState.STOPPED


def test_a_spot_machine_cannot_be_stopped(place: Ec2, launcher: Launcher) -> None:
    assert isinstance(launcher, DiskKeeper)
    made = launcher.create(order(SPOT_ID, bid_usd_hour=0.5))
    only(launcher)
    with pytest.raises(OrderRefused, match="one-time Spot Instance request"):
        launcher.stop_instance(made.instance_id)
    assert providers.info("aws").cannot_keep_disk(is_spot=True, has_volume=False)
    assert not providers.info("aws").cannot_keep_disk(is_spot=False, has_volume=False)


def test_no_capacity_is_an_offer_gone_in_that_zone_alone(place: Ec2, launcher: Launcher) -> None:
    place.sell_out("us-east-1a", "g5.xlarge")
    with pytest.raises(OfferGone, match="sufficient"):
        launcher.create(order())
    assert launcher.create(order("us-east-1/us-east-1b/g5.xlarge/on-demand")).starting


def test_a_bid_under_the_price_of_now_is_reported_so(launcher: Launcher) -> None:
    with pytest.raises(OrderRefused) as caught:
        launcher.create(order(SPOT_ID, bid_usd_hour=0.2))
    assert caught.value.kind is RefusalKind.BID_TOO_LOW


def test_what_cannot_be_done_is_refused_before_anything_is_sent(place: Ec2, launcher: Launcher) -> None:
    wishes: tuple[dict[str, Any], ...] = (
        {"runtype": "jupyter"}, {"disk_gb": float("nan")}, {"disk_gb": 1e6}, {"env": {"A B": "x"}},
        {"onstart": "x" * 20_000}, {"label": "x" * 300}, {"bid_usd_hour": 0.4}, {"offer_id": SPOT_ID},
    )  # fmt: skip
    for values in wishes:
        with case(values), pytest.raises(OrderRefused) as caught:
            launcher.create(order(**values))
        assert caught.value.kind is RefusalKind.BAD_ORDER, values
    for bid in (0.0, -1.0, float("nan"), float("inf"), 1e6):
        with case(bid), pytest.raises(OrderRefused) as caught:
            launcher.create(order(SPOT_ID, bid_usd_hour=bid))
        assert caught.value.kind is RefusalKind.BID_TOO_LOW, bid
    assert place.requests == []


@pytest.mark.parametrize("value", ["sg-1", "us-east-1="])
def test_an_option_in_another_form_is_reported_and_nothing_is_sent(place: Ec2, value: str) -> None:
    with (
        asking(place.url, security_groups=(value,)) as adapter,
        pytest.raises(OrderRefused, match="expected us-east-1=sg-"),
    ):
        launcher_of(adapter).create(order())
    assert place.requests == []


def test_a_wrong_key_rents_nothing(place: Ec2) -> None:
    with asking(place.url, "someone-else:secret") as adapter:
        with pytest.raises(OrderRefused) as caught:
            launcher_of(adapter).create(order())
        assert caught.value.kind is RefusalKind.KEY
        with pytest.raises(KeyRejected):
            launcher_of(adapter).list_instances()


def test_a_receipt_that_is_none_is_an_unknown_outcome(place: Ec2, launcher: Launcher) -> None:
    for body in (b"<R/>", b"<R><instancesSet/></R>", b"<R><instancesSet><item>"):
        place.requests.clear()
        place.fail("POST /RunInstances", 200, body)
        with case(body), pytest.raises(OutcomeUnknown):
            launcher.create(order())
        assert place.count("RunInstances") == 1


def test_errors_of_a_strange_kind_show_nothing_of_what_was_sent() -> None:
    error = ordering_error(TypeError("cannot send {'UserData': 'hush-hush'}"), "us-east-1")
    assert type(error) is OutcomeUnknown
    assert str(error) == "aws: us-east-1: TypeError"
