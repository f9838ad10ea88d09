"""The steps of a job with `[prepare]`: one name, one deadline, one limit in all."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import msgspec

from gpuwatch.domain.jobs.job import Job, JobState, definition_json, job_view, new_job
from gpuwatch.domain.jobs.job_definition import JobDefinition, JobStage, PrepareSpec, after_preparation, steps_of
from gpuwatch.domain.jobs.job_series import due_step, new_series, run_of
from gpuwatch.domain.jobs.job_values import CheckpointSpec, JobLimit, PilotSpec
from gpuwatch.domain.jobs.job_watch import latest_start, price_cap, usd_left, waiting_job_watch
from gpuwatch.domain.jobs.queue import slack_s
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.watch import Action, Watch
from tests.builders import NOON, a_watch
from tests.builders_jobs import a_definition

CPU = Watch(name="job", gpu=("none",), gpu_names=("none",), gpu_count_min=0, gpu_count_max=0,
            max_price_usd_gpu_hour=Decimal(1_000_000))  # fmt: skip


def a_spec(**changes: object) -> PrepareSpec:
    plain = {"command": "clean", "outputs": ("data",), "resources": CPU, "hours": FigureRange(1, 2),
             "limit": JobLimit(max_price_usd_gpu_hour=Decimal("0.10"))}  # fmt: skip
    return PrepareSpec(**(plain | changes))  # type: ignore[arg-type]


def prepared(**changes: object) -> JobDefinition:
    plain = {"prepare": a_spec(), "hours": FigureRange(5, 10), "deadline_s": 86_400.0,
             "limit": JobLimit(max_usd=Decimal(20))}  # fmt: skip
    return a_definition(**(plain | changes))


def test_it_begins_with_the_step_before_and_ends_with_itself() -> None:
    job = new_job(prepared(), "jobaaaa2", NOON)
    assert (job.definition.command, job.definition.stage, job.definition.name) == ("clean", JobStage.PREPARE, "train")
    after = after_preparation(job.definition, 1)
    assert (after.command, after.stage, after.prepared_run) == ("python train.py", JobStage.MAIN, 1)
    assert steps_of(after) == (after,)
    assert new_job(after, "jobaaaa2", NOON).definition == after, "a retry does not prepare the same data again"
    assert new_job(job.definition, "jobaaaa2", NOON).definition == job.definition
    assert new_job(a_definition(), "jobaaaa2", NOON).definition.stage is None
    decoded = msgspec.json.decode(msgspec.json.encode(job.definition), type=JobDefinition)
    assert decoded == job.definition


def test_both_steps_have_one_deadline_and_one_limit_in_all() -> None:
    job = new_job(prepared(), "jobaaaa2", NOON)
    assert (usd_left(job), price_cap(job)) == (Decimal(20), Decimal("0.10"))
    # 2 hours, 12 minutes until the next machine is ready, 10 hours
    assert latest_start(job) == NOON + timedelta(hours=24 - 12.2)
    assert slack_s(job, NOON) == (24 - 12.2) * 3600
    after = msgspec.structs.replace(job, definition=after_preparation(job.definition, 1), spent_microusd=500_000)
    assert (usd_left(after), after.deadline) == (Decimal("19.5"), job.deadline)
    assert latest_start(after) == NOON + timedelta(hours=14)


def test_the_stricter_limit_in_all_holds_for_the_step_before() -> None:
    own = new_job(prepared(prepare=a_spec(limit=JobLimit(max_usd=Decimal(1)))), "jobaaaa2", NOON)
    assert usd_left(own) == Decimal(1)
    of_job = prepared(prepare=a_spec(limit=JobLimit(max_usd=Decimal(50))))
    assert usd_left(new_job(of_job, "jobaaaa2", NOON)) == Decimal(20)
    without = new_job(
        prepared(prepare=a_spec(limit=None), limit=JobLimit(max_price_usd_gpu_hour=Decimal(2))), "j", NOON
    )
    assert price_cap(without) == Decimal(2), "per hour of its machine"


def test_what_is_the_jobs_own_does_not_concern_the_step_before() -> None:
    resources = a_watch(name="job:train", action=Action.ASK, require=("dry_epoch", "data_checked"))
    spec = prepared(resources=resources, pilot=PilotSpec(share=0.01), checkpoint=CheckpointSpec(path="ckpt"))
    job = new_job(spec, "jobaaaa2", NOON)
    watch = waiting_job_watch(job, Decimal("0.10"), NOON)
    assert (watch.name, watch.action, watch.require) == ("job:train", Action.ASK, ("data_checked",))
    assert (job.definition.pilot, job.definition.checkpoint, job.definition.share_instance) == (None, None, False)
    assert watch.wants_no_gpu


def test_other_programs_see_one_job_and_its_step() -> None:
    job = new_job(prepared(), "jobaaaa2", NOON)
    assert (job_view(job).name, job_view(job).stage) == ("train", JobStage.PREPARE)
    shown = definition_json(job.definition)
    assert (shown["command"], shown["prepare"]["command"], shown["prepare"]["gpu"]) == (
        "python train.py",
        "clean",
        ("none",),
    )
    assert shown == definition_json(after_preparation(job.definition, 1))


def test_each_run_of_a_recurring_job_prepares_its_own_data() -> None:
    series = new_series(prepared(schedule="0 2 * * *", deadline_s=36_000.0), NOON, NOON.tzinfo)  # type: ignore[arg-type]
    at = series.next_at + timedelta(minutes=1)
    step = due_step(series, at, NOON.tzinfo, is_open=False)  # type: ignore[arg-type]
    assert step is not None
    run = run_of(series, step, "jobaaaa2", at, NOON.tzinfo)  # type: ignore[arg-type]
    assert isinstance(run, Job)
    assert run.state is JobState.QUEUED
    assert run.definition.stage is JobStage.PREPARE
    assert run.definition.name == run.definition.whole.name == run.name
    assert run.definition.resources.name == run.watch_name
