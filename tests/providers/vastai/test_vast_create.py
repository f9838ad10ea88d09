"""The create request: how each part of an order is sent, and refusals before it is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuwatch.errors import OrderRefused, RefusalKind
from gpuwatch.ports import Order, Registry, Volume
from gpuwatch.providers.vastai.create import ONSTART_LENGTH, create_body, with_self_destruct
from gpuwatch.testing.suite import case

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=6)


def _body(**values: Any) -> dict[str, Any]:
    order = {"offer_id": "1", "label": "l", "image": "i", "disk_gb": 10.0}
    return create_body(Order(**(order | values)), NOW)


def _refusal(**values: Any) -> str:
    with pytest.raises(OrderRefused) as refused:
        _body(**values)
    assert refused.value.kind is RefusalKind.BAD_ORDER
    return str(refused.value)


def test_no_smaller_disk_is_ordered_than_can_be() -> None:
    cases: list[Any] = [(0.0, 8.0), (8.0, 8.0), (50.5, 50.5)]
    for wanted, ordered in cases:
        with case((wanted, ordered)):
            assert _body(disk_gb=wanted)["disk"] == ordered


def test_ports_become_dockers_options_beside_the_environment() -> None:
    env = _body(env={"A": "b"}, ports=("8000", "8080:80", "53/udp", "9000:90/tcp", "70000"))["env"]
    assert env == {
        "A": "b", "-p 8000:8000": "1", "-p 8080:80": "1", "-p 53:53/udp": "1", "-p 9000:90/tcp": "1",
        "-p 70000:70000": "1",
    }  # fmt: skip


def test_what_is_no_port_is_refused() -> None:
    cases: list[Any] = ["", "x", "0", "65536", "-1", "1:2:3", "80/icmp", "80 -v /:/host", "８０", "99999999"]
    for port in cases:
        with case(port):
            assert "port" in _refusal(ports=(port,))


def test_more_ports_than_are_opened_are_refused() -> None:
    assert "65 ports" in _refusal(ports=tuple(str(number) for number in range(1000, 1065)))


def test_a_registrys_login_is_dockers_arguments() -> None:
    registry = Registry(server="ghcr.io", username="me", password="t0k3n")
    assert _body(registry=registry)["image_login"] == "-u me -p t0k3n ghcr.io"


def test_a_login_that_the_wire_cannot_carry_is_refused_without_telling_it() -> None:
    cases: list[Any] = ["", "two words", 'a"b', "a'b", "a\nb"]
    for password in cases:
        with case(password):
            reported = _refusal(registry=Registry(server="ghcr.io", username="me", password=password))
            assert not password or password not in reported


def test_a_volume_is_linked_or_made() -> None:
    assert _body(volume=Volume(mount="/data", volume_id="7"))["volume_info"] == {
        "mount_path": "/data", "create_new": False, "volume_id": 7,
    }  # fmt: skip
    assert _body(volume=Volume(mount="/data", volume_id="9", size_gb=50.0))["volume_info"] == {
        "mount_path": "/data", "create_new": True, "volume_id": 9, "size": 50.0,
    }  # fmt: skip


def test_a_volume_that_cannot_be_is_refused() -> None:
    cases: list[Any] = [
        Volume(mount="/data", size_gb=5.0),
        Volume(mount="/data"),
        Volume(mount="data", volume_id="1"),
        Volume(mount="/a b", volume_id="1"),
        Volume(mount="/a", volume_id="x"),
    ]
    for volume in cases:
        with case(volume):
            assert "volume" in _refusal(volume=volume)


def test_a_template_keeps_what_the_order_leaves_empty() -> None:
    body = _body(template="abc", image="", runtype="")
    assert body["template_hash_id"] == "abc"
    assert not {"image", "runtype", "onstart"} & set(body)
    assert _body(template="abc", image="i", runtype="jupyter")["runtype"] == "jupyter_direc ssh_direc ssh_proxy"
    assert "image" in _refusal(image="")


def test_runtypes_are_the_wires_words() -> None:
    cases: list[Any] = [
        ("ssh", "ssh_direc ssh_proxy"),
        ("ssh_proxy", "ssh_proxy"),
        ("jupyter_proxy", "jupyter_proxy ssh_proxy"),
        ("args", "args"),
    ]
    for runtype, wire in cases:
        with case((runtype, wire)):
            assert _body(runtype=runtype)["runtype"] == wire


def test_an_unknown_runtype_is_refused() -> None:
    cases: list[Any] = ["", "sssh", "ssh jupyter"]
    for runtype in cases:
        with case(runtype):
            assert "jupyter" in _refusal(runtype=runtype)


def test_an_onstart_that_is_too_long_is_refused_and_the_limit_named() -> None:
    assert _body(onstart="x" * ONSTART_LENGTH)["onstart"] == "x" * ONSTART_LENGTH
    assert "4048" in _refusal(onstart="x" * (ONSTART_LENGTH + 1))
    assert "self_destruct" in _refusal(onstart="x" * ONSTART_LENGTH, self_destruct_at=LATER)


# --- self_destruct ---------------------------------------------------------------------------------------------------


def test_the_lines_stand_before_the_owners_script() -> None:
    onstart = _body(onstart="bash train.sh\n", self_destruct_at=LATER)["onstart"]
    assert onstart.startswith("# gpuwatch: this instance ends itself at 2026-11-21T18:00:00Z\n")
    assert onstart.endswith("\nbash train.sh\n")
    assert f"END={int(LATER.timestamp())} LEFT=21600 " in onstart
    assert len(onstart) < 1_600  # most of the marketplace's 4,048 characters are the owner's


def test_a_first_line_that_names_a_shell_stays_the_first() -> None:
    script = with_self_destruct("#!/usr/bin/env bash\necho hi\n", LATER, NOW)
    assert script is not None
    assert script.startswith("#!/usr/bin/env bash\n# gpuwatch:")
    assert script.endswith("\necho hi\n")


def test_where_the_lines_cannot_stand_the_order_is_refused() -> None:
    assert "shell" in _refusal(onstart="#!/usr/bin/env python3\nprint()", self_destruct_at=LATER)
    assert "entrypoint" in _refusal(onstart="bash", runtype="args", self_destruct_at=LATER)
    assert "template" in _refusal(template="abc", self_destruct_at=LATER)
    assert "onstart" in _body(template="abc", onstart="", self_destruct_at=LATER)
