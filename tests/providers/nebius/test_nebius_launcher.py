"""Nebius's launcher with its emulator: what the conformance suites do not cover."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpuwatch import providers
from gpuwatch.errors import OfferGone, OrderError, OrderRefused, OutcomeUnknown, RefusalKind, RefusalScope
from gpuwatch.ports import InstanceState, Order
from gpuwatch.ports.declarations import Adapter
from gpuwatch.ports.prerequisites import PrerequisiteName
from tests.late import LateModule
from tests.providers.nebius.bench import BENCH, SSH_KEY

if TYPE_CHECKING:
    from tests.clouds.nebius import Nebius

cloud, grpc = LateModule("tests.clouds.nebius"), LateModule("grpc")

LABEL = "gpuwatch-abcdefgh2345"
OFFER = "gpu-h100-sxm/1gpu-16vcpu-200gb/eu-north1"


@pytest.fixture
def place() -> Iterator[Nebius]:
    with cloud.Nebius() as place:
        yield place


@pytest.fixture
def adapter(place: Nebius) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


def order(offer_id: str = OFFER, **values: Any) -> Order:
    return Order(**({"offer_id": offer_id, "label": LABEL, "image": "x/y", "disk_gb": 137.0} | values))


def launcher(adapter: Adapter) -> Any:
    assert adapter.launcher is not None
    return adapter.launcher


def only(place: Nebius) -> Any:
    [one] = place.instances.values()
    return one


def config(place: Nebius) -> Any:
    head, _, rest = only(place).spec.cloud_init_user_data.partition("\n")
    assert head == "#cloud-config"
    return json.loads(rest)


def script(place: Nebius) -> str:
    [file] = config(place)["write_files"]
    assert config(place)["runcmd"] == [["/bin/bash", file["path"]]]
    return base64.b64decode(file["content"]).decode()


def test_a_machine_is_ordered_with_a_disk_that_ends_with_it(place: Nebius, adapter: Adapter) -> None:
    launcher(adapter).create(order())
    spec = only(place).spec
    assert spec.boot_disk.managed_disk.spec.size_gibibytes == 137
    assert spec.boot_disk.existing_disk is None
    assert not spec.check_presence("preemptible")
    assert spec.recovery_policy.name == "FAIL"
    assert only(place).metadata.name == LABEL
    assert config(place) == {"ssh_authorized_keys": [SSH_KEY]}


def test_a_preemptible_machine_follows_the_spot_price_and_is_listed_with_it(place: Nebius, adapter: Adapter) -> None:
    launcher(adapter).create(order(f"{OFFER}/spot", bid_usd_hour=2.0))
    assert only(place).spec.follows_spot_price is not None
    place.spot["eu-north1", "gpu-h100-sxm"] = 1.9
    [listed] = launcher(adapter).list_instances()
    assert listed.spot
    assert listed.listed_usd_hour == pytest.approx(1.9 + 137 * cloud.DISK_USD_GIB_HOUR)
    assert listed.stopped_usd_hour == pytest.approx(137 * cloud.DISK_USD_GIB_HOUR)


@pytest.mark.parametrize(("offer_id", "bid"), [(OFFER, 1.0), (f"{OFFER}/spot", None)])
def test_the_rental_type_is_the_offers(place: Nebius, adapter: Adapter, offer_id: str, bid: float | None) -> None:
    with pytest.raises(OrderRefused, match="a spot offer requires a bid"):
        launcher(adapter).create(order(offer_id, bid_usd_hour=bid))
    assert place.instances == {}


def test_the_first_boot_runs_what_was_asked_for_and_ends_the_machine(place: Nebius, adapter: Adapter) -> None:
    ends = datetime(2026, 11, 22, 18, tzinfo=UTC)
    launcher(adapter).create(order(onstart="echo hello", env={"TOKEN": "it's"}, self_destruct_at=ends))
    lines = script(place)
    assert lines.startswith("#!/bin/bash\n")
    assert "OnCalendar=2026-11-22 18:00:00 UTC" in lines
    assert lines.index("OnCalendar") < lines.index("gpuwatch-onstart")


def test_the_same_order_sent_twice_rents_once(place: Nebius, adapter: Adapter) -> None:
    place.fail("InstanceService/Create", grpc.StatusCode.UNAVAILABLE, "reset", carried_out=True)
    with pytest.raises(OutcomeUnknown):
        launcher(adapter).create(order())
    made = launcher(adapter).create(order())
    assert list(place.instances) == [made.instance_id]


def test_no_stock_is_an_offer_that_is_gone(place: Nebius, adapter: Adapter) -> None:
    place.fail(
        "InstanceService/Create", grpc.StatusCode.RESOURCE_EXHAUSTED, "not enough resources", cloud.no_resources()
    )
    with pytest.raises(OfferGone, match="not enough resources"):
        launcher(adapter).create(order())


def test_a_quota_is_refused_for_the_region_and_family(place: Nebius, adapter: Adapter) -> None:
    place.at_limit.add(("gpu-h100-sxm", False))
    with pytest.raises(OrderRefused, match="Quota limit exceeded") as refused:
        launcher(adapter).create(order())
    assert refused.value.scope is RefusalScope.REGION_FAMILY


def test_a_wrong_token_is_the_keys_fault_and_nothing_is_rented(place: Nebius) -> None:
    with BENCH.pointed_at(place.url, "another-token") as adapter, pytest.raises(OrderRefused) as refused:
        launcher(adapter).create(order())
    assert refused.value.kind is RefusalKind.NOT_SENT
    assert place.count("InstanceService/Create") == 0


def test_a_machine_that_is_being_created_is_starting(place: Nebius) -> None:
    place.boots_s = 3600.0
    with BENCH.pointed_at(place.url) as adapter:
        made = launcher(adapter).create(order())
        found = launcher(adapter).get(made.instance_id)
    assert (found.state, found.status, found.ssh_host) == (InstanceState.STARTING, "STOPPED", None)


def test_a_machine_that_stopped_is_stopped(place: Nebius, adapter: Adapter) -> None:
    made = launcher(adapter).create(order())
    place.stopped.add(made.instance_id)
    found = launcher(adapter).get(made.instance_id)
    assert (found.state, found.ssh_host) == (InstanceState.STOPPED, None)
    assert found.started_at is not None
    assert found.started_at.utcoffset() is not None


def test_of_several_projects_the_default_one_is_taken_else_the_settings_must_say(place: Nebius) -> None:
    place.projects["project-e00more"] = ("eu-north1", "more")
    place.subnets["project-e00more"] = ["default-subnet-x3"]
    with BENCH.pointed_at(place.url) as adapter:
        launcher(adapter).create(order())
        assert only(place).metadata.parent_id == "project-e00demo"
    place.projects["project-e00demo"] = ("eu-north1", "renamed")
    with BENCH.pointed_at(place.url) as adapter, pytest.raises(OrderRefused, match=r"options\.projects"):
        launcher(adapter).create(order(label="gpuwatch-2"))
    named = msgspec.structs.replace(BENCH, options={"ssh_key": SSH_KEY, "projects": ("eu-north1=project-e00more",)})
    with named.pointed_at(place.url) as adapter:
        launcher(adapter).create(order(label="gpuwatch-3"))
        assert {instance.label for instance in launcher(adapter).list_instances()} == {LABEL, "gpuwatch-3"}


@pytest.mark.parametrize("key", [None, "my-key-pair", "-----BEGIN OPENSSH PRIVATE KEY-----"])
def test_without_a_public_key_nothing_is_sent(place: Nebius, key: str | None) -> None:
    bare = msgspec.structs.replace(BENCH, options={"ssh_key": key})
    with bare.pointed_at(place.url) as adapter, pytest.raises(OrderRefused, match="ssh_key"):
        launcher(adapter).create(order())
    assert place.count("InstanceService/Create") == 0


def _lacking(place: Nebius, **options: Any) -> dict[str, str]:
    """Return what blocks renting: name → fix."""
    bench = msgspec.structs.replace(BENCH, options={"ssh_key": SSH_KEY} | options)
    with bench.pointed_at(place.url) as adapter:
        found = launcher(adapter).prerequisites([order()])
    return {one.name.value: one.mend for one in found if one.met is False}


def test_nothing_is_missing_in_an_account_that_can_rent(place: Nebius, adapter: Adapter) -> None:
    found = launcher(adapter).prerequisites([order()])
    assert {one.met for one in found} == {True}
    assert {one.name for one in found} == {
        PrerequisiteName.KEY_PAIR, PrerequisiteName.NETWORK, PrerequisiteName.IMAGE,
        PrerequisiteName.QUOTA,
    }  # fmt: skip
    assert place.instances == {}


def test_each_prerequisite_that_is_missing_is_named_with_its_mend(place: Nebius) -> None:
    assert "options.image" in _lacking(place, image="ubuntu20.04")["image"]
    assert "ssh_key" in _lacking(place, ssh_key=None)["key-pair"]
    place.at_limit.add(("gpu-h100-sxm", False))
    assert list(_lacking(place)) == ["quota"]
    place.subnets["project-e00demo"] = ["one", "two"]
    assert "options.subnets" in _lacking(place)["network"]
    place.projects["project-e00demo"] = ("eu-west1", "moved")
    assert "options.projects" in _lacking(place)["region"]


@pytest.mark.parametrize("lack", ["subnet", "project"])
def test_a_region_without_a_place_for_it_closes_no_other(place: Nebius, adapter: Adapter, lack: str) -> None:
    if lack == "subnet":
        place.subnets["project-e00demo"] = ["one", "two"]
    else:
        place.projects["project-e00demo"] = ("eu-west1", "moved")
    with pytest.raises(OrderRefused, match=f"no default {lack}") as refused:
        launcher(adapter).create(order())
    assert refused.value.scope is RefusalScope.REGION_FAMILY


def test_what_cannot_be_found_out_is_not_known(place: Nebius) -> None:
    with BENCH.pointed_at(place.url, "another-token") as adapter:
        found = launcher(adapter).prerequisites([order()])
    assert {one.met for one in found if one.name is not PrerequisiteName.KEY_PAIR} == {None}


def test_a_service_accounts_credentials_are_exchanged_for_a_token(place: Nebius, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    subject = {
        "type": "JWT", "alg": "RS256", "kid": "publickey-1", "iss": "serviceaccount-1", "sub": "serviceaccount-1",
        "private-key": private.private_bytes(*form).decode(),
    }  # fmt: skip
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"subject-credentials": subject}), encoding="utf-8")
    own = msgspec.structs.replace(BENCH, options={"ssh_key": SSH_KEY, "credentials_file": str(path)})
    with own.pointed_at(place.url, None) as adapter:
        assert list(launcher(adapter).list_instances()) == []
    assert place.count("TokenExchangeService/Exchange") == 1


def test_a_credentials_file_that_cannot_be_read_says_so_without_its_text(place: Nebius, tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text('{"secret-thing": "s3cr3t"}', encoding="utf-8")
    own = msgspec.structs.replace(BENCH, options={"ssh_key": SSH_KEY, "credentials_file": str(path)})
    with own.pointed_at(place.url, None) as adapter, pytest.raises(OrderRefused, match="credentials_file") as refused:
        launcher(adapter).create(order())
    assert "s3cr3t" not in str(refused.value)
    assert place.calls == []


def test_a_machine_is_stopped_with_its_disk_and_starts_where_there_are_resources(
    place: Nebius, adapter: Adapter
) -> None:
    keeper = launcher(adapter)
    instance_id = keeper.create(order()).instance_id
    keeper.stop_instance(instance_id)
    (found,) = keeper.list_instances()
    assert (found.state, found.disk_gb) == (InstanceState.STOPPED, 137.0)
    presets = place.presets
    place.presets = [one._replace(on_demand=0) for one in presets]
    assert not keeper.start_instance(instance_id)
    place.presets = presets
    assert keeper.start_instance(instance_id)
    assert keeper.list_instances()[0].state is InstanceState.RUNNING
    assert providers.info("nebius").cannot_keep_disk(is_spot=True, has_volume=False)
    keeper.destroy(instance_id)
    with pytest.raises(OrderError):
        keeper.stop_instance(instance_id)
