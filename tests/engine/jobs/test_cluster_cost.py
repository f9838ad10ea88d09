"""The cost of a multi-node job after its run: as dstack states it, however late it answers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest

from gpuwatch.domain.jobs.job import Job, JobState, JobTransition
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchState, new_launch
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.jobs.cluster_jobs import COST_WITHIN, ClusterJobs
from gpuwatch.errors import ProviderDown
from gpuwatch.ports.jobs import ClusterRun
from tests.builders import NOON, a_match, a_watch, changed
from tests.builders_jobs import a_definition, a_job

WATCH = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0))
SOON = NOON + timedelta(minutes=1)


@pytest.fixture
def parts() -> Any:
    """The ports of a job whose launch ended at noon, after an hour at 2.40 $."""
    launch = changed(
        new_launch(Intent(watch=WATCH, match=a_match(), launch_id="k" * 12, dry_run=False), 0, NOON),
        state=LaunchState.ENDED,
        running_at=NOON - timedelta(hours=1),
        ended_at=NOON,
        end_reason=EndReason.FINISHED.text("exit 0"),
    )
    job = a_job(definition=a_definition(nodes=4), state=JobState.RUNNING, launch_id=launch.launch_id, run_number=1)

    def record(before: Job, step: JobTransition, _run: Any = None) -> Job:
        return changed(before, state=step.to_state, **step.changes)

    parts = MagicMock()
    parts.jobs.open_jobs.return_value = [job]
    parts.jobs.runs.return_value = []
    parts.jobs.record.side_effect = record
    parts.launches.alive.return_value = []
    parts.launches.get.side_effect = lambda wanted: launch if wanted == launch.launch_id else None
    return parts


def spent_usd(parts: Any, now: datetime) -> float | None:
    """Return the record after a pass; None: nothing yet."""
    ClusterJobs(parts, MagicMock()).tick(now)
    steps = [call.args[1] for call in parts.jobs.record.call_args_list]
    done = [step for step in steps if step.to_state is JobState.DONE]
    return done[0].changes["spent_microusd"] / 1e6 if done else None


def test_a_dstack_that_does_not_answer_is_asked_again(parts: Any) -> None:
    parts.engine.run.side_effect = [ProviderDown("dstack ps: no answer within 60 s"), over(cost_usd=12.3456)]
    assert spent_usd(parts, SOON) is None
    assert spent_usd(parts, SOON) == 12.3456


def test_one_that_answers_no_more_leaves_an_upper_bound(parts: Any) -> None:
    parts.engine.run.side_effect = ProviderDown("dstack ps: no answer within 60 s")
    assert spent_usd(parts, NOON + COST_WITHIN - timedelta(seconds=1)) is None
    launch: Launch = parts.launches.get("k" * 12)
    assert spent_usd(parts, NOON + COST_WITHIN) == pytest.approx(launch.price_microusd_hour / 1e6)


def over(cost_usd: float) -> ClusterRun:
    return ClusterRun(
        name="run", status="done", is_over=True, is_placed=True, usd_hour=None, cost_usd=cost_usd, exit_code=0, why=""
    )
