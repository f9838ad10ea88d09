"""A multi-node job: its limits hold for all machines together."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest

from gpuwatch.domain.jobs.cluster_task import (
    cluster_match,
    cluster_watch,
    dstack_commands,
    dstack_task,
    unfit_for_cluster,
)
from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.job_values import JobFiles, JobLimit, PilotSpec
from gpuwatch.domain.jobs.job_watch import max_runtime_s, price_cap
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, RefusalReason, new_launch
from gpuwatch.domain.launches.money.budgets import budget_checks
from gpuwatch.domain.launches.refusal_words import first_refusal
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Action, SpotPolicy
from tests.builders import NOON, a_watch
from tests.builders_jobs import a_definition, a_job


def a_cluster(nodes: int = 4, *, limit: JobLimit | None = None, spent: int = 0, **resources: object) -> Job:
    watch = msgspec.structs.replace(a_definition().resources, **{"gpu_count_min": 8, "gpu_count_max": 8} | resources)
    given = {"limit": limit} if limit else {}
    definition = a_definition(nodes=nodes, resources=watch, hours=FigureRange(10.0, 20.0), **given)
    return a_job(definition=definition, spent_microusd=spent)


def launched(job: Job) -> Launch:
    watch = cluster_watch(job, NOON)
    intent = Intent(watch=watch, match=cluster_match(job, watch, NOON), launch_id="a" * 12, dry_run=False)
    return new_launch(intent, 0, NOON, "bbbbbbbb", job.job_id)


@pytest.mark.parametrize(
    ("limit", "spent", "of_one"),
    [
        (JobLimit(max_price_usd_gpu_hour=Decimal("2.5")), 0, 20.0),
        (JobLimit(max_usd_hour=Decimal(60)), 0, 15.0),
        (JobLimit(max_usd=Decimal(1600)), 0, 19.9667),
        (JobLimit(max_usd=Decimal(1600)), 800_000_000, 9.9833),  # after a first run that cost half of it
    ],
)
def test_each_machine_has_its_share_and_all_are_reserved(limit: JobLimit, spent: int, of_one: float) -> None:
    job = a_cluster(limit=limit, spent=spent)
    launch = launched(job)
    assert dstack_task(job, launch)["max_price"] == of_one
    assert launch.price_microusd_hour == round(4 * of_one * 1_000_000)
    assert (launch.gpu_count, launch.promised.machines) == (32, 4)
    if limit.max_usd is not None:
        assert launch.max_runtime_s is not None
        most = launch.price_microusd_hour * launch.max_runtime_s / 3600
        assert most <= float(limit.max_usd) * 1_000_000 - spent + 1


def test_a_budget_counts_machines() -> None:
    launch = launched(a_cluster())
    assert first_refusal(budget_checks(launch, [], [], Budget(max_instances=4), NOON)) is None
    refused = first_refusal(budget_checks(launch, [], [], Budget(max_instances=3), NOON))
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.MAX_INSTANCES
    assert refused.text.startswith("it needs 4 instances, 0 instances are alive")
    assert first_refusal(budget_checks(launch, [launch], [], Budget(max_instances=7), NOON)) is not None


def test_the_same_launch_has_the_same_task() -> None:
    """A repeated submission after a lost answer must change nothing at dstack."""
    job = a_cluster(gpu=("A100",), gpu_names=("A100 SXM 80GB", "A100 PCIe 80GB"), spot=SpotPolicy.ANY, disk_gb=99.5)
    launch = launched(job)
    task = dstack_task(job, launch)
    assert task == dstack_task(msgspec.structs.replace(job, run_number=3), launch)
    assert task["resources"] == {"gpu": {"count": 8, "name": ["A100"], "memory": "72GB.."}, "disk": "100GB.."}
    assert (task["spot_policy"], task["name"]) == ("auto", f"gpuwatch-{'a' * 12}-bbbbbbbb-jobaaaa2")
    assert "backends" not in task


def test_spot_first_asks_for_spot_machines_until_the_latest_start_on_demand() -> None:
    """Twenty hours of work and twelve minutes to start, before a deadline in thirty hours."""
    job = msgspec.structs.replace(a_cluster(spot=SpotPolicy.FIRST), deadline=NOON + timedelta(hours=30))
    launch = launched(job)

    def policy(after: timedelta, job: Job = job) -> str:
        return str(dstack_task(job, msgspec.structs.replace(launch, intended_at=NOON + after))["spot_policy"])

    assert policy(timedelta(hours=9, minutes=47)) == "spot"
    assert policy(timedelta(hours=9, minutes=48)) == "auto"
    assert policy(timedelta(0), msgspec.structs.replace(job, deadline=None)) == "auto", "of a gpuwatch before"
    spec = msgspec.structs.replace(job.definition, nodes=2)
    assert "needs a deadline" in str(unfit_for_cluster(spec))
    assert unfit_for_cluster(msgspec.structs.replace(spec, deadline_s=36_000.0)) is None


@pytest.mark.parametrize(
    "setup", ["true # tools", "cat <<END >/dev/null\nx\nEND", "cd /\n", "sleep 0 &", "true ||\nfalse", "X=1"]
)
def test_no_setup_swallows_the_command(setup: str) -> None:
    """dstack joins its commands to one line (`_join_shell_commands` of 0.22.5)."""
    commands = [
        one.strip() for one in dstack_commands(a_definition(nodes=2, setup=setup, command="echo trained; exit 5"))
    ]
    joined = " && ".join(f"{{ {one} }}" if one.endswith("&") else one for one in commands)
    ran = subprocess.run(["/bin/sh", "-c", joined], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("trained\n", 5)
    failed = dstack_commands(a_definition(nodes=2, setup="false", command="echo trained"))
    assert subprocess.run(["/bin/sh", "-c", " && ".join(failed)], capture_output=True, check=False).stdout == b""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"results": (JobFiles(source="out/*", target="."),)}, "results"),
        ({"pilot": PilotSpec(share=0.1)}, "pilot"),
        ({"resources": a_watch(action=Action.ASK)}, 'action = "ask"'),
        ({"resources": a_watch(action=Action.LAUNCH, providers=("shadeform",))}, "dstack runs no cluster at shadeform"),
        ({"resources": a_watch(action=Action.LAUNCH, providers=("aws", "vastai"))}, "at vastai; it does at aws, azure"),
        ({"resources": a_watch(action=Action.LAUNCH, min_reputation=0.9)}, "min_reputation"),
    ],
)
def test_what_dstack_does_not_carry_out_is_refused(changed: dict[str, object], words: str) -> None:
    why = unfit_for_cluster(a_definition(nodes=2, **changed))
    assert why is not None
    assert words in why
    assert unfit_for_cluster(a_definition(nodes=2)) is None


def test_the_limit_of_a_queued_cluster_is_a_machines_share() -> None:
    """`jobs plan` and the page show it; dstack pays no more for each machine."""
    limits = JobLimit(max_usd=Decimal(200), max_usd_hour=Decimal(40))
    job = a_job(definition=a_definition(nodes=4, limit=limits, hours=FigureRange(10, 10)))
    share = JobLimit(max_usd=Decimal(50), max_usd_hour=Decimal(10))
    one = a_job(definition=a_definition(limit=share, hours=FigureRange(10, 10)))
    assert price_cap(job) == price_cap(one)
    assert max_runtime_s(job, price_cap(job), NOON) == pytest.approx(max_runtime_s(one, price_cap(one), NOON))
    assert price_cap(job) == cluster_watch(job, NOON).max_price_usd_gpu_hour
