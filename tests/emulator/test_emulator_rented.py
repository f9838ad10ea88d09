"""A renter's instance: the hardware, the GPU use, the login; and the orders, only for audits."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from gpuwatch.emulator.simulation import MarketplaceOptions
from gpuwatch.emulator.test_controls import CHANGEABLE

ORDER = {
    "image": "registry.example/team/train:7",
    "image_login": "-u me -p SECRET-LOGIN registry.example",
    "env": {"TOKEN": "SECRET-ENV", "-p 8000:8000": "1", "-p 5000:5000/udp": "1"},
    "onstart": "curl -H SECRET-ONSTART",
    "template_hash_id": "abcde12345",
    "volume_info": {"create_new": True, "volume_id": 5, "size": 15, "mount_path": "/data"},
}


def running(one: Any, body: dict[str, Any] | None = None, **fields: Any) -> int:
    contract: int = one.rented(one.market.publish(**fields), **(body or {}))
    one.clock.advance(75)
    return contract


# --- hardware ----------------------------------------------------------------------------------------------------


def test_a_row_carries_what_was_promised(opened: Any) -> None:
    one = opened()
    offer_id = one.market.publish(gpu="H100 SXM", count=2, cuda_max_good=12.8, inet_down=900.0)
    offer = one.search()[0]
    contract = one.rented(offer_id, disk=40)
    row = one.show(contract)
    for name in ("gpu_name", "num_gpus", "gpu_ram", "cuda_max_good", "inet_down", "inet_up", "driver_version"):
        assert row[name] == offer[name]
    assert (row["gpu_totalram"], row["disk_space"]) == (offer["gpu_total_ram"], 40.0)


def test_the_hardware_can_turn_out_to_be_another(opened: Any) -> None:
    one = opened()
    one.market.faults.add("create", "other_hardware", gpu_name="H100 PCIE", num_gpus=1, inet_down=3.5)
    first, second = running(one), running(one)
    one.market.befall(second, "differs", disk_space=9.0, cuda_max_good=None)
    got = one.show(first), one.show(second)
    assert [row["gpu_name"] for row in got] == ["H100 PCIE", "H100 SXM"]
    assert (got[0]["inet_down"], got[1]["disk_space"], got[1]["cuda_max_good"]) == (3.5, 9.0, None)
    assert {row["gpu_name"] for row in one.list()["instances"]} == {"H100 PCIE", "H100 SXM"}


def test_without_settings_other_hardware_is_a_smaller_card(opened: Any) -> None:
    one = opened()
    one.market.faults.add("create", "other_hardware")
    row = one.show(running(one))
    assert (row["gpu_name"], row["gpu_ram"]) == ("RTX 3090", 24576)


# --- GPU use -----------------------------------------------------------------------------------------------------


def test_gpu_use_follows_its_trace_and_is_null_where_nothing_was_measured(opened: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish())
    one.market.utilise(contract, [(0, 90), (100, None), (200, 5.5), (300, 0)])
    seen = []
    for pause in (60, 9, 1, 30, 50, 50, 100):
        one.clock.advance(pause)
        seen.append(one.show(contract)["gpu_util"])
    assert seen == [None, None, 90, None, None, 5.5, 0]
    one.market.befall(contract, "load", gpu_util=44)
    assert one.show(contract)["gpu_util"] == 44.0
    one.market.befall(contract, "offline")
    assert one.show(contract)["gpu_util"] is None


# --- the login ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["option", "befall"])
def test_a_real_server_can_stand_behind_ssh_through_the_proxy_and_directly(opened: Any, how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        one = opened(ssh_at=place) if how == "option" else opened()
        contract = one.rented(one.market.publish())
        if how == "befall":
            one.market.befall(contract, "ssh", host=place[0], port=place[1])
        early = one.show(contract)
        assert (early["ssh_host"], early["ssh_port"], early["ports"]) == (None, None, None)
        one.clock.advance(75)
        row = one.show(contract)
        direct = (row["public_ipaddr"], int(row["ports"]["22/tcp"][0]["HostPort"]))
        for address in ((row["ssh_host"], row["ssh_port"]), direct):
            socket.create_connection(address, timeout=60).close()


def test_opened_ports_are_mapped_while_it_runs(opened: Any) -> None:
    one = opened()
    row = one.show(running(one, {"env": ORDER["env"]}))
    assert set(row["ports"]) == {"22/tcp", "8000/tcp", "5000/udp"}
    assert row["direct_port_end"] - row["direct_port_start"] == 2
    assert len({mapped[0]["HostPort"] for mapped in row["ports"].values()}) == 3


# --- the orders --------------------------------------------------------------------------------------------------


def test_what_was_ordered_is_kept_for_audits_and_stands_in_no_log(opened: Any) -> None:
    one = opened(control=True)
    contract = running(one, ORDER)
    kept = one.market.ordered(contract)
    assert {name: kept[name] for name in ORDER} == ORDER
    assert one.http.post("/control/order", json={"instance_id": contract}).json()["order"] == kept
    logs = json.dumps([seen._asdict() for seen in one.market.requests]) + one.http.get("/control/requests").text
    assert "SECRET" not in logs
    assert "TOKEN" in logs
    assert "SECRET" not in json.dumps(one.market.ledger.summary())
    row = one.show(contract)
    assert (row["image_uuid"], row["template_hash_id"]) == (ORDER["image"], ORDER["template_hash_id"])
    assert "SECRET-LOGIN" not in json.dumps(row)


def test_a_template_needs_no_image(opened: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish(), image=None, template_hash_id="abcde12345")
    assert one.show(contract)["template_hash_id"] == "abcde12345"


@pytest.mark.parametrize(
    "wrong", [{"image_login": 5}, {"volume_info": "x"}, {"args": "ls"}, {"template_hash_id": 7}, {"args_str": ["x"]}]
)
def test_a_create_with_a_wrong_type_is_refused(opened: Any, wrong: dict[str, Any]) -> None:
    one = opened()
    answer = one.rent(one.market.publish(), **wrong)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_args")
    assert one.market.ledger.creates == ()


# --- options -----------------------------------------------------------------------------------------------------


def test_what_can_be_changed_is_an_option_and_nothing_else_can(opened: Any) -> None:
    assert set(MarketplaceOptions.__dataclass_fields__) >= CHANGEABLE
    with pytest.raises(TypeError, match="seed cannot be changed"):
        opened().market.change(seed=3)
