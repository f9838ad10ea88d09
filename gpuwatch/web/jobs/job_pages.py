"""The pages of jobs: the list, and one job with its log and results; cancel and retry.

`job_routes` adds what the page of a job loads besides: new lines of its log, and files to download.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from gpuwatch.app.jobs import job_actions
from gpuwatch.app.jobs.job_output import log_part, result_file, whole_log
from gpuwatch.app.jobs.jobs import RETRIABLE, job_details, listed_jobs
from gpuwatch.domain.jobs.checkpoints import kept_facts
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.queue import queue_order
from gpuwatch.domain.jobs.run_sample import RunSample, sample_facts, without_older_samples
from gpuwatch.domain.market.money import dollars, per_gpu_hour, per_hour, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.errors import JobConflict, UsageError
from gpuwatch.web.page import PERCENT, Confirm, FormAction, FormResult, Page, Redirect, View, is_confirmed
from gpuwatch.web.problems import HttpProblem

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

_JOBS_SHOWN = 200
_LOG_LINES = 200
_SAMPLES = 600  # points of a chart: as many as fit on a screen
_EVENTS = 200
_RESULTS = 500
_CHARTS: tuple[tuple[str, str, Callable[[RunSample], float | None]], ...] = (
    ("Loss", "loss", lambda sample: sample.loss),
    ("Speed", "tokens/s", lambda sample: sample.tokens_per_s),
    ("GPU use", "percent", lambda sample: sample.gpu_percent),
)
_DIGITS_MAX = 15


# --- all jobs ---------------------------------------------------------------------------------------------------------


def _show_jobs(view: View) -> Mapping[str, Any]:
    jobs = listed_jobs(view.settings)
    queued = queue_order(jobs)
    return {
        "running": [job for job in jobs if not job.is_over and job.state is not JobState.QUEUED],
        "queued": queued[:_JOBS_SHOWN],
        "over": [job for job in reversed(jobs) if job.is_over][:_JOBS_SHOWN],
        "left_out": max(0, len(queued) - _JOBS_SHOWN),
    }


# not in the navigation: the page of the launches links here
JOBS_PAGE = Page(name="Jobs", path="/jobs", template="jobs.html", show=_show_jobs, order=32, in_nav=False)


# --- one job ----------------------------------------------------------------------------------------------------------


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
        "can_retry": details.job.state in RETRIABLE,
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
    if job.state not in RETRIABLE:
        return Redirect(text=f"It is {job.state.value}; nothing changed.", to=page_path)
    if not is_confirmed(view):
        spec = job.definition
        facts = (*_money(job), ("Retries", str(spec.retries)), ("Reason", job.reason or "–"))
        question = f"Queue job {job.name} again? It may rent an instance."
        return Confirm(question=question, button="Retry", back=page_path, facts=facts)
    try:
        version = int(as_of) if as_of.isascii() and as_of.isdigit() and len(as_of) < 10 else -1
        job_actions.retry_job(view.settings, job.job_id, actor=view.actor, as_of=version)
    except (JobConflict, UsageError) as error:
        return Redirect(text=str(error), to=page_path, is_error=True)
    return Redirect(text="It is queued again; it resumes from its last complete checkpoint.", to=page_path)


def _money(job: Job) -> tuple[tuple[str, str], ...]:
    limit = job.definition.limit
    limits = (
        None if limit.max_usd is None else f"{dollars(limit.max_usd)} in all",
        None if limit.max_price_usd_gpu_hour is None else per_gpu_hour(limit.max_price_usd_gpu_hour, most=6),
        None if limit.max_usd_hour is None else per_hour(limit.max_usd_hour, most=6),
    )
    limit_text = ", ".join(filter(None, limits))
    return ("Cost so far", dollars(usd(job.spent_microusd))), ("Limit", limit_text or "as in its resources")


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


# --- its log and results ----------------------------------------------------------------------------------------------


def job_routes(context: WebContext) -> list[Route]:
    """Return the routes; the guard requires the scope `read`."""

    async def log(request: Request) -> Response:
        run, begin = _number(request, "run"), _number(request, "begin")
        part = await run_in_threadpool(log_part, context.settings, request.path_params["id"], run, begin)
        more = part.job.run_number > part.run_number
        body = {
            "run_number": part.run_number,
            "lines": part.lines,
            "end": part.end,
            "next_run": part.run_number + 1 if more else None,
            "is_over": part.job.is_over,
        }
        return JSONResponse(body, headers={"Cache-Control": "no-store"})

    async def log_file(request: Request) -> Response:
        run = request.path_params["run"]
        job, path = await run_in_threadpool(whole_log, context.settings, request.path_params["id"], run)
        return _download(path, f"{job.name}-run{run}.log")

    async def result(request: Request) -> Response:
        parts = request.path_params
        path, name = await run_in_threadpool(result_file, context.settings, parts["id"], parts["run"], parts["name"])
        return _download(path, name)

    return [
        Route("/jobs/{id}/log", log, methods=["GET"]),
        Route("/jobs/{id}/runs/{run:int}/log", log_file, methods=["GET"]),
        Route("/jobs/{id}/runs/{run:int}/results/{name:path}", result, methods=["GET"]),
    ]


def _download(path: object, name: str) -> FileResponse:
    """Send a file for download, never for display: a machine's output must not run as a page of ours."""
    headers = {"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "no-store"}
    return FileResponse(
        str(path), media_type="application/octet-stream", filename=name, headers=headers,
        content_disposition_type="attachment",
    )  # fmt: skip


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise HttpProblem(422, f"{name}: expected a whole number")
    return int(text)
