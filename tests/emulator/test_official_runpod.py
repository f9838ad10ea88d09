"""RunPod's own Python client with the emulator: a real client understands its answers.

The client speaks GraphQL alone, to `$RUNPOD_API_BASE_URL`; for REST v2 there is no official one. It lives in an
environment of its own (`make test` makes `.venv-official`), and is started once: its import takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import ROOT
from tests.clouds.runpod import NO_CAPACITY, RunPod

PYTHON = os.environ.get("GPUWATCH_OFFICIAL_PYTHON") or shutil.which("python", path=ROOT / ".venv-official" / "bin")
CLIENT = None if PYTHON is None else shutil.which("runpod", path=str(Path(PYTHON).parent))

pytestmark = pytest.mark.skipif(CLIENT is None, reason="no official client: run `make test`")

SCRIPT = """
import json, sys, runpod
from click.testing import CliRunner
from runpod import error
from runpod.cli.entry import runpod_cli
def failing(call):
    try:
        return call()
    except (error.RunPodError, ValueError) as failed:
        return type(failed).__name__ + ": " + str(failed)
runpod.api_key = sys.argv[1]
reported = {"gpus": runpod.get_gpus(), "gpu": runpod.get_gpu("NVIDIA H100 80GB HBM3", 2), "user": runpod.get_user()}
reported["no_gpu"] = failing(lambda: runpod.get_gpu("no such GPU"))
made = runpod.create_pod(
    "gpuwatch-x", "pytorch/pytorch", "NVIDIA H100 80GB HBM3", cloud_type="SECURE", gpu_count=2, volume_in_gb=20,
    container_disk_in_gb=40, ports="22/tcp,8888/http", env={"A": "b c"}, docker_args="sleep infinity",
    data_center_id="CA-MTL-1",
)
reported |= {"made": made, "pods": runpod.get_pods(), "pod": runpod.get_pod(made["id"])}
reported |= {"stopped": runpod.stop_pod(made["id"]), "resumed": runpod.resume_pod(made["id"], 2)}
reported["second"] = runpod.create_pod("other", "a", "NVIDIA GeForce RTX 3070")
reported["sold_out"] = failing(lambda: runpod.create_pod("x", "a", "NVIDIA L40S"))
runpod.terminate_pod(made["id"])
reported |= {"gone": runpod.get_pod(made["id"]), "again": failing(lambda: runpod.terminate_pod(made["id"]))}
reported["left"] = [pod["name"] for pod in runpod.get_pods()]
reported["auth"] = runpod.create_container_registry_auth("mine", "me", "secret")
reported["auth_deleted"] = runpod.delete_container_registry_auth(reported["auth"]["id"])
reported["template"] = runpod.create_template("test", "runpod/stack", "python3 main.py", env={"A": "b"}, ports="22/tcp")
reported["same_name"] = failing(lambda: runpod.create_template("test", "other"))
kept = reported["template"]["id"]
of_template = runpod.create_pod("of-template", "", "NVIDIA H100 80GB HBM3", cloud_type="SECURE", template_id=kept)
reported["of_template"] = runpod.get_pod(of_template["id"])
runpod.terminate_pod(of_template["id"])
reported["table"] = CliRunner().invoke(runpod_cli, ["pod", "list"]).output
runpod.api_key = "wrong"
reported["wrong_key"] = failing(runpod.get_pods)
print(json.dumps(reported))
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunPod]:
    with RunPod() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def reported(cloud: RunPod, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the client's answers, call by call."""
    home = str(tmp_path_factory.mktemp("home"))
    environment = {"PATH": os.environ["PATH"], "HOME": home, "RUNPOD_API_BASE_URL": cloud.url, "COLUMNS": "200"}
    command = [str(PYTHON), "-c", SCRIPT, cloud.key]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_it_lists_types_and_the_price_of_one(reported: dict[str, Any]) -> None:
    assert {"id": "NVIDIA H200", "displayName": "H200 SXM", "memoryInGb": 141} in reported["gpus"]
    gpu = reported["gpu"]
    assert (gpu["securePrice"], gpu["communityCloud"], gpu["communityPrice"]) == (2.69, False, None)
    assert gpu["lowestPrice"]["uninterruptablePrice"] == pytest.approx(2 * 2.69)
    assert reported["no_gpu"].startswith("ValueError: No GPU found")


def test_it_makes_a_pod_as_it_was_asked(reported: dict[str, Any], cloud: RunPod) -> None:
    assert reported["made"]["env"] == ["A=b c"]
    assert reported["made"]["machine"]["podHostId"].startswith(reported["made"]["id"])
    [pod] = reported["pods"]
    assert (pod["name"], pod["gpuCount"], pod["costPerHr"]) == ("gpuwatch-x", 2, pytest.approx(5.38))
    assert (pod["containerDiskInGb"], pod["volumeInGb"], pod["dockerArgs"]) == (40, 20, "sleep infinity")
    assert pod["machine"] == {"gpuDisplayName": "H100 SXM"}
    assert {port["privatePort"] for port in pod["runtime"]["ports"]} == {22}
    assert reported["pod"]["id"] == pod["id"]
    assert cloud.ended_pods[0].place == "CA-MTL-1"


def test_it_stops_resumes_and_terminates_one(reported: dict[str, Any], cloud: RunPod) -> None:
    assert reported["stopped"]["desiredStatus"] == "EXITED"
    assert reported["resumed"]["desiredStatus"] == "RUNNING"
    assert reported["gone"] is None
    assert reported["left"] == ["other"]
    assert [pod.body["name"] for pod in cloud.ended_pods] == ["gpuwatch-x", "of-template"]


def test_it_takes_the_community_where_the_secure_cloud_sells_none(reported: dict[str, Any], cloud: RunPod) -> None:
    assert reported["second"] is not None
    assert [pod.cloud for pod in cloud.pods.values()] == ["COMMUNITY"]


def test_it_understands_what_goes_wrong(reported: dict[str, Any]) -> None:
    assert reported["sold_out"] == f"QueryError: {NO_CAPACITY}"
    assert reported["again"] == "QueryError: pod not found to terminate"
    assert reported["wrong_key"].startswith("AuthenticationError")


def test_it_keeps_a_template_and_a_registry_login(reported: dict[str, Any], cloud: RunPod) -> None:
    assert (reported["auth"]["name"], reported["auth_deleted"], cloud.registries) == ("mine", True, {})
    assert reported["template"]["env"] == [{"key": "A", "value": "b"}]
    assert reported["same_name"] == "QueryError: Template name must be unique."
    pod = reported["of_template"]
    assert (pod["imageName"], pod["dockerArgs"], pod["env"]) == ("runpod/stack", "python3 main.py", ["A=b"])


def test_its_command_line_lists_pods(reported: dict[str, Any], cloud: RunPod) -> None:
    [(pod_id, pod)] = cloud.pods.items()
    [line] = [line for line in reported["table"].splitlines() if pod_id in line]
    assert [word for word in line.split() if word != "|"] == [pod_id, pod.body["name"], "RUNNING", "a"]
