"""Renting at TensorDock: the requests, and the meaning of its many kinds of refusal."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import respx

from gpuwatch.errors import OfferGone, OrderError, OrderRateLimited, OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import Launcher, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.tensordock import INFO
from gpuwatch.testing.bench import Bench
from gpuwatch.testing.suite import case
from tests.clouds.tensordock import TensorDock
from tests.providers.tensordock.stand_in import BENCH, OFFER, SSH_KEY, order, recorded
from tests.sent_requests import sent

pytestmark = pytest.mark.respx(base_url=f"{INFO.base_url}/api/v2")
PLACE = "8dd95ff0-dff9-489c-9b02-b38a366b6ab1"


@pytest.fixture
def created(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.post("/instances").respond(json=recorded("v2-instance-create-response-live"))


def attributes(created: respx.Route) -> dict[str, Any]:
    """Return what the only order asks for."""
    [(_method, _path, body)] = sent(created.calls)
    found: dict[str, Any] = body["data"]["attributes"]
    return found


# --- requests ---------------------------------------------------------------------------------------------------------


def test_an_order_is_the_documented_request(created: respx.Route, launcher: Launcher) -> None:
    made = launcher.create(order(ports=("8000", "9000:80/tcp")))
    assert made.instance_id == "468b716a-6747-4cbe-9f13-afc153a21c14"
    [(method, path, body)] = sent(created.calls)
    runcmd = body["data"]["attributes"].pop("cloud_init")["runcmd"]
    expected = {
        "name": "gpuwatch-abc",
        "type": "virtualmachine",
        "image": "ubuntu2404_ml_pytorch",
        "resources": {
            "vcpu_count": 16, "ram_gb": 64, "storage_gb": 100, "gpus": {"geforcertx4090-pcie-24gb": {"count": 2}},
        },
        "location_id": PLACE,
        "useDedicatedIp": False,
        "port_forwards": [
            {"internal_port": 22, "external_port": 22},
            {"internal_port": 8000, "external_port": 8000},
            {"internal_port": 80, "external_port": 9000},
        ],
        "ssh_key": SSH_KEY,
    }  # fmt: skip
    assert (method, path, body) == (
        "POST",
        "/api/v2/instances",
        {"data": {"type": "virtualmachine", "attributes": expected}},
    )
    assert created.calls.last.request.headers["authorization"] == "Bearer demo-key"
    assert len(runcmd) == 1  # the login
    names = {
        name: recorded(f"v2-instance-create-request-{name}-docs")["data"]["attributes"]
        for name in ("location", "hostnode")
    }
    assert expected.keys() <= names["location"].keys() | names["hostnode"].keys()


def test_what_was_quoted_is_what_is_ordered(
    respx_mock: respx.MockRouter, created: respx.Route, adapter: Adapter, launcher: Launcher
) -> None:
    documented = recorded("v2-locations-docs")
    documented["data"]["locations"][0]["id"] = PLACE
    respx_mock.get("/locations").respond(json=documented)
    offer = next(o for o in adapter.market.search(Query(gpus=("H100 SXM",))).offers if o.gpu_count == 8)
    launcher.create(order(offer.offer_id, disk_gb=100.0))
    assert attributes(created)["resources"] == {
        "vcpu_count": 64, "ram_gb": 256, "storage_gb": 100, "gpus": {"h100-sxm5-80gb": {"count": 8}},
    }  # fmt: skip


@pytest.mark.parametrize(("disk_gb", "ordered"), [(20.0, 100), (150.4, 151)])
def test_disk_is_at_least_what_can_be_had_and_in_whole_gb(
    created: respx.Route, launcher: Launcher, disk_gb: float, ordered: int
) -> None:
    launcher.create(order(disk_gb=disk_gb))
    assert attributes(created)["resources"]["storage_gb"] == ordered


def test_a_single_host_is_ordered_by_its_own_id(created: respx.Route, launcher: Launcher) -> None:
    launcher.create(order(OFFER[0].upper() + OFFER[1:]))
    assert (attributes(created)["hostnode_id"], "location_id" in attributes(created)) == (PLACE, False)


def test_environment_and_start_commands_reach_the_machine(
    created: respx.Route, launcher: Launcher, tmp_path: Path
) -> None:
    reported = {"TOKEN": 'it\'s "one"\nline', "OUT": str(tmp_path / "out")}
    launcher.create(order(env=reported, onstart='printf "%s" "$TOKEN" >"$OUT"'))
    commands = attributes(created)["cloud_init"]["runcmd"]
    assert all("\n" not in command for command in commands)
    unpack = commands[1].replace("bash /root/gpuwatch-boot", "true").replace("/root", str(tmp_path))
    subprocess.run(["sh", "-c", unpack], check=True, capture_output=True)
    boot = (tmp_path / "gpuwatch-boot").read_text().replace("/etc/", f"{tmp_path}/").replace("/root", str(tmp_path))
    subprocess.run(["bash", "-c", boot], check=True, capture_output=True)
    assert (tmp_path / "out").read_text() == reported["TOKEN"]


@pytest.mark.parametrize(("booted", "asked"), [("07:29:59", []), ("07:30:00", ["-h now"])])
def test_the_machine_shuts_itself_down_at_its_deadline_before_anything_of_the_owner_runs(
    created: respx.Route, launcher: Launcher, tmp_path: Path, booted: str, asked: list[str]
) -> None:
    """Even if its first boot is later: a timer for a past moment never fires."""
    launcher.create(order(onstart="exec sleep infinity", self_destruct_at=datetime(2026, 11, 22, 7, 30, tzinfo=UTC)))
    _, timer, boot = attributes(created)["cloud_init"]["runcmd"]
    assert "\n" not in timer
    assert "gpuwatch-boot" in boot
    unpack = timer.replace("bash /root/gpuwatch-end", "true").replace("/root", str(tmp_path))
    subprocess.run(["sh", "-c", unpack], check=True, capture_output=True)
    script = (tmp_path / "gpuwatch-end").read_text()
    assert "OnCalendar=2026-11-22 07:30:00 UTC\n" in script
    now = int(datetime.fromisoformat(f"2026-11-22T{booted}+00:00").timestamp())
    programs = {
        "systemctl": f'echo "$@" >>{tmp_path}/asked',
        "date": f"echo {now}",
        "shutdown": f'echo "$@" >>{tmp_path}/down',
    }
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    own = f"PATH={tmp_path}:$PATH\n" + script.replace("/etc/systemd/system", str(tmp_path))
    subprocess.run(["bash", "-c", own], check=True, capture_output=True)
    assert (tmp_path / "asked").read_text().splitlines() == ["daemon-reload", "enable --now gpuwatch-end.timer"]
    down = tmp_path / "down"
    assert (down.read_text().splitlines() if down.exists() else []) == asked
    assert "ExecStart=/sbin/shutdown -h now\n" in (tmp_path / "gpuwatch-end.service").read_text()


@pytest.mark.parametrize("before", ["", "ssh-ed25519 AAAA other\n", f"{SSH_KEY}\n"])
def test_the_login_is_installed_once(created: respx.Route, launcher: Launcher, tmp_path: Path, before: str) -> None:
    launcher.create(order())
    keys = tmp_path / ".ssh" / "authorized_keys"
    if before:
        keys.parent.mkdir()
        keys.write_text(before)
    line = attributes(created)["cloud_init"]["runcmd"][0].replace("/home/user", str(tmp_path))
    subprocess.run(["sh", "-c", line], check=True, capture_output=True)
    assert keys.read_text() == before + (f"{SSH_KEY}\n" if before != f"{SSH_KEY}\n" else "")
    assert keys.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_done_is_refused_before_anything_is_sent(
    respx_mock: respx.MockRouter, launcher: Launcher
) -> None:
    wishes: tuple[dict[str, Any], ...] = (
        {"ports": ("53/udp",)}, {"ports": ("70000",)}, {"ports": ("x",)}, {"env": {"A B": "c"}}, {"label": "x" * 61},
        {"offer_id": "nonsense"},
    )  # fmt: skip
    for wish in wishes:
        with case(wish), pytest.raises(OrderRefused) as refused:
            launcher.create(order(**wish))
        assert refused.value.kind is RefusalKind.BAD_ORDER
    assert list(respx_mock.calls) == []


@pytest.mark.parametrize("key", [None, "not a key", "ssh-ed25519 AAAA\nx"])
def test_without_a_public_key_nothing_is_ordered(respx_mock: respx.MockRouter, key: str | None) -> None:
    bench = Bench(name="tensordock", place=TensorDock, gpu="RTX 4090", options={"ssh_key": key})
    with bench.pointed_at(INFO.base_url) as adapter:
        assert adapter.launcher is not None
        with pytest.raises(OrderRefused, match="ssh_key"):
            adapter.launcher.create(order())
    assert list(respx_mock.calls) == []


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("v2-error-http200-no-nodes-live", 200),
        ("v2-error-http200-no-public-ip-live", 200),
        ("v2-error-http200-hostnode-unavailable", 200),
        ("v2-error-http200-hostnode-unavailable", 400),
    ],
)
def test_a_recorded_word_of_no_capacity_is_an_offer_that_is_gone(
    respx_mock: respx.MockRouter, launcher: Launcher, name: str, status: int
) -> None:
    respx_mock.post("/instances").respond(status, json=recorded(name))
    with pytest.raises(OfferGone):
        launcher.create(order())


@pytest.mark.parametrize(
    ("status", "body", "error", "kind"),
    [
        (200, {"error": "insufficient capacity", "status": 400}, OfferGone, None),
        (400, {"error": "Out of Stock"}, OfferGone, None),
        (400, {"error": "Resource unavailable"}, OfferGone, None),
        (200, {"error": "unexpected error during deployment", "status": 400}, OutcomeUnknown, None),
        (500, {"error": "No available nodes found"}, OutcomeUnknown, None),
        (200, {"error": "No available nodes found", "status": 500}, OutcomeUnknown, None),
        (200, {"error": "something else"}, OutcomeUnknown, None),
        (200, {"error": "the load balancer gave up"}, OutcomeUnknown, None),
        (200, [], OutcomeUnknown, None),
        (200, [{"id": "1", "name": "gpuwatch-x"}], OutcomeUnknown, None),
        (200, {"data": {"id": ""}}, OutcomeUnknown, None),
        (200, {"data": {"id": "../../x"}}, OutcomeUnknown, None),
        (200, {"data": {"id": 17}}, OutcomeUnknown, None),
        (200, {"error": "You need at least $1 of balance", "status": 400}, OrderRefused, RefusalKind.NO_CREDIT),
        (200, {"error": "need at least 2 vCPUs", "status": 400}, OrderRefused, RefusalKind.BAD_ORDER),
        (400, {"error": "SSH port (22) must be forwarded for Ubuntu VMs"}, OrderRefused, RefusalKind.BAD_ORDER),
        (400, [{"code": "required", "message": "Name is required", "path": []}], OrderRefused, RefusalKind.BAD_ORDER),
        (200, [{"code": "required", "message": "Name is required", "path": []}], OrderRefused, RefusalKind.BAD_ORDER),
        (200, {"error": "Unauthorized", "status": 401}, OrderRefused, RefusalKind.KEY),
        (200, {"error": "slow down", "status": 429}, OrderRateLimited, None),
        (404, {"error": "Location not found"}, OrderRefused, RefusalKind.OTHER),
    ],
)
def test_what_an_answer_to_a_create_means(
    respx_mock: respx.MockRouter,
    launcher: Launcher,
    status: int,
    body: Any,
    error: type[OrderError],
    kind: RefusalKind | None,
) -> None:
    route = respx_mock.post("/instances").respond(status, json=body)
    with pytest.raises(error) as caught:
        launcher.create(order())
    assert getattr(caught.value, "kind", None) is kind
    assert route.call_count == 1


@pytest.mark.parametrize("name", ["v2-error-http400-ssh-port-live", "v2-error-validation-array-client-test-http400"])
def test_a_recorded_word_of_a_wrong_order_refuses_it(
    respx_mock: respx.MockRouter, launcher: Launcher, name: str
) -> None:
    respx_mock.post("/instances").respond(400, json=recorded(name))
    with pytest.raises(OrderRefused) as refused:
        launcher.create(order())
    assert refused.value.kind is RefusalKind.BAD_ORDER


def test_a_create_may_take_two_minutes(created: respx.Route) -> None:
    with BENCH.pointed_at(INFO.base_url, timeout_s=500.0) as adapter:
        assert adapter.launcher is not None
        adapter.launcher.create(order())
    assert created.calls.last.request.extensions["timeout"]["read"] == 120.0


# --- ending -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (200, json.dumps(recorded("v2-instance-delete-response-docs")).encode(), None),
        (204, b"", None),
        (200, b'{"error": "VM already terminated", "status": 400}', None),
        (404, b'{"error": "Instance not found"}', None),
        (200, b'{"error": "Instance not found", "status": 404}', None),
        (404, b"<html>not found</html>", OrderRefused),
        (200, b"", OutcomeUnknown),
        (200, b"<html>", OutcomeUnknown),
        (200, b'{"error": "Instance is locked", "status": 409}', OrderRefused),
        (200, b'{"error": "oops"}', OutcomeUnknown),
    ],
)
def test_what_an_answer_to_a_destroy_means(
    respx_mock: respx.MockRouter, launcher: Launcher, status: int, content: bytes, error: type[OrderError] | None
) -> None:
    ended = respx_mock.delete("/instances/abc").respond(status, content=content)
    if error is None:
        launcher.destroy("abc")
    else:
        with pytest.raises(error):
            launcher.destroy("abc")
    assert sent(ended.calls) == [("DELETE", "/api/v2/instances/abc", None)]
