"""Our create request, compared with that of the newest published REST v2 client, by a dated list of its fields."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from gpuwatch.ports import Order, Volume
from gpuwatch.providers.runpod.create import create_body
from tests.checkout import ROOT
from tests.clouds.runpod_pods import FIELDS, GPU_FIELDS, faults_of

THEIRS: dict[str, Any] = json.loads(Path(__file__).with_name("create-fields-dstack.json").read_bytes())
DOCUMENTED = {"startSsh", "startJupyter"}  # of the specification 2.0.0; dstack starts its own sshd
DOCUMENTED_MOUNTS = {"persistent"}
PAGE = ROOT / "docs" / "providers" / "runpod.md"


def largest() -> dict[str, Any]:
    """An order with every feature that we support."""
    order = Order(
        offer_id="NVIDIA H100 80GB HBM3/SECURE/8/EU-RO-1", label="gpuwatch-a", image="pytorch/pytorch", disk_gb=50.0,
        onstart="python train.py", env={"A": "b"}, ports=("8000",), runtype="jupyter", template="t1",
        volume=Volume(mount="/data", volume_id="vol1"),
    )  # fmt: skip
    now = datetime(2026, 11, 23, tzinfo=UTC)
    return create_body(order, now, "cred1", {"min_cuda": "12.4", "min_ram_gb_per_gpu": 64, "min_vcpus_per_gpu": 8})


def test_every_field_that_we_send_is_sent_by_the_newest_client_too_or_documented() -> None:
    ours = largest()
    assert faults_of(ours) == []
    assert ours.keys() - DOCUMENTED <= set(THEIRS["pod"])
    assert ours["gpu"].keys() == set(THEIRS["gpu"])
    assert ours["mounts"].keys() - DOCUMENTED_MOUNTS <= set(THEIRS["mounts"])
    assert ours["mounts"]["network"][0].keys() == set(THEIRS["network_mount"])


def test_the_emulator_knows_every_field_of_the_newest_client() -> None:
    assert set(THEIRS["pod"]) <= FIELDS
    assert set(THEIRS["gpu"]) <= GPU_FIELDS


def test_the_command_is_in_exec_form() -> None:
    command = largest()["cmd"]
    assert command[:2] == ["bash", "-c"]
    assert all(isinstance(one, str) for one in command)


def test_the_page_names_the_client_and_the_day_of_the_list() -> None:
    assert date.fromisoformat(THEIRS["taken_on"])
    assert f"{THEIRS['client']} {THEIRS['version']} (list of {THEIRS['taken_on']})" in PAGE.read_text()
