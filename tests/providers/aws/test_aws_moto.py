"""The same launcher with moto's EC2: written by others, so it shares no error with our emulator.

moto answers inside boto3: nothing leaves the process. It has no realistic prices, and no Pricing API.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.errors import OrderRefused, RefusalKind
from gpuwatch.ports import AccountLookup, DiskKeeper, InstanceLookup, InstanceState, Launcher, Order
from gpuwatch.ports.prerequisites import OrderValidation, PrerequisiteProbe
from tests.clocks import Clock
from tests.late import LateModule
from tests.providers.aws.aws_bench import asking, order

boto3, moto, moto_backends = LateModule("boto3"), LateModule("moto"), LateModule("moto.backends")
OWN = providers.info("aws").base_url
SPOT_ID = "us-east-1/us-east-1a/g5.xlarge/spot"


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Any, Launcher]]:
    """boto3's own client and the launcher: boto3 takes a fifth of a second to make one."""
    regions = ("us-east-1", "us-west-2")
    with (
        pytest.MonkeyPatch.context() as patch,
        moto.mock_aws(),
        asking(OWN, "testing:testing", image="ami-0123456789abcdef0", list_regions=regions) as adapter,
    ):
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # seconds for each test
        assert adapter.launcher is not None
        yield boto3.client("ec2", region_name="us-east-1"), adapter.launcher


@pytest.fixture
def ec2(clients: tuple[Any, Launcher]) -> Any:
    """An account with nothing in it."""
    for regions in moto_backends.get_backend("ec2").values():
        for backend in regions.values():
            backend.reset()
    return clients[0]


@pytest.fixture
def launcher(ec2: Any, clients: tuple[Any, Launcher]) -> Launcher:
    return clients[1]


def _shown(ec2: Any) -> Any:
    [reservation] = ec2.describe_instances()["Reservations"]
    return reservation["Instances"][0]


def test_a_machine_is_rented_listed_and_ended(ec2: Any, launcher: Launcher) -> None:
    made = launcher.create(order())
    [found] = launcher.list_instances()
    assert (found.instance_id, found.label) == (made.instance_id, "gpuwatch-abcdefgh2345")
    assert found.state in (InstanceState.STARTING, InstanceState.RUNNING)
    assert (found.gpu, found.gpu_count, found.spot) == ("A10G", 1, False)
    shown = _shown(ec2)
    assert (shown["InstanceType"], shown["Placement"]["AvailabilityZone"]) == ("g5.xlarge", "us-east-1a")
    assert {tag["Key"]: tag["Value"] for tag in shown["Tags"]}["Name"] == "gpuwatch-abcdefgh2345"
    launcher.destroy(made.instance_id)
    assert list(launcher.list_instances()) == []
    assert _shown(ec2)["State"]["Name"] in ("shutting-down", "terminated")
    launcher.destroy(made.instance_id)


def test_a_machine_without_gpus_is_rented_listed_and_ended(ec2: Any, launcher: Launcher) -> None:
    made = launcher.create(order("us-east-1/us-east-1a/c7a.4xlarge/on-demand"))
    [found] = launcher.list_instances()
    assert (found.instance_id, found.gpu, found.gpu_count) == (made.instance_id, "none", 0)
    assert _shown(ec2)["InstanceType"] == "c7a.4xlarge"
    launcher.destroy(made.instance_id)
    assert list(launcher.list_instances()) == []


def test_a_machine_is_stopped_with_its_disk_and_starts_again(ec2: Any, launcher: Launcher) -> None:
    assert isinstance(launcher, DiskKeeper)
    made = launcher.create(order())
    volumes = [volume["VolumeId"] for volume in ec2.describe_volumes()["Volumes"]]
    for _ in range(2):
        launcher.stop_instance(made.instance_id)
        [found] = launcher.list_instances()
        assert found.state is InstanceState.STOPPED
    for _ in range(2):
        assert launcher.start_instance(made.instance_id)
        [found] = launcher.list_instances()
        assert found.state in (InstanceState.STARTING, InstanceState.RUNNING)
    assert [volume["VolumeId"] for volume in ec2.describe_volumes()["Volumes"]] == volumes
    launcher.destroy(made.instance_id)


def test_the_same_order_twice_carries_the_same_token(ec2: Any, launcher: Launcher) -> None:
    launcher.create(order())
    token = _shown(ec2)["ClientToken"]
    assert len(token) == 64
    launcher.create(order("us-west-2/us-west-2a/g5.xlarge/on-demand"))
    west = boto3.client("ec2", region_name="us-west-2")
    assert _shown(west)["ClientToken"] != token


def test_spot_is_rented_as_spot(ec2: Any, launcher: Launcher) -> None:
    launcher.create(order(SPOT_ID, bid_usd_hour=0.5))
    [found] = launcher.list_instances()
    assert (found.spot, found.bid_usd_hour) == (True, 0.5)
    assert _shown(ec2)["InstanceLifecycle"] == "spot"


def test_script_and_shutdown_arrive(ec2: Any, launcher: Launcher) -> None:
    made = launcher.create(order(onstart="echo hi", env={"A": "b"}))
    own_id = made.instance_id.partition("/")[2]
    said = ec2.describe_instance_attribute(InstanceId=own_id, Attribute="userData")["UserData"]["Value"]
    assert "\necho hi\n" in base64.b64decode(said).decode()
    behavior = ec2.describe_instance_attribute(InstanceId=own_id, Attribute="instanceInitiatedShutdownBehavior")
    assert behavior["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"


def test_the_disk_has_the_size_that_was_asked_for(ec2: Any, launcher: Launcher) -> None:
    launcher.create(order(disk_gb=150.0))
    assert [volume["Size"] for volume in ec2.describe_volumes()["Volumes"]] == [150]


@pytest.mark.parametrize("wanted", [order(), order(SPOT_ID, bid_usd_hour=0.5)], ids=["on demand", "spot"])
def test_nothing_that_is_billed_remains_after_the_end(ec2: Any, launcher: Launcher, wanted: Order) -> None:
    made = launcher.create(wanted)
    assert len(ec2.describe_volumes()["Volumes"]) == 1
    launcher.destroy(made.instance_id)
    assert ec2.describe_volumes()["Volumes"] == []
    assert ec2.describe_addresses()["Addresses"] == []


def test_machines_in_other_regions_are_listed_too(launcher: Launcher) -> None:
    for region in ("us-east-1", "us-west-2"):
        launcher.create(order(f"{region}/{region}a/g5.xlarge/on-demand"))
    assert sorted(instance.instance_id.partition("/")[0] for instance in launcher.list_instances()) == [
        "us-east-1",
        "us-west-2",
    ]


def test_a_subnet_that_there_is_not_is_a_bad_order(ec2: Any) -> None:
    options = {"image": "ami-0123456789abcdef0", "subnets": ("us-east-1a=subnet-0123456789abcdef0",)}
    with asking(OWN, "testing:testing", **options) as adapter:
        assert adapter.launcher is not None
        with pytest.raises(OrderRefused, match=r"InvalidSubnetID\.NotFound") as caught:
            adapter.launcher.create(order())
    assert caught.value.kind is RefusalKind.BAD_ORDER
    assert ec2.describe_instances()["Reservations"] == []


def test_what_is_gone_is_ended_already(launcher: Launcher) -> None:
    launcher.destroy("us-east-1/i-0123456789abcdef0")


def test_one_machine_is_asked_for_by_its_id(launcher: Launcher) -> None:
    assert isinstance(launcher, InstanceLookup)
    made = launcher.create(order())
    found = launcher.get(made.instance_id)
    assert found is not None
    assert found.instance_id == made.instance_id
    launcher.destroy(made.instance_id)
    ended = launcher.get(made.instance_id)
    assert ended is not None
    assert ended.state is InstanceState.ENDED
    assert launcher.list_instances() == []
    assert launcher.get("us-east-1/i-0123456789abcdef0") is None


def test_the_account_is_the_one_of_the_credentials(launcher: Launcher) -> None:
    assert isinstance(launcher, AccountLookup)
    assert launcher.account_id() == "123456789012"


def test_a_dry_run_makes_nothing_and_says_whether_it_would_be_carried_out(ec2: Any, launcher: Launcher) -> None:
    assert isinstance(launcher, OrderValidation)
    assert launcher.validate(order()).met is True
    assert ec2.describe_instances()["Reservations"] == []


def test_what_the_account_has_and_lacks_is_seen(ec2: Any) -> None:
    ec2.create_key_pair(KeyName="mine")
    options = {"image": "ami-0123456789abcdef0", "list_regions": ("us-east-1",), "key_name": "mine"}
    with asking(OWN, "testing:testing", **options) as adapter:
        assert isinstance(adapter.launcher, PrerequisiteProbe)
        found = {
            (prerequisite.name.value, prerequisite.place): prerequisite
            for prerequisite in adapter.launcher.prerequisites([order()])
        }
    assert found["key-pair", "us-east-1"].met
    assert found["region", "us-east-1"].met
    assert found["network", "us-east-1a"].met  # the default subnet
    lacks = found["network", "us-east-1"]
    assert (lacks.met, "options.ssh_from" in lacks.mend) == (False, True)
    assert found["image", "us-east-1 g5"].met is False  # here moto has none
    assert found["quota", "us-east-1 G and VT on demand"].met is None  # moto knows no quotas of EC2


def test_the_group_for_ssh_lives_as_long_as_the_machines(ec2: Any) -> None:
    clock = Clock()
    options = {"image": "ami-0123456789abcdef0", "list_regions": ("us-east-1",), "key_name": "mine"}
    ec2.create_key_pair(KeyName="mine")
    filters = [{"Name": "group-name", "Values": ["gpuwatch-ssh"]}]
    with asking(OWN, "testing:testing", clock=clock, ssh_from="203.0.113.7/32", **options) as adapter:
        assert adapter.launcher is not None
        made = adapter.launcher.create(order())
        [group] = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
        assert group["IpPermissions"][0]["IpRanges"][0]["CidrIp"] == "203.0.113.7/32"
        assert [one["GroupId"] for one in _shown(ec2)["SecurityGroups"]] == [group["GroupId"]]
        adapter.launcher.destroy(made.instance_id)
        clock.sleep(1000.0)
        adapter.launcher.list_instances()
        assert ec2.describe_security_groups(Filters=filters)["SecurityGroups"] == []
