"""Every status word of each vendor's SDK or specification means a state; any other word is named in the instance.

`status_words/NAME.json` is a copy of the vendor's lists: its sources, and for each field the words with their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpuwatch.ports import Instance, InstanceState
from tests.contracts.benches import BENCHES
from tests.providers.clouds import cloud

FOLDER = Path(__file__).parent / "status_words"
LISTS: Mapping[str, Any] = {path.stem: json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))}
UUID = "01cf5dc1-0000-4000-8000-000000000001"


def launcher_module(name: str) -> Any:
    return import_module(f"gpuwatch.providers.{name}.launcher")


def nebius_row(state: str) -> Any:
    """A row as the vendor's SDK returns it."""
    from nebius.api.nebius.compute import v1

    known = v1.InstanceStatus.InstanceState.__members__
    return SimpleNamespace(
        metadata=SimpleNamespace(id="computeinstance-1", name="x", created_at=None),
        spec=SimpleNamespace(
            resources=SimpleNamespace(platform=None, preset=None),
            boot_disk=SimpleNamespace(managed_disk=None),
            check_presence=lambda field: False,
        ),
        status=SimpleNamespace(
            state=known.get(state, state),  # a value that the SDK does not know has no name
            reconciling=False,
            network_interfaces=[SimpleNamespace(public_ip_address=SimpleNamespace(address="203.0.113.7/32"))],
        ),
    )


def tensordock(row: Mapping[str, Any]) -> Instance:
    from gpuwatch.providers.tensordock.launcher import instance_of, row_of

    return instance_of(row_of(row), row, is_young=False)


def runpod(row: Mapping[str, Any]) -> Instance:
    from gpuwatch.providers.runpod.pods import parse_pod

    return parse_pod(row)


def vastai(row: dict[str, Any]) -> Instance | None:
    from gpuwatch.providers.vastai.instances import parse_instance

    status = row.pop("status")
    return parse_instance(msgspec.json.encode({"instances": row | {"actual_status": status}}))


def aws(row: Mapping[str, Any]) -> Instance:
    """A row's reason is a field of its own."""
    from gpuwatch.providers.aws.launcher import parse_all

    reason = {"Code": row.get("reason"), "Message": "its reason"}
    shown = {"InstanceId": "i-0123456789abcdef0", "State": {"Name": row["status"]}, "StateReason": reason}
    return parse_all([{"Instances": [shown]}], "us-east-1")[0]


# How each adapter reads a row, and a row that runs; the words replace its fields.
READERS: Mapping[str, tuple[Callable[[Any], Instance | None], Mapping[str, Any]]] = {
    "verda": (lambda row: cloud("verda").parse_instance(row), {"id": UUID, "status": "running"}),
    "lambda": (
        lambda row: cloud("lambda").parse_instance(row),
        {"id": "a", "status": "active", "ip": "203.0.113.7"},
    ),
    "vultr": (
        lambda row: cloud("vultr").parse_instance(row),
        {"id": UUID, "status": "active", "power_status": "running", "server_status": "ok"},
    ),
    "hyperstack": (
        lambda row: cloud("hyperstack").parse_instance(row),
        {"id": "7", "status": "ACTIVE", "floating_ip": "203.0.113.7"},
    ),
    "shadeform": (lambda row: cloud("shadeform").parse_instance(row), {"id": "a", "status": "active"}),
    "primeintellect": (
        lambda row: cloud("primeintellect").parse_instance(row),
        {"id": "a", "status": "ACTIVE", "installationStatus": "FINISHED"},
    ),
    "tensordock": (tensordock, {"id": "a-1", "name": "x", "status": "running", "ipAddress": "203.0.113.7"}),
    "runpod": (runpod, {"id": "a", "name": "x", "status": "RUNNING", "runtime": {"uptime": 100}}),
    "nebius": (lambda row: launcher_module("nebius").instance_of(nebius_row(row["status"]), "eu-north1"), {}),
    "aws": (aws, {}),
    "vastai": (
        vastai,
        {"id": 7, "label": "x", "status": "running", "intended_status": "running", "cur_state": "running",
         "status_msg": None, "is_bid": False},
    ),
}  # fmt: skip


def read(name: str, **changes: str) -> Instance:
    reader, row = READERS[name]
    found = reader({**row, **changes})
    assert found is not None
    return found


def test_every_provider_that_rents_has_a_list_with_its_sources() -> None:
    rent = {name for name, bench in BENCHES.items() if bench.info.launches}
    assert rent == set(LISTS) == set(READERS)
    assert all(found["sources"] for found in LISTS.values())


@pytest.mark.parametrize("name", sorted(LISTS))
def test_every_word_of_the_vendor_is_known(name: str) -> None:
    for field in LISTS[name].keys() - {"sources"}:
        for word, meaning in LISTS[name][field].items():
            found = read(name, **{field: word})
            assert (found.state, found.unknown_status) == (InstanceState(meaning), None), f"{field}: {word}"


@pytest.mark.parametrize("name", sorted(LISTS))
def test_any_other_word_is_named(name: str) -> None:
    for field in LISTS[name].keys() - {"sources"}:
        found = read(name, **{field: "haywire"})
        assert "haywire" in (found.unknown_status or "")
        if field == "status":
            assert found.state is InstanceState.UNKNOWN


def test_the_lists_are_those_of_the_installed_sdks() -> None:
    from botocore.session import get_session
    from nebius.api.nebius.compute import v1

    model = get_session().get_service_model("ec2")
    assert set(LISTS["aws"]["status"]) == set(model.shape_for("InstanceStateName").enum)
    assert set(LISTS["nebius"]["status"]) == set(v1.InstanceStatus.InstanceState.__members__)


def test_words_that_say_that_no_machine_was_found_are_no_broken_machine() -> None:
    assert not read("verda", status="no_capacity").is_placed
    assert read("verda", status="error").is_placed
    assert not read("aws", status="terminated", reason="Server.InsufficientInstanceCapacity").is_placed
    assert read("aws", status="terminated", reason="Server.InternalError").is_placed
    interrupted = read("aws", status="shutting-down", reason="Server.SpotInstanceTermination")
    assert interrupted.state is InstanceState.FAILED
