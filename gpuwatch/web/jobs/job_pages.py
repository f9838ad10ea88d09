"""The pages of jobs: the list, and one job with its charts, log and results; cancel and retry.

`job_routes` adds what the page of a job loads besides: new lines of its log, and files to download.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gpuwatch.app.jobs import job_actions
from gpuwatch.app.jobs.job_output import log_part, result_file, whole_log
from gpuwatch.app.jobs.job_series import listed_series, request_series_end, series_details
from gpuwatch.app.jobs.jobs import RETRIABLE, JobDetails, job_details, listed_jobs
from gpuwatch.app.launches.launches import launch_details
from gpuwatch.app.reader_text import clock_text, span
from gpuwatch.app.watches.pauses import pauses
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.queue import queue_order
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.figure_text import size_text
from gpuwatch.domain.market.money import dollars, hourly_text, microusd, unit_hourly_text, usd
from gpuwatch.domain.setup.store_addresses import is_store
from gpuwatch.domain.watches.owner_names import JOB_PREFIX, Purpose, plain_name
from gpuwatch.errors import JobConflict, ResourceNotFound, UsageError
from gpuwatch.language import translate as _
from gpuwatch.web.components import hardware
from gpuwatch.web.jobs.job_answers import (
    CHIPS,
    cap_text,
    job_answer,
    job_timeline,
    moved_text,
    newest_checkpoint_at,
    queue_answer,
    unsaved_text,
    waits_text,
)
from gpuwatch.web.jobs.job_charts import job_charts
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, View, is_confirmed
from gpuwatch.web.problems import HttpProblem

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job_values import JobLimit
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.web.context import WebContext

_JOBS_SHOWN = 200
_LOG_LINES = 200
_FIGURES = 60  # rows of the table behind the charts
_EVENTS = 60
_RESULTS = 500
_DIGITS_MAX = 15
_PIECE_BYTES = 65_536
# a machine's output is for download alone: it must not run as a page of ours
_NEVER_SHOWN = {"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "no-store"}


# --- all jobs ---------------------------------------------------------------------------------------------------------


def _show_jobs(view: View) -> Mapping[str, Any]:
    jobs = listed_jobs(view.settings)
    in_force = [one for one in pauses(view.settings).in_force(view.now) if one.watch is not None]
    paused = {Purpose.of(one.watch or "").job for one in in_force}
    running = [job for job in jobs if not job.is_over and job.state is not JobState.QUEUED]
    queued, states = queue_order(jobs), _states(jobs)
    return {
        "answer": queue_answer(running, queued, states),
        "running": running,
        "queued": [
            (job, waits_text(job, states), any(one.binds(job.watch_name) for one in in_force))
            for job in queued[:_JOBS_SHOWN]
        ],
        "over": [(job, _lived(job)) for job in reversed(jobs) if job.is_over][:_JOBS_SHOWN],
        "left_out": max(0, len(queued) - _JOBS_SHOWN),
        "series": [(one, pause_path(one.name), one.name in paused) for one in listed_series(view.settings)],
        "job_chips": CHIPS,
    }


def _states(jobs: Sequence[Job]) -> dict[str, JobState]:
    """Return the state of each job, by name; of a group: done once all of it is."""
    states = {job.name: job.state for job in jobs}
    for group in {job.definition.group for job in jobs if job.definition.group}:
        rest = [job.state for job in jobs if job.definition.group == group and job.state is not JobState.DONE]
        states[group] = rest[0] if rest else JobState.DONE
    return states


def _lived(job: Job) -> str:
    is_known = job.started_at is not None and job.ended_at is not None
    return span((job.ended_at - job.started_at).total_seconds() if is_known else None)  # type: ignore[operator]


def _end_series(view: View) -> FormResult:
    details = series_details(view.settings, view.path["name"])
    if details is None:
        return Redirect(text=_("It was ended before; nothing changed."), to="/jobs")
    name = plain_name(details.series.name)
    if not is_confirmed(view):
        facts = [(_("Schedule"), details.series.definition.schedule or "")]
        facts += [
            (_("Open run"), _("{job} is cancelled.").format(job=plain_name(run.name))) for run in details.open_runs
        ]
        question = _("End the recurring job {name}?").format(name=name)
        return Confirm(question=question, button=_("End it"), back="/jobs", facts=tuple(facts), ends_something=True)
    ended = request_series_end(view.settings, details.series.name, actor=view.actor)
    text = _("It starts no more runs.") if ended.changed else _("It was ended before; nothing changed.")
    return Redirect(text=text, to="/jobs")


JOBS_PAGE = Page(
    name="Jobs",
    path="/jobs",
    template="jobs.html",
    show=_show_jobs,
    order=32,
    actions=(FormAction(path="/jobs/series/{name}/end", scope="manage", run=_end_series),),
)


def pause_path(name: str) -> str:
    """Return the address of the page that pauses a job, or a recurring one with all its runs."""
    return f"/pause?watch={quote(JOB_PREFIX + name)}"


# --- one job ----------------------------------------------------------------------------------------------------------


def _show_job(view: View) -> Mapping[str, Any]:
    details = job_details(view.settings, view.path["id"])
    job, samples = details.job, details.samples
    log = log_part(view.settings, job.job_id)
    results = [(run.run_number, result) for run in details.runs for result in run.results]
    newest = details.newest_sample
    return {
        "job": job,
        "answer": job_answer(
            details, _states(listed_jobs(view.settings)) if job.definition.depends_on else {}, view.now
        ),
        "job_chips": CHIPS,
        "sample": newest,
        "expected_usd": None if newest is None or newest.usd is None else sum(newest.usd) / 2,
        "notches": _notches(details),
        "checkpoint_at": newest_checkpoint_at(details),
        "charts": job_charts(samples),
        "samples": samples[-_FIGURES:],
        "timeline": job_timeline(details, _EVENTS),
        "launch": _machine(view, job),
        "log": log.lines[-_LOG_LINES:],
        "log_run": log.run_number,
        "log_end": log.end,
        "log_is_at": details.log_is_at,
        "results": results[:_RESULTS],
        "results_left_out": max(0, len(results) - _RESULTS),
        "size_text": size_text,
        "facts": [*_facts(job), *_spot_facts(details), *_move_facts(details)],
        "can_retry": job.state in RETRIABLE,
        "is_paused": details.pause is not None and details.pause.watch is not None,
        "pause_at": pause_path(job.series or job.name),
    }


def _machine(view: View, job: Job) -> Launch | None:
    """Return the newest machine of the job, if its launch is stored."""
    if job.launch_id is None:
        return None
    try:
        return launch_details(view.settings, job.launch_id, view.now).launch
    except ResourceNotFound:
        return None


def _notches(details: JobDetails) -> list[float]:
    """Return the progress at each checkpoint of the run, from 0 to 1."""
    notches, progress = [], None
    samples = {sample.at: sample.progress for sample in details.samples}
    for event in details.events:
        progress = samples.get(event.at, progress)
        if event.kind == "checkpoint" and progress is not None and event.run_number == details.job.run_number:
            notches.append(progress)
    return notches


def _facts(job: Job) -> list[tuple[str, str]]:
    """Return the definition, in words."""
    spec = job.definition.whole
    facts = [
        (_("Command"), spec.command or _("a script")),
        (_("GPU"), _wanted_text(spec.resources)),
        (_("Limit"), _limit_text(spec.limit, spec.resources) or cap_text(job)),
        (_("Retries"), _("{left} of {all} left").format(left=job.retries_left, all=spec.retries)),
    ]
    if (prepare := spec.prepare) is not None:
        facts += [
            (_("Preparation"), prepare.command or _("a script")),
            (
                _("Preparation on"),
                _("{machine}, {limit}").format(
                    machine=_wanted_text(prepare.resources),
                    limit=_limit_text(prepare.limit or spec.limit, prepare.resources),
                ),
            ),
            (_("Prepared files"), ", ".join(prepare.outputs) or "–"),
        ]
    for result in spec.results:
        target = result.target if is_store(result.target) else str(PurePath(spec.folder, result.target))
        facts.append((_("Results"), _("{source} to {target}").format(source=result.source, target=target)))
    if spec.checkpoint is not None:
        every = span(spec.checkpoint.every_s)
        facts.append((_("Checkpoint"), _("{path}, fetched every {time}").format(path=spec.checkpoint.path, time=every)))
    if spec.resources.group is not None:
        facts.append((_("Group"), spec.resources.group))
    if job.series is not None:
        facts.append((_("Recurring job"), plain_name(job.series)))
    if spec.depends_on:
        facts.append((_("After"), ", ".join(map(plain_name, spec.depends_on))))
    return facts


def _spot_facts(details: JobDetails) -> Iterator[tuple[str, str]]:
    """Yield until when it waits for a spot machine, and what the rest of its work costs both ways."""
    costs = details.spot_first
    if costs is None:
        return
    spot, on_demand = (_("unknown") if one is None else dollars(one) for one in (costs.spot_usd, costs.on_demand_usd))
    if costs.until is None:
        text = _("for {time} once there is a machine on demand; about {spot} as spot, {on_demand} on demand")
        time = span(details.job.definition.resources.spot_for_s)
    else:
        text = _("until {time}; about {spot} as spot, {on_demand} on demand at once")
        time = clock_text(costs.until)
    yield _("Spot only"), text.format(time=time, spot=spot, on_demand=on_demand)


def _wanted_text(resources: Watch) -> str:
    """Return the machine that a step needs."""
    memory = resources.min_vram_gib
    wanted = hardware(", ".join(resources.gpu[:5]) or _("any GPU"), resources.gpu_count_min)
    return wanted if memory is None else _("{gpu}, at least {memory} GiB").format(gpu=wanted, memory=f"{memory:g}")


def _move_facts(details: JobDetails) -> Iterator[tuple[str, str]]:
    """Yield its moves to cheaper machines, and what was last found out about one."""
    for move in details.moves:
        yield _("Moved"), moved_text(move)
    relocate = details.job.definition.relocate
    if relocate is not None:
        does = _("It moves there by itself.") if relocate.action == "move" else _("It is only reported.")
        yield _("Cheaper machine"), " ".join(filter(None, (does, details.advice)))


# --- cancel, retry ----------------------------------------------------------------------------------------------------


def _cancel(view: View) -> FormResult:
    details = job_details(view.settings, view.path["id"])
    job = details.job
    page_path = f"/jobs/{job.job_id}"
    if job.is_over:
        return Redirect(text=_("It has already ended; nothing changed."), to=page_path)
    if not is_confirmed(view):
        facts = (*_money(job), (_("Lost"), unsaved_text(details, view.now)))
        if job.launch_id:
            facts = (*facts, (_("Its machine"), _("It is ended, with the data on it.")))
        question = _("Cancel job {name}?").format(name=plain_name(job.name))
        return Confirm(question=question, button=_("Cancel the job"), back=page_path, facts=facts, ends_something=True)
    try:
        _job, changed = job_actions.request_cancel(view.settings, job.job_id, actor=view.actor)
    except (JobConflict, UsageError) as error:
        return Redirect(text=str(error), to=page_path, is_error=True)
    text = _("It is cancelled; its machine, if any, is being ended.") if changed else _("It was already cancelled.")
    return Redirect(text=text, to=page_path)


def _retry(view: View) -> FormResult:
    job = job_actions.job_of(view.settings, view.path["id"])
    page_path = f"/jobs/{job.job_id}"
    as_of = view.form.get("version", "")
    if job.state not in RETRIABLE:
        return Redirect(text=_("It runs or waits; nothing changed."), to=page_path)
    if not is_confirmed(view):
        facts = (*_money(job), (_("Retries"), str(job.definition.retries)), (_("Reason"), job.reason or "–"))
        question = _("Queue job {name} again? It may rent a machine.").format(name=plain_name(job.name))
        return Confirm(question=question, button=_("Retry it"), back=page_path, facts=facts)
    try:
        version = int(as_of) if as_of.isascii() and as_of.isdigit() and len(as_of) < 10 else -1
        job_actions.retry_job(view.settings, job.job_id, actor=view.actor, as_of=version)
    except (JobConflict, UsageError) as error:
        return Redirect(text=str(error), to=page_path, is_error=True)
    return Redirect(text=_("It is queued again; it resumes from its last complete checkpoint."), to=page_path)


def _money(job: Job) -> tuple[tuple[str, str], ...]:
    spec = job.definition.whole
    limit_text = _limit_text(spec.limit, spec.resources) or _("as its file says")
    return (_("Cost so far"), dollars(usd(job.spent_microusd))), (_("Limit"), limit_text)


def _limit_text(limit: JobLimit, resources: Watch) -> str:
    most, gpu_count = limit.max_price_usd_gpu_hour, resources.gpu_count_max
    limits = (
        None if limit.max_usd is None else _("{amount} in all").format(amount=dollars(limit.max_usd)),
        None if most is None else unit_hourly_text(microusd(most), gpu_count),
        None if limit.max_usd_hour is None else hourly_text(microusd(limit.max_usd_hour)),
    )
    return ", ".join(filter(None, limits))


JOB_PAGE = Page(
    name="Job",
    path="/jobs/{id}",
    template="job.html",
    show=_show_job,
    order=33,
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
        headers = {**_NEVER_SHOWN, "Content-Disposition": f'attachment; filename="{quote(job.name)}-run{run}.log"'}
        # without a length: the log of a run that works grows while it is sent
        return StreamingResponse(_pieces(path), media_type="application/octet-stream", headers=headers)

    async def result(request: Request) -> Response:
        parts = request.path_params
        path, name = await run_in_threadpool(result_file, context.settings, parts["id"], parts["run"], parts["name"])
        return FileResponse(path, media_type="application/octet-stream", filename=name, headers=_NEVER_SHOWN)

    return [
        Route("/jobs/{id}/log", log, methods=["GET"]),
        Route("/jobs/{id}/runs/{run:int}/log", log_file, methods=["GET"]),
        Route("/jobs/{id}/runs/{run:int}/results/{name:path}", result, methods=["GET"]),
    ]


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(partial(file.read, _PIECE_BYTES), b"")


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise HttpProblem(422, f"{name}: expected a whole number")
    return int(text)
