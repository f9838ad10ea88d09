"""`gpuwatch jobs handover`: a multi-node job, validated by the schemas of the tools; nothing is rented."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from gpuwatch.cli import Exit
from tests.cli.conftest import Shell
from tests.cli.watches.test_handover import DSTACK, check_skypilot
from tests.clouds.lambda_cloud import LambdaCloud
from tests.clouds.runpod import RunPod

SETTINGS = """
[providers.vastai]
enabled = false
[providers.{provider}]
base_url = "{url}"
api_key = "demo-key"
"""
JOB = """
image = "x/y:1"
command = "torchrun train.py --say 'a b'"
setup = "pip install it"
nodes = 4
env = { MODE = "fast $HOME", HF_TOKEN = { from_env = "HF" } }
results = ["out/*"]
resources = { gpu = ["H100"], gpu_count = 1, disk_gb = 120 }
hours = "10-20"
"""


@pytest.fixture
def place() -> Iterator[RunPod]:
    with RunPod() as place:
        yield place


def write(shell: Shell, place: RunPod | LambdaCloud, limit: str, **changed: str) -> str:
    provider = "runpod" if isinstance(place, RunPod) else "lambda"
    shell.settings(SETTINGS.format(provider=provider, url=place.url))
    text = JOB
    for key, line in changed.items():
        text = "\n".join(line if one.startswith(f"{key} =") else one for one in text.splitlines())
    (shell.folder / "cluster.toml").write_text(f"{text}\nlimit = {{ {limit} }}\n")
    return str(shell.folder / "cluster.toml")


def printed(shell: Shell, *args: str) -> Any:
    ran = shell("job", "handover", *args)
    assert ran.code == Exit.DONE, ran.err
    assert "does not support: results" in ran.err
    return yaml.safe_load(ran.out)


def test_skypilot_accepts_a_job_on_several_machines(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Price caps are per machine; a secret is a name; both time limits are included: for work and idle machines."""
    monkeypatch.setenv("HF", "a-secret-text")
    with LambdaCloud() as place:
        file = write(shell, place, "max_price = 3.5, max_usd_hour = 13.6, max_usd = 1200")
        task = printed(shell, file, "--to", "skypilot")
        assert {seen.method for seen in place.requests} == {"GET"}
    check_skypilot(task)
    assert (task["name"], task["num_nodes"]) == ("gpuwatch-job-cluster", 4)
    assert task["resources"] == {
        "infra": "lambda/us-west-1", "accelerators": "H100:1", "use_spot": False, "max_hourly_cost": 3.4,
        "disk_size": 120, "image_id": "docker:x/y:1", "autostop": {"idle_minutes": 10, "down": True},
    }  # fmt: skip
    assert task["envs"] == {"GPUWATCH_JOB": "cluster", "MODE": "fast $HOME"}
    assert task["secrets"] == {"HF_TOKEN": None}
    assert task["setup"] == "pip install it"
    assert task["run"].startswith("timeout 108000 bash -c ")  # 20 hours and a half more; 1200 $ would pay for 88
    tools = shell.folder / "tools"
    tools.mkdir()
    (tools / "torchrun").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (tools / "torchrun").chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "-c", task["run"]], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout == "train.py|--say|a b|"


@pytest.mark.parametrize(("tool", "elsewhere"), [("skypilot", "runpod"), ("dstack", "lambda")])
def test_a_cluster_goes_only_where_the_tool_connects_machines(shell: Shell, tool: str, elsewhere: str) -> None:
    """One machine would be rented there; several are refused by the tool, after the offer was printed in vain."""
    with RunPod() if elsewhere == "runpod" else LambdaCloud() as place:
        ran = shell("job", "handover", write(shell, place, "max_price = 9"), "--to", tool)
        assert (ran.code, ran.out) == (Exit.FAILED, "")
        assert f"{elsewhere} has a matching offer, but {tool} runs no cluster there" in ran.err


def test_dstack_accepts_a_job_on_several_machines(shell: Shell, place: RunPod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF", "a-secret-text")
    task = printed(shell, write(shell, place, "max_price = 2.5, max_usd = 192"), "--to", "dstack")
    jsonschema.validate(task, DSTACK)
    assert (task["nodes"], task["image"], task["commands"]) == (
        *(4, "x/y:1"),
        ["{\npip install it\n}", "{\ntorchrun train.py --say 'a b'\n}"],
    )
    assert task["env"] == ["GPUWATCH_JOB=cluster", "MODE=fast $HOME", "HF_TOKEN"]
    assert task["max_price"] == 2.396  # 192 $ over four machines, 20 hours and the two minutes until an end is proven
    assert task["max_duration"] == "72000s"
    assert place.pods == {}


def test_what_all_machines_cost_is_said(shell: Shell, place: RunPod) -> None:
    file = write(shell, place, "max_price = 2.5")
    found = shell("job", "handover", file, "--to", "dstack", "--json").json
    one = found["offer"]["price_usd_hour"]
    assert found["usd_hour"] == pytest.approx(4 * one)
    assert (found["usd_low"], found["usd_high"]) == (pytest.approx(40 * one), pytest.approx(80 * one))
    assert f"4 machines at this price: ${4 * one:.2f}/h" in shell("job", "handover", file, "--to", "dstack").err


def test_nothing_under_the_share_of_a_machine_is_nothing_printed(shell: Shell, place: RunPod) -> None:
    ran = shell("job", "handover", write(shell, place, "max_usd_hour = 2.5"), "--to", "dstack")
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    place.fail("GET ", 500, times=20)
    assert shell("job", "handover", str(shell.folder / "cluster.toml"), "--to", "dstack").code == Exit.CANNOT_TELL


def test_the_queue_takes_no_job_on_several_machines(shell: Shell, place: RunPod) -> None:
    """Not as a job on one machine, which would be paid for in vain."""
    file = write(shell, place, "max_price = 2.5")
    ran = shell("job", "submit", file)
    assert ran.code == Exit.USAGE
    assert "gpuwatch jobs handover" in ran.err
    assert shell("job", "submit", write(shell, place, "max_price = 2.5", nodes="nodes = 1")).code == Exit.DONE
    write(shell, place, "max_price = 2.5")
    assert shell("job", "cancel", "cluster").code == Exit.DONE
    assert shell("job", "retry", "cluster", "--file", file).code == Exit.USAGE
