"""A pilot that exceeds a limit: the job moves to a faster GPU that fits, or asks; never two instances at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.jobs.job import Job, JobRun, JobState
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_values import CheckpointSpec, JobFiles, JobLimit, PilotSpec
from gpuwatch.domain.jobs.job_watch import price_cap
from gpuwatch.domain.jobs.pilot_checks import BetterGpu, better_gpu
from gpuwatch.domain.watches.decide import Match
from tests.builders import a_match, an_offer, changed
from tests.jobs.job_world import BEGIN, WATCH, JobWorld, launch_of

NOW = BEGIN + timedelta(hours=1)


def seen(gpu: str = "H100 SXM", usd: float = 2.0, **values: Any) -> Match:
    return a_match(an_offer(gpu=gpu, quoted_usd_hour=usd, **({"observed_at": NOW} | values)), commission="0")


def a_job(**values: Any) -> Job:
    """A tenth of it took an hour on an A100."""
    spec = JobDefinition(name="train", command="x", resources=WATCH, limit=values.pop("limit", JobLimit(max_usd=9)))
    plain = {"job_id": "abcdefgh", "name": "train", "definition": spec, "state": JobState.RUNNING, "priority": 0}
    return Job(**(plain | {"submitted_at": BEGIN, "retries_left": 2, "progress": 0.1} | values))


def asked(job: Job, *offers: Match, resumes: bool = True, run_number: int = 1) -> BetterGpu | None:
    run = JobRun(job_id=job.job_id, run_number=run_number, launch_id="la", started_at=BEGIN, ended_at=NOW)
    launch = launch_of("la", BEGIN, "A100 SXM 80GB")
    return better_gpu(job, run, launch, offers, NOW, resumes=resumes)


def test_a_faster_gpu_within_the_limits_is_taken_with_what_was_measured() -> None:
    found = asked(a_job(), seen(usd=1.2))
    assert found is not None
    assert found.definition.resources.gpu_names == ("H100 SXM",)
    assert found.definition.hours is not None
    assert 5 < found.definition.hours.high < 8, "ten hours, by the bandwidth of the two, and a tenth more"
    assert float(price_cap(a_job(definition=found.definition))) >= 1.2


@pytest.mark.parametrize(
    "offer",
    [seen(usd=9.0), seen("RTX 4090", 0.1), seen("A100 SXM 80GB", 0.1), seen("XYZ", 0.1), seen(usd=1.2, gpu_count=2)],
)
def test_what_is_too_dear_not_faster_unknown_or_of_another_size_is_none(offer: Match) -> None:
    assert asked(a_job(), offer) is None


def test_a_deadline_no_retry_a_second_run_and_no_progress_keep_it_where_it_is() -> None:
    good = seen(usd=0.5)
    assert asked(a_job(), good) is not None
    assert asked(a_job(deadline=NOW + timedelta(hours=3)), good) is None
    assert asked(a_job(retries_left=0), good) is None
    assert asked(a_job(progress=None), good) is None
    assert asked(a_job(), good, run_number=2) is None


@pytest.mark.parametrize(("age", "is_taken"), [(timedelta(minutes=10), True), (timedelta(minutes=11), False),
                                                (timedelta(hours=5), False), (timedelta(days=-1), False)])  # fmt: skip
def test_an_instance_is_not_given_up_for_a_quote_that_is_not_current(age: timedelta, is_taken: bool) -> None:
    """The offer may be gone: then the job would wait in the queue, with its instance destroyed."""
    assert (asked(a_job(), seen(usd=1.2, observed_at=NOW - age)) is not None) is is_taken


def test_without_a_checkpoint_all_of_it_is_done_and_paid_again() -> None:
    usd = 1.1
    fits = next(most / 10 for most in range(10, 200) if asked(a_job(limit=JobLimit(max_usd=most / 10)), seen(usd=usd)))
    assert asked(a_job(limit=JobLimit(max_usd=fits)), seen(usd=usd), resumes=False) is None


@pytest.fixture
def world(tmp_path: Path) -> Iterator[JobWorld]:
    made = JobWorld(tmp_path, real=False)
    yield made
    made.close()


def test_it_goes_on_there_once_the_old_instance_is_gone(world: JobWorld) -> None:
    world.gpu = "A100 SXM 80GB"
    world.wrap = lambda parts: changed(parts, seen=lambda job: (seen(usd=0.02, observed_at=world.now),))
    world.restarted()
    world.submit(
        'mkdir -p ckpt out; if [ -n "${GPUWATCH_CHECKPOINT:-}" ];'
        " then cat $GPUWATCH_CHECKPOINT > out/n.txt; exit 0; fi;"
        " echo 1 > ckpt/1; echo step 1/100; while :; do sleep 0.1; done",
        results=(JobFiles(source="out/*", target="results"),), checkpoint=CheckpointSpec(path="ckpt", every_s=600.0),
        pilot=PilotSpec(duration_s=600.0), limit=JobLimit(max_usd=5),
    )  # fmt: skip
    world.stays.add("la")
    world.until(lambda job: job.state is JobState.PREEMPTED, step_s=300.0)
    for _ in range(5):
        world.now += timedelta(hours=1)
        assert world.round().state is JobState.PREEMPTED, "its old instance may still be there"
    world.stays.clear()
    job = world.over()
    assert (job.state, job.run_number, job.retries_left) == (JobState.DONE, 2, 1)
    assert job.definition.resources.gpu_names == ("H100 SXM",)
    assert "job train: moves after its pilot" in world.texts()
    assert (world.folder / "project/results/n.txt").read_text() == "1\n"


def test_with_old_quotes_alone_the_pilot_asks_and_moves_nothing(world: JobWorld) -> None:
    """Seen hours ago: what destroys an instance must be on offer."""
    world.gpu = "A100 SXM 80GB"
    world.wrap = lambda parts: changed(
        parts, seen=lambda job: (seen(usd=0.02, observed_at=world.now - timedelta(hours=3)),)
    )
    world.restarted()
    world.submit(
        "mkdir -p ckpt; echo 1 > ckpt/1; echo step 1/100; while :; do sleep 0.1; done",
        checkpoint=CheckpointSpec(path="ckpt", every_s=600.0),
        pilot=PilotSpec(duration_s=600.0), limit=JobLimit(max_usd=5),
    )  # fmt: skip
    job = world.until(lambda job: job.state in {JobState.PAUSED, JobState.PREEMPTED}, step_s=300.0)
    assert (job.state, job.definition.resources.gpu_names) == (JobState.PAUSED, ("H100",))
