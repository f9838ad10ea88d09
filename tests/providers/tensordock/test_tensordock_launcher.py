"""Renting at TensorDock: the requests, and the meaning of its many kinds of refusal."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.errors import OfferGone, OrderError, OrderRateLimited, OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import Launcher, Query, Registry, Volume
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.bench import Bench
from tests.clouds.tensordock import TensorDock
from tests.providers.tensordock.stand_in import BENCH, HOSTS, RECORDED, SSH_KEY, only, order, rented

# --- requests ---------------------------------------------------------------------------------------------------------


def test_what_was_quoted_is_what_is_ordered_and_charged(
    adapter: Adapter, place: TensorDock, launcher: Launcher
) -> None:
    offer = next(o for o in adapter.market.search(Query(gpus=("H100 SXM",))).offers if o.gpu_count == 8)
    launcher.create(order(offer.offer_id, disk_gb=100.0))
    [sent] = place.orders
    assert sent["resources"] == {
        "vcpu_count": 64, "ram_gb": 256, "storage_gb": 100, "gpus": {"h100-sxm5-80gb": {"count": 8}},
    }  # fmt: skip
    assert (sent["location_id"], "hostnode_id" in sent) == (place.locations[0]["id"], False)
    assert only(launcher).listed_usd_hour == pytest.approx(offer.quoted_usd_hour)


def test_the_request_has_the_shape_of_the_documented_one(adapter: Adapter, place: TensorDock) -> None:
    rented(adapter, ports=("8000",))
    sent = next(request for request in place.requests if request.method == "POST").body()
    shown = json.loads((RECORDED / "v2-instance-create-request-hostnode-docs.json").read_bytes())
    assert sent.keys() == shown.keys()
    assert sent["data"]["type"] == shown["data"]["type"]
    attributes = sent["data"]["attributes"]
    assert attributes.keys() - {"location_id", "ssh_key", "useDedicatedIp"} <= shown["data"]["attributes"].keys()
    assert attributes["resources"].keys() == shown["data"]["attributes"]["resources"].keys()
    assert (attributes["name"], attributes["image"]) == ("gpuwatch-abc", "ubuntu2404_ml_pytorch")


def test_disk_is_at_least_what_can_be_had_and_in_whole_gb(adapter: Adapter, place: TensorDock) -> None:
    for disk_gb in (20.0, 150.4):
        rented(adapter, disk_gb=disk_gb)
    assert [one["resources"]["storage_gb"] for one in place.orders] == [100, 151]


def test_port_22_and_those_of_the_owner_are_forwarded(adapter: Adapter, place: TensorDock) -> None:
    rented(adapter, ports=("8000", "9000:80/tcp"))
    wished = [(one["internal_port"], one["external_port"]) for one in place.orders[0]["port_forwards"]]
    assert wished == [(22, 22), (8000, 8000), (80, 9000)]


def test_a_single_host_is_ordered_by_its_own_id(place: TensorDock) -> None:
    with HOSTS.pointed_at(place.url) as adapter:
        rented(adapter)
    assert ("hostnode_id" in place.orders[0], "location_id" in place.orders[0]) == (True, False)


def test_environment_and_start_commands_reach_the_machine(adapter: Adapter, place: TensorDock, tmp_path: Path) -> None:
    reported = {"TOKEN": 'it\'s "one"\nline', "OUT": str(tmp_path / "out")}
    rented(adapter, env=reported, onstart='printf "%s" "$TOKEN" >"$OUT"')
    commands = place.orders[0]["cloud_init"]["runcmd"]
    assert all("\n" not in command for command in commands)
    unpack = commands[1].replace("bash /root/gpuwatch-boot", "true").replace("/root", str(tmp_path))
    subprocess.run(["sh", "-c", unpack], check=True, capture_output=True)
    boot = (tmp_path / "gpuwatch-boot").read_text().replace("/etc/", f"{tmp_path}/").replace("/root", str(tmp_path))
    subprocess.run(["bash", "-c", boot], check=True, capture_output=True)
    assert (tmp_path / "out").read_text() == reported["TOKEN"]


@pytest.mark.parametrize(("booted", "asked"), [("07:29:59", []), ("07:30:00", ["-h now"])])
def test_the_machine_shuts_itself_down_at_its_deadline_before_anything_of_the_owner_runs(
    adapter: Adapter, place: TensorDock, tmp_path: Path, booted: str, asked: list[str]
) -> None:
    """Even if its first boot is later: a timer for a past moment never fires."""
    rented(adapter, onstart="exec sleep infinity", self_destruct_at=datetime(2026, 11, 22, 7, 30, tzinfo=UTC))
    _, timer, boot = place.orders[0]["cloud_init"]["runcmd"]
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
def test_the_login_is_installed_once(adapter: Adapter, place: TensorDock, tmp_path: Path, before: str) -> None:
    rented(adapter)
    keys = tmp_path / ".ssh" / "authorized_keys"
    if before:
        keys.parent.mkdir()
        keys.write_text(before)
    line = place.orders[0]["cloud_init"]["runcmd"][0].replace("/home/user", str(tmp_path))
    subprocess.run(["sh", "-c", line], check=True, capture_output=True)
    assert keys.read_text() == before + (f"{SSH_KEY}\n" if before != f"{SSH_KEY}\n" else "")
    assert keys.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "fields",
    [
        {"bid_usd_hour": 0.5},
        {"template": "t"},
        {"registry": Registry(server="s", username="u", password="p")},
        {"volume": Volume(mount="/data", volume_id="5")},
        {"runtype": "jupyter"},
        {"ports": ("53/udp",)},
        {"ports": ("70000",)},
        {"ports": ("x",)},
        {"env": {"A B": "c"}},
        {"label": "x" * 61},
        {"offer_id": "nonsense"},
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_sent(
    launcher: Launcher, place: TensorDock, fields: dict[str, Any]
) -> None:
    with pytest.raises(OrderRefused) as refused:
        launcher.create(order(**fields))
    assert (refused.value.kind, place.requests) == (RefusalKind.BAD_ORDER, [])


@pytest.mark.parametrize("key", [None, "not a key", "ssh-ed25519 AAAA\nx"])
def test_without_a_public_key_nothing_is_ordered(place: TensorDock, key: str | None) -> None:
    bench = Bench(name="tensordock", place=TensorDock, gpu="RTX 4090", options={"ssh_key": key})
    with bench.pointed_at(place.url) as adapter, pytest.raises(OrderRefused, match="ssh_key"):
        rented(adapter)
    assert place.count("POST") == 0


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_200", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "No available nodes found", "No available public IPs on hostnode", "Hostnode unavailable",
        "insufficient capacity", "Out of Stock", "Resource unavailable",
    ],
)  # fmt: skip
def test_every_text_of_no_capacity_is_an_offer_that_is_gone(
    adapter: Adapter, place: TensorDock, text: str, as_200: bool
) -> None:
    place.fail("POST", 200 if as_200 else 400, {"error": text, "status": 400} if as_200 else {"error": text})
    with pytest.raises(OfferGone):
        rented(adapter)


@pytest.mark.parametrize(
    ("status", "body", "error", "kind"),
    [
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
    adapter: Adapter, place: TensorDock, status: int, body: Any, error: type[OrderError], kind: RefusalKind | None
) -> None:
    place.fail("POST", status, body)
    with pytest.raises(error) as caught:
        rented(adapter)
    assert getattr(caught.value, "kind", None) is kind
    assert place.count("POST") == 1


def test_stock_that_is_listed_and_not_there_is_gone_until_it_is_there(adapter: Adapter, place: TensorDock) -> None:
    place.false_stock = 3
    for _ in range(3):
        with pytest.raises(OfferGone):
            rented(adapter)
    assert rented(adapter) in place.machines


def test_a_create_that_was_carried_out_unheard_is_found_by_its_name(
    adapter: Adapter, place: TensorDock, launcher: Launcher
) -> None:
    place.fail("POST", None, carried_out=True)
    with pytest.raises(OutcomeUnknown):
        rented(adapter)
    assert (only(launcher).label, place.count("POST")) == ("gpuwatch-abc", 1)


def test_a_create_may_take_two_minutes() -> None:
    waited: list[float] = []
    with TensorDock() as place, BENCH.pointed_at(place.url) as adapter:
        http = adapter.launcher._client.tools.http  # type: ignore[union-attr]  # the only way to see a deadline
        plain = http.ask
        http.ask = lambda *words, **options: (waited.append(options["deadline_s"]), plain(*words, **options))[1]
        rented(adapter)
    assert waited[-1] == 120.0
