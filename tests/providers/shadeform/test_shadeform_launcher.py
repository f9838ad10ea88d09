"""Shadeform's launcher, with its emulator."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.engine.instance_addresses import ContractEnds
from gpuwatch.errors import KeyRejected, OfferGone, OrderRefused, OutcomeUnknown, PayloadChanged, RefusalKind
from gpuwatch.ports import InstanceLookup, InstanceState, Launcher, Order, ProviderSettings, Registry, Volume
from gpuwatch.providers.shadeform.launcher import auto_delete, parse_instances
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.clocks import Clock
from tests.clouds.shadeform import Shadeform
from tests.domain.launches.guard_values import a_running_launch

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OFFER = "hyperstack/H100/canada-1/240"
DEFAULTS = {spec.name: spec.default for spec in providers.info("shadeform").options}


@contextmanager
def at(place: Shadeform, clock: Clock, key: str = "demo-key", **options: Any) -> Iterator[Launcher]:
    http = PooledHttpClient()
    settings = ProviderSettings(
        name="shadeform", base_url=place.url, api_key=key, search_interval_s=0.0, options=DEFAULTS | options
    )
    adapter = providers.build(settings, http, lambda: datetime.fromtimestamp(clock(), UTC), clock, clock.sleep)
    assert adapter.launcher is not None
    yield adapter.launcher
    http.close()


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW.timestamp())


@pytest.fixture
def place(clock: Clock) -> Iterator[Shadeform]:
    with Shadeform(clock=clock, boots_s=180.0, ends_s=60.0) as place:
        yield place


@pytest.fixture
def launcher(place: Shadeform, clock: Clock) -> Iterator[Launcher]:
    with at(place, clock) as launcher:
        yield launcher


def an_order(offer_id: str = OFFER, **values: Any) -> Order:
    return Order(**({"offer_id": offer_id, "label": "gpuwatch-abc", "image": "x/y", "disk_gb": 20.0} | values))


def sent(place: Shadeform) -> Any:
    return next(request for request in reversed(place.requests) if request.path.endswith("/create")).body()


def test_an_order_is_one_machine_with_the_label_in_name_and_tag(place: Shadeform, launcher: Launcher) -> None:
    launcher.create(an_order(deadline=NOW + timedelta(hours=4)))
    assert sent(place) == {
        "cloud": "hyperstack",
        "region": "canada-1",
        "shade_instance_type": "H100",
        "shade_cloud": True,
        "name": "gpuwatch-abc",
        "tags": ["gpuwatch-abc"],
        "auto_delete": {"date_threshold": "2026-11-21T16:30:00Z", "spend_threshold": "11.88"},
    }


def test_options_name_the_key_the_system_and_the_account(place: Shadeform, clock: Clock) -> None:
    with at(place, clock, ssh_key="k-1", os="ubuntu22.04_cuda12.2_shade_os", shade_cloud=False) as launcher:
        launcher.create(an_order())
    reported = {key: sent(place)[key] for key in ("ssh_key_id", "os", "shade_cloud")}
    assert reported == {"ssh_key_id": "k-1", "os": "ubuntu22.04_cuda12.2_shade_os", "shade_cloud": False}


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ({"deadline": NOW + timedelta(hours=2)}, "2026-11-21T14:30:00Z"),  # gpuwatch ends it first, if it is running
        ({"self_destruct_at": NOW + timedelta(hours=2)}, "2026-11-21T14:00:00Z"),
        ({}, "2026-11-22T12:00:00Z"),
    ],
)
def test_every_order_has_an_end_that_shadeform_keeps(
    place: Shadeform, launcher: Launcher, values: dict[str, Any], ends: str
) -> None:
    launcher.create(an_order(**values))
    assert sent(place)["auto_delete"]["date_threshold"] == ends


@pytest.mark.parametrize(
    ("cents", "hours", "limit"),
    [("240", 10, "26.40"), ("57", 1, "0.63"), ("6", 1, "0.50")],  # rounded up, and never so low that it ends at once
)
def test_the_spending_limit_is_the_price_of_its_time_and_a_tenth(cents: str, hours: int, limit: str) -> None:
    order = an_order(self_destruct_at=NOW + timedelta(hours=hours))
    assert auto_delete(order, Decimal(cents) / 100, {}, NOW)["spend_threshold"] == limit


def test_an_orphan_is_deleted_by_its_date(place: Shadeform, launcher: Launcher, clock: Clock) -> None:
    launcher.create(an_order(deadline=NOW + timedelta(hours=1)))
    clock.sleep(1.5 * 3600 - 1)
    assert [instance.state for instance in launcher.list_instances()] == [InstanceState.RUNNING]
    clock.sleep(1 + 60)
    assert list(launcher.list_instances()) == []


def test_its_date_is_the_end_of_its_contract(place: Shadeform, launcher: Launcher) -> None:
    """Only the answer about the single instance states it; no later end of gpuwatch's changes it."""
    created = launcher.create(an_order(deadline=NOW + timedelta(hours=4)))
    assert [instance.ends_at for instance in launcher.list_instances()] == [None]
    ends = ContractEnds({"shadeform": launcher})
    rented = a_running_launch(provider="shadeform", instance_id=created.instance_id)
    assert ends(rented) == NOW + timedelta(hours=4, minutes=30)
    assert ends(a_running_launch(provider="shadeform", instance_id="none-such")) is None


def test_what_costs_more_than_its_offer_said_is_deleted_by_its_spending(
    place: Shadeform, launcher: Launcher, clock: Clock
) -> None:
    next(kind for kind in place.kinds if kind["shade_instance_type"] == "H100")["hourly_price"] = 480
    launcher.create(an_order(deadline=NOW + timedelta(hours=9.5)))  # 10 h for 26.40 $: at 4.80 $/h that is 5.5 h
    [found] = launcher.list_instances()
    assert found.listed_usd_hour == 4.8  # which the engine compares with the threshold at once
    clock.sleep(5.5 * 3600 + 60)
    assert list(launcher.list_instances()) == []


def test_start_commands_are_a_script_and_variables_are_not_in_it(place: Shadeform, launcher: Launcher) -> None:
    launcher.create(an_order(onstart="nvidia-smi", env={"TOKEN": "s3cret"}))
    body = sent(place)
    script = b64decode(body["launch_configuration"]["script_configuration"]["base64_script"])
    assert script == b"#!/bin/bash\nnvidia-smi"
    assert body["envs"] == [{"name": "TOKEN", "value": "s3cret"}]
    assert "s3cret" not in repr(launcher.list_instances())


def test_an_image_runs_with_its_own_entrypoint(place: Shadeform, launcher: Launcher) -> None:
    """As in `components/schemas/DockerConfiguration` of shadeform/docs 8d086fb (2026-03-05)."""
    launcher.create(
        an_order(
            runtype="args", image="ghcr.io/me/vllm:1", onstart="--model a/b", env={"HF_TOKEN": "s3cret"},
            ports=("8000", "80:8080/tcp"), registry=Registry(server="ghcr.io", username="me", password="pass-w0rd"),
        )
    )  # fmt: skip
    assert sent(place)["launch_configuration"] == {
        "type": "docker",
        "docker_configuration": {
            "image": "ghcr.io/me/vllm:1",
            "args": "--model a/b",
            "envs": [{"name": "HF_TOKEN", "value": "s3cret"}],
            "port_mappings": [{"host_port": 8000, "container_port": 8000}, {"host_port": 80, "container_port": 8080}],
            "registry_credentials": {"username": "me", "password": "pass-w0rd"},
        },
    }
    assert "s3cret" not in repr(launcher.list_instances())


def test_an_image_alone_is_enough(place: Shadeform, launcher: Launcher) -> None:
    launcher.create(an_order(runtype="args", image="me/train:1"))
    assert sent(place)["launch_configuration"]["docker_configuration"] == {"image": "me/train:1"}


@pytest.mark.parametrize(
    "wish",
    [
        {"bid_usd_hour": 1.0},
        {"template": "t", "onstart": "true"},
        {"registry": Registry(server="ghcr.io", username="me", password="s3cret")},
        {"volume": Volume(mount="/data", volume_id="1")},
        {"ports": ("8000",)},
        {"runtype": "jupyter"},
        {"runtype": "args", "image": ""},
        {"runtype": "args", "template": "t"},
        {"runtype": "args", "ports": ("53/udp",)},
        {"runtype": "args", "ports": ("99999",)},
        {"label": "gpuwatch-" + "x" * 60},
        {"offer_id": "hyperstack/H100/canada-1"},
    ],
    ids=lambda wish: next(iter(wish)),
)
def test_what_shadeform_cannot_do_is_refused_and_not_sent(
    place: Shadeform, launcher: Launcher, wish: dict[str, Any]
) -> None:
    with pytest.raises(OrderRefused, match="nothing was sent") as refused:
        launcher.create(an_order(**wish))
    assert (refused.value.kind, place.requests) == (RefusalKind.BAD_ORDER, [])


def test_a_template_of_the_owner_is_named_by_its_id(place: Shadeform, launcher: Launcher) -> None:
    launcher.create(an_order(template="t-1"))
    assert sent(place)["template_id"] == "t-1"


def test_it_waits_for_its_cloud_runs_ends_and_is_gone(place: Shadeform, launcher: Launcher, clock: Clock) -> None:
    made = launcher.create(an_order())
    seen = []
    for _ in range(4):
        [one] = launcher.list_instances()
        seen.append((one.status, one.state))
        clock.sleep(60)
    starting, running = InstanceState.STARTING, InstanceState.RUNNING
    assert seen == [
        ("creating", starting), ("pending_provider", starting), ("pending", starting), ("active", running),
    ]  # fmt: skip
    [active] = launcher.list_instances()
    assert (active.ssh_host, active.ssh_port, active.ssh_user) == ("203.0.113.1", 22, "shadeform")
    assert active.label == "gpuwatch-abc"
    assert (active.gpu, active.gpu_count, active.listed_usd_hour) == ("H100 PCIe", 1, 2.4)
    assert (active.machine_id, active.started_at) == ("hyperstack/H100/canada-1", NOW + timedelta(seconds=180))
    launcher.destroy(made.instance_id)
    assert [instance.status for instance in launcher.list_instances()] == ["deleting"]
    launcher.destroy(made.instance_id)  # the list shows that the end is in progress
    assert place.count("POST .*delete") == 1
    clock.sleep(60)
    assert list(launcher.list_instances()) == []
    launcher.destroy(made.instance_id)


def test_deleted_instances_of_a_list_are_gone(clock: Clock) -> None:
    with Shadeform(clock=clock, lists_deleted=True) as place, at(place, clock) as launcher:
        launcher.destroy(launcher.create(an_order()).instance_id)
        assert len(place.instances(place.requests[-1])["instances"]) == 1
        assert list(launcher.list_instances()) == []


def test_a_404_is_no_word_about_an_instance(place: Shadeform, launcher: Launcher) -> None:
    """None is documented: a requested instance may exist, and one that should end may not have ended."""
    made = launcher.create(an_order())
    assert isinstance(launcher, InstanceLookup)
    for body in ({"error": "Instance not found"}, {"error": "Not found"}):
        place.fail("GET", 404, body)
        with pytest.raises(PayloadChanged):
            launcher.get(made.instance_id)
    place.fail("POST", 404, {"error": "Not found"})
    with pytest.raises(OutcomeUnknown):
        launcher.destroy(made.instance_id)
    place.fail("POST", 404, {"error": "Instance not found"})
    launcher.destroy(made.instance_id)


def test_one_that_hangs_at_its_cloud_stays_starting_and_one_that_fails_has_failed(
    place: Shadeform, launcher: Launcher, clock: Clock
) -> None:
    place.next_fate = "pending_provider"
    launcher.create(an_order())
    place.next_fate = "error"
    launcher.create(an_order())
    clock.sleep(3600)
    assert [instance.state for instance in launcher.list_instances()] == [InstanceState.STARTING, InstanceState.FAILED]


def test_a_cloud_that_deletes_nothing_before_it_is_active_is_reported(clock: Clock) -> None:
    with Shadeform(clock=clock, boots_s=60.0, only_active=True) as place, at(place, clock) as launcher:
        made = launcher.create(an_order())
        with pytest.raises(OrderRefused, match="before it is active"):
            launcher.destroy(made.instance_id)
        clock.sleep(60)
        launcher.destroy(made.instance_id)
        assert list(launcher.list_instances()) == []


def test_a_renamed_instance_keeps_its_label() -> None:
    row = {"id": "1", "status": "active", "name": "mine", "tags": ["x", "gpuwatch-abc"]}
    assert [instance.label for instance in parse_instances({"instances": [row]})] == ["gpuwatch-abc"]
    assert [instance.label for instance in parse_instances({"instances": [row | {"tags": None}]})] == ["mine"]


def test_out_of_stock_is_the_next_candidates_turn(place: Shadeform, launcher: Launcher) -> None:
    place.sell_out(OFFER)
    with pytest.raises(OfferGone):
        launcher.create(an_order())
    assert launcher.create(an_order("hyperstack/H100/norway-1/240")).starting


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (409, "a name conflict", RefusalKind.OTHER),
        (400, "your wallet is empty", RefusalKind.NO_CREDIT),
        (402, "", RefusalKind.NO_CREDIT),
        (400, "unknown os", RefusalKind.BAD_ORDER),
        (403, "", RefusalKind.KEY),
    ],
)
def test_other_refusals_go_by_their_status(
    place: Shadeform, launcher: Launcher, status: int, text: str, kind: RefusalKind
) -> None:
    place.fail("POST .*create", status, {"error": text})
    with pytest.raises(OrderRefused) as refused:
        launcher.create(an_order())
    assert refused.value.kind is kind


def test_a_lost_answer_is_found_by_its_label(place: Shadeform, launcher: Launcher) -> None:
    place.fail("POST .*create", None, carried_out=True)
    with pytest.raises(OutcomeUnknown):
        launcher.create(an_order())
    assert [instance.label for instance in launcher.list_instances()] == ["gpuwatch-abc"]


def test_a_wrong_key_is_reported(place: Shadeform, clock: Clock) -> None:
    with at(place, clock, key="another") as launcher:
        with pytest.raises(KeyRejected):
            launcher.list_instances()
        with pytest.raises(OrderRefused) as refused:
            launcher.create(an_order())
        assert refused.value.kind is RefusalKind.KEY


@pytest.mark.parametrize("row", [{"status": "active"}, {"id": "1"}, None, 17, {"id": 1, "status": "active"}])
def test_a_list_with_a_row_that_is_none_is_no_list(row: Any) -> None:
    with pytest.raises(PayloadChanged):
        parse_instances({"instances": [row]})


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-05:00", "yesterday", 17, None])
def test_a_moment_that_is_none_is_not_reported(moment: Any) -> None:
    [one] = parse_instances({"instances": [{"id": "1", "status": "active", "active_at": moment}]})
    assert one.started_at is None
