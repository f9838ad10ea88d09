"""Renting at Shadeform: the requests, and what its answers mean."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
import respx

from gpuwatch.errors import OfferGone, OrderRefused, OutcomeUnknown, PayloadChanged, RefusalKind
from gpuwatch.ports import InstanceState, Order, Registry
from gpuwatch.providers.shadeform import INFO, auto_delete
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.providers.clouds import cloud
from tests.providers.shadeform.bench import BENCH
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=INFO.base_url)
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)  # also the bench's
RECORDED = TESTS / "recorded" / "shadeform"
OUT_OF_STOCK = json.loads((RECORDED / "error-409-out-of-stock-live-2026-08-18.json").read_text())
OFFER = "hyperstack/H100/canada-1/240"
ID = "d290f1ee-6c54-4b01-90e6-d701748f0851"
# the example values of the vendor's specification, in the fields that it requires
INSTANCE = {
    "id": ID, "cloud": "hyperstack", "region": "canada-1", "shade_instance_type": "H100", "cloud_instance_type": "n3",
    "cloud_assigned_id": "13b057d7-e266-4869-985f-760fe75a78b3", "shade_cloud": True, "name": "gpuwatch-abc",
    "configuration": {
        "memory_in_gb": 12, "storage_in_gb": 256, "vcpus": 6, "num_gpus": 1, "gpu_type": "H100",
        "interconnect": "pcie", "vram_per_gpu_in_gb": 80, "os": "ubuntu_22_shade_os",
    },
    "ip": "203.0.113.1", "ssh_user": "shadeform", "ssh_port": 22, "status": "active", "cost_estimate": "103.4",
    "hourly_price": 240, "created_at": "2026-11-21T11:00:00Z", "active_at": "2026-11-21T11:03:00Z",
    "deleted_at": "0001-01-01T00:00:00Z", "tags": ["gpuwatch-abc"], "envs": [{"name": "TOKEN", "value": "s3cret"}],
}  # fmt: skip


@pytest.fixture
def launcher() -> Iterator[Any]:
    with BENCH.pointed_at(INFO.base_url) as adapter:
        yield adapter.launcher


@pytest.fixture
def created(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.post("/instances/create").respond(json={"id": ID})


def an_order(offer_id: str = OFFER, **values: Any) -> Order:
    return Order(**({"offer_id": offer_id, "label": "gpuwatch-abc", "image": "x/y", "disk_gb": 20.0} | values))


def body(route: respx.Route) -> Any:
    [(_method, _path, body)] = sent(route.calls)
    return body


# --- the order --------------------------------------------------------------------------------------------------------


def test_an_order_is_one_machine_with_the_label_in_name_and_tag(created: respx.Route, launcher: Any) -> None:
    assert launcher.create(an_order(deadline=NOW + timedelta(hours=4))).instance_id == ID
    assert sent(created.calls) == [
        (
            "POST",
            "/v1/instances/create",
            {
                "cloud": "hyperstack", "region": "canada-1", "shade_instance_type": "H100", "shade_cloud": True,
                "name": "gpuwatch-abc", "tags": ["gpuwatch-abc"],
                "auto_delete": {"date_threshold": "2026-11-21T16:30:00Z", "spend_threshold": "11.88"},
            },
        )
    ]  # fmt: skip
    headers = created.calls.last.request.headers
    assert (headers["x-api-key"], headers.get("authorization")) == ("demo-key", None)
    documented = json.loads((RECORDED / "instances-create-request-guide.json").read_text())
    assert documented.keys() <= body(created).keys()


def test_options_name_the_key_the_system_and_the_account(created: respx.Route) -> None:
    options = {"ssh_key": "k-1", "os": "ubuntu22.04_cuda12.2_shade_os", "shade_cloud": False}
    with msgspec.structs.replace(BENCH, options=options).pointed_at(INFO.base_url) as adapter:
        assert adapter.launcher is not None
        adapter.launcher.create(an_order())
    assert body(created).items() >= {"ssh_key_id": "k-1", "os": options["os"], "shade_cloud": False}.items()


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ({"deadline": NOW + timedelta(hours=2)}, "2026-11-21T14:30:00Z"),  # gpuwatch ends it first, if it is running
        ({"self_destruct_at": NOW + timedelta(hours=2)}, "2026-11-21T14:00:00Z"),
        ({}, "2026-11-22T12:00:00Z"),
    ],
)
def test_every_order_has_an_end_that_shadeform_keeps(
    created: respx.Route, launcher: Any, values: dict[str, Any], ends: str
) -> None:
    launcher.create(an_order(**values))
    assert body(created)["auto_delete"]["date_threshold"] == ends


def test_the_spending_limit_is_the_price_of_its_time_and_a_tenth() -> None:
    cases: list[Any] = [("240", 10, "26.40"), ("57", 1, "0.63"), ("6", 1, "0.50")]
    for cents, hours, limit in cases:
        with case((cents, hours, limit)):
            order = an_order(self_destruct_at=NOW + timedelta(hours=hours))
            assert auto_delete(order, Decimal(cents) / 100, {}, NOW)["spend_threshold"] == limit


def test_start_commands_are_a_script_and_variables_are_not_in_it(created: respx.Route, launcher: Any) -> None:
    launcher.create(an_order(onstart="nvidia-smi", env={"TOKEN": "s3cret"}))
    order = body(created)
    script = b64decode(order["launch_configuration"]["script_configuration"]["base64_script"])
    assert script == b"#!/bin/bash\nnvidia-smi"
    assert order["envs"] == [{"name": "TOKEN", "value": "s3cret"}]


def test_an_image_runs_with_its_own_entrypoint(created: respx.Route, launcher: Any) -> None:
    """As in `components/schemas/DockerConfiguration` of shadeform/docs 8d086fb (2026-03-05)."""
    launcher.create(
        an_order(
            runtype="args", image="ghcr.io/me/vllm:1", onstart="--model a/b", env={"HF_TOKEN": "s3cret"},
            ports=("8000", "80:8080/tcp"), registry=Registry(server="ghcr.io", username="me", password="pass-w0rd"),
        )
    )  # fmt: skip
    assert body(created)["launch_configuration"] == {
        "type": "docker",
        "docker_configuration": {
            "image": "ghcr.io/me/vllm:1",
            "args": "--model a/b",
            "envs": [{"name": "HF_TOKEN", "value": "s3cret"}],
            "port_mappings": [{"host_port": 8000, "container_port": 8000}, {"host_port": 80, "container_port": 8080}],
            "registry_credentials": {"username": "me", "password": "pass-w0rd"},
        },
    }


def test_an_image_alone_is_enough(created: respx.Route, launcher: Any) -> None:
    launcher.create(an_order(runtype="args", image="me/train:1"))
    assert body(created)["launch_configuration"]["docker_configuration"] == {"image": "me/train:1"}


def test_what_shadeform_cannot_do_is_refused_and_not_sent(respx_mock: respx.MockRouter, launcher: Any) -> None:
    wishes: tuple[dict[str, Any], ...] = (
        {"template": "t", "onstart": "true"}, {"runtype": "args", "image": ""}, {"runtype": "args", "template": "t"},
        {"runtype": "args", "ports": ("53/udp",)}, {"runtype": "args", "ports": ("99999",)},
        {"label": "gpuwatch-" + "x" * 60},
        {"offer_id": "hyperstack/H100/canada-1"}, {"offer_id": "hyperstack/H100/canada-1/spot"},
    )  # fmt: skip
    for wish in wishes:
        with case(wish), pytest.raises(OrderRefused, match="nothing was sent") as refused:
            launcher.create(an_order(**wish))
        assert refused.value.kind is RefusalKind.BAD_ORDER
    assert list(respx_mock.calls) == []


def test_a_template_of_the_owner_is_named_by_its_id(created: respx.Route, launcher: Any) -> None:
    launcher.create(an_order(template="t-1"))
    assert body(created)["template_id"] == "t-1"


@pytest.mark.parametrize(
    ("status", "refusal", "error", "kind"),
    [
        (409, OUT_OF_STOCK, OfferGone, None),  # as recorded
        (409, {"error": "a name conflict"}, OrderRefused, RefusalKind.OTHER),
        (400, {"error": "your wallet is empty"}, OrderRefused, RefusalKind.NO_CREDIT),
        (402, {"error": ""}, OrderRefused, RefusalKind.NO_CREDIT),
        (400, {"error": "unknown os"}, OrderRefused, RefusalKind.BAD_ORDER),
        (403, {"message": "forbidden"}, OrderRefused, RefusalKind.KEY),
        (404, {}, OfferGone, None),
    ],
)
def test_a_refusal_goes_by_its_code_its_words_or_its_status(
    respx_mock: respx.MockRouter, launcher: Any, status: int, refusal: Any, error: type[Exception], kind: object
) -> None:
    respx_mock.post("/instances/create").respond(status, json=refusal)
    with pytest.raises(error) as refused:
        launcher.create(an_order())
    assert getattr(refused.value, "kind", None) == kind


# --- instances --------------------------------------------------------------------------------------------------------


def test_the_list_is_one_answer_without_those_that_are_deleted(respx_mock: respx.MockRouter, launcher: Any) -> None:
    rows = [INSTANCE, INSTANCE | {"id": "2", "status": "deleted"}, INSTANCE | {"id": "3", "a new field": 1}]
    listed = respx_mock.get("/instances").respond(json={"instances": rows})
    found, other = launcher.list_instances()
    assert sent(listed.calls) == [("GET", "/v1/instances", None)]
    assert (found.instance_id, found.label, found.state) == (ID, "gpuwatch-abc", InstanceState.RUNNING)
    assert (found.ssh_host, found.ssh_port, found.ssh_user) == ("203.0.113.1", 22, "shadeform")
    assert (found.gpu, found.gpu_count, found.listed_usd_hour) == ("H100 PCIe", 1, 2.4)
    assert (found.machine_id, found.started_at) == ("hyperstack/H100/canada-1", NOW - timedelta(minutes=57))
    assert (other.instance_id, "s3cret" in repr((found, other))) == ("3", False)


def test_one_instance_states_its_own_end(respx_mock: respx.MockRouter, launcher: Any) -> None:
    limits = {"auto_delete": {"date_threshold": "2026-11-21T16:30:00Z", "spend_threshold": "11.88"}}
    shown = respx_mock.get(f"/instances/{ID}/info").respond(json=INSTANCE | limits)
    assert launcher.get(ID).ends_at == NOW + timedelta(hours=4, minutes=30)
    assert sent(shown.calls) == [("GET", f"/v1/instances/{ID}/info", None)]


@pytest.mark.parametrize("text", ["Instance not found", "Not found"])
def test_a_404_is_no_word_about_an_instance(respx_mock: respx.MockRouter, launcher: Any, text: str) -> None:
    """None is documented: a requested instance may exist."""
    respx_mock.get(f"/instances/{ID}/info").respond(404, json={"error": text})
    with pytest.raises(PayloadChanged):
        launcher.get(ID)


def test_an_end_is_an_empty_answer_and_not_sent_while_it_is_in_progress(
    respx_mock: respx.MockRouter, launcher: Any
) -> None:
    ended = respx_mock.post(f"/instances/{ID}/delete").respond(200)
    launcher.destroy(ID)
    respx_mock.get("/instances").respond(json={"instances": [INSTANCE | {"status": "deleting"}]})
    assert [instance.state for instance in launcher.list_instances()] == [InstanceState.ENDING]
    launcher.destroy(ID)
    assert sent(ended.calls) == [("POST", f"/v1/instances/{ID}/delete", None)]


@pytest.mark.parametrize(
    ("text", "error"), [("Instance not found", None), ("Not found", OutcomeUnknown), ("", OutcomeUnknown)]
)
def test_an_end_of_what_is_gone_is_done_only_if_it_says_so(
    respx_mock: respx.MockRouter, launcher: Any, text: str, error: type[Exception] | None
) -> None:
    respx_mock.post(f"/instances/{ID}/delete").respond(404, json={"error": text})
    if error is None:
        launcher.destroy(ID)
    else:
        with pytest.raises(error):
            launcher.destroy(ID)


def test_a_cloud_that_deletes_nothing_before_it_is_active_is_reported(
    respx_mock: respx.MockRouter, launcher: Any
) -> None:
    refusal = {"error": "cannot be deleted before it is active"}
    respx_mock.post(f"/instances/{ID}/delete").respond(400, json=refusal)
    with pytest.raises(OrderRefused, match="before it is active"):
        launcher.destroy(ID)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_renamed_instance_keeps_its_label() -> None:
    row = {"id": "1", "status": "active", "name": "mine", "tags": ["x", "gpuwatch-abc"]}
    assert [instance.label for instance in cloud("shadeform").parse_instances([row])] == ["gpuwatch-abc"]
    assert [instance.label for instance in cloud("shadeform").parse_instances([row | {"tags": None}])] == ["mine"]


def test_a_list_with_a_row_that_is_none_is_no_list() -> None:
    cases: list[Any] = [{"status": "active"}, {"id": "1"}, None, 17, {"id": 1, "status": "active"}]
    for row in cases:
        with case(row), pytest.raises(PayloadChanged):
            cloud("shadeform").parse_instances([row])


def test_a_moment_that_is_none_is_not_reported() -> None:
    cases: list[Any] = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-05:00", "yesterday", 17, None]
    for moment in cases:
        with case(moment):
            [one] = cloud("shadeform").parse_instances([{"id": "1", "status": "active", "active_at": moment}])
            assert one.started_at is None
