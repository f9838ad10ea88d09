"""A multi-node job in the real daemon, with a `dstack` that stores its runs, hangs, loses answers and lies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuwatch.emulator import Marketplace
from tests.checkout import TESTS
from tests.process.audit import job_state, launches
from tests.process.daemon_child import Home, wait_for
from tests.process.dstack_double import DstackDouble
from tests.process.fork_server import start_gpuwatch

pytestmark = pytest.mark.slow

SCHEMA: Any = json.loads((TESTS / "recorded/orchestrators/dstack-task-0.22.5.json").read_bytes())
JOB = """
image = "x/y:1"
command = "torchrun train.py"
nodes = {nodes}
env = {{ MODE = "fast", HF_TOKEN = {{ from_env = "HF" }} }}
resources = {{ gpu = "H100", gpu_count = 8, providers = ["aws"] }}
limit = {{ {limit} }}
max_runtime = "2h"
retries = 1
{more}
"""
EXTRA = """
[orchestrator]
tool = "dstack"
program = "{program}"
timeout = "{timeout}"
"""
PACE = "20"
SENDING = ("intent.after_commit", "launch.before_send", "launch.after_send")
POINTS = (*SENDING, "launch.no_answer", "unknown.before_record", "starting.after_record")


class Cluster:
    """A daemon's folder with a `dstack`."""

    def __init__(self, folder: Path, url: str, usd_hour: float = 500.0, timeout: str = "20s") -> None:
        self.dstack = DstackDouble(folder / "dstack")
        extra = EXTRA.format(program=self.dstack.install(), timeout=timeout)
        self.home = Home(folder, url, action="alert", extra=extra)
        settings = folder / "gpuwatch.toml"
        settings.write_text(re.sub("max_usd_hour = .*", f"max_usd_hour = {usd_hour}", settings.read_text()))
        self.home.env |= {"HF": "a-secret-text", "GPUWATCH_TEST_PACE": PACE}

    def submit(self, nodes: int = 4, limit: str = "max_price = 2.5", more: str = "") -> Any:
        (self.home.folder / "train.toml").write_text(JOB.format(nodes=nodes, limit=limit, more=more))
        ran = self.home.run("job", "submit", "train.toml", "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)[0]

    def job(self) -> Any:
        ran = self.home.run("job", "show", "train", "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    def alerts(self, words: str) -> list[str]:
        """Return the severities of the alerts with this text in the headline."""
        found = json.loads(self.home.run("alerts", "--json").stdout)
        return [one["severity"] for one in found if words in one["headline"]]

    def until(self, state: str) -> Any:
        wait_for(lambda: job_state(self.home.database_url, "train") == state)
        return self.job()

    def name(self) -> str:
        """Return the state of its only run."""
        [name] = wait_for(self.dstack.made)
        return str(name)


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    with Marketplace(seed=3, key="demo-key", size=2, odd_rows=False) as market:
        yield lambda **wanted: Cluster(tmp_path, market.url, **wanted)


def test_a_cluster_is_submitted_followed_priced_and_done(new_cluster: Callable[..., Cluster]) -> None:
    """Once, within the reserved budget, with its end and its price cap; a secret is passed only as a name."""
    cluster = new_cluster()
    with cluster.home.daemon():
        cluster.submit()
        name = cluster.name()
        [run] = cluster.dstack.all()
        task = run["task"]
        jsonschema.validate(task, SCHEMA)
        assert (task["nodes"], task["max_price"], task["max_duration"]) == (4, 20.0, "7200s")
        assert task["env"] == ["GPUWATCH_JOB=train", "MODE=fast", "HF_TOKEN"]
        assert (task["backends"], task["retry"], task["idle_duration"]) == (["aws"], False, "0s")
        [applied] = cluster.dstack.calls("apply")
        assert "HF_TOKEN" in applied[-1]
        assert not {"GPUWATCH_TEST_PACE", "HF"} & set(applied[-1])
        [launch] = cluster.home.launches()
        assert (launch["provider"], launch["price_usd_hour"], launch["label"]) == ("dstack", 80.0, name)
        cluster.dstack.set(name, "provisioning", price=15.0)
        assert cluster.until("preparing")["runs"][0]["step"] == "provisioning"
        cluster.dstack.set(name, "running", price=15.0)
        cluster.until("running")
        assert "it answers, project main" in cluster.home.run("doctor").stdout
        wait_for(lambda: launches(cluster.home.database_url)[0]["price_microusd_hour"] == 60_000_000)
        said = cluster.home.run("job", "logs", "train")
        assert f"dstack logs {name}" in said.stdout + said.stderr
        cluster.dstack.set(name, "done", price=15.0, exit_status=0, cost=12.3456)
        done = cluster.until("done")
        assert (done["exit_code"], done["spent_usd"]) == (0, 12.3456)
        assert cluster.home.launches()[0]["state"] == "ended"
    assert cluster.dstack.made() == [name]
    assert "a-secret-text" not in cluster.home.log()


@pytest.mark.parametrize("point", POINTS)
def test_a_daemon_that_dies_makes_one_cluster(new_cluster: Callable[..., Cluster], point: str) -> None:
    """Between the intent and the submission, and between the submission and its record."""
    cluster = new_cluster()
    if point in {"launch.no_answer", "unknown.before_record"}:
        cluster.dstack.faults(apply="lost")
    with cluster.home.daemon(GPUWATCH_FAILPOINT=f"{point}@kill") as child:
        cluster.submit()
        child.wait(timeout=240)
    assert f"failpoint {point}" in cluster.home.log()
    cluster.dstack.faults()
    with cluster.home.daemon():
        name = cluster.name()
        cluster.dstack.set(name, "running", price=10.0)
        cluster.until("running")
        cluster.dstack.set(name, "done", price=10.0, exit_status=0)
        cluster.until("done")
    assert cluster.dstack.made() == [name]
    assert not (cluster.dstack.folder / "overridden.txt").exists()
    assert len(cluster.home.launches()) == 1


@pytest.mark.parametrize("fault", ["lost", "hang"])
def test_an_answer_that_was_lost_is_asked_for(new_cluster: Callable[..., Cluster], fault: str) -> None:
    cluster = new_cluster(timeout="2s")
    cluster.dstack.faults(apply=fault)
    with cluster.home.daemon():
        cluster.submit()
        name = cluster.name()
        cluster.dstack.set(name, "running", price=10.0)
        cluster.until("running")
    assert len(cluster.dstack.calls("apply")) == 1


@pytest.mark.parametrize("silence", [{"ps": "down"}, {"ps": "garbage"}, {"project": "other"}, {"run": "down"}])
def test_no_answer_is_never_gone(new_cluster: Callable[..., Cluster], silence: dict[str, str]) -> None:
    """The order is lost, and its state unknown: nothing is sent again, and the budget stays reserved."""
    cluster = new_cluster(timeout="2s")
    cluster.dstack.faults(apply="refused")
    with cluster.home.daemon():
        cluster.submit()
        wait_for(lambda: len(cluster.dstack.calls("apply")) == 1)
        cluster.dstack.faults(**silence)
        before = len(cluster.dstack.calls("ps"))
        wait_for(lambda: len(cluster.dstack.calls("ps")) > before + 8)  # later, it would be held
        assert cluster.home.launches()[0]["state"] in {"requested", "unknown"}
        assert len(cluster.dstack.calls("apply")) == 1
        cluster.dstack.faults()
        name = cluster.name()
    assert cluster.dstack.made() == [name]
    assert len(cluster.dstack.calls("apply")) == 2


def test_a_budget_holds_all_machines(new_cluster: Callable[..., Cluster]) -> None:
    """Four machines at 20 $ do not fit into 79 $ an hour."""
    cluster = new_cluster(usd_hour=79.0)
    with cluster.home.daemon():
        cluster.submit()
        waiting = wait_for(lambda: (one := cluster.job())["reason"] and "max_usd_hour" in one["reason"] and one)
        assert waiting["state"] == "queued"
    assert not cluster.dstack.made()


def test_a_cancelled_cluster_ends_by_the_tool_and_is_confirmed(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = new_cluster()
    with cluster.home.daemon():
        cluster.submit()
        name = cluster.name()
        cluster.dstack.set(name, "running", price=10.0)
        cluster.until("running")
        cluster.dstack.faults(end="never")
        with (tmp_path / "cancel.txt").open("wb") as said:
            cancel = start_gpuwatch(["job", "cancel", "train"], tmp_path, cluster.home.env, stderr=said)
        wait_for(lambda: cluster.dstack.calls("stop"))
        before = len(cluster.dstack.calls("ps"))
        wait_for(lambda: len(cluster.dstack.calls("ps")) > before + 10)
        assert cluster.home.launches()[0]["state"] == "stopping", "a run that goes on is no confirmed end"
        assert wait_for(lambda: cluster.alerts("may still be billed")) == ["critical"]
        cluster.dstack.set(name, "terminated", price=10.0, reason="terminated_by_user")
        assert cancel.wait(timeout=240) == 0
        assert cluster.home.launches()[0]["state"] == "ended"
    assert cluster.job()["state"] == "cancelled"
    assert cluster.dstack.made() == [name]


def test_a_cluster_ends_at_its_deadline(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster()
    with cluster.home.daemon():
        cluster.submit(more='deadline = "20s"')
        name = cluster.name()
        cluster.dstack.set(name, "running", price=10.0)
        wait_for(lambda: cluster.dstack.calls("stop"))
        failed = cluster.until("failed")
    assert "max_runtime" in failed["reason"]


def test_no_capacity_queues_the_job_again(new_cluster: Callable[..., Cluster]) -> None:
    """Nothing ran: no retry is used, and the next attempt has a new name."""
    cluster = new_cluster()
    with cluster.home.daemon():
        cluster.submit()
        first = cluster.name()
        no_fleet = "No matching fleet found. Possible reasons: https://example.invalid/#no-fleets"
        cluster.dstack.set(first, "failed", reason="failed_to_start_due_to_no_capacity", message=no_fleet)
        wait_for(lambda: "(No matching fleet found)" in (cluster.job()["reason"] or ""))
        names = wait_for(lambda: len(set(cluster.dstack.made())) > 1 and cluster.dstack.made())
        found = cluster.job()
    assert len(names) == len(set(names))
    assert (found["retries_left"], found["spent_usd"]) == (1, 0.0)


def test_spot_first_asks_for_spot_machines_while_the_deadline_allows(new_cluster: Callable[..., Cluster]) -> None:
    """Again after no capacity, and for any machine once it is late; without a deadline it is refused in one line."""
    cluster = new_cluster()
    for name, more in (("endless", ""), ("train", 'deadline = "20h"'), ("late", 'deadline = "65m"')):
        text = JOB.format(nodes=2, limit="max_price = 2.5", more=f"hours = 1\n{more}")
        (cluster.home.folder / f"{name}.toml").write_text(text.replace("{ gpu", '{ spot = "first", gpu'))
    refused = cluster.home.run("jobs", "submit", "endless.toml")
    assert (refused.returncode, "needs a deadline on clusters" in refused.stderr) == (2, True)
    with cluster.home.daemon():
        assert cluster.home.run("jobs", "submit", "train.toml").returncode == 0
        cluster.dstack.set(cluster.name(), "failed", reason="failed_to_start_due_to_no_capacity")
        wait_for(lambda: len(cluster.dstack.made()) == 2)
        assert cluster.home.run("jobs", "submit", "late.toml").returncode == 0
        wait_for(lambda: len(cluster.dstack.made()) == 3)
    asked = [(run["task"]["env"][0], run["task"]["spot_policy"]) for run in reversed(cluster.dstack.all())]
    assert asked == [("GPUWATCH_JOB=train", "spot")] * 2 + [("GPUWATCH_JOB=late", "auto")]


def test_a_failed_command_fails_the_job(new_cluster: Callable[..., Cluster]) -> None:
    """It ended before it was observed: it ran, so it is not repeated."""
    cluster = new_cluster()
    with cluster.home.daemon():
        cluster.submit()
        name = cluster.name()
        cluster.dstack.set(name, "failed", price=10.0, exit_status=3, reason="container_exited_with_error")
        failed = cluster.until("failed")
    assert (failed["exit_code"], failed["runs"][0]["step"]) == (3, "over")
    assert cluster.dstack.made() == [name]


def test_what_gpuwatch_cannot_bring_there_is_refused(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster()
    (cluster.home.folder / "train.toml").write_text(
        JOB.format(nodes=2, limit="max_price = 2", more='results = ["out/*"]')
    )
    ran = cluster.home.run("job", "submit", "train.toml")
    assert ran.returncode == 2
    assert "results: not supported on clusters" in ran.stderr


def test_an_interrupted_cluster_runs_again_under_another_name(new_cluster: Callable[..., Cluster]) -> None:
    """As often as the job has retries; then it fails."""
    cluster = new_cluster()
    with cluster.home.daemon():
        cluster.submit()
        first = cluster.name()
        cluster.dstack.set(first, "running", price=10.0)
        cluster.until("running")
        cluster.dstack.set(first, "failed", price=10.0, reason="interrupted_by_no_capacity")
        again = wait_for(lambda: [name for name in cluster.dstack.made() if name != first])
        cluster.dstack.set(again[0], "running", price=10.0)
        cluster.until("running")
        cluster.dstack.set(again[0], "failed", price=10.0, reason="interrupted_by_no_capacity")
        failed = cluster.until("failed")
    assert "no retries left" in failed["reason"]
    assert [one["run_number"] for one in failed["runs"]] == [1, 2]
    assert cluster.dstack.made() == [first, again[0]]


@pytest.mark.parametrize("reason", ["terminated_by_user", "max_duration_exceeded", "log_quota_exceeded"])
def test_what_would_end_the_same_way_is_not_run_again(new_cluster: Callable[..., Cluster], reason: str) -> None:
    """Its owner stopped it at dstack, or dstack ended it at its own limits, perhaps while gpuwatch was not running."""
    cluster = new_cluster()
    with cluster.home.daemon():
        cluster.submit()
        name = cluster.name()
        cluster.dstack.set(name, "running", price=10.0)
        cluster.until("running")
        cluster.dstack.set(name, "terminated", price=10.0, reason=reason)
        failed = cluster.until("failed")
    assert reason in failed["reason"]
    assert cluster.dstack.made() == [name]


def test_a_secret_that_is_missing_submits_nothing(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster()
    del cluster.home.env["HF"]
    with cluster.home.daemon():
        cluster.submit()
        wait_for(lambda: "HF is not set in the environment" in (cluster.job()["reason"] or ""))
    assert not cluster.home.launches()
    assert not cluster.dstack.calls("apply")


def test_a_task_that_dstack_refuses_ends_after_three_attempts(new_cluster: Callable[..., Cluster]) -> None:
    """In its own words, and nothing stays reserved."""
    cluster = new_cluster()
    cluster.dstack.faults(apply="refused")
    with cluster.home.daemon():
        cluster.submit()
        wait_for(lambda: cluster.home.states()[:1] == ["failed"])
        [launch, *_] = sorted(cluster.home.launches(), key=lambda one: str(one["requested_at"]))
    assert "accepted no run in 3 attempts: dstack apply: Error: the configuration is wrong" in launch["end_reason"]
    assert not cluster.dstack.made()
