"""The request of an order at RunPod, and refusals before anything is sent."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.errors import OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import Order, Registry, Volume
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.runpod.create import create_body, parse_created
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.clouds.runpod_pods import faults_of

OFFER = "NVIDIA H100 80GB HBM3/SECURE/8/EU-RO-1"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 22, tzinfo=UTC)
RECORDED = TESTS / "recorded" / "runpod"
LOGIN = Registry(server="ghcr.io", username="me", password="aVerySecretPassword")


def body(registry_id: str | None = None, **values: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"offer_id": OFFER, "label": "gpuwatch-a", "image": "pytorch/pytorch", "disk_gb": 50.0}
    found = create_body(Order(**(plain | values)), NOW, registry_id)
    assert faults_of(found) == [], "the specification knows every field"
    return found


def refusal(**values: Any) -> str:
    with pytest.raises(OrderRefused) as refused:
        body(**values)
    assert refused.value.kind is RefusalKind.BAD_ORDER
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_an_order_names_type_number_cloud_place_and_label() -> None:
    assert body(env={"A": "b"}, runtype="args") == {
        "name": "gpuwatch-a",
        "image": "pytorch/pytorch",
        "gpu": {"id": "NVIDIA H100 80GB HBM3", "count": 8},
        "cloud": "SECURE",
        "dataCenterIds": ["EU-RO-1"],
        "disk": 50,
        "env": {"A": "b"},
    }
    assert "dataCenterIds" not in body(offer_id="NVIDIA L4/COMMUNITY/1/*")


def test_the_documented_request_is_what_we_send_for_the_same() -> None:
    asked = json.loads((RECORDED / "v2-pods-create-request.json").read_bytes())
    ours = body(
        offer_id="NVIDIA GeForce RTX 4090/SECURE/1/*", label=asked["name"], image=asked["image"], disk_gb=asked["disk"],
        runtype="args",
    )  # fmt: skip
    assert ours == asked | {"cloud": "SECURE", "env": {}}


def test_a_disk_is_whole_gigabytes() -> None:
    cases: list[Any] = [(0.0, 1), (0.5, 1), (20.0, 20), (20.2, 21)]
    for wanted, sent in cases:
        with case((wanted, sent)):
            assert body(disk_gb=wanted)["disk"] == sent


def test_a_runtype_opens_its_ports_and_starts_its_servers() -> None:
    ssh, jupyter, args = (body(runtype=runtype, ports=("8000", "22")) for runtype in ("ssh", "jupyter", "args"))
    assert (ssh["ports"], ssh["startSsh"]) == (["22/tcp", "8000/tcp"], True)
    assert jupyter["ports"] == ["8888/http", "22/tcp", "8000/tcp"]
    assert (jupyter["startSsh"], jupyter["startJupyter"]) == (True, True)
    assert args["ports"] == ["8000/tcp", "22/tcp"]
    assert not {"startSsh", "startJupyter"} & args.keys()


def test_a_start_script_is_one_quoted_command_and_the_pod_outlives_it() -> None:
    script = """echo "it's" $HOME\npython train.py"""
    words = body(onstart=script)["cmd"]
    assert words[:2] == ["bash", "-c"]
    assert script in words[2]
    assert words[2].endswith("exec sleep infinity")
    assert body(onstart="python -m x", runtype="args")["cmd"] == ["python", "-m", "x"]
    assert "cmd" not in body()
    assert "args" not in body(onstart=script)


def test_a_volume_is_one_of_the_network_or_one_of_the_host() -> None:
    assert body(volume=Volume(mount="/data", volume_id="vol1"))["mounts"] == {
        "network": [{"volumeId": "vol1", "path": "/data"}]
    }
    assert body(volume=Volume(mount="/data", size_gb=20.5))["mounts"] == {"persistent": {"size": 21, "path": "/data"}}


def test_a_login_goes_by_the_id_that_runpod_gave_it() -> None:
    sent = body(registry_id="cred1", registry=LOGIN)
    assert sent["registry"] == "cred1"
    assert LOGIN.password not in str(sent)
    assert "registry_id" in refusal(registry=LOGIN)
    assert body(registry_id="cred1")["registry"] == "cred1"


def test_a_template_may_stand_for_the_image() -> None:
    sent = body(image="", template="9x4m2p7v")
    assert sent["templateId"] == "9x4m2p7v"
    assert "image" not in sent


def test_what_cannot_be_done_is_refused_with_the_reason() -> None:
    cases: list[Any] = [
        ({"bid_usd_hour": 1.0}, "bids"),
        ({"self_destruct_at": LATER}, "onstart"),
        ({"self_destruct_at": LATER, "onstart": "python -m x", "runtype": "args"}, "args"),
        ({"image": ""}, "image"),
        ({"ports": ("8080:80",)}, "RunPod chooses the external port"),
        ({"ports": ("53/udp",)}, "TCP"),
        ({"ports": ("70000",)}, "TCP"),
        ({"runtype": "vm"}, "runtype"),
        ({"label": "x" * 200}, "label"),
        ({"label": ""}, "label"),
        ({"disk_gb": float("nan")}, "disk"),
        ({"disk_gb": float("inf")}, "disk"),
        ({"volume": Volume(mount="data", size_gb=20)}, "mount"),
        ({"volume": Volume(mount="/data", size_gb=5)}, "size_gb"),
        ({"volume": Volume(mount="/data", volume_id="v", size_gb=20)}, "both"),
        ({"volume": Volume(mount="/data", volume_id="../v")}, "network volume"),
        ({"volume": Volume(mount="/data", volume_id="v"), "offer_id": "NVIDIA L4/COMMUNITY/1/*"}, "data centre"),
        ({"offer_id": "NVIDIA L4"}, "offer"),
        ({"onstart": "echo 'x", "runtype": "args"}, "unclosed quote"),
    ]
    for values, says in cases:
        with case((values, says)):
            assert says in refusal(**values)


def test_the_recorded_answer_names_the_pod() -> None:
    made = parse_created(HttpReply(201, {}, (RECORDED / "v2-pods-create-201.json").read_bytes()))
    assert (made.instance_id, made.starting) == ("7h9k2m4n6p", True)


def test_a_pod_that_is_made_and_does_not_run_is_reported_so() -> None:
    assert parse_created(HttpReply(201, {}, b'{"id": "a1", "status": "EXITED"}')).starting is False


def test_an_answer_that_names_no_pod_leaves_its_fate_open() -> None:
    cases: list[Any] = [b"", b"{}", b"[]", b'{"id": null}', b'{"id": "../x"}', b'{"id": 17}', b"[" * 10_000]
    for answer in cases:
        with case(answer), pytest.raises(OutcomeUnknown):
            parse_created(HttpReply(201, {}, answer))


def test_a_pod_whose_status_is_no_word_was_made() -> None:
    cases: list[Any] = ["[]", "{}", "17", "null"]
    for status in cases:
        with case(status):
            assert (
                parse_created(HttpReply(201, {}, b'{"id": "a1", "status": %b}' % status.encode())).instance_id == "a1"
            )


def test_a_job_gets_an_ssh_server_where_the_image_starts_none(tmp_path: Path) -> None:
    """Only then: an owner's watch runs unchanged."""
    assert "sshd" not in body(onstart="echo ours")["cmd"][2]
    script = body(onstart="echo ours", needs_ssh=True)["cmd"][2].replace("exec sleep infinity", "")
    for path in ("/start.sh", "/usr/sbin/sshd", "/run/sshd"):
        script = script.replace(path, f"{tmp_path}{path}")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "usr/sbin").mkdir(parents=True)
    server = tmp_path / "usr/sbin/sshd"
    sshd = f"printf '#!/bin/sh\\necho sshd >>{tmp_path}/ran\\n' >{server}; chmod 755 {server}"
    for name, does in (("apt-get", f"echo $1 >>{tmp_path}/ran; [ $1 = update ] || {{ {sshd}; }}"), ("ssh-keygen", ":")):
        (tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (tools / name).chmod(0o755)
    run = ["bash", "-c", script]
    env = {"PATH": f"{tools}:/usr/bin:/bin"}
    assert subprocess.run(run, env=env, capture_output=True, text=True, check=False).stdout == "ours\n"
    assert (tmp_path / "ran").read_text().split() == ["update", "install", "sshd"]
    (tmp_path / "start.sh").write_text(f"#!/bin/sh\necho usual >>{tmp_path}/ran\n")
    (tmp_path / "start.sh").chmod(0o755)
    subprocess.run(["bash", "-c", f"{script}\nwait"], env=env, capture_output=True, check=False)
    assert (tmp_path / "ran").read_text().split() == ["update", "install", "sshd", "usual"]
