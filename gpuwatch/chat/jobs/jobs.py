"""`/jobs`: the queue, running jobs, those ended within a day; one job with its log; cancel and retry, confirmed."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from gpuwatch.app.jobs.job_actions import job_of, request_cancel, retry_job
from gpuwatch.app.jobs.job_output import log_part
from gpuwatch.app.jobs.job_series import SeriesDetails, listed_series, request_series_end, series_details
from gpuwatch.app.jobs.jobs import RETRIABLE, job_details, listed_jobs
from gpuwatch.chat.replies import ChatContext, ChatReply, button_rows, listing, question, simple_reply
from gpuwatch.domain.jobs.job import Job, JobState, state_text
from gpuwatch.domain.jobs.job_series import JobSeries
from gpuwatch.domain.jobs.queue import queue_order
from gpuwatch.domain.jobs.run_sample import sample_facts
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.alerts.alert_buttons import ButtonAction, SignedButton, bound_to, subject_key
from gpuwatch.errors import UsageError
from gpuwatch.notifiers.toolkit import Line, Piece, Role, cleaned
from gpuwatch.ports.alerts import MessageButton
from gpuwatch.redaction import redact

_SHOWN = 15
_ENDED_FOR_MAX = timedelta(days=1)
_WITH_BUTTONS = 8
_LOG_LINES = 15
_LOG_LINE = 200  # characters


def jobs(context: ChatContext, argument: str) -> ChatReply:
    """List jobs on an instance first, then the queue in its order, then recently ended ones; or show the named one."""
    if argument:
        if (series := series_details(context.settings, argument)) is not None:
            return _series_reply(context, series)
        return _job_reply(context, job_of(context.settings, argument))
    job_list = listed_jobs(context.settings)
    running = [job for job in job_list if not job.is_over and job.state is not JobState.QUEUED]
    since = context.now - _ENDED_FOR_MAX
    over = [job for job in reversed(job_list) if job.is_over and (job.ended_at or since) >= since]
    listed, recurring = [*running, *queue_order(job_list), *over], listed_series(context.settings)
    if not listed and not recurring:
        return simple_reply("No job is open, and none ended within the last day.")
    items = [(job.name, f": {_line(job)}") for job in listed[:_SHOWN]]
    if len(listed) > _SHOWN:
        items.append(("More", f": {len(listed) - _SHOWN}, see gpuwatch jobs list"))
    items += [(one.name, f": {_series_line(one, ZoneInfo(context.settings.timezone))}") for one in recurring[:_SHOWN]]
    buttons = [button for job in listed[:_WITH_BUTTONS] for button in job_buttons(context, job, job.name)]
    title = count_text(len(listed), "job") + (f", {len(recurring)} recurring" if recurring else "")
    return listing(title, items, button_rows(buttons, 2))


def job_buttons(context: ChatContext, job: Job, of: str = "") -> list[MessageButton]:
    """Return the buttons of a job. `of`: which job, in a message with several."""
    buttons = []
    if job.state in RETRIABLE:
        buttons.append(context.button(f"Retry {of}".strip(), ButtonAction.JOB_RETRY, job.job_id))
    if not job.is_over:
        buttons.append(context.button(f"Cancel {of}".strip(), ButtonAction.JOB_CANCEL, job.job_id))
    if job.run_number:
        buttons.append(context.button(f"Log {of}".strip(), ButtonAction.JOB_LOG, job.job_id))
    return buttons


def _series_reply(context: ChatContext, details: SeriesDetails) -> ChatReply:
    """Show a recurring job: its next time, and its newest runs."""
    runs = list(reversed(details.runs))[:_WITH_BUTTONS]
    items = [("next", f": {_series_line(details.series, ZoneInfo(context.settings.timezone))}")]
    items += [(run.name, f": {_line(run)}") for run in runs]
    buttons = [button for run in details.open_runs for button in job_buttons(context, run, "run")]
    buttons.append(context.button("End it", ButtonAction.SERIES_END, subject_key(details.series.name)))
    return listing(f"Recurring job {details.series.name}", items, button_rows(buttons, 2))


def _job_reply(context: ChatContext, job: Job) -> ChatReply:
    details = job_details(context.settings, job.job_id)
    zone = ZoneInfo(context.settings.timezone)
    sample = details.newest_sample
    facts = [] if sample is None else sample_facts(sample, lambda at: format_moment(at, zone))
    spot = [] if details.spot_first is None else [("spot", f": {details.spot_first.text(zone)}")]
    paused = [] if details.pause is None else [("paused", f": {details.pause.text(zone)}")]
    items = [("state", f": {_line(details.job)}"), *paused, *spot, *((label, f": {text}") for label, text in facts)]
    return listing(f"Job {details.job.name}", items, [job_buttons(context, details.job)])


def _series_line(series: JobSeries, zone: ZoneInfo) -> str:
    counts = f", {series.missed} missed, {series.skipped} skipped" if series.missed or series.skipped else ""
    return f"{series.definition.schedule}, next {format_moment(series.next_at, zone)}{counts}"


def _line(job: Job) -> str:
    progress = "" if job.progress is None else f", {100 * job.progress:.0f} % done"
    cost = f", {dollars(usd(job.spent_microusd))}" if job.spent_microusd else ""
    reason = f": {job.reason}" if job.reason else ""
    return f"{state_text(job.state, job.definition.stage)}{progress}{cost}{reason}"


# --- presses ----------------------------------------------------------------------------------------------------------


def log_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Show the end of the log of its newest run."""
    part = log_part(context.settings, button.subject)
    lines = [line for line in part.lines if line.strip()][-_LOG_LINES:]
    if not lines:
        return simple_reply(f"No log of job {part.job.name} has been fetched yet.", [job_buttons(context, part.job)])
    title = Line(Role.TITLE, (Piece(cleaned(f"Log of job {part.job.name}, run {part.run_number}"), bold=True),))
    log_lines = (Line(Role.ITEM, (Piece(cleaned(redact(line), _LOG_LINE), code=True),)) for line in lines)
    return ChatReply(lines=(title, *log_lines), rows=[job_buttons(context, part.job)])


def cancel_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Cancel a job, after a confirmation."""
    job = job_of(context.settings, button.subject)
    if job.is_over:
        raise UsageError(f"job {job.name} is {job.state.value}; it cannot be cancelled")
    rented = " Its instance and the data on it are destroyed." if job.launch_id else ""
    rows = context.confirmation(f"Yes, cancel {job.name}", ButtonAction.JOB_CANCEL_NOW, job.job_id, otherwise="No")
    return question(f"Cancel job {job.name}?{rented}\n{_line(job)}", rows)


def cancel_confirmed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Cancel it; this process and the daemon end its instance."""
    job, changed = request_cancel(context.settings, button.subject, actor=context.actor)
    text = f"Job {job.name} is cancelled" + (", and its instance is being ended." if job.launch_id else ".")
    text = text if changed else f"Job {job.name} was already cancelled; nothing changed."
    return simple_reply(text, [job_buttons(context, job)], notice=text)


def end_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """End a recurring job, after a confirmation."""
    series = _series_of(context, button)
    rows = context.confirmation(f"Yes, end {series.name}", ButtonAction.SERIES_END_NOW, button.subject, otherwise="No")
    return question(f"End the recurring job {series.name}? Its open run, if any, is cancelled.", rows)


def end_confirmed(context: ChatContext, button: SignedButton) -> ChatReply:
    """End it; this process and the daemon end the instance of its open run."""
    ended = request_series_end(context.settings, _series_of(context, button).name, actor=context.actor)
    text = f"Recurring job {ended.series.name} is ended; it starts no more runs."
    return simple_reply(text, notice=text)


def _series_of(context: ChatContext, button: SignedButton) -> JobSeries:
    """Return the recurring job of a button. Raises UsageError: it was ended."""
    for series in listed_series(context.settings):
        if subject_key(series.name) == button.subject:
            return series
    raise UsageError("this recurring job was ended before; nothing changed")


def retry_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Queue it again, after a confirmation, because it may rent."""
    job = job_of(context.settings, button.subject)
    if job.state not in RETRIABLE:
        raise UsageError(f"job {job.name} is {job.state.value}; nothing was done")
    rows = context.confirmation(
        f"Yes, retry {job.name}", ButtonAction.JOB_RETRY_NOW, job.job_id, _binding(job), otherwise="No"
    )
    limit = job.definition.limit.max_usd
    limit_text = f" of ${limit} at most" if limit is not None else ""
    spent_text = f"It has cost {dollars(usd(job.spent_microusd))}{limit_text}."
    return question(f"Queue job {job.name} again? It may rent an instance. {spent_text}\n{_line(job)}", rows)


def retry_confirmed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Queue it again, unless it has changed since the question."""
    job = job_of(context.settings, button.subject)
    if _binding(job) != button.bound:
        raise UsageError(f"job {job.name} has changed in the meantime; nothing was done. See: /jobs {job.name}")
    after, _ = retry_job(context.settings, job.job_id, actor=context.actor, as_of=job.version)
    text = f"Job {after.name} is queued again; it resumes from its last complete checkpoint."
    return simple_reply(text, [job_buttons(context, after)], notice=text)


def _binding(job: Job) -> str:
    return bound_to(job.job_id, job.version)
