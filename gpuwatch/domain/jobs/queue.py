"""The queue of jobs: which may look for an instance now, in which order, and why the others wait. Pure.

What is submitted to it:

- `expand`: one job file expanded to one job per value of `--sweep lr=1e-4,2e-4`;
- `deadline_from`: a deadline as people write it: Sunday, tomorrow, a date, a time, a duration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from itertools import islice, product

import msgspec

from gpuwatch.domain.jobs.checkpoints import below
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_watch import hours_to_end, latest_start, price_cap, usd_left, work_hours_left
from gpuwatch.domain.jobs.shared_instance import SharedInstances
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.domain.watches.owner_names import Purpose

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_END_OF_DAY = time(23, 59)
_EXPECTED = 'expected a day such as "Sunday" or "tomorrow", a date, a time such as 2026-12-01T08:00, or a duration "2d"'

URGENT_S = 3600.0
_NEVER = float("inf")
HUNTED_AT_ONCE = 20  # jobs that look for an offer simultaneously; each distinct query costs rows and seconds

PriceOf = Callable[[Job], float | None]  # USD per GPU-hour of the cheapest fitting offer, as last seen

MOST_JOBS = 1000
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class WaitReason(StrEnum):
    """Why a queued job does not look for an instance now."""

    DEPENDS = "waits for another job"
    NO_MONEY = "nothing is left of max_usd"
    TURN = "waits for its turn"
    SHARES = "runs on the instance of job"


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the queue decided about one job.

    Attributes:
        slack_s: time to the deadline minus the work left; None: no deadline.
        waits: why it does not look for an instance now; None: it does look for one.
    """

    job: Job
    slack_s: float | None
    waits: str | None = None


def slack_s(job: Job, now: datetime) -> float | None:
    """Seconds to the deadline minus the work left in all its steps; negative: the job can no longer meet it."""
    if job.deadline is None:
        return None
    return (job.deadline - now).total_seconds() - hours_to_end(job) * 3600


def saving_usd(job: Job, price_usd_gpu_hour: float | None) -> float:
    """The saving of an offer at this price, compared with the job's highest price, over the work left."""
    if price_usd_gpu_hour is None:
        return 0.0
    gpus = priced_units(job.definition.resources.gpu_count_min)
    hours = job.definition.nodes * gpus * work_hours_left(job)
    return max(0.0, float(price_cap(job)) - price_usd_gpu_hour) * hours


def queue_order(jobs: Iterable[Job]) -> list[Job]:
    """The queued jobs by priority, then by latest start, then by age: an order that does not change with time."""
    return sorted((job for job in jobs if job.state is JobState.QUEUED), key=_rank)


def _rank(job: Job) -> tuple[int, float, datetime, str]:
    start = latest_start(job)
    return -job.priority, _NEVER if start is None else start.timestamp(), job.submitted_at, job.job_id


def searching_jobs(
    queued: Iterable[Job],
    now: datetime,
    states: Mapping[str, JobState],
    price_of: PriceOf = lambda job: None,
    at_once: int = HUNTED_AT_ONCE,
    shared: SharedInstances | None = None,
) -> list[Job]:
    """The queued jobs that may look for an instance now, highest rank first.

    The order is: priority; jobs that must start within the hour; the largest saving at the current price; the earliest
    latest start. If an offer fits several jobs, the first one gets it.

    Args:
        queued: in the order of `queue_order`.
        states: the state of every job that others may wait for, by name; for an array, by its group's name.
        at_once: how many jobs may look for an instance simultaneously.
        shared: the jobs that wait for the instance of another job; None: no job does.
    """
    ready = (
        job for job in queued if waits_for(job, states) is None and (shared is None or shared.holder_for(job) is None)
    )
    first = list(islice(ready, 2 * at_once))  # those with the largest savings are chosen from these

    def by_saving(job: Job) -> tuple[int, bool, float]:
        slack = slack_s(job, now)
        is_urgent = slack is not None and slack < URGENT_S
        return -job.priority, not is_urgent, 0.0 if is_urgent else -saving_usd(job, price_of(job))

    return sorted(first, key=by_saving)[:at_once]


def schedule(
    jobs: Sequence[Job],
    now: datetime,
    states: Mapping[str, JobState],
    price_of: PriceOf = lambda job: None,
    at_once: int = HUNTED_AT_ONCE,
    shared: SharedInstances | None = None,
) -> list[QueuedJob]:
    """All queued jobs with the reason why each waits: first those of `searching_jobs`, then the others by rank.

    Args:
        shared: the jobs that wait for the instance of another job; None: no job does.
    """
    queued = queue_order(jobs)
    reasons = {job.job_id: waits_for(job, states) for job in queued}
    for job in queued:
        if shared is not None and reasons[job.job_id] is None and (other := shared.holder_for(job)) is not None:
            reasons[job.job_id] = f"{WaitReason.SHARES.value} {other.name}"
    free = [job for job in queued if reasons[job.job_id] is None]
    looking = searching_jobs(free, now, states, price_of, at_once)
    ids = {job.job_id for job in looking}
    others = [job for job in queued if job.job_id not in ids]
    return [
        *(QueuedJob(job=job, slack_s=slack_s(job, now)) for job in looking),
        *(
            QueuedJob(job=job, slack_s=slack_s(job, now), waits=reasons[job.job_id] or WaitReason.TURN.value)
            for job in others
        ),
    ]


def waits_for(job: Job, states: Mapping[str, JobState]) -> str | None:
    """Why the job cannot look for an instance; None: it can."""
    for name in job.definition.depends_on:
        if states.get(name) is not JobState.DONE:
            return f"{WaitReason.DEPENDS.value}: {name}"
    if job.definition.limit.max_usd is None:
        return None
    left = usd_left(job)
    return WaitReason.NO_MONEY.value if left is not None and left <= 0 else None


def failed_dependency(job: Job, states: Mapping[str, JobState]) -> str | None:
    """The name of a job that it depends on and that will never be done; None: there is none."""
    ends = {JobState.FAILED, JobState.CANCELLED}
    return next((name for name in job.definition.depends_on if states.get(name) in ends), None)


def group_states(jobs: Sequence[Job]) -> dict[str, JobState]:
    """The state of each job by name, and of each array by group: done if all are done, failed if one has failed.

    Of several jobs with the same name, the last one counts.
    """
    found = {job.name: job.state for job in jobs}
    groups: dict[str, set[JobState]] = {}
    for job in jobs:
        if job.definition.group is not None:
            groups.setdefault(job.definition.group, set()).add(found[job.name])
    for group, states in groups.items():
        ends = states & {JobState.FAILED, JobState.CANCELLED}
        found[group] = next(iter(sorted(ends)), JobState.DONE if states == {JobState.DONE} else JobState.RUNNING)
    return found


def parse_sweeps(texts: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Parse `lr=1e-4,2e-4` into key → values, in the given order. Raises ValueError."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, given, values = text.partition("=")
        parts = tuple(dict.fromkeys(one.strip() for one in values.split(",")))
        if not given or not _KEY.fullmatch(key) or not all(parts):
            raise ValueError(f"--sweep {text!r}: expected KEY=VALUE,VALUE, such as lr=1e-4,2e-4")
        if key in found:
            raise ValueError(f"--sweep {key}: expected only once")
        found[key] = parts
    return found


def expand(definition: JobDefinition, sweeps: Mapping[str, Sequence[str]]) -> list[JobDefinition]:
    """One definition for each combination: `NAME-1`, `NAME-2`, …

    `{lr}` in the command, the resume command and the sources of results is replaced by the value, which the environment
    variable `lr` also holds. Raises ValueError: too many combinations.
    """
    if not sweeps:
        return [definition]
    combinations = list(product(*sweeps.values()))
    if len(combinations) > MOST_JOBS:
        raise ValueError(f"--sweep: {len(combinations):,} jobs; expected at most {MOST_JOBS:,}")
    return [
        _one(definition, number, dict(zip(sweeps, values, strict=True)))
        for number, values in enumerate(combinations, 1)
    ]


def _one(definition: JobDefinition, number: int, values: Mapping[str, str]) -> JobDefinition:
    def filled(text: str) -> str:
        for key, value in values.items():
            text = text.replace("{" + key + "}", value)
        return text

    name = f"{definition.name}-{number}"
    checkpoint = definition.checkpoint
    if checkpoint is not None and checkpoint.resume is not None:
        checkpoint = msgspec.structs.replace(checkpoint, resume=filled(checkpoint.resume))
    results = tuple(
        msgspec.structs.replace(result, source=filled(result.source), target=below(result.target, name))
        for result in definition.results
    )
    return msgspec.structs.replace(
        definition,
        name=name,
        group=definition.name,
        command=filled(definition.command),
        env={**definition.env, **values},
        checkpoint=checkpoint,
        results=results,
        resources=msgspec.structs.replace(definition.resources, name=Purpose.of_job(name).watch),
    )


def deadline_from(text: str, now: datetime, zone: tzinfo) -> datetime:
    """The deadline in UTC. A day means its end, 23:59 in `zone`; a weekday means the next one, today included.

    Raises:
        ValueError: the text is invalid, or the time is past.
    """
    word = text.strip().lower()
    found = _named_day(word, now.astimezone(zone).date())
    moment = None if found is None else datetime.combine(found, _END_OF_DAY, zone)
    if moment is None:
        moment = _written(text.strip(), now, zone)
    if moment <= now:
        raise ValueError(f"{text!r} is past")
    return moment.astimezone(UTC)


def _named_day(word: str, today: date) -> date | None:
    if word in {"today", "tomorrow"}:
        return today + timedelta(days=word == "tomorrow")
    fitting = [number for number, name in enumerate(_DAYS) if len(word) >= 3 and name.startswith(word)]
    return today + timedelta(days=(fitting[0] - today.weekday()) % 7) if len(fitting) == 1 else None


def _written(text: str, now: datetime, zone: tzinfo) -> datetime:
    try:
        if len(text) == len("2026-12-01"):
            return datetime.combine(date.fromisoformat(text), _END_OF_DAY, zone)
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is not None else found.replace(tzinfo=zone)
    except ValueError:
        pass
    try:
        return now + timedelta(seconds=parse_duration(text))
    except ValueError:
        raise ValueError(f"{text!r}: {_EXPECTED}") from None
