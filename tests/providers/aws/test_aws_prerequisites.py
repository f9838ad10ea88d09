"""Missing prerequisites of an account are found before the first rent, each by its own query, with the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuwatch.errors import OrderRefused, RefusalScope
from gpuwatch.ports import Order
from gpuwatch.ports.prerequisites import OrderValidation, Prerequisite, PrerequisiteName, PrerequisiteProbe, is_blocked
from tests.clocks import Clock
from tests.clouds.aws import Ec2
from tests.clouds.aws_account import DEFAULT_GROUP, KEY_PAIR, SSH_GROUP, Ec2Account
from tests.providers.aws.aws_bench import NOW, SPOT_ID, asking, launcher_of, order

N = PrerequisiteName
READY = {"key_name": KEY_PAIR, "security_groups": (f"us-east-1={SSH_GROUP}",)}


@pytest.fixture
def strict() -> Iterator[Ec2]:
    with Ec2(page=3, clock=NOW.timestamp, account=Ec2Account()) as place:
        yield place


def looked(place: Ec2, *orders: Order, **options: Any) -> list[Prerequisite]:
    with asking(place.url, **(READY | options)) as adapter:
        launcher = launcher_of(adapter)
        assert isinstance(launcher, PrerequisiteProbe)
        return list(launcher.prerequisites(orders or (order(),)))


def missing(found: list[Prerequisite]) -> list[Prerequisite]:
    return [prerequisite for prerequisite in found if prerequisite.met is False]


def validated(place: Ec2, one: Order | None = None, **options: Any) -> Prerequisite:
    with asking(place.url, **(READY | options)) as adapter:
        launcher = launcher_of(adapter)
        assert isinstance(launcher, OrderValidation)
        return launcher.validate(one or order())


def test_an_account_with_everything_is_ready(strict: Ec2) -> None:
    found = looked(strict, order(), order(SPOT_ID, bid_usd_hour=0.5))
    assert [(prerequisite.name, prerequisite.met) for prerequisite in found if not prerequisite.met] == []
    assert {prerequisite.name for prerequisite in found} == set(N) - {N.CREDENTIALS, N.BALANCE, N.ORDER}
    assert strict.instances == {}


LACKS: list[tuple[Callable[[Ec2Account], Any], dict[str, Any], PrerequisiteName, str]] = [
    (lambda one: one.key_pairs.clear(), {}, N.KEY_PAIR, "import-key-pair --region us-east-1"),
    (lambda one: None, {"key_name": None}, N.KEY_PAIR, "options.key_name"),
    (lambda one: None, {"security_groups": ()}, N.NETWORK, "options.ssh_from"),
    (lambda one: None, {"security_groups": ("us-east-1=sg-9",)}, N.NETWORK, "options.security_groups"),
    (lambda one: one.zones_without_subnet.add("us-east-1a"), {}, N.NETWORK, "create-default-subnet"),
    (lambda one: None, {"subnets": ("us-east-1a=subnet-9",)}, N.NETWORK, "options.subnets"),
    (lambda one: one.private_zones.add("us-east-1a"), {}, N.NETWORK, 'options.public_ip = "yes"'),
    (lambda one: setattr(one, "parameters_missing", True), {}, N.IMAGE, "options.image"),
    (lambda one: None, {"image": "ami-9"}, N.IMAGE, "options.images"),
    (lambda one: one.quotas.update({("us-east-1", "L-DB2E81BA"): 0.0}), {}, N.QUOTA, "quota L-DB2E81BA in us-east-1"),
    (lambda one: one.disabled_regions.add("us-east-1"), {}, N.REGION, "enable us-east-1"),
]


@pytest.mark.parametrize(("lack", "options", "name", "mend"), LACKS)
def test_each_thing_that_is_missing_is_named_with_its_mend(
    strict: Ec2, lack: Callable[[Ec2Account], Any], options: dict[str, Any], name: PrerequisiteName, mend: str
) -> None:
    lack(strict.account)
    found = looked(strict, **options)
    (one,) = missing(found)
    assert one.name is name
    assert mend in one.mend
    assert is_blocked(found, [order().offer_id])
    assert strict.instances == {}


def test_spot_needs_its_service_linked_role(strict: Ec2) -> None:
    strict.account.has_spot_role = False
    assert missing(looked(strict)) == []
    (one,) = missing(looked(strict, order(SPOT_ID, bid_usd_hour=0.5)))
    assert (one.name, "create-service-linked-role" in one.mend) == (N.TERMS, True)


def test_a_quota_that_is_in_use_does_not_count_twice(strict: Ec2) -> None:
    strict.account.quotas["us-east-1", "L-DB2E81BA"] = 4.0
    assert missing(looked(strict)) == []
    with asking(strict.url, **READY) as adapter:
        launcher_of(adapter).create(order())
    (one,) = missing(looked(strict))
    assert "4 vCPUs, 4 in use, 4 needed" in one.text


def test_what_one_region_lacks_does_not_block_the_other(strict: Ec2) -> None:
    strict.account.quotas["us-east-1", "L-DB2E81BA"] = 0.0
    west = "us-west-2/us-west-2a/g5.xlarge/on-demand"
    groups = (f"us-east-1={SSH_GROUP}", f"us-west-2={SSH_GROUP}")
    found = looked(strict, order(), order(west), security_groups=groups)
    assert [prerequisite.offer_ids for prerequisite in missing(found)] == [(order().offer_id,)]
    assert not is_blocked(found, [order().offer_id, west])


WEST = "us-west-2/us-west-2a/g5.xlarge/on-demand"
CLOSED: list[tuple[Callable[[Ec2Account], Any], RefusalScope, str]] = [
    (lambda one: None, RefusalScope.REGION_FAMILY, "allows no SSH access"),
    (lambda one: one.private_zones.add("us-west-2a"), RefusalScope.ZONE, "get no public address"),
]


@pytest.mark.parametrize(("lack", "scope", "words"), CLOSED)
def test_where_nobody_gets_in_nothing_is_ordered_and_elsewhere_it_is(
    strict: Ec2, lack: Callable[[Ec2Account], Any], scope: RefusalScope, words: str
) -> None:
    """EC2 would rent it: a machine that costs money in vain."""
    lack(strict.account)
    west = (f"us-west-2={SSH_GROUP}",) if scope is RefusalScope.ZONE else ()
    groups = (f"us-east-1={SSH_GROUP}", *west)
    with asking(strict.url, key_name=KEY_PAIR, security_groups=groups) as adapter:
        launcher = launcher_of(adapter)
        assert isinstance(launcher, PrerequisiteProbe)
        launcher.prerequisites((order(), order(WEST)))
        with pytest.raises(OrderRefused, match=words) as caught:
            launcher.create(order(WEST))
        assert caught.value.scope is scope
        assert strict.instances == {}
        launcher.create(order())
        strict.account.private_zones.clear()
        if scope is RefusalScope.ZONE:  # fixed, as the next check finds
            launcher.prerequisites((order(WEST),))
            launcher.create(order(WEST))
    assert len(strict.instances) == (2 if scope is RefusalScope.ZONE else 1)


@pytest.mark.parametrize(
    "right",
    ["DescribeKeyPairs", "DescribeSecurityGroups", "DescribeSubnets", "GetParameters", "GetServiceQuota"],
)
def test_a_question_that_may_not_be_asked_leaves_it_unknown(strict: Ec2, right: str) -> None:
    strict.account.rights.add(right)
    found = looked(strict)
    (one,) = [prerequisite for prerequisite in found if not prerequisite.met]
    assert one.met is None
    assert f":{right}, so that gpuwatch can check it" in one.mend
    assert not is_blocked(found, [order().offer_id])


def test_nobody_needs_to_log_in_where_onstart_does_the_work(strict: Ec2) -> None:
    assert missing(looked(strict, order(onstart="python train.py"), key_name=None)) == []


def test_session_manager_takes_the_place_of_a_key_pair(strict: Ec2) -> None:
    assert missing(looked(strict, key_name=None, instance_profile="ssm", security_groups=())) == []


def test_a_public_address_may_be_asked_for_where_the_subnet_gives_none(strict: Ec2) -> None:
    strict.account.private_zones.add("us-east-1a")
    assert missing(looked(strict, public_ip="yes")) == []
    assert validated(strict, public_ip="yes").met is True
    with asking(strict.url, **READY, public_ip="yes") as adapter:
        launcher_of(adapter).create(order())
    (sent,) = [instance["sent"] for instance in strict.instances.values()]
    assert sent["NetworkInterface.1.AssociatePublicIpAddress"] == "true"
    assert sent["NetworkInterface.1.SecurityGroupId.1"] == SSH_GROUP
    assert "SecurityGroupId.1" not in sent


def test_without_an_order_each_region_is_looked_at(strict: Ec2) -> None:
    with asking(strict.url, **READY) as adapter:
        launcher = launcher_of(adapter)
        assert isinstance(launcher, PrerequisiteProbe)
        found = launcher.prerequisites(())
    assert {one.place for one in found} == {"us-east-1", "us-west-2"}
    assert [one.place for one in found if one.met is False] == ["us-west-2"]  # no group is set there
    assert not is_blocked(found, ())


# --- EC2's own validation ---------------------------------------------------------------------------------------------
def test_a_dry_run_that_ec2_would_carry_out_makes_nothing(strict: Ec2) -> None:
    assert validated(strict).met is True
    assert strict.instances == {}


@pytest.mark.parametrize(
    ("lack", "options", "words"),
    [
        (lambda one: one.rights.add("RunInstances"), {}, "UnauthorizedOperation"),
        (lambda one: one.key_pairs.clear(), {}, "InvalidKeyPair.NotFound"),
        (lambda one: None, {"image": "ami-9"}, "InvalidAMIID.NotFound"),
        (lambda one: None, {"subnets": ("us-east-1a=subnet-9",)}, "InvalidSubnetID.NotFound"),
        (lambda one: None, {"security_groups": ("us-east-1=sg-9",)}, "InvalidGroup.NotFound"),
        (lambda one: one.zones_without_subnet.add("us-east-1a"), {}, "No default subnet"),
    ],
)
def test_what_ec2_refuses_in_a_dry_run_is_missing(
    strict: Ec2, lack: Callable[[Ec2Account], Any], options: dict[str, Any], words: str
) -> None:
    lack(strict.account)
    one = validated(strict, **options)
    assert (one.met, words in one.text, bool(one.mend)) == (False, True, True)
    assert strict.instances == {}


def test_a_server_that_ignores_the_dry_run_keeps_no_machine(place: Ec2) -> None:
    place.knows_dry_run = False
    one = validated(place)
    assert one.met is None
    assert "gpuwatch ended it" in one.text
    assert [instance["state"] for instance in place.instances.values()] == ["shutting-down"]


def test_a_dry_run_without_an_answer_is_unknown(strict: Ec2) -> None:
    strict.fail("POST /RunInstances", None)
    assert validated(strict).met is None


# --- images -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("type_", "words"), [("p3.2xlarge", "needs the proprietary driver"), ("g4ad.xlarge", "is from AMD")]
)
def test_a_card_that_the_image_does_not_fit_is_not_ordered(strict: Ec2, type_: str, words: str) -> None:
    one = order(f"us-east-1/us-east-1a/{type_}/on-demand")
    (lack,) = [found for found in missing(looked(strict, one)) if found.name is N.IMAGE]
    assert words in lack.text
    assert f"{type_.partition('.')[0]}=ami-…" in lack.mend
    assert "nothing was sent" in validated(strict, one).text
    with asking(strict.url, **READY) as adapter, pytest.raises(OrderRefused) as caught:
        launcher_of(adapter).create(one)
    assert caught.value.scope is RefusalScope.MACHINE, "other machines of the quota have another image"
    own = (f"{type_.partition('.')[0]}=ami-0123456789abcdef0",)
    assert [found for found in missing(looked(strict, one, images=own)) if found.name is N.IMAGE] == []


def test_the_default_group_lets_only_itself_in(strict: Ec2) -> None:
    (one,) = missing(looked(strict, security_groups=(f"us-east-1={DEFAULT_GROUP}",)))
    assert "no SSH access" in one.text


# --- disks and spot requests ----------------------------------------------------------------------------------------
def test_ending_a_spot_machine_leaves_no_disk_and_no_request(strict: Ec2) -> None:
    with asking(strict.url, **READY) as adapter:
        made = launcher_of(adapter).create(order(SPOT_ID, bid_usd_hour=0.5))
        launcher_of(adapter).destroy(made.instance_id)
    own_id = made.instance_id.partition("/")[2]
    assert strict.account.volumes[f"vol-{own_id[2:]}"]["goes"]
    sent = strict.instances[own_id]["sent"]
    assert sent["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"


def test_quotas_are_counted_by_family_and_market(strict: Ec2) -> None:
    strict.account.quotas["us-east-1", "L-DB2E81BA"] = 4.0
    with asking(strict.url, **READY) as adapter:
        launcher_of(adapter).create(order())
        launcher_of(adapter).create(order(SPOT_ID, bid_usd_hour=0.5))
        with pytest.raises(Exception, match="VcpuLimitExceeded"):
            launcher_of(adapter).create(order(label="gpuwatch-zzzzzzzzzzzz"))


# --- the security group that gpuwatch makes ---------------------------------------------------------------------------
FROM = {"key_name": KEY_PAIR, "security_groups": (), "ssh_from": "203.0.113.7/32", "list_regions": ("us-east-1",)}


def test_a_group_is_made_with_the_first_rent_and_deleted_after_the_last(strict: Ec2) -> None:
    clock = Clock()
    with asking(strict.url, clock=clock, **FROM) as adapter:
        launcher = launcher_of(adapter)
        assert missing(looked(strict, **FROM)) == []
        made = [launcher.create(order()), launcher.create(order(label="gpuwatch-zzzzzzzzzzzz"))]
        ((group_id, group),) = strict.account.groups.items()
        assert group["ipPermissions"][0]["ipRanges"] == [{"cidrIp": "203.0.113.7/32"}]
        assert len(group["ipPermissions"]) == 1
        assert {instance["sent"]["SecurityGroupId.1"] for instance in strict.instances.values()} == {group_id}
        clock.sleep(1000.0)
        launcher.list_instances()
        assert group_id in strict.account.groups
        for one in made:
            launcher.destroy(one.instance_id)
        launcher.list_instances()
        assert group_id in strict.account.groups  # EC2 refuses while the machines shut down
        for instance_id in list(strict.instances):
            strict.turn(instance_id, "terminated")
        clock.sleep(60.0)
        launcher.list_instances()
        assert strict.account.groups == {}


def test_a_group_of_the_owner_with_that_name_is_not_touched(strict: Ec2) -> None:
    theirs = {"groupId": "sg-9", "groupName": "gpuwatch-ssh", "ipPermissions": [], "region": "us-east-1"}
    strict.account.groups["sg-9"] = dict(theirs)
    with asking(strict.url, **FROM) as adapter:
        with pytest.raises(OrderRefused, match=r"InvalidGroup\.Duplicate"):
            launcher_of(adapter).create(order())
        launcher_of(adapter).list_instances()
    assert strict.account.groups == {"sg-9": theirs}
    assert strict.instances == {}


def test_a_group_left_by_an_earlier_process_is_deleted(strict: Ec2) -> None:
    with asking(strict.url, **FROM) as adapter:
        made = launcher_of(adapter).create(order())
        launcher_of(adapter).destroy(made.instance_id)
    strict.turn(made.instance_id.partition("/")[2], "terminated")
    assert strict.account.groups
    with asking(strict.url, **FROM) as adapter:
        launcher_of(adapter).list_instances()
    assert strict.account.groups == {}


def test_a_job_gets_the_group_without_a_key_pair_of_the_owner(strict: Ec2) -> None:
    clock = Clock()
    with asking(strict.url, clock=clock, **(FROM | {"key_name": None})) as adapter:
        launcher = launcher_of(adapter)
        launcher.create(order(label="gpuwatch-yyyyyyyyyyyy"))
        assert strict.account.groups == {}, "nobody logs in there"
        launcher.create(order(onstart="let in", needs_ssh=True))
        (group_id,) = strict.account.groups
        assert [instance["sent"].get("SecurityGroupId.1") for instance in strict.instances.values()] == [None, group_id]
        for instance_id in list(strict.instances):
            strict.turn(instance_id, "terminated")
        clock.sleep(1000.0)
        launcher.list_instances()
        assert strict.account.groups == {}


@pytest.mark.parametrize("key_name", [None, KEY_PAIR])
def test_a_job_that_nothing_lets_in_is_not_ordered(strict: Ec2, key_name: str | None) -> None:
    closed = FROM | {"key_name": key_name, "ssh_from": None}
    with asking(strict.url, **closed) as adapter, pytest.raises(OrderRefused, match=r"options\.ssh_from"):
        launcher_of(adapter).create(order(onstart="let in", needs_ssh=True))
    assert strict.instances == {}


def test_a_job_is_let_in_by_a_group_of_the_owner(strict: Ec2) -> None:
    with asking(strict.url, **READY) as adapter:
        launcher_of(adapter).create(order(onstart="let in", needs_ssh=True))
    assert len(strict.instances) == 1


@pytest.mark.parametrize(("options", "words"), [({}, "get no public address"), ({"public_ip": "no"}, "public address")])
def test_a_job_is_not_ordered_where_no_address_reaches_it(strict: Ec2, options: dict[str, Any], words: str) -> None:
    strict.account.private_zones.add("us-east-1a")
    with asking(strict.url, **READY, **options) as adapter, pytest.raises(OrderRefused, match=words) as refused:
        launcher_of(adapter).create(order(onstart="let in", needs_ssh=True))
    assert 'options.public_ip = "yes"' in str(refused.value)
    assert strict.instances == {}
    with asking(strict.url, **READY, public_ip="yes") as adapter:
        launcher_of(adapter).create(order(onstart="let in", needs_ssh=True))
    assert len(strict.instances) == 1
