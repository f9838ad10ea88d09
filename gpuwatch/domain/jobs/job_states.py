"""The states of a job: which transitions are allowed, and what each one changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gpuwatch.domain.jobs.job import OVER, Job, JobEvent, JobState
from gpuwatch.errors import GpuwatchError

J = JobState
_ENDS = frozenset({J.FAILED, J.CANCELLED})
ALLOWED_JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    J.QUEUED: frozenset({J.QUEUED, J.RENTING, J.PREPARING, J.PAUSED}) | _ENDS,
    J.RENTING: frozenset({J.RENTING, J.QUEUED, J.PREPARING, J.PAUSED, J.PREEMPTED}) | _ENDS,
    J.PREPARING: frozenset({J.PREPARING, J.RUNNING, J.FETCHING, J.PAUSED, J.PREEMPTED, J.QUEUED}) | _ENDS,
    J.RUNNING: frozenset({J.RUNNING, J.FETCHING, J.PAUSED, J.PREEMPTED, J.QUEUED}) | _ENDS,
    J.FETCHING: frozenset({J.FETCHING, J.DONE}) | _ENDS,  # its command has ended: it never runs again by itself
    J.PAUSED: frozenset({J.QUEUED, J.PREPARING, J.RUNNING, J.PREEMPTED}) | _ENDS,
    J.PREEMPTED: frozenset({J.QUEUED}) | _ENDS,
    J.DONE: frozenset(),
    J.FAILED: frozenset({J.QUEUED}),  # the owner retries the job
    J.CANCELLED: frozenset({J.QUEUED}),
}


class JobTransitionRefused(GpuwatchError):
    """The job's state does not allow this transition."""


class JobTransition(msgspec.Struct, frozen=True, kw_only=True):
    """One transition of a job.

    Attributes:
        reason: one line, stored with the job and the event.
        changes: other columns of `Job`, such as `launch_id`, `exit_code`, `progress`, `run_number`.
        detail: stored with the event only.
    """

    to_state: JobState
    at: datetime
    reason: str | None = None
    changes: Mapping[str, Any] = {}
    detail: Mapping[str, Any] = {}


def apply_transition(job: Job, transition: JobTransition) -> tuple[Job, JobEvent]:
    """Return the changed job and the event. Sets the start and end times.

    Raises:
        JobTransitionRefused: the job's state does not allow it.
    """
    to = transition.to_state
    if to not in ALLOWED_JOB_TRANSITIONS[job.state]:
        raise JobTransitionRefused(f"job {job.name!r} is {job.state.value}; it cannot become {to.value}")
    changes: dict[str, Any] = {"state": to, "reason": transition.reason, "version": job.version + 1}
    if to is J.RUNNING and job.started_at is None:
        changes["started_at"] = transition.at
    changes["ended_at"] = transition.at if to in OVER else None
    after = msgspec.structs.replace(job, **changes | dict(transition.changes))
    detail = {"from": job.state.value, **({"reason": transition.reason} if transition.reason else {})}
    kind = to.value if to is not job.state else "changed"
    event = JobEvent(
        job_id=job.job_id,
        run_number=after.run_number,
        at=transition.at,
        kind=kind,
        detail=detail | dict(transition.detail),
    )
    return after, event
