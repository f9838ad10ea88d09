"""A job, its runs and its events, as they are stored; its states; its JSON. Pure.

- `apply_transition`: which transitions of its state are allowed, and what each one changes.
- `JobView` and its neighbours: what commands, the API and the chat share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gpuwatch.domain.jobs.job_definition import JobDefinition, JobStage, PrepareSpec, steps_of
from gpuwatch.domain.jobs.job_values import JobLimit
from gpuwatch.domain.market.json_view import JsonView, Moment, number
from gpuwatch.domain.market.money import dollars, per_hour
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.errors import GpuwatchError


class JobState(StrEnum):
    """The state of a job; other programs read these names."""

    QUEUED = "queued"
    RENTING = "renting"  # a launch is being made for it
    PREPARING = "preparing"  # the instance runs; inputs are being transferred
    RUNNING = "running"
    FETCHING = "fetching"  # the command has ended; results are being fetched
    DONE = "done"
    PAUSED = "paused"  # held by the owner, or waiting for an answer of the owner
    PREEMPTED = "preempted"  # its instance was lost; it continues on another
    FAILED = "failed"
    CANCELLED = "cancelled"


OVER = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
ON_AN_INSTANCE = frozenset({JobState.PREPARING, JobState.RUNNING, JobState.FETCHING})


# `gc=False`, as for `Watch`: thousands of jobs may be queued, none is part of a reference cycle, and otherwise each
# garbage collection would traverse all of them.
class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored job. `version` increases with every change; `run_number` is the fencing number of its runs."""

    job_id: str
    name: str
    definition: JobDefinition
    state: JobState
    priority: int
    submitted_at: datetime
    deadline: datetime | None = None
    started_at: datetime | None = None  # start of the first run's command
    ended_at: datetime | None = None
    exit_code: int | None = None
    launch_id: str | None = None  # the newest launch
    progress: float | None = None  # 0 to 1; None: unknown
    predicted_microusd: int | None = None
    spent_microusd: int = 0
    reason: str | None = None  # why it is in this state, one line
    run_number: int = 0
    retries_left: int = 0
    version: int = 0
    series: str | None = None  # the name of the recurring job that it is a run of
    planned_at: datetime | None = None  # the time of its schedule

    @property
    def watch_name(self) -> str:
        """The name of its watch, under which its launches and alerts are stored."""
        return Purpose.of_job(self.name).watch

    @property
    def is_over(self) -> bool:
        """Return whether the job is final unless the owner retries it."""
        return self.state in OVER


def new_job(definition: JobDefinition, job_id: str, now: datetime) -> Job:
    """A queued job in the first step that is left of it; its deadline counts from now."""
    definition = steps_of(definition)[0]
    deadline = definition.deadline_at
    if definition.deadline_s is not None:
        deadline = now + timedelta(seconds=definition.deadline_s)
    return Job(
        job_id=job_id,
        name=definition.name,
        definition=definition,
        state=JobState.QUEUED,
        priority=definition.priority,
        submitted_at=now,
        deadline=deadline,
        retries_left=definition.retries,
    )


class JobRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of a job on one instance. `step` is the executor's own progress mark.

    Attributes:
        held_from: when another, finished job handed over the instance; None: it was rented for this run.
        held_until: when it handed the instance over to another job; None: it keeps it to the end.
    """

    job_id: str
    run_number: int
    launch_id: str
    step: str = "new"
    ssh_host: str | None = None
    ssh_port: int | None = None
    ssh_user: str | None = None
    host_key: str | None = None
    started_at: datetime | None = None
    lease_until: datetime | None = None  # the runner stops if the lease is not renewed by then
    last_seen_at: datetime | None = None
    exit_code: int | None = None
    checkpoint: str | None = None  # the newest complete checkpoint that was fetched and verified
    results: tuple[dict[str, Any], ...] = ()  # fetched files: path, bytes, sha256
    ended_at: datetime | None = None
    end_reason: str | None = None
    held_from: datetime | None = None
    held_until: datetime | None = None

    @property
    def uses_retry(self) -> bool:
        """Return whether its end uses up a retry of the job."""
        return self.step != RELOCATED


MOVING = "moving"  # the step of a run whose command is being stopped, because another machine is cheaper
RELOCATED = "relocated"  # the step of a run that ended for that reason
MOVE_EVENT = "move"
ADVICE_EVENT = "relocation"


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event of a job and its details."""

    job_id: str
    run_number: int
    at: datetime
    kind: str  # for a transition: the name of the new state
    detail: dict[str, Any] = {}


_ALLOWED = {
    "queued": "queued renting preparing paused failed cancelled",
    "renting": "renting queued preparing paused preempted failed cancelled",
    "preparing": "preparing running fetching paused preempted queued failed cancelled",
    "running": "running fetching paused preempted queued failed cancelled",
    # its command has ended: it never runs again by itself; "queued": its data is prepared, its own command follows
    "fetching": "fetching done queued failed cancelled",
    "paused": "queued preparing running preempted failed cancelled",
    "preempted": "queued failed cancelled",
    "done": "",
    "failed": "queued",  # the owner retries the job
    "cancelled": "queued",
}
ALLOWED_JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState(state): frozenset(map(JobState, following.split())) for state, following in _ALLOWED.items()
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
    if to is JobState.RUNNING and job.started_at is None:
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


class JobView(JsonView, frozen=True, kw_only=True):
    """One job, as in `gpuwatch jobs list`."""

    job_id: str
    name: str
    state: JobState
    priority: int
    deadline: Moment | None
    launch_id: str | None
    progress: Annotated[float | None, Meta(description="From 0 to 1.")]
    predicted_usd: float | None
    spent_usd: float
    started_at: Moment | None
    ended_at: Moment | None
    exit_code: int | None
    submitted_at: Moment
    reason: str | None
    run_number: int
    retries_left: int
    depends_on: tuple[str, ...]
    group: Annotated[str | None, Meta(description="The array that it is a job of.")]
    series: Annotated[str | None, Meta(description="The recurring job that it is a run of.")]
    planned_at: Annotated[Moment | None, Meta(description="The time of its schedule.")]
    stage: Annotated[JobStage | None, Meta(description="With [prepare]: the step that it is in; else null.")]


class JobRunView(JsonView, frozen=True, kw_only=True):
    """One run of a job."""

    run_number: int
    launch_id: str
    step: str
    ssh_host: str | None
    ssh_port: int | None
    ssh_user: str | None
    started_at: Moment | None
    last_seen_at: Moment | None
    exit_code: int | None
    checkpoint: str | None
    results: tuple[dict[str, Any], ...]
    ended_at: Moment | None
    end_reason: str | None


class JobMove(JsonView, frozen=True, kw_only=True):
    """A job's move to a cheaper machine, as it was decided."""

    at: Moment
    run_number: Annotated[int, Meta(description="The run that ended for it.")]
    provider: str
    usd_hour: float
    to_provider: Annotated[str, Meta(description="Where the compared offer was; the job may have rented another one.")]
    to_usd_hour: float
    stay_usd: Annotated[float, Meta(description="Cost of the remaining work on the machine that it left.")]
    move_usd: Annotated[float, Meta(description="The same after the move, all that it costs included.")]
    saving_usd: Annotated[float, Meta(description="The difference: expected at the decision, not measured.")]
    rests_on: str


class JobEventView(JsonView, frozen=True, kw_only=True):
    """One event of a job."""

    at: Moment
    kind: str
    run_number: int
    detail: dict[str, Any]


def job_view(job: Job) -> JobView:
    """A job as other programs see it."""
    return JobView.of(job, job.definition)


def definition_json(definition: JobDefinition) -> dict[str, Any]:
    """JSON of the job file. Of the environment only names are shown: a value may be a secret."""
    spec, prepare = definition.whole, definition.whole.prepare
    return {
        "image": spec.resources.launch.image if spec.resources.launch else None,
        **_work_json(spec, spec.limit),
        "group": spec.resources.group,
        "action": spec.resources.action,
        "require": spec.resources.require,
        **{name: getattr(spec, name) for name in _SHOWN_AS_WRITTEN},
        "prepare": None
        if prepare is None
        else {"image": prepare.image, **_work_json(prepare, prepare.limit or spec.limit)},
    }


def _work_json(work: JobDefinition | PrepareSpec, limit: JobLimit) -> dict[str, Any]:
    """What a job and its `[prepare]` have in common."""
    resources, made = work.resources, "results" if isinstance(work, JobDefinition) else "outputs"
    return {
        "command": work.command or None,
        "env": sorted({*work.env, *work.secret_env}),
        "gpu": resources.gpu,
        "gpu_count": [resources.gpu_count_min, resources.gpu_count_max],
        "spot": resources.spot,
        "limit": {
            "max_price": number(limit.max_price_usd_gpu_hour),
            "max_usd": number(limit.max_usd),
            "max_usd_hour": number(limit.max_usd_hour),
        },
        **{name: getattr(work, name) for name in ("setup", "script", "inputs", made, "hours")},
    }


_SHOWN_AS_WRITTEN = ("checkpoint", "pilot", "active", "retries", "relocate")


def state_text(state: JobState, stage: JobStage | None) -> str:
    """The state of a job in a word or two: also that it is in the step before its own command."""
    return f"{state.value}, preparing its data" if stage is JobStage.PREPARE else state.value


def moves_of(runs: Sequence[JobRun], events: Sequence[JobEvent]) -> list[JobMove]:
    """The moves to cheaper machines that a job made, oldest first."""
    left = {run.run_number for run in runs if run.step == RELOCATED}
    found = {event.run_number: move for event in events if (move := move_in(event)) is not None}
    return [move for number, move in sorted(found.items()) if number in left]


def move_in(event: JobEvent) -> JobMove | None:
    """The move whose decision an event records; None: another event."""
    if event.kind != MOVE_EVENT:
        return None
    try:
        return msgspec.convert({**event.detail, "at": event.at, "run_number": event.run_number}, JobMove)
    except msgspec.ValidationError:
        return None


def advice_of(events: Sequence[JobEvent]) -> str | None:
    """What was last found out about a cheaper machine for a job, in one line; None: nothing so far."""
    newest = next((event for event in reversed(events) if event.kind in {ADVICE_EVENT, MOVE_EVENT}), None)
    if newest is None:
        return None
    move = move_in(newest)
    return str(newest.detail.get("found", "")) or None if move is None else move_text(move)


def move_text(move: JobMove) -> str:
    """Describe a move in one line."""
    there = f"{move.to_provider} at {per_hour(move.to_usd_hour)}"
    return f"from {move.provider} at {per_hour(move.usd_hour)} to {there}, saving about {dollars(move.saving_usd)}"
