"""One job: its timeline, live charts, runs, log and results; cancel and retry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.app.jobs import job_actions
from gpuwatch.app.jobs.job_output import log_part
from gpuwatch.app.jobs.jobs import job_details
from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.run_sample import RunSample, sample_facts, without_older_samples
from gpuwatch.domain.jobs.stores import kept_facts
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.errors import JobConflict, UsageError
from gpuwatch.web.page import PERCENT, Confirm, FormAction, FormResult, Page, Redirect, View, is_confirmed

_LOG_LINES = 200
_SAMPLES = 600  # points of a chart: as many as fit on a screen
_EVENTS = 200
_RESULTS = 500
_CHARTS: tuple[tuple[str, str, Callable[[RunSample], float | None]], ...] = (
    ("Loss", "loss", lambda sample: sample.loss),
    ("Speed", "tokens/s", lambda sample: sample.tokens_per_s),
    ("GPU use", "percent", lambda sample: sample.gpu_percent),
)


def _show_job(view: View) -> Mapping[str, Any]:
    details = job_details(view.settings, view.path["id"])
    log = log_part(view.settings, details.job.job_id)
    events = without_older_samples(details.events)
    results = [(run.run_number, result) for run in details.runs for result in run.results]
    newest, zone = details.newest_sample, ZoneInfo(view.settings.timezone)
    samples = details.samples
    return {
        "job": details.job,
        "facts": [
            *([] if newest is None else sample_facts(newest, lambda at: format_moment(at, zone))),
            *kept_facts(details.job.definition),
        ],
        "events": events[-_EVENTS:],
        "events_left_out": max(0, len(events) - _EVENTS),
        "runs": details.runs,
        "samples": samples[-_SAMPLES:],
        "charts": charts(samples),
        "log": log.lines[-_LOG_LINES:],
        "log_run": log.run_number,
        "log_end": log.end,
        "results": results[:_RESULTS],
        "results_left_out": max(0, len(results) - _RESULTS),
        "can_retry": details.job.state in job_actions.RETRIABLE,
    }


def charts(samples: Sequence[RunSample]) -> list[dict[str, Any]]:
    """Return the chart data of runs: the newest `_SAMPLES` points, with a gap between two runs."""
    step = -(-len(samples) // _SAMPLES) or 1
    thinned = list(reversed(samples[::-1][::step]))
    panels = []
    for label, unit, value_of in _CHARTS:
        points: list[tuple[int, float | None]] = [(_second(sample), value_of(sample)) for sample in thinned[:1]]
        for before, sample in pairwise(thinned):
            if sample.run_number != before.run_number:
                points.append((_second(before) + 1, None))
            points.append((_second(sample), value_of(sample)))
        if any(value is not None for _, value in points):
            series = [{"label": label, "values": [value for _, value in points]}]
            panel = {"label": label, "x": [at for at, _ in points], "series": series, "unit": unit}
            panels.append(panel | ({"range": PERCENT} if unit == "percent" else {}))
    return panels


def _second(sample: RunSample) -> int:
    return int(sample.at.timestamp())


def _cancel(view: View) -> FormResult:
    job = job_actions.job_of(view.settings, view.path["id"])
    page_path = f"/jobs/{job.job_id}"
    if job.is_over:
        return Redirect(text=f"It is already {job.state.value}; nothing changed.", to=page_path)
    if not is_confirmed(view):
        facts = (
            *_money(job),
            ("Launch", f"{job.launch_id}: its instance and the data on it are destroyed" if job.launch_id else "none"),
        )
        return Confirm(question=f"Cancel job {job.name}?", button="Cancel the job", back=page_path, facts=facts)
    try:
        _, changed = job_actions.request_cancel(view.settings, job.job_id, actor=view.actor)
    except (JobConflict, UsageError) as error:
        return Redirect(text=str(error), to=page_path, is_error=True)
    text = "It is cancelled; its instance, if any, is being ended." if changed else "It was already cancelled."
    return Redirect(text=text, to=page_path)


def _retry(view: View) -> FormResult:
    job = job_actions.job_of(view.settings, view.path["id"])
    page_path = f"/jobs/{job.job_id}"
    as_of = view.form.get("version", "")
    if job.state not in job_actions.RETRIABLE:
        return Redirect(text=f"It is {job.state.value}; nothing changed.", to=page_path)
    if not is_confirmed(view):
        spec = job.definition
        facts = (*_money(job), ("Retries", str(spec.retries)), ("Reason", job.reason or "–"))
        question = f"Queue job {job.name} again? It may rent an instance."
        return Confirm(question=question, button="Retry", back=page_path, facts=facts)
    try:
        version = int(as_of) if as_of.isascii() and as_of.isdigit() and len(as_of) < 10 else -1
        job_actions.request_retry(view.settings, job.job_id, actor=view.actor, as_of=version)
    except (JobConflict, UsageError) as error:
        return Redirect(text=str(error), to=page_path, is_error=True)
    return Redirect(text="It is queued again; it resumes from its last complete checkpoint.", to=page_path)


def _money(job: Job) -> tuple[tuple[str, str], ...]:
    limit = job.definition.limit
    limits = (
        (limit.max_usd, "$ in all"),
        (limit.max_price_usd_gpu_hour, "$ per GPU-hour"),
        (limit.max_usd_hour, "$ per hour"),
    )
    limit_text = ", ".join(f"{value} {unit}" for value, unit in limits if value is not None)
    return ("Cost so far", f"{job.spent_microusd / MICRO:.2f} $"), ("Limit", limit_text or "as in its resources")


JOB_PAGE = Page(
    name="Job",
    path="/jobs/{id}",
    template="job.html",
    show=_show_job,
    order=33,
    in_nav=False,
    actions=(
        FormAction(path="/jobs/{id}/cancel", scope="manage", run=_cancel),
        FormAction(path="/jobs/{id}/retry", scope="manage", run=_retry),
    ),
    scripts=("vendor/uplot/uPlot.iife.min.js", "charts.js", "job.js"),
)
