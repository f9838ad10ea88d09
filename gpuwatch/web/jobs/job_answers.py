"""The sentences about jobs: the answer of their pages, what a queued one waits for, and the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from markupsafe import Markup

from gpuwatch.app.reader_text import clock_text, percent, span
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.jobs.job import ADVICE_EVENT, MOVE_EVENT, RELOCATED, Job, JobEvent, JobMove, JobState, move_in
from gpuwatch.domain.jobs.job_definition import JobStage
from gpuwatch.domain.jobs.job_watch import price_cap
from gpuwatch.domain.jobs.run_sample import without_older_samples
from gpuwatch.domain.market.figure_text import size_text
from gpuwatch.domain.market.money import MICRO, hourly_text, unit_hourly_text, usd, whole_dollars
from gpuwatch.domain.market.money import dollars as dollars_text
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.owner_names import plain_name
from gpuwatch.language import mark_text, translate_plural
from gpuwatch.language import translate as _
from gpuwatch.web.components import clock, filled
from gpuwatch.web.launches.launch_answers import TimelineEntry

if TYPE_CHECKING:
    from gpuwatch.app.jobs.jobs import JobDetails
    from gpuwatch.domain.jobs.run_sample import RunSample
    from gpuwatch.domain.launches.life.owner_decisions import Pause

CHIPS: Mapping[JobState, str] = {  # of `components.chip`
    JobState.QUEUED: "queued", JobState.RENTING: "renting", JobState.PREPARING: "preparing",
    JobState.RUNNING: "running", JobState.FETCHING: "fetching", JobState.DONE: "done", JobState.PAUSED: "paused",
    JobState.PREEMPTED: "lost", JobState.FAILED: "failed", JobState.CANCELLED: "cancelled",
}  # fmt: skip
_ONCE_STARTED = frozenset({JobState.RUNNING, JobState.FETCHING})


def cap_text(job: Job) -> str:
    """Return the highest price at which a job rents: "$1.80/GPU-h"."""
    return unit_hourly_text(round(price_cap(job) * MICRO), job.definition.resources.gpu_count_max)


def waits_text(job: Job, states: Mapping[str, JobState]) -> str:
    """Return what a queued job waits for.

    Args:
        states: of the jobs that others may wait for, by name.
    """
    spec = job.definition
    before = [plain_name(name) for name in spec.depends_on if states.get(name) is not JobState.DONE]
    if before:
        return _("until {jobs} is done").format(jobs=", ".join(before))
    text = _("{price} or less").format(price=cap_text(job))
    if spec.stage is JobStage.PREPARE:
        text = _("{price}, to prepare its data").format(price=text)
    return _("{price}, within its hours").format(price=text) if spec.active else text


def queue_answer(running: Sequence[Job], queued: Sequence[Job], states: Mapping[str, JobState]) -> str:
    """Return the first sentence of the list of jobs."""
    if not running and not queued:
        return _("No job runs or waits.")
    runs = translate_plural("{count} runs", "{count} run", len(running)).format(count=len(running))
    if not queued:
        return _("{runs}, none waits.").format(runs=runs)
    waits = translate_plural("{count} waits", "{count} wait", len(queued)).format(count=len(queued))
    text = _("{runs}, {waits}; the next starts at {price}.")
    following = next((job for job in queued if not _is_blocked(job, states)), None)
    if following is None:
        return _("{runs}, {waits} for another job.").format(runs=runs, waits=waits)
    price = _("{price} or less").format(price=cap_text(following))
    return text.format(runs=runs, waits=waits, price=price)


def _is_blocked(job: Job, states: Mapping[str, JobState]) -> bool:
    return any(states.get(name) is not JobState.DONE for name in job.definition.depends_on)


# --- one job ----------------------------------------------------------------------------------------------------------


def job_answer(details: JobDetails, states: Mapping[str, JobState], now: datetime) -> Markup:
    """Return the first sentences of a job's page."""
    job, paused = details.job, _paused_text(details.pause)
    if paused and job.state is JobState.QUEUED:
        return filled(_("<b>{paused}</b> It waits: {what}."), paused=paused, what=waits_text(job, states))
    return _state_answer(details, states, now) + (Markup(" {}").format(paused) if paused else Markup(""))


def _paused_text(pause: Pause | None) -> str:
    """Return that the job is paused; "": it is not, or all renting is, which every page says."""
    if pause is None or pause.watch is None:
        return ""
    if pause.until is None:
        return _("Renting for it is paused.")
    return _("Renting for it is paused until {time}.").format(time=clock_text(pause.until))


def _state_answer(details: JobDetails, states: Mapping[str, JobState], now: datetime) -> Markup:
    job = details.job
    if job.state in _ONCE_STARTED:
        return _running_answer(job, details.newest_sample, now) + _step_text(job)
    if job.state is JobState.QUEUED:
        return filled(_("<b>Waits: {what}.</b>"), what=waits_text(job, states)) + _reason(job)
    if job.is_over:
        return _over_answer(job)
    texts = {
        JobState.RENTING: _("<b>A machine is being rented for it.</b>"),
        JobState.PREPARING: _("<b>Its machine runs; its files are being copied there.</b>"),
        JobState.PAUSED: _("<b>Paused.</b>"),
        JobState.PREEMPTED: _("<b>Its machine was lost; it goes on on another one, from its last checkpoint.</b>"),
    }
    if job.state is JobState.PREEMPTED and details.runs and details.runs[-1].step == RELOCATED:
        return filled(_("<b>It moves to a cheaper machine, from its last checkpoint.</b>")) + _reason(job)
    return filled(texts[job.state]) + _reason(job) + _step_text(job)


def _step_text(job: Job) -> Markup:
    if job.definition.stage is not JobStage.PREPARE:
        return Markup("")
    return Markup(" {}").format(_("It prepares its data; its own machine is rented after that."))


def _reason(job: Job) -> Markup:
    return Markup(" {}").format(clean(job.reason, 300)) if job.reason else Markup("")


def _running_answer(job: Job, sample: RunSample | None, now: datetime) -> Markup:
    if job.state is JobState.FETCHING:
        return filled(_("<b>Its command has ended; its results are being fetched.</b>"))
    ends_at = None if sample is None else sample.end
    if job.progress is None:
        return filled(_("<b>It runs.</b> Its command reports no progress, so its end is unknown."))
    if ends_at is None:
        return filled(_("<b>{percent} done.</b>"), percent=percent(job.progress))
    left = span(max(0.0, (ends_at - now).total_seconds()))
    found = filled(_("<b>{percent} done, about {left} left.</b>"), percent=percent(job.progress), left=left)
    if job.definition.stage is JobStage.PREPARE:  # the forecast is of this step alone
        return found + Markup(" ") + filled(_("Its data is ready around {clock}."), clock=clock(ends_at))
    found += Markup(" ") + _ready(job, ends_at)
    if sample is not None and sample.usd is not None:
        found += Markup(" {}").format(_expected_cost(job, sum(sample.usd) / 2))
    return found


def _ready(job: Job, ends_at: datetime) -> Markup:
    if job.deadline is None:
        return filled(_("Ready around {clock}."), clock=clock(ends_at))
    text = _("Ready around {clock}, before {deadline}.")
    if ends_at > job.deadline:
        text = _("Ready around {clock}, too late for {deadline}.")
    return filled(text, clock=clock(ends_at), deadline=clock(job.deadline))


def _expected_cost(job: Job, usd_at_end: float) -> str:
    cost = whole_dollars(round(usd_at_end * MICRO))
    if job.definition.limit.max_usd is None:
        return _("It will cost about {cost}.").format(cost=cost)
    text = _("It will cost about {cost}; you allow {limit}.")
    return text.format(cost=cost, limit=dollars_text(job.definition.limit.max_usd))


def _over_answer(job: Job) -> Markup:
    began, ended = job.started_at, job.ended_at
    time = None if began is None or ended is None else span((ended - began).total_seconds())
    cost = dollars_text(usd(job.spent_microusd))
    if job.state is JobState.DONE:
        return filled(_("<b>Done after {time}.</b> It cost {cost}."), time=time or "–", cost=cost)
    if job.state is JobState.CANCELLED:
        return filled(_("<b>Cancelled.</b> It cost {cost}."), cost=cost)
    if job.exit_code is not None and time is not None and job.definition.stage is not JobStage.PREPARE:
        text = _("<b>Failed: exit code {code} after {time}.</b> It cost {cost}.")
        return filled(text, code=job.exit_code, time=time, cost=cost)
    return filled(_("<b>Failed.</b> It cost {cost}."), cost=cost) + _reason(job)


def moved_text(move: JobMove) -> str:
    """Return the sentence about a move to a cheaper machine."""
    text = _("From {price} at {provider} to {new_price} at {new_provider}, to save about {amount}.")
    return text.format(
        price=hourly_text(round(move.usd_hour * MICRO)),
        provider=provider_title(move.provider),
        new_price=hourly_text(round(move.to_usd_hour * MICRO)),
        new_provider=provider_title(move.to_provider),
        amount=dollars_text(move.saving_usd),
    )


def unsaved_text(details: JobDetails, now: datetime) -> str:
    """Return what is lost with the machine of a job: the work since its last checkpoint."""
    job = details.job
    run = next(reversed(details.runs), None)
    if run is None or job.launch_id is None or run.started_at is None:
        return _("Nothing: it has not begun.")
    at = newest_checkpoint_at(details)
    if at is None:
        return _("All its work so far, {time}: it has no checkpoint.").format(
            time=span((now - run.started_at).total_seconds())
        )
    text = _("The work since its checkpoint of {clock}, {time}.")
    return text.format(clock=clock_text(at), time=span((now - at).total_seconds()))


def newest_checkpoint_at(details: JobDetails) -> datetime | None:
    """Return when the newest checkpoint was fetched."""
    return next((one.at for one in reversed(details.events) if one.kind == "checkpoint"), None)


# --- the timeline -----------------------------------------------------------------------------------------------------

_EVENTS: Mapping[str, tuple[str, str, str]] = {  # sentence, icon, tone
    "submitted": (mark_text("Queued"), "plus", ""),
    JobState.QUEUED: (mark_text("Queued again"), "plus", ""),
    JobState.RENTING: (mark_text("Renting a machine"), "launches", ""),
    JobState.PREPARING: (mark_text("Its machine runs; copying its files"), "server", ""),
    JobState.RUNNING: (mark_text("Run {run} began"), "st-run", "live"),
    JobState.FETCHING: (mark_text("Its command ended; fetching its results"), "download", ""),
    JobState.DONE: (mark_text("Done"), "check", "good"),
    JobState.PAUSED: (mark_text("Paused"), "pause", ""),
    JobState.PREEMPTED: (mark_text("Run {run} lost its machine"), "st-lost", "warn"),
    JobState.FAILED: (mark_text("Failed"), "st-fail", "bad"),
    JobState.CANCELLED: (mark_text("Cancelled"), "st-end", ""),
    "checkpoint": (mark_text("Checkpoint fetched"), "flag", ""),
    "stored": (mark_text("Results copied to their store"), "check", "good"),
    "pilot": (mark_text("Pilot measured"), "check", "good"),
    MOVE_EVENT: (mark_text("Another machine is cheaper; it moves"), "launches", ""),
    ADVICE_EVENT: (mark_text("Compared with other machines"), "info", ""),
    "changed": (mark_text("Measured"), "info", ""),
}


def job_timeline(details: JobDetails, most: int) -> list[TimelineEntry]:
    """Return what is to come, now, and the newest events."""
    job = details.job
    events = [event for event in without_older_samples(details.events) if event.kind != "changed"][-most:]
    ahead = [] if job.is_over else [*_ahead(job, details.newest_sample), TimelineEntry(text=_("Now"), icon="right")]
    moved = {run.run_number for run in details.runs if run.step == RELOCATED}
    return [*ahead, *(_entry(event, has_moved=event.run_number in moved) for event in reversed(events))]


def _ahead(job: Job, sample: RunSample | None) -> Iterator[TimelineEntry]:
    ends_at = None if sample is None else sample.end
    if job.deadline is not None:
        yield TimelineEntry(text=_("Deadline"), icon="flag", at=job.deadline, is_ahead=True)
    if ends_at is not None:
        is_step = job.definition.stage is JobStage.PREPARE
        text = _("Its data is expected to be ready") if is_step else _("Expected to be ready")
        yield TimelineEntry(text=text, icon="st-done", at=ends_at, is_ahead=True)


def _entry(event: JobEvent, *, has_moved: bool) -> TimelineEntry:
    text, icon, tone = _EVENTS.get(event.kind, (event.kind, "info", ""))
    if has_moved and event.kind == JobState.PREEMPTED:
        text, icon, tone = mark_text("Run {run} left its machine"), "st-end", ""
    sentence = _(text).format(run=event.run_number) if event.kind in _EVENTS else clean(event.kind, 60)
    detail = event.detail
    if "prepared" in detail:
        sentence = _("Its data is prepared; it waits for its own machine")
    notes = [clean(str(detail[key]), 200) for key in ("reason", "name", "found") if detail.get(key)]
    if isinstance(detail.get("bytes"), int):
        notes.append(size_text(detail["bytes"]))
    if (move := move_in(event)) is not None:
        notes.append(moved_text(move))
    return TimelineEntry(text=sentence, icon=icon, at=event.at, note=" · ".join(notes), tone=tone)
