"""The verdict of a pilot on required items: passed, failed, or not measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun
from gpuwatch.domain.jobs.job_values import CheckpointSpec, PilotSpec
from gpuwatch.domain.jobs.job_watch import pilot_items, waiting_job_watch
from gpuwatch.domain.jobs.pilot_checks import (
    PilotObservation,
    failed_text,
    findings_detail,
    is_measured_enough,
    pilot_findings,
    pilot_ticks,
)
from gpuwatch.domain.jobs.run_sample import RunSample
from gpuwatch.domain.launches.life.owner_decisions import PILOT_ITEMS
from tests.builders import a_watch
from tests.builders_jobs import a_definition, a_job

NOW = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)


def _job(**changes: Any) -> Job:
    return a_job(definition=a_definition(**changes))


def _samples(*uses: float, **known: float) -> list[RunSample]:
    return [RunSample(at=NOW, run_number=1, gpu_percent=use, **({"progress": 0.1} | known)) for use in uses]


@pytest.mark.parametrize(
    ("item", "seen", "passed"),
    [
        ("util_70", PilotObservation(samples=_samples(10, 71, 90)), True),
        ("util_70", PilotObservation(samples=_samples(10, 69.9, 90)), False),
        ("util_70", PilotObservation(samples=_samples(99, progress=0.0)), None),  # it still loads
        ("loss_falls", PilotObservation(samples=_samples(1), losses=[3, 2, 2.5, 1]), True),
        ("loss_falls", PilotObservation(samples=_samples(1), losses=[1, 2, 2.5, 1]), False),
        ("loss_falls", PilotObservation(samples=_samples(1), losses=[3, 2, 1]), None),
        (
            "loss_falls",
            PilotObservation(samples=_samples(1, 1, loss=4.0), losses=[3, 3, 3]),
            True,
        ),  # what was seen before
        ("memory_fits", PilotObservation(samples=_samples(1, gpu_memory_share=0.97)), True),
        ("memory_fits", PilotObservation(samples=_samples(1, gpu_memory_share=0.98)), False),
        ("memory_fits", PilotObservation(samples=_samples(1)), None),
        ("tokens_per_s", PilotObservation(samples=_samples(1, tokens_per_s=400.0)), True),
        ("tokens_per_s", PilotObservation(samples=_samples(1)), None),
        ("dry_epoch", PilotObservation(samples=_samples(1)), True),
        ("dry_epoch", PilotObservation(samples=_samples(1, progress=0.0)), None),
        ("dry_epoch", PilotObservation(samples=_samples(1), needs_checkpoint=True), None),
        ("dry_epoch", PilotObservation(samples=_samples(1), needs_checkpoint=True, checkpoint="ckpt/1"), True),
    ],
)
def test_an_item_is_judged_by_what_was_measured(item: str, seen: PilotObservation, passed: bool | None) -> None:
    (found,) = pilot_findings([item], seen)
    assert found.passed is passed
    assert bool(failed_text([found])) is not bool(passed)


def test_every_item_of_a_pilot_can_be_judged() -> None:
    assert len(pilot_findings(sorted(PILOT_ITEMS), PilotObservation(samples=_samples(1)))) == len(PILOT_ITEMS)


def test_evidence_becomes_ticks_and_other_events_do_not() -> None:
    found = pilot_findings(["util_70", "loss_falls"], PilotObservation(samples=_samples(80)))
    kept = JobEvent(job_id="a", run_number=2, at=NOW, kind="pilot", detail=findings_detail(found))
    (tick,) = pilot_ticks([msgspec.structs.replace(kept, kind="other"), kept])
    assert (tick.item, tick.at) == ("util_70", NOW)
    assert tick.words == "measured by the pilot of run 2: GPU utilisation 80 % (median of 1)"
    assert pilot_ticks([msgspec.structs.replace(kept, detail={"checklist": "x"})]) == []


def test_what_is_not_measured_is_waited_for_a_bounded_time() -> None:
    run = JobRun(job_id="a", run_number=1, launch_id="l", started_at=NOW)
    short = _job(pilot=PilotSpec(duration_s=60.0))
    saves = _job(pilot=PilotSpec(duration_s=60.0), checkpoint=CheckpointSpec(path="c", every_s=1200.0))
    share = _job(pilot=PilotSpec(share=0.01))
    at = {minutes: NOW + timedelta(minutes=minutes) for minutes in (4, 6, 29, 31, 48 * 60)}
    assert [is_measured_enough(short, run, None, at[one]) for one in (4, 6)] == [False, True]
    assert [is_measured_enough(saves, run, None, at[one]) for one in (29, 31)] == [False, True]
    assert [is_measured_enough(share, run, done, at[6]) for done in (0.019, 0.02)] == [False, True]
    assert [is_measured_enough(share, run, None, at[one]) for one in (6, 48 * 60)] == [False, True]  # it says nothing


def test_a_job_with_a_pilot_rents_before_its_pilot_has_measured() -> None:
    """Items that only the owner can judge still block it; without a pilot, all items do."""
    job = _job(pilot=PilotSpec(share=0.01), resources=a_watch(require=("amp", "util_70", "my own")))
    limit = job.definition.resources.max_price_usd_gpu_hour
    assert waiting_job_watch(job, limit, NOW).require == ("amp", "my own")
    assert pilot_items(job.definition) == ("util_70",)
    without = _job(resources=a_watch(require=("amp", "util_70")))
    assert waiting_job_watch(without, limit, NOW).require == ("amp", "util_70")
